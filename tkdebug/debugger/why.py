"""Why an element is what it is: the lines, ops and loads that it was computed from, with values.

The slice is of data: what was computed with what. What an address was computed from is a part of
its own. Where a value was written by another program, or before the launch, the answer says so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.tensor import tensor
from tkdebug.debugger.elements import Element, argument_named, parse_element
from tkdebug.debugger.moments import Moment
from tkdebug.debugger.slices import operand_masks
from tkdebug.debugger.tracing import (
    Instance,
    MissFinder,
    SourceFinder,
    Tracer,
    WriteFinder,
    bit_mask,
)
from tkdebug.debugger.values import Pointers
from tkdebug.errors import Frame, UsageError
from tkdebug.interpreter.buffers import Buffer

if TYPE_CHECKING:
    from tkdebug.debugger.inspection import Inspection


@dataclass(slots=True, eq=False)
class Line:
    """A line that took part.

    Attributes:
        frames: the chain of calls, outermost first.
        values: for each variable or op of it, the elements that took part, one tensor for each time
            that it ran, the last time first.
        loads: the elements that it loaded, by the name of the tensor: offsets and values.
        last: how many ops had begun when it ran last.
        births: the ops of it whose result is NaN though no operand is.
    """

    frames: tuple[Frame, ...]
    values: dict[str, list[Tensor]] = field(default_factory=dict)
    loads: dict[str, tuple[Buffer, list[Tensor], list[Tensor]]] = field(default_factory=dict)
    last: int = 0
    births: list[str] = field(default_factory=list)

    @property
    def place(self) -> Frame:
        """The innermost."""
        return self.frames[-1]


@dataclass(frozen=True, slots=True)
class Why:
    """The answer.

    Attributes:
        what: the element, and where it comes from, in a sentence.
        program: linear number; None where no program wrote it.
        computed: the lines that its value was computed at, the last one first.
        addressed: the lines that only the addresses of its loads, or masks, were computed at.
        inputs: the arguments that took part as numbers.
        sources: who wrote what was loaded, a sentence for each tensor that somebody is known to
            have written: another program of this launch, or an earlier launch.
    """

    what: str
    program: int | None
    computed: tuple[Line, ...] = ()
    addressed: tuple[Line, ...] = ()
    inputs: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def why(inspection: Inspection, text: str, frame: int = 0, only_nan: bool = False) -> Why:
    """Why an element of a tensor, or of a variable, is what it is.

    Args:
        inspection: of the stop.
        text: `out[3, 17]`, `acc[0, 4]`, or the name of a scalar.
        frame: whose variables are meant, 0 for the innermost.
        only_nan: follow NaN alone, back to where it was born.

    Raises:
        UsageError: `text` names no element, or there is no such variable here.
    """
    variable = _variable(inspection, text, frame)
    if variable is not None:
        name, value, index = variable
        return _of_variable(inspection, text, name, value, index, only_nan)
    element = parse_element(_of_argument(inspection, text, frame), inspection.launch.arguments)
    return _of_element(inspection, element, only_nan)


def _of_argument(inspection: Inspection, text: str, frame: int) -> str:
    """`text`, with the argument's name for a global of the script that was passed as it.

    Raises:
        UsageError: it names pointers; the message says into what.
    """
    name, bracket, index = text.strip().partition("[")
    arguments = inspection.launch.arguments
    if not bracket or argument_named(name, arguments) is not None:
        return text
    try:
        found = inspection.ask(name, frame)
    except UsageError:
        return text
    if isinstance(found, Pointers) and found.name is not None:
        raise UsageError(
            f"why: `{name}` holds pointers into `{found.name}`: name an element of that, such as "
            f"{found.name}{[0] * (found.tensor.dim() if found.tensor is not None else 1)}"
        )
    same = (other for other, passed in arguments.items() if passed is found)
    meant = next(same, None) if isinstance(found, Tensor) else None
    return text if meant is None else f"{meant}[{index}"


def _variable(
    inspection: Inspection, text: str, frame: int
) -> tuple[str, Value, tuple[int, ...]] | None:
    """The variable and the index that `text` names; None for an argument's element."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise UsageError(f"why: {text}: expected an element, such as out[3, 17]") from None
    index: object = ()
    if isinstance(node, ast.Subscript):
        try:
            index = ast.literal_eval(node.slice)
        except ValueError:
            raise UsageError(f"why: {text}: the indices must be numbers") from None
        node = node.value
    if not isinstance(node, ast.Name):
        raise UsageError(f"why: {text}: expected a variable, or an element such as out[3, 17]")
    if inspection.here is None:
        return None
    mark = inspection.mark_of(frame)
    found = mark.names.get(node.id)
    if node.id in mark.missing and argument_named(node.id, inspection.launch.arguments) is None:
        raise UsageError(f"why: `{node.id}` is not available here: {mark.missing[node.id]}")
    is_argument = argument_named(node.id, inspection.launch.arguments) is not None
    if found is None and isinstance(node, ast.Name) and index != ():
        return None  # an argument, or a global that was passed as one
    if not is_argument and not isinstance(found, tensor):
        problem = "has no value here" if found is None else "is no number or tile of the kernel's"
        raise UsageError(f"why: `{node.id}` {problem}")
    if not isinstance(found, tensor) or found.type.scalar.is_ptr():
        return None
    full = index if isinstance(index, tuple) else (index,)
    shape = found.shape
    if len(full) != len(shape) or not all(
        isinstance(place, int) and -extent <= place < extent
        for place, extent in zip(full, shape, strict=True)
    ):
        count = f"{len(shape)} ind{'ex' if len(shape) == 1 else 'ices'}"
        problem = (
            f"`{text.strip()}` is no element of it"
            if len(full) == len(shape)
            else f"an element has {count}, such as {node.id}{[0] * len(shape)}"
        )
        raise UsageError(f"why: `{node.id}` has shape {list(shape)}; {problem}")
    return node.id, found.value, tuple(int(p) % e for p, e in zip(full, shape, strict=True))


def _of_variable(
    inspection: Inspection,
    text: str,
    name: str,
    value: Value,
    index: tuple[int, ...],
    only_nan: bool,
) -> Why:
    here, programs = inspection.here, inspection.programs
    assert here is not None
    if not programs:
        raise UsageError("why: none of the selected programs is here")
    tracer = _traced(inspection, programs[0], here.moment)
    number = tracer.current.get(value, -1)
    if number < 0:
        raise UsageError(f"why: `{name}` has no value in this program")
    instance = tracer.instances[number]
    assert instance.data is not None
    mask = torch.zeros(instance.data.shape, dtype=torch.bool)
    mask[index] = True
    shown = instance.data[index].item()
    what = f"{text} is {_number(shown)} in program {inspection.program_text(programs[0])}"
    starts = [(number, mask)]
    return _sliced(inspection, here.moment, tracer, what, programs[0], starts, [], only_nan)


def _traced(inspection: Inspection, program: int, until: Moment) -> Tracer:
    execution = inspection.execution
    return execution.execute_beside(lambda now: Tracer(execution, until, now, program), until)


def _memory_of(inspection: Inspection, element: Element) -> float | int | bool:
    tensor_ = inspection.launch.arguments[element.name]
    held = tensor_ if isinstance(tensor_, torch.Tensor) else tensor_.base
    value: float | int | bool = held[element.index].item()
    return value


def why_not_written(inspection: Inspection, text: str) -> Why:
    """Why no program has written an element.

    Raises:
        UsageError: `text` names no element.
    """
    element = parse_element(text, inspection.launch.arguments)
    until, execution = inspection.moment, inspection.execution
    written = execution.execute_beside(
        lambda now: WriteFinder(execution, until, now, element), until, is_whole=True
    ).found
    if written is not None:
        who, line = inspection.program_text(written.program), written.op.location.primary.line
        return Why(f"{element} was written, by program {who} at line {line}", written.program)
    missed = execution.execute_beside(
        lambda now: MissFinder(execution, until, now, element), until, is_whole=True
    )
    lines = []
    for miss in missed.misses:
        line, who = miss.op.location.primary.line, inspection.program_text(miss.program)
        why_ = "its mask is false there" if miss.is_masked else "it is not in that branch"
        lines.append(f"program {who} addresses it at line {line}, but {why_}")
    if not lines:
        for op, (low, high) in missed.reached.items():
            line = op.location.primary.line
            lines.append(
                f"the store at line {line} addresses elements {low} to {high} of {element.name} "
                f"in all, never this one, which is element {_offset(inspection, element)}"
            )
    if not lines:
        lines.append(f"no store into {element.name} ran")
    return Why(f"{element} was not written: {'; '.join(dict.fromkeys(lines))}", None)


def _offset(inspection: Inspection, element: Element) -> int:
    given = inspection.launch.arguments[element.name]
    held = given if isinstance(given, torch.Tensor) else given.base
    return sum(at * stride for at, stride in zip(element.index, held.stride(), strict=True))


def _of_element(inspection: Inspection, element: Element, only_nan: bool) -> Why:
    until, execution = inspection.moment, inspection.execution
    finder = execution.execute_beside(
        lambda now: WriteFinder(execution, until, now, element), until, is_whole=True
    )
    value = _memory_of(inspection, element)
    write = finder.found
    if write is None:
        what = f"{element} is {_number(value)}: no program of this launch has written it"
        return Why(what, None)
    tracer = _traced(inspection, write.program, Moment(write.time + 1, 0))
    op, operands = tracer.stores.get(write.time, (write.op, ()))
    line = op.location.primary.line
    who = inspection.program_text(write.program)
    what = f"{element} is {_number(value)}: written by program {who} at line {line}"
    if tt.AtomicRmw.matches(write.op) and tt.AtomicRmw(write.op).kind not in ("xchg", "store"):
        what += ", which combined it atomically with the value before; that one is not followed"
    starts: list[tuple[int, Tensor]] = []
    addresses: list[tuple[int, Tensor]] = []
    if not operands and op.results:
        number = tracer.current.get(op.results[0], -1)
        operands = tracer.instances[number].operands if number >= 0 else ()
    for place, number in enumerate(operands):
        if number < 0 or tracer.instances[number].data is None:
            continue
        data = tracer.instances[number].data
        assert data is not None
        mask = bit_mask(data.shape, write.lane if data.numel() > 1 else 0)
        (starts if place == 1 else addresses).append((number, mask))
    return _sliced(
        inspection,
        Moment(write.time, 0),
        tracer,
        what,
        write.program,
        starts,
        addresses,
        only_nan,
        op,
    )


def _sliced(
    inspection: Inspection,
    until: Moment,
    tracer: Tracer,
    what: str,
    program: int,
    starts: Sequence[tuple[int, Tensor]],
    addresses: Iterable[tuple[int, Tensor]],
    only_nan: bool,
    store: Operation | None = None,
) -> Why:
    if only_nan and not any(
        bool(_is_nan(tracer.instances[number].data)[mask].any()) for number, mask in starts
    ):
        raise UsageError(f"why-nan: {what}, which is no NaN")
    values = _Slice(tracer, only_nan)
    values.follow(starts)
    if store is not None:
        values.line(store, 1 << 62)
    places = _Slice(tracer, False)
    if not only_nan:
        places.follow([*addresses, *values.addresses])
    computed = values.sorted()
    known = {line.frames for line in computed}
    addressed = [line for line in places.sorted() if line.frames not in known]
    inputs = dict.fromkeys([*values.inputs, *places.inputs])
    sources = _sources(inspection, [*computed, *addressed], until)
    return Why(what, program, tuple(computed), tuple(addressed), tuple(inputs), tuple(sources))


def _sources(inspection: Inspection, lines: Iterable[Line], until: Moment) -> list[str]:
    """Who wrote what the lines loaded."""
    bytes_of: dict[int, list[Tensor]] = {}
    names: dict[int, str] = {}
    for line in lines:
        for name, (buffer, offsets, _) in line.loads.items():
            places = (torch.cat(offsets) + buffer.storage_offset) * buffer.itemsize
            bytes_of.setdefault(buffer.storage_key, []).append(places)
            names[buffer.storage_key] = name
    if not bytes_of:
        return []
    wanted = {key: torch.cat(places) for key, places in bytes_of.items()}
    execution = inspection.execution
    found = execution.execute_beside(
        lambda now: SourceFinder(execution, until, now, wanted), until, is_whole=True
    ).found
    said = []
    for key, name in names.items():
        write = found.get(key)
        if write is not None:
            who, at = inspection.program_text(write.program), write.op.location.primary.line
            said.append(f"{name}: this launch has written there, last program {who} at line {at}")
        elif key in inspection.launch.written_before:
            said.append(f"{name}: {inspection.launch.written_before[key]} has written it")
    return said


class _Slice:
    """The elements that took part, gathered from the last instance to the first."""

    def __init__(self, tracer: Tracer, only_nan: bool) -> None:
        self._instances = tracer.instances
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
        """Gather what the elements at some masks of instances were computed from."""
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
        self._note(instance, mask)
        if scf.For.matches(op):
            return []  # a loop's variable: its bounds are no part of what it counts
        assert instance.value is not None
        parts = operand_masks(op, mask, instance.value.index, tiles)
        found = []
        is_load = tt.Load.matches(op)
        for place, (number, part) in enumerate(zip(instance.operands, parts, strict=False)):
            if number < 0 or part is None or tiles[place] is None:
                continue
            is_mask = arith.Select.matches(op) and place == 0
            if is_mask or (is_load and place < 2 and not self._is_other(op, place)):
                self.addresses.append((number, part))
                continue
            if self._only_nan:
                part = part & _is_nan(tiles[place])
            if bool(part.any()):
                found.append((number, part))
        if self._only_nan and not found and not is_load:
            self.line(op, instance.time).births.append(_birth(op, instance, mask, tiles, parts))
        return found

    @staticmethod
    def _is_other(op: Operation, place: int) -> bool:
        view = tt.Load(op)
        return place == 1 and view.mask is None

    def _note_input(self, instance: Instance) -> None:
        value, data = instance.value, instance.data
        if value is not None and data is not None and instance.buffer is None and value.name:
            self.inputs.append(f"{value.name} = {_number(data.reshape(-1)[0].item())}")

    def _note(self, instance: Instance, mask: Tensor) -> None:
        op, value, data = instance.op, instance.value, instance.data
        assert op is not None
        assert value is not None
        line = self.line(op, instance.time)
        if data is None:
            return
        if tt.Load.matches(op):
            place, *masks = instance.operands
            pointer = self._instances[place]
            if pointer.buffer is not None and pointer.data is not None:
                keeps = mask
                if tt.Load(op).mask is not None:
                    test = self._instances[masks[0]].data
                    keeps = mask if test is None else mask & test.bool()
                name = pointer.buffer.name or "memory"
                _, offsets, values = line.loads.setdefault(name, (pointer.buffer, [], []))
                offsets.append(pointer.data[keeps])
                values.append(data[keeps])
        if value.name is not None and instance.buffer is None:
            line.values.setdefault(value.name, []).append(data[mask])


def _is_nan(data: Tensor | None) -> Tensor:
    assert data is not None
    if not data.dtype.is_floating_point:
        return torch.zeros(data.shape, dtype=torch.bool)
    return (data.float() if data.element_size() < 2 else data).isnan()


def _birth(
    op: Operation,
    instance: Instance,
    mask: Tensor,
    tiles: list[Tensor | None],
    parts: list[Tensor | None],
) -> str:
    """The first NaN of an op without one among its operands: what they were there."""
    given = []
    for operand, tile, part in zip(op.operands, tiles, parts, strict=False):
        if tile is None or part is None or not bool(part.any()):
            continue
        picked = tile[part].reshape(-1)
        name = operand.name or "an operand"
        if picked.numel() == 1:
            given.append(f"{name} = {_number(picked[0].item())}")
        else:
            wide = picked.double()
            bad = int((~wide.isfinite()).sum())
            given.append(f"{name}: {picked.numel()} elements, {bad} of them not finite")
    return f"{op.name.rpartition('.')[2]} of {', '.join(given) or 'constants'}"


def _number(value: float | int | bool) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
