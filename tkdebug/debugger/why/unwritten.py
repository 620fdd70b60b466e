"""Why no program has written an element: the mask, shape or branch that left it out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.analysis.global_memory import mask_of
from tkdebug.compiler.dialects import scf, tt, ttng
from tkdebug.compiler.dialects.interfaces import Effects, MaskedAccess, PointerAccess, accessed
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation, Region, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.debugger.elements import Element, find_element
from tkdebug.debugger.execution import CountingObserver, Execution
from tkdebug.debugger.programs import Elsewhere, elsewhere
from tkdebug.debugger.stops import Moment
from tkdebug.debugger.why.answers import Why, sliced, traced
from tkdebug.debugger.why.tracing import Tracer
from tkdebug.debugger.why.writers import bit_mask, write_of
from tkdebug.interpreter.memory.checked_access import loaded_type
from tkdebug.interpreter.memory.descriptors import descriptor_access, row_access
from tkdebug.interpreter.memory_usage import pointer_origins
from tkdebug.interpreter.observers import Moments
from tkdebug.interpreter.tiles.values import (
    AddressTile,
    DescriptorTile,
    PointerTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.debugger.inspection import Inspection
    from tkdebug.interpreter.evaluator import Evaluator

_MOST_MISSES = 64
_MOST_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Miss:
    """A store that addresses an element, and a program that does not write it there.

    Attributes:
        time: the number of ops that had begun.
        program: linear number.
        lane: the element's position in the tile, row by row.
        parted: the place where the program leaves the others, if it does not take part in the
            store; None if it does: its mask is false there, or the element is outside of the
            descriptor's shape.
    """

    op: Operation
    time: int
    program: int
    lane: int
    parted: Elsewhere | None


class MissFinder(CountingObserver):
    """Notes the stores that address an element, or the elements that its tensor's stores address.

    Attributes:
        misses: the first few.
        reached: for each store into the tensor the lowest and the highest element that it
            addresses, from the allocation's first; None if its addresses are from memory.
    """

    def __init__(self, execution: Execution, until: Moment, now: int, element: Element) -> None:
        super().__init__(execution, until, now)
        self._element = element
        self._entered: dict[Evaluator, list[tuple[Operation, Tensor | None]]] = {}
        self.misses: list[Miss] = []
        self.reached: dict[Operation, tuple[int, int] | None] = {}

    def moments(self, op: Operation) -> Moments:
        """Ask for all moments: regions show where programs part."""
        return super().moments(op) | Moments.REGIONS

    def enters(self, run: Evaluator, region: Region, arguments: Sequence[TileValue]) -> None:
        """Note the programs in the region."""
        assert region.parent is not None
        self._entered.setdefault(run, []).append((region.parent, run.active))

    def leaves(self, run: Evaluator, region: Region, results: Sequence[TileValue]) -> None:
        """Note that no program is in the region any more."""
        stack = self._entered[run]
        stack.pop()
        if not stack:
            del self._entered[run]

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Note a store's addresses into the tensor, and the programs that miss the element."""
        super().before(run, op, operands)
        found = _addressed(run, op, operands)
        if found is None:
            return
        pointer, mask, shape = found
        if isinstance(pointer, AddressTile):
            self.reached[op] = None
        places = self._places(run, pointer, shape)
        if places is None:
            return
        if isinstance(pointer, PointerTile):
            addressed = places
            if mask is not None and isinstance(operands[0], DescriptorTile):
                rows = max(len(places), len(mask))
                addressed = places.expand(rows, *shape)[mask.expand(rows, *shape)]
            self._note_range(op, addressed)
        hits = places == self._element.byte // self._element.itemsize
        self._note(run, op, hits, mask)

    def _note_range(self, op: Operation, addressed: Tensor) -> None:
        if addressed.numel():
            low, high = int(addressed.min()), int(addressed.max())
            least, most = self.reached.get(op) or (low, high)
            self.reached[op] = (min(low, least), max(high, most))

    def _places(self, run: Evaluator, pointer: TileValue, shape: tuple[int, ...]) -> Tensor | None:
        """Return the places of pointers, in elements of the allocation; None if it is another."""
        element, wide = self._element, ir.tile(shape, ir.I64) if shape else ir.I64
        if isinstance(pointer, AddressTile):
            places = run.full(pointer.places, wide) - element.storage_key
            return places.div(element.itemsize, rounding_mode="floor")
        assert isinstance(pointer, PointerTile)
        if pointer.buffer.storage_key != element.storage_key:
            return None
        return run.full(pointer.offset, wide) + pointer.buffer.storage_offset

    def _note(self, run: Evaluator, op: Operation, hits: Tensor, mask: Tensor | None) -> None:
        parted = elsewhere(run, self._entered.get(run, ()))
        flat = hits.reshape(hits.shape[0], -1)
        for row in flat.any(1).expand(run.programs).nonzero().reshape(-1).tolist():
            if len(self.misses) >= _MOST_MISSES:
                return
            lane = int(flat[row if len(flat) > 1 else 0].nonzero()[0])
            program = run.first + row
            group = next((each for each in parted if program in each.programs), None)
            if group is None and (mask is None or _at(mask, row, lane)):
                continue  # it is written
            self.misses.append(Miss(op, self.now, program, lane, group))


def _at(mask: Tensor, row: int, lane: int) -> bool:
    return bool(mask.reshape(mask.shape[0], -1)[row if mask.shape[0] > 1 else 0, lane])


def _addressed(
    run: Evaluator, op: Operation, operands: Sequence[TileValue]
) -> tuple[TileValue, Tensor | None, tuple[int, ...]] | None:
    """The pointers of an op that writes memory, its mask or None, and the shape of both.

    None for other ops.
    """
    if tt.Store.matches(op) or tt.Atomic.matches(op):
        shape = ir.shape_of(PointerAccess(op).pointer.type)
        place = _mask_operand(op)
        if place is None:
            return operands[0], None, shape
        return operands[0], run.full(operands[place], ir.tile(shape, ir.I1)), shape
    if ttng.AsyncTmaCopyLocalToGlobal.matches(op):
        shape = ir.shape_of(loaded_type(op))
    elif (block := _stored_block(op)) is not None:
        shape = ir.shape_of(block.value.type)
    elif (scatter := tt.DescriptorScatter.cast(op)) is not None:
        shape = ir.shape_of(scatter.value.type)
        rows = scatter.rows.type
        assert isinstance(operands[0], DescriptorTile)
        pointer, kept = row_access(run, operands[0], shape, operands[2], rows, operands[3])
        return pointer, kept, shape
    else:
        return None
    assert isinstance(operands[0], DescriptorTile)
    pointer, mask = descriptor_access(run, operands[0], shape, operands[2:])
    return pointer, run.full(mask, ir.tile(shape, ir.I1)), shape


def _stored_block(op: Operation) -> tt.DescriptorStore | tt.DescriptorReduce | None:
    return tt.DescriptorStore.cast(op) or tt.DescriptorReduce.cast(op)


def _coordinates(op: Operation) -> Sequence[Value]:
    """Return the coordinates of a writing access through a descriptor."""
    copy, scatter = ttng.AsyncTmaCopyLocalToGlobal.cast(op), tt.DescriptorScatter.cast(op)
    if copy is not None:
        return copy.coordinates
    if scatter is not None:
        return scatter.rows, scatter.column
    block = _stored_block(op)
    return () if block is None else block.offsets


def _mask_operand(op: Operation) -> int | None:
    """Return the place of the mask among the operands of a store or an atomic."""
    if not MaskedAccess.matches(op) or (mask := MaskedAccess(op).mask) is None:
        return None
    return op.operands.index(mask)


def why_not_written(inspection: Inspection, text: str, frame: int = 0) -> Why:
    """Explain why no program has written an element.

    Args:
        inspection: the inspection of the stop.
        text: `out[3, 17]`.
        frame: the frame of the names, 0 for the innermost.

    Returns:
        The reasons why it was left out, and the lines where the first such mask or condition was
            computed; or the program that has written it.

    Raises:
        UsageError: `text` names no element.
    """
    element = find_element(inspection, text, frame)
    until, execution = inspection.moment, inspection.execution
    written = write_of(execution, element, until)
    if written is not None:
        who, line = inspection.program_text(written.program), written.op.location.primary.line
        return Why(f"{element} was written, by program {who} at line {line}", written.program)
    missed = execution.execute_beside(
        lambda now: MissFinder(execution, until, now, element), until, is_whole=True
    )
    causes = _causes(missed.misses)
    if causes:
        said = [_cause_text(inspection, cause, misses) for cause, misses in causes.items()]
        what = f"{element} was not written: {'; '.join(said)}"
        return _with_slice(inspection, what, next(iter(causes.values()))[0])
    said = list(_elsewhere_addressed(inspection, element, missed.reached))
    return Why(f"{element} was not written: {'; '.join(dict.fromkeys(said))}", None)


# The line of the store, whether its mask is meant, and where programs parted.
_Cause = tuple[int, str, "tuple[int, str] | None"]


def _causes(misses: Sequence[Miss]) -> dict[_Cause, list[Miss]]:
    """Group misses by the text that the user reads; branches that a pass made do not count."""
    found: dict[_Cause, list[Miss]] = {}
    for miss in misses:
        line, parted = miss.op.location.primary.line, miss.parted
        if parted is not None and parted.line == line:
            continue
        where = None if parted is None else (parted.line, parted.reason)
        found.setdefault((line, miss.op.name, where), []).append(miss)
    return found


def _cause_text(inspection: Inspection, cause: _Cause, misses: Sequence[Miss]) -> str:
    line, _, parted = cause
    programs = list(dict.fromkeys(miss.program for miss in misses))
    shown = ", ".join(inspection.program_text(each) for each in programs[:_MOST_SHOWN])
    more = f" and {len(programs) - _MOST_SHOWN} more" if len(programs) > _MOST_SHOWN else ""
    is_one = len(programs) == 1
    head = f"program{'' if is_one else 's'} {shown}{more} address{'es' if is_one else ''} it at"
    if parted is not None:
        verb = "is" if is_one else "are"
        return f"{head} line {line}, but {verb} {parted[1]} at line {parted[0]} then"
    op = misses[0].op
    if _mask_operand(op) is None:
        return f"{head} line {line}, but it is outside of the descriptor's shape"
    if tt.Store.matches(op) and tt.Store(op).boundary_check is not None:
        return f"{head} line {line}, but it is outside of the block pointer's shape"
    return f"{head} line {line}, but {'its' if is_one else 'their'} mask is false there"


def _elsewhere_addressed(
    inspection: Inspection, element: Element, reached: dict[Operation, tuple[int, int] | None]
) -> Iterator[str]:
    """Say which elements the stores into the tensor address, and which stores did not run."""
    for op, range_ in reached.items():
        if range_ is None:
            line = op.location.primary.line
            yield f"the store at line {line}, to addresses from memory, never addresses it"
            continue
        (low, high), line, place = range_, op.location.primary.line, element.offset_elems
        shift = element.byte // element.itemsize - place
        yield (
            f"the store at line {line} addresses elements {low - shift} to {high - shift} of "
            f"{element.name} in all, never this one, which is element {place}"
        )
    stores = list(_stores_into(inspection, element))
    ran = {op.location.primary.line for op in reached}
    for op in stores:
        if op.location.primary.line not in ran:
            where = f"line {op.location.primary.line}{_inside(op)}"
            yield f"no program has come to the store at {where}"
    if not stores and not reached:
        yield f"the kernel has no store into {element.name}"


def _inside(op: Operation) -> str:
    """Return the text of the innermost `if` or loop of another line around an op; "" for none."""
    line, block = op.location.primary.line, op.block
    while block is not None and (parent := block.parent_op) is not None:
        if not tt.Func.matches(parent) and parent.location.primary.line != line:
            what = "`if`" if scf.If.matches(parent) else "loop"
            return f", in the {what} at line {parent.location.primary.line}"
        block = parent.block
    return ""


def _stores_into(inspection: Inspection, element: Element) -> Iterator[Operation]:
    """The kernel's ops that may write the tensor of an element."""
    module = inspection.code.module
    names = [value.name for value in module.function.regions[0].block.arguments]
    origins = pointer_origins(module)
    for op in module.function.walk():
        if op.name in OPS and Effects.WRITE in OPS[op.name].effects and op.operands:
            places = origins.get(accessed(op), frozenset((-1,)))
            named = {(names[at] or "").partition(".")[0] for at in places if at >= 0}
            if element.name in named or -1 in places:
                yield op


def _with_slice(inspection: Inspection, what: str, miss: Miss) -> Why:
    """Answer with the lines at which the cause of a miss was computed."""
    tracer = traced(inspection, miss.program, Moment(miss.time + 1, 0))
    starts = list(_starts(tracer, miss))
    until = Moment(miss.time, 0)
    return sliced(inspection, until, tracer, what, miss.program, [], starts, False)


def _starts(tracer: Tracer, miss: Miss) -> Iterator[tuple[int, Tensor]]:
    scalar, op = torch.ones((), dtype=torch.bool), miss.op
    if miss.parted is not None:
        number = _condition(tracer, op)
        if number >= 0:
            yield number, scalar
        return
    mask = mask_of(op)
    for value in _coordinates(op) if mask is None else (mask,):
        number = tracer.current.get(value, -1)
        data = tracer.instances[number].data if number >= 0 else None
        if data is not None:
            yield number, bit_mask(data.shape, miss.lane if data.numel() > 1 else 0)


def _condition(tracer: Tracer, op: Operation) -> int:
    """The instance of the condition that kept the program from an op; -1 if loops hide it."""
    block = op.block
    while block is not None and (parent := block.parent_op) is not None:
        if not scf.If.matches(parent):
            return -1
        number = tracer.current.get(scf.If(parent).condition, -1)
        if number >= 0:
            return number
        block = parent.block
    return -1
