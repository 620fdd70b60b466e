"""Which launches run, as far as that is known without waiting for the device.

A stream runs its launches in their order: behind the newest one that is known to have ended, the
next one runs, or what others launched before it. Invariant: only streams that the driver calls busy
are looked at, since each look at a launch may be a query of the session.
"""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.launch.launches_in_flight import Flight


@dataclass(frozen=True, slots=True)
class Running:
    """Launches of one busy stream.

    Attributes:
        flights: those that are not known to have ended, oldest first; at least one.
        last_end_ns: when the one before them ended, since 1970; None where that is not known.
    """

    flights: tuple[Flight, ...]
    last_end_ns: int | None


def running_launches() -> list[Running]:
    """The launches that have not ended, by stream, that with the oldest one first."""
    from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT

    dumps = platform_in_force().crash_dumps
    if dumps is None:
        return []
    streams: dict[tuple[int, int], list[Flight]] = {}
    for flight in IN_FLIGHT.latest:
        streams.setdefault((flight.kernel.device, flight.stream), []).append(flight)
    busy = [flights for place, flights in streams.items() if dumps.is_busy(*place)]
    found = [_running(flights) for flights in busy]
    return sorted(
        (one for one in found if one.flights), key=lambda running: running.flights[0].ordinal
    )


def oldest_running() -> int | None:
    """Ordinal of the oldest launch that has not ended; None where no stream with one is busy."""
    running = running_launches()
    return running[0].flights[0].ordinal if running else None


def has_passed(span: object) -> bool:
    """Whether the end of a launch's time on the device has passed, where that is measured."""
    ask = getattr(span, "has_passed", None)
    return bool(ask is not None and ask())


def _running(flights: list[Flight]) -> Running:
    """What of a stream's launches, oldest first, has not ended."""
    for place in reversed(range(len(flights))):
        flight = flights[place]
        ended_ns = flight.ended_ns
        if ended_ns is not None or has_passed(flight.span):
            return Running(tuple(flights[place + 1 :]), ended_ns)
    return Running(tuple(flights), None)
