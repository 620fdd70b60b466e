"""Half-precision matrix products and norms of the stand-in, in fp32 and rounded back.

The CPU multiplies fp16 matrices at under 1 GFLOP/s, and its norms' backward sums halves in halves;
a GPU accumulates in fp32, so that fp32 inside is both the quick way and the nearer one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tkdebug.compat.cuda_standin import operator_libraries
from tkdebug.compat.cuda_standin.calls import Arguments, Function, call

HALVES = (torch.float16, torch.bfloat16)
_NAMES = (
    (
        torch,
        "matmul mm bmm mv addmm addmv addbmm baddbmm dot vdot inner einsum tensordot chain_matmul",
    ),
    (torch, "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution"),
    (torch, "bilinear lstm gru rnn_tanh rnn_relu"),
    (torch.linalg, "multi_dot matmul vecdot"),
    (
        torch.nn.functional,
        "linear bilinear scaled_dot_product_attention multi_head_attention_forward "
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    ),
    (
        Tensor,
        "matmul __matmul__ __rmatmul__ mm bmm mv addmm addmv addbmm baddbmm dot vdot inner "
        "addmm_ addmv_ addbmm_ baddbmm_",
    ),
)
_NORM_NAMES = "layer_norm group_norm rms_norm batch_norm instance_norm native_layer_norm"


def functions_of(names: tuple[tuple[Any, str], ...]) -> frozenset[Any]:
    """Functions by their owners and names, as far as this torch has them."""
    return frozenset(
        getattr(owner, name)
        for owner, listed in names
        for name in listed.split()
        if hasattr(owner, name)
    )


_NORMS = functions_of(((torch, _NORM_NAMES), (torch.nn.functional, _NORM_NAMES)))
_SUMS = functions_of(((torch, "addmm baddbmm"), (Tensor, "addmm baddbmm")))
ACCUMULATED_IN_FP32 = functions_of(_NAMES) | _NORMS


def run_in_fp32(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """`func`, a matrix product or norm: in fp32 and rounded back when its operands are halves."""
    if operator_libraries.replace_torch():
        # The replacements of torch's own products have to see their operands.
        return call(func, args, kwargs)
    operands = collected(args, kwargs)
    # Autocast leaves alone what writes to a tensor that it is given, and sums with `out_dtype=`.
    writes = kwargs.get("out") is not None or _is_in_place(func)
    is_sum = "out_dtype" in kwargs and func in _SUMS
    if torch.is_autocast_enabled("cpu") and not (writes or is_sum or func in _NORMS):
        return _run_under_autocast(func, args, kwargs, operands)
    if "out_dtype" in kwargs:
        operands = _matrices(func, args, kwargs)
    dtypes = {t.dtype for t in operands if t.is_floating_point()}
    if len(dtypes) != 1 or not dtypes.issubset(HALVES):
        # Not halves, or a mixture that torch has its own answer to.
        return call(func, args, kwargs)
    with torch.autocast("cpu", enabled=False):
        return _run(func, args, kwargs, dtypes.pop())


def _matrices(func: Function, args: Arguments, kwargs: dict[str, Any]) -> list[Tensor]:
    """The factors of `mm`, `bmm`, `addmm` or `baddbmm`: the summand and the output may be fp32."""
    factors = {name: value for name, value in kwargs.items() if name not in ("out", "input")}
    has_summand = func in _SUMS and "input" not in kwargs
    return collected(args[has_summand:], factors)


def _is_in_place(func: Function) -> bool:
    name = getattr(func, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def _run_under_autocast(
    func: Function, args: Arguments, kwargs: dict[str, Any], operands: list[Tensor]
) -> Any:
    half = torch.get_autocast_dtype("cpu")
    eligible = (torch.float32, *HALVES)
    floating = [t for t in operands if t.is_floating_point()]
    if half not in HALVES or not floating or any(t.dtype not in eligible for t in floating):
        return call(func, args, kwargs)
    args = cast(args, eligible, half)
    kwargs = {name: cast(value, eligible, half) for name, value in kwargs.items()}
    with torch.autocast("cpu", enabled=False):
        return _run(func, args, kwargs, half)


def _run(func: Function, args: Arguments, kwargs: dict[str, Any], half: torch.dtype) -> Any:
    out = kwargs.pop("out", None)
    result_dtype = kwargs.pop("out_dtype", None) or half
    in_place = _is_in_place(func)
    if in_place:
        out = args[0]
        func = getattr(Tensor, func.__name__[:-1])
    wide_args = cast(args, HALVES, torch.float32)
    wide_kwargs = {key: cast(value, HALVES, torch.float32) for key, value in kwargs.items()}
    result = call(func, wide_args, wide_kwargs)
    if out is not None:
        if not in_place and out.shape != result.shape:
            out.resize_(result.shape)
        return out.copy_(result)
    return call(_narrow, (result, result_dtype), {})


def _narrow(result: Any, dtype: torch.dtype) -> Any:
    return cast(result, (torch.float32,), dtype)


def collected(args: Arguments, kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors that a function is given, in lists and tuples, too."""
    operands: list[Tensor] = []
    _collect((*args, *kwargs.values()), operands)
    return operands


def _collect(values: Arguments, operands: list[Tensor]) -> None:
    for value in values:
        if isinstance(value, Tensor):
            operands.append(value)
        elif isinstance(value, (list, tuple)):
            _collect(tuple(value), operands)


def cast(value: Any, sources: tuple[torch.dtype, ...], target: torch.dtype) -> Any:
    """`value` with its tensors of dtypes `sources` as `target`, lists and tuples looked into."""
    if isinstance(value, Tensor):
        if value.dtype not in sources or value.dtype == target:
            return value
        return call(Tensor.to, (value, target), {})
    if isinstance(value, (list, tuple)):
        return type(value)([cast(item, sources, target) for item in value])
    return value
