"""GPU IR's own ops: layout conversions, shared-memory buffers, async copies, tensor-core dots.

Names and meaning are those of Triton's `ttg` and `ttng` dialects. Result types that say where data
goes (a layout, a buffer) are given by the builder of the op; the verifiers check that shapes and
elements fit. Only passes emit these ops, so there are no functions of the language here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler.dialects import gpu, ttg, ttng
from tkdebug.compiler.ir import MemDescType, Operation, TensorType, TokenType, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.layouts import transpose
from tkdebug.compiler.ops.linalg import INPUT_PRECISIONS, verify_dot
from tkdebug.compiler.ops.spec import Builtin, Effects, OpSpec, no_results
from tkdebug.errors import IRError


def _buffer(type_: Type, op: str) -> MemDescType:
    if not isinstance(type_, MemDescType):
        raise IRError(f"{op}: got {type_}, expected a shared-memory buffer")
    return type_


def _expect_same_tile(op: Operation, a: Type, b: Type) -> None:
    if (ir.shape_of(a), ir.element_of(a)) != (ir.shape_of(b), ir.element_of(b)):
        raise IRError(f"{op.name}: {a} and {b} differ in shape or element")


def _expect_mutable(op: Operation, type_: Type) -> None:
    if not _buffer(type_, op.name).mutable:
        raise IRError(f"{op.name}: got {type_}, expected a mutable buffer to write to")


def _expect_tokens(op: Operation) -> None:
    for value in op.operands:
        if not isinstance(value.type, TokenType):
            raise IRError(f"{op.name}: got {value.type}, expected tokens of async copies")


def _verify_convert(op: Operation) -> None:
    source, target = op.operands[0].type, op.result.type
    if not isinstance(source, TensorType) or not isinstance(target, TensorType):
        raise IRError(f"{op.name}: got {source} -> {target}, expected tiles")
    _expect_same_tile(op, source, target)


def _verify_alloc(op: Operation) -> None:
    buffer = _buffer(op.result.type, op.name)
    if len(op.operands) > 1:
        raise IRError(f"{op.name}: got {len(op.operands)} operands, expected at most 1")
    if buffer.layout.shape != buffer.buffer_shape:
        raise IRError(f"{op.name}: {buffer} has a layout of shape {buffer.layout.shape}")
    if op.operands:
        _expect_same_tile(op, op.operands[0].type, buffer)
    elif not buffer.mutable:
        raise IRError(f"{op.name}: {buffer} has no contents and is not mutable")
    alignment = op.attributes.get("alignment", 16)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise IRError(f"{op.name}: alignment is {alignment!r}, expected a power of two in bytes")


def _verify_dealloc(op: Operation) -> None:
    _buffer(op.operands[0].type, op.name)


def _verify_load(op: Operation) -> None:
    _expect_same_tile(op, _buffer(op.operands[0].type, op.name), op.result.type)


def _verify_store(op: Operation) -> None:
    _expect_same_tile(op, op.operands[0].type, _buffer(op.operands[1].type, op.name))
    _expect_mutable(op, op.operands[1].type)


def _infer_index(operands: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    source = _buffer(operands[0], ttg.MemDescIndex.name)
    if not source.is_multiple or operands[1] != ir.I32:
        raise IRError(f"ttg.memdesc_index: got {source}[{operands[1]}], expected buffers[i32]")
    return (MemDescType(source.shape[1:], source.element, source.layout, source.mutable),)


def _infer_memdesc_trans(
    operands: Sequence[Type], attributes: Mapping[str, Attribute]
) -> Sequence[Type]:
    source = _buffer(operands[0], ttg.MemDescTrans.name)
    order = attributes["order"]
    assert isinstance(order, tuple)
    axes = [axis for axis in order if isinstance(axis, int)]
    if sorted(axes) != list(range(len(source.buffer_shape))) or source.is_multiple:
        raise IRError(f"ttg.memdesc_trans: order {order} does not permute one buffer of {source}")
    shape = tuple(source.shape[axis] for axis in axes)
    return (MemDescType(shape, source.element, transpose(source.layout, axes), source.mutable),)


def subslice_offsets(op: Operation) -> tuple[int, ...]:
    """Where a `ttg.memdesc_subslice` begins in its operand, in elements along each dimension."""
    offsets = op.attributes.get("offsets")
    if not isinstance(offsets, tuple):
        raise IRError(f"{op.name}: offsets is {offsets!r}, expected a list of ints")
    return tuple(offset for offset in offsets if isinstance(offset, int))


def _verify_subslice(op: Operation) -> None:
    source, part = (_buffer(v.type, op.name) for v in (op.operands[0], op.result))
    offsets = subslice_offsets(op)
    if (
        source.is_multiple
        or len(part.shape) != len(source.shape)
        or len(offsets) != len(part.shape)
    ):
        raise IRError(f"{op.name}: {part} at {offsets} is not a part of one buffer of {source}")
    kept = MemDescType(part.shape, source.element, source.layout, source.mutable)
    if part != kept:
        raise IRError(f"{op.name}: got {part}, expected {kept}: a part keeps the whole's layout")
    for offset, size, whole in zip(offsets, part.shape, source.shape, strict=True):
        # Only then is the offset in memory of a sum the XOR of the offsets.
        if offset < 0 or offset % size or offset + size > whole:
            raise IRError(
                f"{op.name}: part {part.shape} at {offsets} of {source.shape}; expected a place "
                "inside the buffer that is a multiple of the part's size"
            )


def _verify_async_copy(op: Operation) -> None:
    if not 2 <= len(op.operands) <= 4:
        raise IRError(f"{op.name}: got {len(op.operands)} operands, expected 2 to 4")
    pointer, buffer = op.operands[0].type, op.operands[1].type
    element = ir.element_of(pointer)
    if not isinstance(element, ir.PointerType) or not isinstance(pointer, TensorType):
        raise IRError(f"{op.name}: got {pointer}, expected a tile of pointers")
    _expect_same_tile(op, ir.with_element(pointer, element.pointee), _buffer(buffer, op.name))
    _expect_mutable(op, buffer)
    for value, wanted in zip(op.operands[2:], (ir.I1, element.pointee), strict=False):
        _expect_same_tile(op, value.type, ir.with_element(pointer, wanted))


def _expect_count(op: Operation, name: str) -> None:
    count = op.attributes.get(name)
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise IRError(f"{op.name}: {name} is {count!r}, expected an int from 0 up")


def _verify_async_wait(op: Operation) -> None:
    _expect_tokens(op)
    _expect_count(op, "num")


def _infer_token(operands: Sequence[Type], attributes: Mapping[str, Attribute]) -> Sequence[Type]:
    return (ir.TOKEN,)


def _verify_warp_group_dot(op: Operation) -> None:
    a, b, acc = (ir.shape_of(value.type) for value in op.operands)
    if len(a) != 2 or len(b) != 2 or a[1] != b[0] or acc != (a[0], b[1]):
        raise IRError(f"{op.name}: shapes {a}, {b} and {acc} do not fit")
    _buffer(op.operands[1].type, op.name)
    precision = op.attributes.get("input_precision", "tf32")
    if precision not in INPUT_PRECISIONS:
        raise IRError(f"{op.name}: input_precision is {precision!r}, not of {INPUT_PRECISIONS}")


def _verify_local_dot(op: Operation) -> None:
    verify_dot(op)
    for value in op.operands[:2]:
        if _buffer(value.type, op.name).is_multiple:
            raise IRError(f"{op.name}: got {value.type}, expected one buffer")


def _verify_warp_group_dot_wait(op: Operation) -> None:
    if not op.operands:
        raise IRError(f"{op.name}: got no operands, expected what it waits for")
    _expect_count(op, "pendings")


OPS: tuple[OpSpec, ...] = (
    OpSpec(
        ttg.ConvertLayout,
        None,
        _verify_convert,
    ),
    OpSpec(
        ttg.LocalAlloc,
        None,
        _verify_alloc,
        effects=Effects.OTHER,
    ),
    OpSpec(
        ttg.LocalDealloc,
        no_results,
        _verify_dealloc,
        effects=Effects.OTHER,
    ),
    OpSpec(
        ttg.LocalLoad,
        None,
        _verify_load,
        effects=Effects.READ_SHARED,
    ),
    OpSpec(
        ttg.LocalStore,
        no_results,
        _verify_store,
        effects=Effects.WRITE_SHARED,
    ),
    OpSpec(
        ttg.MemDescIndex,
        _infer_index,
    ),
    OpSpec(
        ttg.MemDescTrans,
        _infer_memdesc_trans,
    ),
    OpSpec(
        ttg.MemDescSubslice,
        None,
        _verify_subslice,
    ),
    OpSpec(
        ttg.AsyncCopyGlobalToLocal,
        _infer_token,
        _verify_async_copy,
        effects=Effects.READ | Effects.WRITE_SHARED,
    ),
    OpSpec(
        ttg.AsyncCommitGroup,
        _infer_token,
        _expect_tokens,
        effects=Effects.OTHER,
    ),
    OpSpec(
        ttg.AsyncWait,
        _infer_token,
        _verify_async_wait,
        effects=Effects.OTHER,
    ),
    OpSpec(
        ttg.LocalDot,
        lambda operands, attributes: (operands[2],),
        _verify_local_dot,
        effects=Effects.READ_SHARED,
    ),
    OpSpec(
        ttng.WarpGroupDot,
        lambda operands, attributes: (operands[2],),
        _verify_warp_group_dot,
        effects=Effects.READ_SHARED,
    ),
    OpSpec(
        ttng.WarpGroupDotWait,
        lambda operands, attributes: tuple(operands),
        _verify_warp_group_dot_wait,
        effects=Effects.OTHER,
    ),
    OpSpec(
        ttng.FenceAsyncShared,
        no_results,
        effects=Effects.OTHER,
    ),
    OpSpec(
        gpu.Barrier,
        no_results,
        effects=Effects.OTHER,
    ),
)
LANGUAGE: dict[str, Builtin] = {}
