"""Scripts that replace, close or lose their streams: what is printed afterwards still arrives."""

import os
import subprocess
import sys

import pytest
from cli_scripts import ENVIRONMENT, NOT_LOOKED_FOR, tkdebug

POSIX = pytest.mark.skipif(os.name != "posix", reason="file descriptors as POSIX has them")


@pytest.mark.parametrize(
    "body",
    [
        "sys.stderr = sys.stdout = None",
        "import io; sys.stderr = io.StringIO()",
        "sys.stdout.close(); sys.stderr.close()",
        "import os; os.close(1)",
    ],
    ids=["none", "replaced", "closed", "closed below"],
)
def test_summary_arrives_whatever_became_of_the_streams(write_script, body):
    script = write_script(f"launch(faulty=True)\n{body}\n")
    done = tkdebug("run", "--no-tui", script)
    assert done.returncode == 3, done.stderr
    assert "oob-load in scale: too far" in done.stderr
    assert done.stderr.endswith(f"tkdebug: 1 launch of 1 kernel, 1 fault{NOT_LOOKED_FOR}\n")


@POSIX
def test_script_that_closes_the_descriptor_of_stderr_ends_as_it_would(write_script):
    done = tkdebug("run", "--no-tui", write_script("import os; os.close(2)"))
    assert (done.returncode, done.stderr) == (0, "")


def test_stream_of_the_script_is_flushed_as_python_does(write_script, tmp_path):
    log = tmp_path / "log"
    body = f"sys.stdout = open({str(log)!r}, 'w', buffering=1 << 20)\nprint('last words')\n"
    assert tkdebug("run", "--no-tui", write_script(body)).returncode == 0
    assert log.read_text() == "last words\n"


def test_streams_are_put_back_in_this_process(write_script, run_main):
    before = (sys.stdout, sys.stderr)
    script = write_script("import io; sys.stdout = sys.stderr = io.StringIO()")
    status, _, err = run_main("run", "--no-tui", script)
    assert (status, (sys.stdout, sys.stderr)) == (0, before)
    assert "no kernels were launched" in err


def test_faults_name_files_relative_to_where_the_command_was_typed(write_script, tmp_path):
    script = write_script("import os; launch(faulty=True); os.chdir('/')")
    done = tkdebug("run", "--no-tui", script.name, cwd=tmp_path)
    assert f"tkdebug: {script.name}:2: oob-load in scale" in done.stderr
    (tmp_path / "elsewhere").mkdir()
    done = tkdebug("run", "--no-tui", script, cwd=tmp_path / "elsewhere")
    assert f"tkdebug: {script}:2: oob-load in scale" in done.stderr


@POSIX
def test_process_that_began_without_stderr_ends_as_the_script_does(write_script):
    script = write_script("launch(faulty=True); print('ran')")
    command = [sys.executable, "-m", "tkdebug", "run", "--no-tui", str(script)]
    options = {"stdout": subprocess.PIPE, "env": ENVIRONMENT, "timeout": 60, "check": False}
    done = subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *command], **options)
    assert (done.returncode, done.stdout) == (3, b"ran\n")


@pytest.mark.parametrize("command", ["lines", "passes", "advise"])
def test_answer_is_refused_before_the_script_runs_where_stdout_is_closed(
    run_main, write_script, monkeypatch, command
):
    script = write_script("raise SystemExit('ran')")
    monkeypatch.setattr(sys, "stdout", None)
    status, _, err = run_main(command, script)
    line = "tkdebug: stdout: is closed; leave it open, or lead it into a file\n"
    assert (status, err) == (2, line)
    # With a file for the answer the script runs, which prints nowhere.
    status, _, err = run_main(command, "-o", script.with_name("answer"), script)
    assert status == 1
    assert err.startswith("ran\n")
