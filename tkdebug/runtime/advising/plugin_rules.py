"""Rules of plugins (entry points `tkdebug.remarks`): functions of a launch's facts.

One that raises, or gives something else than remarks, is named in one line and skipped from there.
"""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.advice.facts import KernelFacts
from tkdebug.advice.judging import RemarkPlugin
from tkdebug.advice.machines import Machine
from tkdebug.advice.records import Remark
from tkdebug.plugins import Plugin, loaded


def remarks_of_plugins(facts: KernelFacts, machine: Machine) -> Iterator[Remark]:
    """Remarks of plugins on a launch."""
    for plugin, rule in loaded("tkdebug.remarks", RemarkPlugin):
        yield from _remarks(plugin, rule, facts, machine)


def _remarks(
    plugin: Plugin, rule: RemarkPlugin, facts: KernelFacts, machine: Machine
) -> list[Remark]:
    found: list[object]
    try:
        found = list(rule.remarks(facts, machine))
    except Exception as error:  # another distribution's code may raise anything
        plugin.fail(error)
        return []
    remarks = [one for one in found if isinstance(one, Remark)]
    if len(remarks) < len(found):
        plugin.fail("gave something else than a tkdebug.advice.records.Remark")
    return remarks
