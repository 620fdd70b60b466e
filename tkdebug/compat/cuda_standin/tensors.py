# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""CUDA tensors of the stand-in and the host memory they are in.

Each storage of a CUDA tensor has as an attribute the CPU tensor whose memory it is, and that tensor
has an entry in the account of device memory. torch keeps a storage's Python object for as long as
the storage lives, so that the entry goes with the memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from tkdebug.compat.cuda_standin.device import (
    Allocation,
    is_out_of_memory,
    out_of_memory,
)
from tkdebug.compat.cuda_standin.torch_internals import CPU, CPU_KEYS, move_memory, with_device
from tkdebug.compat.replacements import TOLD_VARIABLE
from tkdebug.interpreter.memory.host_views import HOST_MEMORY, viewed
from tkdebug.terminal.text import tell

_ALLOCATION = "_tkdebug_allocation"
# Types that DLPack has no name for pass as integers of their size.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_as_type = torch.ops.aten.view.dtype
_BY_COLUMN = (torch.sparse_csc, torch.sparse_bsc)
_ATEN = torch.ops.aten
_set = torch.ops.aten.set_.source_Storage_storage_offset
_announced = threading.Event()


def announce() -> None:
    """Say once, in this process and those it starts from now on, that the CPU is used."""
    if not _announced.is_set():
        _announced.set()
        if os.environ.get(TOLD_VARIABLE):
            return
        os.environ[TOLD_VARIABLE] = "1"
        # One write: several worker processes may say so at once.
        tell("no CUDA device here; 'cuda' runs on the CPU")


def place(tensor: Tensor) -> Tensor:
    """Return a CUDA tensor in the memory of a CPU tensor, which gives it up."""
    try:
        made = with_device(tensor, is_cuda=True)
        is_as_it_was = made.dtype is tensor.dtype
    except (BufferError, RuntimeError, TypeError):
        is_as_it_was = False
    if not is_as_it_was:
        if tensor.is_quantized:
            raise NotImplementedError(
                f"quantised tensors ({tensor.dtype}) on cuda take a GPU; here, 'cuda' runs on the "
                "CPU: quantise on the CPU, or use torch.fake_quantize_per_tensor_affine"
            )
        if tensor.layout is not torch.strided:
            return _by_parts(tensor, place)
        made = with_device(tensor.view(_BITS[tensor.element_size()]), is_cuda=True)
        made = _as_type.redispatch(CPU_KEYS, made, tensor.dtype)
    storage = made.untyped_storage()
    # Offsets are those in the CUDA tensor's storage, which begins where the tensor does.
    memory = with_device(tensor, is_cuda=False) if tensor.storage_offset() else tensor
    setattr(memory, _ALLOCATION, Allocation(storage.nbytes()))
    setattr(storage, HOST_MEMORY, memory)
    return made


def made(op: Any) -> Callable[..., Tensor]:
    """Return a kernel of a factory operator: it makes a tensor, and takes none."""
    make = op._handle.redispatch_boxed

    def run(*arguments: Any, device: Any = None, **options: Any) -> Tensor:
        if device is not None and device.index not in (None, 0, -1):
            raise no_such_device(device.index)
        options.pop("pin_memory", None)
        try:
            return place(make(CPU_KEYS, *arguments, device=CPU, **options))
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise out_of_memory(error) from None
            raise

    return run


def host(tensor: Tensor) -> Tensor:
    """Return a CPU tensor over the memory of a CUDA tensor, whose shape is not to be changed."""
    try:
        storage = tensor.untyped_storage()
    except NotImplementedError:
        return _by_parts(tensor, host)
    memory: Tensor | None = getattr(storage, HOST_MEMORY, None)
    if memory is None:
        memory = _taken_over(storage)
    if memory.dtype is tensor.dtype:
        shape, strides, offset = tensor.shape, tensor.stride(), tensor.storage_offset()
        view = memory
        if strides != memory.stride() or shape != memory.shape or offset != memory.storage_offset():
            view = memory.as_strided(shape, strides, offset)
    else:
        view = viewed(memory, tensor)
    if tensor.is_conj():
        view = view.conj()
    return torch._neg_view(view) if tensor.is_neg() else view


def _by_parts(tensor: Tensor, convert: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a sparse tensor whose indices and values are converted."""
    with torch._C.DisableTorchFunction():
        if tensor.layout is torch.sparse_coo:
            indices, values = convert(tensor._indices()), convert(tensor._values())
            made: Tensor = _ATEN._sparse_coo_tensor_unsafe(indices, values, tensor.shape)
            return made._coalesced_(tensor.is_coalesced())
        if tensor.layout in _BY_COLUMN:
            places = tensor.ccol_indices(), tensor.row_indices()
        else:
            places = tensor.crow_indices(), tensor.col_indices()
        values = convert(tensor.values())
        options = {"dtype": values.dtype, "layout": tensor.layout, "device": values.device}
        parts = *map(convert, places), values
        made = _ATEN._sparse_compressed_tensor_unsafe(*parts, tensor.shape, **options)
        return made


def _taken_over(storage: torch.UntypedStorage) -> Tensor:
    """Return the memory of a storage that came from elsewhere, as through DLPack."""
    address, size_bytes = storage.data_ptr(), storage.nbytes()
    of_cpu = torch._C._construct_storage_from_data_pointer(address, CPU, size_bytes)
    memory = torch.empty(0, dtype=torch.uint8).set_(of_cpu)
    setattr(storage, HOST_MEMORY, memory)
    return memory


def replace(tensor: Tensor, memory: Tensor) -> None:
    """Give a CUDA tensor the contents, shape and strides of a CPU tensor."""
    own, offset = tensor.untyped_storage(), tensor.storage_offset()
    end = offset + memory.numel()
    if not tensor.numel() and memory.is_contiguous() and end * memory.itemsize <= own.nbytes():
        # An empty view grows within the memory that it is a view of.
        _set.redispatch(CPU_KEYS, tensor, own, offset, memory.shape, memory.stride())
        host(tensor).copy_(memory)
        return
    storage = place(memory).untyped_storage()
    _set.redispatch(CPU_KEYS, tensor, storage, 0, memory.shape, memory.stride())


def resize(storage: torch.UntypedStorage, size_bytes: int) -> Tensor:
    """Resize CUDA memory, keeping its beginning; return its bytes on the host."""
    memory: Tensor | None = getattr(storage, HOST_MEMORY, None)
    before = _taken_over(storage) if memory is None else memory
    with torch._C.DisableTorchFunction():
        grown = torch.empty(size_bytes, dtype=torch.uint8, device=CPU)
        kept = min(size_bytes, storage.nbytes())
        start = before.storage_offset() * before.element_size()
        as_bytes = torch.empty(0, dtype=torch.uint8, device=CPU)
        as_bytes.set_(before.untyped_storage(), start, (kept,), (1,))
        grown[:kept].copy_(as_bytes)
    # The storage holds on to what it had, which a GPU would have freed.
    vars(before).pop(_ALLOCATION, None)
    # Tensors that are larger now are to be refused, and not to grow it.
    fixed = with_device(grown, is_cuda=False)
    move_memory(storage, fixed.data_ptr(), size_bytes)
    setattr(fixed, _ALLOCATION, Allocation(size_bytes))
    setattr(storage, HOST_MEMORY, fixed)
    return fixed


def new_storage(size_bytes: int) -> torch.UntypedStorage:
    """Return CUDA memory."""
    return place(torch.empty(size_bytes, dtype=torch.uint8, device=CPU)).untyped_storage()


def tensors_in(values: Iterable[Any]) -> Iterable[Tensor]:
    """Yield the tensors among `values`, in lists and tuples, too."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


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
        raise no_such_device(index)
    return True


def no_such_device(index: int | None) -> RuntimeError:
    """The error for a second CUDA device."""
    return RuntimeError(
        "CUDA error: invalid device ordinal (without a GPU, tkdebug provides one CUDA device, "
        f"cuda:0; got cuda:{index})"
    )
