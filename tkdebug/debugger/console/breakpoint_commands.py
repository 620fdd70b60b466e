"""Commands that make, change and list breakpoints."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

from tkdebug.checks import CHECK_NAMES, DEFAULT_CHECKS
from tkdebug.compiler.dialects.table import OPS
from tkdebug.debugger.breakpoints import BreakKind, Breakpoint
from tkdebug.debugger.console.moving_commands import (
    current_file,
    file_and_line,
    number,
    resolved_file,
)
from tkdebug.debugger.elements import (
    Element,
    argument_named,
    find_element,
    named_by_script,
    names_variable,
)
from tkdebug.debugger.expressions import EvaluationError
from tkdebug.debugger.ir_text import value_named
from tkdebug.debugger.lines import (
    code_lines,
    function_line,
    kernel_heads,
    kernel_lines,
    loaded_files,
)
from tkdebug.errors import UsageError
from tkdebug.records.events import FaultKind

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console
    from tkdebug.debugger.inspection import Inspection

BREAK_HELP = (
    "stop at [FILE:]LINE, FUNCTION, `fault [KIND]`, `op NAME` or `end [KERNEL]`; alone: list them"
)
TRIALS_HELP = "whether launches of autotuning and do_bench stop, too, and are counted"
WATCH_HELP = "stop when X[I, J] is written, an expression changes, or a variable becomes NaN or Inf"


# The first of these ends the place: pdb's comma or gdb's `if`.
_CONDITION = re.compile(r",|\s+if\b")


def split_condition(text: str) -> tuple[str, str | None]:
    """Return the place and the condition of `42, n > 3` or `42 if n > 3`.

    Raises:
        UsageError: the condition is left out after `if`.
    """
    begin = _CONDITION.search(text)
    if begin is None:
        return text.strip(), None
    where, condition = text[: begin.start()].strip(), text[begin.end() :].strip()
    if not condition:
        raise UsageError(f"{text.strip()}: expected a condition after `{begin[0].strip()}`")
    return where, condition


def add(console: Console, rest: str) -> None:
    """Run the command `break`."""
    if not rest:
        list_all(console)
        return
    _add(console, rest)


def add_once(console: Console, rest: str) -> None:
    """Run the command `tbreak`."""
    if not rest:
        raise UsageError("tbreak: expected a line or a function")
    _add(console, rest, is_temporary=True)


def _add(console: Console, rest: str, **options: Any) -> None:
    where, condition = split_condition(rest)
    if condition is not None:
        options["condition"] = condition
    word, _, subject = where.partition(" ")
    kinds = {"fault": BreakKind.FAULT, "op": BreakKind.OP, "end": BreakKind.END}
    debugger = console.debugger
    if word in kinds:
        if word == "op" and not subject:
            raise UsageError("break op: expected the name of an op, such as tt.load")
        inspection = debugger.inspection
        if word == "op" and subject.startswith("%") and inspection is not None:
            value_named(inspection.code, subject[1:].strip())
        made = debugger.add(kinds[word], subject.strip(), **options)
    elif (place := _in_script(console, where)) is not None:
        assert console.script_lines is not None
        chosen, once = options.get("condition"), options.get("is_temporary", False)
        console.say(console.script_lines.break_at(*place, chosen, once))
        return
    elif where.isidentifier():
        made = debugger.add(BreakKind.FUNCTION, where, **options)
        console.say(f"breakpoint {made.number} at {made.describe()}", breakpoint=as_data(made))
        _warn_of_unknown(console, where)
        return
    else:
        file, line, is_loaded = _line(console, where)
        made = debugger.add_line(file, line, **options)
        if not is_loaded:
            console.say(f"no module is loaded from {file}: it stops where a kernel has such a file")
    console.say(f"breakpoint {made.number} at {made.describe()}", breakpoint=as_data(made))
    known = {BreakKind.OP: tuple(OPS), BreakKind.FAULT: get_args(FaultKind)}.get(made.kind, ())
    if made.kind is BreakKind.FAULT and made.subject in CHECK_NAMES:
        flag = "" if made.subject in DEFAULT_CHECKS else f" --check {made.subject}"
        console.say(
            f"{made.subject}: not looked for in launches that are debugged; "
            f"`tkdebug run{flag}` reports its faults, and their lines can be stopped at"
        )
    is_value = made.subject.startswith("%")
    if known and made.subject and made.subject not in known and not is_value:
        near = difflib.get_close_matches(made.subject, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        console.say(f"no {word} of tkdebug's own is called {made.subject}{hint}")


def _in_script(console: Console, where: str) -> tuple[str, int] | None:
    """File and line where `where` is a line or function that is no kernel's; None otherwise."""
    if console.script_lines is None or console.debugger.inspection is None:
        return None
    try:
        if where.isidentifier():
            file = current_file(console)
            line = function_line(file, where)
        else:
            name, colon, number_ = where.rpartition(":")
            file = resolved_file(console, name) if colon else current_file(console)
            line = int(number_) if number_.isdigit() else None
        if line is None or line not in code_lines(file):
            return None
        own = {*kernel_lines(file), *kernel_heads(file)}
    except UsageError:
        return None  # said where it is looked for among the kernels'
    return None if line in own else (file, line)


def _line(console: Console, where: str) -> tuple[str, int, bool]:
    """File and line, and whether the file was found: a package may be imported later."""
    file, _, line = where.rpartition(":")
    if file.endswith(".py") and not os.path.isabs(file) and line.isdigit():
        try:
            resolved_file(console, file)
        except UsageError:
            if not loaded_files(file):
                return os.path.normpath(file), int(line), False
            raise
    return *file_and_line(console, where), True


def _warn_of_unknown(console: Console, name: str) -> None:
    try:
        known = function_line(current_file(console), name) is not None
    except UsageError:
        known = True  # nowhere to look
    if not known:
        console.say(f"no function of this file is called {name}: it stops where a kernel has one")


def watch(console: Console, rest: str) -> None:
    """Run the command `watch`."""
    word, _, subject = rest.partition(" ")
    kinds = {"nan": BreakKind.NAN, "inf": BreakKind.INF}
    if not rest:
        raise UsageError("watch: expected an element, an expression, or `nan` and a variable")
    if word in kinds and subject.strip():
        made = console.debugger.add(kinds[word], subject.strip())
    elif _is_element(console, rest := _passed(console, rest)):
        made = console.debugger.add(BreakKind.WRITE, rest, element=_memory(console, rest))
    else:
        made = console.debugger.add(BreakKind.CHANGE, rest)
    console.say(f"breakpoint {made.number}: {made.describe()}", breakpoint=as_data(made))
    if made.is_watch:
        _warn_of_unreadable(console, made.subject)


def _warn_of_unreadable(console: Console, text: str) -> None:
    inspection = console.debugger.inspection
    if inspection is None or inspection.here is None:
        return
    try:
        inspection.evaluate(text, console.frame)
    except EvaluationError as error:
        console.say(f"there is no such value here: {error}; it stops where there is one")


def watch_reads(console: Console, rest: str) -> None:
    """Run the command `rwatch`."""
    inspection = console.debugger.inspection
    if inspection is not None:
        rest = _passed(console, rest)
        find_element(inspection, rest, console.frame)
    made = console.debugger.add(BreakKind.READ, rest, element=_memory(console, rest))
    console.say(f"breakpoint {made.number}: {made.describe()}", breakpoint=as_data(made))


def _memory(console: Console, text: str) -> Element | None:
    """Find an element of a tensor that is no argument; None for one of an argument.

    Any launch may access that memory, by addresses.
    """
    inspection = console.debugger.inspection
    if inspection is None:
        return None
    element = find_element(inspection, text, console.frame)
    return None if element.name in inspection.launch.arguments else element


def _passed(console: Console, text: str) -> str:
    """Return `text` with the argument's name in place of the script's name for the tensor."""
    inspection = console.debugger.inspection
    if inspection is None:
        return text
    try:
        return named_by_script(inspection, text, console.frame)
    except UsageError:
        return text


def _is_element(console: Console, text: str) -> bool:
    """Whether `text` names an element of memory, not of a variable's tile."""
    inspection = console.debugger.inspection
    if inspection is None:
        return text.endswith("]")
    if names_variable(inspection, text, console.frame):
        return False
    try:
        find_element(inspection, text, console.frame)
    except UsageError:
        if _indexes_argument(inspection, text):
            raise  # an element that the tensor does not have
        return False
    return True


def _indexes_argument(inspection: Inspection, text: str) -> bool:
    """Whether `text` is a tensor argument with numbers for indices."""
    name, bracket, rest = text.partition("[")
    name, indices = name.strip(), rest.strip().removesuffix("]").split(",")
    if not bracket or argument_named(name, inspection.launch.arguments) is None:
        return False
    return all(place.strip().lstrip("-").isdigit() for place in indices)


def condition(console: Console, rest: str) -> None:
    """Run the command `condition`."""
    which, _, text = rest.partition(" ")
    made = console.debugger.change(number(which), condition=text.strip() or None)
    console.say(f"breakpoint {made.number} at {made.describe()}", breakpoint=as_data(made))


def ignore(console: Console, rest: str) -> None:
    """Run the command `ignore`."""
    which, _, count = rest.partition(" ")
    made = console.debugger.change(number(which), ignored=number(count or "0"))
    console.say(f"breakpoint {made.number} is passed over {_times(made.ignored)}")


def log(console: Console, rest: str) -> None:
    """Run the command `log`."""
    which, _, text = rest.partition(" ")
    made = console.debugger.change(number(which), log=text.strip() or None)
    console.say(f"breakpoint {made.number} " + ("prints and goes on" if made.log else "stops"))


def enable(console: Console, rest: str) -> None:
    """Run the command `enable`."""
    for made in _numbered(console, rest):
        console.debugger.change(made.number, is_enabled=True)


def disable(console: Console, rest: str) -> None:
    """Run the command `disable`."""
    for made in _numbered(console, rest):
        console.debugger.change(made.number, is_enabled=False)


def clear(console: Console, rest: str) -> None:
    """Run the command `clear`."""
    script = console.script_lines
    if rest and script is not None and all(word.isdigit() for word in rest.split()):
        said = [(word, script.clear_number(int(word))) for word in rest.split()]
        for _, text in said:
            if text is not None:
                console.say(text)
        rest = " ".join(word for word, text in said if text is None)
        if not rest:
            return
    for made in _numbered(console, rest) if rest else list(console.debugger.breakpoints):
        console.debugger.remove(made.number)
        console.say(f"breakpoint {made.number} is gone: {made.describe()}")


def _numbered(console: Console, rest: str) -> list[Breakpoint]:
    words: Iterable[str] = rest.split()
    found = [console.debugger.breakpoint(number(word)) for word in words]
    if not found:
        raise UsageError("expected the numbers of breakpoints; `b` lists them")
    return found


def list_all(console: Console) -> None:
    """Run the command `break` without arguments."""
    made = console.debugger.breakpoints
    script = console.script_lines
    at_lines = (
        [] if script is None or console.debugger.inspection is None else script.breakpoint_texts()
    )
    for text in at_lines:
        console.say(text)
    if not made and not at_lines:
        console.say("no breakpoints", breakpoints=[])
    for one in made:
        state = "" if one.is_enabled else ", disabled"
        once = ", once" if one.is_temporary else ""
        more = f", passed over {_times(one.ignored, 'more ')}" if one.ignored else ""
        log = f", prints {one.log}" if one.log else ""
        hits = (
            "not met yet" if not one.hits else f"met {one.hits} time{'s' if one.hits > 1 else ''}"
        )
        console.say(
            f"{one.number}  {one.describe()}: {hits}{state}{once}{more}{log}",
            breakpoints=[as_data(each) for each in made],
        )


def as_data(one: Breakpoint) -> dict[str, Any]:
    """A breakpoint for JSON."""
    return {
        "number": one.number,
        "kind": one.kind.value,
        "file": one.file,
        "line": one.line,
        "subject": one.subject,
        "condition": one.condition,
        "is_enabled": one.is_enabled,
        "hits": one.hits,
    }


def _times(count: int, more: str = "") -> str:
    return f"{count} {more}time{'' if count == 1 else 's'}"


def trials(console: Console, rest: str) -> None:
    """Run the command `trials`."""
    if rest not in ("", "on", "off"):
        raise UsageError(f"trials: {rest}: expected on or off")
    if rest:
        console.debugger.stops_in_trials = rest == "on"
    stops = console.debugger.stops_in_trials
    console.say(
        f"launches of autotuning and do_bench {'stop' if stops else 'do not stop'}", trials=stops
    )
