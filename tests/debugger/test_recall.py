"""Variables that no op needs at a line, but that Python still holds there."""

import pytest
import torch
from fronts import Scripted, debugging

import tkdebug as triton
import tkdebug.language as tl
from tkdebug.debugger import recall
from tkdebug.debugger.expressions import EvaluationError
from tkdebug.debugger.goals import Continue
from tkdebug.debugger.programs import Selection
from tkdebug.debugger.values import Tile, Unavailable
from tkdebug.errors import UsageError


@triton.jit
def shifted(x, by):
    if by > 1:
        extra = by * 10  # noqa: F841
    return x + by  # returns


@triton.jit
def counted(x_ptr, out_ptr):
    pid = tl.program_id(0)
    n = tl.load(x_ptr + pid)
    total = 0
    for i in range(n):  # header
        square = i * i
        if i % 2 == 1:  # test
            odd = square + 100  # noqa: F841
        total += shifted(square, i)
    tl.store(out_ptr + pid, total)  # store


def line(name):
    lines = open(__file__).read().splitlines()
    return next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {name}"))


def readings(counts, name, names, programs=None, stop=1, frame=0):
    """Return the values of names at the `stop`-th stop at a line, for these numbers of rounds."""
    found = []

    def look(debugger):
        if programs is not None:
            debugger.select(Selection.of([(each,) for each in programs], (len(counts), 1, 1)))
        inspection = debugger.at_stop
        variables = inspection.variables(frame)
        assert all(type(inspection.read(each, frame)) is type(variables[each]) for each in names)
        found.append([variables[each] for each in names])
        return Continue()

    steps = [Continue()] * (stop - 1) + [look]
    out = torch.zeros(len(counts), dtype=torch.int32)
    with debugging(Scripted(steps)) as debugger:
        debugger.add_line(__file__, line(name))
        counted[(len(counts),)](torch.tensor(counts, dtype=torch.int32), out)
    assert out.tolist() == [sum(i * i + i for i in range(n)) for n in counts]
    return found[0]


def numbers(found):
    return [each.data.tolist() for each in found]


def test_values_of_a_loop_s_round_before_are_those_of_python():
    assert numbers(readings([4], "header", ["i", "square", "odd"], stop=5)) == [[3], [9], [109]]
    assert numbers(readings([4], "test", ["odd"], stop=3)) == [[101]]


def test_values_of_a_loop_that_has_ended_are_those_of_its_last_round():
    assert numbers(readings([4], "store", ["i", "square", "odd"])) == [[3], [9], [109]]


def test_a_program_that_left_a_loop_earlier_has_the_values_of_its_own_last_round(monkeypatch):
    again = []
    real = recall._read_again
    monkeypatch.setattr(recall, "_read_again", lambda *args: again.append(1) or real(*args))
    counts = [4, 2, 1]
    assert numbers(readings(counts, "store", ["i", "square", "odd"], [1])) == [[1], [1], [101]]
    assert again  # the others' rounds have overwritten its values
    again.clear()
    assert numbers(readings(counts, "store", ["i", "square"], [0])) == [[3], [9]]
    assert not again


def test_a_name_that_was_never_bound_has_no_value():
    first, odd = readings([4, 1], "store", ["square", "odd"], [1])
    assert first.data.tolist() == [0]
    assert isinstance(odd, Unavailable)
    [odd] = readings([4], "test", ["odd"])
    assert odd == Unavailable(f"the loop at line {line('header')} binds it, later in its body")


def test_programs_that_bound_a_name_at_different_times_are_told_apart():
    i, odd = readings([4, 2, 1], "store", ["i", "odd"])
    assert "at different times; select one" in i.reason
    assert "only some of the selected programs" in odd.reason


def test_each_call_of_a_function_begins_without_variables():
    fresh, kept = (readings([3], "returns", ["extra"], stop=stop)[0] for stop in (2, 3))
    assert isinstance(fresh, Unavailable)
    assert kept.data.tolist() == [20]


def test_a_caller_s_variables_are_recalled_too():
    [odd] = readings([3], "returns", ["odd"], stop=3, frame=1)
    assert odd.data.tolist() == [101]


def test_recalled_values_follow_time_back():
    seen = []

    def look(debugger):
        reading = debugger.at_stop.read("odd")
        seen.append(reading.data.tolist() if isinstance(reading, Tile) else None)

    back = Continue(backwards=True)
    steps = [*[Continue()] * 4, look, back, look, back, look, Continue(), look, Continue()]
    out = torch.zeros(1, dtype=torch.int32)
    with debugging(Scripted(steps)) as debugger:
        debugger.add_line(__file__, line("test"))
        counted[(1,)](torch.tensor([5], dtype=torch.int32), out)
    assert seen == [[109], [101], [101], [101]]


def test_a_variable_of_before_cannot_be_assigned():
    refused = []

    def look(debugger):
        try:
            debugger.assign("odd", "5")
        except UsageError as error:
            refused.append(str(error))

    out = torch.zeros(1, dtype=torch.int32)
    with debugging(Scripted([Continue(), Continue(), look])) as debugger:
        debugger.add_line(__file__, line("test"))
        counted[(1,)](torch.tensor([3], dtype=torch.int32), out)
    assert refused[0].startswith("`odd` cannot be assigned: ")


def test_only_conditions_look_for_such_a_name_program_by_program():
    found = []

    def look(debugger):
        inspection = debugger.at_stop
        with pytest.raises(EvaluationError, match="at different times; select one"):
            inspection.evaluate("i + 1")  # watches would execute the launch again at each line
        found.append(inspection.programs)

    with debugging(Scripted([look])) as debugger:
        debugger.add_line(__file__, line("store"), condition="n < 3 or i == 3")
        counts = torch.tensor([4, 2, 1, 9], dtype=torch.int32)
        counted[(4,)](counts, torch.zeros(4, dtype=torch.int32))
    assert found == [(0, 1, 2)]
