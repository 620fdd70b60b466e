"""A fault as text: in full, with its source line, and in one line with its counts.

Responsible for the wording that all views but the TUI share. For a recorded run the caller gives
the source line as it was then.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tkdebug.errors import shown_path
from tkdebug.process.named_files import source_line
from tkdebug.terminal.display import PLAIN, PLAIN_VIEW, Style, View
from tkdebug.terminal.text import visible, visible_line

if TYPE_CHECKING:
    from tkdebug.errors import Frame
    from tkdebug.records.events import Cause, Fault


# Edits of a mismatch that are shown.
_MOST_EDITS = 3
# The prefix that `tell` puts before the first line.
_PREFIX_CHARS = len("tkdebug: ")
# The columns after the caret that are kept of a source line that does not fit.
_BEHIND_CARET_CHARS = 12


def describe(fault: Fault, view: View = PLAIN_VIEW) -> str:
    """`fault` as text: place, message, source line, call chain, fix; `visible`."""
    source = None
    if fault.file is not None and fault.line is not None:
        source = source_line(fault.file, fault.line) or None
    return "\n".join(fault_lines(fault, source, counted(fault.count, "time"), view))


def fault_lines(
    fault: Fault, source: str | None, times: str, view: View = PLAIN_VIEW
) -> Iterator[str]:
    """Yield one fault in full: place, message, source line, caret, call chain, offender, hint.

    Args:
        fault: the first of its kind at its place.
        source: the text of its line, None if that is not known.
        times: how often it came up.
        view: the look of the terminal; lines that are too long for it are wrapped or, if of source,
            cut.
    """
    style = view.style
    # An assembler's log has lines; in other messages newlines come from the script or a session.
    is_log = fault.kind == "compile-error"
    message = visible(fault.message) if is_log else visible_line(fault.message)
    title = _title(fault, style)
    if view.width is None or _PREFIX_CHARS + len(f"{_title(fault)}: {message}") <= view.width:
        yield f"{title}: {message}"
    else:
        yield f"{title}:"
        yield from _wrapped(message, view.width)
    if source is not None:
        yield from _excerpt(fault, source, view)
    for frame in reversed(fault.frames[:-1]):
        yield f"  called from {_caller_place(frame, fault)} in {visible_line(frame.function)}"
    offender = offender_text(fault, times)
    if offender:
        yield from _wrapped(visible_line(offender), view.width)
    if fault.cause is not None:
        yield from _cause_lines(fault.cause, fault.file, view)
    if fault.hint:
        first, *rest = _wrapped(f"hint: {visible_line(fault.hint)}", view.width)
        yield first.replace("hint:", style.hint("hint:"), 1)
        yield from rest


def _cause_lines(cause: Cause, file: str | None, view: View) -> Iterator[str]:
    """Yield the edits that fix a mismatch, as removed and added lines, and facts about it."""
    style = view.style
    for number, edit in enumerate(cause.edits[:_MOST_EDITS]):
        head = "with this edit the launch agrees" if number == 0 else "so it does with this one"
        yield f"  {head}{' in fp64; what is left is rounding' if edit.is_in_fp64 else ''}:"
        where = "" if edit.file == file else f"{shown_path(edit.file)}:"
        for sign, lines, marked in (("-", edit.before, style.error), ("+", edit.after, style.hint)):
            for offset, line in enumerate(lines):
                text = visible_line(f"{where}{edit.line + offset} {sign} {line}")
                if view.width is not None:
                    text, _ = _window(text, 0, max(view.width - 4, 20))
                yield f"    {marked(text)}"
    for fact in cause.facts:
        yield from _wrapped(f"fact: {visible_line(fact)}", view.width)
    rest = len(cause.edits) - _MOST_EDITS
    if rest > 0:
        yield f"  and with {counted(rest, 'other edit')}"


def _caller_place(frame: Frame, fault: Fault) -> str:
    if frame.file == fault.file:
        return f"line {frame.line}"
    return visible_line(f"{shown_path(frame.file)}:{frame.line}")


def _wrapped(text: str, width: int | None) -> list[str]:
    """Return text in lines of `width` at most, if words allow that, after two spaces."""
    lines = text.split("\n")
    if width is None:
        return [f"  {lines[0]}", *lines[1:]]
    return [
        piece
        for line in lines
        for piece in textwrap.wrap(
            line,
            max(width, 40),
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def names_of(faults: Iterable[Fault]) -> dict[str, str]:
    """Return short names of the files of faults that were printed in full, where unambiguous."""
    files = {fault.file for fault in faults if fault.file is not None}
    names: dict[str, set[str]] = {}
    for file in files:
        names.setdefault(Path(file).name, set()).add(file)
    return {file: name for name, same in names.items() if len(same) == 1 for file in same}


def counted_line(
    fault: Fault,
    count: int,
    launches: int,
    style: Style = PLAIN,
    names: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """A fault in one line, with how often it came up in how many launches.

    Args:
        fault: the first of them.
        count: how often it came up.
        launches: the number of launches.
        style: the style of the terminal.
        names: names of files, by their paths; others are named by their paths.
    """
    of = f", of `{visible_line(fault.tensor)}`" if fault.tensor else ""
    times = f", {counted(count, 'time')} in {counted(launches, 'launch')}" if launches else ""
    return f"{_title(fault, style, names)}{of}{times}"


def offender_text(fault: Fault, times: str) -> str:
    """Return where the fault came up first, and how often; "" for one without a program."""
    parts = []
    if fault.program_id is not None:
        parts.append(f"program {fault.program_id}")
    if fault.lane:
        parts.append(f"element {list(fault.lane)} of the tile")
    return f"first in {', '.join((*parts, times))}" if parts else ""


def counted(number: int, noun: str) -> str:
    """`1 fault`, `2,000 faults`, `no faults`."""
    if number == 1:
        return f"1 {noun}"
    plural = noun + ("es" if noun.endswith(("ch", "ss")) else "s")
    return f"{number:,} {plural}" if number else f"no {plural}"


def _title(
    fault: Fault, style: Style = PLAIN, names: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Place, kind and kernel."""
    where = ""
    if fault.frames:
        path = shown_path(fault.file or "")
        name = names.get(fault.file or "", path)
        # A notebook's cell has a name of its own, and no folder.
        place = visible_line(f"{name if path.endswith(name) else path}:{fault.line}")
        where = f"{style.place(place)}: "
    is_warning = fault.severity == "warning"
    marked = style.warning if is_warning else style.error
    kind = marked(visible_line(fault.kind)) + (" (warning)" if is_warning else "")
    return f"{where}{kind} in {visible_line(fault.kernel)}"


def _excerpt(fault: Fault, source: str, view: View) -> Iterator[str]:
    # Tabs before the caret are kept, so that it stands right at any tab width.
    line = source.rstrip()
    body = line.lstrip()
    if not body:
        return
    column = fault.column - 1 - (len(line) - len(body))
    has_caret = 0 <= column <= len(body)
    if view.width is not None:
        body, column = _window(body, column if has_caret else 0, max(view.width - 4, 20))
    yield visible(f"    {body}")
    if has_caret:
        before = "".join("\t" if c == "\t" else " " for c in body[:column])
        yield f"    {before}{view.style.caret('^')}"


def _window(body: str, column: int, width: int) -> tuple[str, int]:
    """Return the part of a line that fits, with ellipses, and the column of its caret."""
    if len(body) <= width:
        return body, column
    first = max(0, column + _BEHIND_CARET_CHARS - width)
    shown = body[first:]
    if first:
        shown = f"…{shown[1:]}"
    return (f"{shown[: width - 1]}…" if len(shown) > width else shown), column - first
