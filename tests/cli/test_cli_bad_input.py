import os
import subprocess

import pytest
from cli_scripts import python, tkdebug
from native_support import needs_codegen

from tkdebug.advice.machines import newest
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.instrument.recorder import Recorder
from tkdebug.knobs import KNOBS
from tkdebug.runtime.compile.cross_compilation import tell_unsupported


def error_line(run_main, *arguments):
    """Run a command that must fail; returns its one line of error."""
    status, out, err = run_main(*arguments)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("tkdebug: ")
    return line


def test_script_that_is_not_there(run_main, tmp_path):
    line = error_line(run_main, "run", tmp_path / "none.py")
    assert line == f"tkdebug: {tmp_path}/none.py: no such file; give the path of a Python script"


def test_script_that_is_a_directory(run_main, tmp_path):
    assert "is a directory; give a script in it" in error_line(run_main, "run", tmp_path)


def make_pipe(folder):
    os.mkfifo(folder / "pipe.py")
    return folder / "pipe.py"


def make_endless(folder):
    os.symlink("/dev/zero", folder / "zero.py")
    return folder / "zero.py"


def make_huge(folder):
    path = folder / "huge.py"
    path.touch()
    os.truncate(path, 1 << 40)
    return path


@pytest.mark.parametrize("make", [make_pipe, make_endless, make_huge])
@pytest.mark.parametrize(
    "words",
    [
        "run FILE",
        "run --baseline FILE SCRIPT",
        "run --watch FILE:6:w SCRIPT",
        "debug FILE",
        "debug -x FILE SCRIPT",
        "debug --against FILE -c c SCRIPT",
        "view FILE",
        "report FILE",
        "compare FILE FILE",
        "passes FILE",
        "lines FILE",
        "advise FILE",
        "advise --times FILE SCRIPT",
        "crash FILE",
    ],
)
def test_files_are_regular_and_bounded_in_every_command(
    run_main, write_script, tmp_path, make, words
):
    places = {"FILE": str(make(tmp_path)), "SCRIPT": str(write_script("print('ran')"))}
    for name, place in places.items():
        words = words.replace(name, place)
    line = error_line(run_main, *words.split())
    assert os.path.realpath(places["FILE"]) in line or places["FILE"] in line


@pytest.mark.parametrize("make", [make_pipe, make_endless, make_huge])
def test_breakpoints_are_in_files_that_are_regular_and_bounded(tmp_path, write_script, make):
    file, script = make(tmp_path), write_script("print('ran')")
    done = tkdebug("debug", "-c", f"b {file}:6", "-c", "c", script)
    assert f"*** {file}" in done.stdout
    assert "not run: c" in done.stdout


def test_ceilings_are_read_of_files_that_are_regular_and_bounded(tmp_path, capsys):
    kept = tmp_path / "ceilings"
    kept.mkdir()
    for number, make in enumerate((make_pipe, make_endless, make_huge)):
        make(kept).rename(kept / f"{number}.json")
    with KNOBS.scope(cache_dir=tmp_path):
        assert newest("sm_90a") is None
    assert capsys.readouterr().err.count("; measure again with tkdebug ceilings") == 3


def test_script_that_is_binary(run_main, tmp_path):
    path = tmp_path / "a.out"
    path.write_bytes(b"\x7fELF\0\0\1")
    assert "is a binary file, expected Python source" in error_line(run_main, "run", path)


def test_script_that_is_not_python_is_shown_as_python_does(tmp_path):
    path = tmp_path / "notes.py"
    path.write_text("x = 1\nsome prose here\n")
    ours, python_s = tkdebug("run", "--no-tui", path), python(path)
    assert ours.returncode == python_s.returncode == 1
    assert ours.stderr.startswith(python_s.stderr)
    assert ours.stderr.splitlines()[-1].startswith("tkdebug: no kernels were launched")


def test_module_that_is_not_there(run_main):
    assert "no module named no_such_module" in error_line(run_main, "run", "-m", "no_such_module")


def test_module_that_is_a_path(run_main):
    assert "expected a module name" in error_line(run_main, "run", "-m", "dir/script.py")


def test_module_missing_in_its_package(run_main):
    line = error_line(run_main, "run", "--no-tui", "-m", "json.no_such_part")
    assert "no module named json.no_such_part" in line


def test_package_without_main(run_main):
    line = error_line(run_main, "run", "--no-tui", "-m", "json")
    assert "is a package without a __main__.py" in line


def test_native_mode_without_a_gpu_says_what_to_do(run_main, write_script):
    line = error_line(run_main, "run", "--mode", "native", write_script(""))
    assert line.startswith("tkdebug: --mode native: native mode needs a GPU")
    assert "--mode interpret" in line


def test_bad_knob_is_reported_before_the_script_runs(run_main, write_script, monkeypatch):
    from tkdebug.knobs import KNOBS

    monkeypatch.setenv("TKDEBUG_MEMORY_BUDGET", "lots")
    KNOBS.refresh()
    try:
        line = error_line(run_main, "run", write_script("print('ran')"))
    finally:
        monkeypatch.undo()
        KNOBS.refresh()
    assert "TKDEBUG_MEMORY_BUDGET: got 'lots'" in line


@pytest.mark.parametrize("option", ["--report", "-o"])
def test_places_that_cannot_be_written_are_reported_first(run_main, write_script, tmp_path, option):
    script = write_script("print('ran')")
    missing = tmp_path / "none" / "out"
    assert "there is no directory" in error_line(run_main, "run", option, missing, script)
    assert "is a directory" in error_line(run_main, "run", option, tmp_path, script)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_report_without_permission(run_main, write_script, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    line = error_line(
        run_main, "run", "--report", locked / "out.json", write_script("print('ran')")
    )
    assert "cannot be written (Permission denied)" in line


def test_report_does_not_overwrite_the_script(run_main, write_script):
    script = write_script("")
    assert "is the script itself" in error_line(run_main, "run", "--report", script, script)


def test_session_does_not_overwrite_another_file(run_main, write_script, tmp_path):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("text")
    line = error_line(run_main, "run", "--no-tui", "-o", thesis, write_script(""))
    assert "exists and is not a tkdebug session" in line
    assert thesis.read_text() == "text"


@pytest.mark.parametrize("command", ["view", "report"])
def test_sessions_that_cannot_be_read(run_main, tmp_path, command):
    other = tmp_path / "other.tkd"
    other.write_text("text, and more of it than a header has\n" * 9)
    assert "no such session" in error_line(run_main, command, tmp_path / "none.tkd")
    assert "is not a tkdebug session" in error_line(run_main, command, other)


@pytest.mark.parametrize(
    "words",
    [
        ("view", "RUN"),
        ("report", "RUN"),
        ("report", "FOLDER"),
        ("compare", "RUN", "RUN"),
        ("passes", "RUN"),
        ("lines", "RUN"),
        ("advise", "RUN"),
        ("advise", "--times", "RUN", "SCRIPT"),
        ("debug", "--against", "RUN", "-c", "c", "SCRIPT"),
    ],
    ids=" ".join,
)
def test_session_whose_text_is_no_utf8_is_one_line_in_every_command(
    run_main, write_script, tmp_path, words
):
    folder = tmp_path / "runs"
    folder.mkdir()
    run = folder / "run.tkd"
    with Recorder(run, output=False):
        pass
    # SQLite names the index in its message, which Python cannot decode.
    content = run.read_bytes()
    run.write_bytes(content.replace(b"launches_by_revision", b"launches\xdfby_revision", 1))
    places = {"RUN": run, "FOLDER": folder, "SCRIPT": write_script("print('ran')")}
    line = error_line(run_main, *(places.get(word, word) for word in words))
    assert "run.tkd: truncated or damaged session (its text is not UTF-8)" in line


def test_view_without_a_terminal_names_the_report(run_main, tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False):
        pass
    line = error_line(run_main, "view", path)
    assert f"needs a terminal with UTF-8 (LC_ALL=C.UTF-8); `tkdebug report {path}`" in line


def test_tui_without_a_terminal_is_refused(run_main, write_script):
    assert "are not a terminal with UTF-8; use --no-tui" in error_line(
        run_main, "run", "--tui", write_script("")
    )


@pytest.mark.parametrize("arguments", [(), ("run",), ("run", "--quick"), ("fly",), ("run", "-x")])
def test_mistyped_command_lines_show_the_usage(run_main, arguments):
    status, out, err = run_main(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("usage: tkdebug")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("veiw",), "tkdebug: error: veiw is not a command; did you mean view?"),
        (("fly",), "fly is not a command; there are run, debug, dap, view, demo, report, compare"),
        (("train.py",), "train.py is not a command; did you mean `tkdebug run train.py`?"),
        (("run.tkd",), "run.tkd is not a command; did you mean `tkdebug view run.tkd`?"),
        (("run", "--repot", "r.json", "train.py"), "run: error: not understood: --repot; did you"),
        (("passes", "--size", "train.py"), "; what belongs to the script goes after it"),
    ],
)
def test_mistyped_words_are_answered_with_what_was_meant(run_main, arguments, said):
    status, out, err = run_main(*arguments)
    assert (status, out) == (2, "")
    assert said in err.splitlines()[-1]


@pytest.mark.parametrize("command", [["run", "--no-tui"], ["passes"], ["lines"]])
def test_variables_are_looked_at_before_the_script_runs(
    run_main, write_script, monkeypatch, command
):
    from tkdebug.knobs import KNOBS

    script = write_script("print('ran')")
    monkeypatch.setenv("TKDEBUG_QUIK", "1")
    monkeypatch.setenv("TKDEBUG_SESSIONS", "x")  # near no knob's
    _, _, err = run_main(*command, script)
    assert "TKDEBUG_QUIK is not a variable of tkdebug's; did you mean TKDEBUG_QUICK?" in err
    assert "TKDEBUG_SESSIONS" not in err
    monkeypatch.setenv("TKDEBUG_MODE", "nativ")
    KNOBS.refresh()
    try:
        status, out, err = run_main(*command, script)
    finally:
        monkeypatch.undo()
        KNOBS.refresh()
    assert (status, out) == (2, "")
    assert "TKDEBUG_MODE: got 'nativ'" in err
    assert "ran" not in err.split()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("python", "train.py"), "tkdebug is the Python here: leave out python and give train.py"),
        (("pytest", "tests"), "pytest: no such file; give -m pytest"),
    ],
)
def test_script_that_is_not_there_but_means_something(run_main, arguments, said):
    assert said in error_line(run_main, "run", *arguments)


def test_session_given_to_run_names_view(run_main, tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False):
        pass
    assert f"is a recorded run; `tkdebug view {path}` opens it" in error_line(run_main, "run", path)


def test_architectures_of_the_help_are_the_targets(run_main):
    for command in ("run", "lines", "passes"):
        _, out, _ = run_main(command, "--help")
        assert f"({', '.join(TARGETS)})" in " ".join(out.split())


def test_no_command_gives_the_help(run_main):
    status, out, err = run_main()
    assert (status, out) == (2, "")
    assert "examples:" in err
    assert "doctor" in err


def test_pattern_that_interprets_nothing_is_reported(run_main, write_script):
    script = write_script("launch()")
    _, _, err = run_main("run", "--no-tui", "--interpret", "scal", "--interpret", "sc*", script)
    assert "tkdebug: --interpret scal: no such kernel; did you mean scale?\n" in err
    assert "sc*" not in err


# What compiles for an architecture, and the option that names it.
COMPILING = (
    ("run", "--target", ["--no-tui"]),
    ("debug", "--target", ["-c", "c"]),
    ("passes", "--target", []),
    ("lines", "--target", []),
    ("advise", "--target", []),
)
NOT_COMPILED_FOR = (
    f"that this version of tkdebug compiles for ({', '.join(TARGETS)})"  # a GPU, and none of ours
)
BAD_ARCHITECTURES = {
    "sm_99": f"sm_99 (compute capability 9.9) is not among the GPUs {NOT_COMPILED_FOR}",
    "sm_130": f"sm_130 (compute capability 13.0) is newer than the GPUs {NOT_COMPILED_FOR}",
    **{asked: f"got {asked!r}, expected sm_75, " for asked in ("sm_1", "", "SM_90A", "9.0")},
    "sm_90a,sm_80": "got 'sm_90a,sm_80', expected sm_75, ",
}


@pytest.mark.parametrize(("command", "option", "others"), COMPILING)
@pytest.mark.parametrize("asked", BAD_ARCHITECTURES)
def test_architecture_that_cannot_be_compiled_for_is_refused_before_the_script_runs(
    run_main, write_script, command, option, others, asked
):
    script = write_script("print('ran')")
    line = error_line(run_main, command, *others, option, asked, script)
    assert line.startswith(f"tkdebug: {option}: {BAD_ARCHITECTURES[asked]}")


def test_unknown_architecture_of_the_environment_is_refused(run_main, write_script):
    with KNOBS.scope(cross_compile="sm_1"):
        line = error_line(run_main, "run", "--no-tui", write_script("print('ran')"))
    assert line.startswith("tkdebug: TKDEBUG_CROSS_COMPILE: got 'sm_1'")


def test_newer_gpu_of_the_environment_is_reported_and_kernels_are_interpreted(
    run_main, write_script
):
    tell_unsupported.cache_clear()
    with KNOBS.scope(cross_compile="sm_130"):
        status, out, err = run_main("run", "--no-tui", write_script("launch()\nprint('ran')"))
    assert (status, out) == (0, "ran\n")
    sentence = f"{BAD_ARCHITECTURES['sm_130']}; kernels are interpreted and not compiled for it\n"
    assert err.count(sentence) == 1


REAL_KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def clear(x):
    tl.store(x, 0)

clear[(1,)](torch.empty(1))
"""


PASSES = ("passes", "--target", "none")
RUN = ("run", "--no-tui")


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        (PASSES, ["--kernel", "nope"], "--kernel nope: no such kernel; there are clear"),
        (PASSES, ["--kernel", ""], "--kernel : no such kernel; there are clear"),
        (PASSES, ["--pass", "nope"], "--pass nope: no such pass; there are front-end"),
        (PASSES, ["--line", "99"], "--line 99: no op comes from there; clear has ops of"),
        (PASSES, ["--line", "no.py:7"], "--line no.py:7: no op comes from there; clear has"),
        (PASSES, ["--line", "x"], "--line x: expected a line number, or file.py:number"),
        (PASSES, ["--line", "-3"], "--line -3: expected a line number, or file.py:number"),
        (RUN, ["--watch", "99:x"], "--watch 99:x: got '99:x', expected FILE:LINE:NAME"),
        (RUN, ["--watch", ":7:x"], "--watch :7:x: got ':7:x', expected FILE:LINE:NAME"),
        (RUN, ["--watch", "no.py:7:x"], "--watch no.py:7:x: no.py: cannot be read, or is empty"),
        (RUN, ["--timeline", "clear"], "--timeline: kernels are interpreted; it needs kernels on"),
        (RUN, ["--stalls"], "--stalls: kernels are interpreted; it needs kernels on a GPU"),
        (RUN, ["--hang-timeout", "3"], "--hang-timeout: kernels are interpreted; it needs kernels"),
        (RUN, ["--stacks"], "--stacks: nothing runs on a GPU here; leave it out"),
        (RUN, ["--coredump"], "--coredump: nothing runs on a GPU here; leave it out"),
        (("debug",), ["--stage", "nope"], "stage nope: expected tile-ir, gpu-ir, or one of them"),
    ],
)
def test_kernels_and_lines_that_are_not_there(run_main, tmp_path, command, arguments, said):
    script = tmp_path / "script.py"
    script.write_text(REAL_KERNEL)
    assert error_line(run_main, *command, *arguments, script).startswith(f"tkdebug: {said}")


@pytest.mark.parametrize("option", ["--interpret", "--only"])
def test_kernel_names_of_a_run_that_match_nothing_are_said_at_its_end(
    run_main, write_script, option
):
    status, _, err = run_main("run", "--no-tui", option, "", write_script("launch()"))
    assert status == 0
    assert f"tkdebug: {option} : no such kernel; there are scale\n" in err


def test_version_and_help(run_main):
    from tkdebug import __version__

    assert run_main("--version")[:2] == (0, f"tkdebug {__version__}\n")
    status, out, _ = run_main("run", "--help")
    assert status == 0
    assert "--report FILE" in out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
@pytest.mark.parametrize("command", ["run", "view", "report", "compare", "passes"])
def test_input_that_is_a_fifo_is_refused(tmp_path, command):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    done = tkdebug(command, fifo, *[fifo][: command == "compare"], timeout=300)
    assert done.returncode == 2
    assert "is not a regular file" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="closes a stream by the shell")
def test_stdout_that_is_closed_is_reported(tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False):
        pass
    done = tkdebug(
        "report", path, preexec_fn=lambda: os.close(1), capture_output=False, stderr=subprocess.PIPE
    )
    assert (done.returncode, done.stderr) == (
        2,
        "tkdebug: stdout: is closed; leave it open, or lead it into a file\n",
    )


DOT = """
import torch, triton, triton.language as tl

@triton.jit
def product(a, b, c):
    i = tl.arange(0, 32)
    at = i[:, None] * 32 + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))

a = torch.ones(32, 32, device="cuda", dtype=torch.float16)
c = torch.empty(32, 32, device="cuda")
product[(1,)](a, a, c)
"""


@needs_codegen
def test_advice_for_blackwell_names_each_dot_and_predicts_nothing(run_main, tmp_path):
    script = tmp_path / "dot.py"
    script.write_text(DOT)
    status, out, err = run_main("advise", "--arch", "sm_100a", script)
    assert (status, out) == (0, "")
    assert "no advice for product: no GPU's figures are known for sm_100a" in err
    assert f"{script}:8: dot: computed by mma.sync and not by tcgen05, because" in err


def test_instrumentation_where_no_plugin_has_one(run_main, tmp_path, monkeypatch):
    monkeypatch.setattr("tkdebug.plugins.names", lambda group: ())
    status, _, err = run_main("run", "--instrument", "sectors", tmp_path / "script.py")
    assert status == 2
    assert "'sectors' (no plugin is installed that adds one)" in err


@pytest.mark.parametrize(
    ("knob", "said"),
    [
        ({"timelines": ("clear",)}, "TKDEBUG_TIMELINE: kernels are interpreted; it needs kernels"),
        (
            {"instrumentations": ("sectrs",)},
            "TKDEBUG_INSTRUMENT: got 'sectrs', expected warp-sectors",
        ),
    ],
)
def test_variables_that_a_run_cannot_heed(run_main, tmp_path, monkeypatch, knob, said):
    path = tmp_path / "script.py"
    path.write_text(REAL_KERNEL)
    monkeypatch.setattr("tkdebug.plugins.names", lambda group: ("warp-sectors",))
    with KNOBS.scope(**knob):
        line = error_line(run_main, "run", "--no-tui", path)
    assert line.startswith(f"tkdebug: {said}")


@pytest.mark.parametrize("option", ["--stacks", "--stalls"])
@pytest.mark.parametrize(
    "dumps", ["--coredump", "--hang-timeout=3", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1"]
)
def test_what_needs_cupti_is_refused_beside_core_dumps(
    run_main, tmp_path, monkeypatch, option, dumps
):
    path = tmp_path / "script.py"
    path.write_text("print('ran')\n")
    options = [dumps] if dumps.startswith("--") else []
    if not options:
        monkeypatch.setenv(*dumps.split("="))
    line = error_line(run_main, "run", "--no-tui", option, *options, path)
    dumped = dumps.removesuffix("=3")
    assert f"{option}: needs CUPTI, which cannot record beside the core dumps that {dumped}" in line


def test_stalls_are_refused_where_kernels_are_interpreted(run_main, tmp_path, monkeypatch):
    path = tmp_path / "script.py"
    path.write_text("print('ran')\n")
    monkeypatch.setattr("tkdebug.cli.runs.checks._runs_natively", lambda mode: mode == "native")
    line = error_line(run_main, "run", "--no-tui", "--stalls", path)
    assert line == "tkdebug: --stalls: kernels are interpreted; it needs kernels on a GPU"


def test_advice_of_a_run_without_it_is_one_line(run_main, tmp_path):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False):
        pass
    line = error_line(run_main, "advise", path)
    assert "no launch was looked at for advice there; `tkdebug advise script.py` does" in line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--advise"], "--advise: kernels run on the GPU here, and remarks are of interpreted"),
        (["--target", "sm_80"], "--target sm_80: kernels are compiled for the GPU here; add"),
    ],
)
def test_options_of_interpreted_kernels_are_refused_by_their_own_names(
    run_main, write_script, monkeypatch, options, said
):
    monkeypatch.setattr("tkdebug.cli.runs.checks._runs_natively", lambda mode: True)
    script = write_script("print('ran')")
    line = error_line(run_main, "run", "--no-tui", *options, script)
    assert line.startswith(f"tkdebug: {said}")
