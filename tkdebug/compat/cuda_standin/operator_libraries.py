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
# On a library: what is to be done when it goes.
_FORGET = "_tkdebug_forget"
_NOTHING: AbstractContextManager[object] = nullcontext()


def found(makes_tensors: bool = False, in_backward: bool = False) -> AbstractContextManager[object]:
    """Inside the `with` operators find the kernels for CUDA.

    Args:
        makes_tensors: whether an operator that gets no tensors makes CUDA tensors.
        in_backward: whether autograd runs them, whose gradients bear no mark.
    """
    return _CudaKernels(makes_tensors, in_backward) if _kernels else _NOTHING


def replace_torch() -> bool:
    """Whether any of the kernels is for an operator of torch's own."""
    return any(name.startswith("aten::") for name in _kernels)


class _CudaKernels(TorchDispatchMode):
    def __init__(self, makes_tensors: bool, in_backward: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._makes_tensors = makes_tensors
        self._in_backward = in_backward

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        keywords = dict(kwargs or {})
        kernels = _kernels.get(func.name())
        others: list[Tensor] = []
        on_cuda = placement.split_inputs([*args, *keywords.values()], others)
        if kernels and (on_cuda or (self._makes_tensors and not others)):
            if self._in_backward:
                placement.place_results(others, [])
            if keywords.get("device") == placement.CPU:
                keywords["device"] = placement.CUDA
            return kernels[-1](*args, **keywords)
        with torch._C.DisableTorchFunction():
            result = func(*args, **keywords)
            # Of several operators that a function is made of, a later one may have a kernel.
            if not self._in_backward and (on_cuda or not others):
                placement.place_results(result, others)
        return result


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
            vars(self).setdefault(_FORGET, []).append(weakref.finalize(self, _forget, name, kernel))
        return result

    return register


def forgetting_kernels(destroy: Callable[[Any], None]) -> Callable[[Any], None]:
    """`Library._destroy` that forgets the library's kernels for CUDA as well."""

    @functools.wraps(destroy)
    def forget(self: Any) -> None:
        for finalizer in vars(self).pop(_FORGET, ()):
            finalizer()
        destroy(self)

    return forget


def _forget(name: str, kernel: Kernel) -> None:
    kernels = _kernels[name]
    kernels.remove(kernel)
    if not kernels:
        del _kernels[name]
