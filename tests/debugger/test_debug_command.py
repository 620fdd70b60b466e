"""`tkdebug debug` as a command: JSON, files of commands, the ends of stdin, bad input."""

import json
import subprocess
from pathlib import Path

import pytest
from patience import LONGEST_WAIT_S
from warm_python import start_python

from tkdebug.cli import main
from tkdebug.instrument import add_hook

SCRIPTS = Path(__file__).parent / "scripts"
TWICE = str(SCRIPTS / "twice.py")


def test_json_has_one_object_for_each_stop_and_answer(run):
    typed = "b 9, factor is not None\nc\np product\nw\nnonsense here\nn\nmoment\nq\n"
    status, out, _ = run("--json", TWICE, typed=typed)
    records = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [record["event"] for record in records] == [
        *("begin", "answer", "answer", "stop", "answer", "answer", "answer", "answer", "stop"),
        *("answer", "answer", "end"),
    ]
    assert records[-1]["exit_status"] == 0
    stop, value, bad = records[3], records[4], records[6]
    assert (stop["reason"], stop["breakpoints"]) == ("breakpoint", [1])
    assert [frame["line"] for frame in stop["frames"]] == [16, 9]
    assert value["value"]["values"] == [[0.0, 2.0, 4.0, 6.0]]
    assert value["value"]["max"] == 6.0
    assert (bad["ok"], "neither a command" in bad["error"]) == (False, True)
    assert records[8]["is_return"]
    assert records[9]["moment"] == records[8]["moment"]


def test_what_the_script_prints_is_no_json(run):
    status, out, err = run("--json", TWICE, typed="c\n")
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["begin", "answer", "end"]
    assert "[0.0, 4.0, 12.0, 24.0]" in err
    assert status == 0


def test_commands_come_from_the_home_a_file_and_the_command_line(run, tmp_path, monkeypatch):
    (tmp_path / ".tkdebugrc").write_text("# mine\nb 8\n")
    (tmp_path / ".tkdebugrc").chmod(0o600)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / ".tkdebugrc").write_text("b 18\n")
    monkeypatch.chdir(tmp_path / "here")
    commands = tmp_path / "commands"
    commands.write_text("b 16\nb 17\n")
    status, out, _err = run("-x", commands, "-c", "c", "-c", "q", TWICE)
    assert [line for line in out.splitlines() if line.startswith("(tkdebug) ")] == [
        f"(tkdebug) {text}" for text in ("b 8", "b 16", "b 17", "c", "q")
    ]
    assert "(16)polynomial()" in out
    assert status == 0


def test_the_end_of_stdin_is_reported_and_ends_the_script(run, monkeypatch):
    def end(prompt=""):
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    status, out, _ = run(TWICE, typed="")
    assert out.splitlines()[-1] == "stdin has ended: the script ends here"
    assert "24.0" not in out
    assert status == 0


def test_without_stdin_the_script_goes_on_when_the_commands_have_run_out(run):
    status, out, err = run("-c", "b 8, nothing", "-c", "b fault", TWICE)
    assert out.endswith("[0.0, 4.0, 12.0, 24.0]\n")
    assert "breakpoint 2 was never met: fault" in err
    assert status == 0


def test_mistakes_are_reported_before_the_script_runs(run, tmp_path):
    empty = tmp_path / "no_kernel.py"
    empty.write_text("print('ran')\n")
    for words, said in (
        ((), "give a script.py, -m module, --code code, or - for stdin, to debug"),
        ((tmp_path / "nope.py",), "no such file"),
        (("-x", tmp_path / "nope", TWICE), "nope: cannot be read"),
        (("-x", "/dev/zero", TWICE), "/dev/zero: cannot be read (is a pipe or a device"),
        (("--frobnicate", TWICE), "not understood"),
        ((TWICE,), "debug: stdin is closed, so nobody can be asked; give commands by -c"),
    ):
        status, out, err = run(*words)
        assert status == 2, words
        assert said in err
        assert out == ""
    status, out, err = run("-c", "c", empty)
    assert "the script has launched no kernel" in err
    assert status == 0


def test_commands_for_kernels_at_the_scripts_lines_say_that_no_kernel_is_stopped(run):
    status, out, _ = run(TWICE, typed="v\npid 1\nrestart\nv = 3\nv\nq\n")
    assert status == 0
    assert "*** v: no kernel is stopped; `s` at a launch stops in it" in out
    assert "*** pid: no kernel is stopped" in out
    assert "*** restart: no kernel is stopped" in out
    assert "(tkdebug) 3" in out


def test_breakpoints_of_kernels_are_changed_at_the_scripts_lines(run):
    typed = "b 9\ndisable 1\ndisable 7\nc\n"
    _, out, err = run(TWICE, typed=typed)
    assert "*** Breakpoint number 7 out of range" in out
    assert "breakpoint 1" not in out.partition("twice.py:9")[2]
    assert "Traceback" not in err


def test_quit_in_a_kernel_that_a_stepped_function_launched_ends_the_script(run, tmp_path):
    script = tmp_path / "stepped.py"
    kernel, _, launch = Path(TWICE).read_text().partition("x, out = ")
    body = "".join(f"    {line}\n" for line in f"x, out = {launch}".splitlines())
    script.write_text(f"{kernel}def main():\n{body}\nmain()\n")
    status, out, _ = run(script, typed="b 22\nb 23\nc\nn\ns\nq\nunreached\n")
    assert "polynomial()" in out
    assert status == 0
    assert "session.Ended" not in out


def test_a_function_of_the_script_is_stopped_in_before_its_def_has_run(run, tmp_path):
    script = tmp_path / "late.py"
    script.write_text("x = 1\n\ndef main():\n    return x\n\nmain()\n")
    _, out, _ = run(script, typed="b main\nc\nq\n")
    assert "late.py(4)main()" in out


def test_log_points_print_again_when_time_has_gone_back(run):
    _, out, _ = run(TWICE, typed="b end\nc\nrestart\nb 9\nlog 2 here\nc\nq\n")
    assert "here\nhere\nbreakpoint 1\n" in out


MASKED = """import torch
import triton
import triton.language as tl


@triton.jit
def masked(out_ptr, n, B: tl.constexpr):
    k = tl.arange(0, B)
    low = tl.where(k < n, 0.0, float("-inf"))
    seen = k < n
    tl.store(out_ptr + k, low, mask=seen)


masked[(1,)](torch.zeros(32), 20, 32)
"""


def test_masks_say_how_many_are_true_and_infinities_their_sign(run, tmp_path):
    script = tmp_path / "masked.py"
    script.write_text(MASKED)
    _, out, _ = run(script, typed="b 11\nc\np seen\np k >= 0\np low\nq\n")
    assert "seen = int1[32]: 20 of 32 are true\n" in out
    assert "k >= 0 = bool[32]: all true\n" in out
    assert "low = fp32[32]: min 0, max 0, mean 0, 12 -Inf\n" in out


def test_a_variable_after_the_end_of_its_launch_is_named_so(run, tmp_path):
    script = tmp_path / "masked.py"
    script.write_text(MASKED)
    _, out, _ = run(script, typed="b end\nc\np low\np len(out.shape)\nrn\np k[3]\nq\n")
    assert "*** `low` is not an argument: the launch has ended, and its variables with it" in out
    assert "len(out.shape) = 1\n" in out
    assert "k[3] = 3\n" in out


def test_a_breakpoint_at_an_op_that_does_not_exist_offers_the_nearest(run):
    _, out, _ = run(TWICE, typed="b op tt.laod\nb op tt.load\nq\n")
    assert out.count("no op of tkdebug's own is called") == 1
    assert "is called tt.laod; did you mean tt.load?" in out


def test_commands_without_what_they_need_say_so(run):
    _, out, _ = run(TWICE, typed="b 15\nc\nj\nlw\nq\n")
    assert "*** expected a number, got nothing" in out
    assert "*** expected an element of a tensor argument" in out


def test_a_name_that_is_not_here_says_where_it_is(run):
    _, out, _ = run(TWICE, typed="b 8\nc\np offs\np product\np nothing\nq\n")
    assert "name 'offs' is not defined; it is a variable of polynomial, which called this" in out
    assert "name 'product' is not defined; scaled binds it later" in out
    assert "name 'nothing' is not defined\n" in out


def test_expressions_are_printed_for_each_program(run, rows):
    typed = at_the_store("p two[3]", "pp two[:2]", "whatis two[:2]", "p two[9]")
    _, out, _ = run(rows, typed=typed)
    assert "two[3] = float32 in 3 programs: 0: 8, 1: 16, 2: 24\n" in out
    assert "program 0:\ntensor([2., 4.])\nprogram 1:\ntensor([10., 12.])\nprogram 2:" in out
    assert "(tkdebug) float32[2]\n" in out
    assert "two[9]: IndexError: index 9 is out of bounds for dimension 0 with size 4\n" in out


def test_a_moment_that_was_not_reached_is_refused(run):
    _, out, _ = run(TWICE, typed="b 15\nc\nmoment 9999\nw\nmoment 1\nq\n")
    assert "*** moment: the launch has not come to 9999 yet" in out
    assert out.count("twice.py(15)polynomial()") == 2
    assert "twice.py(14)polynomial()" in out


def test_an_element_of_a_variable_needs_its_indices(run):
    _, out, _ = run(
        TWICE, typed="b 16\nc\nwhy x\nwhy x[9]\nwhy a\nwhy zz[0]\ntile x[9:]\nignore 1 1\nq\n"
    )
    assert "*** why: `x` has shape [4]; an element has 1 index, such as x[0]" in out
    assert "*** why: `x` has shape [4]; `x[9]` is not an element of it" in out
    assert "*** why: `a` has no value here" in out
    assert "*** zz[0]: `zz` is not a tensor argument (there are: x_ptr, out_ptr)" in out
    assert "no elements\n" in out
    assert "is passed over 1 time\n" in out


def test_the_end_of_stdin_before_the_script_runs_is_reported(run):
    _, out, err = run("--json", TWICE, typed="b 9\n")
    assert [json.loads(line)["event"] for line in out.splitlines()][-2:] == ["end of input", "end"]
    assert "no kernel" not in err


def test_selected_programs_are_named(run):
    script = SCRIPTS / "divergent.py"
    _, out, _ = run(script, typed="b 10\nc\npid 1 3\npid\nq\n")
    assert out.count("2 programs, 2 of them here: 1 3\n") == 2


def test_an_unknown_kind_of_fault_is_pointed_out(run):
    _, out, _ = run("-c", "b fault ooh-load", "-c", "b fault oob-load", "-c", "q", TWICE)
    assert out.count("no fault of tkdebug's own is called") == 1
    assert "did you mean oob-load?" in out


def test_faults_that_the_debugger_does_not_look_for_are_named(run):
    words = ("b fault padding", "b fault race", "b fault oob-load", "q")
    _, out, _ = run(*(word for each in words for word in ("-c", each)), TWICE)
    assert "padding: not looked for in launches that are debugged; `tkdebug run` reports" in out
    assert "race: not looked for in launches that are debugged; `tkdebug run --check race`" in out
    assert out.count("not looked for") == 2


def test_a_reader_that_has_gone_ends_the_session_without_a_traceback():
    command = ("-m", "tkdebug", "debug", *["-c", "help"] * 50, TWICE)
    with start_python(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait(LONGEST_WAIT_S) == 1
    assert "Traceback" not in said


GLOBAL = """\
import torch, triton, triton.language as tl

@triton.jit
def bwd(DX, DY, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    rows = tl.program_id(0)
    dy = tl.load(DY + rows * n + offs, mask=offs < n)
    for i in range(2):
        for j in range(2):
            dy += i * j
    two = dy * 2
    tl.store(DX + rows * n + offs, two, mask=offs < n)

dy = torch.arange(12.0).reshape(3, 4)
dx = torch.empty_like(dy)
bwd[(3,)](dx, dy, 4, BLOCK=4)
"""


@pytest.fixture
def rows(tmp_path):
    """A script whose kernel's last line is 12, and has the two loops' variables after it."""
    script = tmp_path / "rows.py"
    script.write_text(GLOBAL)
    return script


def at_the_store(*typed):
    return "\n".join(("b 12", "c", *typed, "q", ""))


def test_an_element_of_a_variable_is_watched_before_that_of_the_argument_of_its_name(run):
    _, out, _ = run(TWICE, typed="b 15\nc\nwatch x[1]\nwatch x_ptr[1]\nq\n")
    assert "breakpoint 2: x[1] changes\n" in out
    assert "breakpoint 3: x_ptr[1] is written\n" in out


def test_several_values_are_printed_as_summaries(run, rows):
    _, out, _ = run(rows, typed=at_the_store("p n, two", "p [two[0], 1]"))
    assert "n = 4\ntwo = fp32[4] in 3 programs: min 2, max 24, mean 13" in out
    assert "[two[0], 1] = 0: [2, 1], 1: [10, 1], 2: [18, 1]" in out
    assert "tensor(" not in out


def test_log_points_print_summaries(run, rows):
    typed = "b 12\ncommands 1 two={two} n={n} and {n, nothing}\nc\n"
    _, out, _ = run(rows, typed=typed)
    assert "two=fp32[4] in 3 programs: min 2, max 24, mean 13 n=4 and <" in out


def test_variables_that_are_gone_for_one_reason_share_a_line(run, rows):
    later = "            up = i * j\n            down = up + 1\n            dy += down\n"
    rows.write_text(GLOBAL.replace("            dy += i * j\n", later))
    _, out, _ = run(rows, typed="b 10\nc\nv\nc\nv\nq\n")
    assert [line for line in out.splitlines() if "not available" in line] == [
        "not available: up, down: the loop at line 9 binds it, later in its body"
    ]
    # The second time, Python has them from the round before.
    assert "up    = 0\ndown  = 1\n" in out


def test_variables_of_loops_that_have_ended_have_their_last_values(run, rows):
    _, out, _ = run(rows, typed=at_the_store("p i, j"))
    assert "i = 1\nj = 1" in out


def test_a_line_beyond_the_file_is_refused_with_its_length(run, rows):
    _, out, _ = run(rows, typed="b 999\nq\n")
    assert "rows.py:999: the last line is 16" in out
    assert "End of file" not in out


def test_a_file_of_a_package_is_found_by_its_end(run, rows, tmp_path, monkeypatch):
    package = tmp_path / "kpkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "kern.py").write_text(GLOBAL.partition("dy = torch.arange")[0])
    text = GLOBAL.partition("dy = torch.arange")[2]
    rows.write_text(f"import torch\nfrom kpkg.kern import bwd\ndy = torch.arange{text}")
    typed = "b kern.py:12\nb other.py:3\nc\nb kern.py:7\nb kern.py:3\nq\n"
    _, out, _ = run(rows, typed=typed)
    assert "no module is loaded from kern.py: it stops where a kernel has such a file" in out
    assert "breakpoint 1\n> " in out
    assert "kpkg/kern.py(12)bwd()" in out
    assert "kpkg/kern.py:7" in out
    assert "no statement of a function begins at this line" in out


def test_a_line_at_the_end_of_a_launch_is_one_of_the_kernels_file(run, rows, tmp_path):
    (tmp_path / "kern.py").write_text(GLOBAL.partition("dy = torch.arange")[0])
    text = GLOBAL.partition("dy = torch.arange")[2]
    rows.write_text(f"import torch\nfrom kern import bwd\ndy = torch.arange{text}")
    _, out, _ = run(rows, typed="b end\nc\ntbreak 11\nq\n")
    assert "kern.py:11" in out


def test_a_search_that_finds_nothing_stays_and_says_so(run, rows):
    _, out, _ = run(rows, typed=at_the_store("lw dx[0, 0]", "lw DX[0, 0]", "rn", "j 12", "p two"))
    assert "DX[0, 0] was not written before this: the launch stays where it is\n> " in out
    assert "line 12 has not run before this: the launch stays where it is\n> " in out
    assert "the beginning of the launch" not in out
    assert out.count("rows.py(11)bwd()") == 2


def test_a_search_at_the_end_that_finds_nothing_stays_at_the_end(run, rows):
    _, out, _ = run(rows, typed="b end\nb 7\nc\nclear 2\nc\nb 8\nlw DY[0, 0]\np DX[0].sum()\nq\n")
    said = "DY[0, 0] was not written before this: the launch stays where it is\n"
    assert f"{said}launch 1 of bwd has ended\n" in out
    assert "DX[0].sum() = 20" in out


def test_a_step_back_from_the_middle_of_a_line_is_to_the_line_before(run, rows):
    _, out, _ = run(rows, typed="b end\nc\nlw DX[1, 2]\nrn\nq\n")
    steps = [line for line in out.splitlines() if line.startswith("(tkdebug) > ")]
    assert [line.partition("rows.py")[2] for line in steps] == ["(12)bwd()", "(11)bwd()"]


def test_why_knows_the_script_s_name_of_a_tensor(run, rows):
    _, out, _ = run(rows, typed="b end\nc\nwhy dx[1, 2]\nq\n")
    assert "DX[1, 2] is 14" in out


def test_elements_go_by_the_script_s_names_in_its_frames_too(run, rows):
    typed = at_the_store(
        "u", "why dy[1, 2]", "why-not-written dx[1, 2]", "watch dx[1, 2]", "c", "q"
    )
    _, out, _ = run(rows, typed=typed.replace("c\nq", "c\nlw dx[1, 2]\nq"))
    assert "DY[1, 2] is 6: no program of this launch has written it" in out
    assert "DX[1, 2] was not written" in out
    assert "DX[1, 2] is written\n" in out
    assert "DX[1, 2] was written by program 1 at line 12" in out
    assert out.count("-> tl.store(DX + rows * n + offs, two, mask=offs < n)") == 3


def test_why_of_a_pointer_names_the_tensor(run, tmp_path):
    script = tmp_path / "pointer.py"
    script.write_text(
        "import torch, triton, triton.language as tl\n\n"
        "@triton.jit\ndef fill(out_ptr):\n    place = out_ptr + tl.arange(0, 4)\n"
        "    tl.store(place, 1.0)\n\nfill[(1,)](torch.zeros(4))\n"
    )
    _, out, _ = run(script, typed="b 6\nc\nwhy place[0]\nq\n")
    assert (
        "`place` holds pointers into `out_ptr`: name an element of that, such as out_ptr[0]" in out
    )


def test_displayed_variables_are_not_shown_once_the_launch_has_ended(run, rows):
    _, out, _ = run(rows, typed=at_the_store("display two", "display DX", "b end", "c"))
    last = out.rpartition("has ended")[2]
    assert "***" not in last
    assert "DX = float32[3, 4]" in last


def test_the_tui_needs_a_terminal_and_gives_no_json(run):
    status, _, err = run("--tui", TWICE)
    assert (status, "not a terminal with UTF-8; use --no-tui" in err) == (2, True)
    status, _, err = run("--tui", "--json", TWICE)
    assert (status, "leave --tui out" in err) == (2, True)
    status, out, _ = run("--no-tui", "--json", TWICE, typed="q\n")
    assert (status, json.loads(out.splitlines()[0])["event"]) == (0, "begin")


def test_after_detach_no_kernel_stops_at_its_own_breakpoints(run, tmp_path):
    script = tmp_path / "script.py"
    text = (
        (SCRIPTS / "divergent.py")
        .read_text()
        .replace("    if x > 0:", "    breakpoint()\n    if x > 0:")
    )
    script.write_text(text + "clip[(4,)](x, out)\n")
    status, out, err = run("--json", "-c", "c", "-c", "detach", script, typed="")
    assert status == 0
    assert [json.loads(line)["event"] for line in out.splitlines()].count("stop") == 1
    assert "passed over" not in err


def test_stops_compare_with_the_watched_values_of_a_recorded_run(run, rows, tmp_path, capsys):
    session = tmp_path / "native.tkd"
    words = ["run", "--no-tui", "--mode", "interpret", "-o", str(session)]
    assert main([*words, "--watch", f"{rows}:11:two", str(rows)]) == 0
    capsys.readouterr()
    _, out, _ = run("--against", session, rows, typed=at_the_store("rn", "q"))
    assert out.count("native.tkd: two was the same (3 programs)\n") == 1
    rows.write_text(rows.read_text().replace("dy * 2", "dy * 3"))
    _, out, _ = run("--against", session, rows, typed=at_the_store())
    assert "native.tkd: two was different in 3 of 3 programs, by up to 0.33 of its" in out


def test_a_run_without_watched_values_is_refused_before_the_script_runs(run, rows, tmp_path):
    session = tmp_path / "empty.tkd"
    assert main(["run", "--no-tui", "--mode", "interpret", "-o", str(session), str(rows)]) == 0
    status, _, err = run("--against", session, rows, typed="q\n")
    assert status == 2
    assert "the run recorded no values; `tkdebug run --watch` does" in err
    status, _, err = run("--against", tmp_path / "none.tkd", rows, typed="q\n")
    assert status == 2


def test_json_has_the_stage_layouts_and_shared_memory(run):
    script = SCRIPTS / "small_examples.py"
    typed = (
        "b op ttg.async_wait\nc\nstage\nir 1\nshared\nb examples/attention.py:60\nc\n"
        "layout weights\nholder weights[3, 17]\nregs new_max 0 4\nq\n"
    )
    _, out, _ = run("--json", "--stage", "gpu-ir", "--target", "sm_90a", script, typed=typed)
    records = [json.loads(line) for line in out.splitlines()]
    stops = [record for record in records if record["event"] == "stop"]
    answers = {record["command"]: record for record in records if record["event"] == "answer"}
    assert stops[0]["stage"] == "gpu-ir"
    assert "ttg.async_wait" in stops[0]["op"]
    assert answers["stage"]["stage"] == "gpu-ir"
    assert "gpu-ir:pipeline-loops" in answers["stage"]["stages"]
    assert [line["is_current"] for line in answers["ir 1"]["lines"]] == [False, True, False]
    rings = [one for one in answers["shared"]["buffers"] if len(one["slots"]) == 3]
    copies = [[len(slot["copies"]) for slot in one["slots"]] for one in rings]
    assert copies == [[1, 1, 0], [1, 1, 0]]
    assert rings[0]["slots"][0]["copies"][0]["op"] == "ttg.async_copy_global_to_local"
    assert answers["layout weights"]["layout"]["shape"] == [64, 32]
    assert answers["holder weights[3, 17]"]["holders"] == [
        {"block": 0, "warp": 0, "lane": 12, "register": 9}
    ]
    assert [one["element"] for one in answers["regs new_max 0 4"]["registers"]] == [[1], [9]]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--stage", "gpu-ir:pipeline-loop"], "did you mean gpu-ir:pipeline-loops?"),
        (["--stage", "gpu-ir", "--target", "sm_1"], "--target: got 'sm_1', expected sm_75"),
    ],
)
def test_an_unknown_stage_or_target_is_refused_before_the_script_runs(run, words, problem):
    status, out, err = run(*words, TWICE, typed="")
    assert status != 0
    assert problem in err
    assert out == ""


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("holder acc", "expected an element of a tile, such as acc[3, 17]"),
        ("regs product 0", "expected a tile, a warp and a lane"),
        ("layout", "expected a tile, such as acc"),
        ("layout factor", "`factor` is no tile and no number of the IR"),
        ("regs x 9 0", "warp 9: the layout has warps 0 to 3"),
        ("shared %zz", "%zz: no buffer that is in use here"),
        ("ir x", "ir: expected a number of lines, got x"),
        ("p %nothing", "%nothing: gpu-ir has no value of this name"),
        ("stage gpu-ir:lay", "stage gpu-ir:lay: there is no pass lay"),
    ],
)
def test_mistaken_commands_about_the_ir_say_what_is_expected(run, command, problem):
    _, out, _ = run("--stage", "gpu-ir", "-c", "b 8", "-c", "c", "-c", command, "-c", "q", TWICE)
    assert f"*** {problem}" in out


def test_a_breakpoint_at_a_line_that_passes_left_no_op_of_says_so(run):
    _, out, _ = run("--stage", "gpu-ir", "-c", "b 9", "-c", "c", TWICE)
    assert (
        "breakpoint 1: at gpu-ir no op is left of line 9; the nearest line with one is 8\n" in out
    )


def test_up_goes_on_to_the_script_s_lines_and_variables(run, rows):
    typed = at_the_store("u", "p dx.shape, n", "dx = 3", "u", "d", "p n")
    _, out, _ = run(rows, typed=typed)
    assert "rows.py(16)<module>()\n-> bwd[(3,)](dx, dy, 4, BLOCK=4)" in out
    assert "*** n: NameError: name 'n' is not defined" in out
    assert out.count("*** this frame is the script's: it has variables, and no programs or IR") == 1
    assert "*** this is the outermost frame" in out
    assert "rows.py(12)bwd()" in out.rpartition("outermost")[2]
    assert "n = 4" in out.rpartition("outermost")[2]


BENCHMARKED = """import torch, triton, triton.language as tl

@triton.jit
def one(x_ptr):
    tl.store(x_ptr, 1)

x = torch.zeros(1)
triton.testing.do_bench(lambda: one[(1,)](x), warmup=1, rep=1)
"""


def test_launches_of_a_benchmark_stop_where_that_is_asked_for(run, tmp_path):
    script = tmp_path / "benchmarked.py"
    script.write_text(BENCHMARKED)
    _, out, _ = run(script, typed="b one\nc\n")
    assert "launch 1" not in out
    _, out, _ = run(script, typed="b one\ntrials on\nc\ntrials\nq\n")
    assert "launches of autotuning and do_bench stop\n" in out
    assert "launch 1, the only program" in out


PARTS = """\
import torch, triton, triton.language as tl

@triton.jit
def part(s, n, B: tl.constexpr):
    i, p = tl.arange(0, B), tl.program_id(0)
    if p < n:
        tl.store(s + p * B + i, i.to(tl.float32))

@triton.jit
def total(s, o, n, B: tl.constexpr):
    i, a = tl.arange(0, B), tl.zeros((B,), tl.float32)
    for p in range(n):
        a += tl.load(s + p * B + i)
    tl.store(o + i, a)

s, o = torch.empty(3, 16, device="cuda"), torch.empty(16, device="cuda")
part[(3,)](s, 2, 16)
total[(1,)](s, o, 2, 16)
print(o[3].item())
"""


@pytest.mark.parametrize(
    "typed",
    [
        "b total\nc\nq\n",
        "b 18\nc\nq\n",
        "b 18\nc\np s\ns.sum()\nc\n",
        "b total\nc\np s\np s.sum()\nrun\nq\n",
        "b total\nc\nc\n",
        "b part\nc\nq\n",
    ],
)
def test_gaps_in_scratch_memory_are_no_fault_of_a_script_that_is_debugged(run, tmp_path, typed):
    script = tmp_path / "parts.py"
    script.write_text(PARTS)
    faults = []
    with add_hook(fault=faults.append):
        _, out, _ = run(script, typed=typed)
    assert "***" not in out
    assert faults == []


def test_a_gap_that_nothing_has_read_is_a_fault_where_the_script_ends_by_itself(run, tmp_path):
    script = tmp_path / "parts.py"
    script.write_text(PARTS.replace("total[(1,)](s", "total[(1,)](torch.ones_like(s)"))
    faults = []
    with add_hook(fault=faults.append):
        run(script, typed="b total\nc\nc\n")
    assert [fault.kind for fault in faults] == ["unwritten-output"]
