"""Explanations of an element: the lines, ops and loads that it was computed from, with values.

The slice is one of data: the values from which each value was computed. The values that an address
was computed from are a part of their own. If another program wrote a value, or it was written
before the launch, the answer says so. For a NaN, the slice goes back to the op that it was born in.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt, ttng
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.tensor import tensor
from tkdebug.debugger.elements import Element, argument_named, find_element
from tkdebug.debugger.stops import Moment
from tkdebug.debugger.value_text import element_text
from tkdebug.debugger.values import Constant, Pointers, Tile
from tkdebug.debugger.why.earlier import (
    CannotFollowError,
    Following,
    command_there,
    element_at,
    executed_again,
    refuse_unknown,
    writer_before,
)
from tkdebug.debugger.why.slice_lines import Line, Slice, is_nan
from tkdebug.debugger.why.tracing import Tracer
from tkdebug.debugger.why.writers import SourceFinder, Write, Writer, bit_mask, write_of
from tkdebug.errors import UsageError
from tkdebug.interpreter.memory.buffers import Buffer

if TYPE_CHECKING:
    from tkdebug.debugger.inspection import Inspection


@dataclass(frozen=True, slots=True)
class Why:
    """The explanation of an element.

    Attributes:
        what: a sentence with the element and its origin.
        program: linear number; None if no program wrote it.
        line: the line that stored it; None for a variable, and if no program wrote it.
        computed: the lines that its value was computed at, the last one first.
        addressed: the lines that only the addresses of its loads, or masks, were computed at.
        inputs: the arguments that took part as numbers.
        sources: who wrote the loaded values, a sentence for each tensor with a known writer that is
            not in `earlier`: another program of this launch, or an earlier launch.
        earlier: how loaded elements were computed where they were written, one of each tensor.
    """

    what: str
    program: int | None
    line: int | None = None
    computed: tuple[Line, ...] = ()
    addressed: tuple[Line, ...] = ()
    inputs: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    earlier: tuple[Why, ...] = ()


def why(
    inspection: Inspection,
    text: str,
    frame: int = 0,
    only_nan: bool = False,
    program: int | None = None,
) -> Why:
    """Explain the value of an element of a tensor, or of a variable.

    Args:
        inspection: the inspection of the stop.
        text: `out[3, 17]`, `acc[0, 4]`, or the name of a scalar.
        frame: the frame of the variables, 0 for the innermost.
        only_nan: follow NaN alone, back to where it was born.
        program: linear number of the program whose variable is meant; None for the first selected
            one.

    Raises:
        UsageError: `text` names no element, or there is no such variable here.
    """
    variable = _variable(inspection, text, frame)
    if variable is not None:
        name, value, index = variable
        return _of_variable(inspection, text, name, value, index, only_nan, program)
    element = find_element(inspection, text, frame)
    held = element.tensor[element.index]
    return _of_element(inspection, element, held, inspection.moment, only_nan, Following.begun())


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
        if index == ():
            raise UsageError(f"why: {text}: expected a variable, or an element such as out[3, 17]")
        return None  # a tensor that the script can name
    if inspection.here is None or inspection.host_frame(frame) is not None:
        return None
    mark = inspection.mark_of(frame)
    found = mark.names.get(node.id)
    if node.id in mark.missing and argument_named(node.id, inspection.launch.arguments) is None:
        raise UsageError(f"why: `{node.id}` is not available here: {mark.missing[node.id]}")
    is_argument = argument_named(node.id, inspection.launch.arguments) is not None
    if found is None and index != ():
        return None  # an argument, or a global that was passed as one
    if not is_argument and not isinstance(found, tensor):
        problem = "has no value here" if found is None else "is not a number or tile of the kernel"
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
            f"`{text.strip()}` is not an element of it"
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
    program: int | None,
) -> Why:
    here, programs = inspection.here, inspection.programs
    assert here is not None
    if not programs:
        raise UsageError("why: none of the selected programs is here")
    program = programs[0] if program is None else program
    tracer = traced(inspection, program, here.moment)
    number = tracer.current.get(value, -1)
    if number < 0:
        raise UsageError(f"why: `{name}` has no value in this program")
    instance = tracer.instances[number]
    assert instance.data is not None
    mask = torch.zeros(instance.data.shape, dtype=torch.bool)
    mask[index] = True
    shown = element_text(instance.data[index])
    what = f"{text} is {shown} in program {inspection.program_text(program)}"
    starts = [(number, mask)]
    following = Following.begun()
    return sliced(
        inspection, here.moment, tracer, what, program, starts, [], only_nan, following=following
    )


def traced(inspection: Inspection, program: int, until: Moment) -> Tracer:
    """Trace the computations of a program up to a moment."""
    execution = inspection.execution
    return execution.execute_beside(lambda now: Tracer(execution, until, now, program), until)


def _of_element(
    inspection: Inspection,
    element: Element,
    held: Tensor,
    until: Moment,
    only_nan: bool,
    following: Following,
) -> Why:
    value = element_text(held)
    write = write_of(inspection.execution, element, until)
    if write is None:
        what = f"{element} is {value}: no program of this launch has written it"
        return Why(what, None)
    tracer = traced(inspection, write.program, Moment(write.time + 1, 0))
    op, operands = tracer.stores.get(write.time, (write.op, ()))
    if ttng.AsyncTmaCopyLocalToGlobal.matches(write.op):
        op, operands = write.op, ()  # `op` is the wait at which it lands
    line = op.location.primary.line
    who = inspection.program_text(write.program)
    what = f"{element} is {value}: written by program {who} at line {line}"
    if tt.AtomicRmw.matches(write.op) and tt.AtomicRmw(write.op).kind not in ("xchg", "store"):
        what += ", which combined it atomically with the value before; that one is not followed"
    starts: list[tuple[int, Tensor]] = []
    addresses: list[tuple[int, Tensor]] = []
    if ttng.AsyncTmaCopyLocalToGlobal.matches(write.op):
        copy = tracer.bulk_store_of(op, write.lane, element.offset_elems)
        if copy is not None and (data := tracer.instances[copy].data) is not None:
            starts.append((copy, bit_mask(data.shape, write.lane)))
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
    return sliced(
        inspection,
        Moment(write.time, 0),
        tracer,
        what,
        write.program,
        starts,
        addresses,
        only_nan,
        op,
        following,
    )


def sliced(
    inspection: Inspection,
    until: Moment,
    tracer: Tracer,
    what: str,
    program: int,
    starts: Sequence[tuple[int, Tensor]],
    addresses: Iterable[tuple[int, Tensor]],
    only_nan: bool,
    store: Operation | None = None,
    following: Following | None = None,
) -> Why:
    """The explanation of elements of instances, or of elements that are addresses or masks.

    If `following` is given, it goes on with the programs and launches that wrote what was loaded.

    Raises:
        UsageError: only NaN is wanted, and none of the elements is NaN.
    """
    if only_nan and not any(
        bool(is_nan(tracer.instances[number].data)[mask].any()) for number, mask in starts
    ):
        raise UsageError(f"why-nan: {what}, which is no NaN")
    values = Slice(tracer, only_nan)
    values.follow(starts)
    if store is not None:
        values.line(store, 1 << 62)
    places = Slice(tracer, False, names_ops=False)
    if not only_nan:
        places.follow([*addresses, *values.addresses])
    computed = values.sorted()
    known = {line.frames for line in computed}
    addressed = [line for line in places.sorted() if line.frames not in known]
    inputs = dict.fromkeys([*values.inputs, *places.inputs])
    if not only_nan:
        _add_exact(inspection, tracer, program, computed)
    loads = _Loads.of(inspection, [*computed, *addressed], until)
    earlier = []
    if following is not None and following.left:
        earlier = list(loads.followed(computed, only_nan, following))
    sources = loads.sentences()
    return Why(
        what,
        program,
        None if store is None else store.location.primary.line,
        tuple(computed),
        tuple(addressed),
        tuple(inputs),
        tuple(sources),
        tuple(earlier),
    )


def _add_exact(inspection: Inspection, tracer: Tracer, program: int, lines: Sequence[Line]) -> None:
    """Note the values in fp64 of floats that were computed in several iterations."""
    execution = inspection.execution
    instances = [each for line in lines for name in line.sums for each, _ in line.taken[name]]
    wanted = frozenset(
        each.value
        for each in instances
        if each.value is not None and each.value.defining_op is each.op
    )
    if execution.has_assignments or not wanted or not execution.code.stage.is_front_end:
        return
    known = execution.exact_values(program, wanted)
    visits: dict[int, int] = {}
    counts: Counter[Value] = Counter()
    for instance in tracer.instances:
        if instance.value is not None:
            visits[instance.number] = counts[instance.value]
            counts[instance.value] += 1
    for line in lines:
        for name in line.sums:
            found = []
            for instance, mask in line.taken[name]:
                assert instance.value is not None
                times = known.get(instance.value, ())
                if visits[instance.number] < len(times):
                    tile = times[visits[instance.number]]
                    found.append(tile.reshape(mask.shape)[mask])
            if len(found) == len(line.values[name]):
                line.exact[name] = found


@dataclass(frozen=True, slots=True)
class _Loads:
    """Memory that lines have loaded, and its writers.

    Attributes:
        names: the names of the tensors, by allocation.
        writes: the last write of this launch to what was loaded, by allocation.
        reasons: why the launch that wrote a tensor is not followed, by allocation.
        entered: the allocations whose writers are followed.
    """

    inspection: Inspection
    names: dict[int, str]
    writes: dict[int, Write]
    reasons: dict[int, str] = field(default_factory=dict)
    entered: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, inspection: Inspection, lines: Iterable[Line], until: Moment) -> _Loads:
        """Return what lines have loaded, with the last writes to it in this launch."""
        bytes_of: dict[int, list[Tensor]] = {}
        names: dict[int, str] = {}
        for line in lines:
            for name, (buffer, offsets, _) in line.loads.items():
                bytes_of.setdefault(buffer.storage_key, []).append(_bytes(buffer, offsets))
                names[buffer.storage_key] = name
        wanted = {key: torch.cat(places) for key, places in bytes_of.items()}
        writes: dict[int, Write] = {}
        if wanted:
            execution = inspection.execution
            writes = execution.execute_beside(
                lambda now: SourceFinder(execution, until, now, wanted), until, is_whole=True
            ).found
        return cls(inspection, names, writes)

    def sentences(self) -> Iterator[str]:
        """Say who wrote each tensor, as far as that is known."""
        inspection = self.inspection
        for key, name in self.names.items():
            write, before = self.writes.get(key), inspection.launch.written_before.get(key)
            reason = self.reasons.get(key, "")
            if key in self.entered:
                continue
            if write is not None:
                who, at = inspection.program_text(write.program), write.op.location.primary.line
                where = f"last program {who} at line {at}"
                yield f"{name}: this launch has written there, {where}{reason}"
            elif before is not None:
                yield f"{name}: {before} has written it{reason}"

    def followed(
        self, lines: Sequence[Line], only_nan: bool, following: Following
    ) -> Iterator[Why]:
        """Explain one loaded element of each tensor, where it was written, and note who did."""
        done: set[int] = set()
        for line in lines:
            for name, (buffer, offsets, values) in line.loads.items():
                key = buffer.storage_key
                if key in done or not (places := _bytes(buffer, offsets)).numel():
                    continue
                done.add(key)
                at = self._chosen(key, places, torch.cat(values))
                if at is None:
                    continue
                byte, value = int(places[at]), torch.cat(values)[at]
                found = self._one(buffer, byte, value, only_nan, following)
                if found is None:
                    continue
                writer, explained = found
                self.entered.add(key)
                for each in lines:
                    if name in each.loads:
                        each.stored[name] = writer
                count = len(set(places.tolist()))
                one = f", one of {count:,} that were loaded," if count > 1 else ""
                shown = _shown(name, buffer, byte)
                yield replace(explained, what=f"{shown}{one} is from {writer}: {explained.what}")

    def _chosen(self, key: int, places: Tensor, values: Tensor) -> int | None:
        """The position of the loaded element to follow; None if another one was written."""
        if key not in self.writes:
            return _first_bad(values)
        hit = (places == self.writes[key].byte).nonzero().reshape(-1)
        return int(hit[0]) if hit.numel() else None

    def _one(
        self, buffer: Buffer, byte: int, value: Tensor, only_nan: bool, following: Following
    ) -> tuple[str, Why] | None:
        """The writer of an element, and its computation there; None if that is not known."""
        inspection, key = self.inspection, buffer.storage_key
        write, before = self.writes.get(key), inspection.launch.written_before.get(key)
        only_nan = only_nan and bool(is_nan(value).any())
        further = following.further()
        if write is not None:
            element = element_at(buffer.name or "memory", buffer, byte)
            if element is None:
                return None
            until = Moment(write.time + 1, 0)
            found = _of_element(inspection, element, value, until, only_nan, further)
            program = inspection.program_text(write.program)
            return f"program {program} at line {write.op.location.primary.line}", found
        return (
            None
            if before is None
            else self._earlier(buffer, before, byte, value, only_nan, further)
        )

    def _earlier(
        self,
        buffer: Buffer,
        writer: Writer,
        byte: int,
        value: Tensor,
        only_nan: bool,
        following: Following,
    ) -> tuple[str, Why] | None:
        """The last launch that wrote an element, and its computation there.

        None if it cannot be followed; `reasons` then says why.
        """
        at, key, who = self.inspection, buffer.storage_key, "it"
        address = at.launch.origins.get(key, key)
        try:
            while True:
                again = executed_again(at, writer, address, byte, value, following.budget)
                at = again.inspection
                if write_of(at.execution, again.element, at.moment) is not None:
                    break
                before, shown = writer_before(again), _shown(self.names[key], buffer, byte)
                if before is None:
                    self.reasons[key] = f", but no launch that is remembered has written {shown}"
                    return None
                writer, who = before, f"{before}, which may have written {shown},"
            refuse_unknown(again, ())
            found = _of_element(at, again.element, value, at.moment, only_nan, following)
            lines = (*found.computed, *found.addressed)
            refuse_unknown(again, (each for line in lines for each, *_ in line.loads.values()))
        except CannotFollowError as error:
            command = command_there(writer, address, byte)
            self.reasons[key] = f"; {who} is not interpreted again, as {error}: {command}"
            return None
        return f"{writer} at line {found.line}", found


def _bytes(buffer: Buffer, offsets: Sequence[Tensor]) -> Tensor:
    return (torch.cat(list(offsets)) + buffer.storage_offset) * buffer.itemsize


def _first_bad(values: Tensor) -> int:
    """The position of the first NaN, else of the first infinity, else 0."""
    if not values.is_floating_point():
        return 0
    wide = values.float() if values.element_size() < 2 else values
    bad = wide.isnan() if bool(wide.isnan().any()) else ~wide.isfinite()
    return int(bad.reshape(-1).int().argmax())


def _shown(name: str, buffer: Buffer, byte: int) -> str:
    element = element_at(name, buffer, byte)
    return f"an element of {name}" if element is None else str(element)


def why_nan(inspection: Inspection, text: str, frame: int = 0) -> Why:
    """The slice of an element that is NaN, of NaN alone, back to where it was born.

    Args:
        inspection: the inspection of the stop.
        text: an element as `why` takes it, or the bare name of a tensor argument or of a tile: then
            its first NaN, of a tile in the first selected program that has one.
        frame: the frame of the variables, 0 for the innermost.

    Raises:
        UsageError: there is no such element, or no NaN.
    """
    name = text.strip()
    if not name.isidentifier():
        return why(inspection, text, frame, only_nan=True)
    found = _found(inspection, name, frame)
    if isinstance(found, Tile):
        row, *index = _first(found.data, name)
        program = inspection.programs[row]
        return why(inspection, _element(name, index), frame, only_nan=True, program=program)
    if isinstance(found, Pointers) and found.is_whole_tensor and found.name is not None:
        assert found.tensor is not None
        name, found = found.name, found.tensor
    if isinstance(found, Constant):
        found = found.value  # of the script
    if isinstance(found, Tensor):
        return why(inspection, _element(name, _first(found, name)), frame, only_nan=True)
    raise UsageError(f"why-nan: `{name}` is neither a tensor argument nor a tile of numbers")


def _found(inspection: Inspection, name: str, frame: int) -> object:
    try:
        return inspection.ask(name, frame)
    except UsageError:
        argument = argument_named(name, inspection.launch.arguments)
        if argument is None:
            raise
        return inspection.launch.arguments[argument]


def _first(data: Tensor, name: str) -> list[int]:
    places = is_nan(data).nonzero()
    if not len(places):
        raise UsageError(f"why-nan: `{name}` has no NaN in the selected programs that are here")
    first: list[int] = places[0].tolist()
    return first


def _element(name: str, index: list[int]) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name
