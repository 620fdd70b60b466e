"""Commands that look: values, source, frames, programs; and assignment."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torch import Tensor

from tkdebug.debugger.breakpoints import BreakKind
from tkdebug.debugger.expressions import tuple_parts
from tkdebug.debugger.lines import function_around, listing
from tkdebug.debugger.programs import ALL, Selection, linear_id, program_text
from tkdebug.debugger.value_text import (
    found_text,
    grid_lines,
    kind_text,
    reading_text,
    type_name,
    value_data,
    value_text,
)
from tkdebug.debugger.values import PerProgram, Tile, Unavailable
from tkdebug.errors import UsageError
from tkdebug.process.named_files import source_line

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console

PID_HELP = "select programs: steps and values are theirs; an expression selects where it holds"
_AROUND = 5


def _expected(rest: str, what: str) -> str:
    if not rest:
        raise UsageError(f"expected {what}")
    return rest


_NAMED_PROGRAMS = 16
_WHOLE_PROGRAMS = 6


def print_value(console: Console, rest: str) -> None:
    """Run the command `print`."""
    text = _expected(rest, "an expression")
    inspection = console.debugger.at_stop
    found = inspection.ask(text, console.frame)
    parts = tuple_parts(text) if isinstance(found, tuple) else ()
    for name, value in zip(parts, found, strict=True) if parts else [(text, found)]:
        shown = found_text(value, inspection.programs, inspection.launch.grid)
        console.say(f"{name} = {shown}", value=value_data(found))


def print_whole(console: Console, rest: str) -> None:
    """Run the command `pp`."""
    inspection = console.debugger.at_stop
    value = inspection.evaluate(_expected(rest, "an expression"), console.frame)
    if not isinstance(value, PerProgram):
        console.say(_whole_text(value), value=value_data(value))
        return
    for program, one in list(zip(inspection.programs, value.values, strict=True))[:_WHOLE_PROGRAMS]:
        where = f"program {program_text(program, inspection.launch.grid)}:"
        console.say(f"{where}\n{_whole_text(one)}", value=value_data(value))
    left = len(value.values) - _WHOLE_PROGRAMS
    if left > 0:
        console.say(f"and {left} more programs: `pid` selects some")


def _whole_text(value: object) -> str:
    import pprint

    if isinstance(value, float):
        return value_text(value)
    return str(value) if isinstance(value, Tensor) else pprint.pformat(value)


def tile(console: Console, rest: str) -> None:
    """Run the command `tile`."""
    text = _expected(rest, "a tile, such as acc[0:4, :8]")
    inspection = console.debugger.at_stop
    programs = inspection.programs
    value = inspection.evaluate(text, console.frame, programs[0] if programs else None)
    if not isinstance(value, Tensor):
        console.say(value_text(value), value=value_data(value))
        return
    if len(programs) > 1:
        console.say(f"program {program_text(programs[0], inspection.launch.grid)}:")
    for line in grid_lines(value):
        console.say(line, value=value_data(value), rows=value.tolist())


def what_is(console: Console, rest: str) -> None:
    """Run the command `whatis`."""
    text = _expected(rest, "an expression")
    found = console.debugger.at_stop.ask(text, console.frame)
    if isinstance(found, Tile):
        console.say(kind_text(found), type=kind_text(found))
        return
    found = found.values[0] if isinstance(found, PerProgram) else found
    value = getattr(found, "value", found)
    kind = getattr(found, "type", None)
    shown = str(kind) if isinstance(kind, str) else type_name(value)
    if isinstance(value, Tensor):
        shown = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    console.say(shown, type=shown)


def variables(console: Console, rest: str) -> None:
    """Run the command `vars`."""
    inspection = console.debugger.at_stop
    found = inspection.variables(console.frame)
    given = {n: each for n, each in found.items() if not isinstance(each, Unavailable)}
    width = max((len(name) for name in given), default=0)
    for name, reading in given.items():
        shown = reading_text(reading, inspection.programs, inspection.launch.grid)
        console.say(f"{name:{width}} = {shown}")
    reasons: dict[str, list[str]] = {}
    for name, each in found.items():
        if isinstance(each, Unavailable):
            reasons.setdefault(each.reason, []).append(name)
    for reason, names in reasons.items():
        console.say(f"not available: {', '.join(names)}: {reason}")
    console.say(
        "", variables={n: value_data(r) for n, r in found.items()}
    ) if console.is_json else None


def arguments(console: Console, rest: str) -> None:
    """Run the command `args`."""
    given = console.debugger.at_stop.launch.arguments
    width = max((len(name) for name in given), default=0)
    for name, value in given.items():
        console.say(
            f"{name:{width}} = {value_text(value)}",
            arguments={name: value_data(value) for name, value in given.items()},
        )


def display(console: Console, rest: str) -> None:
    """Run the command `display`."""
    if rest and rest not in console.displayed:
        console.displayed.append(rest)
    for text in [rest] if rest else list(console.displayed):
        print_value(console, text)


def undisplay(console: Console, rest: str) -> None:
    """Run the command `undisplay`."""
    if rest and rest not in console.displayed:
        raise UsageError(f"{rest} is not displayed")
    console.displayed = [text for text in console.displayed if rest and text != rest]


def evaluate(console: Console, rest: str) -> None:
    """Run a statement: an assignment to a variable, or an expression."""
    target = _assigned(_expected(rest, "a statement"))
    if target is None:
        print_value(console, rest)
        return
    name, value = target
    inspection = console.debugger.at_stop
    console.debugger.assign(name, value, console.frame)
    shown = inspection.read(name, console.frame)
    text = reading_text(shown, inspection.programs, inspection.launch.grid)
    console.say(f"{name} = {text}, from here on", value=value_data(shown))


def _assigned(text: str) -> tuple[str, str] | None:
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return None
    if len(body) != 1 or not isinstance(body[0], ast.Assign | ast.AugAssign):
        return None
    statement = body[0]
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    if not isinstance(target, ast.Name):
        raise UsageError(f"{ast.unparse(target)}: only a whole variable can be assigned")
    value = ast.unparse(statement.value)
    if isinstance(statement, ast.AugAssign):
        value = ast.unparse(
            ast.BinOp(ast.Name(target.id, ast.Load()), statement.op, statement.value)
        )
    return target.id, value


# Frames and source


def where(console: Console, rest: str) -> None:
    """Run the command `where`."""
    frames = console.debugger.at_stop.stack
    if not frames:
        raise UsageError("the launch has ended: it is at no line")
    looked_at = len(frames) - 1 - console.frame
    for place, frame in enumerate(frames):
        sign = ">" if place == looked_at else " "
        text = source_line(frame.file, frame.line).strip()
        console.say(
            f"{sign} {frame.file}({frame.line}){frame.function}()\n  -> {text}",
            frames=[{"file": f.file, "line": f.line, "function": f.function} for f in frames],
        )


def up(console: Console, rest: str) -> None:
    """Run the command `up`."""
    _look_at(console, console.frame + 1, "this is the outermost frame")


def down(console: Console, rest: str) -> None:
    """Run the command `down`."""
    _look_at(console, console.frame - 1, "this is the innermost frame")


def _look_at(console: Console, frame: int, refusal: str) -> None:
    if not 0 <= frame < len(console.debugger.at_stop.stack):
        raise UsageError(refusal)
    console.frame, console.listed = frame, None
    stop = console.debugger.stop
    assert stop is not None
    file, line = console.place()
    console.say(console.position(stop), frame=frame, file=file, line=line)


def list_lines(console: Console, rest: str) -> None:
    """Run the command `list`."""
    file, line = console.place()
    first, last = line - _AROUND, line + _AROUND
    if rest and rest != ".":
        words = [word.strip() for word in rest.split(",")]
        try:
            first = int(words[0])
            last = int(words[1]) if len(words) > 1 else first + 2 * _AROUND
        except ValueError:
            raise UsageError(f"list: expected line numbers, got {rest}") from None
        last = first + last if len(words) > 1 and last < first else last
    elif console.listed is not None and rest != ".":
        first, last = console.listed + 1, console.listed + 1 + 2 * _AROUND
    _say_lines(console, file, max(first, 1), last, line)
    console.listed = last


def list_function(console: Console, rest: str) -> None:
    """Run the command `longlist`."""
    file, line = console.place()
    _say_lines(console, file, *function_around(file, line), line)


def _say_lines(console: Console, file: str, first: int, last: int, line: int) -> None:
    marked = {
        one.line
        for one in console.debugger.breakpoints
        if one.kind is BreakKind.LINE and one.file == file
    }
    for text in listing(file, first, last, line, marked):
        console.say(console.styled(text, "bold") if "->\t" in text else text)


# Programs


def select(console: Console, rest: str) -> None:
    """Run the command `pid`."""
    debugger = console.debugger
    inspection = debugger.at_stop
    grid = inspection.launch.grid
    if rest:
        debugger.select(_selection(console, rest))
    chosen = debugger.selection
    here = f", {len(inspection.programs)} of them here" if chosen.programs else ""
    if chosen.programs and 1 < len(chosen.programs) <= _NAMED_PROGRAMS:
        here += f": {' '.join(program_text(one, grid) for one in sorted(chosen.programs))}"
    if chosen.programs and len(chosen.programs) == 1:
        here = "" if inspection.programs else ", which is not here"
    console.say(
        f"{chosen.text(grid)}{here}",
        selected=None if chosen.programs is None else sorted(chosen.programs),
    )


def _selection(console: Console, rest: str) -> Selection:
    inspection = console.debugger.at_stop
    grid = inspection.launch.grid
    if rest == "all":
        return ALL
    try:
        ids = [
            tuple(int(part) for part in word.strip("()").split(","))
            for word in rest.replace(", ", ",").split()
        ]
    except ValueError:
        return _where_it_holds(console, rest)
    return Selection(frozenset(linear_id(id_, grid) for id_ in ids))


def _where_it_holds(console: Console, text: str) -> Selection:
    from tkdebug.debugger.expressions import compile_expression

    inspection = console.debugger.at_stop
    here = inspection.here
    if here is None:
        raise UsageError("the launch has ended: no program is here")
    positions = ALL.positions(here.run).tolist()
    found = inspection.holds(compile_expression(text), text, positions, console.frame)
    if not found:
        raise UsageError(f"{text}: holds in none of the {len(positions)} programs here")
    return Selection(frozenset(here.run.first + place for place in found))


def programs(console: Console, rest: str) -> None:
    """Run the command `programs`."""
    inspection = console.debugger.at_stop
    census = inspection.census()
    grid = census.grid
    console.say(
        f"grid {grid}: {census.text()}",
        census={
            "grid": list(grid),
            "here": list(census.here),
            "elsewhere": [
                {"line": g.line, "reason": g.reason, "programs": list(g.programs)}
                for g in census.elsewhere
            ],
            "waiting": census.waiting,
            "ended": census.ended,
            "not_begun": census.not_begun,
        },
    )
    if len(census.here) < census.total and census.here:
        console.say(f"here: {_ids(census.here, grid)}")
    for group in census.elsewhere:
        console.say(f"{group.reason} at line {group.line}: {_ids(group.programs, grid)}")


def _ids(linear: tuple[int, ...], grid: tuple[int, int, int]) -> str:
    shown = " ".join(program_text(each, grid) for each in linear[:16])
    return shown + (f" and {len(linear) - 16} more" if len(linear) > 16 else "")
