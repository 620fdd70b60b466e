"""Lowering of tt.scan: in registers, by shuffles, through shared memory, for any linear layout.

Combinations keep the order of the axis, so that the combine function need not be commutative. The
bits of the axis coordinate are taken in ascending order, so that blocks of elements that follow
each other merge into larger ones. Each bit belongs to the dimension that moves along it: registers,
lanes (shuffles), or warps (shared memory); neighbouring bits of one kind are a phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import element_of
from tkdebug.compiler.layouts import BLOCK, LANE, REGISTER, WARP, LayoutError, LinearLayout, f2
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.reductions.steps import (
    PART,
    THREAD_DIMS,
    Combine,
    Element,
    Parity,
    axis_vectors,
    elements_of,
    split_place,
    thread_columns,
)
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.exchange import (
    exchange_tiles,
    trip_bytes,
)
from tkdebug.compiler.targets.nvptx.lowering.types import (
    Lower,
    LoweringError,
    Registers,
    memory_bits,
)

_REST = "rest"
_CACHED_PLANS = 256


@dataclass(frozen=True, slots=True)
class Move:
    """One bit of the axis.

    Args:
        bit: the number of the bit.
        register: XORed to the register to move along it.
        lane: XORed to the lane.
        warp: XORed to the warp.
        upper: whether a thread's element lies in the upper half.
    """

    bit: int
    register: int
    lane: int
    warp: int
    upper: Parity

    @property
    def kind(self) -> str:
        """The slowest dimension that the move changes: register, lane or warp."""
        return WARP if self.warp else LANE if self.lane else REGISTER


@dataclass(frozen=True, slots=True)
class Phase:
    """Neighbouring bits of one kind.

    Args:
        kind: register, lane or warp.
        moves: their moves, lowest bit first.
        partial: for warps: layout of the blocks' totals, as they are written.
        gathered: for warps: layout in which every thread reads the totals of all warps.
    """

    kind: str
    moves: tuple[Move, ...]
    partial: LinearLayout | None = None
    gathered: LinearLayout | None = None


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Phases of a scan.

    Args:
        phases: the phases in order.
        first_bit: the beginning of the axis in packed coordinates.
        places: packed coordinates that each register contributes.
    """

    phases: tuple[Phase, ...]
    first_bit: int
    places: tuple[int, ...]

    def block(self, register: int, bits: int) -> int:
        """The block of `2 ** bits` elements that holds a register's element, as a key."""
        return self.cleared(self.places[register], bits)

    def cleared(self, place: int, bits: int) -> int:
        """`place` without the lowest `bits` bits of the axis."""
        return place & ~(((1 << bits) - 1) << self.first_bit)


@lru_cache(_CACHED_PLANS)
def plan_scan(layout: LinearLayout, axis: int) -> ScanPlan:
    """The phases that scan `axis` of a tensor in `layout`.

    Raises:
        LayoutError: blocks of a cluster hold parts of the axis, or registers follow each other in
            an order that is not the same in all threads.
    """
    first, bits = axis_vectors(layout, axis)
    if any(v >> first & ((1 << bits) - 1) for v in layout.packed_bases(BLOCK)):
        raise LayoutError("scan along an axis that is split over the blocks of a cluster")
    columns = thread_columns(layout)
    span = f2.Span(columns)
    moves = [_move(layout, columns, span, first, bit) for bit in range(bits)]
    phases = []
    for kind, group in groupby(moves, key=lambda move: move.kind):
        phase = Phase(kind, tuple(group))
        _expect_ordered(phase)
        if kind == WARP:
            low, count = phase.moves[0].bit, len(phase.moves)
            partial, gathered = _exchanged(layout, axis, low, count)
            phase = Phase(kind, phase.moves, partial, gathered)
        phases.append(phase)
    return ScanPlan(tuple(phases), first, f2.spanned(layout.packed_bases(REGISTER)))


def _move(
    layout: LinearLayout, columns: tuple[int, ...], span: f2.Span, first: int, bit: int
) -> Move:
    found = span.solve(1 << (first + bit))
    if found is None:
        raise LayoutError("scan: the layout does not reach every element")
    upper = sum((column >> (first + bit) & 1) << i for i, column in enumerate(columns))
    return Move(bit, *split_place(layout, found), Parity(*split_place(layout, upper)))


def _expect_ordered(phase: Phase) -> None:
    for move in phase.moves:
        mixed = move.upper.lane or move.upper.warp
        if phase.kind == WARP:
            mixed = move.upper.register
        if mixed and phase.kind != LANE:
            raise LayoutError("scan: the order of registers along the axis differs between threads")


def _exchanged(
    layout: LinearLayout, axis: int, low: int, count: int
) -> tuple[LinearLayout, LinearLayout]:
    """Layouts in which warps write the blocks' totals, and in which all threads read them."""
    first, bits = axis_vectors(layout, axis)
    rest = bits - low - count
    others = tuple(entry for i, entry in enumerate(layout.outs) if i != axis)
    outs = ((PART, 1 << count), (_REST, 1 << rest), *others)

    def coordinates(column: int) -> tuple[int, int]:
        along = column >> first & ((1 << bits) - 1)
        other = column & ((1 << first) - 1) | column >> (first + bits) << first
        part = along >> low & ((1 << count) - 1)
        return part, (along >> (low + count) | other << rest) << count

    partial, gathered = [], []
    for name in THREAD_DIMS:
        places = [coordinates(v) for v in layout.packed_bases(name)]
        partial.append((name, tuple(part | place for part, place in places)))
        all_parts = tuple(1 << i for i in range(count)) if name == REGISTER else ()
        gathered.append((name, (*all_parts, *(place for _, place in places))))
    return LinearLayout(tuple(partial), outs), LinearLayout(tuple(gathered), outs)


def lower_scan(ctx: Lowering, op: Operation, *operands: Registers) -> Sequence[Registers]:
    """Lower `tt.scan`: combine all elements up to each one (from each one on, when reverse)."""
    scan = _Scan(ctx, op, _plan(op), elements_of(operands))
    scan.run()
    return [list(values) for values in zip(*scan.prefixes, strict=True)]


def _plan(op: Operation) -> ScanPlan:
    axis = tt.Scan(op).axis
    try:
        return plan_scan(Lowering.layout(tt.Scan(op).sources[0]), axis)
    except LayoutError as error:
        raise LoweringError.at(op, f"{op.name}: {error}") from error


class _Scan:
    """The state between phases, when blocks of 2 ** bits neighbours are combined.

    Args:
        ctx: the kernel.
        op: the tt.scan.
        plan: the plan of the scan.
        elements: the elements, by register.

    Attributes:
        prefixes: for each register the combination of its block up to its element.
        totals: for each block (its key) the combination of all its elements.
    """

    def __init__(
        self, ctx: Lowering, op: Operation, plan: ScanPlan, elements: list[Element]
    ) -> None:
        self.ctx = ctx
        self.op = op
        self.plan = plan
        self.combine = Combine(ctx, op)
        self.is_reverse = tt.Scan(op).reverse
        # Registers that hold the same element share it.
        first: dict[int, Element] = {}
        for place, element in zip(plan.places, elements, strict=True):
            first.setdefault(place, element)
        self.prefixes = [first[place] for place in plan.places]
        self.totals = first

    def run(self) -> None:
        """Run all phases in order."""
        scratch_bytes = 0
        for index, phase in enumerate(self.plan.phases):
            if phase.kind == REGISTER:
                self._in_thread(phase)
            elif phase.kind == LANE:
                self._over_lanes(phase, index + 1 == len(self.plan.phases))
            else:
                self._over_warps(phase, scratch_bytes)
                scratch_bytes += _phase_bytes(self.op, phase)

    def _blocks(self, bits: int) -> dict[int, list[int]]:
        """The registers in each block of 2 ** `bits` elements."""
        blocks: dict[int, list[int]] = {}
        for register in range(len(self.prefixes)):
            blocks.setdefault(self.plan.block(register, bits), []).append(register)
        return blocks

    def _in_thread(self, phase: Phase) -> None:
        low, count = phase.moves[0].bit, len(phase.moves)
        inner = self._blocks(low)
        totals: dict[int, Element] = {}
        for key in self._blocks(low + count):
            running: Element | None = None
            for step in range(1 << count):
                position = (1 << count) - 1 - step if self.is_reverse else step
                block = key | position << (low + self.plan.first_bit)
                running = self._append(running, self.totals[block], inner[block])
            assert running is not None
            totals[key] = running
        self.totals = totals

    def _append(self, before: Element | None, total: Element, registers: Sequence[int]) -> Element:
        """Combine a block's registers after `before`; return their combination."""
        if before is None:
            return total
        joined = self.combine(before, total)
        made = {id(total): joined}
        for register in registers:
            own = self.prefixes[register]
            if id(own) not in made:
                made[id(own)] = self.combine(before, own)
            self.prefixes[register] = made[id(own)]
        return joined

    def _over_lanes(self, phase: Phase, is_last: bool) -> None:
        low = phase.moves[0].bit
        blocks = self._blocks(low)
        totals = dict(self.totals)
        before: dict[int, Element] = {}
        # Whether anything comes before this thread's block; the same for all blocks of a move.
        seen: dict[int, LLVMValue] = {}
        for move in phase.moves:
            needs_totals = not is_last or move is not phase.moves[-1]
            self._lane_step(move, low, totals, before, seen, needs_totals)
        self._prepend(blocks, before, seen)
        bits = phase.moves[-1].bit + 1
        self.totals = {self.plan.cleared(key, bits): total for key, total in totals.items()}

    def _lane_step(
        self,
        move: Move,
        low: int,
        totals: dict[int, Element],
        before: dict[int, Element],
        seen: dict[int, LLVMValue],
        needs_totals: bool,
    ) -> None:
        emit, combine = self.ctx.emit, self.combine
        shuffled = {key: combine.shuffled(total, move.lane) for key, total in totals.items()}
        joined: dict[int, Element] = {}
        for key, own in totals.items():
            # A move may change the register too, and with it the block.
            other = shuffled[self.plan.cleared(key ^ self.plan.places[move.register], low)]
            is_later = self._is_later(move, key)
            if needs_totals:
                joined[key] = combine.ordered(own, other, is_later)
            if key not in before:
                before[key], seen[key] = other, is_later
                continue
            had, old = seen[key], before[key]
            both = _chosen(self.ctx, had, combine(other, old), other)
            before[key] = _chosen(self.ctx, is_later, both, old)
            seen[key] = emit.binary("or", had, is_later)
        if needs_totals:
            totals.update(joined)

    def _is_later(self, move: Move, key: int) -> LLVMValue:
        """i1: whether this thread's block comes second in the order of the scan."""
        is_upper = self.combine.parity(move.upper, 0)
        flips = (key >> (self.plan.first_bit + move.bit) & 1) ^ self.is_reverse
        return self.ctx.emit.xor(is_upper, integer("i1", 1)) if flips else is_upper

    def _prepend(
        self, blocks: dict[int, list[int]], before: dict[int, Element], seen: dict[int, LLVMValue]
    ) -> None:
        """Combine the elements before each block with the prefixes in it, if there are any."""
        for key, registers in blocks.items():
            made: dict[int, Element] = {}
            for register in registers:
                own = self.prefixes[register]
                if id(own) not in made:
                    both = self.combine(before[key], own)
                    made[id(own)] = _chosen(self.ctx, seen[key], both, own)
                self.prefixes[register] = made[id(own)]

    def _over_warps(self, phase: Phase, scratch_offset: int) -> None:
        assert phase.partial is not None
        assert phase.gathered is not None
        low, count = phase.moves[0].bit, len(phase.moves)
        parts = 1 << count
        by_register = [
            self.totals[self.plan.block(register, low)] for register in range(len(self.prefixes))
        ]
        base = self.ctx.emit.gep(self.ctx.scratch(self.op), "i8", scratch_offset)
        tiles = [list(values) for values in zip(*by_register, strict=True)]
        sizes = _element_bytes(self.op)
        read = exchange_tiles(self.ctx, base, phase.partial, phase.gathered, tiles, sizes)
        gathered = elements_of(read)
        position = self._position(phase)
        before: dict[int, Element] = {}
        totals: dict[int, Element] = {}
        blocks = self._blocks(low)
        for key, registers in blocks.items():
            first = registers[0] * parts
            in_order = gathered[first : first + parts]
            if self.is_reverse:
                in_order.reverse()
            before[key], totals[key] = self._before(in_order, position)
        is_first = self.ctx.emit.icmp("eq", position, 0)
        seen = self.ctx.emit.xor(is_first, integer("i1", 1))
        self._prepend(blocks, before, dict.fromkeys(blocks, seen))
        self.totals = {self.plan.cleared(k, low + count): total for k, total in totals.items()}

    def _position(self, phase: Phase) -> LLVMValue:
        """i32: number of this thread's warp along the axis, in the order of the scan."""
        emit = self.ctx.emit
        total = integer("i32", 0)
        for index, move in enumerate(phase.moves):
            is_upper = emit.cast("zext", self.combine.parity(move.upper, 0), "i32")
            total = emit.binary("or", total, emit.shl(is_upper, index))
        return emit.xor(total, (1 << len(phase.moves)) - 1) if self.is_reverse else total

    def _before(self, in_order: Sequence[Element], position: LLVMValue) -> tuple[Element, Element]:
        """The combination of the parts before `position`, and the combination of all parts."""
        running = before = in_order[0]
        for index, part in enumerate(in_order[1:], start=1):
            if index > 1:
                is_after = self.ctx.emit.icmp("uge", position, index)
                before = _chosen(self.ctx, is_after, running, before)
            running = self.combine(running, part)
        return before, running


def _chosen(ctx: Lowering, condition: LLVMValue, a: Element, b: Element) -> Element:
    return tuple(ctx.emit.select(condition, x, y) for x, y in zip(a, b, strict=True))


def _element_bytes(op: Operation) -> list[int]:
    return [memory_bits(element_of(value.type)) // 8 for value in op.operands]


def _phase_bytes(op: Operation, phase: Phase) -> int:
    if phase.partial is None or phase.gathered is None:
        return 0
    return sum(trip_bytes(phase.partial, phase.gathered, size) for size in _element_bytes(op))


def scan_scratch_bytes(op: Operation) -> int:
    """Bytes of shared memory that a tt.scan needs."""
    return sum(_phase_bytes(op, phase) for phase in _plan(op).phases)


LOWERINGS: dict[str, Lower] = {tt.Scan.name: lower_scan}
