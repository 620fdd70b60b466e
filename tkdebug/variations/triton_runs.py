"""Launches that an installed Triton compiles and runs, in a process without tkdebug.

The kernel is sent as its text, its inputs as a file of their memory, to which results come back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compat.upstream.asking.asker import asked_once
from tkdebug.compat.upstream.asking.questions import question_of
from tkdebug.compat.upstream.installed import triton_of
from tkdebug.errors import UsageError
from tkdebug.process.temporary_folders import temporary_folder
from tkdebug.variations.outcomes import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from tkdebug.variations.launches import KeptLaunch

_LIMIT_S = 120
_FILE = "memory.pt"


def triton_runner(launch: KeptLaunch) -> Callable[[], Outcome]:
    """Return the function that runs a launch by the Triton that this Python has.

    Args:
        launch: the launch, with inputs on a GPU.

    Raises:
        UsageError: it has none, or inputs are on no GPU.
    """
    tensors = launch.tensors(launch.values)
    device = next((str(tensor.device) for tensor in tensors.values()), "")
    if not device.startswith("cuda"):
        raise UsageError("needs a GPU")
    python, _ = triton_of(sys.executable, "--vary triton")
    return lambda: run_by_triton(launch, python, device, _LIMIT_S)


def run_by_triton(launch: KeptLaunch, python: str, device: str, seconds: float) -> Outcome:
    """Return the outcome of a launch that another Python's Triton compiles and runs.

    Args:
        launch: the launch.
        python: the Python that has it.
        device: the device that the inputs are copied to there.
        seconds: by the clock.

    Raises:
        UsageError: it refuses the kernel, or fails.
    """
    values = launch.fresh()
    question = question_of(launch.src)
    sent = _Sent({tuple(path): value for path, value in question.data["constants"]})
    described = [sent.value(value, (place,)) for place, value in enumerate(values)]
    unsent = [*question.unsent, *sent.unsent]
    if unsent:
        raise UsageError(f"{', '.join(unsent)} cannot be sent to it")
    with temporary_folder() as folder:
        file = folder / _FILE
        torch.save([storage.cpu() for storage in sent.memory.values()], file)
        asked = {"file": str(file), "device": device, "grid": launch.grid, "values": described}
        answer = asked_once(python, {**question.data, "launch": asked}, seconds)
        if answer["verdict"] != "takes":
            raise UsageError(f"Triton does not run it: {answer.get('text', '')}")
        _read_back(file, sent)
    return Outcome(launch.tensors(values), launch.grid)


class _Sent:
    """Describes a launch's values as plain data, with the memory of their tensors.

    Args:
        constants: values that the question describes already, by their places.

    Attributes:
        memory: their allocations as bytes, by address.
        unsent: the values that cannot be described, in words.
    """

    def __init__(self, constants: Mapping[tuple[int, ...], Any]) -> None:
        self._constants = constants
        self.memory: dict[int, Tensor] = {}
        self.unsent: list[str] = []

    def value(self, value: Any, place: tuple[int, ...]) -> Any:
        """Describe the value at a place among the arguments."""
        if place in self._constants:
            return {"plain": self._constants[place]}
        if isinstance(value, Tensor):
            return {"tensor": self._tensor(value)}
        if isinstance(getattr(value, "base", None), Tensor):
            block = [list(part) for part in (value.shape, value.strides, value.block_shape)]
            return {"descriptor": [self._tensor(value.base), *block, value.padding]}
        if isinstance(value, tuple):
            parts = (self.value(part, (*place, at)) for at, part in enumerate(value))
            return {"tuple": list(parts)}
        if not isinstance(value, bool | int | float):
            self.unsent.append(f"an argument ({type(value).__name__})")
        return {"plain": value}

    def _tensor(self, tensor: Tensor) -> list[Any]:
        with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
            storage = tensor.untyped_storage()
            whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
            whole.set_(storage, 0, (storage.nbytes(),), (1,))
        self.memory.setdefault(storage.data_ptr(), whole)
        number = list(self.memory).index(storage.data_ptr())
        dtype = str(tensor.dtype).removeprefix("torch.")
        place = [tensor.storage_offset(), list(tensor.shape), list(tensor.stride())]
        return [number, dtype, *place]


def _read_back(file: Path, sent: _Sent) -> None:
    for whole, now in zip(sent.memory.values(), torch.load(file, weights_only=True), strict=True):
        whole.copy_(now)
