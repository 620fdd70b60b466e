"""Values that a native run's watches recorded, compared at stops."""

import sys
from pathlib import Path

import debugged_kernels as kernels
import pytest
import torch
from debugged_kernels import line
from fronts import Repeated, Scripted, debugging

from tkdebug.debugger.goals import Continue, Step, StepKind
from tkdebug.debugger.programs import Selection
from tkdebug.debugger.recorded_values import RecordedValues

sys.path.insert(0, str(Path(__file__).parents[1] / "checked"))

from watch_support import last_launch, recorded, watched

from tkdebug.watches.in_force import watch


def launched(kernel, grid, *arguments, **options):
    return lambda: kernel[grid](*[_copy(each) for each in arguments], **options)


def _copy(value):
    return value.clone() if isinstance(value, torch.Tensor) else value


def native(run, kernel, *watches):
    """Return the launch's records as GPU IR of an H100, interpreted."""
    made = [
        lambda name=name, at=at, whole=whole: watch(kernel, line(at), name, whole=whole)
        for at, name, whole in watches
    ]
    with watched(*made):
        seen = recorded(last_launch(run), "sm_90a")
    assert seen.values
    return RecordedValues("native.tkd", [(0, value) for value in seen.values])


def notes(run, values, programs=None, grid=(1, 1, 1)):
    """Return the texts of the stops at each line, with the line's number; () for none."""
    said = []

    def look(debugger, stop):
        if programs is not None:
            debugger.select(Selection.of([(each,) for each in programs], grid))
        said.extend((stop.place.line, note) for note in stop.notes if stop.frames)

    with debugging(Repeated(look, Step(StepKind.INTO)), recorded=values) as debugger:
        debugger.stop_at_next_launch()
        run()
    return said


SUM = launched(kernels.summed, (2,), torch.arange(24.0).reshape(2, 12), torch.zeros(2), 12, BLOCK=4)


def test_a_value_is_compared_behind_the_line_that_binds_it_each_time():
    values = native(SUM, kernels.summed, ("add", "total", False))
    said = notes(SUM, values)
    assert said == [(line("header"), "native.tkd: total was the same (2 programs)")] * 3


def test_a_value_is_compared_at_a_line_that_does_not_bind_it():
    values = native(SUM, kernels.summed, ("add", "cols", True), ("after", "total", False))
    same = "was the same (2 programs)"
    assert notes(SUM, values) == [
        *[(line("add"), f"native.tkd: cols {same}")] * 3,
        (line("after"), f"native.tkd: total {same}"),
    ]


@pytest.mark.parametrize("whole", [False, True])
def test_a_difference_is_reported_with_both_values_and_its_size(whole):
    values = native(SUM, kernels.summed, ("add", "total", whole))
    other = torch.arange(24.0).reshape(2, 12)
    other[1, 7] += 12
    run = launched(kernels.summed, (2,), other, torch.zeros(2), 12, BLOCK=4)
    first, second, third = (text for _, text in notes(run, values))
    assert "was the same" in first
    assert second.startswith("native.tkd: total was different in 1 of 2 programs, by up to 0.2")
    assert "min 28, max 34, mean 31 (program 1); here min 28, max 46, mean 34" in second
    assert "in 1 of 2 programs" in third


def test_a_difference_in_the_last_places_is_called_rounding():
    values = native(SUM, kernels.summed, ("add", "total", True))
    other = torch.arange(24.0).reshape(2, 12)
    other[1, 7] *= 1 + 2**-22
    run = launched(kernels.summed, (2,), other, torch.zeros(2), 12, BLOCK=4)
    first, second, _ = (text for _, text in notes(run, values))
    assert first == "native.tkd: total was the same (2 programs)"
    assert second.startswith("native.tkd: total was the same but for rounding (2 programs), by up")


def test_branches_count_for_the_programs_that_took_them():
    x = torch.tensor([1.0, -1.0, 2.0, -2.0])
    run = launched(kernels.divergent, (4,), x, torch.zeros(4))
    values = native(run, kernels.divergent, ("negative", "y", False))
    assert notes(run, values) == [
        (line("join"), "native.tkd: y was the same (2 programs)"),
    ]


def test_calls_are_told_apart():
    x, out = torch.arange(8.0), torch.zeros(8)
    run = launched(kernels.twice_called, (2,), x, out, BLOCK=4)
    with watched(lambda: watch(kernels.scaled, line("scaled body"), "doubled")):
        seen = recorded(last_launch(run), "sm_90a").values
    first = [value for value in seen if value.frames[-2].line == line("first call")]
    assert len(first) == 2 < len(seen)
    said = notes(run, RecordedValues("native.tkd", [(0, value) for value in first]))
    assert said == [(line("scaled return"), "native.tkd: doubled was the same (2 programs)")]


def test_other_launches_are_compared_with_their_own_values():
    values = native(SUM, kernels.summed, ("add", "total", False))
    said = []

    def look(debugger):
        said.extend(debugger.stop.notes)
        return Continue()

    with debugging(Scripted([look, look]), recorded=values) as debugger:
        debugger.add_line(kernels.FILE, line("after"))
        SUM()
        SUM()
    assert said == []  # of the second launch nothing is recorded, and at this line nothing


def test_steps_back_compare_again():
    values = native(SUM, kernels.summed, ("add", "total", False))
    said = []

    def look(debugger):
        said.append(debugger.stop.notes)

    back = Continue(backwards=True)
    steps = [Continue(), look, Continue(), look, back, look, Continue(), Continue()]
    with debugging(Scripted(steps), recorded=values) as debugger:
        debugger.add_line(kernels.FILE, line("header"))
        SUM()
    same = ("native.tkd: total was the same (2 programs)",)
    assert said == [same, same, same]
