"""What the tab key offers: commands, variables, functions of torch and tl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tkdebug.debugger.console.commands import COMMANDS
from tkdebug.debugger.stages import all_stages
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console


def completions(console: Console, line: str, text: str) -> list[str]:
    """What `text`, the last word of `line`, may become."""
    if line.lstrip().startswith("stage "):
        return _stages(console, line, text)
    if line.strip() == text:
        names = [command.names[0] for command in COMMANDS]
    elif line.removesuffix(text).endswith("%") and console.debugger.inspection is not None:
        names = list(console.debugger.inspection.code.values_by_name)
    else:
        names = [*_names(console, text)]
    return sorted(name for name in names if name.startswith(text))


def _stages(console: Console, line: str, text: str) -> list[str]:
    """The stages that the word may become, from where `text` begins: colons end words."""
    word = line.lstrip().removeprefix("stage ").lstrip()
    begun = len(word) - len(text)
    found = all_stages(*console.debugger.stages())
    return sorted({stage[begun:] for stage in found if stage.startswith(word)})


def _names(console: Console, text: str) -> list[str]:
    owner, dot, _ = text.rpartition(".")
    if console.debugger.inspection is None:
        return []
    inspection = console.debugger.inspection
    if dot:
        if not all(part.isidentifier() for part in owner.split(".")):
            return []
        try:
            value = inspection.evaluate(owner, console.frame, *inspection.programs[:1])
        except UsageError:
            return []
        return [f"{owner}.{name}" for name in dir(value) if not name.startswith("_")]
    try:
        variables = list(inspection.variables(console.frame))
    except UsageError:
        variables = []
    return [*variables, *inspection.launch.arguments, "pid", "program", "torch", "tl"]
