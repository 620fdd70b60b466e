"""The commands in a Python without torch: one line where it is needed, work where it is not."""

import lzma
from pathlib import Path

import pytest
from cli_scripts import python

GOLDEN = Path(__file__).parents[1] / "golden"
WITHOUT_TORCH = """\
import sys
sys.modules["torch"] = None  # as if it were not installed
from tkdebug.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without_torch(*arguments):
    return python("-c", WITHOUT_TORCH, *arguments)


def test_doctor_says_that_torch_is_missing():
    done = without_torch("doctor")
    assert (done.returncode, done.stderr) == (1, "")
    assert "torch        missing  not installed" in done.stdout
    assert "mode auto: no kernel can run here (torch is not installed" in done.stdout
    assert "needed: torch: pip install torch" in done.stdout


@pytest.mark.parametrize("command", ["run", "passes", "lines"])
def test_commands_that_run_a_script_say_so_in_one_line(write_script, command):
    done = without_torch(command, write_script("print('has run')"))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("tkdebug: torch is not installed in ")
    assert line.endswith("pip install torch")


def test_torch_that_breaks_at_import_is_named_with_its_error(write_script, tmp_path):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise OSError('libcudart.so.12: cannot open')")
    code = WITHOUT_TORCH.replace(
        'sys.modules["torch"] = None', f"sys.path.insert(0, {str(tmp_path)!r})"
    )
    done = python("-c", code, "run", write_script("print('has run')"))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "torch cannot be imported (OSError: libcudart.so.12: cannot open)" in line


def test_commands_that_only_read_need_no_torch(write_script, run_main, tmp_path):
    session = tmp_path / "run.tkd"
    run_main("run", "--no-tui", "-o", session, write_script("launch()"))
    done = without_torch("report", session)
    assert done.returncode == 0
    assert "scale" in done.stdout
    dump = tmp_path / "dump"
    dump.write_bytes(lzma.decompress((GOLDEN / "core_dumps/h200_580_store.core.xz").read_bytes()))
    assert "illegal-address" in without_torch("crash", dump).stdout


def test_tests_under_the_plugin_say_so_in_one_line(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    code = (
        "import sys, pytest; sys.modules['torch'] = None\n"
        "sys.exit(pytest.main(['-p', 'tkdebug.pytest_plugin', sys.argv[1]]))\n"
    )
    done = python("-c", code, tmp_path)
    assert done.returncode == 4
    assert "ERROR: torch is not installed" in done.stderr
    assert "Traceback" not in done.stderr
