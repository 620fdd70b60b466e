"""The checks: those that always look on, and those that are asked for by `--check`."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tkdebug.compiler.ir import Module
from tkdebug.interpreter.checks.assumptions import AssumptionCheck
from tkdebug.interpreter.checks.coverage import CoverageCheck
from tkdebug.interpreter.checks.infs import InfCheck
from tkdebug.interpreter.checks.narrowing import NarrowingCheck
from tkdebug.interpreter.checks.padding import PaddingCheck
from tkdebug.interpreter.checks.plugin_checks import plugin_checks
from tkdebug.interpreter.checks.races import RaceCheck
from tkdebug.interpreter.checks.row_overruns import RowOverruns
from tkdebug.interpreter.checks.uninitialised_reads import UninitialisedReads
from tkdebug.interpreter.checks.unwritten_outputs import UnwrittenOutputs
from tkdebug.interpreter.faults import FaultLog
from tkdebug.interpreter.nans import NanCheck
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.undefined import UndefinedValues

# By the name that asks for it (`tkdebug.knobs.CHECK_NAMES`).
CHECKS: dict[str, Callable[[Module, FaultLog], Observer]] = {
    "uninitialised-read": UninitialisedReads,
    "unwritten-output": UnwrittenOutputs,
    "race": RaceCheck,
    "nan": NanCheck,
    "coverage": CoverageCheck,
    "row-overrun": RowOverruns,
    "inf": InfCheck,
    "padding": PaddingCheck,
    "narrowing": NarrowingCheck,
}
# Asks for one more source of what is followed anyway.
MASKED_LOADS = "undefined-value"


def observers_of(names: Collection[str], module: Module, faults: FaultLog) -> list[Observer]:
    """The checks of a launch of `module`; `names` are those that were asked for."""
    others = set(names) - CHECKS.keys() - {MASKED_LOADS}
    return [
        UndefinedValues(module, faults, MASKED_LOADS in names),
        AssumptionCheck(faults),
        *(check(module, faults) for name, check in CHECKS.items() if name in names),
        *(plugin_checks(others, CHECKS, module, faults) if others else ()),
    ]
