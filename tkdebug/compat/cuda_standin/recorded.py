# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""The steps of a captured graph: torch operations and launches, with the tensors they work on.

Responsible for doing a step again. Each keeps its tensors: as long as a graph lives, so does the
memory that its replays read and write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tkdebug.interpreter.torch_state import apart_from_the_script
from tkdebug.runtime.launch.graph_capture import CaptureError
from tkdebug.runtime.launch.grid import Grid
from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

CUDA = torch.device("cuda", 0)


@dataclass(frozen=True, slots=True)
class RecordedOperation:
    """One torch operation.

    Attributes:
        place: file and line of the script that it was captured at.
        made: tensors that it made, each with its position among all that it gave.
        stored_to: tensors of its arguments that it writes.
        read: keys of the memory of all its arguments.
        has_gradients: whether gradients were enabled, which some operations look at.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    place: str
    made: tuple[tuple[int, Tensor], ...]
    stored_to: tuple[Tensor, ...]
    read: frozenset[int]
    has_gradients: bool

    def run(self) -> None:
        """Run the operation again; its results go into the memory of the captured ones.

        Raises:
            CaptureError: it fails, or gives another shape than in the capture.
        """
        torch._C._set_grad_enabled(self.has_gradients)
        try:
            results = pytree.tree_leaves(self.function(*self.arguments, **self.keywords))
        except Exception as error:
            raise CaptureError(
                f"{self.place}: {self.function}, captured here, fails in a replay: {error}"
            ) from error
        for position, made in self.made:
            result = results[position]
            if result.shape != made.shape:
                raise CaptureError(
                    f"{self.place}: {self.function}, captured here, made {list(made.shape)} and "
                    f"makes {list(result.shape)} in a replay; a graph's shapes are fixed"
                )
            made.copy_(result)


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """One launch of a kernel, with a value for each parameter.

    Attributes:
        stored_to: tensors that it may write.
    """

    kernel: InterpretedKernel
    grid: Grid
    values: tuple[Any, ...]
    stored_to: tuple[Tensor, ...]

    def run(self) -> None:
        """Launch again; hooks see it and faults are reported, as for any launch."""
        self.kernel.launch(self.grid, self.values)


Step = RecordedOperation | RecordedLaunch


def bare(value: Any) -> Any:
    """`value`, a tensor, as another tensor over its memory.

    It has a version of its own, so that autograd does not take a replay for a change by the script,
    and keeps its memory when the script gives its `.data` another.
    """
    if type(value) not in (Tensor, torch.nn.Parameter):
        return value
    with torch._C.DisableTorchFunction():
        return value.data


def memory_key(tensor: Tensor) -> int:
    """Return a key that is equal for tensors that share memory."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return -id(tensor)  # a sparse tensor has no storage


def run_steps(steps: Sequence[Step]) -> None:
    """Do all steps again, in order."""
    for operations, launch in _runs(steps):
        if operations:
            with _below_autograd():
                for operation in operations:
                    operation.run()
        if launch is not None:
            launch.run()


def _runs(
    steps: Sequence[Step],
) -> Iterator[tuple[list[RecordedOperation], RecordedLaunch | None]]:
    """Operations that follow each other, and the launch after them."""
    operations: list[RecordedOperation] = []
    for step in steps:
        if isinstance(step, RecordedOperation):
            operations.append(step)
        else:
            yield operations, step
            operations = []
    yield operations, None


@contextmanager
def _below_autograd() -> Iterator[None]:
    """Enter the dispatcher below modes, autograd and autocast, where the operations were recorded.

    Inference mode, as tensors made in it may be written to nowhere else.
    """
    with apart_from_the_script(CUDA), torch.inference_mode():
        yield
