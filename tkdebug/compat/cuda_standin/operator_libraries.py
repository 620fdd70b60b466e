# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""Kernels that a script registers for CUDA: `torch.library.Library.impl(…, "CUDA")`.

The dispatcher chooses by where tensors are, which is the CPU, and never finds them. So calls that
get CUDA tensors, or make some, run under a dispatch mode that does, as long as there are any.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tkdebug.compat.cuda_standin import placement

Kernel = Callable[..., Any]
# By the operator's full name, as `aten::add.Tensor`; of several the last one counts.
_kernels: dict[str, list[Kernel]] = {}
_NOTHING: AbstractContextManager[object] = nullcontext()


def found(makes_tensors: bool = False) -> AbstractContextManager[object]:
    """Inside the `with` operators find the kernels for CUDA.

    Args:
        makes_tensors: whether an operator that gets no tensors makes CUDA tensors.
    """
    return _CudaKernels(makes_tensors) if _kernels else _NOTHING


def replace_torch() -> bool:
    """Whether any of the kernels is for an operator of torch's own."""
    return any(name.startswith("aten::") for name in _kernels)


class _CudaKernels(TorchDispatchMode):
    def __init__(self, makes_tensors: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._makes_tensors = makes_tensors

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        keywords = dict(kwargs or {})
        kernels = _kernels.get(func.name())
        if not kernels:
            return self._run(func, args, keywords)
        others: list[Tensor] = []
        on_cuda = placement.split_inputs([*args, *keywords.values()], others)
        if not on_cuda and (others or not self._makes_tensors):
            return self._run(func, args, keywords)
        if keywords.get("device") == placement.CPU:
            keywords["device"] = placement.CUDA
        return kernels[-1](*args, **keywords)

    def _run(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        # What it gives is marked by the function that is in progress, not by the operators in it.
        with torch._C.DisableTorchFunction():
            return func(*args, **keywords)


def noting_kernels(impl: Kernel, under_mode: Callable[[Kernel], Kernel]) -> Kernel:
    """`Library.impl` that also notes kernels for CUDA, for as long as their library lives.

    Args:
        impl: torch's own.
        under_mode: makes a kernel hear the stand-in's answers.
    """

    @functools.wraps(impl)
    def register(
        self: Any, op_name: Any, fn: Kernel, dispatch_key: str = "", **options: Any
    ) -> Any:
        result = impl(self, op_name, fn, dispatch_key, **options)
        # torch's own, of distributed training, have kernels for the CPU beside.
        is_torchs = str(getattr(fn, "__module__", "")).split(".")[0] == "torch"
        if (dispatch_key or self.dispatch_key) == "CUDA" and not is_torchs:
            name = op_name if isinstance(op_name, str) else op_name.name()
            name = name if "::" in name else f"{self.ns}::{name}"
            kernel = under_mode(fn)
            if options.get("with_keyset"):
                kernel = functools.partial(
                    kernel, torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
                )
            _kernels.setdefault(name, []).append(kernel)
            weakref.finalize(self, _forget, name, kernel)
        return result

    return register


def _forget(name: str, kernel: Kernel) -> None:
    kernels = _kernels[name]
    kernels.remove(kernel)
    if not kernels:
        del _kernels[name]
