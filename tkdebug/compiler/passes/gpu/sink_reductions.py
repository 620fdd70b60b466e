"""`SinkReductions`: a loop that sums up reductions reduces across threads once, after it.

    for …:                                     for …:
        total = total + reduce(x)      =>          parts = parts + reduce_in_thread(x)
                                               total = total + reduce(parts)

Each thread combines what it holds along the axis; the parts of the threads meet after the loop. So
shuffles, shared memory and barriers leave the loop. What lies in a thread is cut out by views,
which move nothing: an axis whose bits belong to registers and to threads becomes two axes.

The combination must be commutative and associative, as `tl.reduce` asks for anyway; sums of floats
round in another order. An iteration may rescale the sum before it adds to it, as an online softmax
does: `total = total * weight + sum(x, axis)`. As every part is multiplied by the weight, the parts
of all threads add up to the total after the loop. The loop's initial value is in the first part of
each row. Only weights that are an exponential are taken: a factor that may well be infinite makes
NaN of the parts that are zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import ClassVar

from tkdebug.compiler.analysis.layout_inference import axis_of
from tkdebug.compiler.dialects import arith, math, scf, tt, ttg
from tkdebug.compiler.ir.control_flow import IterArg, iter_args
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.location import Location, fuse
from tkdebug.compiler.ir.types import I1, I32, TensorType, Type, element_of
from tkdebug.compiler.layouts import REGISTER, LinearLayout, views
from tkdebug.compiler.rewriting.copies import clone_region
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter


def rescaling(value: Value, user: Operation) -> Operation | None:
    """Return `user` if it multiplies `value` by an exponential of the same block, else None."""
    if not arith.MulF.matches(user):
        return None
    made = weight(user, value).defining_op
    if made is None or made.block is not user.block:
        return None
    return user if math.Exponential.matches(made) else None


def weight(rescale: Operation, value: Value) -> Value:
    """The other factor of a multiplication of `value`."""
    pair = arith.Binary(rescale)
    return pair.rhs if pair.lhs is value else pair.lhs


def of_parts(build: OpBuilder, value: Value, type_: TensorType, axis: int) -> Value:
    """Repeat a scalar, or one number per row, for each part of a row.

    Args:
        build: the builder.
        value: a number, or a tile of numbers, without axis `axis` of the parts.
        type_: the type of the parts.
        axis: the axis along which a row's parts lie.
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
    """Parts that add up to `initial`: it in the first part of a row, `identity` in the others."""
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


_RULE = "sink-reduction"


@dataclass(frozen=True, slots=True)
class SinkReductions:
    """Moves reductions across threads out of scf.for, innermost loops first, then in order.

    Attributes:
        rescaled: whether reductions of rescaled sums are moved, too.
    """

    rescaled: bool = True
    name: ClassVar[str] = "sink-reductions"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every carried value of every loop."""
        loops = [op for op in module.walk() if scf.For.matches(op)]
        for loop in sorted(loops, key=_depth, reverse=True):
            for found in list(_sums(loop, self.rescaled)):
                if rewriter.begins(found.terms[0].reduce, _RULE):
                    _defer(found, rewriter)
                    rewriter.commit()


def _depth(op: Operation) -> int:
    """The number of ops around `op`."""
    depth = 0
    while op.block is not None and op.block.parent_op is not None:
        op, depth = op.block.parent_op, depth + 1
    return depth


@dataclass(frozen=True, slots=True)
class _Term:
    """A reduction that is added.

    Attributes:
        adding: the op that combines a sum with the reduction's result.
        conversions: the conversions of that result, last first.
        reduce: the reduction.
        groups: bits of the reduced axis, from the top: (whether threads hold them, how many).
    """

    adding: Operation
    conversions: tuple[Operation, ...]
    reduce: Operation
    groups: tuple[tuple[bool, int], ...]

    def locations(self) -> list[Location]:
        """The locations of all reductions and conversions."""
        return [op.location for op in (*self.conversions, *self.reduce.walk())]


@dataclass(frozen=True, slots=True)
class _Sum:
    """A carried value that reductions are added to.

    Attributes:
        carried: the iter arg of an scf.for.
        terms: the terms that an iteration adds, in order; their parts can be added up.
        rescale: the product that replaces the value before the first term is added, or None.
    """

    carried: IterArg
    terms: tuple[_Term, ...]
    rescale: Operation | None

    @property
    def added_to(self) -> Value:
        """The value that the first term is added to."""
        return self.carried.argument if self.rescale is None else self.rescale.result


def _sums(loop: Operation, may_rescale: bool) -> Iterator[_Sum]:
    for carried in iter_args(loop):
        rescale = _rescale(carried.argument) if may_rescale else None
        value = carried.argument if rescale is None else rescale.result
        terms = list[_Term]()
        while (term := _term(value)) is not None and (not terms or _are_alike(terms[0], term)):
            terms.append(term)
            value = term.adding.result
        if terms and carried.yielded is value and _only_user(value) is not None:
            if rescale is None or _is_rescalable(terms[0]):
                yield _Sum(carried, tuple(terms), rescale)


def _rescale(value: Value) -> Operation | None:
    """The product with a weight that is the only user of `value`, or None."""
    user = _only_user(value)
    return None if user is None or user.block is not value.owner else rescaling(value, user)


def _is_rescalable(term: _Term) -> bool:
    """Whether the parts of a sum can be rescaled: it adds floats, in the reduction's layout."""
    return arith.AddF.matches(term.adding) and not term.conversions


def _term(value: Value) -> _Term | None:
    """The reduction added to `value`; None if that is not the only use, or it cannot be moved."""
    adding, owner = _only_user(value), value.owner
    block = owner.block if isinstance(owner, Operation) else owner
    if adding is None or adding.block is not block or identity(adding) is None:
        return None
    pair = arith.Binary(adding)
    chain = _chain(pair.rhs if pair.lhs is value else pair.lhs, adding)
    if not chain or not _combines_like(chain[-1], adding):
        return None
    groups = _groups(chain[-1])
    return None if groups is None else _Term(adding, tuple(chain[:-1]), chain[-1], groups)


def _are_alike(a: _Term, b: _Term) -> bool:
    """Whether the parts of both can be added up."""
    return (
        a.adding.name == b.adding.name
        and tt.Reduce(a.reduce).sources[0].type == tt.Reduce(b.reduce).sources[0].type
        and a.reduce.attributes == b.reduce.attributes
    )


def _chain(value: Value, user: Operation) -> list[Operation]:
    """The layout conversions that made `value`, last first, then the op that made their operand.

    Each of these ops is in the block of `user` and has a single use; the chain ends where this does
    not hold.
    """
    chain: list[Operation] = []
    while not chain or ttg.ConvertLayout.matches(chain[-1]):
        op = value.defining_op
        if op is None or op.block is not user.block or _only_user(value) is None:
            break
        chain.append(op)
        if ttg.ConvertLayout.matches(op):
            value = ttg.ConvertLayout(op).source
    return chain


def _only_user(value: Value) -> Operation | None:
    """The only user of a value, if it uses the value once; else None."""
    return next(iter(value.uses)) if list(value.uses.values()) == [1] else None


def _combines_like(op: Operation, adding: Operation) -> bool:
    """Whether `op` is a reduction of one tile by the operation of `adding`."""
    if not tt.Reduce.matches(op) or len(op.operands) != 1:
        return False
    block = op.regions[0].block
    combine, *rest = block.operations
    return (
        len(rest) == 1
        and combine.name == adding.name
        and combine.attributes == adding.attributes
        and set(combine.operands) == set(block.arguments)
        and rest[0].operands == combine.results
    )


def identity(op: Operation) -> float | int | None:
    """The identity of `op`, or None if it has none."""
    binary = arith.Binary.cast(op)
    return binary.neutral if binary is not None and binary.commutes else None


def _groups(reduce: Operation) -> tuple[tuple[bool, int], ...] | None:
    """Return `_Term.groups` of a reduction; None if threads hold no bits, or bits are mixed."""
    source = tt.Reduce(reduce).sources[0].type
    assert isinstance(source, TensorType)
    assert source.encoding is not None
    layout, axis = source.encoding, axis_of(reduce)
    out = layout.out_dims[axis]
    holders: dict[int, bool] = {}
    for dim in layout.in_dims:
        for vector in layout.packed_bases(dim):
            place = layout.unpack_out(vector)
            along = place.pop(out)
            if not along:
                continue
            if along & (along - 1) or any(place.values()) or along in holders:
                return None
            holders[along] = dim != REGISTER
    if True not in holders.values():
        return None
    by_threads = [by_thread for _, by_thread in sorted(holders.items(), reverse=True)]
    return tuple((by_thread, len(list(bits))) for by_thread, bits in groupby(by_threads))


def _defer(found: _Sum, rewriter: Rewriter) -> None:
    result, initial = found.carried.result, found.carried.initial
    users = list(result.uses)
    parts = [_in_thread(term, rewriter) for term in found.terms]
    _carry(found, parts, rewriter)
    total, made = _total(found, initial, rewriter)
    for user in users:
        user.replace_operand(result, total)
        rewriter.record_change(user, _RULE)
    rewriter.note_replaced(result, total)
    operands = [tt.Reduce(term.reduce).sources[0] for term in found.terms]
    new_ops = [part.defining_op for part in parts if part not in operands]
    new_ops += made
    for term in found.terms:
        for old in (*term.conversions, term.reduce):
            rewriter.replace_with_ops(old, _RULE, [op for op in new_ops if op is not None])


def _carry(found: _Sum, parts: Sequence[Value], rewriter: Rewriter) -> None:
    """Let the loop carry the parts that threads hold, and add to these."""
    carried, first = found.carried, found.terms[0]
    type_ = parts[0].type
    number = identity(first.adding)
    assert number is not None
    build = OpBuilder(rewriter, carried.loop, _RULE, first.adding.location)
    if found.rescale is None:
        carried.begin_with(build.constant(type_, number))
    else:
        assert isinstance(type_, TensorType)
        axis = axis_of(first.reduce)
        start = _parts_of(carried.initial, first, type_)
        if start is None:
            start = in_first_part(build, carried.initial, type_, axis, number)
        carried.begin_with(start)
        _rescale_parts(found.rescale, carried.argument, type_, axis, rewriter)
    rewriter.record_change(carried.loop, _RULE)
    sums = [term.adding.result for term in found.terms]
    for value in (carried.argument, found.added_to, *sums, carried.result):
        value.type = type_
    value = found.added_to
    for term, part in zip(found.terms, parts, strict=True):
        is_first = arith.Binary(term.adding).lhs is value
        term.adding.operands = (value, part) if is_first else (part, value)
        rewriter.record_change(term.adding, _RULE)
        value = term.adding.result


def _parts_of(initial: Value, term: _Term, type_: TensorType) -> Value | None:
    """The parts that `initial`, the sum of an earlier loop, was reduced from; None for others."""
    op = initial.defining_op
    if op is None or not _combines_like(op, term.adding) or axis_of(op) != axis_of(term.reduce):
        return None
    (source,) = tt.Reduce(op).sources
    return source if source.type == type_ else None


def _rescale_parts(
    rescale: Operation, carried: Value, type_: TensorType, axis: int, rewriter: Rewriter
) -> None:
    factor = weight(rescale, carried)
    build = OpBuilder(rewriter, rescale, _RULE)
    rescale.replace_operand(factor, of_parts(build, factor, type_, axis))
    rewriter.record_change(rescale, _RULE)


def _total(found: _Sum, initial: Value, rewriter: Rewriter) -> tuple[Value, list[Operation | None]]:
    """Reduce the parts after the loop, convert the sum, and add it to the loop's initial value.

    A rescaled sum has the initial value in its parts, and no conversions. Returns the sum, and the
    ops that replace the reductions and conversions.
    """
    first, following = found.terms[0], _following(found.carried.loop)
    others = [location for term in found.terms[1:] for location in term.locations()]
    location = fuse(first.reduce.location, *others)
    total = _reduce(
        first.reduce, found.carried.result, axis_of(first.reduce), following, rewriter, location
    )
    assert total.type == first.reduce.result.type
    made = [total.defining_op]
    if found.rescale is not None:
        return total, made
    for old in reversed(first.conversions):
        build = OpBuilder(rewriter, following, _RULE, old.location)
        total = build.op(ttg.ConvertLayout, (total,), old.result.type)
        made.append(total.defining_op)
    build = OpBuilder(rewriter, following, _RULE, first.adding.location)
    comes_first = arith.Binary(first.adding).lhs is found.carried.argument
    pair = (initial, total) if comes_first else (total, initial)
    return build.op(first.adding.name, pair, total.type, **first.adding.attributes), made


def _following(loop: Operation) -> Operation:
    assert loop.block is not None
    return loop.block.operations[loop.block.operations.index(loop) + 1]


def _in_thread(term: _Term, rewriter: Rewriter) -> Value:
    """Reduce the operand of a reduction within each thread; return the parts of the threads.

    The axis is cut into groups of bits. Those of threads become one axis in its place, those of
    registers become a last axis, which is reduced; without any, the operand is returned.
    """
    reduce, axis = term.reduce, axis_of(term.reduce)
    value = tt.Reduce(reduce).sources[0]
    if all(by_thread for by_thread, _ in term.groups):
        return value
    build = OpBuilder(rewriter, reduce, _RULE)
    shape = list(_shape(value))
    sizes = [1 << bits for _, bits in term.groups]
    value = _view(build, tt.Reshape.name, value, [*shape[:axis], *sizes, *shape[axis + 1 :]])
    places = {
        wanted: [axis + i for i, (by_thread, _) in enumerate(term.groups) if by_thread is wanted]
        for wanted in (True, False)
    }
    after = range(axis + len(sizes), len(shape) + len(sizes) - 1)
    order = (*range(axis), *places[True], *after, *places[False])
    value = _view(build, tt.Trans.name, value, [_shape(value)[d] for d in order], order=order)
    threads, registers = (
        prod(size for size, (by, _) in zip(sizes, term.groups, strict=True) if by is wanted)
        for wanted in (True, False)
    )
    merged = [*shape[:axis], threads, *shape[axis + 1 :], registers]
    value = _view(build, tt.Reshape.name, value, merged)
    return _reduce(reduce, value, len(shape), reduce, rewriter, reduce.location)


def _shape(value: Value) -> tuple[int, ...]:
    assert isinstance(value.type, TensorType)
    return value.type.shape


def _view(
    build: OpBuilder, name: str, value: Value, shape: list[int], order: tuple[int, ...] = ()
) -> Value:
    """A view of a tile, in the layout that it implies; the tile itself if nothing changes."""
    type_ = value.type
    assert isinstance(type_, TensorType)
    assert type_.encoding is not None
    if tuple(shape) == type_.shape and order == tuple(sorted(order)):
        return value
    encoding = (
        views.transpose(type_.encoding, order) if order else views.reshape(type_.encoding, shape)
    )
    attributes = {"order": order} if order else {}
    return build.op(name, (value,), TensorType(tuple(shape), type_.element, encoding), **attributes)


def _reduce(
    like: Operation,
    value: Value,
    axis: int,
    anchor: Operation,
    rewriter: Rewriter,
    location: Location,
) -> Value:
    """`value` reduced along `axis` by the combination of `like`."""
    new = rewriter.build_before(
        anchor,
        like.name,
        [value],
        [_reduced_type(value.type, axis)],
        {**like.attributes, "axis": axis},
        location=location,
        regions=[clone_region(like.regions[0], {}, rewriter, _RULE)],
    )
    rewriter.record_new(new, _RULE)
    return new.result


def _reduced_type(type_: Type, axis: int) -> Type:
    assert isinstance(type_, TensorType)
    shape = (*type_.shape[:axis], *type_.shape[axis + 1 :])
    if not shape:
        return type_.element
    layout = type_.encoding
    assert isinstance(layout, LinearLayout)
    return TensorType(shape, type_.element, views.slice_layout(layout, axis))
