"""How many native launches of a process were checked, as sessions keep it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tkdebug.storage import stored


@stored("checked_launches")
@dataclass(frozen=True, slots=True)
class LaunchCounts:
    """Launches of one process since it last said so.

    Attributes:
        checked: launches whose accesses were checked.
        captured: launches that were not, as they became part of a CUDA graph.
    """

    checked: int
    captured: int

    def since(self, before: LaunchCounts) -> LaunchCounts:
        """What came after `before`."""
        return LaunchCounts(self.checked - before.checked, self.captured - before.captured)


def total_counts(counts: Iterable[LaunchCounts]) -> LaunchCounts | None:
    """Of all processes of a run; None where no launches were to be checked."""
    found = list(counts)
    if not found:
        return None
    checked = sum(count.checked for count in found)
    return LaunchCounts(checked, sum(count.captured for count in found))
