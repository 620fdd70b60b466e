"""Messages and launches from the script's process, as events for the store.

Responsible for the meaning of numbers in packed launches, for launches that wait until that is
known, and for joining CUPTI's records with launches. The columns of a launch are made of texts that
launches share: encoding all of it again for each would take longer than storing it.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tkdebug.instrument.cupti.activity_join import OpSpans
from tkdebug.instrument.cupti.joining import Made
from tkdebug.instrument.cupti.layouts import RecordError, layout_of
from tkdebug.instrument.recording_process.channel import Message
from tkdebug.instrument.recording_process.packing import decoded_options
from tkdebug.instrument.recording_process.ring import (
    ENDED,
    OPERATION,
    TIME_SOURCES,
    TIMED,
    PackedLaunch,
)
from tkdebug.instrument.records import Launch
from tkdebug.instrument.session_file.queued_events import (
    EncodedLaunch,
    Event,
    LaunchEnded,
    LaunchStarted,
    SeenFault,
    SeenFaults,
    Stamped,
)
from tkdebug.records.columns import columns_of, storable_ns
from tkdebug.records.events import ArgumentInfo
from tkdebug.records.hook_chain import LentBuffer
from tkdebug.records.running_faults import ShownKernel, seen

if TYPE_CHECKING:
    from tkdebug.instrument.cupti.activity_join import ActivityJoin, Measured, Round

# Which arguments lie in slots, and their struct codes.
Scalars = Sequence[tuple[int, str]]
_COLUMNS = {column.name: column for column in columns_of(Launch)}
# No repr of a number contains it.
_HOLE = "?"
_UNKNOWN_NAME = "(its name was lost with the script's process)"
# Name, hash, mode and options of a kernel; which arguments lie in slots, and how.
Variant = tuple[str, str, str, str]
_MOST_STREAM = 1 << 63
_T = TypeVar("_T")


def column_encoder(name: str) -> Callable[[object], str]:
    """Return the function that encodes a column of launches."""
    encode = _COLUMNS[name].encode
    assert encode is not None
    return cast("Callable[[object], str]", encode)


encode_options = column_encoder("options")
encode_scopes = column_encoder("scopes")
encode_stream = column_encoder("stream")
_encode_arguments = column_encoder("arguments")
_encode_grid = column_encoder("grid")


@lru_cache(maxsize=4096)
def grid_text(x: int, y: int, z: int) -> str:
    """Return the column `grid`."""
    return _encode_grid((x, y, z))


class ArgumentTexts:
    """The column `arguments` of launches that differ in their scalars alone."""

    def __init__(self, infos: tuple[ArgumentInfo, ...], scalars: Scalars) -> None:
        self._unpack = struct.Struct("=" + "".join(code for _, code in scalars)).unpack_from
        self._parts = _parts_around(infos, [place for place, _ in scalars])
        self._last: tuple[bytes, str] = (b"", "")

    def text(self, scalars: bytes) -> str:
        """Return the text of a launch with these scalars."""
        if self._last[0] == scalars:
            return self._last[1]
        values = self._unpack(scalars)
        pieces = [self._parts[0]]
        for value, part in zip(values, self._parts[1:], strict=True):
            pieces += (repr(value), part)
        text = "".join(pieces)
        self._last = (scalars, text)
        return text


def _parts_around(infos: tuple[ArgumentInfo, ...], places: Sequence[int]) -> list[str]:
    """The text of `infos`, cut at the values of the scalars at `places`."""
    parts, text = [], "["
    for place, info in enumerate(infos):
        text += ", " if place else ""
        if place not in places:
            text += _encode_arguments((info,))[1:-1]
            continue
        one = _encode_arguments((replace(info, value=_HOLE),))[1:-1]
        # The value comes after name and type, neither of which is looked into.
        before = _encode_arguments((replace(info, value=""),))[1:-1]
        cut = next(at for at, (a, b) in enumerate(zip(one, before, strict=False)) if a != b)
        parts.append(text + one[:cut])
        text = one[cut + len(_HOLE) :]
    return [*parts, text + "]"]


_NO_SCOPES = encode_scopes(())
_NO_FACTS = ArgumentTexts((), ())


class Received:
    """The messages and launches that came, in order.

    Args:
        ask: sends a message to the script's process.
        memory: gives the memory that the script's process shares, by its number.
    """

    def __init__(self, ask: Callable[..., None], memory: Callable[[int], mmap.mmap]) -> None:
        self._ask = ask
        self._memory = memory
        self._lent: mmap.mmap | None = None
        self._running = RunningFaults()
        self._variants: dict[int, tuple[Variant, Scalars]] = {}
        self._facts: Generations[tuple[ArgumentInfo, ...] | ArgumentTexts] = Generations(_NO_FACTS)
        self._scopes: Generations[str] = Generations(_NO_SCOPES)
        self._arguments: dict[int, tuple[ArgumentInfo, ...]] = {}
        self._waiting: list[PackedLaunch] = []
        self._events: list[Event] = []
        # Ends of launches, held back while their launch may be among the waiting ones.
        self._ends: list[LaunchEnded] = []
        # Ends in slots, held back until the messages sent before them have come: these may contain
        # their launches, which no slot could hold.
        self._ends_in_slots: list[LaunchEnded] = []
        self._join: ActivityJoin | None = None
        self._version = 0
        self._spans: OpSpans | None = None
        self._rounds: list[Round] = []
        self._names: dict[int, str] = {}
        self._asked: set[int] = set()
        self._is_given_up = False
        # Launches that CUPTI times; of others it has records too, while it is on trial.
        self._timed: set[int] = set()
        self._devices: set[int] = set()

    def messages(self, messages: Iterable[Message]) -> list[Event]:
        """Return the events among messages that can be stored now; keep the other contents."""
        self._ends += self._ends_in_slots
        self._ends_in_slots = []
        for kind, *parts in messages:
            self._take(kind, *parts)
        return self._taken()

    def _take(self, kind: str, *parts: Any) -> None:
        if kind == "event":
            (event,) = parts
            (self._ends if isinstance(event, LaunchEnded) else self._events).append(event)
        elif kind == "started":
            *first, options, number, stream, start_ns, scopes = parts
            plain = (*first, decoded_options(options), self._arguments[number])
            self._events.append(LaunchStarted._make((*plain, stream, start_ns, scopes)))
        elif kind == "arguments":
            self._arguments.update([parts])
        elif kind == "forget arguments":
            self._arguments.clear()
        elif kind == "variant":
            number, (*names, options), scalars = parts
            self._variants[number] = ((*names, encode_options(options)), scalars)
        elif kind == "facts":
            self._facts[parts[0]] = parts[1]
        elif kind == "scopes":
            self._scopes[parts[0]] = encode_scopes(parts[1])
        elif kind == "forget":
            at, first_facts, first_scopes = parts
            self._facts.forget(at, first_facts)
            self._scopes.forget(at, first_scopes)
        elif kind == "made":
            self._made(Made(*parts[0]))
        elif kind == "cupti":
            self._version, has_origins = parts
            self._spans = OpSpans() if has_origins else None
        elif kind == "memory":
            self._lent = self._memory(parts[0])
        elif kind == "tables":
            number, stride_bytes = parts
            # If the script has closed or replaced the descriptor, no findings are shown.
            with contextlib.suppress(OSError, ValueError):
                self._running.add_tables(memoryview(self._memory(number)), stride_bytes)
        elif kind == "checked":
            self._running.add_kernel(parts[0])
        elif kind == "round":
            taken, lent = parts
            self._rounds.append(taken._replace(buffers=self._read(lent)))
        elif kind == "names":
            self._names.update(parts[0])
        else:
            assert kind == "no more records", kind
            self._is_given_up = True

    def _read(self, lent: Sequence[LentBuffer]) -> tuple[bytes, ...]:
        """Return the bytes in buffers, and give the buffers back."""
        memory = self._lent
        assert memory is not None, "it was shown before"
        found = []
        for one in lent:
            found.append(memory[one.at : one.at + one.size_bytes])
            memory[one.word_at] = 0
        return tuple(found)

    def launches(self, packed: Sequence[PackedLaunch], read: int) -> list[Event]:
        """Return the events of launches that came, as far as their references are known.

        Args:
            packed: packed launches in order.
            read: the number of the slot after the last one.
        """
        waiting, self._waiting = [*self._waiting, *packed], []
        for place, launch in enumerate(waiting):
            if not self._is_known(launch):
                # Later launches wait with it, so that launches stay in order.
                self._waiting = waiting[place:]
                break
            self._add(launch)
        if not self._waiting:
            self._facts.read_to(read)
            self._scopes.read_to(read)
        return self._taken()

    def _is_known(self, launch: PackedLaunch) -> bool:
        return launch.variant in (ENDED, OPERATION) or (
            launch.variant in self._variants
            and launch.facts in self._facts
            and (not launch.scopes or launch.scopes in self._scopes)
        )

    def _add(self, launch: PackedLaunch) -> None:
        if launch.variant == ENDED:
            source = TIME_SOURCES[launch.flags]
            end = LaunchEnded(launch.launch, launch.start_ns, None, source)
            self._ends_in_slots.append(end)
        elif launch.variant == OPERATION:
            if self._spans is not None:
                self._spans.add(launch.thread, launch.start_ns, launch.end_ns, launch.facts)
        else:
            self._events.append(self._started(launch))

    def _started(self, launch: PackedLaunch) -> EncodedLaunch:
        (kernel, kernel_hash, mode, options), scalars = self._variants[launch.variant]
        if launch.flags & TIMED:
            grid = (launch.x, launch.y, launch.z)
            made = Made(launch.launch, launch.thread, launch.start_ns, launch.end_ns, grid)
            self._made(made)
        facts = self._facts[launch.facts]
        if isinstance(facts, ArgumentTexts):
            texts = facts
        else:
            texts = self._facts[launch.facts] = ArgumentTexts(facts, scalars)
        stream = launch.stream
        return EncodedLaunch(
            launch.launch,
            kernel,
            kernel_hash,
            mode,
            grid_text(launch.x, launch.y, launch.z),
            options,
            texts.text(launch.scalars),
            stream if stream < _MOST_STREAM else encode_stream(stream),
            storable_ns(launch.start_ns),
            self._scopes[launch.scopes] if launch.scopes else _NO_SCOPES,
        )

    def _made(self, made: Made) -> None:
        self._timed.add(made.launch)
        self._activity_join().made(made)

    def _activity_join(self) -> ActivityJoin:
        if self._join is None:
            # Numpy is for those that have a GPU.
            from tkdebug.instrument.cupti.activity_join import ActivityJoin

            layout = layout_of(self._version)
            assert layout is not None
            self._join = ActivityJoin(
                layout, self._known_names, self._measured, self._on_record, self._spans
            )
        return self._join

    def joined(self) -> list[Event]:
        """Return what CUPTI's records say, as far as their names are known."""
        if self._rounds:
            self._activity_join().note_launches()
        try:
            while self._rounds and self._has_names(self._rounds[0]):
                devices = self._activity_join().join(self._rounds.pop(0))
                if devices:
                    self._ask("devices", devices)
        except RecordError as error:
            self._rounds.clear()
            self._ask("refused", str(error))
        if self._is_given_up and not self._rounds:
            self._is_given_up = False
            if self._join is not None:
                self._join.give_up()
        return self._taken()

    @property
    def has_ends_in_slots(self) -> bool:
        """Whether ends of launches wait for the next messages."""
        return bool(self._ends_in_slots)

    @property
    def wants_names(self) -> bool:
        """Whether rounds of CUPTI's records wait for names that were asked for."""
        return bool(self._rounds)

    def _has_names(self, taken: Round) -> bool:
        """Whether the names in a round are known; asks for missing ones."""
        missing = self._activity_join().names_of(taken) - self._names.keys()
        if missing - self._asked:
            self._asked |= missing
            self._ask("names", sorted(missing))
        return not missing

    def _known_names(self, addresses: list[int]) -> Mapping[int, str]:
        return {address: self._names.get(address, _UNKNOWN_NAME) for address in addresses}

    def _measured(self, measured: Measured) -> None:
        launch, duration_ns, *place = measured
        if launch in self._timed:
            self._timed.discard(launch)
            source = "none" if duration_ns is None else "cupti"
            self._ends.append(LaunchEnded(launch, duration_ns, None, source, *place))

    def _on_record(self, event: object) -> None:
        self._events.append(Stamped(event, time.time_ns()))

    def seen(self) -> list[Event]:
        """Return all findings of running launches as one event; [] if they have not changed."""
        found = self._running.look()
        return [] if found is None else [found]

    def left(self, is_killed: bool) -> list[Event]:
        """Return the last events: what is known without further answers of the script's process.

        Args:
            is_killed: whether the script's process ended without reporting that it is done.
        """
        for launch in self._waiting:
            if launch.variant in (ENDED, OPERATION, *self._variants):
                self._add(launch)
        self._waiting = []
        self._ends += self._ends_in_slots
        self._ends_in_slots = []
        for taken in self._rounds:
            self._activity_join().note_launches()
            self._activity_join().join(taken)
        self._rounds = []
        if self._join is not None:
            self._join.end_held()
        if self._join is not None and not is_killed:
            self._join.give_up()
        found = self._running.look(is_last=True)
        return [*self._taken(), *([] if found is None else [found])]

    def _taken(self) -> list[Event]:
        events, self._events = self._events, []
        if not self._waiting:
            events += self._ends
            self._ends = []
        return events


class Generations(Generic[_T]):
    """Values by number, forgotten in two steps.

    Launches that refer to forgotten values may still lie in the ring, or be written by a thread
    that has looked one up before. So a generation stays until the next one is forgotten, too, and
    the ring was read so far.

    Args:
        absent: the value returned for a number without one.
    """

    def __init__(self, absent: _T) -> None:
        self._absent = absent
        self._values: dict[int, _T] = {}
        self._forgotten: deque[tuple[int, int]] = deque()
        self._first = 0

    def __setitem__(self, number: int, value: _T) -> None:
        self._values[number] = value

    def __contains__(self, number: int) -> bool:
        return number in self._values or number < self._first

    def __getitem__(self, number: int) -> _T:
        return self._values.get(number, self._absent)

    def forget(self, at: int, first: int) -> None:
        """Have the values before `first` dropped later: see `read_to`; `at` is the slot now."""
        self._forgotten.append((at, first))

    def read_to(self, number: int) -> None:
        """Drop generations that no launch refers to, as the launches before that slot were read."""
        while len(self._forgotten) > 1 and self._forgotten[1][0] < number:
            _, self._first = self._forgotten.popleft()
            self._values = {n: v for n, v in self._values.items() if n >= self._first}


# The interval between two looks, and the most faults that are stored at a time.
LOOK_S = 0.2
MOST_FAULTS = 256


class RunningFaults:
    """The tables of faults that checked kernels of one process fill while they run.

    They lie in memory that this process maps, so the script's process does nothing for it.
    Invariant: a launch is left out once the script has read its table, as the script then reports
    its faults.
    """

    def __init__(self) -> None:
        self._tables: list[tuple[memoryview, int]] = []
        self._kernels: dict[int, ShownKernel] = {}
        self._last: tuple[SeenFault, ...] = ()
        self._due_s = 0.0

    def add_tables(self, memory: memoryview, stride_bytes: int) -> None:
        """Add tables to read.

        Args:
            memory: the memory that they lie in.
            stride_bytes: the distance from one table's header to the next one's.
        """
        self._tables.append((memory, stride_bytes))

    def add_kernel(self, kernel: ShownKernel) -> None:
        """Take the names of a checked build's sites."""
        self._kernels[kernel.number] = kernel

    def look(self, is_last: bool = False) -> SeenFaults | None:
        """All faults found so far; None if nothing changed, or `LOOK_S` is not over.

        Args:
            is_last: look even if `LOOK_S` is not over.
        """
        now_s = time.monotonic()
        if not self._tables or (now_s < self._due_s and not is_last):
            return None
        self._due_s = now_s + LOOK_S
        found = tuple(sorted(self._found(), key=lambda one: (one.launch_id, one.site)))
        if found == self._last:
            return None
        self._last = found
        return SeenFaults(found[:MOST_FAULTS])

    def _found(self) -> Iterator[SeenFault]:
        for memory, stride_bytes in self._tables:
            for one in seen(memory, stride_bytes):
                kernel = self._kernels.get(one.number)
                if kernel is None or one.site >= len(kernel.sites):
                    continue  # its sites are on their way
                kind, frames, tensor, state = kernel.sites[one.site]
                if state is not None:
                    place = (kind, frames, tensor, state)
                    yield SeenFault(
                        one.launch, one.site, kernel.kernel, *place, one.program, one.bad
                    )
