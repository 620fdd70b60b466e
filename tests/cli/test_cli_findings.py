"""Living with faults under `tkdebug run`: comments, --only, --ignore, --baseline."""

import json
import linecache

import pytest
from cli_scripts import tkdebug

from tkdebug.knobs import KNOBS

SCRIPT = """\
import torch, triton, triton.language as tl

@triton.jit
def past(x, out, n: tl.constexpr):
    offsets = tl.arange(0, n)
    a = tl.load(x + offsets)
    tl.store(out + offsets, a)

@triton.jit
def sound(x):  # COMMENT
    tl.store(x, 1.0)

sound[(1,)](torch.empty(1, device="cuda"))
past[(1,)](torch.ones(6, device="cuda"), torch.ones(8, device="cuda"), 8)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def run(script, monkeypatch, run_main):
    """Run the script in this process: status, the lines on stderr, and the states of its faults."""
    monkeypatch.chdir(script.parent)

    def run(*options, edit=("", "")):
        script.write_text(SCRIPT.replace(*edit))
        linecache.checkcache()
        options = ("--mode", "interpret", "--report", "out.json", *options)
        status, _, err = run_main("run", "--no-tui", *options, "script.py")
        faults = json.loads(script.with_name("out.json").read_text())["faults"]
        return status, err.splitlines(), [fault["state"] for fault in faults]

    return run


def reported(lines):
    """The summary without what was not looked for."""
    return lines[-1].partition(";")[0].removeprefix("tkdebug: 2 launches of 2 kernels, ")


def test_comment_ignores_a_fault(run):
    status, lines, states = run(edit=("+ offsets)\n", "+ offsets)  # tkdebug: ignore[oob-load]\n"))
    assert (status, states) == (0, ["ignored"])
    assert reported(lines) == "no faults (1 ignored)"
    assert not any("oob-load" in line for line in lines)


DIVIDES = """
@triton.jit
def divides(x):
    offsets = tl.arange(0, 8)
    a = tl.load(x + offsets)
    tl.store(x + offsets, a / a)

divides[(1,)](torch.zeros(8, device="cuda"))
"""


def test_processes_that_the_script_starts_know_and_ignore_the_same(script, tmp_path):
    script.write_text(SCRIPT + DIVIDES)
    command = f"import subprocess, sys; subprocess.run([sys.executable, {str(script)!r}])"
    options = ("run", "--no-tui", "--mode", "interpret")
    files = ("--baseline", tmp_path / "faults.json", "--report", tmp_path / "out.json")
    done = tkdebug(*options, *files, "--update-baseline", "--ignore", "nan", "-c", command)
    assert (done.returncode, "1 known fault written" in done.stderr) == (0, True)
    faults = json.loads((tmp_path / "out.json").read_text())["faults"]
    assert [fault["kind"] for fault in faults] == ["oob-load"]
    done = tkdebug(*options, *files, "--only", "past", "-c", command)
    assert done.returncode == 0
    (fault,) = json.loads((tmp_path / "out.json").read_text())["faults"]
    assert (fault["kind"], fault["state"]) == ("oob-load", "known")


def test_unused_and_wrong_comments_are_reported_before_the_last_line(run, script):
    status, lines, _ = run(edit=("# COMMENT", "# tkdebug: ignore[oob-store]"))
    assert status == 3
    assert lines[-2].startswith(f"tkdebug: {script}:10: unused ignore[oob-store]")
    status, lines, _ = run(edit=("+ offsets)\n", "+ offsets)  # tkdebug: ignore[oob-laod]\n"))
    assert status == 3
    assert lines[-2] == (
        f"tkdebug: {script}:6: ignore[oob-laod]: there is no such kind of fault; "
        "did you mean oob-load?"
    )


def test_comment_whose_kind_was_not_looked_for_is_not_unused(run):
    edit = ("tl.store(x, 1.0)", "tl.store(x, 1.0)  # tkdebug: ignore[race]")
    assert not any("unused" in line for line in run(edit=edit)[1])
    assert any("unused ignore[race]" in line for line in run("--check", "race", edit=edit)[1])


def test_only_and_ignore_leave_faults_out(run):
    status, lines, states = run("--only", "sou*", "--only", "pats")
    assert (status, states) == (0, [])
    assert "tkdebug: --only pats: no such kernel; did you mean past?" in lines
    assert run("--only", "past", "--only=sound")[0] == 3
    assert run("--ignore", "nan,oob-load")[::2] == (0, [])


def test_baseline_lets_known_faults_pass_and_counts_fixed_ones(run, tmp_path):
    status, lines, states = run("--baseline", "faults.json", "--update-baseline")
    assert (status, states) == (0, ["open"])
    assert "tkdebug: faults.json: 1 known fault written" in lines
    moved = ("import torch", "# a line more\nimport torch")
    status, lines, states = run("--baseline", "faults.json", edit=moved)
    assert (status, states) == (0, ["known"])
    assert reported(lines) == "no faults (1 in the baseline)"
    assert not any("oob-load" in line for line in lines)
    status, lines, states = run(
        "--baseline", "faults.json", edit=("x + offsets", "x + 1 + offsets")
    )
    assert (status, states) == (3, ["open"])
    assert reported(lines) == "1 fault (1 of the baseline fixed)"
    text = (tmp_path / "faults.json").read_text()
    status, lines, _ = run("--baseline", "faults.json", edit=("ones(6", "ones(8"))
    assert (status, reported(lines)) == (0, "no faults (1 of the baseline fixed)")
    assert (tmp_path / "faults.json").read_text() == text
    run("--baseline", "faults.json", "--update-baseline", edit=("ones(6", "ones(8"))
    assert json.loads((tmp_path / "faults.json").read_text())["faults"] == []


def test_baseline_that_a_variable_names_is_written(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TKDEBUG_BASELINE", str(tmp_path / "new.json"))
    KNOBS.refresh()
    status, lines, _ = run("--update-baseline")
    assert status == 0
    assert f"tkdebug: {tmp_path / 'new.json'}: 1 known fault written" in lines
    assert run()[2] == ["known"]
    KNOBS.refresh()


def test_baseline_keeps_what_a_run_does_not_look_at(run, tmp_path):
    run("--baseline", "faults.json", "--update-baseline")
    before = (tmp_path / "faults.json").read_text()
    edit = ("past[(1,)]", "1 or past[(1,)]")
    run("--baseline", "faults.json", "--update-baseline", edit=edit)
    run("--baseline", "faults.json", "--update-baseline", "--only", "sound")
    run(
        "--baseline", "faults.json", "--update-baseline", edit=("sound[(1,)]", "1 / 0\nsound[(1,)]")
    )
    assert (tmp_path / "faults.json").read_text() == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ignore", "nann"], "'nann' is not one; did you mean nan?"),
        (["--ignore", "luck"], "'luck' is not one; there are oob-load, "),
        (["--ignore", "compile-error"], "'compile-error' is not one"),
        (["--update-baseline"], "--update-baseline: give the file, too: --baseline FILE"),
        (["--baseline", "none.json"], "none.json: there is no such baseline"),
        (["--baseline", "other.json"], "baseline of schema 9, this tkdebug reads 1"),
        (["--baseline", "other.json", "--update-baseline"], "baseline of schema 9"),
        (["--baseline", "script.py", "--update-baseline"], "script.py: is the script itself"),
        (["--baseline", "."], "cannot be read"),
        (["--baseline", "none/f.json", "--update-baseline"], "there is no directory"),
    ],
)
def test_wrong_options_are_one_line_and_status_2(
    options, words, script, tmp_path, monkeypatch, run_main
):
    (tmp_path / "other.json").write_text('{"tkdebug_baseline": 9, "faults": []}')
    monkeypatch.chdir(tmp_path)
    status, out, err = run_main("run", "--no-tui", *options, "script.py")
    assert (status, out) == (2, "")
    assert words in err.splitlines()[-1]
    assert "Traceback" not in err
    assert script.read_text() == SCRIPT


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TKDEBUG_IGNORE", "nann", "TKDEBUG_IGNORE: got 'nann'"),
        ("TKDEBUG_BASELINE", "none.json", "none.json: there is no such baseline"),
    ],
)
def test_wrong_variables_are_one_line_and_status_2(
    variable, value, words, script, monkeypatch, run_main
):
    monkeypatch.setenv(variable, value)
    KNOBS.refresh()
    status, _, err = run_main("run", "--no-tui", script)
    KNOBS.refresh()
    assert status == 2
    assert words in err
    assert len(err.splitlines()) == 1
