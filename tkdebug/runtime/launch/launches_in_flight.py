"""The latest native launches of this process, kept for the case that one of them crashes.

Only while something watches for crashes. Invariant: nothing here holds on to a tensor: arguments
are kept as addresses and numbers, others not at all.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tkdebug.events import LaunchRecord
from tkdebug.runtime.launch.grid import Grid

if TYPE_CHECKING:
    from tkdebug.hook_chain import LaunchPacker
    from tkdebug.runtime.launch.native_kernel import NativeKernel

KEPT_LAUNCHES = 4096
_NS_PER_S = 1_000_000_000
_PLAIN = frozenset((int, float, bool))


@dataclass(frozen=True, slots=True)
class Flight:
    """One launch.

    Attributes:
        ordinal: of this process's native launches, counted from 1.
        launch_id: as its `LaunchRecord` has it.
        values: what the launcher was given for each parameter that is not constexpr; None for
            what is neither an address nor a number.
        stream: handle of the stream that it was made on.
        span: the launch's time on the device, None where nobody measures it.
    """

    ordinal: int
    launch_id: int
    kernel: NativeKernel
    grid: Grid
    values: tuple[Any, ...]
    span: Any
    stream: int = 0

    def had_ended(self, time_s: int | None = None) -> bool:
        """Whether it is known to have ended well, at that time (seconds since 1970) or by now.

        After a crash the driver lets all that was launched pass as ended, so the time matters.
        """
        settled_ns: int | None = getattr(self.span, "settled_ns", None)
        return settled_ns is not None and (time_s is None or settled_ns < time_s * _NS_PER_S)


class InFlight:
    """The latest launches, oldest first.

    Attributes:
        watched: whether launches are to be added.
    """

    def __init__(self) -> None:
        self.watched = False
        self._ordinals = itertools.count(1)
        # Flights, or what makes one: most are never looked at.
        self._flights: deque[Flight | _Packed] = deque(maxlen=KEPT_LAUNCHES)

    def add(self, kernel: NativeKernel, record: LaunchRecord, passed: tuple[Any, ...]) -> None:
        """Keep a launch that was just made."""
        values = _plain(passed)
        self._flights.append(
            Flight(
                next(self._ordinals),
                record.id,
                kernel,
                record.grid,
                values,
                record.device_ns,
                record.stream,
            )
        )

    def add_packed(
        self,
        kernel: NativeKernel,
        launch: int,
        grid: Grid,
        passed: tuple[Any, ...],
        stream: int,
        packer: LaunchPacker,
    ) -> None:
        """Keep a launch that has no record; `packer` knows its time."""
        launched = (launch, kernel, grid, _plain(passed), stream)
        self._flights.append((next(self._ordinals), *launched, packer))

    @property
    def latest(self) -> tuple[Flight, ...]:
        """Those that are kept, oldest first."""
        return tuple(
            flight if isinstance(flight, Flight) else _unpacked(flight) for flight in self._flights
        )


_Packed = tuple[int, int, "NativeKernel", Grid, tuple[Any, ...], int, "LaunchPacker"]


def _plain(passed: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([value if value.__class__ in _PLAIN else None for value in passed])


def _unpacked(packed: _Packed) -> Flight:
    ordinal, launch, kernel, grid, values, stream, packer = packed
    return Flight(ordinal, launch, kernel, grid, values, packer.time_of(launch), stream)


IN_FLIGHT = InFlight()
