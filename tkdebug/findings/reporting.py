"""The way of a fault to the hooks: dropped, or marked as ignored or known, as the knobs say.

Invariant: the state of a fault in a run is decided here, in the process that had it; receivers use
its `state`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.checks import CHECK_NAMES, FIRST_RACES, NO_CHECKS, OWN_NAMES, RACE
from tkdebug.errors import UsageError, instead_of
from tkdebug.findings.source import is_ignored
from tkdebug.knobs import KNOBS
from tkdebug.records.events import ENDING_KINDS, IGNORABLE_KINDS, Fault, FaultState
from tkdebug.records.hook_chain import HOOKS
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.findings.baseline import KnownFault, UsedBaseline

# Functions that know more of a fault's place: each returns the fault with that, in this order.
REFINEMENTS: list[Callable[[Fault], Fault]] = []
_PLUGIN_KIND = "plugin-check"
_ASKED_KINDS = ("triton-refuses", "triton-accepts")


def report(fault: Fault, *, is_end: bool = False) -> None:
    """Hand `fault` to the hooks, unless its kernel or kind is not checked.

    Args:
        fault: the fault as it came up.
        is_end: whether the launch failed by it; such a fault can be known, but not ignored.
    """
    for refine in REFINEMENTS:
        fault = refine(fault)
    judged = _judged(fault, is_end or fault.kind in ENDING_KINDS)
    if judged is not None:
        HOOKS.fault(judged)


def state_of(fault: Fault) -> FaultState | None:
    """Return the state of a fault in this run; None if it is not reported."""
    judged = _judged(fault, fault.kind in ENDING_KINDS)
    return None if judged is None else judged.state


def is_checked(kernel: str) -> bool:
    """Whether the kernels of that name are checked."""
    patterns = KNOBS.only_kernels
    return not patterns or any(fnmatchcase(kernel, pattern) for pattern in patterns)


def checks_in_force() -> tuple[str, ...]:
    """The checks that were asked for, without those whose faults are ignored."""
    left_out = KNOBS.ignored_kinds
    if RACE in left_out:
        left_out = (*left_out, FIRST_RACES)
    if left_out or NO_CHECKS in KNOBS.checks:
        left_out = (*left_out, NO_CHECKS)
        return tuple(name for name in KNOBS.checks if name not in left_out)
    return KNOBS.checks


def kinds_looked_for() -> tuple[str, ...]:
    """The kinds of faults that would be reported."""
    checks = checks_in_force()
    return tuple(
        kind
        for kind in IGNORABLE_KINDS
        if kind not in KNOBS.ignored_kinds and _is_looked_for(kind, checks)
    )


def used_baseline(path: Path, known: Iterable[KnownFault]) -> UsedBaseline:
    """The baseline at `path`, for a run with the knobs as they are."""
    from tkdebug.findings.baseline import UsedBaseline

    kinds = (*kinds_looked_for(), *sorted(ENDING_KINDS))
    return UsedBaseline(str(path), tuple(sorted(known)), kinds, KNOBS.only_kernels)


def unmatched_lines(
    option: str, patterns: Iterable[str], kernels: Collection[str]
) -> Iterator[str]:
    """Yield a line for each pattern of an option that no name of `kernels` matches."""
    for pattern in patterns:
        if kernels and not any(fnmatchcase(name, pattern) for name in kernels):
            yield f"{option} {pattern}: no such kernel{instead_of(pattern, sorted(kernels))}"


def _is_looked_for(kind: str, checks: tuple[str, ...]) -> bool:
    if kind in _ASKED_KINDS:
        return KNOBS.ask_triton is not None
    if kind == _PLUGIN_KIND:
        return any(name not in OWN_NAMES for name in checks)
    return kind not in CHECK_NAMES or kind in checks


def _judged(fault: Fault, is_end: bool) -> Fault | None:
    if not is_end:
        if fault.kind in KNOBS.ignored_kinds or not is_checked(fault.kernel):
            return None
        if is_ignored(fault):
            return replace(fault, state="ignored")
    path = KNOBS.baseline
    if path is not None:
        from tkdebug.findings.baseline import identity  # runs without one do not wait for it

        path = path.absolute()
        if identity(fault, path.parent) in _known_faults(path):
            return replace(fault, state="known")
    return fault


def _known_faults(path: Path) -> frozenset[KnownFault]:
    from tkdebug.findings import baseline

    try:
        return baseline.loaded(path, path.stat().st_mtime_ns)
    except (OSError, UsageError) as error:
        # The fault is reported all the same.
        _tell_once(str(error))
        return frozenset()


@cache
def _tell_once(text: str) -> None:
    tell(text)
