"""`CarryBasePointers`: a loop that steps through memory carries a row of pointers, not a tile.

    for … iter_args(p = base + rows + columns):        for … iter_args(b = base + columns):
        load p                                    =>       load b + rows
        yield p + step                                     yield b + step

A thread otherwise has two registers for each pointer of the tile that it accesses, and adds to each
in every iteration; the offsets of rows take one register each, and do not change. The carried
pointers keep the offsets along the dimension that one access covers: most threads have one access
along it.
In loops with dots on mma.sync, whose operands are in registers, registers are short. There the base
alone is carried, which a warp shares in uniform registers, and the columns are added in the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.data_flow import source_of
from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import IterArg, carry, iter_args
from tkdebug.compiler.ir.core import Module, Value
from tkdebug.compiler.ir.location import Location
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import (
    PointerType,
    TensorType,
    Type,
    element_of,
    encoding_of,
    shape_of,
    with_element,
)
from tkdebug.compiler.passes.gpu.select_tensor_cores import fastest_dim
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter

_ADD, _SPLAT, _BROADCAST, _HINT = tt.AddPtr.name, tt.Splat.name, tt.Broadcast.name, tt.Hint.name
_PASSED_ON = names_of(tt.AddPtr, tt.Broadcast, tt.Hint)


@dataclass(frozen=True, slots=True)
class CarryBasePointers:
    """Splits carried tiles of pointers into a carried base and offsets that stay."""

    name: ClassVar[str] = "carry-base-pointers"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Split the pointers that each loop carries."""
        for loop in [op for op in module.walk() if scf.For.matches(op)]:
            for each in iter_args(loop):
                carried = _Carried.of(each)
                if carried is not None and rewriter.begins(loop, "carry-base"):
                    carried.split(rewriter)
            rewriter.commit()


@dataclass(frozen=True, slots=True)
class _Carried:
    """A tile of pointers that a loop carries, and whose elements it all moves by one step.

    Attributes:
        carried: the iter arg that is split.
        base: the pointer that all of the initial tile's are computed from.
        shifts: offsets that all elements share, added to it.
        kept: offsets that are added to it in the carried pointers.
        offsets: offsets that are added to those, in each iteration.
        steps: the scalars or constants that an iteration adds.
    """

    carried: IterArg
    base: Value
    shifts: tuple[Value, ...]
    kept: tuple[Value, ...]
    offsets: tuple[Value, ...]
    steps: tuple[Value, ...]

    @staticmethod
    def of(carried: IterArg) -> _Carried | None:
        """The parts of a carried tile of pointers, or None if it cannot be split."""
        body, argument = carried.loop.regions[0].block, carried.argument
        if not isinstance(argument.type, TensorType):
            return None
        if not isinstance(element_of(argument.type), PointerType):
            return None
        initial, steps = _chain(carried.initial), _steps(carried.yielded, argument)
        if initial is None or not steps or carried.result.uses:
            return None
        base, offsets = initial
        shifts = tuple(offset for offset in offsets if _is_uniform(offset))
        rows = [x for x in offsets if x not in shifts and _is_row(x.type, argument.type)]
        kept = tuple(x for x in rows if encoding_of(x.type) == encoding_of(rows[0].type))
        others = tuple(offset for offset in offsets if offset not in (*shifts, *kept))
        if not others:
            return None
        if any(tt.Dot.matches(op) for op in body.operations):
            kept, others = (), tuple(offset for offset in offsets if offset not in shifts)
        return _Carried(carried, base, shifts, kept, others, steps)

    def split(self, rewriter: Rewriter) -> None:
        """Carry the base instead."""
        loop, argument = self.carried.loop, self.carried.argument
        body = loop.regions[0].block
        type_ = argument.type
        assert isinstance(type_, TensorType)
        before = OpBuilder(rewriter, loop, "split-pointers")
        offsets = [_spread(before, offset, type_) for offset in self.offsets]
        initial = self.base
        for shift in self.shifts:
            initial = before.op(_ADD, (initial, _scalar(before, shift)))
        if self.kept:
            row = with_element(self.kept[0].type, element_of(type_))
            initial = before.op(_SPLAT, (initial,), row)
            for offset in self.kept:
                initial = before.op(_ADD, (initial, offset))
        base = carry(loop, initial)
        build = OpBuilder(rewriter, body.operations[0], "split-pointers", _location(self.carried))
        tile = build.op(_BROADCAST if self.kept else _SPLAT, (base,), type_)
        for offset in offsets:
            tile = build.op(_ADD, (tile, offset))
        rewriter.replace_value(argument, tile)
        terminator = body.terminator
        build = OpBuilder(rewriter, terminator, "split-pointers", _location(self.carried))
        following = base
        for step in self.steps:
            amount = _scalar(build, step)
            if self.kept:
                amount = build.op(_SPLAT, (amount,), with_element(base.type, amount.type))
            following = build.op(_ADD, (following, amount))
        operands = list(terminator.operands)
        operands[self.carried.index] = argument
        terminator.operands = (*operands, following)
        rewriter.record_change(terminator, "carry-base")
        rewriter.record_change(loop, "carry-base")


def _is_row(offsets: Type, pointers: TensorType) -> bool:
    """Whether offsets differ only along the dimension that one access of a tile covers."""
    assert pointers.encoding is not None
    inner = fastest_dim(pointers.encoding)
    others = [extent for d, extent in enumerate(shape_of(offsets)) if d != inner]
    return inner is not None and len(others) > 0 and all(extent == 1 for extent in others)


def _spread(build: OpBuilder, offset: Value, type_: TensorType) -> Value:
    """The offsets for every element of the tile of pointers."""
    wanted = with_element(type_, element_of(offset.type))
    return offset if offset.type == wanted else build.op(_BROADCAST, (offset,), wanted)


def _location(carried: IterArg) -> Location:
    owner = carried.yielded.defining_op
    return carried.loop.location if owner is None else owner.location


def _chain(pointers: Value) -> tuple[Value, tuple[Value, ...]] | None:
    """The scalar pointer that a tile was computed from, and the offsets added to it."""
    offsets: list[Value] = []
    while (op := pointers.defining_op) is not None:
        if op.name == _ADD:
            offsets.insert(0, _narrow(tt.AddPtr(op).offset))
        elif op.name == _SPLAT:
            return tt.Splat(op).source, tuple(offsets)
        source = source_of(pointers, _PASSED_ON)
        if source is None:
            return None
        pointers = source
    return None


def _narrow(offsets: Value) -> Value:
    """Offsets before they were repeated along dimensions of a tile."""
    while (op := offsets.defining_op) is not None and op.name == _BROADCAST:
        offsets = tt.Broadcast(op).source
    return offsets


def _steps(yielded: Value, argument: Value) -> tuple[Value, ...]:
    """The offsets whose addition to `argument` gives `yielded`; () if other ops are involved."""
    steps: list[Value] = []
    while yielded is not argument:
        op = yielded.defining_op
        if op is None or op.name not in (_ADD, _HINT):
            return ()
        if op.name == _ADD:
            if not _is_uniform(tt.AddPtr(op).offset):
                return ()
            steps.insert(0, tt.AddPtr(op).offset)
            yielded = tt.AddPtr(op).pointer
        else:
            yielded = tt.Hint(op).source
    return tuple(steps)


def _is_uniform(offsets: Value) -> bool:
    """Whether all elements of a tile are known to be the same."""
    splat = offsets.defining_op
    return constant_value(offsets) is not None or (splat is not None and splat.name == _SPLAT)


def _scalar(build: OpBuilder, step: Value) -> Value:
    """One element of a tile whose elements are the same."""
    number = constant_value(step)
    if number is not None:
        return build.constant(element_of(step.type), number)
    assert step.defining_op is not None
    return tt.Splat(step.defining_op).source
