"""Others' kernels that the lines of a script launched, added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.instrument.activities import recorded_activities
from tkdebug.instrument.device_records import Origin

if TYPE_CHECKING:
    from tkdebug.instrument.session import Session

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class OriginTotal:
    """The launches from one line, under the same scopes.

    Attributes:
        origin: the origin; None for launches from no known line.
    """

    origin: Origin | None
    count: int
    total_ns: int


def recorded_origins(session: Session) -> Mapping[tuple[int, int], Origin]:
    """The origins of a session by process and number."""
    found: dict[tuple[int, int], Origin] = {}
    since = 0
    while page := session.records(Origin, since, limit=_PAGE):
        found.update(((one.process, one.event.number), one.event) for one in page)
        since = page[-1].seq
    return found


def origin_totals(session: Session) -> tuple[OriginTotal, ...]:
    """The lines that launched others' kernels, the longest first; () if none was recorded."""
    origins = recorded_origins(session)
    if not origins:
        return ()
    sums: dict[tuple[int, int], list[int]] = {}
    for activity in recorded_activities(session):
        if not activity.launch:
            place = (activity.process, activity.origin) if activity.origin else (0, 0)
            one = sums.setdefault(place, [0, 0])
            one[0] += 1
            one[1] += activity.duration_ns
    found = [OriginTotal(origins.get(place), *one) for place, one in sums.items()]
    return tuple(sorted(found, key=lambda total: -total.total_ns))
