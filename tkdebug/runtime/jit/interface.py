"""What jit functions, tuners and heuristics share: `kernel[grid](…)`, `.interpret`, `.warmup`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tkdebug.runtime.arguments.tensor_stand_ins import MockTensor
from tkdebug.runtime.device.modes import mode


class KernelInterface:
    """Something that is launched with a grid."""

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch on `grid`, or only compile when `warmup`."""
        raise NotImplementedError

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """`kernel[grid]`: a function that launches on `grid`."""
        return partial(self.run, grid=grid, warmup=False)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile for these arguments without launching; a torch dtype stands for a tensor."""
        wrapped = [MockTensor.wrap_dtype(argument) for argument in args]
        named = {name: MockTensor.wrap_dtype(argument) for name, argument in kwargs.items()}
        return self.run(*wrapped, grid=grid, warmup=True, **named)

    @property
    def interpret(self) -> Interpreted:
        """`kernel.interpret[grid](…)`: launch interpreted, whatever the mode."""
        return Interpreted(self)


class Interpreted(KernelInterface):
    """A kernel whose launches are interpreted."""

    def __init__(self, kernel: KernelInterface) -> None:
        self.kernel = kernel

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch or warm up under interpret."""
        with mode("interpret"):
            return self.kernel.run(*args, grid=grid, warmup=warmup, **kwargs)
