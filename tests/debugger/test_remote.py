"""The Debug pane's other side: what a front over a socket shows of stops, and bears of its user."""

import builtins
import math
import queue
import socket
import threading
from dataclasses import asdict
from pathlib import Path

import debugged_kernels as kernels
import pytest
import torch
from debugged_kernels import line
from patience import LONGEST_WAIT_S

from tkdebug.debugger.goals import Ended, RunAgain
from tkdebug.debugger.remote.front import RemoteFront
from tkdebug.debugger.remote.pictures import heat_map
from tkdebug.debugger.remote.records import Look, View, Wire, record_of
from tkdebug.records.hook_chain import HOOKS


class Pane:
    """The other end of the socket: sends, and waits for what comes."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        self.wire = Wire(ours)
        self.front = RemoteFront(Wire(theirs), kernels.FILE)
        self.came = queue.Queue()
        self._threads = [
            threading.Thread(target=self.front.serve, daemon=True),
            threading.Thread(target=self._read, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self):
        for message in self.wire.messages():
            self.came.put(message)

    def say(self, **message):
        assert self.wire.send(message)

    def type(self, *lines):
        for each in lines:
            self.say(do="command", line=each)

    def wait(self, event):
        while True:
            message = self.came.get(timeout=LONGEST_WAIT_S)
            if message["event"] == event:
                return message

    def view(self):
        return record_of(View, self.wait("view")["view"])

    def answer(self):
        return self.wait("answer")["lines"]

    def launch(self, kernel, grid, *arguments, **options):
        """Launch in a thread of its own, as the pane is in one, too."""
        self.failed = None

        def run():
            try:
                kernel[grid](*arguments, **options)
            except BaseException as error:
                self.failed = error

        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)
        return thread

    def close(self):
        self.wire.close()
        for thread in self._threads:
            thread.join(LONGEST_WAIT_S)
            assert not thread.is_alive()
        HOOKS.debugger = None


@pytest.fixture
def pane():
    made = Pane()
    yield made
    made.close()


def stop_at(pane, name, kernel, grid, *arguments, **options):
    pane.type(f"b {line(name)}")
    assert pane.answer()[0].startswith("breakpoint 1 at")
    pane.launch(kernel, grid, *arguments, **options)
    return pane.view()


def test_a_stop_shows_variables_programs_and_the_lines_passed(pane):
    x, out = torch.tensor([3.0, -1.0, 4.0, 0.0]), torch.zeros(4)
    view = stop_at(pane, "negative", kernels.divergent, (4,), x, out)
    assert view.reasons == ("breakpoint 1",)
    assert (view.place.line, view.place.function) == (line("negative"), "divergent")
    assert {each.name: each.text for each in view.variables}["x"] == "-1"
    assert view.census.startswith("2 of 4 programs are here")
    programs = view.programs
    assert programs.states == "a≠a#" if programs.shown == 3 else "a#a≠"
    assert [group.text for group in programs.groups if group.sign == "a"] == [
        f"in the other branch of the `if` at line {line('test')}"
    ]
    timeline = view.timeline
    assert timeline.lines[timeline.now - timeline.first].place.line == line("negative")
    # The other branch ran before, without the program that is shown.
    before = [each for each in timeline.lines if each.place.line == line("positive")]
    assert [(each.programs, each.is_of_shown) for each in before] == [(2, False)]


def test_steps_go_both_ways_and_a_moment_passed_can_be_gone_to(pane):
    x, out = torch.arange(8.0), torch.zeros(8)
    first = stop_at(pane, "first call", kernels.twice_called, (2,), x, out, BLOCK=4)
    pane.type("s")
    inside = pane.view()
    assert [each.function for each in inside.frames[-2:]] == ["twice_called", "scaled"]
    pane.type("u")
    assert pane.view().place.line == line("first call")
    pane.type("r")
    pane.view()
    pane.type("n")
    assert pane.view().place.line == line("second call")
    pane.type(f"moment {inside.timeline.lines[inside.timeline.now].moment}")
    again = pane.view()
    assert (again.place, again.variables) == (inside.place, inside.variables)
    pane.type("rn")
    assert pane.view().place == first.place


def test_what_is_looked_at_follows_the_pane(pane):
    x, out = torch.arange(8.0), torch.zeros(8)
    stop_at(pane, "second call", kernels.twice_called, (2,), x, out, BLOCK=4)
    pane.say(do="look", look={**look(), "variable": "a", "program": 1})
    view = pane.view()
    assert view.heat.cells == ((8.0, 10.0, 12.0, 14.0),)
    assert (view.heat.program, view.programs.shown, view.programs.compared) == ("1", 1, "a")
    assert view.programs.states == "≠#"
    pane.say(do="look", look={**look(), "variable": "a", "begin": [1], "end": [3]})
    assert pane.view().heat.cells == ((2.0, 4.0),)
    pane.type("pid 1", "a = a * 0", "n")
    assert pane.view().selection == "program 1"
    pane.type("c")
    pane.wait("running")


def look():
    return {
        **{"variable": "", "program": None, "begin": [], "end": [], "plane": 0},
        **{"cells": [8, 8], "around": None},
    }


def test_expressions_that_raise_and_commands_while_nothing_is_stopped_are_reported(pane):
    pane.type("n", "p x", "b 1")
    assert pane.answer() == ["*** no kernel is stopped"]
    assert pane.answer() == ["*** no kernel is stopped"]
    assert "no statement of a function begins at this line" in pane.answer()[0]
    x, out = torch.arange(8.0), torch.zeros(8)
    stop_at(pane, "store", kernels.twice_called, (2,), x, out, BLOCK=4)
    pane.type("1 / 0", "p '\x1b[2J'", "foo bar")
    assert pane.answer() == ["*** 1 / 0: ZeroDivisionError: division by zero"]
    assert pane.answer() == ["'\\x1b[2J' = '\\x1b[2J'"]
    assert pane.answer()[0].startswith("*** foo bar: neither a command")


SCRIPT = """\
import debugged_kernels as kernels
import torch


def launched(x, out):
    kernels.twice_called[(2,)](x, out, BLOCK=4)
    return out.sum()


x = torch.arange(8.0)
out = torch.zeros(8)
total = launched(x, out)
twice = total * 2
last = twice + 1
"""


def begin_script(pane, file, text, is_module=False, **names):
    """Run a script in a thread of its own, under the pane's debugger."""
    file.write_text(text)
    pane.front._given_script = pane.front.console.script = "" if is_module else str(file)

    def run():
        again = True
        while again:
            again = False
            pane.front.begin_at_script()
            try:
                exec(
                    compile(file.read_text(), str(file), "exec"), {"__name__": "__main__", **names}
                )
            except RunAgain:
                again = True
            except (Ended, KeyboardInterrupt):
                pass
        pane.front.ended()
        pane.came.put({"event": "ended"})

    thread = threading.Thread(target=run)
    thread.start()
    pane._threads.append(thread)
    return str(file)


@pytest.fixture
def script(pane, tmp_path):
    return begin_script(pane, tmp_path / "script.py", SCRIPT)


def at_host(pane, at):
    """The next view of a line of the script's own; views of what came before are passed over."""
    while (view := pane.view()).kernel or view.place.line != at:
        pass
    return view


def in_kernel(pane):
    while not (view := pane.view()).kernel:
        pass
    return view


def variables(view):
    return {each.name: each.text for each in view.variables}


def test_the_scripts_lines_are_stepped_into_a_launch_and_back(pane, script):
    at_host(pane, 1)
    pane.type("b 12", "c")
    assert pane.answer()[0].startswith("Breakpoint 1 at")
    view = at_host(pane, 12)
    assert variables(view)["x"] == "float32[8] [0 1 2 3 4 5 6 7]"
    assert view.heat.name == "out"
    pane.type("s", "s")
    view = at_host(pane, 6)
    assert [place.function for place in view.frames] == ["<module>", "launched"]
    pane.type("u")
    assert at_host(pane, 12).frame == 1
    pane.type("d")
    assert at_host(pane, 6).frame == 0
    pane.type("s")
    assert in_kernel(pane).place.function == "twice_called"
    pane.type("b end", "c")
    while pane.view().frames:
        pass
    pane.type("n")
    assert at_host(pane, 7).launch == 1
    pane.type("r")
    assert at_host(pane, 7).reasons[0].startswith("--Return--")
    pane.type("n")
    view = at_host(pane, 13)
    assert variables(view)["total"] == "224"
    pane.type("rn")
    assert pane.answer()[0].startswith("*** rn: the script's own lines cannot be gone back to")
    pane.type("q")
    pane.wait("ended")


def test_a_step_that_is_asked_for_while_the_script_steps_waits_for_its_next_line(pane, tmp_path):
    begun, go = threading.Event(), threading.Event()
    text = "begun.set(), go.wait()\nx = 1\ny = 2\n"
    begin_script(pane, tmp_path / "script.py", text, begun=begun, go=go)
    at_host(pane, 1)
    pane.type("n")
    assert begun.wait(LONGEST_WAIT_S)
    pane.type("n")
    while pane.answer() != ["waits for the next stop"]:
        pass
    go.set()
    assert at_host(pane, 3).reasons == ()


def test_run_begins_the_script_again_with_its_breakpoints_from_stops_of_either_kind(pane, script):
    at_host(pane, 1)
    pane.type("b 13", f"b {kernels.FILE}:{line('store')}", "n")
    at_host(pane, 2)
    Path(script).write_text(SCRIPT.replace("out.sum()", "out.mean()"))
    pane.type("run")
    assert "out.mean()" in pane.wait("source")["text"]
    at_host(pane, 1)
    for _ in range(2):
        pane.type("c")
        view = in_kernel(pane)
        assert (view.place.line, view.launch) == (line("store"), 1)
        pane.type("run")
        at_host(pane, 1)
    pane.type("c", "c")
    assert variables(at_host(pane, 13))["total"] == "28"
    pane.type("restart")
    while not (said := pane.answer()) or not said[0].startswith("*** restart: no kernel"):
        pass
    pane.type("q")
    pane.wait("ended")


def test_a_module_whose_file_is_known_as_it_begins_stops_at_its_first_line(pane, tmp_path):
    file = tmp_path / "module.py"
    begin_script(pane, file, SCRIPT, is_module=True, __file__=str(file))
    at_host(pane, 1)
    pane.say(do="break", file=str(file), line=13)
    assert [one["line"] for one in breakpoints(pane, 1)] == [13]
    pane.type("c")
    assert variables(at_host(pane, 13))["total"] == "224"
    pane.type("run")
    at_host(pane, 1)
    pane.type("q")
    pane.wait("ended")


def test_run_in_a_kernel_that_was_stepped_into_stops_at_no_line_on_its_way_out(pane, script):
    at_host(pane, 1)
    pane.type("until 12", "s", "s", "s")
    in_kernel(pane)
    pane.type("run")
    assert pane.view().place.line == 1


def test_run_is_refused_where_a_run_is_recorded(pane):
    stop_at(pane, "store", kernels.twice_called, (2,), torch.arange(8.0), torch.zeros(8), BLOCK=4)
    pane.type("run")
    while "run: only `tkdebug debug" not in (pane.answer() or [""])[0]:
        pass


def test_ctrl_c_at_the_scripts_lines_ends_it_and_stops_nowhere_else(pane, script, monkeypatch):
    at_host(pane, 1)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pane.front, "_do", interrupted)
    pane.say(do="look", look={})
    seen = []
    while not seen or seen[-1] != "ended":
        seen.append(pane.came.get(timeout=LONGEST_WAIT_S)["event"])
    assert "view" not in seen


def test_breakpoints_at_the_scripts_lines_are_toggled_at_stops_of_both_kinds(pane, script):
    at_host(pane, 1)
    toggle = {"do": "break", "file": script}
    pane.say(**toggle, line=13)
    assert [one["line"] for one in breakpoints(pane, 1)] == [13]
    pane.say(**toggle, line=4)
    assert pane.answer()[0].endswith(":4: no statement begins at this line")
    pane.type(f"b {kernels.FILE}:{line('store')}", "c")
    in_kernel(pane)
    pane.say(**toggle, line=13)
    pane.say(**toggle, line=14)
    assert {one["line"] for one in breakpoints(pane, 2)} == {line("store"), 13}
    assert {one["line"] for one in breakpoints(pane, 1)} == {line("store")}
    pane.type("c")
    assert "twice" in variables(at_host(pane, 14))
    pane.type("q")
    pane.wait("ended")


def breakpoints(pane, count):
    while len(found := pane.wait("breakpoints")["breakpoints"]) != count:
        pass
    return found


@pytest.fixture
def running(pane, monkeypatch):
    """A launch that runs, and comes to the second call and the store once it is let go."""
    held, said = threading.Event(), threading.Event()

    def log(text):
        said.set()
        assert held.wait(LONGEST_WAIT_S)

    monkeypatch.setattr(pane.front, "log", log)
    pane.type(f"b {line('first call')}", "log 1 here", f"b {line('store')}")
    for _ in range(3):
        pane.answer()
    pane.launch(kernels.twice_called, (2,), torch.arange(8.0), torch.zeros(8), BLOCK=4)
    assert said.wait(LONGEST_WAIT_S)
    yield held.set
    held.set()


def test_commands_typed_while_a_launch_runs_wait_for_its_next_stop(pane, running):
    pane.type("p b", "p 1", "rn ;; p x")
    assert pane.answer() == ["waits for the next stop"]
    assert pane.answer() == ["waits for the next stop"]
    assert pane.answer() == ["waits for the next stop"]
    running()
    assert pane.view().place.line == line("store")
    assert pane.wait("answer")["command"] == "p b"
    assert pane.answer() == ["1 = 1"]
    assert pane.wait("answer")["command"] == "rn ;; p x"
    pane.wait("running")
    assert pane.view().place.line == line("second call")
    assert pane.wait("answer")["command"] == "p x"


def test_breakpoints_are_set_while_a_launch_runs(pane, running):
    pane.type(f"b {line('second call')} ;; n ;; p b", f"b {line('load')}")
    assert pane.answer()[0].startswith("breakpoint 3 at")
    assert pane.answer() == ["waits for the next stop"]
    assert pane.answer()[0].startswith("breakpoint 4 at")
    running()
    assert pane.view().place.line == line("second call")
    assert pane.wait("answer")["command"] == "n ;; p b"
    assert pane.view().place.line == line("store")
    assert pane.wait("answer")["command"] == "p b"


def test_what_waits_for_the_next_stop_is_bounded_and_can_be_forgotten(pane, running):
    pane.type(*["n"] * 21)
    found = [pane.answer() for _ in range(21)]
    assert found[19:] == [
        ["waits for the next stop"],
        ["*** 20 commands wait for the next stop already"],
    ]
    pane.say(do="forget")
    assert pane.wait("ahead")["count"] == 0
    running()
    assert pane.view().place.line == line("store")
    pane.type("p 1")
    assert pane.answer() == ["1 = 1"]


def test_what_waits_for_a_stop_that_never_comes_is_said(pane, running):
    pane.type("clear 2", "n")
    pane.answer()
    assert pane.answer() == ["waits for the next stop"]
    running()
    for thread in pane._threads[2:]:
        thread.join(LONGEST_WAIT_S)
    pane.front.ended()
    assert pane.answer() == ["*** never run, as nothing stopped any more: n"]


def test_breakpoints_are_toggled_at_lines_and_shown(pane):
    where = {"do": "break", "file": kernels.FILE}
    pane.say(**where, line=line("store"))
    shown = pane.wait("breakpoints")["breakpoints"]
    assert [(one["number"], one["line"]) for one in shown] == [(1, line("store"))]
    pane.say(**where, line=line("store"))
    assert pane.wait("breakpoints")["breakpoints"] == []
    pane.say(**where, line=1)
    assert "no statement" in pane.answer()[0]
    assert pane.wait("breakpoints")["breakpoints"] == []
    pane.say(**where, line=line("load"))
    assert len(pane.wait("breakpoints")["breakpoints"]) == 1
    pane.front.ended()
    assert pane.answer()[1].startswith("breakpoint 2 was never met")


def test_a_pane_that_goes_lets_the_launch_go_on(pane):
    x, out = torch.arange(8.0), torch.zeros(8)
    stop_at(pane, "store", kernels.twice_called, (2,), x, out, BLOCK=4)
    pane.close()
    assert torch.equal(out, 8 * torch.arange(8.0))
    assert HOOKS.debugger is None


ENDLESS = "begun.set() or [0 for _ in iter(int, 1) if 0]"


@pytest.fixture
def begun(monkeypatch):
    """Set by an expression that runs."""
    event = threading.Event()
    monkeypatch.setattr(builtins, "begun", event, raising=False)
    return event


@pytest.mark.parametrize("at", ["kernel", "script"])
def test_pause_interrupts_what_is_evaluated(pane, tmp_path, begun, at):
    if at == "kernel":
        stop_at(pane, "store", kernels.twice_called, (2,), torch.ones(8), torch.ones(8), BLOCK=4)
    else:
        begin_script(pane, tmp_path / "script.py", SCRIPT)
        at_host(pane, 1)
    pane.type(f"p {ENDLESS}")
    assert begun.wait(LONGEST_WAIT_S)
    pane.say(do="pause")
    assert pane.answer()[0] in ("*** interrupted", "*** KeyboardInterrupt")
    pane.type("p 1 + 1")
    assert pane.answer()[0].endswith("2")


def test_pause_interrupts_a_condition_and_stops_there(pane, begun):
    pane.type(f"b {line('store')} if {ENDLESS}")
    assert pane.answer()[0].startswith("breakpoint 1 at")
    pane.launch(kernels.twice_called, (2,), torch.ones(8), torch.ones(8), BLOCK=4)
    assert begun.wait(LONGEST_WAIT_S)
    pane.say(do="pause")
    view = pane.view()
    assert view.place.line == line("store")
    assert "the condition of breakpoint 1 was interrupted" in view.reasons


def test_a_pane_that_goes_takes_what_it_evaluates_along(pane, begun):
    out = torch.zeros(8)
    stop_at(pane, "store", kernels.twice_called, (2,), torch.arange(8.0), out, BLOCK=4)
    pane.type(f"p {ENDLESS}")
    assert begun.wait(LONGEST_WAIT_S)
    pane.close()
    assert torch.equal(out, 8 * torch.arange(8.0))


def test_given_commands_after_one_that_fails_are_not_run(pane):
    pane.say(do="commands", lines=["p nothing", "p 1", "c"])
    stop_at(pane, "store", kernels.twice_called, (2,), torch.ones(8), torch.ones(8), BLOCK=4)
    assert pane.answer() == ["*** nothing: NameError: name 'nothing' is not defined"]
    assert pane.answer() == ["not run: p 1 ;; c"]
    pane.type("p 2")
    assert pane.answer() == ["2 = 2"]


def test_after_detach_a_breakpoint_stops_again(pane):
    x, out = torch.arange(8.0), torch.zeros(8)
    stop_at(pane, "store", kernels.twice_called, (2,), x, out, BLOCK=4)
    pane.type("detach")
    pane.wait("running")
    pane._threads[-1].join(LONGEST_WAIT_S)
    assert HOOKS.debugger is None
    pane.say(do="break", file=kernels.FILE, line=line("load"))
    pane.wait("breakpoints")
    pane.launch(kernels.twice_called, (2,), x, out, BLOCK=4)
    assert pane.view().place.line == line("load")


def test_quit_ends_the_script_and_commands_given_ahead_come_first(pane):
    pane.say(do="commands", lines=["n", "p offs", "q"])
    pane.type(f"b {line('load')}")
    assert pane.answer()[0].startswith("breakpoint 1 at")
    thread = pane.launch(kernels.twice_called, (2,), torch.arange(8.0), torch.zeros(8), BLOCK=4)
    assert pane.view().frames
    thread.join(LONGEST_WAIT_S)
    assert isinstance(pane.failed, Ended)


def test_a_forked_child_neither_stops_nor_holds_the_wire():
    ours, theirs = socket.socketpair()
    front = RemoteFront(Wire(theirs))
    front.renew_locks()  # as after a fork, in the child
    assert front.break_into() is None
    assert ours.recv(1) == b""


# Tiles as cells


def drawn(data, **asked):
    return heat_map("x", "", "", torch.as_tensor(data), Look(**asked))


def test_cells_have_the_element_of_the_largest_magnitude_and_nan_wins():
    data = torch.zeros(4, 4)
    data[0, 1], data[1, 0], data[3, 3], data[2, 0] = 2.0, -3.0, math.nan, math.inf
    found = drawn(data, cells=(2, 2))
    assert found.cells[0] == (-3.0, 0.0)
    assert found.cells[1][0] == math.inf
    assert math.isnan(found.cells[1][1])
    assert (found.step, found.largest) == ((2, 2), 3.0)
    assert found.counts == (1, 12, 1, 1, 1)


@pytest.mark.parametrize("count", [1, 7, 8, 33, 1000, 100_000])
def test_one_axis_fits_its_room_and_loses_no_element(count):
    data = torch.zeros(count)
    data[-1] = 5.0
    found = drawn(data, cells=(6, 10))
    assert len(found.cells) <= 6
    assert max(map(len, found.cells)) <= 10
    cells = [cell for row in found.cells for cell in row]
    last = (count - 1) // found.step[0]
    assert cells[last] == 5.0
    assert cells[last + 1 :] == [None] * (len(cells) - last - 1)


def test_planes_of_more_axes_and_regions_beyond_the_tile():
    data = torch.arange(24.0).reshape(2, 3, 4)
    assert drawn(data, plane=1, cells=(9, 9)).cells[0] == (12.0, 13.0, 14.0, 15.0)
    assert drawn(data, plane=3).plane == (1,)
    assert drawn(data[0], begin=(5, 0), end=(9, 2)).end == (3, 4)
    assert drawn(torch.tensor([True, False])).cells == ((1.0, 0.0),)
    assert drawn(torch.zeros(0)).cells == ()


def test_the_frames_that_launched_are_above_the_kernel_s(pane):
    x = torch.arange(8.0)
    pane.type(f"b {line('first call')}")
    pane.answer()

    def host():
        factor, note = 3, "of the host"
        many = list(range(5000))
        kernels.twice_called[(2,)](x, torch.zeros(8), BLOCK=4)
        return factor, note, many

    pane.launch({(2,): host}, (2,))
    first = pane.view()
    assert [each.function for each in first.frames[-2:]] == ["host", "twice_called"]
    pane.type("u")
    above = pane.view()
    assert (above.place.function, above.place.file) == ("host", __file__)
    shown = {each.name: each.text for each in above.variables}
    assert (shown["factor"], shown["note"]) == ("3", "'of the host'")
    assert shown["many"] == "list of 5,000"
    assert above.heat.name == "x"
    pane.type("p factor * x.sum()")
    assert pane.answer() == ["factor * x.sum() = 84"]
    assert pane.view().place == above.place
    pane.type("factor = 4")
    assert "the script's" in pane.answer()[0]
    pane.view()
    pane.type("d")
    assert pane.view().place == first.place


def test_a_launch_begins_again_in_another_ir(pane):
    x, out = torch.tensor([3.0, -1.0, 4.0, 0.0]), torch.zeros(4)
    view = stop_at(pane, "negative", kernels.divergent, (4,), x, out)
    assert not any("tile-ir" in reason for reason in view.reasons)
    pane.type("stage tile-ir:canonicalize")
    view = pane.view()
    assert view.reasons[-1].startswith("tile-ir:canonicalize: %")
    pane.type("c")
    assert pane.view().place.line == line("negative")
    pane.type("c")


def test_a_stop_at_a_return_says_what_is_returned(pane):
    x, out = torch.tensor([3.0, -1.0, 4.0, 0.0]), torch.zeros(4)
    stop_at(pane, "negative", kernels.divergent, (4,), x, out)
    pane.type("r")
    assert pane.view().reasons[-1] == "--Return-- None"


def test_large_tensors_of_the_script_are_summed_up_and_drawn_where_somebody_asks(pane, tmp_path):
    names = {"large": torch.zeros(1, 1 << 20), "larger": torch.zeros(1, 1 << 20)}
    text = "x = large\ny = [larger + 1, larger[:, 1:]]\nz = torch.ones(1, (1 << 20) + 1)\nw = 1\n"
    begin_script(pane, tmp_path / "script.py", text, torch=torch, **names)
    at_host(pane, 1)
    pane.type("n", "n", "n")
    view = at_host(pane, 4)
    assert variables(view)["x"] == "float32[1, 1048576]: all 0"
    assert variables(view)["y"] == "list of 2 with large tensors, Enter sums them up"
    assert variables(view)["z"] == "float32[1, 1048577]: large, Enter sums it up"
    assert view.heat.name != "z"
    pane.say(do="look", look=asdict(Look(variable="z")))
    assert pane.view().heat.name == "z"
    pane.type("p z")
    assert "all 1" in pane.answer()[0]
