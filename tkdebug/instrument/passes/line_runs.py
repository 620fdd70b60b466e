"""Alike lines of machine code that follow each other, shown as one, such as 64 extractvalues."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.instrument.passes.kernel_passes import OpLine

MIN_ALIKE = 5
# What stands before the name of an instruction: an address, a result, a guard.
_INSTRUCTION = re.compile(r"\s*(?:/\*.*?\*/\s*)?(?:%[\w.]+ = )?(?:@!?%?\w+\s+)?(?P<name>[\w.]+)")


@dataclass(frozen=True, slots=True)
class LineRun:
    """A line, and how many of the same instruction follow it on the next lines.

    Attributes:
        name: of the instruction.
    """

    first: OpLine
    more: int = 0
    name: str = ""


def runs_of(lines: Sequence[OpLine]) -> list[LineRun]:
    """`lines` with those put together of which at least `MIN_ALIKE` follow each other.

    Lines that show an op of the IR stay by themselves: each is something of its own.
    """
    runs: list[LineRun] = []
    begin = 0
    while begin < len(lines):
        name = _name(lines[begin])
        end = begin + 1
        while end < len(lines) and name and _follows(lines[end - 1], lines[end], name):
            end += 1
        if end - begin >= MIN_ALIKE:
            runs.append(LineRun(lines[begin], end - begin - 1, name))
        else:
            runs += [LineRun(line) for line in lines[begin:end]]
        begin = end
    return runs


def run_text(run: LineRun) -> str:
    """What the lines after the first one are: "63 more of extractvalue, up to line 511"."""
    return f"{run.more:,} more of {run.name}, up to line {run.first.line + run.more}"


def _follows(before: OpLine, line: OpLine, name: str) -> bool:
    return line.line == before.line + 1 and _name(line) == name


def _name(line: OpLine) -> str:
    if line.op_id is not None:
        return ""
    found = _INSTRUCTION.match(line.text)
    return found["name"] if found else ""
