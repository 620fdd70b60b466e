"""Tensor descriptors: rows gathered and scattered through them, and reductions in memory.

The front end calls `descriptor_*` for `desc.gather(...)` and the like.
Everything outside the descriptor's shape reads as its padding and is never written.
"""

from __future__ import annotations

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import as_given
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dtypes import block_type
from tkdebug.compiler.ops import conversion
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.memory import descriptor_argument, descriptor_offsets, rounded_by
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import scalar_dtype, tensor, tensor_descriptor

# Attribute of a function: the names of its descriptor parameters that pad with NaN.
NAN_PADDED = "nan_padded"
# For descriptors whose strides a tensor map can have.
MAPPABLE = "mappable"
KINDS = ("add", "min", "max", "and", "or", "xor")
_MIN_ROWS = 8
_MIN_ROW_BYTES = 32
_BITWISE = (dt.uint32, dt.int32, dt.uint64, dt.int64)
# Types of the hardware's bulk reductions (PTX ISA, cp.reduce.async.bulk.tensor).
_SUPPORTED = {
    "add": (dt.uint32, dt.int32, dt.uint64, dt.float32, dt.float16, dt.bfloat16),
    "min": (*_BITWISE, dt.float16, dt.bfloat16),
    "max": (*_BITWISE, dt.float16, dt.bfloat16),
    "and": _BITWISE,
    "or": _BITWISE,
    "xor": _BITWISE,
}


def _rows(
    emit: Emitter, desc: object, x_offsets: object, y_offset: object, what: str
) -> tuple[tensor_descriptor, tensor, tensor]:
    descriptor = descriptor_argument(desc, what)
    block = descriptor.block_shape
    if len(block) != 2 or block[0] != 1:
        raise SemanticError(f"{what}: the descriptor's blocks must be [1, n], got {list(block)}")
    rows = x_offsets
    if not isinstance(rows, tensor) or len(rows.shape) != 1 or not scalar_dtype(rows).is_int():
        raise SemanticError(
            f"{what}: x_offsets must be an integer tile of one axis, got {as_given(rows)}"
        )
    if rows.shape[0] < _MIN_ROWS:
        raise SemanticError(
            f"{what} must have at least {_MIN_ROWS} rows, got x_offsets of {rows.shape[0]}"
        )
    element = descriptor.dtype
    assert isinstance(element, dt.dtype)
    least = _MIN_ROW_BYTES // element.itemsize
    if block[1] < least:
        raise SemanticError(
            f"{what} of {element} must have at least {least} columns, got {block[1]}"
        )
    column = conversion.to_tensor(emit, y_offset)
    if column.type.is_block() or not scalar_dtype(column).is_int():
        raise SemanticError(f"{what}: y_offset must be an integer scalar, got {as_given(column)}")
    return (
        descriptor,
        conversion.cast(emit, rows, dt.int32),
        conversion.cast(emit, column, dt.int32),
    )


def _emit_gather(
    emit: Emitter,
    desc: object,
    x_offsets: object,
    y_offset: object,
    cache_modifier: object = "",
    eviction_policy: object = "",
) -> tensor:
    """`desc.gather(rows, column)`: the rows `x_offsets`, from column `y_offset` on.

    Args:
        emit: where to emit.
        desc: descriptor with blocks of [1, n], of at least 32 bytes.
        x_offsets: integer tile of one axis: at least 8 row numbers.
        y_offset: first column, an integer scalar.
        cache_modifier: must be "".
        eviction_policy: must be "".
    """
    for name, value in (("cache_modifier", cache_modifier), ("eviction_policy", eviction_policy)):
        if value:
            raise SemanticError(f"descriptor gather: {name} is not supported, got {value!r}")
    descriptor, rows, column = _rows(emit, desc, x_offsets, y_offset, "descriptor gather")
    shape = (rows.shape[0], descriptor.block_shape[1])
    gathered = emit.value(
        tt.DescriptorGather,
        [descriptor.value, rows, column],
        block_type(descriptor.dtype, shape),
    )
    return rounded_by(emit, descriptor, gathered)


def _emit_scatter(
    emit: Emitter, desc: object, value: object, x_offsets: object, y_offset: object
) -> None:
    """`desc.scatter(value, rows, column)`: write the rows of `value` to the rows `x_offsets`.

    Args:
        emit: where to emit.
        desc: descriptor with blocks of [1, n], of at least 32 bytes.
        value: tile of (rows, n), converted to the descriptor's dtype.
        x_offsets: integer tile of one axis: at least 8 row numbers.
        y_offset: first column, an integer scalar.
    """
    descriptor, rows, column = _rows(emit, desc, x_offsets, y_offset, "descriptor scatter")
    stored = conversion.cast(emit, conversion.to_tensor(emit, value), descriptor.dtype)
    shape = (rows.shape[0], descriptor.block_shape[1])
    if stored.shape != shape:
        raise SemanticError(
            f"descriptor scatter: the value must be {list(shape)}, got {list(stored.shape)}"
        )
    emit.op(tt.DescriptorScatter, [descriptor.value, stored, rows, column])


def _atomic(kind: str) -> Builtin:
    def emit_atomic(emit: Emitter, desc: object, offsets: object, value: object) -> None:
        what = f"descriptor atomic_{kind}"
        descriptor = descriptor_argument(desc, what)
        starts = descriptor_offsets(emit, descriptor, offsets)
        element = descriptor.dtype
        assert isinstance(element, dt.dtype)
        if element not in _SUPPORTED[kind]:
            known = ", ".join(map(str, _SUPPORTED[kind]))
            raise SemanticError(f"{what} does not support {element}; it takes {known}")
        stored = conversion.cast(emit, conversion.to_tensor(emit, value), element)
        if stored.shape != descriptor.block_shape:
            raise SemanticError(
                f"{what}: value {list(stored.shape)} does not fit blocks of "
                f"{list(descriptor.block_shape)}"
            )
        emit.op(
            tt.DescriptorReduce,
            [descriptor.value, stored, *starts],
            kind=_kind(kind, element),
        )

    doc = f"`desc.atomic_{kind}(offsets, value)`: combine the block at `offsets` with `value`."
    emit_atomic.__doc__ = doc
    return Builtin(f"descriptor_atomic_{kind}", emit_atomic, doc=doc)


def _kind(kind: str, element: dt.dtype) -> str:
    if element.is_floating():
        return "f" + kind
    return "u" + kind if kind in ("min", "max") and element.is_int_unsigned() else kind


_BUILTINS: tuple[Builtin, ...] = (
    Builtin("descriptor_gather", _emit_gather),
    Builtin("descriptor_scatter", _emit_scatter),
    *(_atomic(kind) for kind in KINDS),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
