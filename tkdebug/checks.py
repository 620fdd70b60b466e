"""The checks that `--check` names: each is a line here, and a file in `interpreter/checks/`.

The command line and the knobs read this table, so it imports nothing of the interpreter.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Check(NamedTuple):
    """A kind of fault that is looked for only when it is asked for.

    Attributes:
        name: the name in `--check`, and the kind of the faults that it finds, except for
            `FIRST_RACES`.
        module: the module in `tkdebug.interpreter.checks`; "" if no observer is added for it.
        observer: the class of that module which looks for it.
        by_default: whether it is looked for without being asked (costs: bench/RESULTS.md).
        natively: whether checked native launches look for it, too.
        on_copies: whether checked native launches are interpreted for it, if it is asked for.
        marks_memory: whether fresh memory is marked for it.
    """

    name: str
    module: str = ""
    observer: str = ""
    by_default: bool = False
    natively: bool = False
    on_copies: bool = False
    marks_memory: bool = False


# This check makes the observer of undefined values, which runs anyway, follow masked loads, too.
MASKED_LOADS = "undefined-value"
THREAD_ORDER = "thread-order"
# `first-races` is `race` where that is cheap, by default; `--check` does not list it.
RACE, FIRST_RACES = "race", "first-races"
CHECKS = (
    Check(RACE, "races.check", "RaceCheck", natively=True),
    Check(
        "uninitialised-read",
        "unwritten.uninitialised_reads",
        "UninitialisedReads",
        natively=True,
        marks_memory=True,
    ),
    Check(
        "unwritten-output",
        "unwritten.unwritten_outputs",
        "UnwrittenOutputs",
        by_default=True,
        marks_memory=True,
    ),
    Check("nan", "nans", "NanCheck", by_default=True, natively=True),
    Check("inf", "infs", "InfCheck", by_default=True, natively=True),
    Check("padding", "padding.glance", "PaddingCheck", by_default=True, on_copies=True),
    Check("narrowing", "narrowing", "NarrowingCheck", by_default=True, on_copies=True),
    Check(MASKED_LOADS, on_copies=True),
    Check("coverage", "coverage.check", "CoverageCheck", by_default=True, on_copies=True),
    Check("row-overrun", "row_overruns", "RowOverruns", by_default=True, on_copies=True),
    Check("loop-state", "loop_state", "LoopStateCheck", by_default=True, on_copies=True),
    Check("stored-input", "stored_inputs", "StoredInputCheck", by_default=True, on_copies=True),
    Check(THREAD_ORDER, "thread_order", "ThreadOrderCheck", by_default=True, natively=True),
)
CHECK_NAMES = tuple(check.name for check in CHECKS)
# Checks that have observers, some of which cannot be asked for.
OBSERVED_CHECKS = (
    *CHECKS,
    Check(FIRST_RACES, "races.first_launches", "FirstRaces", by_default=True),
)
OWN_NAMES = tuple(check.name for check in OBSERVED_CHECKS)
# Checks that are made unless `NO_CHECKS` is asked for, and the other checks.
DEFAULT_CHECKS = tuple(check.name for check in OBSERVED_CHECKS if check.by_default)
OTHER_CHECKS = tuple(check.name for check in CHECKS if not check.by_default)
NO_CHECKS = "none"
CHECK_CHOICES = (*CHECK_NAMES, "all", NO_CHECKS)
# Checks that native launches get, and checks that they are interpreted for.
NATIVE_CHECKS = tuple(check.name for check in CHECKS if check.natively or check.on_copies)
CHECKS_ON_COPIES = frozenset(check.name for check in CHECKS if check.on_copies)
# Checks for which fresh memory is marked.
MARKING_CHECKS = frozenset(check.name for check in CHECKS if check.marks_memory)


def modules_of(names: Collection[str]) -> tuple[str, ...]:
    """The modules of the checks of these names that have an observer."""
    return tuple(
        f"tkdebug.interpreter.checks.{check.module}"
        for check in OBSERVED_CHECKS
        if check.name in names and check.observer
    )


def not_looked_for(checks: Collection[str], ignored: Collection[str] = ()) -> tuple[str, ...]:
    """Return the kinds in neither `checks` nor `ignored`, as messages name them."""
    seldom = f"{RACE} (but in first launches)"
    return tuple(
        seldom if name == RACE and FIRST_RACES in checks else name
        for name in CHECK_NAMES
        if name not in (*checks, *ignored)
    )
