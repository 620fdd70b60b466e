"""Recorded values of another run's watches, such as a native one's, beside the debugger's.

Responsible for finding the recorded value for the launch's place, and for comparing it. A value
belongs to a launch (the first, second, … of its kernel that has values), a line with its chain of
calls, a program, and the number of earlier visits of that program.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from tkdebug.compiler.frontend.variables import Mark, MarkKind
from tkdebug.compiler.frontend.watching import bound_names
from tkdebug.compiler.ir.types import element_of
from tkdebug.compiler.tensor import tensor
from tkdebug.debugger.execution import Passed
from tkdebug.debugger.inspection import Inspection
from tkdebug.debugger.programs import Selection, program_id
from tkdebug.debugger.values import Tile
from tkdebug.errors import Frame
from tkdebug.interpreter.watching.records import Summaries, as_numbers, bins_of, packed_tiles
from tkdebug.process.named_files import source_lines
from tkdebug.watches.places import real_file
from tkdebug.watches.records import WatchedValue, difference, is_rounding, same_value, summary_text

_Place = tuple[tuple[str, int], ...]
# More would take longer than a step may.
_MOST_PROGRAMS = 16


@dataclass(frozen=True, slots=True)
class _Compared:
    """A recorded value, and the debugger's of the same time."""

    recorded: WatchedValue
    here: WatchedValue
    program: str


class RecordedValues:
    """Values that a run's watches recorded.

    Args:
        source: the name of the run in messages.
        values: the values of the run, each with a key of its process.
    """

    def __init__(self, source: str, values: Iterable[tuple[object, WatchedValue]]) -> None:
        self.source = source
        self._names: dict[tuple[str, _Place], dict[str, None]] = {}
        self._values: dict[object, WatchedValue | None] = {}
        launches: dict[str, dict[object, int]] = {}
        for process, value in values:
            known = launches.setdefault(value.kernel, {})
            number = known.setdefault((process, value.launch_id), len(known) + 1)
            place = _place_of(value.frames)
            self._names.setdefault((value.kernel, place), {})[value.name] = None
            at = (value.kernel, place, value.name, number, value.program_id, value.iteration)
            # Two of one time are of copies of a line, which nothing distinguishes.
            self._values[at] = None if at in self._values else value

    def compared(self, inspection: Inspection, number: int) -> tuple[str, ...]:
        """Return a line of text for each variable with recorded values at the launch's place.

        Args:
            inspection: the inspection of the stopped launch.
            number: 1 for the first launch of the kernel.
        """
        here = inspection.here
        if here is None or not inspection.execution.code.stage.is_front_end:
            return ()
        marks = inspection.marks
        if not marks:
            return ()
        kernel, log = inspection.launch.kernel, _lines_passed(inspection)
        found: dict[str, list[_Compared]] = {}
        for program in inspection.programs[:_MOST_PROGRAMS]:
            for mark, visits, is_over in _just_seen(inspection, log, marks[0], program):
                place = _place_of(mark.location.frames)
                for name in self._names.get((kernel, place), ()):
                    if _is_over_when_seen(*place[-1], name) is not is_over:
                        continue
                    id_ = program_id(program, inspection.launch.grid)
                    recorded = self._values.get((kernel, place, name, number, id_, visits))
                    pair = _pair(inspection, recorded, program)
                    if pair is not None:
                        found.setdefault(name, []).append(pair)
        return tuple(self._line(name, pairs) for name, pairs in found.items())

    def _line(self, name: str, pairs: list[_Compared]) -> str:
        different = [pair for pair in pairs if not same_value(pair.recorded, pair.here)]
        where = pairs[0].program if len(pairs) == 1 else f"{len(pairs)} programs"
        if not different:
            return f"{self.source}: {name} was the same ({where})"
        worst = max(different, key=lambda pair: difference(pair.recorded, pair.here))
        size = difference(worst.recorded, worst.here)
        if all(is_rounding(pair.recorded, pair.here) for pair in different):
            return (
                f"{self.source}: {name} was the same but for rounding ({where}), by up to "
                f"{size:.2g} of its largest magnitude"
            )
        share = f" in {len(different)} of {len(pairs)} programs" if len(pairs) > 1 else ""
        return (
            f"{self.source}: {name} was different{share}, by up to {size:.2g} of its largest "
            f"magnitude: {summary_text(worst.recorded)} ({worst.program}); "
            f"here {summary_text(worst.here)}"
        )


def _place_of(frames: Iterable[Frame]) -> _Place:
    return tuple((real_file(frame.file), frame.line) for frame in frames)


def _lines_passed(inspection: Inspection) -> list[Passed]:
    """The lines that the batch has begun before now, in order; none if the log is cut."""
    log, here = inspection.execution.passed, inspection.here
    assert here is not None
    if len(log) == log.maxlen:
        return []  # how often a program came by is not known any more
    return [
        entry
        for entry in log
        if entry.mark.kind is MarkKind.LINE
        and entry.first == here.run.first
        and entry.moment < here.moment
    ]


def _just_seen(
    inspection: Inspection, log: list[Passed], mark: Mark, program: int
) -> Iterator[tuple[Mark, int, bool]]:
    """Yield the lines of a program whose values are known now.

    These are the line that it is at, and the one that it ran last in the same function: each with
    the number of earlier visits of the program, and whether the line is over.
    """
    here = inspection.here
    assert here is not None
    position = program - here.run.first
    lines = [entry.mark for entry in log if entry.active is None or bool(entry.active[position])]
    if here.mark is not None and here.mark.kind is MarkKind.LINE:
        yield here.mark, _visits(lines, here.mark), False
    last = next((each for each in reversed(lines) if each.activation is mark.activation), None)
    if last is not None:
        yield last, _visits(lines, last) - 1, True


def _visits(lines: list[Mark], mark: Mark) -> int:
    frames = mark.location.frames
    return sum(each.location.frames == frames for each in lines)


@lru_cache(maxsize=512)
def _is_over_when_seen(file: str, line: int, name: str) -> bool | None:
    """Whether a watch sees a name after the statement at a line, and not before it.

    None for loops: their header is a line in each iteration, which watches count otherwise.
    """
    for node in ast.walk(ast.parse("".join(source_lines(file)))):
        if isinstance(node, ast.stmt) and node.lineno == line:
            is_loop = isinstance(node, ast.For | ast.While)
            return None if is_loop else name in bound_names(node)
    return None


def _pair(inspection: Inspection, recorded: WatchedValue | None, program: int) -> _Compared | None:
    if recorded is None:
        return None
    here = inspection.here
    assert here is not None
    value = inspection.marks[0].names.get(recorded.name)
    if not isinstance(value, tensor):
        return None
    before = inspection.selection
    try:
        inspection.selection = Selection(frozenset((program,)))
        reading = inspection.read(recorded.name)
    finally:
        inspection.selection = before
    if not isinstance(reading, Tile) or reading.shape != recorded.shape:
        return None
    element = element_of(value.value.type)
    is_unsigned = recorded.type.startswith(("uint", "int1"))
    numbers = as_numbers(reading.data.reshape(1, -1), str(element), is_unsigned)
    return _Compared(
        recorded, _as_recorded(recorded, numbers), f"program {inspection.program_text(program)}"
    )


def _as_recorded(recorded: WatchedValue, values: torch.Tensor) -> WatchedValue:
    """Return the record that a watch would have made of (1, elements) fp64."""
    found = Summaries.of(values)
    # No zero is negative, as in records.
    least, most, mean = ((each + 0.0).item() for each in (found.minimum, found.maximum, found.mean))
    return replace(
        recorded,
        nan=int(found.nan.item()),
        inf=int(found.inf.item()),
        zeros=int(found.zeros.item()),
        minimum=least,
        maximum=most,
        mean=mean,
        histogram=bins_of(found.histogram[0]),
        tile=next(packed_tiles(values)) if recorded.tile else b"",
    )
