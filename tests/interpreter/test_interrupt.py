"""Ctrl-C in a kernel that does not come to its end names the line."""

import signal

import pytest
import torch

import tkdebug
import tkdebug.language as tl


@tkdebug.jit
def endless(out_ptr, n):
    i = 0
    while i < n:  # LOOP
        tl.store(out_ptr, i)  # HERE


def test_interrupted_kernel_names_the_line_and_the_loop(capsys):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    # Compiled, and what it imports imported, before the time runs.
    endless.interpret[(2,)](torch.zeros(1, dtype=torch.int32), -3)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            endless.interpret[(2,)](torch.zeros(1, dtype=torch.int32), 3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    first = endless.fn.__code__.co_firstlineno
    printed = capsys.readouterr().err
    assert f"tkdebug: {__file__}:" in printed
    assert f"endless was interrupted here, in the loop at line {first + 3}\n" in printed
