"""Pictures of a stop for a Debug pane: variables, programs, the lines passed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.frontend.variables import MarkKind
from tkdebug.debugger.breakpoints import BreakKind, Breakpoint
from tkdebug.debugger.console.shell import reasons, return_text, short, shown_op
from tkdebug.debugger.inspection import ALL_POSITIONS, Inspection
from tkdebug.debugger.lines import function_line
from tkdebug.debugger.programs import ALL, Selection, program_text
from tkdebug.debugger.remote.pictures import (
    ProgramStates,
    has_nan,
    heat_map,
    is_drawn,
    just_bound,
    large_text,
    most_telling,
    tensor_kind,
)
from tkdebug.debugger.remote.records import (
    HeatMap,
    Look,
    PassedLine,
    Place,
    Programs,
    SetBreakpoint,
    Timeline,
    Variable,
    View,
)
from tkdebug.debugger.value_text import kind_text, reading_text
from tkdebug.debugger.values import Pointers, Reading, Tile
from tkdebug.errors import Frame, UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.engine import Debugger
    from tkdebug.debugger.execution import Passed
    from tkdebug.debugger.stops import Stop

_LINES_AROUND = 200
# All programs' values of a variable are compared up to so many elements.
_MOST_COMPARED = 1 << 24
_MOST_SELECTED = 4096
# Characters of an op in the title's line.
_LONGEST_OP = 60


def view_of(debugger: Debugger, stop: Stop, frame: int, look: Look) -> View:
    """Return the view of a stop.

    Args:
        debugger: stopped.
        stop: the stop.
        frame: the frame that is looked at, 0 for the innermost.
        look: the pane's wishes.
    """
    inspection = debugger.at_stop
    selection = inspection.selection
    shown = _shown_program(inspection, look)
    inspection.selection = ALL if shown is None else Selection(frozenset((shown,)))
    try:
        readings = _readings(inspection, frame)
        programs, grid = inspection.programs, inspection.launch.grid
        variables = tuple(variable_of(name, one, programs, grid) for name, one in readings.items())
        drawn = look.variable if is_drawn(readings.get(look.variable)) else ""
        drawn = drawn or most_telling(readings, just_bound(inspection, frame))
        heat = None
        if drawn:
            heat = _heat(drawn, readings[drawn], inspection, frame, look, shown)
        states = _programs(inspection, selection, frame, drawn, shown)
    finally:
        inspection.selection = selection
    census = inspection.census()
    op = shown_op(inspection, stop, _LONGEST_OP)
    at_op = [f"{inspection.code.stage}: {op}"] if op else []
    if stop.is_return:
        at_op.append(return_text(inspection))
    return View(
        reasons=tuple(short(line) for line in (*stop.notes, *reasons(stop), *stop.detail, *at_op)),
        launch=stop.launch,
        kernel=stop.kernel,
        grid=inspection.launch.grid,
        frames=tuple(map(place_of, inspection.stack)),
        frame=frame,
        census=census.text(),
        selection=selection.text(census.grid),
        variables=variables,
        heat=heat,
        programs=states,
        timeline=_timeline(inspection, look, shown),
    )


def breakpoints_of(debugger: Debugger, script: str) -> tuple[SetBreakpoint, ...]:
    """The breakpoints as a pane shows them.

    Args:
        debugger: the debugger that has them.
        script: the file in which functions are looked for.
    """
    return tuple(
        SetBreakpoint(
            one.number, *place_shown(one, script), short(one.describe()), one.is_enabled, one.hits
        )
        for one in debugger.breakpoints
    )


def place_shown(one: Breakpoint, script: str) -> tuple[str, int]:
    """The file and line beside which a breakpoint is shown; ("", 0) for none."""
    if one.kind is not BreakKind.FUNCTION or not script:
        return one.file, one.line
    try:
        line = function_line(script, one.subject)
    except UsageError:
        line = None
    return ("", 0) if line is None else (script, line)


def place_of(frame: Frame) -> Place:
    """A frame for a pane."""
    return Place(frame.file, frame.line, frame.function)


def _shown_program(inspection: Inspection, look: Look) -> int | None:
    """Return the program whose values are shown: the one asked for, or the first selected one."""
    here = inspection.here
    if here is None:
        return None
    everyone = {here.run.first + place for place in ALL_POSITIONS.positions(here.run).tolist()}
    asked = look.program
    if asked is not None and asked in everyone and asked in inspection.selection:
        return asked
    return next(iter(inspection.programs), min(everyone, default=None))


# Variables


def _readings(inspection: Inspection, frame: int) -> dict[str, Reading]:
    """The variables of the frame; after the last line of a launch, its arguments."""
    if inspection.here is None:
        return {name: inspection.read(name) for name in inspection.launch.arguments}
    return inspection.variables(frame)


def variable_of(
    name: str, reading: Reading, programs: tuple[int, ...], grid: tuple[int, int, int]
) -> Variable:
    """A variable on one line; arguments as for `reading_text`."""
    large = large_text(reading)
    if large:
        return Variable(name, large, is_drawn(reading), False)
    try:
        text = reading_text(reading, programs, grid)
    except Exception as error:  # a `repr` of the user's own
        text = f"<{type(error).__name__}: {error}>"
    return Variable(name, text, is_drawn(reading), has_nan(reading))


def _heat(
    name: str,
    reading: Reading,
    inspection: Inspection,
    frame: int,
    look: Look,
    shown: int | None,
) -> HeatMap:
    grid = inspection.launch.grid
    program = "" if shown is None else program_text(shown, grid)
    match reading:
        case Tile(data=data) if reading.is_tile:
            return heat_map(name, kind_text(reading), program, data[0], look)
        case Tile():
            everyone, programs = _of_all(inspection, name, frame)
            if not isinstance(everyone, Tile):  # not all programs that are here have bound it
                everyone, programs = reading, inspection.programs
            labels = [program_text(each, grid) for each in programs]
            return heat_map(name, kind_text(reading), "", everyone.data, look, labels)
        case Pointers(tensor=Tensor() as tensor) if reading.is_whole_tensor:
            return tensor_map(name, tensor, look)
        case Pointers(offsets=offsets):
            kind = f"offsets{list(offsets.shape[1:])}"
            return heat_map(name, kind, program, offsets[0], look)
        case _:
            value = getattr(reading, "value", None)
            assert isinstance(value, Tensor)
            return tensor_map(name, value, look)


def tensor_map(name: str, data: Tensor, look: Look) -> HeatMap:
    """A tensor that the script passed, as it is now."""
    return heat_map(name, tensor_kind(data), "", data.detach().cpu(), look)


def _of_all(inspection: Inspection, name: str, frame: int) -> tuple[Reading, tuple[int, ...]]:
    """A variable in all programs that are here."""
    before, inspection.selection = inspection.selection, ALL
    try:
        return inspection.read(name, frame), inspection.programs
    finally:
        inspection.selection = before


# Programs


def _programs(
    inspection: Inspection, selection: Selection, frame: int, drawn: str, shown: int | None
) -> Programs:
    differing: Iterable[int] = ()
    note = ""
    if drawn and shown is not None:
        found = _differing(inspection, drawn, frame)
        if found is None:
            note = f"{drawn} is too large to be compared in all programs"
        else:
            differing = found
    states = ProgramStates.of(inspection, differing, drawn if not note else "")
    selected = None if selection.programs is None else tuple(sorted(selection.programs))
    return Programs(
        grid=inspection.launch.grid,
        states=states.text,
        per_cell=states.per_cell,
        groups=states.groups,
        selected=None if selected is None else selected[:_MOST_SELECTED],
        shown=shown,
        compared=drawn if shown is not None and not note else "",
        note=note,
    )


def _differing(inspection: Inspection, name: str, frame: int) -> list[int] | None:
    """The programs here whose value differs from the shown one's; None for too many elements."""
    one = _elements(inspection.read(name, frame))
    if one is None:
        return []
    here = inspection.here
    assert here is not None
    if one.numel() * here.run.programs > _MOST_COMPARED:
        return None
    reading, programs = _of_all(inspection, name, frame)
    everyone = _elements(reading)
    if everyone is None:  # not all of them have bound it, or not at the same time
        return []
    differ = (_bits(everyone) != _bits(one)).reshape(len(programs), -1).any(1).tolist()
    return [program for program, other in zip(programs, differ, strict=True) if other]


def _elements(reading: Reading) -> Tensor | None:
    match reading:
        case Tile(data=data) | Pointers(offsets=data):
            return data
        case _:
            return None


def _bits(data: Tensor) -> Tensor:
    """View numbers as integers, of which NaN is equal to itself."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    is_wide = data.dtype.is_floating_point and data.dtype.itemsize in kinds
    return data.contiguous().view(kinds[data.dtype.itemsize]) if is_wide else data


# Time


def _timeline(inspection: Inspection, look: Look, shown: int | None) -> Timeline:
    """The lines passed around the one that `look` asks for, else around the stop's."""
    log = inspection.execution.passed
    passed: Sequence[Passed] = [each for each in log if each.mark.kind is not MarkKind.SCOPE]
    moment, total = inspection.moment, len(passed)
    now = total - 1
    for entry in reversed(passed):
        if entry.moment <= moment:
            break
        now -= 1
    middle = now if look.around is None else look.around
    first = max(0, min(middle - _LINES_AROUND, total - 2 * _LINES_AROUND))
    window = itertools.islice(passed, first, first + 2 * _LINES_AROUND)
    return Timeline(total, now, first, tuple(_passed_line(each, shown) for each in window))


def _passed_line(entry: Passed, shown: int | None) -> PassedLine:
    active = entry.active
    count = entry.programs if active is None else int(active.sum())
    is_of_shown = shown is not None and entry.first <= shown < entry.first + entry.programs
    if is_of_shown and active is not None and shown is not None:
        is_of_shown = bool(active[shown - entry.first])
    moment = f"{entry.moment.op}.{entry.moment.place}"
    return PassedLine(moment, place_of(entry.mark.location.frames[-1]), count, is_of_shown)
