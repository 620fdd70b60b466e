"""Profilers of others: functions of Python, and a tool in C that is built here."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch

from tkdebug.errors import TkError
from tkdebug.instrument import KernelObject, kernel_launch_enter, kernel_launch_exit
from tkdebug.instrument.launch_listeners.native_tools import load_tool, load_tools_of_environment
from tkdebug.records.hook_chain import HOOKS

C_TOOL = Path(__file__).resolve().parents[2] / "examples" / "c_tool"


def test_callbacks_get_the_same_correlation_id_before_and_after():
    seen = []
    with (
        kernel_launch_enter(lambda k: seen.append(("enter", k.name, k.correlation_id))),
        kernel_launch_exit(lambda k: seen.append(("exit", k.name, k.correlation_id))),
    ):
        record = launch("one", grid=(3, 2, 1))
    assert seen == [("enter", "one", record.id), ("exit", "one", record.id)]


def test_callbacks_of_one_kernel_see_no_other():
    seen = []
    with kernel_launch_exit(lambda k: seen.append((k.name, k.grid, k.duration_ns)), "one"):
        launch("one", duration_ns=5)
        launch("two", duration_ns=6)
    assert seen == [("one", (4, 1, 1), 5)]


def test_facts_of_machine_code_are_none_where_a_kernel_is_interpreted():
    objects = []
    with kernel_launch_enter(objects.append):
        launch()
    (kernel,) = objects
    assert isinstance(kernel, KernelObject)
    assert (kernel.registers, kernel.shared_bytes, kernel.cubin) == (None, None, None)
    assert kernel.line_table() == ()


def test_a_callback_that_is_for_no_kernel_is_refused():
    with pytest.raises(TypeError, match="expected a kernel or its name"):
        kernel_launch_enter(print, 7)


def test_what_cannot_be_called_is_no_callback():
    with pytest.raises(TypeError, match="tool_callback: got 3, expected a function"):
        kernel_launch_exit(3)


def test_a_callback_that_raises_is_named(capsys):
    def measure(kernel):
        raise ValueError("mine")

    with kernel_launch_enter(measure):
        launch()
    assert "measure raised (shown once)" in capsys.readouterr().err


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    path = tmp_path_factory.mktemp("tool") / "libcount_kernels.so"
    source = C_TOOL / "count_kernels.c"
    command = [compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", path, source]
    subprocess.run(command, check=True)
    return path


def test_a_tool_in_c_counts_launches(library):
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from launching import launch\n"
        "from tkdebug.instrument.launch_listeners.native_tools import load_tool\n"
        "load_tool(sys.argv[1])\n"
        "launch('one', duration_ns=5); launch('two', duration_ns=7); launch('one', duration_ns=6)\n"
    )
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", code, library, here], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines() == [
        "count_kernels: one: 2 launches, 11 ns",
        "count_kernels: two: 1 launches, 7 ns",
    ]


def test_a_library_that_is_no_tool_is_one_line(tmp_path, monkeypatch, capsys):
    other = tmp_path / "libnone.so"
    other.write_text("no library")
    with pytest.raises(TkError, match="TKDEBUG_TOOL: "):
        load_tool(str(other))
    monkeypatch.setenv("TKDEBUG_TOOL", str(other))
    before = HOOKS.launch
    load_tools_of_environment()
    assert HOOKS.launch is before
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "it is skipped" in err
    assert err.count(str(other)) == 1
