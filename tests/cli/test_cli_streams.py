"""Scripts that replace, close or lose their streams: what is printed afterwards still arrives."""

import os
import sys

import pytest
from cli_scripts import NOT_LOOKED_FOR, tkdebug

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
