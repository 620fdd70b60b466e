import json
import math
import os
import time

import pytest
from launching import compiled, enter, fault, launch

from tkdebug.cli.runs.outcome import print_summary
from tkdebug.errors import Frame, TkError, UsageError
from tkdebug.fault_printing.text import counted
from tkdebug.findings.launch_counts import KernelChecks, LaunchCounts, access_tests
from tkdebug.instrument.analyses.compiled_models import UncompiledGraph
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.report import RENDERERS, render, write_report
from tkdebug.instrument.session import Session
from tkdebug.instrument.text_forms import format_ns
from tkdebug.records.events import AutotuneChoice
from tkdebug.records.hook_chain import HOOKS
from tkdebug.terminal.text import visible

SOURCE = "import tl\n\n\tx = tl.load(p + offs)\n"


def report(path, format_name):
    with Session.open(path) as session:
        return "".join(render(session, format_name))


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "k.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def recorded(tmp_path, script):
    path = tmp_path / "run.tkd"
    recorder = Recorder(path, script="k.py", argv=("7",), output=False).start()
    first = launch(grid=(3, 2, 1), duration_ns=1_500_000)
    HOOKS.fault(fault(script, column=6, launch_id=first.id))
    second = launch("other_kernel", duration_ns=20)
    HOOKS.fault(fault(script, column=6, launch_id=second.id, program_id=(9, 9, 9), count=5))
    recorder.stop(1)
    return path


def test_json_report_has_schema_1(recorded, script):
    data = json.loads(report(recorded, "json"))
    keys = [
        "schema",
        "mode",
        "times_are_of_a_gpu",
        "script",
        "exit_status",
        "baseline",
        "checked_launches",
    ]
    keys += ["launches", "faults", "tunings", "others", "origins", "model_lines"]
    keys += ["uncompiled_graphs", "gpu_states", "stalls", "timelines"]
    keys += ["remarks", "launch_costs", "line_costs", "instrumentation", "watched_values"]
    assert list(data) == keys
    assert (data["schema"], data["mode"]) == (1, "interpret")
    assert not data["times_are_of_a_gpu"]
    assert (data["script"], data["exit_status"]) == ("k.py", 1)
    launched = data["launches"][0]
    assert launched["kernel"] == "add_kernel"
    assert launched["grid"] == [3, 2, 1]
    assert launched["duration_ns"] == 1_500_000
    assert launched["num_warps"] == 4
    assert (launched["id"], launched["seq"]) == (data["faults"][0]["launch_id"], 1)
    assert launched["variant"] == data["faults"][0]["variant"] == "hash of add_kernel"[:12]
    assert data["faults"] == [
        {
            "kind": "oob-load",
            "kernel": "add_kernel",
            "file": str(script),
            "line": 3,
            "column": 6,
            "call_chain": [
                {"file": str(script), "line": 20, "function": "add_kernel"},
                {"file": str(script), "line": 3, "function": "load_row"},
            ],
            "program_id": [2, 0, 0],
            "lane": [32],
            "tensor": "x_ptr",
            "index": 96,
            "count": 165,
            "message": fault().message,
            "hint": fault().hint,
            "severity": "error",
            "state": "open",
            "cause": None,
            "launch_id": launched["id"],
            "process": os.getpid(),
            "launches": 2,
            "variant": launched["variant"],
            "extent": None,
        }
    ]


def test_json_report_of_a_compile_error_has_no_program_and_no_launches(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path):
        HOOKS.fault(
            fault(
                kind="compile-error",
                program_id=None,
                tensor=None,
                index=None,
                lane=(),
                legal=None,
                count=1,
                launch_id=0,
            )
        )
    data = json.loads(report(path, "json"))
    assert data["launches"] == []
    (only,) = data["faults"]
    assert (only["program_id"], only["tensor"], only["index"]) == (None, None, None)


def test_json_report_keeps_the_order_of_launches_and_shows_running_ones(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path) as recorder:
        enter("first")
        recorder.flush()
        for number in range(2500):
            launch(f"k{number}")
        with_running = json.loads(report(path, "json"))
        assert with_running["exit_status"] is None
        recorder.flush()
    launches = json.loads(report(path, "json"))["launches"]
    assert [one["kernel"] for one in launches] == ["first", *(f"k{n}" for n in range(2500))]
    assert launches[0]["duration_ns"] is None


def test_two_faults_of_a_line_in_one_launch_are_of_one_launch(tmp_path, script):
    path = tmp_path / "run.tkd"
    recorder = Recorder(path, script="k.py", argv=(), output=False).start()
    record = launch()
    for op_id in (3, 4):
        HOOKS.fault(fault(script, launch_id=record.id, op_id=op_id))
    recorder.stop(0)
    with Session.open(path) as session:
        (group,) = session.fault_groups()
    assert group.launches == 1


def test_fault_group_keeps_the_first_offender_and_adds_up(recorded):
    with Session.open(recorded) as session:
        (group,) = session.fault_groups()
    assert (group.fault.count, group.launches) == (165, 2)
    assert group.fault.program_id == (2, 0, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "oob-store"},
        {"tensor": "y_ptr"},
        {"kernel": "other"},
        {"frames": (Frame("/k.py", 4, "load_row"),)},
    ],
)
def test_faults_that_differ_stay_apart(tmp_path, changes):
    path = tmp_path / "run.tkd"
    with Recorder(path):
        HOOKS.fault(fault())
        HOOKS.fault(fault(**changes))
    with Session.open(path) as session:
        assert len(session.fault_groups()) == 2


def test_text_report_shows_kernels_and_faults_with_source_caret_chain_and_hint(recorded, script):
    script.write_text("edited since the run\n" * 5)
    shown = report(recorded, "text")
    assert "times of interpreted kernels are the CPU's and say nothing about a GPU's\n" in shown
    assert shown.startswith("k.py 7 (interpret): exit status 1, ")
    lines = shown.splitlines()
    assert lines[2].split() == ["kernel", "launches", "total", "mean", "min", "max"]
    assert lines[3].split() == ["add_kernel", "1", *("1.50 ms".split() * 4)]
    at = next(number for number, line in enumerate(lines) if "oob-load" in line)
    assert lines[at] == f"{script}:3: oob-load in add_kernel: {fault().message}"
    assert lines[at + 1 : at + 6] == [
        "    x = tl.load(p + offs)",
        "        ^",
        "  called from line 20 in add_kernel",
        "  first in program (2, 0, 0), element [32] of the tile, 165 times in 2 launches",
        "  hint: pass mask=offs < n",
    ]
    assert "1 fault\n" in shown


def test_text_report_takes_the_line_from_the_kernel_when_its_file_is_gone(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path):
        HOOKS.compiled(compiled("/gone.py", line=10, source="@jit\ndef k():\n    tl.load(p)\n"))
        HOOKS.fault(fault(frames=(Frame("/gone.py", 12, "k"),), column=5))
    assert "    tl.load(p)\n    ^\n" in report(path, "text")


def test_text_report_without_launches_says_so(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path):
        pass
    shown = report(path, "text")
    assert "no kernels were launched" in shown
    assert "no faults" in shown


def test_reports_name_graphs_that_ran_uncompiled(tmp_path):
    place = Frame("/model.py", 3, "forward")
    recorder = Recorder(tmp_path / "run.tkd", script="k.py", output=False).start()
    for frames in ((place,), (place,), ()):
        HOOKS.record(UncompiledGraph("torch.odd\x1b[2J: not known", frames))
    recorder.stop(0)
    text = report(tmp_path / "run.tkd", "text")
    assert "graphs of torch.compile that ran uncompiled\n" in text
    assert "  model.py:3: torch.odd\\x1b[2J: not known (2 times)\n" in text
    assert "\n  torch.odd" in text
    first, _, last = json.loads(report(tmp_path / "run.tkd", "json"))["uncompiled_graphs"]
    assert (first["file"], first["line"], first["function"]) == ("/model.py", 3, "forward")
    assert first["process"] == os.getpid()
    assert (last["file"], last["line"], last["function"]) == (None, None, None)


def test_text_report_writes_control_characters_out(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, script="a\x1b[2Jb", output=False):
        launch("k\x1b]0;title\x07")
        HOOKS.fault(fault(message="m\r\x9b1A", hint="h\x00", kernel="\x08"))
    shown = report(path, "text")
    assert not set(shown) & {chr(code) for code in range(32) if chr(code) not in "\n\t"}
    assert "\x9b" not in shown
    assert "a\\x1b[2Jb" in shown


@pytest.fixture
def tuned(tmp_path):
    path = tmp_path / "tuned.tkd"
    recorder = Recorder(path, script="k.py", output=False).start()
    timings = {"BLOCK: 32": 0.0321, "BLOCK: 64": 0.0123, "BLOCK: 4096": math.inf}
    HOOKS.autotuned(AutotuneChoice("add_kernel", "(300, 'fp16')", "BLOCK: 64", timings))
    HOOKS.autotuned(AutotuneChoice("other_kernel", "(7,)", "BLOCK: 16", {}))
    recorder.stop(0)
    return path


def test_text_report_shows_what_autotuners_timed_and_chose(tuned):
    assert (
        "autotune of add_kernel for key (300, 'fp16')\n"
        "   12.3 µs  BLOCK: 64  chosen\n"
        "   32.1 µs  BLOCK: 32\n"
        "    failed  BLOCK: 4096\n"
        "\nautotune of other_kernel for key (7,)\n"
        "  BLOCK: 16  (not timed: interpreted)\n"
    ) in report(tuned, "text")


def test_json_report_shows_what_autotuners_timed_and_chose(tuned):
    first, second = json.loads(report(tuned, "json"))["tunings"]
    assert (first["kernel"], first["config"]) == ("add_kernel", "BLOCK: 64")
    assert first["timings_ms"] == {"BLOCK: 32": 0.0321, "BLOCK: 64": 0.0123, "BLOCK: 4096": None}
    assert second["timings_ms"] == {}


def test_report_formats_all_render_an_empty_run(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False):
        pass
    assert all(report(path, name) for name in RENDERERS)


def test_report_file_is_written_whole_or_not_at_all(recorded, tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    out.write_text("older")

    def fail(session, faults):
        yield "{"
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(RENDERERS, "json", fail)
    with Session.open(recorded) as session, pytest.raises(TkError, match="No space left"):
        write_report(session, out, "json")
    assert out.read_text() == "older"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["k.py", "out.json", "run.tkd"]


@pytest.mark.parametrize(
    ("duration_ns", "shown"),
    [(0, "0 ns"), (999, "999 ns"), (1500, "1.50 µs"), (123_456, "123 µs"), (4.2e12, "1h 10m")],
)
def test_format_ns_picks_the_unit(duration_ns, shown):
    assert format_ns(duration_ns) == shown


def test_counted_speaks_english():
    shown = [counted(n, "launch") for n in (0, 1, 2000)]
    assert shown == ["no launches", "1 launch", "2,000 launches"]


def test_visible_keeps_text_lines_and_tabs():
    assert visible("é\n\tb") == "é\n\tb"


def test_chrome_trace_has_a_track_per_stream_on_which_launches_take_turns(tmp_path):
    path = tmp_path / "run.tkd"
    recorder = Recorder(path, script="k.py", output=False).start()
    began_ns = time.time_ns()
    # Two are queued at once, and a third on another stream.
    for start_ns, stream in ((began_ns, 7), (began_ns + 1_000, 7), (began_ns + 2_000, 8)):
        launch(start_ns=start_ns, stream=stream, duration_ns=500_000)
    enter(start_ns=began_ns + 3_000, stream=8)
    recorder.stop(0)
    events = json.loads(report(path, "chrome-trace"))["traceEvents"]
    names = [e["args"]["name"] for e in events if e["ph"] == "M"]
    seventh, eighth = (f"interpreted, on the CPU, stream {number}" for number in (7, 8))
    assert names == ["k.py", seventh, eighth]
    first, second, third = (e for e in events if e["ph"] == "X")
    assert (first["name"], first["cat"], first["dur"]) == ("add_kernel", "interpret", 500)
    assert second["ts"] == pytest.approx(first["ts"] + 500)
    assert third["ts"] == pytest.approx(first["ts"] + 2)
    tracks = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    assert third["tid"] == tracks[eighth] != first["tid"] == tracks[seventh]
    assert 0 not in tracks.values()
    assert [e["name"] for e in events if e["ph"] == "B"] == ["add_kernel"]


def test_chrome_trace_tells_faults_at_the_launch_that_had_them_first(recorded, script):
    events = json.loads(report(recorded, "chrome-trace"))["traceEvents"]
    first, second = (e["args"] for e in events if e["ph"] == "X")
    assert first["grid"] == [3, 2, 1]
    assert first["faults"] == [f"{script}:3: oob-load: {fault().message}"]
    assert "faults" not in second


def test_checked_launches_of_all_processes_are_counted(tmp_path, capsys):
    path = tmp_path / "run.tkd"
    recorder = Recorder(path, script="k.py", argv=(), output=False).start()
    launch()
    HOOKS.record(LaunchCounts(3, 0))
    HOOKS.record(LaunchCounts(1, 2))
    HOOKS.record(KernelChecks("add_kernel", 3, {"race": 3, "padding": 1}))
    HOOKS.record(KernelChecks("add_kernel", 1, {"race": 1, "padding": 1}))
    HOOKS.record(access_tests(("tile", "element", "", "before-loop", "tile")))
    HOOKS.record(access_tests(("proven", "tile")))
    recorder.stop(0)
    assert json.loads(report(path, "json"))["checked_launches"] == {
        "checked": 4,
        "captured": 2,
        "accesses": {"proven": 1, "before_loops": 1, "by_tile": 3, "by_element": 1},
        "kernels": [{"kernel": "add_kernel", "checked": 4, "by_check": {"padding": 2, "race": 4}}],
    }
    assert "\nadd_kernel: of 4 checked launches, 2 for padding\n" in report(path, "text")
    assert (
        "\n1 launch, 4 of them checked; 2 became part of CUDA graphs and were not; 6 accesses: "
        "1 proven, 1 tested before loops, 3 by tile, 1 by element\n"
    ) in report(path, "text")
    with Session.open(path) as session:
        print_summary(session, (), None, lambda fault: True, ())
    assert (
        "1 launch of 1 kernel (4 of them checked; 2 became part of CUDA graphs and were not; "
        "6 accesses: 1 proven, 1 tested before loops, 3 by tile, 1 by element)"
        in (capsys.readouterr().err)
    )


@pytest.mark.parametrize("format_name", RENDERERS)
def test_report_of_one_kernel_has_nothing_of_others(recorded, script, format_name):
    with Session.open(recorded) as session:
        if format_name != "sarif":  # it has faults alone
            assert "other_kernel" in "".join(render(session, format_name))
        session.narrow(session.kernel_names("add_*"))
        assert session.launch_count() == 1
        assert {group.fault.kernel for group in session.fault_groups()} == {"add_kernel"}
        text = "".join(render(session, format_name))
    assert "add_kernel" in text
    assert "other_kernel" not in text


def test_report_of_one_kernel_stays_so_while_the_run_goes_on(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False) as recorder:
        launch("it's")
        recorder.flush()
        with Session.open(path) as session:
            session.narrow(session.kernel_names("it's"))
            launch()
            launch("it's")
            recorder.flush()
            assert {one.kernel for one in session.launches_in_order()} == {"it's"}
            recorder.stop(0)
            assert session.launch_count() == 2


def test_kernel_that_is_not_there_is_named_with_what_there_is(recorded):
    with Session.open(recorded) as session, pytest.raises(UsageError) as caught:
        session.kernel_names("softmax")
    expected = "--kernel softmax: no such kernel; there are add_kernel, other_kernel"
    assert str(caught.value) == expected
