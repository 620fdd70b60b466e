"""The console under pytest; `breakpoint()` where there is a terminal, and where there is none."""

import debugged_kernels as kernels
import pytest
import torch
from debugged_kernels import FILE, line
from fronts import debugging

from tkdebug.compat import install
from tkdebug.debugger.breakpoints import BreakKind
from tkdebug.debugger.console.commands import find_command
from tkdebug.debugger.console.shell import Console
from tkdebug.pytest_plugin.debugging import SuspendingFront
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.launch import breakpoints


class Capture:
    def __init__(self, said):
        self.said = said

    def suspend(self, in_=False):
        self.said.append(f"suspended {in_}")

    def resume(self):
        self.said.append("resumed")


def faulty(commands):
    said = []
    console = Console(find_command, commands, write=said.append)
    with debugging(SuspendingFront(console, Capture(said))) as debugger:
        debugger.add(BreakKind.FAULT)
        kernels.overrun[(2,)](torch.ones(6), torch.zeros(8), BLOCK=4)
    return said


def test_a_fault_in_a_test_opens_the_console_without_capture():
    said = faulty(["pid 1", "p offs", "c"])
    assert said[0] == "suspended True"
    assert said[-1] == "resumed"
    assert f"({line('faulty')})overrun()" in "\n".join(said)
    assert "offs = int32[4] [4 5 6 7]" in said


def test_quitting_at_the_console_ends_pytest():
    with pytest.raises(pytest.exit.Exception, match="quitting"):
        faulty(["q"])


def test_breakpoint_without_a_terminal_is_passed_over_with_one_warning(capsys, monkeypatch):
    breakpoints._tell_once.cache_clear()
    out = torch.zeros(2, dtype=torch.int32)
    monkeypatch.setattr("sys.stdin", None)
    with install("interpret"):
        for _ in range(2):
            kernels.breaking[(2,)](out)
    assert out.tolist() == [1, 2]
    err = capsys.readouterr().err
    assert err.count("breakpoint() is passed over") == 1
    assert f"{FILE}:{line('call')}" in err


def test_breakpoint_at_a_terminal_opens_the_console(capsys, monkeypatch):
    class Terminal:
        def isatty(self):
            return True

    typed = iter(["p value", "c"])
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    monkeypatch.setattr("tkdebug.debugger.console.terminal._set_up_readline", lambda console: None)
    monkeypatch.setenv("NO_COLOR", "1")
    out = torch.zeros(2, dtype=torch.int32)
    try:
        with install("interpret"):
            kernels.breaking[(2,)](out)
    finally:
        HOOKS.debugger = None
    text = capsys.readouterr().out
    assert "breakpoint() in the kernel" in text
    assert "value = int32 in 2 programs: 0: 1, 1: 2" in text
    assert out.tolist() == [1, 2]
