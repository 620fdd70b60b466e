"""Matrix products of one launch: their units, tiles and operands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tkdebug.advice.facts import BroadcastFacts, DotFacts
from tkdebug.advice.machines import TF32_BITS
from tkdebug.compiler.dialects import arith, scf, tt, ttng
from tkdebug.compiler.dialects.interfaces import DotLike, PlainDot
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.control_flow import IterArg, iter_args
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import ScalarType, TensorType, element_of, shape_of
from tkdebug.compiler.rewriting.rewriter import PassRemark
from tkdebug.runtime.advising.executions import Executions

# Between a load and the product of what it loads: casts, views, scales.
_MOST_STEPS = 8
_NARROW_BITS = 16
_SPREADS = names_of(tt.Broadcast, tt.ExpandDims)
_FORMS = _SPREADS | arith.FloatCast.names
_ELEMENTWISE = names_of(tt.Load, tt.AddPtr, tt.Hint, tt.FpToFp, tt.Bitcast)


def dots_of(
    gpu: Module, executions: Executions, remarks: Mapping[int, PassRemark]
) -> Iterator[DotFacts]:
    """Yield the dots of the GPU IR; a dot that passes copied is yielded as often."""
    for op in gpu.walk():
        if not PlainDot.matches(op):
            continue
        dot = DotLike(op)
        rows, columns = shape_of(op.result.type)[-2:]
        depth = shape_of(dot.a.type)[-1]
        flops = 2 * math.prod(shape_of(op.result.type)) * depth * executions.of_gpu(op.id)
        element = element_of(dot.a.type)
        is_single = isinstance(element, ScalarType) and element.name == "f32"
        tile = next(filter(tt.Dot.matches, executions.tile_ops(op.id)), None)
        reasons = (remarks.get(o) for o in (op.id, *(() if tile is None else (tile.id,))))
        unit = dot.unit or ("wgmma" if ttng.WarpGroupDot.matches(op) else "fma")
        on_tensor_cores = unit != "fma"
        precision = dot.input_precision or "tf32"
        yield DotFacts(
            op_id=op.id,
            frame=op.location.frames[-1],
            flops=flops,
            unit=unit,
            bits=TF32_BITS if is_single and on_tensor_cores else element.bits,
            operands=str(element),
            why=next((r.reason for r in reasons if r is not None and r.kind != "pipelined"), ""),
            passes=3 if is_single and on_tensor_cores and precision == "tf32x3" else 1,
            tile=(rows, columns, depth),
            loads=_loads_of(tile),
            widened=_widened(tile),
        )


def _widened(dot: Operation | None) -> str:
    """Return the type from which an operand of a dot was cast to fp32, or "".

    The other operand has to be computed from data that are no wider, such as the weights of
    attention.
    """
    if dot is None:
        return ""
    operands = tt.Dot(dot).a, tt.Dot(dot).b
    types = list(filter(None, map(widened_from, operands)))
    return types[0] if types and all(map(_is_of_narrow_data, operands)) else ""


def _is_of_narrow_data(value: Value) -> bool:
    """Whether all tiles of floats that a value is computed from are loaded as 16 bits or less."""
    left, seen = [value], set[Value]()
    while left:
        value = left.pop()
        maker = value.defining_op
        if value in seen or maker is None:
            continue
        seen.add(value)
        element = element_of(value.type)
        is_float = isinstance(element, ScalarType) and element.name.startswith(("f", "bf"))
        if tt.Load.matches(maker) or tt.DescriptorLoad.matches(maker):
            if is_float and element.bits > _NARROW_BITS and len(shape_of(value.type)) > 1:
                return False
        else:
            left += maker.operands
    return True


def _loads_of(dot: Operation | None) -> tuple[int | None, int | None]:
    """The ids of the loads of Tile IR that a dot's operands are from, None where there is none."""
    if dot is None:
        return None, None
    return _load_of(tt.Dot(dot).a), _load_of(tt.Dot(dot).b)


def _load_of(operand: Value) -> int | None:
    """Return the id of the load of an operand that may be cast, transposed or scaled, or None."""
    value = operand
    for _ in range(_MOST_STEPS):
        maker = value.defining_op
        if maker is None or not maker.operands:
            return None
        if tt.Load.matches(maker) or tt.DescriptorLoad.matches(maker):
            return maker.id
        size = math.prod(shape_of(value.type))
        whole = [v for v in maker.operands if math.prod(shape_of(v.type)) == size]
        if len(whole) != 1:
            return None
        value = whole[0]
    return None


def widened_from(value: Value) -> str:
    """Return the name of the narrower type that a tile of fp32 was cast from, or ""."""
    for _ in range(_MOST_STEPS):
        maker = value.defining_op
        if maker is None or not maker.operands or tt.Load.matches(maker):
            return ""
        if arith.ExtF.matches(maker):
            (source,) = maker.operands
            return str(element_of(source.type))
        tiles = [v for v in maker.operands if isinstance(v.type, TensorType) and not _is_spread(v)]
        if len(tiles) != 1:
            return ""
        value = tiles[0]
    return ""


def _is_spread(value: Value) -> bool:
    """Whether a tile is a number, a row or a column, spread over it, such as a scale."""
    maker = value.defining_op
    return maker is not None and (
        tt.Splat.matches(maker) or tt.Broadcast.matches(maker) or arith.Constant.matches(maker)
    )


def broadcast_products(tile: Module, executions: Executions) -> Iterator[BroadcastFacts]:
    """Yield matrix products written as sums of products of tiles, each repeated along an axis.

    Either all products exist at once and are summed up along an axis, or each iteration of a loop
    adds the products of a column and a row.
    """
    repeats = _Repeats()
    for op in tile.walk():
        if tt.Reduce.matches(op):
            found = _summed(op, repeats)
        else:
            found = _added_up(op, repeats, executions)
        if found is None:
            continue
        product, sizes, loop = found
        frames = [op.location.frames[-1], product.location.frames[-1]]
        whole = math.prod(shape_of(product.result.type))
        yield BroadcastFacts(
            frame=frames[0],
            frames=tuple(dict.fromkeys(frames)),
            flops=2 * whole * executions.of_tile(op),
            tile=sizes,
            bits=min(_bits(value) for value in product.operands),
            loop_ops=frozenset(() if loop is None else (o.id for o in loop.walk())),
        )


# A multiplication, rows, columns and elements of a sum, and the loop that adds them up.
_Found = tuple[Operation, tuple[int, int, int], "Operation | None"]


def _summed(reduce: Operation, repeats: _Repeats) -> _Found | None:
    """Return the product whose elements a sum along an axis adds up, or None."""
    names = [op.name for op in reduce.regions[0].block.operations]
    if len(reduce.operands) != 1 or names != [arith.AddF.name, tt.ReduceReturn.name]:
        return None
    product = _product(tt.Reduce(reduce).sources[0])
    if product is None:
        return None
    axis, shape = tt.Reduce(reduce).axis, shape_of(product.result.type)
    first, second = (repeats.axes(value) for value in product.operands)
    if axis in first | second:
        return None
    rows = math.prod(shape[d] for d in second - first)
    columns = math.prod(shape[d] for d in first - second)
    return product, (rows, columns, shape[axis]), None


def _added_up(add: Operation, repeats: _Repeats, executions: Executions) -> _Found | None:
    """Return the product of a column and a row that each iteration of a loop adds up, or None.

    A loop that also reads the sum is a recurrence, and no product.
    """
    loop = add.block.parent_op if arith.AddF.matches(add) and add.block is not None else None
    if loop is None or not scf.For.matches(loop) or len(shape_of(add.result.type)) != 2:
        return None
    carried = next((arg for arg in iter_args(loop) if arg.yielded is add.result), None)
    if carried is None or not _is_only_for(carried, add):
        return None
    loop = _outermost(carried)
    products = [p for value in add.operands if (p := _product(value)) is not None]
    for product in products:
        first, second = (repeats.axes(value) for value in product.operands)
        if {frozenset(first), frozenset(second)} == {frozenset({0}), frozenset({1})}:
            rows, columns = shape_of(product.result.type)
            rounds = executions.of_tile(add) / max(1, executions.of_tile(loop))
            return product, (rows, columns, round(rounds)), loop
    return None


def _is_only_for(carried: IterArg, user: Operation) -> bool:
    """Whether only one op reads a carried value in its loop, and none there reads the new value."""
    made = carried.yielded.uses
    return list(carried.argument.uses) == [user] and all(scf.Yield.matches(use) for use in made)


def _outermost(carried: IterArg) -> Operation:
    """Return the outermost loop in which nothing but the loop of a carried sum adds to it."""
    while True:
        around = carried.loop.block.parent_op if carried.loop.block is not None else None
        if around is None or not scf.For.matches(around):
            return carried.loop
        outer = next((arg for arg in iter_args(around) if arg.yielded is carried.result), None)
        if outer is None or not _is_only_for(outer, carried.loop):
            return carried.loop
        carried = outer


def _product(value: Value) -> Operation | None:
    """Return the multiplication that made a tile, which may be cast or masked since, or None."""
    for _ in range(_MOST_STEPS):
        maker = value.defining_op
        if maker is None:
            return None
        if arith.MulF.matches(maker):
            return maker
        if arith.Select.matches(maker):
            value = arith.Select(maker).true_value
        elif arith.FloatCast.matches(maker):
            (value,) = maker.operands
        else:
            return None
    return None


def _bits(value: Value) -> int:
    """Width of an element, before casts."""
    while (maker := value.defining_op) is not None and maker.name in _FORMS:
        (value,) = maker.operands
    return element_of(value.type).bits


class _Repeats:
    """The axes along which all elements of a tile are the same."""

    def __init__(self) -> None:
        self._known: dict[Value, frozenset[int]] = {}

    def axes(self, value: Value) -> frozenset[int]:
        """Return the axes along which a tile repeats itself, without axes of one element."""
        if value not in self._known:
            self._known[value] = frozenset()
            self._known[value] = self._axes(value)
        return self._known[value]

    def _axes(self, value: Value) -> frozenset[int]:
        maker, shape = value.defining_op, shape_of(value.type)
        if maker is None or not shape:
            return frozenset()
        longer = frozenset(axis for axis, extent in enumerate(shape) if extent > 1)
        if tt.Splat.matches(maker) or arith.Constant.matches(maker):
            return longer
        if tt.Broadcast.matches(maker):
            source = tt.Broadcast(maker).source
            spread = {axis for axis in longer if shape_of(source.type)[axis] == 1}
            return self.axes(source) | spread
        if tt.ExpandDims.matches(maker):
            added = tt.ExpandDims(maker).axis
            (source,) = maker.operands
            return frozenset(a + (a >= added) for a in self.axes(source))
        elementwise = maker.name.startswith(("arith.", "math.")) or maker.name in _ELEMENTWISE
        if not elementwise or maker.regions:
            return frozenset()
        return longer.intersection(*map(self.axes, maker.operands))
