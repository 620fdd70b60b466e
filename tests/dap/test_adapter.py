"""An editor's requests against kernels that are launched in this process."""

import builtins
import threading

import pytest
import torch
from client import Refused
from debugged_kernels import (
    FILE,
    breaking,
    divergent,
    line,
    overrun,
    product,
    summed,
    twice_called,
)
from patience import LONGEST_WAIT_S


def call_twice(programs=4):
    x, out = torch.arange(programs * 8.0), torch.zeros(programs * 8)
    return out, lambda: twice_called[(programs,)](x, out, BLOCK=8)


def at_lines(*names):
    return {FILE: [line(name) for name in names]}


def stopped(client):
    """The next stop: its event, its frames, the innermost frame's variables."""
    stop = client.event("stopped")
    frames = client.stack(stop["threadId"])
    values = client.values(frames[0]["id"]) if frames[0]["line"] else {}
    return stop, frames, values


def test_a_breakpoint_shows_programs_frames_and_variables(debugged):
    def look(client):
        stop, frames, values = stopped(client)
        threads = client.request("threads")["threads"]
        client.request("continue", threadId=stop["threadId"])
        return stop, frames, values, threads

    _, launch = call_twice()
    stop, frames, values, threads = debugged(look, launch, breakpoints=at_lines("scaled return"))
    assert (stop["reason"], stop["text"]) == ("breakpoint", "all 4 programs are here")
    assert [thread["name"] for thread in threads] == [
        f"twice_called program {number}" for number in range(4)
    ]
    assert [frame["name"] for frame in frames[:2]] == ["scaled", "twice_called"]
    assert [frame["line"] for frame in frames[:2]] == [line("scaled return"), line("first call")]
    assert frames[2]["presentationHint"] == "subtle"
    assert values["doubled"]["value"].startswith("fp32[8]")
    assert values["factor"]["value"] == "2"


def test_parts_of_a_tile_are_those_of_the_program_and_come_in_pages(debugged):
    def look(client):
        stop = client.event("stopped")
        client.request("threads")
        frame = client.stack(stop["threadId"] + 2)[0]["id"]
        number = client.values(frame)["x"]["variablesReference"]
        parts = client.parts(number, start=3, count=2)
        client.request("continue", threadId=stop["threadId"])
        return parts

    _, launch = call_twice()
    parts = debugged(look, launch, breakpoints=at_lines("first call"))
    assert [(part["name"], part["value"]) for part in parts] == [("[3]", "19"), ("[4]", "20")]
    assert parts[0]["evaluateName"] == "x[3]"


def test_steps_go_over_into_out_and_back(debugged):
    def walk(client):
        places = []
        for command in ("next", "stepIn", "stepOut", "next", "stepBack"):
            stop, frames, _ = stopped(client)
            places.append((stop["reason"], frames[0]["name"], frames[0]["line"]))
            client.request(command, threadId=stop["threadId"])
        stop, frames, _ = stopped(client)
        places.append((stop["reason"], frames[0]["name"], frames[0]["line"]))
        client.request("setBreakpoints", source={"path": FILE}, breakpoints=[])
        client.request("continue", threadId=stop["threadId"])
        return places

    _, launch = call_twice()
    places = debugged(walk, launch, breakpoints=at_lines("load"))
    assert places[:3] == [
        ("breakpoint", "twice_called", line("load")),
        ("step", "twice_called", line("first call")),
        ("step", "scaled", line("scaled body")),
    ]
    assert places[3][1:] == ("scaled", line("scaled return"))
    assert places[4][1] == "twice_called"
    assert places[5] == ("step", "twice_called", line("first call"))


def test_steps_that_come_while_a_launch_runs_are_made_at_its_next_stop(debugged, monkeypatch):
    gate, asked = threading.Event(), threading.Event()

    def wait():
        asked.set()
        return gate.wait(LONGEST_WAIT_S)

    monkeypatch.setattr(builtins, "wait_for_the_gate", wait, raising=False)
    points = [
        {"line": line("load")},
        {"line": line("scaled return"), "logMessage": "{wait_for_the_gate()}"},
    ]

    def walk(client):
        thread = client.event("stopped")["threadId"]
        client.request("next", threadId=thread)
        client.event("stopped")
        client.request("next", threadId=thread)
        asked.wait(LONGEST_WAIT_S)
        answer = client.request("next", threadId=thread + 1)
        gate.set()
        stop, frames, _ = stopped(client)
        client.request("setBreakpoints", source={"path": FILE}, breakpoints=[])
        client.request("continue", threadId=thread)
        return answer, stop["threadId"] - thread, frames[0]["line"]

    _, launch = call_twice()
    answer, program, reached = debugged(walk, launch, breakpoints={FILE: points})
    assert not answer
    assert (program, reached) == (1, line("store"))


def test_a_step_follows_the_program_of_its_thread(debugged):
    def walk(client):
        stop, _, _ = stopped(client)
        client.request("next", threadId=stop["threadId"] + 1)
        after, frames, _ = stopped(client)
        client.request("continue", threadId=after["threadId"])
        return stop["threadId"], after, frames[0]["line"]

    x, out = torch.tensor([1.0, -1.0]), torch.zeros(2)
    launch = lambda: divergent[(2,)](x, out)  # noqa: E731
    first, after, reached = debugged(walk, launch, breakpoints=at_lines("test"))
    assert after["threadId"] == first + 1
    assert reached == line("negative")
    assert "1 of 2 programs is here" in after["text"]


def test_conditions_hits_and_log_points(debugged):
    asked = [
        {"line": line("header") + 2, "condition": "pid == 1", "hitCondition": "3"},
        {"line": line("after"), "logMessage": "row {row}"},
    ]

    def walk(client):
        stop, _, values = stopped(client)
        client.request("continue", threadId=stop["threadId"])
        client.event("output")
        return stop, values["start"]["value"], client.output("console")

    x, out = torch.ones(2, 12), torch.zeros(2)
    launch = lambda: summed[(2,)](x, out, 12, BLOCK=4)  # noqa: E731
    stop, start, logged = debugged(walk, launch, breakpoints={FILE: asked})
    assert (stop["threadId"], start) == (3, "8")
    assert logged.startswith("row ")


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("x.cumpro", ["cumprod", "cumprod_"]),
        ("2 * x.grad_f", ["grad_fn"]),
        ("torch.float3", ["float32"]),
        ("x.sum().cumpro", []),
        ("nothing.a", []),
        ("x_p", ["x_ptr"]),
        ("whati", ["whatis"]),
        ("x + whati", []),
    ],
)
def test_attributes_are_completed_behind_a_name(debugged, text, offered):
    def ask(client):
        stop, frames, _ = stopped(client)
        column = len(text) + 1
        frame = frames[0]["id"]
        targets = client.request("completions", frameId=frame, text=text, column=column)["targets"]
        client.request("continue", threadId=stop["threadId"])
        return [(one["label"], text[one["start"] :]) for one in targets]

    _, launch = call_twice(1)
    prefix = text.rpartition(".")[2]
    found = debugged(ask, launch, breakpoints=at_lines("first call"))
    assert found == [(name, prefix) for name in offered]


def test_faults_breakpoint_calls_and_data_stop(debugged):
    def walk(client):
        client.request("setExceptionBreakpoints", filters=["faults"])
        found = []
        for _ in range(2):
            stop, frames, _ = stopped(client)
            info = client.request("exceptionInfo", threadId=stop["threadId"])
            found.append((stop["reason"], frames[0]["line"], info["description"]))
            client.request("continue", threadId=stop["threadId"])
        return found

    def launch():
        breaking[(2,)](torch.zeros(2, dtype=torch.int32))
        overrun[(2,)](torch.zeros(12), torch.zeros(16), BLOCK=8)

    called, fault = debugged(walk, launch)
    assert called[:2] == ("breakpoint", line("call"))
    assert fault[:2] == ("exception", line("faulty"))
    assert "offset 12 of `x_ptr`" in fault[2]


def test_an_element_is_watched_from_the_launch_s_arguments(debugged):
    def walk(client):
        stop, frames, _ = stopped(client)
        arguments = client.values(frames[0]["id"], "Launch")
        number = arguments["out_ptr"]["variablesReference"]
        info = client.request("dataBreakpointInfo", variablesReference=number, name="[9]")
        made = client.request("setDataBreakpoints", breakpoints=[{"dataId": info["dataId"]}])
        client.request("setBreakpoints", source={"path": FILE}, breakpoints=[])
        client.request("continue", threadId=stop["threadId"])
        stop, frames, _ = stopped(client)
        client.request("continue", threadId=stop["threadId"])
        return info, made["breakpoints"], stop, frames[0]["line"]

    _, launch = call_twice()
    info, made, stop, reached = debugged(walk, launch, breakpoints=at_lines("load"))
    assert info["description"] == "out_ptr[9]"
    assert made[0]["verified"]
    assert (stop["reason"], reached) == ("data breakpoint", line("store"))


def test_frames_of_the_script_have_their_own_variables(debugged):
    def walk(client):
        stop, frames, _ = stopped(client)
        frame = next(each["id"] for each in frames if each["name"] == "launch_scaled")
        values = client.values(frame)
        own = client.request("evaluate", expression="x", frameId=frame)["result"]
        offered = client.request("completions", frameId=frame, text="mar", column=4)["targets"]
        client.request("continue", threadId=stop["threadId"])
        return values, own, offered

    def launch_scaled():
        x, marked = torch.zeros(3), 7
        twice_called[(1,)](torch.ones(8), torch.zeros(8), BLOCK=8)
        return x, marked

    values, own, offered = debugged(walk, launch_scaled, breakpoints=at_lines("first call"))
    assert values["marked"]["value"] == "7"
    assert own == "float32[3] [0 0 0]"
    assert [one["label"] for one in offered] == ["marked"]


def test_lists_without_end_are_shown_in_part(debugged):
    """Two billion numbers, by two names each of which is twice the one before."""

    def walk(client):
        stop, frames, _ = stopped(client)
        frame = next(each["id"] for each in frames if each["name"] == "launch_beside_lists")
        nested = client.values(frame)["nested"]
        first, second = client.parts(nested["variablesReference"])
        client.request("continue", threadId=stop["threadId"])
        return nested, first, second

    def launch_beside_lists():
        nested = [1, 2]
        for _ in range(30):
            nested = [nested, nested]
        twice_called[(1,)](torch.ones(8), torch.zeros(8), BLOCK=8)
        return nested

    nested, first, second = debugged(walk, launch_beside_lists, breakpoints=at_lines("first call"))
    assert nested["value"].startswith("[" * 31 + "1, 2], [1, 2]")
    assert len(nested["value"]) < 200_000
    assert nested["namedVariables"] == 2
    assert (first["name"], second["name"]) == ("[0]", "[1]")
    assert first["value"] == second["value"]


def test_the_debug_console_answers_commands_that_only_look(debugged):
    def walk(client):
        stop, frames, _ = stopped(client)
        frame = frames[0]["id"]

        def ask(text, context="repl"):
            return client.request("evaluate", expression=text, frameId=frame, context=context)

        texts = ("why a[3]", "tile a[:3]", "a.shape", "programs", "a[1], (pid, a[2])")
        shown = [ask(text)["result"] for text in texts]
        for text, context in (("why a[99]", "repl"), ("why a[3]", "watch"), ("quit now", "repl")):
            with pytest.raises(Refused):
                ask(text, context)
        client.request("continue", threadId=stop["threadId"])
        return shown

    _, launch = call_twice()
    slice_, rows, shape, where, pair = debugged(walk, launch, breakpoints=at_lines("second call"))
    assert slice_.startswith("a[3] is 6 in program 0\ncomputed at, the last line first:\n")
    assert rows.split() == ["0", "2", "4"]
    assert shape == "torch.Size([8])"
    assert where == "grid (4, 1, 1): all 4 programs are here"
    assert pair == "(2, (0, 4))"


def test_values_are_evaluated_assigned_and_completed(debugged):
    def walk(client):
        stop, frames, _ = stopped(client)
        frame = frames[0]["id"]
        number = client.request("scopes", frameId=frame)["scopes"][0]["variablesReference"]
        client.request("scopes", frameId=frames[-1]["id"])
        sums = client.request("evaluate", expression="(x + pid).sum()", frameId=frame)
        targets = client.request("completions", frameId=frame, text="of", column=3)["targets"]
        value = client.request(
            "setVariable", variablesReference=number, name="x", value="x * 0 + 1"
        )
        client.request("continue", threadId=stop["threadId"])
        return sums["result"], [target["label"] for target in targets], value["value"]

    out, launch = call_twice()
    sums, names, value = debugged(walk, launch, breakpoints=at_lines("first call"))
    assert (sums, names, value) == ("28", ["offs"], "fp32[8] [1 1 1 1 1 1 1 1]")
    assert out[:8].tolist() == [8.0] * 8
    assert out[8].item() == 64.0  # the other programs keep theirs


def test_a_variable_that_nothing_uses_is_data_to_stop_at(debugged):
    def walk(client):
        stop, frames, _ = stopped(client)
        info = client.request("dataBreakpointInfo", name="_unused", frameId=frames[0]["id"])
        client.request("setDataBreakpoints", breakpoints=[{"dataId": info["dataId"]}])
        client.request("continue", threadId=stop["threadId"])
        stop, frames, _ = stopped(client)
        client.request("continue", threadId=stop["threadId"])
        return stop["reason"], stop["text"].partition("\n")[0], frames[0]["line"]

    tensors = torch.ones(32, 32).half(), torch.ones(32, 32).half(), torch.zeros(32, 32)
    launch = lambda: product[(1,)](*tensors, 32, SIZE=32)  # noqa: E731
    found = debugged(walk, launch, breakpoints=at_lines("depth"))
    assert found == ("data breakpoint", "_unused has a value now", line("depth") + 3)


def test_data_is_named_by_what_is_typed_and_by_parts_of_values(debugged):
    names = ("x", "b", "x[1]", "a_ptr[1]", "x_ptr[9]", "out[9]", "x_ptr[99]", "nothing", "1 +")

    def walk(client):
        stop, frames, _ = stopped(client)
        frame = frames[0]["id"]
        typed = [client.request("dataBreakpointInfo", name=n, frameId=frame) for n in names]
        values = client.values(frame, "Variables")
        number = values["x"]["variablesReference"]
        part = client.request("dataBreakpointInfo", variablesReference=number, name="[1]")
        client.request("continue", threadId=stop["threadId"])
        return [info["dataId"] for info in typed], part["dataId"]

    _, launch = call_twice()
    typed, part = debugged(walk, launch, breakpoints=at_lines("first call"))
    assert typed == [
        *("variable:x", "variable:b", "variable:x[1]", None, "element:x_ptr[9]"),
        *("element:out_ptr[9]", None, None, None),
    ]
    assert part == "variable:x[1]"


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("stackTrace", {"threadId": 2}, "no kernel is stopped"),
        ("next", {"threadId": 2}, "no kernel is stopped"),
        ("stackTrace", {}, "`threadId` is missing, expected a number"),
        (
            "variables",
            {"variablesReference": "1"},
            "`variablesReference` is '1', expected a number",
        ),
        ("scopes", {"frameId": 99}, "frameId 99 is not of this stop"),
        ("setExceptionBreakpoints", {"filters": ["raised"]}, "filter 'raised' is unknown"),
        ("setBreakpoints", {"source": {"path": FILE}, "breakpoints": [3]}, "is no object"),
        ("modules", {}, "request 'modules' is not supported"),
        ("launch", {}, "the script is there already"),
    ],
)
def test_wrong_requests_are_refused_in_one_line(debugged, command, arguments, message):
    def ask(client):
        with pytest.raises(Refused) as raised:
            client.request(command, **arguments)
        return str(raised.value)

    said = debugged(ask, lambda: None)
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"line": 1}, "no kernel has this line"),
        ({"line": line("scaled return") + 1}, "no kernel has this line"),
        ({"line": line("load"), "condition": "x ="}, "x ="),
        ({"line": line("load"), "hitCondition": "often"}, "expected a number of hits"),
    ],
)
def test_breakpoints_that_cannot_be_say_why(debugged, asked, message):
    def ask(client):
        answer = client.request("setBreakpoints", source={"path": FILE}, breakpoints=[asked])
        return answer["breakpoints"]

    (answer,) = debugged(ask, lambda: None)
    assert not answer["verified"]
    assert message in answer["message"]


def test_the_disassembly_view_shows_ops_and_stops_at_them(debugged):
    def look(client):
        stop = client.event("stopped")
        thread = stop["threadId"]
        frame = client.stack(thread)[0]
        address = frame["instructionPointerReference"]
        lines = client.request(
            "disassemble", memoryReference=address, instructionOffset=-1, instructionCount=4
        )["instructions"]
        far = client.request(
            "disassemble", memoryReference=address, instructionOffset=-900, instructionCount=2
        )["instructions"]
        set_ = client.request(
            "setInstructionBreakpoints",
            breakpoints=[
                {"instructionReference": lines[3]["address"]},
                {"instructionReference": "0x1"},
            ],
        )["breakpoints"]
        client.request("continue", threadId=thread)
        again = client.event("stopped")
        at = client.stack(again["threadId"])[0]["instructionPointerReference"]
        client.request("setInstructionBreakpoints", breakpoints=[])
        client.request("next", threadId=thread, granularity="instruction")
        client.event("stopped")
        then = client.stack(thread)[0]["instructionPointerReference"]
        client.request("continue", threadId=thread)
        return address, lines, far, set_, at, then

    _, launch = call_twice()
    address, lines, far, set_, at, then = debugged(
        look, launch, breakpoints=at_lines("first call"), stage="gpu-ir"
    )
    assert [one["address"] for one in lines] == [
        hex(int(address, 16) + place) for place in (-1, 0, 1, 2)
    ]
    assert "arith.mulf" in lines[1]["instruction"] or "tt." in lines[1]["instruction"]
    assert lines[1]["line"] in (line("first call"), line("scaled body"))
    assert [one["presentationHint"] for one in far] == ["invalid"] * 2
    assert [one["verified"] for one in set_] == [True, False]
    assert set_[1]["message"] == "no op begins at 0x1"
    assert at == lines[3]["address"]
    assert int(then, 16) == int(at, 16) + 1


ENDLESS = "begun.set() or [0 for _ in iter(int, 1) if 0]"
ASLEEP = "begun.set() or __import__('time').sleep(1000)"


@pytest.fixture
def begun(monkeypatch):
    """Set by an expression that runs."""
    event = threading.Event()
    monkeypatch.setattr(builtins, "begun", event, raising=False)
    return event


@pytest.mark.parametrize("expression", [ENDLESS, ASLEEP])
def test_pause_interrupts_an_expression_and_the_session_goes_on(debugged, begun, expression):
    def ask(client):
        thread = client.event("stopped")["threadId"]
        waiting = [client.send("evaluate", expression=expression) for _ in range(2)]
        assert begun.wait(LONGEST_WAIT_S)
        client.request("pause")
        for number in waiting:
            with pytest.raises(Refused, match="interrupted"):
                client.answer(number)
        answer = client.request("evaluate", expression="1 + 1")["result"]
        client.request("continue", threadId=thread)
        return answer

    out, launch = call_twice()
    assert debugged(ask, launch, breakpoints=at_lines("first call")) == "2"
    assert out.any()


def test_pause_after_continue_lets_the_launch_go_on_first(debugged):
    def ask(client):
        thread = client.event("stopped")["threadId"]
        client.request("setBreakpoints", source={"path": FILE}, breakpoints=[])
        numbers = [client.send("continue", threadId=thread), client.send("pause")]
        for number in numbers:
            client.answer(number)

    _, launch = call_twice()
    debugged(ask, launch, breakpoints=at_lines("first call"))


@pytest.mark.parametrize("is_polite", [True, False])
def test_a_client_that_leaves_takes_its_expression_along(debugged, begun, is_polite):
    def leave(client):
        client.event("stopped")
        client.send("evaluate", expression=ENDLESS)
        assert begun.wait(LONGEST_WAIT_S)
        if is_polite:
            client.request("disconnect")
        else:
            client.hang_up()

    out, launch = call_twice()
    debugged(leave, launch, breakpoints=at_lines("first call"))
    assert out.any()


def test_pause_interrupts_the_condition_of_a_breakpoint(debugged, begun):
    points = {FILE: [{"line": line("scaled return"), "condition": ENDLESS}]}

    def ask(client):
        assert begun.wait(LONGEST_WAIT_S)
        client.request("pause")
        stop = client.event("stopped")
        client.request("setBreakpoints", source={"path": FILE}, breakpoints=[])
        client.request("continue", threadId=stop["threadId"])
        return stop

    _, launch = call_twice()
    stop = debugged(ask, launch, breakpoints=points)
    assert stop["reason"] == "pause"
    assert stop["text"].startswith("the condition of breakpoint 1 was interrupted\n")


def test_no_condition_goes_on_for_a_client_that_has_left(debugged, begun):
    points = {FILE: [{"line": line("scaled return"), "condition": ENDLESS}]}

    def leave(client):
        assert begun.wait(LONGEST_WAIT_S)
        client.hang_up()

    out, launch = call_twice()
    debugged(leave, launch, breakpoints=points)
    assert out.any()


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("__import__('sys').exit(9)", "SystemExit: 9"),
        ("(_ for _ in ()).throw(GeneratorExit)", "GeneratorExit"),
        ("1 +" * 5000 + "1", "it has too many levels"),
    ],
)
def test_an_expression_ends_neither_script_nor_session(debugged, expression, said):
    def ask(client):
        thread = client.event("stopped")["threadId"]
        with pytest.raises(Refused, match=said):
            client.request("evaluate", expression=expression)
        large = client.request("evaluate", expression="10 ** 5000")["result"]
        client.request("continue", threadId=thread)
        return large

    _, launch = call_twice()
    assert debugged(ask, launch, breakpoints=at_lines("first call")) == "an int of 16,610 bits"


def test_a_file_without_end_has_no_lines_to_stop_at(debugged):
    def ask(client):
        with pytest.raises(Refused, match="/dev/zero: is a pipe or a device"):
            client.request("breakpointLocations", source={"path": "/dev/zero"}, line=1)

    debugged(ask, lambda: None)
