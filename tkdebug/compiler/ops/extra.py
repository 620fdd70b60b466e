"""Functions of `tl.extra`: NVIDIA's device library, and features of NVIDIA GPUs alone.

`tl.extra.libdevice` are elementwise functions, declared in `dialects.libdevice`; a call finds the
overload of its arguments. Argument types must be those of an overload: half precision has none, and
Python numbers are fp32 and int32, as in Triton since 3.6. `tl.extra.cuda` are special registers and
dependent launches.
"""

from __future__ import annotations

import inspect
from functools import reduce
from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import describe
from tkdebug.compiler.dialects import nvvm, tt
from tkdebug.compiler.dialects.libdevice import FUNCTIONS, Function, Overload
from tkdebug.compiler.dtypes import LanguageType
from tkdebug.compiler.ops import conversion
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor

_PARAMETERS = ("x", "y", "z", "w")


def _overload(function: Function, given: tuple[dt.dtype, ...]) -> Overload:
    """The overload of exactly these types.

    Raises:
        SemanticError: the function has none.
    """
    found = _find(function, given)
    if found is None:
        raise SemanticError(_no_overload(function, given))
    return found


def _find(function: Function, given: tuple[dt.dtype, ...]) -> Overload | None:
    return next((o for o in function.overloads if o.arguments == given), None)


def _no_overload(function: Function, given: tuple[dt.dtype, ...]) -> str:
    takes = " or ".join(
        f"({', '.join(map(str, overload.arguments))})" for overload in function.overloads
    )
    got = ", ".join(map(str, given))
    fix = _with_casts(function, given)
    hint = f"; write {fix}" if fix else ""
    return f"libdevice.{function.name} takes {takes}, got ({got}){hint}"


def _with_casts(function: Function, given: tuple[dt.dtype, ...]) -> str:
    """The call with the casts that arithmetic would make, or "" if no overload has that type."""
    common = reduce(conversion.promote, given)
    if common in (dt.float16, dt.bfloat16):
        common = dt.float32
    if _find(function, (common,) * len(given)) is None:
        return ""
    cast = repr(common).replace("triton.language", "tl")
    arguments = [
        name if dtype == common else f"tl.cast({name}, {cast})"
        for name, dtype in zip(_PARAMETERS, given, strict=False)
    ]
    return f"libdevice.{function.name}({', '.join(arguments)})"


def _builtin(function: Function) -> Builtin:
    count = len(function.overloads[0].arguments)

    def emit_function(emit: Emitter, *arguments: object) -> tensor:
        if len(arguments) != count:
            raise SemanticError(
                f"libdevice.{function.name} takes {count} arguments, got {len(arguments)}"
            )
        values = tuple(conversion.to_tensor(emit, value) for value in arguments)
        for value in values:
            if value.type.scalar.is_ptr():
                raise SemanticError(
                    f"libdevice.{function.name} takes numbers, got {describe(value)}"
                )
        overload = _overload(function, tuple(scalar_dtype(value) for value in values))
        values = conversion.broadcast_all(emit, *values)
        type_ = conversion.with_scalar(values[0].type, overload.result)
        attributes: dict[str, Any] = {"function": function.name, "symbol": overload.symbol}
        if overload.arguments[0].is_int_unsigned() or overload.is_unsigned:
            attributes["unsigned"] = True
        op = emit.op(tt.ExternElementwise, values, [type_.to_ir()], **attributes)
        result = tensor(op.result, type_)
        return conversion.cast(emit, result, dt.int1) if function.is_predicate else result

    parameters = [inspect.Parameter("emit", inspect.Parameter.POSITIONAL_ONLY)] + [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in _PARAMETERS[:count]
    ]
    emit_function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return Builtin(f"extra.libdevice.{function.name}", emit_function, doc=function.doc)


LIBDEVICE: dict[str, Builtin] = {name: _builtin(function) for name, function in FUNCTIONS.items()}


def _emit_smid(emit: Emitter) -> tensor:
    """Number of the multiprocessor that runs the program, int32."""
    return emit.value(nvvm.MultiprocessorId, (), dt.int32)


def _emit_globaltimer(emit: Emitter) -> tensor:
    """A clock of the GPU in nanoseconds, int64."""
    return emit.value(nvvm.GlobalTimer, (), dt.int64)


def _emit_num_warps(emit: Emitter) -> int:
    """Number of warps of the program, a constant."""
    return emit.options.num_warps


def _emit_num_threads(emit: Emitter) -> int:
    """Number of threads of the program, a constant."""
    return emit.options.num_warps * emit.options.threads_per_warp


def _emit_gdc_wait(emit: Emitter) -> None:
    """Wait until the launch before this one has completed and its writes are visible."""
    emit.op(nvvm.GridDependencyControl, kind="wait")


def _emit_gdc_launch_dependents(emit: Emitter) -> None:
    """Let the launch after this one begin."""
    emit.op(nvvm.GridDependencyControl, kind="launch_dependents")


def _emit_convert_custom_float8(
    emit: Emitter, arg: object, dst_ty: object, fp_downcast_rounding: object = None
) -> tensor:
    """Convert between fp8e4b15 and fp16 or fp32; `fp_downcast_rounding` has no effect here."""
    value, target = conversion.to_tensor(emit, arg), dst_ty
    if not isinstance(target, LanguageType) or dt.float8e4b15 not in (
        value.type.scalar,
        target.scalar,
    ):
        raise SemanticError(
            f"convert_custom_float8 converts from or to fp8e4b15, got {value.dtype} to {target}"
        )
    return conversion.cast(emit, value, target.scalar)


CUDA: dict[str, Builtin] = {
    name: Builtin(f"extra.cuda.{name}", emit)
    for name, emit in (
        ("smid", _emit_smid),
        ("globaltimer", _emit_globaltimer),
        ("num_threads", _emit_num_threads),
        ("num_warps", _emit_num_warps),
        ("gdc_wait", _emit_gdc_wait),
        ("gdc_launch_dependents", _emit_gdc_launch_dependents),
        ("convert_custom_float8_sm70", _emit_convert_custom_float8),
        ("convert_custom_float8_sm80", _emit_convert_custom_float8),
    )
}
