"""A fault as text where there is no recorded run to quote from: pytest, and scripts without us.

Faults of a recorded run are told by the renderers of `instrument`, with the source as it was then.
"""

from __future__ import annotations

import linecache

from tkdebug.errors import shown_path
from tkdebug.events import Fault
from tkdebug.terminal_text import visible


def describe(fault: Fault) -> str:
    """`fault` as text: place, what happened, source line, call chain, fix; `visible`."""
    where = f"{shown_path(fault.file or '')}:{fault.line}: " if fault.frames else ""
    severity = " (warning)" if fault.severity == "warning" else ""
    lines = [f"{where}{fault.kind}{severity} in {fault.kernel}: {fault.message}"]
    if fault.file is not None and fault.line is not None:
        source = linecache.getline(fault.file, fault.line).rstrip()
        body = source.lstrip()
        if body:
            lines.append(f"    {body}")
            column = fault.column - 1 - (len(source) - len(body))
            if 0 <= column <= len(body):
                lines.append(
                    "    " + "".join("\t" if c == "\t" else " " for c in body[:column]) + "^"
                )
    lines.extend(
        f"  called from {shown_path(frame.file)}:{frame.line} in {frame.function}"
        for frame in reversed(fault.frames[:-1])
    )
    if fault.program_id is not None:
        element = f", element {list(fault.lane)} of the tile" if fault.lane else ""
        times = "once" if fault.count == 1 else f"{fault.count:,} times"
        lines.append(f"  first in program {fault.program_id}{element}, {times}")
    if fault.hint:
        lines.append(f"  hint: {fault.hint}")
    return visible("\n".join(lines))
