"""Lines of a slice: the lines from which an element was computed, through traced instances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, scf, tt, ttg, ttng
from tkdebug.compiler.dialects.interfaces import PlainDot
from tkdebug.compiler.ir import Operation
from tkdebug.debugger.value_text import element_text
from tkdebug.debugger.why.slices import operand_masks, written_by
from tkdebug.debugger.why.tracing import Instance, Tracer
from tkdebug.errors import Frame
from tkdebug.interpreter.memory.buffers import Buffer


@dataclass(slots=True, eq=False)
class Line:
    """A line that took part.

    Attributes:
        frames: the chain of calls, outermost first.
        values: for each variable or op of it, the elements that took part, one tensor for each time
            that it ran, the last time first. An op that is bound to no variable has the text of
            its expression as its name.
        rounds: the iterations of the loops around it at each of these times, outermost loop first.
        exact: its values in fp64 at each of these times, if they are known.
        loads: the elements that it loaded, by the name of the tensor: offsets and values.
        stored: who stored what it loaded, by the name of the tensor, as far as that is known.
        last: the number of ops that had begun when it ran last.
        taken: the instances of `values`, with the elements of them that took part.
        births: the ops of it whose result is NaN though no operand is.
    """

    frames: tuple[Frame, ...]
    values: dict[str, list[Tensor]] = field(default_factory=dict)
    rounds: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    exact: dict[str, list[Tensor]] = field(default_factory=dict)
    taken: dict[str, list[tuple[Instance, Tensor]]] = field(default_factory=dict)
    loads: dict[str, tuple[Buffer, list[Tensor], list[Tensor]]] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    last: int = 0
    births: list[str] = field(default_factory=list)

    def add(self, name: str, data: Tensor, mask: Tensor, instance: Instance) -> None:
        """Add the elements of a tile, at a mask, that took part one more time."""
        self.values.setdefault(name, []).append(data[mask])
        self.rounds.setdefault(name, []).append(instance.rounds)
        self.taken.setdefault(name, []).append((instance, mask))

    @property
    def sums(self) -> list[str]:
        """The names whose single float was computed in several iterations."""
        return [
            name
            for name, values in self.values.items()
            if len(values) > 1
            and all(each.numel() == 1 and each.is_floating_point() for each in values)
        ]

    @property
    def place(self) -> Frame:
        """The innermost frame."""
        return self.frames[-1]


class Slice:
    """The elements that took part, gathered from the last instance to the first.

    Args:
        tracer: the trace of the program.
        only_nan: follow NaN alone.
        names_ops: whether ops that are bound to no variable are shown, too.
    """

    def __init__(self, tracer: Tracer, only_nan: bool, names_ops: bool = True) -> None:
        self._names_ops = names_ops
        self._instances = tracer.instances
        self._tracer = tracer
        # By copy: the elements that it brought to shared memory, as far as they were read.
        self._landed: dict[int, Tensor] = {}
        self._only_nan = only_nan
        self._lines: dict[tuple[Frame, ...], Line] = {}
        self.addresses: list[tuple[int, Tensor]] = []
        self.inputs: list[str] = []

    def line(self, op: Operation, time: int) -> Line:
        """The line of an op."""
        frames = op.location.frames
        found = self._lines.setdefault(frames, Line(frames))
        found.last = max(found.last, time)
        return found

    def sorted(self) -> list[Line]:
        """The lines, those that ran last first."""
        return sorted(self._lines.values(), key=lambda line: -line.last)

    def follow(self, starts: Iterable[tuple[int, Tensor]]) -> None:
        """Gather the elements from which those at some masks of instances were computed."""
        masks: dict[int, Tensor] = {}
        for number, mask in starts:
            masks[number] = masks[number] | mask if number in masks else mask
        while masks:
            number = max(masks)
            mask = masks.pop(number)
            if not bool(mask.any()):
                continue
            for operand, part in self._operands(self._instances[number], mask):
                masks[operand] = masks[operand] | part if operand in masks else part

    def _operands(self, instance: Instance, mask: Tensor) -> list[tuple[int, Tensor]]:
        op = instance.op
        if op is None:
            self._note_input(instance)
            return []
        if arith.Constant.matches(op):
            return []
        tiles = [self._instances[n].data if n >= 0 else None for n in instance.operands]
        if ttng.AsyncTmaCopyLocalToGlobal.matches(op):
            self._note_coordinates(op, instance)
            return self._through_shared(instance, instance.operands[1], mask, instance.data)
        if instance.block is not None or instance.value is None:
            self._note_block(op, instance, mask)
            return []
        self._note(instance, mask)
        if ttg.LocalLoad.matches(op):
            buffer, *_ = instance.operands
            return self._through_shared(instance, buffer, mask, instance.data)
        if scf.For.matches(op):
            return []  # a loop's variable: its bounds are no part of what it counts
        if tt.Reduce.matches(op) or tt.Scan.matches(op):
            self._note_combining(op, instance.time)
        parts = operand_masks(op, mask, instance.value.index, tiles)
        found = []
        is_copy = ttg.AsyncCopyGlobalToLocal.matches(op)
        is_load = tt.Load.matches(op) or is_copy
        for place, (number, part) in enumerate(zip(instance.operands, parts, strict=False)):
            if number < 0 or part is None:
                continue
            if PlainDot.matches(op) and self._instances[number].places is not None:
                held = self._tracer.contents.get((instance.number, place))
                found += self._through_shared(instance, number, part, held)
                continue
            if tiles[place] is None:
                continue
            is_mask = arith.Select.matches(op) and place == 0
            is_address = place in (0, 2) if is_copy else place < 2
            if is_mask or (is_load and is_address and not self._is_other(op, place)):
                self.addresses.append((number, part))
                continue
            if self._only_nan:
                part = part & is_nan(tiles[place])
            if bool(part.any()):
                found.append((number, part))
        if self._only_nan and not found and not is_load:
            self.line(op, instance.time).births.append(self._birth(op, tiles, parts))
        return found

    def _birth(self, op: Operation, tiles: list[Tensor | None], parts: list[Tensor | None]) -> str:
        """Return the text of an op that made a NaN of operands without one, with the operands."""
        given = []
        for operand, tile, part in zip(op.operands, tiles, parts, strict=False):
            if tile is None or part is None or not bool(part.any()):
                continue
            picked = tile[part].reshape(-1)
            name = operand.name or self._tracer.text_of(operand) or "an operand"
            if picked.numel() == 1:
                given.append(f"{name} = {element_text(picked)}")
            else:
                wide = picked.double()
                bad = int((~wide.isfinite()).sum())
                given.append(f"{name}: {picked.numel()} elements, {bad} of them not finite")
        return f"{op.name.rpartition('.')[2]} of {', '.join(given) or 'constants'}"

    def _note_combining(self, op: Operation, time: int) -> None:
        """Note the lines of the kernel's function by which a scan or a reduction combines."""
        for inner in op.regions[0].block.operations:
            if inner.operands and len(inner.location.frames) > len(op.location.frames):
                self.line(inner, time)

    @staticmethod
    def _is_other(op: Operation, place: int) -> bool:
        if tt.Load.matches(op):
            return place == 1 and tt.Load(op).mask is None
        return place == 2 and ttg.AsyncCopyGlobalToLocal(op).mask is None

    def _through_shared(
        self, reader: Instance, view: int, mask: Tensor, held: Tensor | None
    ) -> list[tuple[int, Tensor]]:
        """Find the instances that put the elements at a mask of a shared view there."""
        places = self._instances[view].places if view >= 0 else None
        if places is None:
            return []
        if self._only_nan and held is not None:
            mask = mask & is_nan(held)
        found = []
        writes = self._tracer.shared_writes
        for write, hit, at in written_by(writes, reader.number, places, mask):
            if write.source < 0:
                continue
            part = torch.zeros(write.places.numel(), dtype=torch.bool)
            part[at] = True
            source = self._instances[write.source]
            if held is not None and source.data is None:
                landed = self._landed.setdefault(
                    write.source, torch.zeros(write.places.numel(), dtype=held.dtype)
                )
                landed[at] = held[hit].to(landed.dtype)
            found.append((write.source, part.reshape(write.places.shape)))
        return found

    def _note_block(self, op: Operation, instance: Instance, mask: Tensor) -> None:
        """Note the part of a descriptor's block that a load read, and its place in memory."""
        line, block = self._note_coordinates(op, instance), instance.block
        data = instance.data
        if data is None and instance.number in self._landed:
            data = self._landed[instance.number]
        if block is None or data is None:
            return
        mask = mask.reshape(block.offsets.shape)
        data, keeps = data.reshape(mask.shape), mask & block.keeps
        _add_loads(line, block.buffer, block.offsets[keeps], data[keeps])
        if instance.value is not None and instance.value.name is not None:
            line.add(instance.value.name, data, mask, instance)

    def _note_coordinates(self, op: Operation, instance: Instance) -> Line:
        """Add an access's coordinates in a descriptor to `addresses`; return the access's line."""
        scalar = torch.ones((), dtype=torch.bool)
        numbers = instance.operands[first_coordinate(op) :]
        self.addresses += [(number, scalar) for number in numbers if number >= 0]
        return self.line(op, instance.time)

    def _note_input(self, instance: Instance) -> None:
        value, data = instance.value, instance.data
        if value is not None and data is not None and instance.buffer is None and value.name:
            self.inputs.append(f"{value.name} = {element_text(data.reshape(-1)[:1])}")

    def _note(self, instance: Instance, mask: Tensor) -> None:
        op, value, data = instance.op, instance.value, instance.data
        assert op is not None
        assert value is not None
        line = self.line(op, instance.time)
        is_copy = ttg.AsyncCopyGlobalToLocal.matches(op)
        if is_copy and instance.number in self._landed:
            data = self._landed[instance.number].reshape(mask.shape)
        if data is None:
            return
        if is_copy or tt.Load.matches(op):
            place, *masks = instance.operands
            masks = masks[1:] if is_copy else masks
            pointer = self._instances[place]
            if pointer.buffer is not None and pointer.data is not None:
                keeps = mask
                access = ttg.AsyncCopyGlobalToLocal(op) if is_copy else tt.Load(op)
                if access.mask is not None:
                    test = self._instances[masks[0]].data
                    keeps = mask if test is None else mask & test.bool()
                _add_loads(line, pointer.buffer, pointer.data[keeps], data[keeps])
        name = self._tracer.name_of(instance)
        wait = ttng.WarpGroupDotWait.cast(op)
        if name is None and wait is not None:
            source = self._instances[instance.operands[value.index]]
            # The name of the dot's result, if this is the wait that completes it.
            name = wait.sources[value.index].name if source.is_pending else None
        if scf.For.matches(op) and self._tracer.runs_ahead:
            name = None  # the counter of the iteration that issues a copy, not of the one it is for
        if name is None and self._names_ops and not tt.Load.matches(op):
            name = self._tracer.text_of(value)
        if name is not None and instance.buffer is None and not (is_copy or instance.is_pending):
            line.add(name, data, mask, instance)


def _add_loads(line: Line, buffer: Buffer, offsets: Tensor, values: Tensor) -> None:
    name = (buffer.name or "memory").removesuffix(".base")  # of a descriptor that passes took apart
    _, places, found = line.loads.setdefault(name, (buffer, [], []))
    places.append(offsets)
    found.append(values)


def first_coordinate(op: Operation) -> int:
    """Return the place of the first coordinate among a descriptor access's operands."""
    if ttng.AsyncTmaCopyGlobalToLocal.matches(op):
        return len(op.operands) - len(ttng.AsyncTmaCopyGlobalToLocal(op).coordinates)
    return 2 if ttng.AsyncTmaCopyLocalToGlobal.matches(op) else 1


def is_nan(data: Tensor | None) -> Tensor:
    """Return which elements are NaN; none for integers."""
    assert data is not None
    if not data.dtype.is_floating_point:
        return torch.zeros(data.shape, dtype=torch.bool)
    return (data.float() if data.element_size() < 2 else data).isnan()
