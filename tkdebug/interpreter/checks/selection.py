"""Selection of the checks of a kernel, and the comments in its source that ignore faults.

Checks that have to be asked for are imported when they are first asked for: a first launch does not
wait for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from importlib import import_module

from tkdebug.checks import (
    FIRST_RACES,
    MASKED_LOADS,
    OBSERVED_CHECKS,
    OWN_NAMES,
    RACE,
    Check,
)
from tkdebug.compiler.ir import Module
from tkdebug.findings.reporting import checks_in_force, is_checked, kinds_looked_for
from tkdebug.findings.source import comments_around, problem_line
from tkdebug.interpreter.checks.assumptions import AssumptionCheck
from tkdebug.interpreter.checks.plugin_checks import plugin_checks
from tkdebug.interpreter.checks.undefined import UndefinedValues
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.observers import Observer
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS
from tkdebug.terminal.text import tell

# The key of the checks and hooks for which a module's comments were noted last.
_NOTED = "ignore comments"


def observers_in_force(module: Module, faults: FaultLog) -> list[Observer]:
    """Return the observers of the checks of a launch; none if its kernel is not checked."""
    if KNOBS.only_kernels and not is_checked(faults.kernel):
        return []
    checks = checks_in_force()
    if faults.is_reported:
        current = (checks, HOOKS.recorders_version)
        if module.derived.get(_NOTED) != current:
            module.derived[_NOTED] = current
            _note_comments(module)
    return observers_of(checks, module, faults)


def observers_of(names: Collection[str], module: Module, faults: FaultLog) -> list[Observer]:
    """Return the observers of the checks that always run, and of those in `names`."""
    classes, others = _chosen(tuple(names))
    found: list[Observer] = [
        UndefinedValues(module, faults, MASKED_LOADS in names),
        AssumptionCheck(faults),
    ]
    for make in classes:
        found.append(make(module, faults))
    if others:
        found += plugin_checks(set(others), OWN_NAMES, module, faults)
    return found


@cache
def _chosen(
    names: tuple[str, ...],
) -> tuple[list[Callable[[Module, FaultLog], Observer]], frozenset[str]]:
    """Return the makers of the chosen checks' observers, and the names of plugins' checks."""
    chosen = [check for check in OBSERVED_CHECKS if check.name in names and check.observer]
    if RACE in names:
        chosen = [check for check in chosen if check.name != FIRST_RACES]
    return [observer_class(check) for check in chosen], frozenset(names).difference(OWN_NAMES)


def observer_class(check: Check) -> Callable[[Module, FaultLog], Observer]:
    """Return the maker of a check's own observer."""
    found: Callable[[Module, FaultLog], Observer] = getattr(
        import_module(f"tkdebug.interpreter.checks.{check.module}"), check.observer
    )
    return found


def _note_comments(module: Module) -> None:
    """Pass the comments in `module`'s functions to the hooks; without hooks, print problems."""
    places = {
        (frame.file, frame.line) for op in module.function.walk() for frame in op.location.frames
    }
    kinds = kinds_looked_for()
    for comment in comments_around(places):
        if not HOOKS.recorders:
            if comment.problem:
                _tell_once(problem_line(comment))
            continue
        looked_for = tuple(kind for kind in comment.kinds if kind in kinds)
        HOOKS.record(replace(comment, kinds=looked_for))


@cache
def _tell_once(text: str) -> None:
    tell(text)
