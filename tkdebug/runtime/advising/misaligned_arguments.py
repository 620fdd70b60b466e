"""Arguments that keep addresses from being multiples of 16 bytes, and could fix it as multiples.

The search goes from the address down, along the axis on which elements follow each other: into all
terms of a sum that are not aligned, and into the factors of a product that is not. What is aligned
whatever the arguments are, as `tile * BLOCK` is, ends it. Where a term is misaligned by something
else, such as a constant or a loaded number, no argument would help, and none is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tkdebug.compiler.analysis.axis_facts import AxisInfo, unit_of
from tkdebug.compiler.analysis.data_flow import source_of
from tkdebug.compiler.analysis.vectorization import MAX_ACCESS_BYTES
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import SameElements
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, incoming
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import PointerType, element_of, shape_of

# What arguments are specialised for.
ALIGNED = 16
# Aligned if all their operands are.
_SUMS = names_of(
    *(tt.AddPtr, arith.AddI, arith.SubI, arith.RemSI, arith.RemUI),
    arith.IntegerExtremum,
)
# Aligned if one of their operands is.
_PRODUCTS = names_of(arith.MulI)
_MOVES = names_of(SameElements, arith.IntegerCast)
Arguments = frozenset[Value]
_NONE: Arguments = frozenset()


class MisalignedArguments:
    """The search in one function.

    Args:
        function: the tt.func.
        infos: how the elements of its values follow each other.
    """

    def __init__(self, function: Operation, infos: Mapping[Value, AxisInfo]) -> None:
        view = tt.Func(function)
        known = zip(view.body.arguments, view.arg_names, view.arg_divisibility or (), strict=False)
        self._names = {argument: name for argument, name, by in known if by % ALIGNED}
        self._infos = infos
        self._entered: set[tuple[Value, int | None]] = set()

    def text(self, pointer: Value, axis: int) -> str:
        """Say what would help a tile of pointers whose runs begin anywhere; "" if nothing.

        Args:
            pointer: the tile.
            axis: along which its elements follow each other.
        """
        self._entered.clear()
        found = self._behind(pointer, axis, MAX_ACCESS_BYTES)
        if not found:
            return ""
        names = [f"`{name}`" for name in sorted(self._names[argument] for argument in found)]
        listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        is_one = len(found) == 1
        verb = "is" if is_one else "are"
        if any(isinstance(argument.type, PointerType) for argument in found):
            return f"{listed} {verb} not known to be aligned to {ALIGNED}"
        if is_one:
            return f"{listed} is not known to be a multiple of {ALIGNED} (pad rows so that it is)"
        return f"{listed} are not known to be multiples of {ALIGNED} (pad rows so that they are)"

    def _behind(self, value: Value, axis: int | None, needed: int) -> Arguments | None:
        """The arguments that make a value no multiple of `needed`; None where something else does.

        Args:
            value: a number, or a tile of them.
            axis: of which the begins of runs count; None where every element does.
            needed: bytes of a pointer, else elements.
        """
        if self._is_aligned(value, axis, needed):
            return _NONE
        if value in self._names:
            return frozenset([value])
        if (value, axis) in self._entered:
            return _NONE  # a loop's, whose other terms are looked at where it was entered
        self._entered.add((value, axis))
        maker = value.defining_op
        if maker is None or maker.name in CONTROL_FLOW:
            sources = incoming(value)
            return self._of_sum((one, axis, needed) for one in sources) if sources else None
        if maker.name in _SUMS:
            return self._of_sum(
                (one, axis, self._needed(one, value, needed)) for one in maker.operands
            )
        select = arith.Select.cast(maker)
        if select is not None:
            chosen = (select.true_value, select.false_value)
            return self._of_sum((one, axis, needed) for one in chosen)
        if maker.name in _PRODUCTS:
            factors = [self._behind(one, axis, needed) for one in maker.operands]
            named = [found for found in factors if found]
            return frozenset().union(*named) if named else None
        source = source_of(value, _MOVES | arith.ShLI.names)
        if source is None:
            return None
        return self._behind(source, _axis_before(maker, source, axis), needed)

    def _of_sum(self, terms: Iterable[tuple[Value, int | None, int]]) -> Arguments | None:
        found = _NONE
        for term in terms:
            behind = self._behind(*term)
            if behind is None:
                return None
            found |= behind
        return found

    def _is_aligned(self, value: Value, axis: int | None, needed: int) -> bool:
        info = self._infos[value]
        known = info.every_divisor(unit_of(value.type)) if axis is None else info.divisibility[axis]
        return known % needed == 0

    def _needed(self, operand: Value, result: Value, needed: int) -> int:
        """Return what an operand of a sum has to be a multiple of: an offset counts elements."""
        is_offset = isinstance(element_of(result.type), PointerType) and not isinstance(
            element_of(operand.type), PointerType
        )
        return max(1, needed // unit_of(result.type)) if is_offset else needed


def _axis_before(op: Operation, source: Value, axis: int | None) -> int | None:
    """The axis of an op's operand that is `axis` of its result; None where that has no such one."""
    shape = shape_of(source.type)
    if axis is None or not shape:
        return None
    if tt.ExpandDims.matches(op):
        added = tt.ExpandDims(op).axis
        return None if axis == added else axis - (axis > added)
    return axis if shape[axis] > 1 else None
