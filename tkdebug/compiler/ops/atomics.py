"""Atomic read-modify-write and compare-and-swap; they give the old value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import PointerType, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ops import conversion, operators
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, Effects, OpSpec, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor
from tkdebug.errors import IRError

SEMANTICS = {"relaxed": "relaxed", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
SCOPES = {"gpu": "gpu", "cta": "cta", "sys": "sys"}
_READ_WRITE = Effects.READ | Effects.WRITE


def _infer_old(operands: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    pointer = ir.element_of(operands[0])
    if not isinstance(pointer, PointerType):
        raise IRError(f"atomic: expected pointers, got {operands[0]}")
    return (ir.with_element(operands[0], pointer.pointee),)


OPS: tuple[OpSpec, ...] = (
    OpSpec(
        tt.AtomicRmw,
        _infer_old,
        effects=_READ_WRITE,
    ),
    OpSpec(
        tt.AtomicCas,
        _infer_old,
        effects=_READ_WRITE,
    ),
)


def _ordering(sem: object, scope: object) -> dict[str, str]:
    semantic, width = sem or "acq_rel", scope or "gpu"
    if semantic not in SEMANTICS:
        raise SemanticError(f"atomic: sem must be one of {sorted(SEMANTICS)}, got {semantic!r}")
    if width not in SCOPES:
        raise SemanticError(f"atomic: scope must be one of {sorted(SCOPES)}, got {width!r}")
    return {"sem": semantic, "scope": width}


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
        shape = pointers.shape
        if pointers.type.is_block():
            shape = conversion.broadcast_shape(shape, value.shape)
            if isinstance(mask, tensor):
                shape = conversion.broadcast_shape(shape, mask.shape)
            pointers = conversion.broadcast_to(emit, pointers, shape)
        elif value.type.is_block():
            raise SemanticError(f"atomic_{name}: the value is a tile but the pointer a scalar")
        operands = [pointers, conversion.broadcast_to(emit, value, shape)]
        if mask is not None:
            limit = conversion.cast(emit, conversion.to_tensor(emit, mask), dt.int1)
            operands.append(conversion.broadcast_to(emit, limit, shape))
        return emit.value(
            tt.AtomicRmw,
            operands,
            conversion.with_scalar(pointers.type, element),
            kind=_kind(name, element),
            **_ordering(sem, scope),
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
    """Store `val` where memory equals `cmp`; 16-, 32- or 64-bit elements; gives the old value."""
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
        **_ordering(sem, scope),
    )


_BUILTINS: tuple[Builtin, ...] = (
    _rmw("add", "Add to memory; gives the old value."),
    _rmw("max", "Maximum with memory; gives the old value."),
    _rmw("min", "Minimum with memory; gives the old value."),
    _rmw("and", "Bitwise and with memory; gives the old value."),
    _rmw("or", "Bitwise or with memory; gives the old value."),
    _rmw("xor", "Bitwise exclusive or with memory; gives the old value."),
    _rmw("xchg", "Exchange with memory; gives the old value."),
    Builtin("atomic_cas", _emit_cas, member=True),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
