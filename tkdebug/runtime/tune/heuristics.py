"""`@heuristics`: parameters that are worked out from the arguments of each launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tkdebug.runtime.jit.function import KernelInterface
from tkdebug.runtime.launch.requests import requested


class Heuristics(KernelInterface):
    """A kernel some of whose parameters are functions of the others.

    Attributes:
        fn: the kernel, or a tuner around it.
        values: a function of all arguments by name, for each parameter it sets.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        values: Mapping[str, Callable[[dict[str, Any]], Any]],
    ) -> None:
        self.fn = fn
        self.arg_names = list(arg_names)
        self.values = values

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Work the parameters out and launch."""
        with requested(self, args, dict(kwargs), grid):
            positional = dict(zip(self.arg_names, args, strict=False))
            for name, heuristic in self.values.items():
                kwargs[name] = heuristic({**positional, **kwargs})
            return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)


def heuristics(
    values: Mapping[str, Callable[[dict[str, Any]], Any]],
) -> Callable[[Any], Heuristics]:
    """Decorator: work out parameters from the arguments of each launch.

    Args:
        values: for each parameter a function of all arguments by name.
    """

    def decorate(fn: Any) -> Heuristics:
        return Heuristics(fn, fn.arg_names, values)

    return decorate
