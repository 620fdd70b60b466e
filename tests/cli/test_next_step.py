"""The last line of a run whose script failed: a command that works as it is printed."""

import shlex

import pytest
from cli_scripts import tkdebug

SCRIPT = """\
import sys
import torch
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x - y, mask=mask)


@triton.jit
def reads_past(x_ptr, out_ptr):
    offs = tl.arange(0, 64)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs), mask=offs < 3)


def compare(x, y, out):
    torch.testing.assert_close(
        out, x + y
    )


how = sys.argv[1]
x, y, out = torch.arange(100.0), torch.full((100,), 2.0), torch.zeros(100)
y[44] = 9
if how == "fault":
    reads_past[(1,)](x[:3].clone(), out)
for _ in range(2 if how == "twice" else 0 if how in ("fault", "none") else 1):
    add[(2,)](x, y, out, 100, BLOCK=64)
if how == "close":
    compare(x, y, out)
if how == "exit":
    sys.exit(4)
if how == "interrupt":
    raise KeyboardInterrupt
assert torch.allclose(out, x + y), "not\\nclose"
"""
FAILED = SCRIPT.splitlines().index('assert torch.allclose(out, x + y), "not\\nclose"') + 1


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "my script.py"
    path.write_text(SCRIPT)
    return path


def next_command(script, *words, options=()):
    """Return the command that the last line of a run gives, and its purpose."""
    done = tkdebug("run", "--no-tui", *options, script, *words)
    assert done.returncode == 1
    why, command = done.stderr.splitlines()[-1].removeprefix("tkdebug: ").split(": ", 1)
    first, *rest = shlex.split(command)
    assert first == "tkdebug"
    return why, rest


def test_wrong_element_of_the_only_launch_is_explained(script):
    why, command = next_command(script, "close")
    assert why == "to see what out[44] was computed from"
    assert command[:7] == ["debug", "-c", "b end add", "-c", "c", "-c", "why out[44]"]
    done = tkdebug(*command)
    assert "out_ptr[44] is 35: written by program 0 at line 13" in done.stdout


def test_failed_assertion_stops_at_the_end_of_the_only_launch(script):
    why, command = next_command(script, "assert", options=["--triton", "3.7"])
    assert why == "to look at what it computed"
    assert command[:5] == ["debug", "--triton", "3.7", "-c", "b end add"]
    assert "launch 1 of add has ended" in tkdebug(*command).stdout


def test_failure_after_several_launches_stops_at_its_line(script):
    why, command = next_command(script, "twice", "a 'b'")
    assert why == "to stop where it failed"
    assert command == ["debug", "-c", f"b {FAILED}", "-c", "c", str(script), "twice", "a 'b'"]
    assert f"my script.py({FAILED})<module>()" in tkdebug(*command).stdout


def test_fault_before_the_failure_is_stopped_at(script):
    why, command = next_command(script, "fault")
    assert why == "to stop at the fault"
    assert command[2] == "b fault oob-load"
    assert "my script.py(19)reads_past()" in tkdebug(*command).stdout


@pytest.mark.parametrize("how", ["none", "exit", "interrupt"])
def test_nothing_is_said_without_a_launch_or_where_the_script_ended_on_purpose(script, how):
    done = tkdebug("run", "--no-tui", script, how)
    assert done.returncode
    assert "tkdebug debug" not in done.stderr


def test_nothing_is_said_that_a_terminal_would_act_on(script):
    done = tkdebug("run", "--no-tui", script, "assert", "\x1b[31m")
    assert "tkdebug debug" not in done.stderr


CHANGED = """\
import torch
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * 3, mask=offs < n)


x = torch.ones(100_000)
double[(98,)](x, 100_000, BLOCK=1024)
assert torch.equal(x, torch.full((100_000,), 2.0))
"""


def test_inputs_that_have_changed_are_kept_by_the_next_command(script):
    script.write_text(CHANGED)
    why, command = next_command(script)
    assert why == "to find the cause"
    assert command[:4] == ["run", "--mode", "interpret", "--cause"]
    done = tkdebug("run", "--no-tui", *command[1:])
    assert "9 + tl.store(x_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * 2" in done.stderr
    assert "--cause" not in done.stderr.splitlines()[-1]


def test_what_does_not_compile_is_not_interpreted_again(script):
    head, _, _ = CHANGED.partition("assert")
    broken = "@triton.jit\ndef broken(x_ptr):\n    tl.store(x_ptr, wrong)\n\n\nbroken[(1,)](x)\n"
    script.write_text(head + broken)
    why, command = next_command(script)
    assert (why, command[0]) == ("to stop where it failed", "debug")
