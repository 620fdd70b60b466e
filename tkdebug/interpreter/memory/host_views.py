"""Host memory of tensors that say cuda without a GPU.

The CUDA stand-in (`tkdebug.compat.cuda_standin`) keeps the memory of its tensors on their storages,
as a tensor of the CPU. Code that works on that memory, as the interpreter does, needs no dispatch
to the stand-in's kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

# On the storage of a CUDA tensor of the stand-in: a CPU tensor over the same memory.
HOST_MEMORY = "_tkdebug_host"


def host_view(tensor: Tensor) -> Tensor:
    """Return a CPU tensor over the memory of a stand-in's CUDA tensor; any other unchanged."""
    if not tensor.is_cuda:
        return tensor
    memory: Tensor | None = getattr(tensor.untyped_storage(), HOST_MEMORY, None)
    return tensor if memory is None else viewed(memory, tensor)


def memory_of(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return the host memory of a stand-in's CUDA storage; other storages unchanged."""
    memory: Tensor | None = getattr(storage, HOST_MEMORY, None)
    return storage if memory is None else memory.untyped_storage()


def viewed(memory: Tensor, tensor: Tensor) -> Tensor:
    """Return a view of `memory` with the type, shape and strides of `tensor`."""
    if memory.dtype is tensor.dtype:
        return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    view = torch.empty(0, dtype=tensor.dtype)
    offset, strides = int(tensor.storage_offset()), tensor.stride()
    return view.set_(memory.untyped_storage(), offset, tensor.shape, strides)
