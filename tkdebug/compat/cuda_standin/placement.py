# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""Which tensors count as CUDA tensors: a mark on their storage.

The mark, an entry in the account of device memory, lives on the storage, as views, `detach`, saved
tensors and `Parameter`s share it while each is a tensor object of its own. torch keeps a storage's
Python object for as long as the storage lives, so that the mark dies with the memory and never
outlives it.

Everything here reads tensors as they are (CPU memory), whatever modes are in force.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor

from tkdebug.compat.cuda_standin.device_memory import Allocation
from tkdebug.compat.process_environment import TOLD_VARIABLE
from tkdebug.runtime.arguments.tensor_places import CUDA_MARK
from tkdebug.terminal_text import tell

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)
_PINNED = "_tkdebug_pinned"
_announced = threading.Event()
# Set with the first mark: until then no tensor need be asked for its own.
_any_marked = threading.Event()


def announce() -> None:
    """Say once, in this process and those it starts from now on, that the CPU is used."""
    if not _announced.is_set():
        _announced.set()
        if os.environ.get(TOLD_VARIABLE):
            return
        os.environ[TOLD_VARIABLE] = "1"
        # One write: several worker processes may say so at once.
        tell("no CUDA device here; 'cuda' runs on the CPU")


def _holder(tensor: Tensor) -> object:
    """What a mark on `tensor` is put on: its storage, where it has one to ask."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            # Transforms wrap a tensor of their own level around one that has the memory.
            return _holder(torch._C._functorch.get_unwrapped(tensor))
        return tensor  # a sparse tensor has no storage


def _marked(tensor: Tensor, mark: str) -> bool:
    return bool(getattr(_holder(tensor), mark, False))


def _mark_cuda(holder: object) -> None:
    if not getattr(holder, CUDA_MARK, False):
        setattr(holder, CUDA_MARK, Allocation(_size_bytes(holder)))
        _any_marked.set()


def _size_bytes(holder: object) -> int:
    if not isinstance(holder, torch.UntypedStorage) or holder.device.type != "cpu":
        return 0
    return holder.nbytes()


def any_on_cuda() -> bool:
    """Whether any tensor was ever made to count as a CUDA tensor."""
    return _any_marked.is_set()


def on_cuda(tensor: Tensor) -> bool:
    """Whether `tensor` counts as a CUDA tensor."""
    with torch._C.DisableTorchFunction():
        return _marked(tensor, CUDA_MARK)


def is_pinned(tensor: Tensor) -> bool:
    """Whether `tensor` counts as pinned host memory."""
    with torch._C.DisableTorchFunction():
        return _marked(tensor, _PINNED)


def place(tensor: Tensor) -> Tensor:
    """Make `tensor` (and all that shares its memory) count as a CUDA tensor."""
    with torch._C.DisableTorchFunction():
        if tensor.device.type == "cpu":
            announce()
            _mark_cuda(_holder(tensor))
    return tensor


def pin(tensor: Tensor) -> Tensor:
    """Make `tensor` count as pinned host memory."""
    with torch._C.DisableTorchFunction():
        setattr(_holder(tensor), _PINNED, True)
    return tensor


def place_storage(storage: torch.UntypedStorage) -> None:
    """Make all tensors of `storage` count as CUDA tensors."""
    announce()
    _mark_cuda(storage)


def storage_on_cuda(storage: object) -> bool:
    """Whether tensors of `storage` count as CUDA tensors."""
    return bool(getattr(storage, CUDA_MARK, False))


def split_inputs(values: Iterable[object], others: list[Tensor]) -> bool:
    """Whether a tensor among `values` (or lists of them) is on CUDA; the rest go to `others`."""
    found = False
    for value in values:
        if isinstance(value, Tensor):
            if _marked(value, CUDA_MARK):
                found = True
            else:
                others.append(value)
        elif isinstance(value, (list, tuple)) and split_inputs(value, others):
            found = True
    return found


def place_results(result: object, others: list[Tensor]) -> None:
    """Make the tensors of `result` count as CUDA, but those that share memory with `others`."""
    if isinstance(result, Tensor):
        if others and _shares_memory(result, others):
            return
        if result.device.type == "cpu":
            _mark_cuda(_holder(result))
    elif isinstance(result, (list, tuple)):
        for item in result:
            place_results(item, others)
    elif isinstance(result, dict):
        for item in result.values():
            place_results(item, others)


def _address(tensor: Tensor) -> int:
    try:
        return cast(int, tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return -id(tensor)


def _shares_memory(tensor: Tensor, others: list[Tensor]) -> bool:
    address = _address(tensor)
    return any(_address(other) == address for other in others)


def shares_memory(tensor: Tensor, other: Tensor) -> bool:
    """Whether both tensors live in one storage."""
    with torch._C.DisableTorchFunction():
        return _shares_memory(tensor, [other])


def is_cuda_device(device: object) -> bool:
    """Whether a device argument (string, int, `torch.device`) names the CUDA device.

    Raises:
        RuntimeError: it names a CUDA device other than the first, as torch would.
    """
    if isinstance(device, bool):
        return False
    if isinstance(device, int):
        index: int | None = device
    elif isinstance(device, torch.device):
        if device.type != "cuda":
            return False
        index = device.index
    elif isinstance(device, str) and device.startswith("cuda"):
        index = torch.device(device).index
    else:
        return False
    if index not in (None, 0, -1):
        raise RuntimeError(
            "CUDA error: invalid device ordinal (without a GPU, tkdebug provides one CUDA device, "
            f"cuda:0; got cuda:{index})"
        )
    return True
