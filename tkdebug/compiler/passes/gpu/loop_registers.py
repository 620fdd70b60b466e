"""Passes by which pointers, offsets and masks take fewer registers in loops.

`CarryBasePointers`: a loop that steps through memory carries a row of pointers, not a tile.

    for … iter_args(p = base + rows + columns):        for … iter_args(b = base + columns):
        load p                                    =>       load b + rows
        yield p + step                                     yield b + step

A thread otherwise has two registers for each pointer of the tile that it accesses, and adds to each
in every iteration; the offsets of rows take one register each, and do not change. The carried
pointers keep the offsets along the dimension that one access covers: most threads have one access
along it.
In loops with dots on mma.sync, whose operands are in registers, registers are short. There the base
alone is carried, which a warp shares in uniform registers, and the columns are added in the loop.

Kernels often compute the offsets and masks of their epilogue before the loop, or load their first
tile and store their last one at the same offsets. These take registers throughout the loop, and
neither LLVM nor the assembler moves or recomputes them: they spill them.

- `SinkPastLoops` moves ops that only code after a loop needs there, unless their operands would
  take more registers across the loop than they do.
- `RematerialisePastLoops` computes offsets that both sides use again after the loop: a few integer
  instructions, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.data_flow import source_of
from tkdebug.compiler.analysis.layout_inference import register_words
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.table import PURE
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import IterArg, carry, iter_args
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
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
from tkdebug.compiler.layouts import REGISTER
from tkdebug.compiler.passes.gpu.select_tensor_cores import fastest_dim
from tkdebug.compiler.rewriting.copies import clone_before
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
    """A tile of pointers that a loop carries, all of which an iteration moves by the same step.

    Attributes:
        carried: the iter arg that is split.
        base: the scalar pointer that the initial tile is computed from.
        shifts: offsets that are the same for all elements; they are added to the carried base.
        kept: offsets along one dimension, which stay in the carried pointers.
        offsets: the other offsets, which each iteration adds to the carried pointers.
        steps: the offsets, the same for all elements, that an iteration adds.
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
        """Let the loop carry the base, with the `kept` offsets, in place of the tile."""
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
    """Whether offsets have extent 1 along all dimensions but the fastest one of `pointers`."""
    assert pointers.encoding is not None
    inner = fastest_dim(pointers.encoding)
    others = [extent for d, extent in enumerate(shape_of(offsets)) if d != inner]
    return inner is not None and len(others) > 0 and all(extent == 1 for extent in others)


def _spread(build: OpBuilder, offset: Value, type_: TensorType) -> Value:
    """The offsets broadcast to the shape of the tile of pointers."""
    wanted = with_element(type_, element_of(offset.type))
    return offset if offset.type == wanted else build.op(_BROADCAST, (offset,), wanted)


def _location(carried: IterArg) -> Location:
    owner = carried.yielded.defining_op
    return carried.loop.location if owner is None else owner.location


def _chain(pointers: Value) -> tuple[Value, tuple[Value, ...]] | None:
    """The scalar pointer that a tile is computed from and the offsets added to it, or None."""
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
    """The offsets before any broadcast."""
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
    """The scalar of a tile for which `_is_uniform` holds."""
    number = constant_value(step)
    if number is not None:
        return build.constant(element_of(step.type), number)
    assert step.defining_op is not None
    return tt.Splat(step.defining_op).source


@dataclass(frozen=True, slots=True)
class SinkPastLoops:
    """Moves pure ops on tiles from before a loop to after it."""

    name: ClassVar[str] = "sink-past-loops"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every loop; ops that pass one may pass the next."""
        for loop in [op for op in module.walk() if scf.Loop.matches(op)]:
            assert loop.block is not None
            ops = loop.block.operations
            place = ops.index(loop)
            sunk = _sinkable(ops[:place], set(ops[place + 1 :]), loop.block)
            if not sunk or _words(_leaves(sunk, set(ops[place:]))) > _words(_results(sunk)):
                continue
            if not rewriter.begins(loop, "sink"):
                continue
            for op in sunk:
                rewriter.move_before(op, ops[place + 1], "sink")
            rewriter.commit()


def _sinkable(before: Sequence[Operation], after: set[Operation], block: Block) -> list[Operation]:
    """The pure tile ops of `before` that only ops of `after` and each other use, in order."""
    sunk: dict[Operation, None] = {}
    for op in reversed(before):
        if op.name not in PURE or not any(isinstance(x.type, TensorType) for x in op.results):
            continue
        users = [_in_block(user, block) for result in op.results for user in result.uses]
        if users and all(user in after or user in sunk for user in users):
            sunk[op] = None
    return list(reversed(sunk))


def _in_block(op: Operation, block: Block) -> Operation:
    """The op of `block` that is or contains `op`."""
    while op.block is not block:
        assert op.block is not None
        assert op.block.parent_op is not None
        op = op.block.parent_op
    return op


def _leaves(sunk: Sequence[Operation], later: set[Operation]) -> Iterator[Value]:
    """The operands that `sunk` would newly keep in registers across the loop."""
    inside = set(sunk)
    for value in dict.fromkeys(value for op in sunk for value in op.operands):
        if value.defining_op not in inside and not any(user in later for user in value.uses):
            yield value


def _results(sunk: Sequence[Operation]) -> Iterator[Value]:
    """Return the results of `sunk` that remaining ops use."""
    inside = set(sunk)
    for op in sunk:
        yield from (x for x in op.results if any(user not in inside for user in x.uses))


def _words(values: Iterator[Value]) -> int:
    return sum(register_words(value.type) for value in values)


_RULE = "rematerialise"
_CHEAP = names_of(tt.MakeRange, tt.Splat, tt.ExpandDims, tt.Broadcast, arith.WrappingBinary)
# A chain that frees fewer registers is not worth its instructions.
_FEWEST_REGISTERS = 4


@dataclass(frozen=True, slots=True)
class RematerialisePastLoops:
    """Clones cheap integer tiles after the last loop of a block that keeps them alive."""

    name: ClassVar[str] = "rematerialise-past-loops"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at the function's own block: inner loops end where an outer one goes on."""
        ops = module.function.regions[0].block.operations
        loops = [index for index, op in enumerate(ops) if scf.Loop.matches(op)]
        if not loops:
            return
        first, last = loops[0], loops[-1]
        before = frozenset(ops[:first])
        in_loops = _used_between(ops[first : last + 1])
        known: dict[Value, Value] = {}
        for op in ops[last + 1 :]:
            for operand in dict.fromkeys(op.operands):
                chain = _cheap_chain(operand, before, in_loops | known.keys())
                if _is_worth_it(operand, chain) and rewriter.begins(op, _RULE):
                    _clone(op, chain, known, rewriter)
            if any(operand in known for operand in op.operands):
                op.operands = tuple(known.get(operand, operand) for operand in op.operands)
                rewriter.record_change(op, _RULE)


def _used_between(ops: Sequence[Operation]) -> frozenset[Value]:
    return frozenset(value for op in ops for inner in op.walk() for value in inner.operands)


def _cheap_chain(
    value: Value, before: frozenset[Operation], in_loops: frozenset[Value]
) -> list[Operation]:
    """The tile ops before the loops that compute `value`, in order; empty if one is not cheap."""
    found: dict[Operation, None] = {}

    def visit(value: Value) -> bool:
        op = value.defining_op
        if value in in_loops or not isinstance(value.type, TensorType) or op in found:
            return True
        if op not in before or op.name not in _CHEAP or not all(map(visit, op.operands)):
            return False
        found[op] = None
        return True

    return list(found) if visit(value) else []


def _is_worth_it(value: Value, chain: Sequence[Operation]) -> bool:
    """Whether computing `value` again frees several registers in the loops.

    Without a product the elements of a thread differ by constants, and one register suffices.
    """
    names = {op.name for op in chain}
    if tt.MakeRange.name not in names or arith.MulI.name not in names:
        return False
    inside = set(chain)
    leaves = {x for op in chain for x in op.operands if x.defining_op not in inside}
    return _registers(value) >= max(_FEWEST_REGISTERS, len(leaves) + 1)


def _registers(value: Value) -> int:
    """The registers of a thread that hold different elements of a tile of integers."""
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.encoding is None:
        return 0
    bases = type_.encoding.packed_bases(REGISTER)
    return (element_of(type_).bits + 31) // 32 << sum(1 for base in bases if base)


def _clone(
    anchor: Operation, chain: Sequence[Operation], known: dict[Value, Value], rewriter: Rewriter
) -> None:
    for op in clone_before(anchor, chain, known, rewriter, _RULE):
        if tt.MakeRange.matches(op):
            tt.MakeRange(op).rereads_thread = True
