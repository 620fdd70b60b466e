"""The checks: those that always look on, and those that are asked for by `--check`.

The latter are imported when they are first asked for: a first launch does not wait for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import import_module

from tkdebug.compiler.ir import Module
from tkdebug.interpreter.checks.assumptions import AssumptionCheck
from tkdebug.interpreter.checks.plugin_checks import plugin_checks
from tkdebug.interpreter.checks.undefined.check import UndefinedValues
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.observers import Observer

# Module (in this package) and class by the name that asks for it, one of `CHECK_NAMES`.
CHECKS: dict[str, tuple[str, str]] = {
    "uninitialised-read": ("unwritten.uninitialised_reads", "UninitialisedReads"),
    "unwritten-output": ("unwritten.unwritten_outputs", "UnwrittenOutputs"),
    "race": ("races.check", "RaceCheck"),
    "nan": ("nans", "NanCheck"),
    "coverage": ("coverage.check", "CoverageCheck"),
    "row-overrun": ("row_overruns", "RowOverruns"),
    "inf": ("infs", "InfCheck"),
    "padding": ("padding.glance", "PaddingCheck"),
    "narrowing": ("narrowing", "NarrowingCheck"),
}
# Asks for one more source of what is followed anyway.
MASKED_LOADS = "undefined-value"


def check_class(name: str) -> Callable[[Module, FaultLog], Observer]:
    """What makes the observer of a check."""
    module, attribute = CHECKS[name]
    found: Callable[[Module, FaultLog], Observer] = getattr(
        import_module(f"tkdebug.interpreter.checks.{module}"), attribute
    )
    return found


def observers_of(names: Collection[str], module: Module, faults: FaultLog) -> list[Observer]:
    """The checks of a launch of `module`; `names` are those that were asked for."""
    others = set(names) - CHECKS.keys() - {MASKED_LOADS}
    return [
        UndefinedValues(module, faults, MASKED_LOADS in names),
        AssumptionCheck(faults),
        *(check_class(name)(module, faults) for name in CHECKS if name in names),
        *(plugin_checks(others, CHECKS, module, faults) if others else ()),
    ]
