"""Counts of a process's native launches that were checked, as sessions keep them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tkdebug.records.storage import stored


@stored("checked_launches")
@dataclass(frozen=True, slots=True)
class LaunchCounts:
    """Native launches of one process since its last such record.

    Attributes:
        checked: launches whose accesses were checked.
        captured: launches that were not checked, as they became part of a CUDA graph.
    """

    checked: int
    captured: int

    def since(self, before: LaunchCounts) -> LaunchCounts:
        """Return the counts of launches after `before`."""
        return LaunchCounts(self.checked - before.checked, self.captured - before.captured)


@stored("run_checks")
@dataclass(frozen=True, slots=True)
class RunChecks:
    """Checks of a run.

    Attributes:
        not_looked_for: kinds of faults that interpreted launches were not checked for.
    """

    not_looked_for: tuple[str, ...]


@stored("kernel_checks")
@dataclass(frozen=True, slots=True)
class KernelChecks:
    """Checks that not all launches of a kernel need, for one process since its last record.

    Attributes:
        kernel: the kernel's name.
        checked: launches whose accesses were checked.
        by_check: for each check that was to be made, such as `race`: the number of these launches
            that it looked at.
    """

    kernel: str
    checked: int
    by_check: Mapping[str, int]

    @property
    def text(self) -> str:
        """The text `add: of 5 checked launches, 2 for race`; "" if every launch got every check."""
        counts: dict[int, list[str]] = {}
        for check, launches in sorted(self.by_check.items()):
            if launches != self.checked:
                counts.setdefault(launches, []).append(check)
        if not counts:
            return ""
        shown = (f"{n or 'none'} for {', '.join(counts[n])}" for n in sorted(counts, reverse=True))
        noun = "launch" if self.checked == 1 else "launches"
        return f"{self.kernel}: of {self.checked:,} checked {noun}, {'; '.join(shown)}"


class ChecksTally:
    """Counts the launches of kernels, and the checks of each."""

    def __init__(self) -> None:
        self._launches: Counter[str] = Counter()
        self._looked_at: dict[str, Counter[str]] = {}

    def launched(self, kernel: str, wanted: Iterable[str]) -> None:
        """Count a checked launch, and name the checks that it is to get."""
        self._launches[kernel] += 1
        self._looked_at.setdefault(kernel, Counter()).update(dict.fromkeys(wanted, 0))

    def looked_at(self, kernel: str, checks: Collection[str]) -> None:
        """Count the checks that a launch got."""
        self._looked_at.setdefault(kernel, Counter()).update(checks)

    def records(self) -> Iterable[KernelChecks]:
        """The records of kernels that were to get checks."""
        for kernel, checked in self._launches.items():
            if self._looked_at[kernel]:
                yield KernelChecks(kernel, checked, dict(self._looked_at[kernel]))


def all_checks(found: Iterable[KernelChecks]) -> list[KernelChecks]:
    """One record for each kernel of a run, in the order of their first launches."""
    launches: Counter[str] = Counter()
    by_check: dict[str, Counter[str]] = {}
    for one in found:
        launches[one.kernel] += one.checked
        by_check.setdefault(one.kernel, Counter()).update(one.by_check)
    return [KernelChecks(name, count, dict(by_check[name])) for name, count in launches.items()]


@stored("access_tests")
@dataclass(frozen=True, slots=True)
class AccessTests:
    """Counts of the accesses of checked kernels by the way they are tested, each build once.

    Attributes:
        proven: accesses that are not tested, as they cannot leave their tensor.
        before_loops: accesses that are tested once before a loop.
        by_tile: accesses that are tested once for each tile.
        by_element: accesses that are tested at each element.
    """

    proven: int = 0
    before_loops: int = 0
    by_tile: int = 0
    by_element: int = 0

    def __add__(self, other: AccessTests) -> AccessTests:
        """Add two counts."""
        return AccessTests(
            self.proven + other.proven,
            self.before_loops + other.before_loops,
            self.by_tile + other.by_tile,
            self.by_element + other.by_element,
        )

    @property
    def text(self) -> str:
        """The text `9 accesses: 6 tested by tile, 3 by element`; "" if there are no accesses."""
        counts = (
            (self.before_loops, "before loops"),
            (self.by_tile, "by tile"),
            (self.by_element, "by element"),
        )
        tested = ", ".join(f"{count:,} {how}" for count, how in counts if count)
        # Said once: `6 tested before loops, 3 by element`.
        number, _, how = tested.partition(" ")
        shown = [f"{self.proven:,} proven"] if self.proven else []
        shown += [f"{number} tested {how}"] if tested else []
        total = self.proven + sum(count for count, _ in counts)
        accesses = "access" if total == 1 else "accesses"
        return f"{total:,} {accesses}: {', '.join(shown)}" if total else ""


def access_tests(tests: Iterable[str]) -> AccessTests:
    """Count the accesses of one kernel by its sites' tests (`compiler.sites.checks.TESTS`)."""
    found = list(tests)
    names = ("proven", "before-loop", "tile", "element")
    return AccessTests(*(found.count(name) for name in names))


def total_counts(counts: Iterable[LaunchCounts]) -> LaunchCounts | None:
    """Add up the counts of a run's processes; None if no launches were to be checked."""
    found = list(counts)
    if not found:
        return None
    checked = sum(count.checked for count in found)
    return LaunchCounts(checked, sum(count.captured for count in found))
