"""The latest native launches of this process, kept for the case that one of them crashes.

They are kept only while something watches for crashes. Invariant: nothing here holds on to a
tensor: arguments are kept as addresses and numbers, others not at all, and callers as code and
instruction.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from tkdebug.errors import Frame
from tkdebug.process.tracebacks import OWN_FOLDER
from tkdebug.records.events import LaunchRecord
from tkdebug.runtime.launch.requests import Grid

if TYPE_CHECKING:
    from tkdebug.runtime.device.platform import DeviceKernel

KEPT_LAUNCHES = 4096
_NS_PER_S = 1_000_000_000
_PLAIN = frozenset((int, float, bool))
# Beginnings of the names of tkdebug's files, and of code that it generates for launches.
_OWN_FILES = (OWN_FOLDER, "<launch of ")
# Packages that launch for scripts.
_LIBRARIES = frozenset(("triton", "torch"))
# Modules of code that Inductor generates; `call` runs a graph, from the first launch to the last.
_GRAPHS = "torch._inductor.runtime.compile_tasks."


class _Owner(Enum):
    """Owner of code that launches."""

    SCRIPT = auto()
    LIBRARY = auto()
    GRAPH = auto()


# Code, and the instruction in it.
Place = tuple[CodeType, int]


@dataclass(frozen=True, slots=True)
class Flight:
    """One launch.

    Attributes:
        ordinal: the number of the launch among this process's native launches, counted from 1.
        launch_id: the id in its `LaunchRecord`.
        values: the launcher's value for each parameter that is not constexpr; None for a value that
            is neither an address nor a number.
        stream: handle of the stream that it was made on.
        span: the launch's time on the device, None if nobody measures it.
        place: the place where the script made it; None if no frame is the script's.
    """

    ordinal: int
    launch_id: int
    kernel: DeviceKernel
    grid: Grid
    values: tuple[Any, ...]
    span: Any
    stream: int = 0
    place: Place | None = None

    @property
    def caller(self) -> Frame | None:
        """The line of the script that made it; None if unknown."""
        if self.place is None:
            return None
        code, instruction = self.place
        for start, end, line in code.co_lines():
            if start <= instruction < end and line is not None:
                return Frame(code.co_filename, line, code.co_name)
        return None

    @property
    def ended_ns(self) -> int | None:
        """The time of its end, since 1970, or when that was seen; None if it may still run."""
        settled_ns: int | None = getattr(self.span, "settled_ns", None)
        return settled_ns

    def had_ended(self, time_s: int | None = None) -> bool:
        """Whether it is known to have ended well, at that time (seconds since 1970) or by now.

        After a crash the driver lets all that was launched pass as ended, so the time matters.
        """
        ended_ns = self.ended_ns
        return ended_ns is not None and (time_s is None or ended_ns < time_s * _NS_PER_S)


class InFlight:
    """The latest launches, oldest first.

    Attributes:
        is_on: whether launches are to be added.
        keep: adds one that has no record, with an `ordinal()`.
        is_scripts: whether code, by its id, is known to be the script's.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.ordinal = itertools.count(1).__next__
        # Flights, or what makes one: most are never looked at.
        self._flights: deque[Flight | PackedFlight] = deque(maxlen=KEPT_LAUNCHES)
        self.keep: Callable[[PackedFlight], None] = self._flights.append
        # By the id of code, which takes 0.4 us to hash; it is held on to.
        self._owners: dict[int, _Owner] = {}
        self._of_scripts: set[int] = set()
        self.is_scripts: Callable[[int], bool] = self._of_scripts.__contains__
        self._seen_code: list[CodeType] = []
        # The frame (its id) of the compiled graph that launched last, its code and instruction,
        # and the script's place that was found for it.
        self._graph: tuple[int, CodeType | None, int, Place | None] = (0, None, 0, None)

    def add(self, kernel: DeviceKernel, record: LaunchRecord, passed: tuple[Any, ...]) -> None:
        """Keep a launch that was just made, with the code that made it."""
        flight = Flight(
            self.ordinal(),
            record.id,
            kernel,
            record.grid,
            plain(passed),
            record.device_ns,
            record.stream,
            self.place_from(sys._getframe(2)),  # noqa: SLF001
        )
        self._flights.append(flight)

    def place_from(self, frame: FrameType | None) -> Place | None:
        """Return the place of the nearest frame of the script's, from `frame` outward, or None.

        A compiled graph makes its launches one after the other from one frame, dozens of calls
        below the script's. A later instruction of the same frame has the same place, for which the
        stack is not walked again.
        """
        graph: tuple[int, CodeType, int] | None = None
        while frame is not None:
            code = frame.f_code
            owner = self._owners.get(id(code))
            if owner is None:
                owner = self._owners[id(code)] = _owner(frame)
                self._seen_code.append(code)
                if owner is _Owner.SCRIPT:
                    self._of_scripts.add(id(code))
            if owner is _Owner.SCRIPT:
                place = code, frame.f_lasti
                break
            if owner is _Owner.GRAPH and graph is None:
                graph = id(frame), code, frame.f_lasti
                number, latest, before, found = self._graph
                if number == graph[0] and latest is code and before < graph[2]:
                    self._graph = (*graph, found)
                    return found
            frame = frame.f_back
        else:
            return None
        if graph is not None:
            self._graph = (*graph, place)
        return place

    @property
    def latest(self) -> tuple[Flight, ...]:
        """The launches that are kept, oldest first."""
        return tuple(
            flight if isinstance(flight, Flight) else _unpacked(flight) for flight in self._flights
        )


# Ordinal, id, kernel, x, y, z, stream, what knows its time, the code and instruction of its place
# (None and 0 where there is none), and its values. One tuple: each takes 40 ns to make and to free.
PackedFlight = tuple[Any, ...]
_BEFORE_VALUES = 10
NOWHERE = (None, 0)


def _owner(frame: FrameType) -> _Owner:
    module = str(frame.f_globals.get("__name__", ""))
    if module.startswith(_GRAPHS) and frame.f_code.co_name == "call":
        return _Owner.GRAPH
    is_library = module.partition(".")[0] in _LIBRARIES
    if is_library or frame.f_code.co_filename.startswith(_OWN_FILES):
        return _Owner.LIBRARY
    return _Owner.SCRIPT


def plain(passed: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a launcher's arguments, None for each that is neither an address nor a number."""
    return tuple([value if value.__class__ in _PLAIN else None for value in passed])


def _unpacked(packed: PackedFlight) -> Flight:
    ordinal, launch, kernel, x, y, z, stream, packer, code, at = packed[:_BEFORE_VALUES]
    values, place = packed[_BEFORE_VALUES:], None if code is None else (code, at)
    return Flight(ordinal, launch, kernel, (x, y, z), values, packer.time_of(launch), stream, place)


IN_FLIGHT = InFlight()
