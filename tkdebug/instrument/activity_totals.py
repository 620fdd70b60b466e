"""Times of activities by kind and name, added up."""

from __future__ import annotations

from collections.abc import Iterable

from tkdebug.instrument.device_records import ActivityTotal


def sum_of_totals(totals: Iterable[ActivityTotal]) -> tuple[ActivityTotal, ...]:
    """One total for each kind and name, in graphs and not, the longest first."""
    found: dict[tuple[str, str, bool], ActivityTotal] = {}
    for total in totals:
        key = (total.kind, total.name, total.in_graph)
        found[key] = found[key].plus(total) if key in found else total
    return tuple(sorted(found.values(), key=lambda t: (-t.total_ns, t.kind, t.name, t.in_graph)))
