"""Atomics: operations that return the old value, and waiting until memory has a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.dialects import nvvm, scf, tt
from tkdebug.compiler.ir import Block, Region
from tkdebug.compiler.ops import conversion, operators, reduce
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor

SEMANTICS = {"relaxed": "relaxed", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
SCOPES = {"gpu": "gpu", "cta": "cta", "sys": "sys"}


def ordering_of(
    sem: object, scope: object, default: str = "acq_rel", allowed: Sequence[str] = tuple(SEMANTICS)
) -> dict[str, str]:
    """Return the attributes `sem` and `scope` of an atomic, with defaults for those not given."""
    semantic, width = sem or default, scope or "gpu"
    if semantic not in allowed:
        raise SemanticError(f"atomic: sem must be one of {sorted(allowed)}, got {semantic!r}")
    if width not in SCOPES:
        raise SemanticError(f"atomic: scope must be one of {sorted(SCOPES)}, got {width!r}")
    return {"sem": str(semantic), "scope": str(width)}


def _kind(name: str, element: dt.dtype) -> str:
    if name == "add":
        return "fadd" if element.is_floating() else "add"
    if name in ("max", "min"):
        if element.is_floating():
            return "f" + name
        return name if element.is_int_signed() else "u" + name
    return name


def _rmw(name: str, doc: str) -> Builtin:
    def emit_atomic(
        emit: Emitter,
        pointer: object,
        val: object,
        mask: object = None,
        sem: object = None,
        scope: object = None,
    ) -> tensor:
        pointers = operators.require_pointer(pointer, f"atomic_{name}")
        element = operators.pointee(pointers)
        _check_element(name, pointers, element)
        assert isinstance(element, dt.dtype)
        value = conversion.cast(emit, conversion.to_tensor(emit, val), element)
        if value.type.is_block() and not pointers.type.is_block():
            raise SemanticError(f"atomic_{name}: the value is a tile but the pointer a scalar")
        shape = conversion.shape_of_pointers(f"atomic_{name}", pointers, value=value, mask=mask)
        operands = [pointers, conversion.broadcast_to(emit, value, shape)]
        if mask is not None:
            limit = conversion.cast(emit, conversion.to_tensor(emit, mask), dt.int1)
            operands.append(conversion.broadcast_to(emit, limit, shape))
        return emit.value(
            tt.AtomicRmw,
            operands,
            conversion.with_scalar(pointers.type, element),
            kind=_kind(name, element),
            **ordering_of(sem, scope),
        )

    emit_atomic.__doc__ = doc
    return Builtin(f"atomic_{name}", emit_atomic, member=True, doc=doc)


def _check_element(name: str, pointers: tensor, element: dt.LanguageType) -> None:
    if pointers.type.scalar.is_const():
        raise SemanticError(
            f"atomic_{name}: Cannot store to a constant pointer; "
            "drop tl.const from the parameter that it comes from"
        )
    if not isinstance(element, dt.dtype) or element.is_bool() or element.is_fp8():
        raise SemanticError(f"atomic_{name} does not support {element}")
    if element.is_int() and element.primitive_bitwidth < 32:
        raise SemanticError(
            f"atomic_{name} does not support {element}; integers need 32 or 64 bits"
        )
    if element.is_floating() and name in ("and", "or", "xor"):
        raise SemanticError(f"atomic_{name} needs integers, got {element}")
    if element in (dt.float16, dt.bfloat16) and name != "add":
        raise SemanticError(f"atomic_{name} does not support {element}")


def _emit_cas(
    emit: Emitter,
    pointer: object,
    cmp: object,
    val: object,
    sem: object = None,
    scope: object = None,
) -> tensor:
    """Store `val` where memory equals `cmp`, in 16, 32 or 64 bits; return the old value."""
    pointers = operators.require_pointer(pointer, "atomic_cas")
    element = operators.pointee(pointers)
    if not isinstance(element, dt.dtype) or element.primitive_bitwidth not in (16, 32, 64):
        raise SemanticError(f"atomic_cas needs elements of 16, 32 or 64 bits, got {element}")
    compare = conversion.cast(emit, conversion.to_tensor(emit, cmp), element)
    value = conversion.cast(emit, conversion.to_tensor(emit, val), element)
    shape = pointers.shape
    operands = [
        pointers,
        conversion.broadcast_to(emit, compare, shape),
        conversion.broadcast_to(emit, value, shape),
    ]
    assert scalar_dtype(compare) == element
    return emit.value(
        tt.AtomicCas,
        operands,
        conversion.with_scalar(pointers.type, element),
        **ordering_of(sem, scope),
    )


def _numbers(emit: Emitter, pointers: tensor, what: str) -> tuple[tensor, dt.dtype, bool]:
    """Return pointers to numbers (int1 as int8), the element's dtype, and whether it was int1."""
    element = operators.pointee(pointers)
    if not isinstance(element, dt.dtype):
        raise SemanticError(f"{what} needs pointers to numbers, got {pointers.dtype}")
    if element != dt.int1:
        return pointers, element, False
    return conversion.cast(emit, pointers, dt.pointer_type(dt.int8)), dt.int8, True


def _masked(
    emit: Emitter, what: str, pointers: tensor, mask: object, *values: tensor
) -> list[tensor]:
    """Return the pointers and values at one shape, followed by the mask if there is one."""
    limit = None if mask is None else conversion.to_tensor(emit, mask)
    if limit is not None and limit.dtype != dt.int1:
        raise SemanticError(f"{what}: mask must be int1 (a comparison), got {limit.dtype}")
    shape = pointers.shape
    for value in (*values, *(() if limit is None else (limit,))):
        if value.type.is_block() and not pointers.type.is_block():
            raise SemanticError(f"{what}: {list(value.shape)} values for one pointer")
        shape = conversion.broadcast_shape(shape, value.shape)
    operands = [conversion.broadcast_to(emit, v, shape) for v in (pointers, *values)]
    if limit is not None:
        operands.append(conversion.broadcast_to(emit, limit, shape))
    return operands


def _emit_load(
    emit: Emitter, pointer: object, mask: object = None, sem: object = None, scope: object = None
) -> tensor:
    """Read memory atomically; where the mask is false, Triton leaves the result undefined: here 0.

    Args:
        emit: where to emit.
        pointer: pointer or tile of pointers.
        mask: int1 tile; where it is false memory is not touched.
        sem: "acquire" (the default) or "relaxed".
        scope: "gpu" (the default), "cta" or "sys".
    """
    pointers = operators.require_pointer(pointer, "atomic_load")
    pointers, element, is_bool = _numbers(emit, pointers, "atomic_load")
    ordering = ordering_of(sem, scope, "acquire", ("acquire", "relaxed"))
    operands = _masked(emit, "atomic_load", pointers, mask)
    type_ = conversion.with_scalar(operands[0].type, element)
    loaded = emit.value(tt.AtomicLoad, operands, type_, **ordering)
    return conversion.cast(emit, loaded, dt.int1) if is_bool else loaded


def _emit_store(
    emit: Emitter,
    pointer: object,
    val: object,
    mask: object = None,
    sem: object = None,
    scope: object = None,
) -> None:
    """Write memory atomically.

    Args:
        emit: where to emit.
        pointer: pointer or tile of pointers.
        val: converted to the memory's dtype and broadcast.
        mask: int1 tile; where it is false memory is not touched.
        sem: "release" (the default) or "relaxed".
        scope: "gpu" (the default), "cta" or "sys".
    """
    pointers = operators.require_pointer(pointer, "atomic_store")
    if pointers.type.scalar.is_const():
        raise SemanticError(
            "atomic_store: Cannot store to a constant pointer; "
            "drop tl.const from the parameter that it comes from"
        )
    pointers, element, is_bool = _numbers(emit, pointers, "atomic_store")
    ordering = ordering_of(sem, scope, "release", ("release", "relaxed"))
    value = conversion.to_tensor(emit, val)
    if is_bool:
        value = conversion.cast(emit, value, dt.int1)
    value = conversion.cast(emit, value, element)
    operands = _masked(emit, "atomic_store", pointers, mask, value)
    type_ = conversion.with_scalar(operands[0].type, element)
    emit.value(tt.AtomicRmw, operands, type_, kind="store", **ordering)


_POLL_BYTES = (2, 4, 8)


def _emit_poll(
    emit: Emitter,
    pointer: object,
    expected_value: object,
    sem: object = None,
    scope: object = None,
    timeout_ns: object = None,
) -> tensor:
    """Wait until memory holds `expected_value`; gives int1, false for elements that timed out.

    Args:
        emit: where to emit.
        pointer: pointer or tile of pointers to integers of 16, 32 or 64 bits.
        expected_value: converted to the memory's dtype and broadcast.
        sem: "acquire" (the default) or "relaxed".
        scope: "gpu" (the default), "cta" or "sys".
        timeout_ns: the time limit in nanoseconds for all elements together, by the GPU's clock;
            each element is read at least once. None for no limit.
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
    """Return the time on the GPU's clock at which polling gives up; None without a timeout."""
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
    """Emit a loop that reads unmatched elements until all match or the time limit has passed.

    Returns int1 for each element: whether it matched.
    """
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
    """Return a scalar int1 that is true if all elements of an int1 value are."""
    if not value.type.is_block():
        return value
    counted = reduce.LANGUAGE["min"].emit(emit, conversion.cast(emit, value, dt.int32))
    return operators.compare(emit, "ne", counted, 0)


_BUILTINS: tuple[Builtin, ...] = (
    _rmw("add", "Add to memory; gives the old value."),
    _rmw("max", "Maximum with memory; gives the old value."),
    _rmw("min", "Minimum with memory; gives the old value."),
    _rmw("and", "Bitwise and with memory; gives the old value."),
    _rmw("or", "Bitwise or with memory; gives the old value."),
    _rmw("xor", "Bitwise exclusive or with memory; gives the old value."),
    _rmw("xchg", "Exchange with memory; gives the old value."),
    Builtin("atomic_cas", _emit_cas, member=True),
    Builtin("atomic_load", _emit_load, member=True),
    Builtin("atomic_store", _emit_store, member=True),
    Builtin("atomic_poll", _emit_poll, member=True),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
