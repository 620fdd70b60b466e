"""Sums that a loop rescales before it adds to them, as parts that threads hold.

    total = total * weight + sum(x, axis)

is how an online softmax sums its weights. As every part is multiplied by the weight, the parts of
all threads add up to the total behind the loop. What the loop begins with is in the first part of
each row. `sink_reductions` has the rewrite.

Only weights that are an exponential are taken: a factor that may well be infinite makes NaN of the
parts that are zero.
"""

from __future__ import annotations

from tkdebug.compiler.dialects import arith, math, tt
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.types import I1, I32, TensorType, element_of
from tkdebug.compiler.layouts import views
from tkdebug.compiler.layouts.linear import LinearLayout
from tkdebug.compiler.rewriting.op_builder import OpBuilder


def rescaling(value: Value, user: Operation) -> Operation | None:
    """`user`, if it multiplies `value` by an exponential of the same iteration."""
    if not arith.MulF.matches(user):
        return None
    made = weight(user, value).defining_op
    if made is None or made.block is not user.block:
        return None
    return user if math.Exponential.matches(made) else None


def weight(rescale: Operation, value: Value) -> Value:
    """What `value` is multiplied by."""
    pair = arith.Binary(rescale)
    return pair.rhs if pair.lhs is value else pair.lhs


def of_parts(build: OpBuilder, value: Value, type_: TensorType, axis: int) -> Value:
    """A number of each row, or the only number, for each of its parts.

    Args:
        build: where to.
        value: a number, or a tile of them, without axis `axis` of the parts.
        type_: of the parts.
        axis: along which a row's parts lie.
    """
    if not isinstance(value.type, TensorType):
        spread = TensorType(type_.shape, element_of(value.type), type_.encoding)
        return build.op(tt.Splat, (value,), spread)
    shape = (*type_.shape[:axis], 1, *type_.shape[axis + 1 :])
    element = value.type.element
    narrow = TensorType(shape, element, views.broadcast_source(_layout(type_), shape))
    value = build.op(tt.ExpandDims, (value,), narrow, axis=axis)
    if shape == type_.shape:
        return value
    return build.op(tt.Broadcast, (value,), TensorType(type_.shape, element, type_.encoding))


def in_first_part(
    build: OpBuilder, initial: Value, type_: TensorType, axis: int, identity: float
) -> Value:
    """Parts that add up to `initial`: it itself and numbers that change nothing."""
    whole = of_parts(build, initial, type_, axis)
    places = _places(build, type_, axis)
    is_first = build.op(
        arith.CmpI,
        (places, build.constant(places.type, 0)),
        TensorType(type_.shape, I1, type_.encoding),
        predicate="eq",
    )
    return build.op(arith.Select, (is_first, whole, build.constant(type_, identity)), type_)


def _places(build: OpBuilder, type_: TensorType, axis: int) -> Value:
    """The index of each part in its row."""
    shape = tuple(size if d == axis else 1 for d, size in enumerate(type_.shape))
    layouts = [views.broadcast_source(_layout(type_), shape)]
    missing = [d for d in range(len(shape)) if d != axis]
    for d in reversed(missing):
        layouts.append(views.slice_layout(layouts[-1], d))
    extent = type_.shape[axis]
    range_type = TensorType((extent,), I32, layouts.pop())
    value = build.op(tt.MakeRange, (), range_type, start=0, end=extent)
    for d in missing:
        layout = layouts.pop()
        value = build.op(tt.ExpandDims, (value,), TensorType(layout.shape, I32, layout), axis=d)
    if shape == type_.shape:
        return value
    return build.op(tt.Broadcast, (value,), TensorType(type_.shape, I32, type_.encoding))


def _layout(type_: TensorType) -> LinearLayout:
    layout = type_.encoding
    assert isinstance(layout, LinearLayout)
    return layout
