"""Checks of plugins (entry points `tkdebug.checks`), asked for by `--check` and their names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tkdebug.compiler.ir import Module
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.plugins import Plugin, loaded


@dataclass(frozen=True, slots=True)
class CheckPlugin:
    """The object that an entry point of `tkdebug.checks` names; its name is the check's.

    Attributes:
        make: makes the observer of one launch of a module; it reports to the log
            (`FaultLog.plugin_fault`).
    """

    make: Callable[[Module, FaultLog], Observer]


def plugin_checks(
    names: Collection[str], taken: Collection[str], module: Module, faults: FaultLog
) -> Iterator[Observer]:
    """Yield the observers of the plugins with these names.

    Args:
        names: the names that were asked for.
        taken: names of tkdebug's own checks.
        module: the module that is launched.
        faults: the log that they report to.
    """
    for plugin, check in loaded("tkdebug.checks", CheckPlugin, taken):
        if plugin.name in names:
            try:
                observer = check.make(module, faults)
                hash(observer.key)
            except Exception as error:  # another distribution's code may raise anything
                plugin.fail(error)
            else:
                yield _guard(plugin, observer)


def _guard(plugin: Plugin, observer: Observer) -> Observer:
    """Return `observer`, whose methods do nothing any more once its plugin has failed."""
    for name, otherwise in _OTHERWISE.items():
        setattr(observer, name, partial(_call, plugin, getattr(observer, name), otherwise))
    of_batch = observer.of_batch

    def guarded_of_batch(run: Any) -> Observer:
        found = _call(plugin, of_batch, lambda run: observer, run)
        return observer if found is observer else _guard(plugin, found)

    setattr(observer, "of_batch", guarded_of_batch)  # noqa: B010
    return observer


def _call(
    plugin: Plugin, method: Callable[..., Any], otherwise: Callable[..., Any], *arguments: Any
) -> Any:
    if not plugin.problem:
        try:
            return method(*arguments)
        except Exception as error:  # another distribution's code may raise anything
            plugin.fail(error)
    return otherwise(*arguments)


def _nothing(*arguments: object) -> None:
    return None


# Methods of `Observer`, and what replaces one that raised.
_OTHERWISE: Mapping[str, Callable[..., Any]] = {
    "moments": lambda op: Moments.NEVER,
    "launch_begins": _nothing,
    "launch_ends": _nothing,
    "replay": _nothing,
    "before": _nothing,
    "after": lambda run, op, operands, results: results,
    "forget": _nothing,
    "read": _nothing,
    "writing": _nothing,
    "written": _nothing,
    "atomic": _nothing,
}
