"""Waiting until memory has a value."""

from __future__ import annotations

from collections.abc import Mapping

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.dialects import nvvm, scf, tt
from tkdebug.compiler.ir import Block, Region
from tkdebug.compiler.ops import conversion, operators, reduce
from tkdebug.compiler.ops.atomics import ordering_of
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor

_POLL_BYTES = (2, 4, 8)


def _emit_poll(
    emit: Emitter,
    pointer: object,
    expected_value: object,
    sem: object = None,
    scope: object = None,
    timeout_ns: object = None,
) -> tensor:
    """Wait until memory holds `expected_value`; int1, false where the time was over before.

    Args:
        emit: where to emit.
        pointer: pointer or tile of pointers to integers of 16, 32 or 64 bits.
        expected_value: converted to the memory's dtype and broadcast.
        sem: "acquire" (the default) or "relaxed".
        scope: "gpu" (the default), "cta" or "sys".
        timeout_ns: for all elements together, by the GPU's clock; each is read once at least.
    """
    pointers = operators.require_pointer(pointer, "atomic_poll")
    element = operators.pointee(pointers)
    is_right = isinstance(element, dt.dtype) and element.is_int()
    if not is_right or not isinstance(element, dt.dtype) or element.itemsize not in _POLL_BYTES:
        raise SemanticError(f"atomic_poll needs integers of 16, 32 or 64 bits, got {element}")
    ordering = ordering_of(sem, scope, "acquire", ("acquire", "relaxed"))
    expected = conversion.cast(emit, conversion.to_tensor(emit, expected_value), element)
    if expected.type.is_block() and not pointers.type.is_block():
        raise SemanticError("atomic_poll: a tile of values is expected at one pointer")
    expected = conversion.broadcast_to(emit, expected, pointers.shape)
    limit = _time_limit(emit, timeout_ns)
    return _poll_loop(emit, pointers, expected, limit, ordering)


def _time_limit(emit: Emitter, timeout_ns: object) -> tensor | None:
    """When the time is over, by the GPU's clock."""
    if timeout_ns is None:
        return None
    if isinstance(timeout_ns, int) and timeout_ns < 0:
        raise SemanticError(f"atomic_poll: timeout_ns must not be negative, got {timeout_ns}")
    timeout = conversion.to_tensor(emit, timeout_ns)
    if timeout.type.is_block() or not scalar_dtype(timeout).is_int():
        raise SemanticError(f"atomic_poll: timeout_ns must be a scalar integer, got {timeout.type}")
    now = emit.value(nvvm.GlobalTimer, (), dt.int64)
    return operators.binary(emit, "add", now, conversion.cast(emit, timeout, dt.int64))


def _poll_loop(
    emit: Emitter,
    pointers: tensor,
    expected: tensor,
    limit: tensor | None,
    ordering: Mapping[str, str],
) -> tensor:
    """The loop that reads what has not matched yet: while some of it is left, and time is."""
    type_ = conversion.with_scalar(pointers.type, dt.int1)
    no = conversion.broadcast_to(emit, conversion.constant(emit, 0, dt.int1), pointers.shape)
    before, after = Block([type_.to_ir()]), Block([type_.to_ir()])
    with emit.builder.inside(before):
        matched = tensor(before.arguments[0], type_)
        is_open = operators.logical_not(emit, matched)
        old = emit.value(tt.AtomicLoad, [pointers, is_open], expected.type, **ordering)
        equal = operators.compare(emit, "eq", old, expected)
        matched = operators.binary(
            emit, "or", matched, operators.binary(emit, "and", equal, is_open)
        )
        goes_on = operators.logical_not(emit, _all(emit, matched))
        if limit is not None:
            now = emit.value(nvvm.GlobalTimer, (), dt.int64)
            goes_on = operators.binary(
                emit, "and", goes_on, operators.compare(emit, "lt", now, limit)
            )
        emit.op(scf.Condition, [goes_on, matched])
    with emit.builder.inside(after):
        emit.op(scf.Yield, [after.arguments[0]])
    loop = emit.op(scf.While, [no], [type_.to_ir()], [Region([before]), Region([after])])
    return tensor(loop.results[0], type_)


def _all(emit: Emitter, value: tensor) -> tensor:
    """Whether all elements are true."""
    if not value.type.is_block():
        return value
    counted = reduce.LANGUAGE["min"].emit(emit, conversion.cast(emit, value, dt.int32))
    return operators.compare(emit, "ne", counted, 0)


LANGUAGE = {"atomic_poll": Builtin("atomic_poll", _emit_poll, member=True)}
