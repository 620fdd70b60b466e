"""`tl.extra.cuda`: what only NVIDIA GPUs have: special registers, dependent launches."""

from __future__ import annotations

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.dialects import nvvm
from tkdebug.compiler.dtypes import LanguageType
from tkdebug.compiler.ops import conversion
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import tensor


def _emit_smid(emit: Emitter) -> tensor:
    """Number of the multiprocessor that runs the program, int32."""
    return emit.value(nvvm.MultiprocessorId, (), dt.int32)


def _emit_globaltimer(emit: Emitter) -> tensor:
    """A clock of the GPU in nanoseconds, int64."""
    return emit.value(nvvm.GlobalTimer, (), dt.int64)


def _emit_num_warps(emit: Emitter) -> int:
    """Warps of the program, a constant."""
    return emit.options.num_warps


def _emit_num_threads(emit: Emitter) -> int:
    """Threads of the program, a constant."""
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
    """Convert between fp8e4b15 and fp16 or fp32."""
    value, target = conversion.to_tensor(emit, arg), dst_ty
    if not isinstance(target, LanguageType) or dt.float8e4b15 not in (
        value.type.scalar,
        target.scalar,
    ):
        raise SemanticError(
            f"convert_custom_float8 converts from or to fp8e4b15, got {value.dtype} to {target}"
        )
    return conversion.cast(emit, value, target.scalar)


BUILTINS: dict[str, Builtin] = {
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
