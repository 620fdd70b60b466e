"""Global memory: pointers, block pointers, loads, stores and tensor descriptors.

A masked-off element of a load without `other` is undefined by the language and zero here. Block
pointers have no op: they are made of scalars, and an access through one is emitted as an access
through a tile of pointers and a mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import as_given, describe
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dtypes import block_type, dtype, pointer_type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ops import conversion, operators
from tkdebug.compiler.ops.arguments import (
    axis_argument,
    dtype_argument,
    list_argument,
    permutation_argument,
    scalars_argument,
    shape_argument,
)
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import (
    block_pointer,
    scalar_dtype,
    tensor,
    tensor_descriptor,
)


def _emit_make_block_ptr(
    emit: Emitter,
    base: object,
    shape: object,
    strides: object,
    offsets: object,
    block_shape: object,
    order: object,
) -> block_pointer:
    """A pointer to a block of the tensor at `base`.

    Args:
        emit: where to emit.
        base: pointer to the tensor's first element.
        shape: extents of the tensor, in elements.
        strides: steps between neighbours along each axis, in elements.
        offsets: where the block starts along each axis.
        block_shape: constexpr extents of the block.
        order: axes from the fastest to the slowest in memory; a hint.
    """
    pointer = operators.require_pointer(base, "make_block_ptr")
    extents = scalars_argument(emit, shape, dt.int64, "make_block_ptr: shape")
    steps = scalars_argument(emit, strides, dt.int64, "make_block_ptr: strides")
    starts = scalars_argument(emit, offsets, dt.int32, "make_block_ptr: offsets")
    block = shape_argument(block_shape, "make_block_ptr")
    if not len(extents) == len(steps) == len(starts) == len(block):
        raise SemanticError(
            "make_block_ptr: shape, strides, offsets and block_shape must have one entry an axis; "
            f"got {len(extents)}, {len(steps)}, {len(starts)} and {len(block)}"
        )
    fastest_first = list_argument(order, "make_block_ptr: order")
    axes = permutation_argument(fastest_first, len(block), "make_block_ptr: order")
    return block_pointer(pointer, extents, steps, starts, block, axes)


def _emit_advance(emit: Emitter, base: object, offsets: object) -> block_pointer:
    """The block pointer moved by `offsets`, one per axis."""
    if not isinstance(base, block_pointer):
        raise SemanticError(f"advance needs a block pointer, got {as_given(base)}")
    steps = scalars_argument(emit, offsets, dt.int32, "advance: offsets")
    if len(steps) != len(base.offsets):
        raise SemanticError(f"advance: {len(steps)} offsets for {len(base.offsets)} axes")
    moved = tuple(
        operators.binary(emit, "add", offset, step)
        for offset, step in zip(base.offsets, steps, strict=True)
    )
    return block_pointer(base.base, base.shape, base.strides, moved, base.block_shape, base.order)


def tile_of_pointers(
    emit: Emitter, block: block_pointer, checked: Sequence[int]
) -> tuple[tensor, tensor | None]:
    """Return a block pointer's tile of pointers, and the checked axes' mask (None for no axes)."""
    rank = len(block.block_shape)
    pointers = block.base
    mask: tensor | None = None
    for axis in range(rank):
        extent = block.block_shape[axis]
        lane = emit.op(tt.MakeRange, (), [ir.tile((extent,), ir.I32)], start=0, end=extent)
        lanes = tensor(lane.result, block_type(dt.int32, (extent,)))
        start = conversion.cast(emit, block.offsets[axis], dt.int64)
        index = operators.binary(emit, "add", conversion.cast(emit, lanes, dt.int64), start)
        selector: list[object] = [None] * rank
        selector[axis] = slice(None)
        if axis in checked:
            low = operators.compare(emit, "ge", index, 0)
            high = operators.compare(emit, "lt", index, block.shape[axis])
            inside = operators.binary(emit, "and", low, high)
            inside = operators.subscript(emit, inside, tuple(selector))
            mask = inside if mask is None else operators.binary(emit, "and", mask, inside)
        offset = operators.binary(emit, "mul", index, block.strides[axis])
        offset = operators.subscript(emit, offset, tuple(selector))
        pointers = operators.binary(emit, "add", pointers, offset)
    pointers = conversion.broadcast_to(emit, pointers, block.block_shape)
    if mask is not None:
        mask = conversion.broadcast_to(emit, mask, block.block_shape)
    return pointers, mask


def checked_axes(block: block_pointer, boundary_check: object) -> list[int]:
    """Return the axes that a block access checks against the tensor's shape, counted from 0."""
    axes = () if boundary_check is None else boundary_check
    rank = len(block.block_shape)
    return [
        axis_argument(axis, rank, "boundary_check")
        for axis in list_argument(axes, "boundary_check")
    ]


_CACHE_MODIFIERS = {
    "load": ("", ".ca", ".cg", ".cs", ".cv"),
    "store": ("", ".wb", ".cg", ".cs", ".wt"),
}
_EVICTION_POLICIES = ("", "evict_last", "evict_first", "evict_normal")


def _check_modifiers(what: str, cache_modifier: object, eviction_policy: object) -> dict[str, str]:
    # Upstream takes None for "as usual".
    cache, eviction = cache_modifier or "", eviction_policy or ""
    if cache not in _CACHE_MODIFIERS[what]:
        raise SemanticError(
            f"{what}: cache modifier {cache!r} is not one of {_CACHE_MODIFIERS[what][1:]}"
        )
    if eviction not in _EVICTION_POLICIES:
        raise SemanticError(
            f"{what}: eviction policy {eviction!r} is not one of {_EVICTION_POLICIES[1:]}"
        )
    return {key: value for key, value in (("cache", cache), ("eviction", eviction)) if value}


def _mask_for(emit: Emitter, mask: object, shape: tuple[int, ...], what: str) -> tensor | None:
    if mask is None:
        return None
    value = conversion.to_tensor(emit, mask)
    if scalar_dtype(value) != dt.int1:
        raise SemanticError(f"{what}: mask must be int1 (a comparison), got {describe(value)}")
    if value.type.is_block() and not shape:
        raise SemanticError(f"{what}: mask is a tile {list(value.shape)} but the pointer a scalar")
    return conversion.broadcast_to(emit, value, shape)


def _shaped_access(
    emit: Emitter, pointer: tensor, values: Sequence[object]
) -> tuple[tensor, tuple[int, ...]]:
    """The pointer broadcast to the shape that it, the mask and the other value share."""
    shape = pointer.shape
    for value in values:
        if isinstance(value, tensor) and value.type.is_block() and pointer.type.is_block():
            shape = conversion.broadcast_shape(shape, value.shape)
    return conversion.broadcast_to(emit, pointer, shape), shape


def load(
    emit: Emitter,
    pointer: object,
    mask: object = None,
    other: object = None,
    boundary_check: object = (),
    padding_option: object = "",
    cache_modifier: object = "",
    eviction_policy: object = "",
    volatile: object = False,
) -> tensor:
    """Read the elements a tile of pointers (or one pointer, or a block pointer) points to.

    Args:
        emit: where to emit.
        pointer: pointer, tile of pointers, or block pointer.
        mask: int1 tile; where it is false memory is not touched.
        other: value where the mask is false; given only with a mask. Without it, Triton leaves
            these elements undefined, and they are 0 here.
        boundary_check: block pointers only: the axes to check against the tensor's shape.
        padding_option: block pointers only: "zero", or "nan" for floats, outside the shape along
            the checked axes.
        cache_modifier: "", ".ca", ".cg", ".cs" or ".cv".
        eviction_policy: "", "evict_first", "evict_last" or "evict_normal".
        volatile: whether the read may not be cached.
    """
    attributes: dict[str, Attribute] = dict(
        _check_modifiers("load", cache_modifier, eviction_policy)
    )
    if volatile:
        attributes["volatile"] = True
    if isinstance(pointer, block_pointer):
        if mask is not None or other is not None:
            raise SemanticError("load: block pointers take boundary_check, not mask or other")
        return _load_block(emit, pointer, boundary_check, padding_option, attributes)
    if padding_option or boundary_check:
        raise SemanticError("load: boundary_check and padding_option are for block pointers")
    pointers = operators.require_pointer(pointer, "load")
    if other is not None and mask is None:
        raise SemanticError("load: other was given without mask; add mask=… or drop other")
    pointers, shape = _shaped_access(emit, pointers, (mask, other))
    return _emit_load(emit, pointers, shape, mask, other, attributes)


def _emit_load(
    emit: Emitter,
    pointers: tensor,
    shape: tuple[int, ...],
    mask: object,
    other: object,
    attributes: Mapping[str, Attribute],
) -> tensor:
    element = operators.pointee(pointers)
    as_bool = element == dt.int1
    if as_bool:
        element = dt.int8
        pointers = conversion.cast(emit, pointers, pointer_type(dt.int8))
    operands = [pointers]
    mask_tile = _mask_for(emit, mask, shape, "load")
    if mask_tile is not None:
        operands.append(mask_tile)
        if other is not None:
            fill = conversion.cast(emit, conversion.to_tensor(emit, other), element)
            operands.append(conversion.broadcast_to(emit, fill, shape))
    result_type = block_type(element, shape) if shape else element
    value = emit.value(tt.Load, operands, result_type, **attributes)
    return conversion.cast(emit, value, dt.int1) if as_bool else value


def store(
    emit: Emitter,
    pointer: object,
    value: object,
    mask: object = None,
    boundary_check: object = (),
    cache_modifier: object = "",
    eviction_policy: object = "",
) -> None:
    """Write `value` where a tile of pointers (or one pointer, or a block pointer) points to.

    Args:
        emit: where to emit.
        pointer: pointer, tile of pointers, or block pointer.
        value: tile or scalar, converted to the memory's dtype and broadcast.
        mask: int1 tile; where it is false memory is not touched.
        boundary_check: block pointers only: the axes to check against the tensor's shape.
        cache_modifier: "", ".wb", ".cg", ".cs" or ".wt".
        eviction_policy: "", "evict_first", "evict_last" or "evict_normal".
    """
    attributes = _check_modifiers("store", cache_modifier, eviction_policy)
    if isinstance(pointer, block_pointer):
        if mask is not None:
            raise SemanticError("store: block pointers take boundary_check, not mask")
        _store_block(emit, pointer, value, boundary_check, attributes)
        return
    if boundary_check:
        raise SemanticError("store: boundary_check is for block pointers")
    _emit_store(emit, operators.require_pointer(pointer, "store"), value, mask, attributes)


def _emit_store(
    emit: Emitter,
    pointers: tensor,
    value: object,
    mask: object,
    attributes: Mapping[str, Attribute],
) -> None:
    if pointers.type.scalar.is_const():
        raise SemanticError(
            "store: Cannot store to a constant pointer; "
            "drop tl.const from the parameter that it comes from"
        )
    source = value
    if isinstance(source, tensor) and source.type.is_block() and not pointers.type.is_block():
        raise SemanticError(
            f"store: the value is a tile {list(source.shape)} but the pointer a scalar; "
            "add an offset for each element to it, as in out_ptr + tl.arange(0, BLOCK)"
        )
    shape = conversion.shape_of_pointers("store", pointers, value=value, mask=mask)
    element = operators.pointee(pointers)
    if element == dt.int1:
        element = dt.int8
        pointers = conversion.cast(emit, pointers, pointer_type(dt.int8))
        if not emit.is_before(3, 9):
            source = conversion.cast(emit, conversion.to_tensor(emit, source), dt.int1)
    stored = conversion.cast(emit, conversion.to_tensor(emit, source), element)
    operands = [pointers, conversion.broadcast_to(emit, stored, shape)]
    mask_tile = _mask_for(emit, mask, shape, "store")
    if mask_tile is not None:
        operands.append(mask_tile)
    emit.op(tt.Store, operands, None, (), **attributes)


def _load_block(
    emit: Emitter,
    block: block_pointer,
    boundary_check: object,
    padding_option: object,
    attributes: Mapping[str, Attribute],
) -> tensor:
    if padding_option not in ("", None, "zero", "nan"):
        raise SemanticError(f'padding_option must be "zero" or "nan", got {padding_option!r}')
    checked = checked_axes(block, boundary_check)
    pointers, mask = tile_of_pointers(emit, block, checked)
    other: object = None
    if padding_option == "nan":
        element = block.element_ty
        if not (isinstance(element, dtype) and element.is_floating()):
            raise SemanticError(f'padding_option "nan" needs floats, got {element}')
        other = float("nan")
    elif mask is not None:
        other = 0
    if mask is None:
        other = None
    attributes = {**attributes, "boundary_check": tuple(checked)}
    return _emit_load(emit, pointers, block.block_shape, mask, other, attributes)


def _store_block(
    emit: Emitter,
    block: block_pointer,
    value: object,
    boundary_check: object,
    attributes: Mapping[str, str],
) -> None:
    checked = checked_axes(block, boundary_check)
    pointers, mask = tile_of_pointers(emit, block, checked)
    _emit_store(emit, pointers, value, mask, {**attributes, "boundary_check": tuple(checked)})


def _emit_make_tensor_descriptor(
    emit: Emitter,
    base: object,
    shape: object,
    strides: object,
    block_shape: object,
    padding_option: object = "zero",
) -> tensor_descriptor:
    """A descriptor of the tensor at `base` whose blocks have `block_shape`.

    Args:
        emit: where to emit.
        base: pointer to the tensor's first element.
        shape: extents, int32, one per axis (1 to 5 axes).
        strides: in elements, the last must be 1.
        block_shape: constexpr extents of the blocks; the last axis takes at least 16 bytes.
        padding_option: "zero", or "nan" for floats: the value of elements outside the tensor.
    """
    pointer = operators.require_pointer(base, "make_tensor_descriptor")
    extents = scalars_argument(emit, shape, dt.int32, "make_tensor_descriptor: shape")
    block = shape_argument(block_shape, "make_tensor_descriptor")
    steps = scalars_argument(emit, strides, dt.int64, "make_tensor_descriptor: strides")
    if not len(extents) == len(steps) == len(block) >= 1:
        raise SemanticError(
            "make_tensor_descriptor: shape, strides and block_shape must have one entry an axis; "
            f"got {len(extents)}, {len(steps)} and {len(block)}"
        )
    last = list_argument(strides, "make_tensor_descriptor: strides")[-1]
    if isinstance(last, int) and last != 1:
        raise SemanticError(f"make_tensor_descriptor: the last stride must be 1, got {last}")
    element = dtype_argument(operators.pointee(pointer), "make_tensor_descriptor")
    if block[-1] * element.itemsize < 16:
        raise SemanticError(
            "make_tensor_descriptor: Descriptor block shape must have at least 16 bytes in its "
            f"last axis, got {block[-1]} x {element.itemsize} bytes; make block_shape[-1] larger"
        )
    if padding_option not in ("zero", "nan"):
        raise SemanticError(f'padding_option must be "zero" or "nan", got {padding_option!r}')
    if padding_option == "nan" and not element.is_floating():
        raise SemanticError(f'padding_option "nan" needs floats, got {element}')
    type_ = dt.tensor_descriptor_type(block_type(element, block))
    op = emit.op(
        tt.MakeTensorDescriptor,
        [pointer, *extents, *steps],
        [type_.to_ir()],
        padding=padding_option,
    )
    return tensor_descriptor(op.result, type_, extents, steps)


def descriptor_argument(value: object, what: str) -> tensor_descriptor:
    """`value` checked to be a tensor descriptor."""
    if not isinstance(value, tensor_descriptor):
        raise SemanticError(f"{what} needs a tensor descriptor, got {as_given(value)}")
    return value


def descriptor_offsets(
    emit: Emitter, descriptor: tensor_descriptor, offsets: object
) -> list[tensor]:
    """Return the offsets of a block as int32 scalars, one per axis of the descriptor."""
    values = scalars_argument(emit, offsets, dt.int32, "descriptor offsets")
    if len(values) != len(descriptor.block_shape):
        raise SemanticError(
            f"{len(values)} offsets for a descriptor of {len(descriptor.block_shape)} axes"
        )
    return list(values)


def _emit_load_descriptor(
    emit: Emitter,
    desc: object,
    offsets: object,
    cache_modifier: object = "",
    eviction_policy: object = "",
) -> tensor:
    """The block of `desc` at `offsets` (elements, one per axis); padded outside the tensor."""
    descriptor = descriptor_argument(desc, "load_tensor_descriptor")
    starts = descriptor_offsets(emit, descriptor, offsets)
    attributes = _check_modifiers("load", cache_modifier, eviction_policy)
    loaded = emit.value(
        tt.DescriptorLoad, [descriptor.value, *starts], descriptor.block_type, **attributes
    )
    return rounded_by(emit, descriptor, loaded)


def rounded_by(emit: Emitter, descriptor: tensor_descriptor, loaded: tensor) -> tensor:
    """The value loaded through a descriptor, rounded to tf32 if the descriptor asks for it.

    Ties round to even, as with a tensor map of type TFLOAT32; infinities and NaN stay.
    """
    if not descriptor.type.rounds_to_tf32:
        return loaded

    def combined(operator: str, left: object, right: object) -> tensor:
        return operators.binary(emit, operator, left, right)

    bits = conversion.cast(emit, loaded, dt.int32, bitcast=True)
    odd = combined("and", combined("rshift", bits, 13), 1)
    near = combined("and", combined("add", combined("add", bits, odd), 0xFFF), -0x2000)
    exponent = combined("and", bits, 0x7F800000)
    is_finite = operators.compare(emit, "ne", exponent, 0x7F800000)
    chosen = emit.value(arith.Select, [is_finite, near, bits], bits.type)
    return conversion.cast(emit, chosen, dt.float32, bitcast=True)


def _emit_store_descriptor(emit: Emitter, desc: object, offsets: object, value: object) -> None:
    """Write `value` as the block of `desc` at `offsets`; nothing is written outside the tensor."""
    descriptor = descriptor_argument(desc, "store_tensor_descriptor")
    starts = descriptor_offsets(emit, descriptor, offsets)
    stored = conversion.cast(emit, conversion.to_tensor(emit, value), descriptor.dtype)
    if stored.shape != descriptor.block_shape:
        raise SemanticError(
            f"store_tensor_descriptor: value {list(stored.shape)} does not fit blocks of "
            f"{list(descriptor.block_shape)}"
        )
    emit.op(tt.DescriptorStore, [descriptor.value, stored, *starts])


_BUILTINS: tuple[Builtin, ...] = (
    Builtin("make_block_ptr", _emit_make_block_ptr),
    Builtin("advance", _emit_advance, member=True),
    Builtin("load", load),
    Builtin("store", store),
    Builtin("make_tensor_descriptor", _emit_make_tensor_descriptor),
    Builtin("load_tensor_descriptor", _emit_load_descriptor),
    Builtin("store_tensor_descriptor", _emit_store_descriptor),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
