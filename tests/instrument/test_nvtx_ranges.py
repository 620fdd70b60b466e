import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
from launching import enter, launch, leave

from tkdebug.cli import main
from tkdebug.instrument.launch_listeners.nvtx_ranges import nvtx_ranges
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.scopes import SCOPES

HERE = Path(__file__).parent


@pytest.fixture
def calls(monkeypatch):
    made = []
    fake = types.ModuleType("nvtx")
    fake.start_range = lambda message, *, domain: made.append(("start", message)) or len(made)
    fake.end_range = lambda range_id: made.append(("end", made[range_id - 1][1]))
    monkeypatch.setitem(sys.modules, "nvtx", fake)
    return made


def test_launches_and_scopes_are_ranges(calls):
    with nvtx_ranges():
        scope = SCOPES.enter("step")
        launch("one")
        SCOPES.exit(scope)
    assert calls == [("start", "step"), ("start", "one"), ("end", "one"), ("end", "step")]
    launch("two")
    assert len(calls) == 4
    assert HOOKS.launch is None


def test_ranges_may_end_in_another_order(calls):
    with nvtx_ranges():
        one, two = enter("one"), enter("two")
        leave(one)
        leave(two)
    assert calls == [("start", "one"), ("start", "two"), ("end", "one"), ("end", "two")]


def test_without_the_package_there_is_one_line(monkeypatch, tmp_path, capfd):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    script = tmp_path / "s.py"
    script.write_text("print('ran')")
    assert main(["run", "--no-tui", "--nvtx", str(script)]) == 2
    captured = capfd.readouterr()
    assert "pip install nvtx" in captured.err
    assert "ran" not in captured.out


def test_a_tool_of_nvtx_gets_ranges_of_the_package(tmp_path):
    pytest.importorskip("nvtx", reason="needs the package nvtx")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    tool = tmp_path / "libtool.so"
    source = HERE.parent / "loaders" / "nvtx_tool.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tool, source], check=True)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from launching import launch\n"
        "from tkdebug.instrument.launch_listeners.nvtx_ranges import nvtx_ranges\n"
        "from tkdebug.records.scopes import SCOPES\n"
        "with nvtx_ranges():\n"
        "    scope = SCOPES.enter('step 1')\n"
        "    launch('add')\n"
        "    SCOPES.exit(scope)\n"
    )
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(tool)}
    done = subprocess.run(
        [sys.executable, "-c", code, HERE], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "start tkdebug step 1 1",
        "start tkdebug add 2",
        "end tkdebug 2",
        "end tkdebug 1",
    ]
