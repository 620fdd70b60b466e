"""An element of a result, followed back through the program that stored it, in two runs.

Block sizes change tiles, programs and iterations of loops, so values are aligned by what they stand
for: an op of the source, and those of its elements that the stored element was computed from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.causes.rerun import Store
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import stored
from tkdebug.compiler.ir import Module, Operation, PointerType, Region, ScalarType, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.debugger.why.slices import operand_masks
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.tiles.values import AddressTile, PointerTile
from tkdebug.variations.outcomes import Tolerance, is_float, number_text

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.tiles.values import TileValue

_MOST_BYTES = 512 << 20
Path = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Step:
    """An op that ran once, or an edge of a region.

    Attributes:
        kind: "op", "enter" or "leave".
        loops: the op ids of the loops and branches around it, with the iteration of each from 0 on.
        tiles: its operands if they are numbers, and the offsets of pointers; else None.
        results: its results in the same form.
    """

    kind: str
    op: Operation
    loops: Path
    region: Region | None = None
    tiles: Sequence[Tensor | None] = ()
    results: Sequence[Tensor | None] = ()


class ProgramTrace(Observer):
    """Notes each op of one program.

    Args:
        program: its linear number.

    Attributes:
        steps: in the order in which they ran.
        is_whole: whether all tiles fitted into the memory that a trace may take.
    """

    needs_intermediates = True
    is_passive = True

    def __init__(self, program: int) -> None:
        self.steps: list[_Step] = []
        self.is_whole = True
        self._program = program
        self._bytes = 0
        self._loops: list[tuple[int, int]] = []
        self._rounds: dict[Operation, int] = {}

    def moments(self, op: Operation) -> Moments:
        """Ask for all moments but those of functions."""
        if tt.Func.matches(op):
            return Moments.NEVER
        regions = op.name in CONTROL_FLOW and op.regions
        return Moments.BEFORE | Moments.AFTER | (Moments.REGIONS if regions else Moments.NEVER)

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Count a loop's iterations from 0 again, or note an op without results, as a store is."""
        if not run.takes_part(self._program):
            return
        if op.regions and op.name in CONTROL_FLOW:
            self._rounds[op] = 0
        elif not op.results:
            self._add(run, op, operands, ())

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """Note what ran."""
        if run.takes_part(self._program) and op.results:
            self._add(run, op, operands, results)
        return results

    def enters(self, run: Evaluator, region: Region, arguments: Sequence[TileValue]) -> None:
        """Begin an iteration, or a branch."""
        op = region.parent
        if op is None or not run.takes_part(self._program):
            return
        if region is op.regions[0]:
            self._rounds[op] = self._rounds.get(op, 0) + 1
        self._loops.append((op.id, self._rounds.get(op, 1) - 1))
        self.steps.append(_Step("enter", op, tuple(self._loops), region))

    def leaves(self, run: Evaluator, region: Region, results: Sequence[TileValue]) -> None:
        """End an iteration, or a branch."""
        op = region.parent
        if op is None or not self._loops or self._loops[-1][0] != op.id:
            return
        self.steps.append(_Step("leave", op, tuple(self._loops), region))
        self._loops.pop()

    def _add(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> None:
        given = [
            self._tile(run, value, tile) for value, tile in zip(op.operands, operands, strict=False)
        ]
        made = [
            self._tile(run, value, tile) for value, tile in zip(op.results, results, strict=False)
        ]
        self.steps.append(_Step("op", op, tuple(self._loops), None, given, made))

    def _tile(self, run: Evaluator, value: Value, tile: TileValue) -> Tensor | None:
        type_ = value.type
        if isinstance(tile, PointerTile | AddressTile):
            shape = ir.shape_of(type_)
            tile, type_ = tile.places, ir.tile(shape, ir.I64) if shape else ir.I64
        elif not isinstance(ir.element_of(type_), ScalarType) or isinstance(type_, ir.MemDescType):
            return None
        dense = run.full(tile, type_)
        place = self._program - run.first
        row = dense[place if dense.shape[0] > 1 else 0]
        self._bytes += row.numel() * row.element_size()
        if self._bytes > _MOST_BYTES:
            self.is_whole = False
            return None
        return row.to("cpu", copy=True)  # the masks are made there


@dataclass(frozen=True, slots=True)
class Node:
    """The part of an op's result that an element was computed from.

    Attributes:
        key: the key of the op in the source, with the number of its result.
        loops: as in `_Step`.
        numbers: the elements, in order.
        offsets: for a load, the offsets of the elements of memory that were read, in order.
        is_index: whether it is made of constants, program ids and ranges alone.
        loop: the key of the innermost loop around it.
        mask: bool, of the result's shape: which elements these are; None where that is not kept.
        visit: how often the op had run before.
    """

    op: Operation
    value: Value
    key: tuple[object, ...]
    loops: Path
    numbers: Tensor
    offsets: Tensor | None = None
    is_index: bool = False
    loop: tuple[object, ...] | None = None
    mask: Tensor | None = None
    visit: int = 0


@dataclass(slots=True)
class Slice:
    """All that an element was computed from, in the order in which it ran.

    Attributes:
        rounds: the largest trip count of each loop of the source, by key.
    """

    nodes: list[Node] = field(default_factory=list)
    rounds: dict[tuple[object, ...], int] = field(default_factory=dict)


def keys_of(module: Module, by_names: bool = False) -> dict[int, tuple[object, ...]]:
    """Return a key for each op, by id, that is the same in every compilation of the same source.

    Args:
        module: before any pass.
        by_names: whether the sources differ: ops are known by the variables that they are bound to.
    """
    seen: dict[tuple[object, ...], int] = {}
    found: dict[int, tuple[object, ...]] = {}
    for op in module.walk():
        place = op.location.primary
        base: tuple[object, ...] = (op.location.frames, place.column, op.name)
        if by_names:
            name = next((value.name for value in op.results if value.name), None)
            base = (place.function, name, op.name if op.regions else "", name or op.id)
        seen[base] = seen.get(base, 0) + 1
        found[op.id] = (*base, seen[base])
    return found


# Their results say where data is, not what it is.
_INDEX = names_of(tt.GetProgramId, tt.GetNumPrograms, tt.MakeRange, arith.Constant)


def _index_values(module: Module) -> set[Value]:
    """The values that are made of constants, program ids and ranges alone."""
    found: set[Value] = set()
    for op in module.walk():
        if op.name in _INDEX or (
            op.operands
            and op.name not in CONTROL_FLOW
            and not tt.Load.matches(op)
            and all(value in found for value in op.operands)
        ):
            found.update(op.results)
    return found


def slice_of(
    trace: ProgramTrace, module: Module, store: Store, place: int, by_names: bool = False
) -> Slice | None:
    """Follow a stored element back.

    Args:
        trace: the trace of the program that stored it.
        module: the IR that ran.
        store: the store.
        place: the element's offset in its tensor's allocation, in elements, as pointers count.
        by_names: as for `keys_of`.

    Returns:
        All that it was computed from; None if the store is not in the trace.
    """
    walker = _Walker(trace, module, by_names)
    return walker.slice(store.op, place)


class _Walker:
    """Goes through a trace backwards, with a mask of the elements of each value in the slice."""

    def __init__(self, trace: ProgramTrace, module: Module, by_names: bool) -> None:
        self._steps = trace.steps
        self._keys = keys_of(module, by_names)
        self._index = _index_values(module)
        self._masks: dict[Value, Tensor] = {}
        self._visits: dict[int, int] = {}
        counts: Counter[int] = Counter()
        for step in trace.steps:
            if step.kind == "op":
                self._visits[id(step)] = counts[step.op.id]
                counts[step.op.id] += 1
        # By op with regions: the masks of the values that its regions yield.
        self._handed: dict[Operation, list[Tensor | None]] = {}

    def slice(self, op: Operation, place: int) -> Slice | None:
        """Return the slice of an element; None if the store did not run for it."""
        start = None
        for number in range(len(self._steps) - 1, -1, -1):
            step = self._steps[number]
            if step.kind == "op" and step.op is op and step.tiles and step.tiles[0] is not None:
                hit = step.tiles[0].reshape(-1) == place
                if bool(hit.any()):
                    start = number
                    break
        if start is None:
            return None
        step = self._steps[start]
        data = stored(op)
        at = op.operands.index(data)
        shape = ir.shape_of(data.type)
        mask = hit & (torch.cumsum(hit, 0) == 1) if not shape else hit
        self._mark(data, mask.reshape(shape) if shape else mask.any())
        made = Slice()
        tile = step.tiles[at]
        if tile is not None:
            chosen = self._masks[data]
            maker = data.defining_op or op
            numbers = tile.expand(chosen.shape)[chosen].reshape(-1)
            # Its key is the same in each run: the stored element is what differs.
            made.nodes.append(Node(maker, data, ("stored",), (), numbers))
        for step in reversed(self._steps[:start]):
            self._back(step, made)
        made.nodes.reverse()
        for step in self._steps[:start]:
            if step.kind == "enter" and step.region is step.op.regions[0]:
                key = self._keys[step.op.id]
                made.rounds[key] = max(made.rounds.get(key, 0), step.loops[-1][1] + 1)
        return made

    def _mark(self, value: Value, mask: Tensor | None) -> None:
        if mask is None or not bool(mask.any()):
            return
        known = self._masks.get(value)
        self._masks[value] = mask if known is None else known | mask

    def _back(self, step: _Step, made: Slice) -> None:
        op = step.op
        if step.kind == "leave":
            assert step.region is not None
            handed = self._handed.pop(op, None)
            if handed is not None:
                for value, mask in zip(_handed_on(step.region), handed, strict=False):
                    self._mark(value, mask)
        elif step.kind == "enter":
            self._entered(step)
        elif op.name in CONTROL_FLOW:
            masks = [self._masks.pop(value, None) for value in op.results]
            self._note(step, masks, made)
            if any(mask is not None for mask in masks):
                self._handed[op] = masks
        else:
            masks = [self._masks.pop(value, None) for value in op.results]
            self._note(step, masks, made)
            for result, mask in enumerate(masks):
                if mask is not None:
                    self._operands(step, result, mask)

    def _entered(self, step: _Step) -> None:
        """Move the masks of a region's arguments to the operands that they were bound to."""
        op, region = step.op, step.region
        assert region is not None
        arguments = region.block.arguments
        if scf.For.matches(op):
            self._masks.pop(arguments[0], None)
            arguments = arguments[1:]
        masks = [self._masks.pop(value, None) for value in arguments]
        if not any(mask is not None for mask in masks):
            return
        if step.loops[-1][1] == 0 and region is op.regions[0]:
            inits = scf.For(op).inits if scf.For.matches(op) else op.operands
            for value, mask in zip(inits, masks, strict=False):
                self._mark(value, mask)
        else:
            self._handed[op] = masks

    def _operands(self, step: _Step, result: int, mask: Tensor) -> None:
        op = step.op
        if tt.Load.matches(op):
            # The offsets are compared by themselves; `other` is a value like any operand.
            masks = operand_masks(op, mask, result, step.tiles)
            other = tt.Load(op).other
            if other is not None:
                self._mark(other, masks[-1])
            return
        for value, chosen in zip(
            op.operands, operand_masks(op, mask, result, step.tiles), strict=True
        ):
            if not isinstance(ir.element_of(value.type), PointerType):
                self._mark(value, chosen)

    def _note(self, step: _Step, masks: Sequence[Tensor | None], made: Slice) -> None:
        for value, mask, tile in zip(step.op.results, masks, step.results, strict=False):
            if mask is not None and tile is not None:
                offsets = None
                if tt.Load.matches(step.op) and step.tiles[0] is not None:
                    keeps = mask
                    if tt.Load(step.op).mask is not None and step.tiles[1] is not None:
                        keeps = mask & step.tiles[1].bool().expand_as(mask)
                    offsets = step.tiles[0][keeps].reshape(-1)
                made.nodes.append(self._node(step, value, tile, mask, offsets))

    def _node(
        self, step: _Step, value: Value, tile: Tensor, mask: Tensor, offsets: Tensor | None
    ) -> Node:
        numbers = tile.expand(mask.shape)[mask].reshape(-1)
        key = (*self._keys[step.op.id], value.index if value.defining_op is step.op else -1)
        is_index = value in self._index
        loop = self._keys[step.loops[-1][0]] if step.loops else None
        visit = self._visits.get(id(step), 0)
        return Node(step.op, value, key, step.loops, numbers, offsets, is_index, loop, mask, visit)


def _handed_on(region: Region) -> Sequence[Value]:
    terminator = region.block.terminator
    handed = terminator.operands
    return handed[1:] if scf.Condition.matches(terminator) else handed


@dataclass(frozen=True, slots=True)
class Parting:
    """The first values of two runs that part.

    Attributes:
        node: in the run that is looked at.
        round: the iteration of the innermost loop around it; None outside of loops.
        got: the number.
        expected: the number of the other run.
        is_sum: whether the op adds up several numbers.
        reads: the elements that only one of the runs reads, in words; "" if both read the same.
    """

    node: Node
    round: int | None
    got: str
    expected: str
    is_sum: bool
    reads: str


_SUMS = names_of(tt.Dot, tt.DotScaled, tt.Reduce, tt.Scan, arith.AddF)


def parting(base: Slice, other: Slice, tolerance: Tolerance) -> Parting | None:
    """Return where two slices of one element part; None if no values that correspond differ.

    Args:
        base: the slice of the usual run.
        other: the slice of the run that is looked at.
        tolerance: the tolerance for floats.
    """
    pairs = list(_aligned(_by_key(base), other, base.rounds, other.rounds))
    reads = _reads(base, other)
    data = [pair for pair in pairs if not pair[0].is_index]
    # What is made of constants and program ids tells where something is, unless it is a float.
    places = [pair for pair in pairs if pair[0].is_index and is_float(pair[0].value)]
    for node, expected in (*data, *places):
        if ir.element_of(node.value.type) == ir.I1:
            continue
        bad = _differing(node.numbers, expected.numbers, tolerance)
        if bad is not None:
            return _parting(node, expected, bad, reads)
    return None


def _parting(node: Node, expected: Node, bad: int, reads: str) -> Parting:
    got, wanted = (number_text(side.numbers[bad].item()) for side in (node, expected))
    round_ = node.loops[-1][1] if node.loops else None
    adds = node.op.name in _SUMS or scf.For.matches(node.op)
    return Parting(node, round_, got, wanted, adds, reads)


def _differing(got: Tensor, expected: Tensor, tolerance: Tolerance) -> int | None:
    """The position of the first number that differs; None where none does, or they do not align."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return None
    bad = tolerance.differing(got, expected)
    return int(bad.nonzero()[0]) if bool(bad.any()) else None


_Known = Mapping[tuple[object, ...], Mapping[Path, list[Node]]]


def _by_key(made: Slice) -> _Known:
    found: dict[tuple[object, ...], dict[Path, list[Node]]] = {}
    for node in made.nodes:
        rounds = tuple((0, round_) for _, round_ in node.loops)
        found.setdefault(node.key, {}).setdefault(rounds, []).append(node)
    return found


def _aligned(
    known: _Known,
    other: Slice,
    base_rounds: Mapping[tuple[object, ...], int],
    rounds: Mapping[tuple[object, ...], int],
) -> Iterator[tuple[Node, Node]]:
    """Yield pairs of nodes that correspond, first `other`'s, in the order of `other`."""
    same = base_rounds == rounds
    for node in other.nodes:
        by_path = known.get(node.key)
        if by_path is None:
            continue
        path = tuple((0, round_) for _, round_ in node.loops)
        if same or not path:
            matching = by_path.get(path)
            if matching:
                yield node, matching[0]
            continue
        if len(path) == 1 and node.value in _carried(node.op):
            ours, theirs = rounds.get(node.loop or (), 0), base_rounds.get(node.loop or (), 0)
            at = (path[0][1] + 1) * theirs
            if ours and theirs and at % ours == 0:
                matching = by_path.get(((0, at // ours - 1),))
                if matching:
                    yield node, matching[0]


def _carried(op: Operation) -> frozenset[Value]:
    """The results of an op in a loop's body that an iteration yields to the next one."""
    block = op.block
    if block is None or block.parent_op is None or not scf.Loop.matches(block.parent_op):
        return frozenset()
    return frozenset(block.terminator.operands) & frozenset(op.results)


def _reads(base: Slice, other: Slice) -> str:
    """Return which elements only one run reads, in words, for the first such load; "" if none."""
    ours, theirs = _read_by(other), _read_by(base)
    for key, (node, offsets) in ours.items():
        if key not in theirs:
            continue
        before = theirs[key][1]
        more, less = offsets - before, before - offsets
        if not more and not less:
            continue
        name = _pointer_name(node.op)
        frame = node.op.location.primary
        parts = [f"{len(more):,} more (from {min(more):,})"] if more else []
        parts += [f"{len(less):,} fewer (from {min(less):,})"] if less else []
        return f"line {frame.line} reads {' and '.join(parts)} elements of {name} for it"
    return ""


def _read_by(made: Slice) -> dict[tuple[object, ...], tuple[Node, set[int]]]:
    found: dict[tuple[object, ...], tuple[Node, set[int]]] = {}
    for node in made.nodes:
        if node.offsets is not None:
            _, offsets = found.setdefault(node.key, (node, set()))
            offsets.update(node.offsets.tolist())
    return found


def _pointer_name(load: Operation) -> str:
    """The name of the pointer that a load's address is computed from, or "memory"."""
    value, seen = tt.Load(load).pointer, set()
    while value.defining_op is not None and value not in seen:
        seen.add(value)
        value = next(iter(value.defining_op.operands), value)
    return value.name or "memory"
