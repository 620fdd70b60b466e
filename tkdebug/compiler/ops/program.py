"""The programming model: which program this is, and how many there are."""

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


_BUILTINS: tuple[Builtin, ...] = (
    Builtin("program_id", _emit_program_id),
    Builtin("num_programs", _emit_num_programs),
    Builtin("aggregate_replace", _emit_aggregate_replace),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
