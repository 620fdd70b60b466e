# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""Sparse CUDA tensors of the stand-in: their parts are CUDA tensors, of indices and of values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch.utils._pytree import tree_map

from tkdebug.compat.cuda_standin import tensors
from tkdebug.compat.cuda_standin.torch_internals import names_with_kernel

Kernel = Callable[..., Any]
_ATEN = torch.ops.aten
# By the key of CUDA: that of the CPU, whose kernels do the work.
KEYS = {
    "SparseCUDA": DispatchKeySet(DispatchKey.SparseCPU),
    "SparseCsrCUDA": DispatchKeySet(DispatchKey.SparseCsrCPU),
}
# Made of operators on the parts, wherever these are.
_OF_PARTS = frozenset(
    (
        *("_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "empty_like"),
        *("empty.memory_format", "sparse_resize_", "sparse_resize_and_clear_", "resize_", "copy_"),
        *("resize_as_sparse_", "copy_sparse_to_sparse_", "_coalesced_", "zero_", "clone"),
    )
)
# A GPU has no kernel for it.
_OF_THE_CPU_ALONE = "_sparse_mm_reduce_impl"
_TYPES = {bool: torch.bool, int: torch.int64}


def sparse_kernels(key: str) -> Iterator[tuple[str, Kernel]]:
    """Yield the names of operators in `aten` with their kernels for a sparse key of CUDA."""
    for name in names_with_kernel("aten", key.replace("CUDA", "CPU")):
        if not name.startswith(_OF_THE_CPU_ALONE):
            yield name, functools.partial(_first_call, name, key)


@functools.cache
def _kernel_of(name: str, key: str) -> Kernel:
    base, _, overload = name.partition(".")
    op = getattr(getattr(_ATEN, base), overload or "default")
    arguments, returned = op._schema.arguments, op._schema.returns
    written = [at for at, each in enumerate(arguments) if _writes(each)]
    on_cpu = functools.partial(op._handle.redispatch_boxed, KEYS[key])
    is_view = not written and any(each.alias_info is not None for each in returned)
    makes_no_tensor = not any("Tensor" in str(each.type) for each in returned)
    if name in _OF_PARTS or is_view or makes_no_tensor:
        return on_cpu
    names = [each.name for each in arguments]
    takes_tensor = [str(each.type) == "Tensor" for each in arguments]

    def run(*args: Any, **kwargs: Any) -> Any:
        values, keywords = tree_map(_of_host, (args, kwargs))
        values = tuple(map(_as_tensor, values, takes_tensor))
        result = on_cpu(*values, **keywords)
        own = None
        for at in written:
            own = args[at] if at < len(args) else kwargs[names[at]]
            _store(own, values[at] if at < len(args) else keywords[names[at]])
        return tree_map(_placed, result) if own is None else own

    return run


def _first_call(name: str, key: str, *args: Any, **kwargs: Any) -> Any:
    with torch._C.DisableTorchFunction():
        return _kernel_of(name, key)(*args, **kwargs)


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _of_host(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return tensors.host(value) if isinstance(value, Tensor) and value.is_cuda else value


def _as_tensor(value: Any, is_wanted: bool) -> Any:
    """Return a number as a tensor if an operator takes one: callers may give either."""
    if not is_wanted or isinstance(value, Tensor):
        return value
    return torch.scalar_tensor(value, dtype=_TYPES.get(type(value)), device="cpu")


def _placed(value: Any) -> Any:
    return tensors.place(value) if isinstance(value, Tensor) and value.is_cpu else value


def _store(own: Tensor, of_cpu: Tensor) -> None:
    """Copy to a CUDA tensor the values that were written to the CPU tensor over its memory."""
    if own.layout is torch.strided:
        if own.shape != of_cpu.shape:
            tensors.replace(own, of_cpu)
    elif own.layout is torch.sparse_coo or own._nnz() != of_cpu._nnz():
        own.resize_as_sparse_(of_cpu).copy_(of_cpu)
