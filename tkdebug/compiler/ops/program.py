"""Programs and loops: which program this is, how many there are, and loops with hints."""

from __future__ import annotations

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.aggregates import Aggregate
from tkdebug.compiler.describe import as_given
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import tensor


def _axis(axis: object, what: str) -> int:
    if not isinstance(axis, int) or axis not in (0, 1, 2):
        raise SemanticError(f"{what} axis must be 0, 1, or 2 but got {as_given(axis)}")
    return int(axis)


def _emit_program_id(emit: Emitter, axis: object) -> tensor:
    """Position of this program along grid axis 0, 1 or 2, int32."""
    return emit.value(tt.GetProgramId, (), dt.int32, axis=_axis(axis, "program_id"))


def _emit_num_programs(emit: Emitter, axis: object) -> tensor:
    """Number of programs along grid axis 0, 1 or 2, int32."""
    return emit.value(tt.GetNumPrograms, (), dt.int32, axis=_axis(axis, "num_programs"))


def _emit_aggregate_replace(emit: Emitter, instance: object, **changes: object) -> object:
    """The aggregate `instance` with some of its fields replaced."""
    if not isinstance(instance, Aggregate):
        raise SemanticError(f"aggregate_replace needs an aggregate, got {as_given(instance)}")
    try:
        return instance._replace(**changes)
    except TypeError as error:
        raise SemanticError(f"aggregate_replace: {error}") from None


def _emit_range(
    emit: Emitter,
    arg1: object,
    arg2: object = None,
    step: object = None,
    num_stages: object = None,
    loop_unroll_factor: object = None,
    disallow_acc_multi_buffer: object = False,
    flatten: object = False,
    warp_specialize: object = False,
    disable_licm: object = False,
) -> None:
    """Make a loop as Python's range does, with hints on how to compile it.

    Args:
        emit: where to emit.
        arg1: the start; without `arg2` it is the end, and the start is 0.
        arg2: the end, which the loop variable does not reach.
        step: 1 by default.
        num_stages: stages of the software pipeline that loads ahead in native code.
        loop_unroll_factor: number of iterations that are unrolled into one.
        disallow_acc_multi_buffer: without effect here.
        flatten: without effect here; nested loops stay nested.
        warp_specialize: without effect here.
        disable_licm: whether loop-invariant code stays in the loop.
    """
    raise SemanticError("tl.range only has a meaning in `for i in tl.range(...)`")


def _emit_static_range(
    emit: Emitter, arg1: object, arg2: object = None, step: object = None
) -> None:
    """Make a loop over constants, which is unrolled: its variable is a constant."""
    raise SemanticError("tl.static_range only has a meaning in `for i in tl.static_range(...)`")


def _emit_condition(emit: Emitter, arg1: object, disable_licm: object = False) -> object:
    """The condition of a `while`, with a hint on how to compile the loop.

    Args:
        emit: where to emit.
        arg1: the condition.
        disable_licm: whether loop-invariant code stays in the loop.
    """
    return arg1


_BUILTINS: tuple[Builtin, ...] = (
    Builtin("program_id", _emit_program_id),
    Builtin("num_programs", _emit_num_programs),
    Builtin("aggregate_replace", _emit_aggregate_replace),
    Builtin("range", _emit_range),
    Builtin("static_range", _emit_static_range),
    Builtin("condition", _emit_condition),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
