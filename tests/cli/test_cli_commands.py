import builtins
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from cli_scripts import tkdebug
from warm_python import run_python

from tkdebug.checks import CHECK_NAMES
from tkdebug.cli import command_line, commands, machine_parts
from tkdebug.cli.command_line import build_parser, command_names, parse
from tkdebug.cli.runs.live import child_command
from tkdebug.cli.runs.progress import ProgressLine, format_seconds, progress_text
from tkdebug.cli.runs.request import run_request
from tkdebug.instrument.renderers.formats import ANSWERS, PASSES, REPORTS, format_by_name
from tkdebug.records.events import LaunchProgress, LaunchRecord


@pytest.fixture
def session(write_script, run_main, tmp_path):
    path = tmp_path / "run.tkd"
    run_main("run", "--no-tui", "-o", path, write_script("launch(faulty=True)"))
    return path


def test_report_prints_text_and_json(session, run_main):
    status, out, err = run_main("report", session)
    assert (status, err) == (0, "")
    assert "oob-load in scale: too far" in out
    status, out, _ = run_main("report", session, "--format", "json")
    assert json.loads(out)["faults"][0]["kind"] == "oob-load"


def test_compare_ends_with_3_where_a_fault_is_new(session, write_script, run_main, tmp_path):
    clean = tmp_path / "clean.tkd"
    run_main("run", "--no-tui", "-o", clean, write_script("launch()", "clean.py"))
    status, out, err = run_main("compare", clean, session)
    assert (status, err) == (3, "")
    assert "\nnew: " in out
    status, out, _ = run_main("compare", session, clean, "--format", "json")
    assert status == 0
    assert len(json.loads(out)["gone_faults"]) == 1


def test_compare_with_what_is_no_session_names_it(session, run_main, tmp_path):
    status, out, err = run_main("compare", session, tmp_path / "nosuch.tkd")
    assert (status, out) == (2, "")
    assert "nosuch.tkd: no such session" in err


def test_report_into_a_file(session, run_main, tmp_path):
    out = tmp_path / "out.json"
    assert run_main("report", session, "--format", "json", "-o", out) == (0, "", "")
    assert json.loads(out.read_text())["schema"] == 1


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("out.json", '{"schema": 1'),
        ("out.SARIF", '{"$schema"'),
        ("out.xml", "<?xml"),
        ("out.html", "<!doctype html>"),
        ("out.txt", ""),
        ("out", ""),
    ],
)
def test_report_file_has_the_format_that_its_name_says(session, run_main, tmp_path, name, start):
    assert run_main("report", session, "-o", tmp_path / name) == (0, "", "")
    text = (tmp_path / name).read_text()
    assert text.startswith(start or str(session.with_name("script.py")))
    run_main("report", session, "-o", tmp_path / name, "--format", "chrome-trace")
    assert "traceEvents" in (tmp_path / name).read_text()


def test_report_file_whose_name_says_no_format_is_refused(session, run_main, tmp_path):
    status, _, err = run_main("report", session, "-o", tmp_path / "out.pdf")
    assert status == 2
    assert "expected one of .txt, .json, .sarif, .xml, .csv, .html, or --format text|json|" in err
    assert not (tmp_path / "out.pdf").exists()


def test_run_report_has_the_format_that_is_asked_for_or_its_name_says(
    write_script, run_main, tmp_path
):
    script = write_script("print('ran'); launch(faulty=True)")
    run_main("run", "--no-tui", "--report", tmp_path / "a.sarif", script)
    assert json.loads((tmp_path / "a.sarif").read_text())["version"] == "2.1.0"
    out = tmp_path / "b"
    run_main("run", "--no-tui", "--report-format", "junit", "--report", out, script)
    assert out.read_text().startswith("<?xml")
    status, printed, err = run_main("run", "--no-tui", "--report", tmp_path / "c.pdf", script)
    assert (status, printed) == (2, "")
    assert "c.pdf: its name says no format of a report" in err
    assert "--report-format text|json|chrome-trace|sarif|junit" in err
    status, _, err = run_main("run", "--no-tui", "--report-format", "json", script)
    assert status == 2
    assert "give the file, too: --report FILE" in err


def test_report_into_the_session_itself_is_refused(session, run_main):
    status, _, err = run_main("report", session, "-o", session)
    assert status == 2
    assert "is the session itself" in err


def test_report_whose_reader_goes_away_is_quiet(session):
    code = (
        "import os, subprocess, sys\n"
        "read, write = os.pipe(); os.close(read)\n"
        "command = [sys.executable, '-m', 'tkdebug', 'report', sys.argv[1]]\n"
        "sys.exit(subprocess.run(command, stdout=write).returncode)\n"
    )
    from cli_scripts import python

    result = python("-c", code, session)
    assert (result.returncode, result.stderr) == (1, "")


@pytest.mark.parametrize("one", [*REPORTS, *PASSES], ids=lambda one: one.module)
def test_each_format_has_a_module_that_renders(one):
    module = import_module(f"tkdebug.instrument.renderers.{one.module}")
    assert callable(module.render)


@pytest.mark.parametrize("command", ["run", "debug", "passes", "lines", "advise"])
@pytest.mark.parametrize(
    ("words", "what", "target"),
    [
        (["--target", "sm_80", "-m", "pkg"], "module", "pkg"),
        (["--triton=3.7", "s.py"], "script", "s.py"),
        (["--", "-odd.py"], "script", "-odd.py"),
        (["-c", "print(1)"], "code", "print(1)"),
        (["-cprint(1)"], "code", "print(1)"),
        (["-"], "stdin", "-"),
    ],
)
def test_module_and_script_take_all_that_follows(command, words, what, target, capsys):
    if command == "debug" and what == "code":
        return  # whose -c is a command of the debugger's
    for rest in ([], ["-o", "y", "--", "-m", "--line", "3", "--kernel=k"]):
        script = parse([command, *words, *rest])[1].script
        assert (script.target, script.argv) == (target, tuple(rest))
        assert (script.is_module, script.is_code) == (what == "module", what == "code")
        assert script.is_stdin is (what == "stdin")
        assert parse([command, *script.words])[1].script == script


def test_compare_gives_the_script_what_follows_it():
    _, parsed = parse(["compare", "--format", "json", "--compilers", "s.py", "--compilers", "x"])
    assert (parsed.script.target, parsed.script.argv) == ("s.py", ("--compilers", "x"))
    assert parsed.format == "json"
    _, parsed = parse(["compare", "a.tkd", "b.tkd", "--format", "json"])
    assert (parsed.before, parsed.after) == (Path("a.tkd"), Path("b.tkd"))
    for words in (["a.tkd"], ["--compilers"], ["--compilers", "-m", "pkg"]):
        with pytest.raises(SystemExit):
            parse(["compare", *words])


@pytest.mark.parametrize("command", ["passes", "lines", "advise"])
def test_options_may_follow_a_recorded_run(command, session, tmp_path):
    unnamed = tmp_path / "run"
    unnamed.write_bytes(session.read_bytes())
    for run in (session, unnamed):
        _, parsed = parse([command, str(run), "--kernel", "k", "--format", "json"])
        assert (parsed.script.target, parsed.script.argv) == (str(run), ())
        assert (parsed.kernel, parsed.format) == ("k", "json")


@pytest.mark.parametrize("command", ["passes", "lines", "advise"])
def test_own_options_after_the_script_are_named(command, capsys):
    parse([command, "s.py", "--size", "3", "--kernel=k", "--format", "json"])
    assert capsys.readouterr().err == (
        f"tkdebug: {command}: --kernel=k --format after s.py is the script's; options of tkdebug's "
        "stand before the script\n"
    )


def test_format_is_by_the_name_of_the_file():
    for name, expected in (("a.json", "json"), ("a.TXT", "text"), ("a", "text")):
        assert format_by_name(Path(name), ANSWERS) == expected
    assert format_by_name(None, ANSWERS) == "text"
    assert format_by_name(Path("a.html"), PASSES) == "html"


@pytest.mark.parametrize("command", ["passes", "lines", "advise"])
def test_answer_takes_its_format_from_the_name_of_its_file(command, run_main, tmp_path):
    recorded = tmp_path / "run.tkd"
    example = Path(__file__).parents[2] / "examples" / "vector_add.py"
    assert run_main("run", "--no-tui", "--advise", "-o", recorded, example)[0] == 0
    assert run_main(command, recorded, "-o", tmp_path / "a.json")[0] == 0
    assert json.loads((tmp_path / "a.json").read_text())
    assert run_main(command, recorded, "-o", tmp_path / "b.json", "--format", "text")[0] == 0
    assert (tmp_path / "b.json").read_text() == run_main(command, recorded)[1]
    if command == "passes":
        assert run_main(command, recorded, "-o", tmp_path / "a.html")[0] == 0
        assert "<html" in (tmp_path / "a.html").read_text()
    status, _, err = run_main(command, recorded, "-o", tmp_path / "a.pdf")
    suffixes = ".txt, .json, .html" if command == "passes" else ".txt, .json"
    formats = "text|json|html" if command == "passes" else "text|json"
    assert status == 2
    assert f"a.pdf: its name says no format; expected one of {suffixes}, or --format {formats}" in (
        err
    )
    assert not (tmp_path / "a.pdf").exists()


def test_ceilings_say_that_the_name_of_the_file_is_no_formats(run_main, tmp_path):
    status, _, err = run_main("ceilings", "-o", tmp_path / "a.pdf")
    assert status == 2
    assert "a.pdf: its name says no format; expected one of .txt, .json" in err


@pytest.fixture
def requested(tmp_path, monkeypatch):
    """Return the request that a command line of `tkdebug run` makes."""
    for name in ("s.py", "-odd.py", "pkg.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tkdebug.cli.runs.request.has_terminal", lambda: True)
    return lambda *words: run_request(parse(["run", *words])[1])


def requested_by_child(requested, asked):
    """Return the requests of the TUI's child, without the options that serve the TUI."""
    child = requested(*child_command(asked, Path("run.tkd"), ["--pane-socket=7"])[4:])
    assert (child.tui, child.session, child.pane_socket) == (False, Path("run.tkd"), 7)
    same = {name: getattr(asked, name) for name in ("own_words", "tui", "session", "pane_socket")}
    return replace(child, **same)


@pytest.mark.parametrize(
    "words",
    [
        ["s.py"],
        ["--tui", "-o", "own.tkd", "-m", "pkg", "--tui"],
        ["-c", "print(1)", "-m", "x"],
        ["-cprint(1)", "-c"],
        ["--check", "all", "--mode=interpret", "--interpret=-a*", "--ignore=nan", "s.py", "-o"],
        ["--only=-a*", "--only=b", "--baseline", "f.json", "--update-baseline", "s.py"],
        ["--", "-odd.py", "--", "x"],
    ],
)
def test_child_of_the_tui_runs_the_same_thing(requested, words):
    asked = requested(*words)
    assert requested_by_child(requested, asked) == asked


def test_options_name_knobs_and_kinds(requested):
    kinds = ("--ignore", "nan,race", "--ignore=inf")
    given = requested(*kinds, "--interpret=a", "--interpret=b", "--check=all", "s.py").given
    assert given["ignored_kinds"] == ("nan", "race", "inf")
    assert given["interpret_kernels"] == ("a", "b")
    assert given["checks"] == CHECK_NAMES


OF_RUN = {
    "--cause": None,
    "--mode": "interpret",
    "--triton": "3.7",
    "--compiler": "triton",
    "--ask-triton": "a python",
    "--report": "-o.json",
    "--report-format": "sarif",
    "--quick": None,
    "--interpret": "-a*",
    "--check": "nan",
    "--check-launches": "all",
    "--watch": "a.py:3:x",
    "--timeline": "k@0",
    "--reference": "m:f",
    "--print-elements": "all",
    "--hang-timeout": "1234567.5",
    "--coredump": None,
    "--stacks": None,
    "--stalls": None,
    "--nvtx": None,
    "--advise": None,
    "--only": "b",
    "--ignore": "nan,race",
    "--baseline": "f.json",
    "--update-baseline": None,
    "--target": "sm_80",
    "--pane-socket": "5",
    "--wait-for-pane": None,
}


@pytest.mark.parametrize("option", OF_RUN)
def test_request_has_each_option_and_so_has_the_child_of_the_tui(requested, option):
    value = OF_RUN[option]
    words = [option if value is None else f"{option}={value}"]
    words += ["--report=r.txt"] if option == "--report-format" else []
    asked = requested(*words, "s.py")
    plain = requested(*words[1:], "s.py")
    assert replace(asked, own_words=()) != replace(plain, own_words=())
    assert requested_by_child(requested, asked) == asked


def test_every_option_of_run_is_tried_on_a_request():
    _, parsers = build_parser(["run"])
    options = {option for each in parsers["run"]._actions for option in each.option_strings}
    own = {"-h", "--help", "-o", "--output", "--tui", "--no-tui", "--temporary", "-m", "-c"}
    # Every command has it: it is read off the words (`test_cli_errors.py`).
    own |= {"--errors"}
    # Its values are plugins that are installed.
    assert options - own - {"--instrument"} == set(OF_RUN)


@pytest.fixture
def greet(tmp_path, monkeypatch):
    """The command that the documentation adds, in a file beside the others."""
    page = Path(__file__).parents[2] / "docs" / "extending.md"
    text = page.read_text("utf-8").partition("## A command\n")[2]
    (tmp_path / "greet.py").write_text(text.partition("```python\n")[2].partition("```")[0])
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    yield
    sys.modules.pop("tkdebug.cli.commands.greet", None)


def test_command_is_added_by_one_file(greet, run_main):
    assert command_names()[-1] == "greet"
    assert run_main("greet", "a.tkd", "--format", "json") == (0, "hello a.tkd, as json\n", "")
    status, out, _ = run_main("--help")
    assert (status, "greet a recorded run\n" in out) == (0, True)
    assert "Print a greeting for a recorded run." in run_main("greet", "--help")[1]
    assert (
        "not understood: --formt x; did you mean --format?"
        in run_main("greet", "a.tkd", "--formt", "x")[2]
    )
    assert "gret is not a command; did you mean greet?" in run_main("gret")[2]
    assert "tkdebug_greet" in run_main("completion", "bash")[1]


def test_order_of_the_help_names_commands_that_there_are():
    assert set(command_line._HELP_ORDER) == set(command_names())


def test_the_child_of_the_tui_takes_no_modules_of_the_current_folder(tmp_path, requested):
    """No module of the current folder shadows one, as with `python script.py`."""
    for name in ("argparse", "difflib", "tkdebug"):
        (tmp_path / f"{name}.py").write_text("print('taken')")
    command = child_command(requested("s.py"), Path("run.tkd"))
    (tmp_path / "s.py").unlink()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert "s.py: no such file" in done.stderr


def test_doctor_tells_all_it_looks_at(run_main):
    status, out, err = run_main("doctor")
    assert (status, err) == (0, "")
    for name in machine_parts.parts():
        assert any(line.startswith(name) for line in out.splitlines())
    assert "mode auto: interpret" in out
    assert "next: tkdebug run script.py" in out


def test_doctor_survives_a_machine_with_nothing(run_main, monkeypatch):
    def nothing(name):
        return None

    monkeypatch.setattr(machine_parts, "find_spec", nothing)
    monkeypatch.setattr("shutil.which", nothing)
    status, out, _ = run_main("doctor")
    assert status == 1
    assert "needed: torch: pip install torch" in out
    assert "next:" not in out


@pytest.mark.parametrize("text", ['__version__ = "3.7.0"', ""])
def test_doctor_knows_a_triton_of_another_distribution(run_main, monkeypatch, tmp_path, text):
    package = tmp_path / "triton"
    package.mkdir()
    (package / "__init__.py").write_text(f"{text}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    status, out, _ = run_main("doctor")
    assert status == 0
    (line,) = (line for line in out.splitlines() if line.startswith("triton "))
    assert f"{'3.7.0' if text else 'of an unknown version'}; `tkdebug run` uses its own" in line


def test_doctor_survives_packages_that_break_at_import(run_main, monkeypatch):
    real = builtins.__import__

    def broken(name, *rest):
        if name == "torch":
            raise OSError("libcudart.so.12: cannot open\nshared object file")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", broken)
    status, out, _ = run_main("doctor")
    assert status == 1
    assert "OSError: libcudart.so.12: cannot open shared object file" in out


def test_progress_line_tells_programs_rate_and_time_left():
    event = LaunchProgress(1, "softmax", 1_500, 6_000, 3_000_000_000)
    assert progress_text(event) == (
        "tkdebug: softmax: 1,500 of 6,000 programs (25 %), 500/s, 9 s left"
    )


def test_progress_is_shown_by_lines_and_passes_too(write_script, run_main, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    script = write_script(
        "HOOKS.progress(LaunchProgress(1, 'scale', 5, 10, 2_000_000_000)); launch()"
    )
    for command in ("lines", "passes"):
        _, out, err = run_main(command, script)
        assert "scale: 5 of 10 programs" in err
        assert "programs" not in out


def test_progress_line_waits_a_second_and_is_erased_by_its_own_launch():
    stream = io.StringIO()
    line = ProgressLine(stream)
    line.on_progress(LaunchProgress(7, "k", 1, 10, 900_000_000))
    assert stream.getvalue() == ""
    line.on_progress(LaunchProgress(7, "k", 5, 10, 1_100_000_000))
    shown = stream.getvalue()
    assert shown.startswith("\r\x1b[Ktkdebug: k: 5 of 10")
    for number in (8, 7, 7):
        record = LaunchRecord(number, "k", (1, 1, 1), "interpret", {}, tuple, "")
        line.on_exit(None, record)
    assert stream.getvalue() == shown + "\r\x1b[K"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(8.4, "8 s"), (125, "2 min 5 s"), (11_400, "3 h 10 min")]
)
def test_format_seconds(seconds, shown):
    assert format_seconds(seconds) == shown


def test_command_runs_as_a_module():
    assert tkdebug("--version").stdout.startswith("tkdebug ")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("command", [["doctor"], ["report"], ["report", "-o", "/dev/full"]])
def test_answer_that_cannot_be_written_is_one_line(session, command):
    words = [*command, session] if command[0] == "report" else command
    code = (
        "import os, runpy\n"
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"
        "runpy.run_module('tkdebug', run_name='__main__')\n"
    )
    done = run_python("-c", code, *words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "cannot be written (No space left on device)" in line
