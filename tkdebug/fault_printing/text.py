"""A fault as text: in full, with its source line, and in one line with its counts.

Responsible for the wording that all views but the TUI share. Of a recorded run the caller gives the
source line as it was then.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tkdebug.errors import shown_path
from tkdebug.terminal_style import PLAIN, Style
from tkdebug.terminal_text import visible, visible_line

if TYPE_CHECKING:
    from tkdebug.events import Fault


def describe(fault: Fault, style: Style = PLAIN) -> str:
    """`fault` as text: place, what happened, source line, call chain, fix; `visible`."""
    source = None
    if fault.file is not None and fault.line is not None:
        source = linecache.getline(fault.file, fault.line) or None
    return "\n".join(fault_lines(fault, source, counted(fault.count, "time"), style))


def fault_lines(
    fault: Fault, source: str | None, times: str, style: Style = PLAIN
) -> Iterator[str]:
    """One fault in full: where and what, source line and caret, call chain, offender, hint.

    Args:
        fault: the first of its kind at its place.
        source: the text of its line, None where that is not known.
        times: how often it came up.
        style: for the terminal.
    """
    yield f"{_title(fault, style)}: {visible(fault.message)}"
    if source is not None:
        yield from _excerpt(fault, source, style)
    for frame in reversed(fault.frames[:-1]):
        place = visible_line(f"{shown_path(frame.file)}:{frame.line}")
        yield f"  called from {place} in {visible_line(frame.function)}"
    offender = offender_text(fault, times)
    if offender:
        yield visible(f"  {offender}")
    if fault.hint:
        yield f"  {style.hint('hint:')} {visible(fault.hint)}"


def counted_line(fault: Fault, count: int, launches: int, style: Style = PLAIN) -> str:
    """A fault in one line, with how often it came up in how many launches."""
    of = f", of `{visible_line(fault.tensor)}`" if fault.tensor else ""
    times = f", {counted(count, 'time')} in {counted(launches, 'launch')}" if launches else ""
    return f"{_title(fault, style)}{of}{times}"


def offender_text(fault: Fault, times: str) -> str:
    """Where the fault came up first, and how often it did; "" of one without a program."""
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


def _title(fault: Fault, style: Style) -> str:
    """Place, kind and kernel."""
    where = ""
    if fault.frames:
        place = visible_line(f"{shown_path(fault.file or '')}:{fault.line}")
        where = f"{style.place(place)}: "
    is_warning = fault.severity == "warning"
    marked = style.warning if is_warning else style.error
    kind = marked(visible_line(fault.kind)) + (" (warning)" if is_warning else "")
    return f"{where}{kind} in {visible_line(fault.kernel)}"


def _excerpt(fault: Fault, source: str, style: Style) -> Iterator[str]:
    # Tabs before the caret are kept, so that it stands right at any tab width.
    line = source.rstrip()
    body = line.lstrip()
    if not body:
        return
    yield visible(f"    {body}")
    column = fault.column - 1 - (len(line) - len(body))
    if 0 <= column <= len(body):
        before = "".join("\t" if c == "\t" else " " for c in body[:column])
        yield f"    {before}{style.caret('^')}"
