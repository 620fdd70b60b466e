# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""The torch function mode that makes CPU memory answer as CUDA tensors.

The mode sees every torch function and tensor method that a thread calls. It turns device arguments
that say cuda into CPU ones, marks what comes back (`placement`), and answers questions such as
`x.device`. While it handles a call it is off (torch pops a mode while its handler runs), so that
torch's own Python code below sees plain CPU tensors and stays consistent with itself.

Code that needs the plain truth, or speed, runs under `torch._C.DisableTorchFunction()`: there the
mode does not exist and every tensor is what it is, a CPU tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.overrides
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tkdebug.compat.cuda_standin.autocast import NORMS, WIDENED, run_widened
from tkdebug.compat.cuda_standin.calls import Arguments, Function, Rule, call
from tkdebug.compat.cuda_standin.half_precision import ACCUMULATED_IN_FP32, run_in_fp32
from tkdebug.compat.cuda_standin.rules import tensor_rules

# Read often and never give a tensor: not looked at any further.
_PLAIN_GETTERS = (
    "shape",
    "dtype",
    "ndim",
    "requires_grad",
    "is_leaf",
    "layout",
    "names",
    "itemsize",
    "is_sparse",
    "is_quantized",
    "is_meta",
    "nbytes",
    "grad_fn",
    "output_nr",
    "_version",
)
_PLAIN_METHODS = (
    "data_ptr",
    "stride",
    "size",
    "dim",
    "numel",
    "nelement",
    "element_size",
    "item",
    "is_contiguous",
    "is_floating_point",
    "storage_offset",
    "__len__",
    "is_complex",
    "untyped_storage",
    "ndimension",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
    "__hash__",
    "is_signed",
)


def _plain_functions() -> frozenset[object]:
    plain: set[object] = set()
    for name in _PLAIN_GETTERS:
        if hasattr(Tensor, name):
            plain.add(getattr(Tensor, name).__get__)
    plain.update(getattr(Tensor, name) for name in _PLAIN_METHODS if hasattr(Tensor, name))
    return frozenset(plain)


def _run_norm(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    run = run_widened if torch.is_autocast_enabled("cpu") else run_in_fp32
    return run(func, args, kwargs)


class CudaStandIn(TorchFunctionMode):
    """The mode; one object serves all threads, each with its place on that thread's stack."""

    def __init__(self) -> None:
        super().__init__()
        self.active = True
        self._plain = _plain_functions()
        rules: dict[object, Rule] = dict(tensor_rules())
        for function in WIDENED:
            rules.setdefault(function, run_widened)
        rules.update((function, run_in_fp32) for function in ACCUMULATED_IN_FP32)
        rules.update((function, _run_norm) for function in NORMS)
        self._rules = rules

    def enter(self) -> None:
        """Put the mode on top of this thread's stack."""
        self.__enter__()  # type: ignore[no-untyped-call]

    def __torch_function__(
        self,
        func: Function,
        types: tuple[type, ...],
        args: Arguments = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run `func` on the CPU and mark its results."""
        if func in self._plain or not self.active:
            return func(*args, **kwargs) if kwargs else func(*args)
        keywords = dict(kwargs) if kwargs else {}
        rule = self._rules.get(func)
        if rule is not None:
            return rule(func, args, keywords)
        return call(func, args, keywords)


def leave(mode: TorchFunctionMode) -> None:
    """Take `mode` off this thread's stack, wherever in it it stands."""
    overrides: Any = torch.overrides
    count = torch._C._len_torch_function_stack()
    above = []
    for _ in range(count):
        top = overrides._pop_mode()
        if top is mode:
            break
        above.append(top)
    for other in reversed(above):
        overrides._push_mode(other)
