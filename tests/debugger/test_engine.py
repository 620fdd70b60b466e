"""Stops, steps both ways, breakpoints of every kind, programs, assignment."""

import debugged_kernels as kernels
import pytest
import torch
from debugged_kernels import FILE, line
from fronts import Scripted, debugging

from tkdebug.debugger.breakpoints import BreakKind
from tkdebug.debugger.expressions import EvaluationError
from tkdebug.debugger.goals import (
    Continue,
    GoTo,
    LastWrite,
    Restart,
    RunToLine,
    Step,
    StepKind,
)
from tkdebug.debugger.programs import Selection
from tkdebug.debugger.stops import Reason
from tkdebug.debugger.value_text import found_text
from tkdebug.debugger.values import Buffer, Constant, Described, Pointers, Tile
from tkdebug.errors import UsageError

OVER, INTO, OUT = Step(StepKind.OVER), Step(StepKind.INTO), Step(StepKind.OUT)
BACK = Step(StepKind.OVER, backwards=True)


def equal(left, right):
    """Whether two readings are the same; floats bit by bit, so that NaN equals itself."""
    match left, right:
        case Tile(), Tile():
            return _same(left.data, right.data)
        case Buffer(), Buffer():
            return _same(left.data, right.data)
        case Pointers(), Pointers():
            return left.name == right.name and _same(left.offsets, right.offsets)
        case Described(), Described():
            return all(equal(part, right.parts[name]) for name, part in left.parts.items())
        case tuple(), tuple():
            return len(left) == len(right) and all(map(equal, left, right))
        case Constant(), Constant():
            return left.value is right.value or bool(left.value == right.value)
        case _:
            return type(left) is type(right)


def _same(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.is_floating_point:
        return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
    return torch.equal(a, b)


def run(kernel, grid, *arguments, steps=(), set_up=None, **options):
    front = Scripted(steps)
    with debugging(front) as debugger:
        if set_up is None:
            debugger.stop_at_next_launch()
        else:
            set_up(debugger)
        kernel[grid](*arguments, **options)
        front.breakpoints = debugger.breakpoints
    return front


def places(front):
    return [(stop.place.function, stop.place.line) if stop.place else None for stop in front.stops]


def twice(steps, set_up=None, programs=2):
    x, out = torch.arange(4.0 * programs), torch.zeros(4 * programs)
    front = run(kernels.twice_called, (programs,), x, out, steps=steps, set_up=set_up, BLOCK=4)
    assert torch.equal(out, 8 * x)
    return front


def test_steps_into_and_out_of_a_function_that_is_called_twice():
    at = lambda debugger: debugger.add_line(FILE, line("scaled body"))  # noqa: E731
    front = twice([OUT, OVER, INTO, OUT, OVER], at)
    assert places(front) == [
        ("scaled", line("scaled body")),
        ("scaled", line("scaled return")),
        ("twice_called", line("second call")),
        ("scaled", line("scaled body")),
        ("scaled", line("scaled return")),
        ("twice_called", line("store")),
    ]
    assert [stop.is_return for stop in front.stops] == [False, True, False, False, True, False]
    calls = [stop.frames[0].line for stop in front.stops if len(stop.frames) == 2]
    assert calls == [line("first call")] * 2 + [line("second call")] * 2


def test_frames_have_variables_of_their_own():
    seen = []

    def look(debugger):
        inside = debugger.at_stop
        seen.append((inside.evaluate("factor"), inside.evaluate("offs", frame=1)))
        with pytest.raises(EvaluationError, match="offs"):
            inside.evaluate("offs")
        debugger.select(Selection.of([(1,)], (2, 1, 1)))
        seen.append(inside.evaluate("x"))

    twice([look], lambda debugger: debugger.add(BreakKind.FUNCTION, "scaled"))
    assert seen[0][0] == 2.0
    assert seen[0][1].data.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert seen[1].tolist() == [4.0, 5.0, 6.0, 7.0]


def test_stepping_off_the_end_stops_there_with_the_results():
    values = []
    look = lambda debugger: values.append(debugger.at_stop.evaluate("out[:4]").tolist())  # noqa: E731
    front = twice([*[OVER] * 5, OVER, look, BACK])
    assert front.stops[-2].reason is Reason.END
    assert values == [[0.0, 8.0, 16.0, 24.0]]
    assert front.stops[-1].is_return


def test_a_step_back_finds_equal_values():
    found = []
    note = lambda debugger: found.append(debugger.at_stop.variables())  # noqa: E731
    front = twice([OVER, OVER, note, OVER, BACK, note, Continue()])
    assert places(front)[2] == places(front)[4]
    assert front.stops[2].moment == front.stops[4].moment
    assert found[0].keys() == found[1].keys()
    assert all(equal(value, found[1][name]) for name, value in found[0].items())


def test_time_runs_back_to_the_breakpoint_before_and_to_the_beginning():
    set_up = lambda debugger: debugger.add_line(FILE, line("add"))  # noqa: E731
    x, out = torch.ones(2, 12), torch.zeros(2)
    back = Continue(backwards=True)
    starts = []
    note = lambda debugger: starts.append(debugger.at_stop.evaluate("start").values[0])  # noqa: E731
    front = run(
        kernels.summed, (2,), x, out, 12,
        steps=[note, Continue(), note, Continue(), note, back, note, back, note, back],
        set_up=set_up, BLOCK=4,
    )  # fmt: skip
    assert starts == [0, 4, 8, 4, 0]
    assert front.stops[5].reason is Reason.BEGINNING
    # From the beginning on the breakpoint is met again; it was counted once each.
    assert front.breakpoints[0].hits == 3
    assert out.tolist() == [12.0, 12.0]


def test_goes_to_moments_and_restarts():
    front = twice([OVER, lambda debugger: GoTo(front_moment(debugger)), Restart()])
    assert front.stops[2].reason is Reason.ARRIVED
    assert front.stops[2].moment == front.stops[1].moment
    assert front.stops[3].moment == front.stops[0].moment


def front_moment(debugger):
    return debugger.stop.moment


def test_runs_to_a_line_both_ways():
    steps = [RunToLine(FILE, line("store")), RunToLine(FILE, line("load"), backwards=True)]
    front = twice(steps)
    assert places(front)[1:] == [("twice_called", line("store")), ("twice_called", line("load"))]


def test_until_leaves_a_loop():
    x, out = torch.ones(1, 12), torch.zeros(1)
    front = run(
        kernels.summed, (1,), x, out, 12, BLOCK=4,
        steps=[RunToLine(FILE, line("add")), Step(StepKind.UNTIL), Step(StepKind.UNTIL)],
    )  # fmt: skip
    assert places(front)[2:] == [("summed", line("after"))] * 2
    assert front.stops[3].is_return


def test_a_condition_selects_its_programs_and_counts():
    set_up = lambda debugger: debugger.add_line(  # noqa: E731
        FILE, line("add"), condition="pid == 1 and start == 4"
    )
    x, out = torch.arange(24.0).reshape(2, 12), torch.zeros(2)
    seen = []

    def look(debugger):
        seen.append(debugger.at_stop.programs)
        seen.append(debugger.at_stop.evaluate("total").tolist())

    front = run(kernels.summed, (2,), x, out, 12, steps=[look], set_up=set_up, BLOCK=4)
    assert len(front.stops) == 1
    assert seen == [(1,), [12.0, 13.0, 14.0, 15.0]]
    assert out.tolist() == x.sum(1).tolist()


def test_ignored_temporary_and_disabled_breakpoints():
    x, out = torch.ones(2, 12), torch.zeros(2)

    def set_up(debugger):
        debugger.add_line(FILE, line("add"), ignored=1, is_temporary=True)
        debugger.add_line(FILE, line("after"), is_enabled=False)

    front = run(kernels.summed, (2,), x, out, 12, set_up=set_up, BLOCK=4)
    assert places(front) == [("summed", line("add"))]
    assert [one.kind for one in front.breakpoints] == [BreakKind.LINE]
    assert front.breakpoints[0].line == line("after")


def test_a_log_point_prints_and_goes_on():
    x, out = torch.ones(2, 8), torch.zeros(2)
    set_up = lambda debugger: debugger.add_line(  # noqa: E731
        FILE, line("add"), log="start {start} of {oops}"
    )
    front = run(kernels.summed, (2,), x, out, 8, set_up=set_up, BLOCK=4)
    assert front.stops == []
    assert front.logged[0].startswith("start 0 of <oops: NameError")
    assert len(front.logged) == 2


def test_a_condition_that_raises_stops_and_says_so():
    set_up = lambda debugger: debugger.add_line(FILE, line("add"), condition="nothing > 1")  # noqa: E731
    x, out = torch.ones(1, 4), torch.zeros(1)
    front = run(kernels.summed, (1,), x, out, 4, set_up=set_up, BLOCK=4)
    assert "nothing > 1: NameError" in front.stops[0].detail[0]
    with debugging(front) as debugger, pytest.raises(EvaluationError, match="no expression"):
        debugger.add_line(FILE, 1, condition="1 +")


def divergent(steps, set_up=None):
    x, out = torch.tensor([3.0, -1.0, 4.0, 0.0]), torch.zeros(4)
    front = run(kernels.divergent, (4,), x, out, steps=steps, set_up=set_up)
    assert out.tolist() == [6.0, -2.0, 8.0, -1.0]
    return front


def test_both_sides_of_a_divergent_branch_stop_with_their_programs():
    seen = []

    def look(debugger):
        census = debugger.at_stop.census()
        seen.append((census.here, census.text(), debugger.at_stop.evaluate("x").values))

    to_test = RunToLine(FILE, line("test"))
    front = divergent([to_test, OVER, look, OVER, look, OVER, look])
    assert [stop.place.line for stop in front.stops[1:]] == [
        line(name) for name in ("test", "positive", "negative", "join")
    ]
    other = f"in the other branch of the `if` at line {line('test')}"
    assert seen[0] == ((0, 2), f"2 of 4 programs are here, 2 {other}", [3.0, 4.0])
    assert seen[1] == ((1, 3), f"2 of 4 programs are here, 2 {other}", [-1.0, 0.0])
    assert seen[2][:2] == ((0, 1, 2, 3), "all 4 programs are here")


def test_steps_follow_the_selected_programs():
    select = lambda debugger: debugger.select(Selection.of([(1,)], (4, 1, 1)))  # noqa: E731
    front = divergent([select, RunToLine(FILE, line("test")), OVER, OVER])
    assert [stop.place.line for stop in front.stops[1:]] == [
        line(name) for name in ("test", "negative", "join")
    ]


def test_a_write_and_a_read_of_an_element():
    def set_up(debugger):
        debugger.add(BreakKind.WRITE, "out[2]")
        debugger.add(BreakKind.READ, "x[1]")

    front = divergent([], set_up)
    assert [stop.detail for stop in front.stops] == [
        (f"x_ptr[1] was read by program 1 at line {line('test') - 1}",),
        (f"out_ptr[2] was written by program 2 at line {line('join')}",),
    ]


def test_an_access_is_reported_at_its_own_moment_after_time_ran_back():
    write = lambda debugger: debugger.add(BreakKind.WRITE, "out[2]")  # noqa: E731
    to_store = RunToLine(FILE, line("join"))
    front = divergent([Continue(backwards=True), Restart(), to_store], write)
    assert [stop.reason for stop in front.stops] == [
        Reason.WATCH,
        Reason.BEGINNING,
        Reason.ARRIVED,
        Reason.STEP,
        Reason.WATCH,
    ]


def test_breakpoints_at_one_function_or_op_are_all_met():
    def set_up(debugger):
        for kind, subject in ((BreakKind.FUNCTION, "scaled"), (BreakKind.OP, "tt.store")):
            debugger.add(kind, subject, condition="launch == 1")
            debugger.add(kind, subject, condition="launch == 2")

    front = twice([], set_up)
    assert [stop.breakpoints for stop in front.stops] == [(1,), (1,), (3,)]
    assert front.breakpoints[0].hits == 2


def test_a_condition_that_holds_everywhere_selects_nothing():
    set_up = lambda debugger: debugger.add_line(FILE, line("test"), condition="x < 9")  # noqa: E731
    chosen = []
    divergent([lambda debugger: chosen.append(debugger.selection.programs)], set_up)
    assert chosen == [None]


def test_pid_of_two_axes_is_not_compared_with_one_number():
    found = []

    def look(debugger):
        inspection = debugger.at_stop
        with pytest.raises(EvaluationError, match=r"`pid` is 2 numbers and never equals 1"):
            inspection.evaluate("pid == 1")
        found.append(inspection.evaluate("pid == (1, 0)").values)

    set_up = lambda debugger: debugger.add_line(FILE, line("call"), condition="pid != (0, 0)")  # noqa: E731
    out = torch.zeros(4, dtype=torch.int32)
    front = run(kernels.breaking, (2, 2), out, steps=[look], set_up=set_up)
    assert front.stops[-1].breakpoints == (1,)
    assert found == [[True, False, False]]


def test_expressions_are_of_each_program_by_itself():
    found, text = {}, {}

    def look(debugger):
        inspection = debugger.at_stop
        inner = "[x[i].item() for i in range(2)]"
        texts = (
            "x[:2]",
            "x.sum() + pid",
            "x_ptr.shape",
            "BLOCK * 2",
            "[pid, 7]",
            "x[1] > 1",
            inner,
        )
        for each in texts:
            found[each] = inspection.evaluate(each)
            text[each] = found_text(found[each], inspection.programs, inspection.launch.grid)
        with pytest.raises(EvaluationError, match=r"\(in program 1\)"):
            inspection.evaluate("1 // (1 - pid)")
        debugger.assign("x", "x[1] * 10")
        found["x"] = inspection.evaluate("x")

    steps = [RunToLine(FILE, line("first call")), look]
    run(kernels.twice_called, (2,), torch.arange(8.0), torch.zeros(8), steps=steps, BLOCK=4)
    assert found["x[:2]"].data.tolist() == [[0, 1], [4, 5]]
    assert text["x[:2]"] == "float32[2] in 2 programs\n  0: [0 1]\n  1: [4 5]"
    assert text["x.sum() + pid"] == "float32 in 2 programs: 0: 6, 1: 23"
    assert (found["x_ptr.shape"], found["BLOCK * 2"]) == ((8,), 8)
    assert text["[pid, 7]"] == "0: [0, 7], 1: [1, 7]"
    assert text["x[1] > 1"] == "True in 1 of 2 programs: 1"
    assert text["[x[i].item() for i in range(2)]"] == "0: [0, 1], 1: [4, 5]"
    assert found["x"].data.tolist() == [[10] * 4, [50] * 4]


def test_goes_back_to_the_last_write_of_an_element():
    back = [*[OVER] * 6, lambda debugger: LastWrite("out[3]")]
    before = []
    look = lambda debugger: before.append(debugger.at_stop.evaluate("out[3].item()"))  # noqa: E731
    front = divergent([*back, look])
    assert front.stops[-1].place.line == line("join")
    assert before == [0.0]
    with pytest.raises(UsageError, match="not a tensor argument"):
        divergent([lambda debugger: LastWrite("y[3]")])


def test_a_fault_stops_before_its_op_with_the_program_that_has_it():
    x, out = torch.ones(6), torch.zeros(8)
    set_up = lambda debugger: debugger.add(BreakKind.FAULT)  # noqa: E731
    seen = []
    look = lambda debugger: seen.append(debugger.at_stop.evaluate("offs.tolist()"))  # noqa: E731
    front = run(kernels.overrun, (2,), x, out, steps=[look], set_up=set_up, BLOCK=4)
    assert len(front.stops) == 1
    assert front.stops[0].place.line == line("faulty")
    assert "offset 6" in "\n".join(front.stops[0].detail)
    assert seen == [[4, 5, 6, 7]]


def test_breakpoint_in_a_kernel_stops_there(monkeypatch):
    out = torch.zeros(2, dtype=torch.int32)
    nothing = lambda debugger: None  # noqa: E731
    front = run(kernels.breaking, (2,), out, set_up=nothing)
    assert [(stop.reason, stop.place.line) for stop in front.stops] == [(Reason.CALL, line("call"))]
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    assert run(kernels.breaking, (2,), out, set_up=nothing).stops == []
    assert out.tolist() == [1, 2]


def test_watches_of_variables():
    x, out = torch.tensor([1.0, -1.0]), torch.zeros(2)
    front = run(kernels.born, (2,), x, out, set_up=lambda d: d.add(BreakKind.NAN, "y"))
    assert [(s.place.line, s.detail) for s in front.stops] == [(line("nan seen"), ("y has 1 NaN",))]
    x, out = torch.ones(1, 12), torch.zeros(1)
    watch = lambda debugger: debugger.add(BreakKind.CHANGE, "total.sum().item()")  # noqa: E731
    front = run(kernels.summed, (1,), x, out, 12, set_up=watch, BLOCK=4)
    assert [stop.detail[0].partition(" changed: ")[2] for stop in front.stops] == [
        "0 -> 4",
        "4 -> 8",
        "8 -> 12",
    ]


def test_a_watch_begins_with_the_value_at_its_stop():
    x, out = torch.ones(1, 8), torch.zeros(1)
    add = lambda debugger: debugger.add(BreakKind.CHANGE, "total.sum().item()") and None  # noqa: E731
    to_add = RunToLine(FILE, line("add"))
    front = run(kernels.summed, (1,), x, out, 8, steps=[to_add, add], BLOCK=4)
    changes = [stop.detail[0].partition(" changed: ")[2] for stop in front.stops[2:]]
    assert changes == ["0 -> 4", "4 -> 8"]


def test_a_watched_variable_is_not_the_argument_of_the_same_name():
    x, out = torch.tensor([float("inf"), 1.0]), torch.zeros(2)
    front = run(kernels.born, (2,), x, out, set_up=lambda d: d.add(BreakKind.INF, "x"))
    assert [stop.place.line for stop in front.stops] == [line("nan here")]


@pytest.mark.parametrize(
    ("kind", "subject", "condition", "stops"),
    [
        (BreakKind.WRITE, "out[2]", "pid == 2", True),
        (BreakKind.WRITE, "out[2]", "pid == 1", False),
        (BreakKind.READ, "x[1]", "i == 1", True),
        (BreakKind.READ, "x[1]", "i == 0", False),
        (BreakKind.CHANGE, "launch", "x > 3", False),
        (BreakKind.NAN, "y", "x > 9", False),
        (BreakKind.END, "", "out.sum() == 11", True),
        (BreakKind.END, "", "out.sum() == 12", False),
        (BreakKind.END, "", "nothing", True),
    ],
)
def test_conditions_hold_for_breakpoints_of_every_kind(kind, subject, condition, stops):
    front = divergent([], lambda d: d.add(kind, subject, condition=condition))
    assert bool(front.stops) is stops
    assert front.breakpoints[0].hits == stops


@pytest.mark.parametrize(("condition", "stops"), [("offs[0] == 4", True), ("offs[0] > 4", False)])
def test_conditions_of_faults_and_watches_hold(condition, stops):
    add = lambda d: d.add(BreakKind.FAULT, condition=condition)  # noqa: E731
    front = run(kernels.overrun, (2,), torch.ones(6), torch.zeros(8), set_up=add, BLOCK=4)
    assert bool(front.stops) is stops
    add = lambda d: d.add(BreakKind.CHANGE, "total[0]", condition="start == 4")  # noqa: E731
    front = run(kernels.summed, (1,), torch.ones(1, 12), torch.zeros(1), 12, set_up=add, BLOCK=4)
    assert [stop.detail for stop in front.stops] == [("total[0] changed: 1 -> 2",)]


def test_an_op_can_be_broken_at():
    front = twice([], lambda debugger: debugger.add(BreakKind.OP, "tt.store"))
    assert places(front) == [("twice_called", line("store"))]


def test_an_assignment_holds_forward_and_is_undone_backwards():
    x, out = torch.ones(2, 8), torch.zeros(2)

    def assign(debugger):
        debugger.select(Selection.of([(1,)], (2, 1, 1)))
        debugger.assign("total", "total + 10")

    to_add = RunToLine(FILE, line("add"))
    run(kernels.summed, (2,), x, out, 8, steps=[to_add, assign], BLOCK=4)
    assert out.tolist() == [8.0, 48.0]
    front = run(kernels.summed, (2,), x, out, 8, steps=[to_add, assign, OVER, BACK, BACK], BLOCK=4)
    assert front.stops[-2].notes == ()
    assert front.stops[-1].notes == ("an assignment was undone: time ran back to before",)
    assert out.tolist() == [8.0, 8.0]


def test_what_cannot_be_assigned_is_refused():
    def refuse(debugger):
        for name, why in (("BLOCK", "compiled into"), ("nothing", "no such variable")):
            with pytest.raises(UsageError, match=why):
                debugger.assign(name, "1")
        with pytest.raises(UsageError, match="does not fit"):
            debugger.assign("offs", "torch.zeros(3)")

    twice([OVER, refuse])


def test_programs_that_wait_for_each_other_step_one_by_one():
    lock, count = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    seen = []

    def look(debugger):
        inspection = debugger.at_stop
        seen.append((inspection.census().text(), inspection.evaluate("count_ptr[0].item()")))

    front = run(
        kernels.locked, (3,), lock, count,
        steps=[look, Continue(), look, BACK, look, Continue(), Continue()],
        set_up=lambda debugger: debugger.add_line(FILE, line("inside")),
    )  # fmt: skip
    assert seen[0] == ("1 of 3 programs is here, 2 not begun", 0)
    assert seen[1] == ("1 of 3 programs is here, 1 ended, 1 not begun", 1)
    assert front.stops[2].place.line == line("spin")
    assert (count.item(), lock.item()) == (3, 0)


def test_batches_are_distinguished(monkeypatch):
    from tkdebug.interpreter import launch as launching

    monkeypatch.setattr(launching, "_batch_size", lambda *_: 2)
    seen = []
    look = lambda debugger: seen.append(debugger.at_stop.census().text())  # noqa: E731
    set_up = lambda debugger: debugger.add_line(FILE, line("store"))  # noqa: E731
    back = Continue(backwards=True)
    front = twice([look, Continue(), look, Continue(), look, back, look, back, look], set_up, 6)
    assert seen == [
        "2 of 6 programs are here, 4 not begun",
        "2 of 6 programs are here, 2 ended, 2 not begun",
        "2 of 6 programs are here, 4 ended",
        "2 of 6 programs are here, 2 ended, 2 not begun",
        "2 of 6 programs are here, 4 not begun",
    ]
    assert [one.hits for one in front.breakpoints] == [3]


def test_going_back_through_batches_without_a_breakpoint_comes_to_the_beginning(
    monkeypatch,
):
    from tkdebug.interpreter import launch as launching

    monkeypatch.setattr(launching, "_batch_size", lambda *_: 2)
    set_up = lambda debugger: debugger.add(BreakKind.END) and None  # noqa: E731
    front = twice([Continue(backwards=True)], set_up, 6)
    assert [stop.reason for stop in front.stops][:2] == [Reason.END, Reason.BEGINNING]


def test_a_front_in_another_thread_asks_in_the_stopped_one():
    import threading

    from tkdebug.debugger.queued_front import QueuedFront

    stops, answers = [], []
    stopped = threading.Event()

    def on_stop(stop):
        stops.append(stop)
        stopped.set()

    front = QueuedFront(on_stop, answers.append)

    def ask():
        stopped.wait()
        stopped.clear()
        answers.append(front.call(lambda d: threading.current_thread()).result())
        with pytest.raises(UsageError, match="nothing"):
            front.call(lambda d: d.at_stop.read("nothing")).result()
        front.resume(OVER)
        stopped.wait()
        front.close()

    other = threading.Thread(target=ask)
    other.start()
    x, out = torch.ones(4), torch.zeros(4)
    with debugging(front) as debugger:
        debugger.add_line(FILE, line("first call"))
        debugger.add_line(FILE, line("store"))
        kernels.twice_called[(1,)](x, out, BLOCK=4)
    other.join()
    assert answers == [threading.current_thread()]
    assert len(stops) == 2  # no more after it was closed
    assert out.tolist() == [8.0] * 4
    with pytest.raises(UsageError, match="no kernel is stopped"):
        front.resume(OVER)


def test_tuples_descriptors_block_pointers_and_unsigned_numbers_can_be_read():
    seen = {}
    x, out = torch.arange(64.0).reshape(8, 8) * 4, torch.zeros(8)

    def look(debugger):
        inspection = debugger.at_stop
        for text in ("pair", "block.offsets", "block.block_shape", "descriptor.shape", "small[0]"):
            seen[text] = inspection.evaluate(text)
        seen["base"] = inspection.evaluate("descriptor.base")

    front = run(
        kernels.described, (1,), x, out, N=8, steps=[RunToLine(FILE, line("described")), look]
    )
    assert places(front)[1] == ("described", line("described"))
    assert seen["pair"] == (0, 16)
    assert (seen["block.offsets"], seen["block.block_shape"]) == ((6, 0), (2, 8))
    assert seen["descriptor.shape"] == (8, 8)
    assert seen["small[0]"].tolist() == [192, 196, 200, 204, 208, 212, 216, 220]
    assert seen["base"] is not None
