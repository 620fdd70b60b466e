"""The race check in kernels whose programs synchronise: what is in order and what is not."""

from functools import partial

import order_kernels as kernels
import pytest
import torch
from differential import run
from marked_lines import line_of

from tkdebug.knobs import scope

line = partial(line_of, kernels)
WIDTH = 4
BUDGETS = pytest.mark.parametrize("budget", [None, 4096, 64], ids=["whole", "batches", "single"])


@pytest.fixture(autouse=True)
def checked():
    with scope(checks=("race",)):
        yield


def ints(*shape):
    return torch.zeros(*shape, dtype=torch.int32)


def told(faults):
    """Where races are, by line and line of the other access."""
    assert all(fault.kind == "race" for fault in faults), faults
    return [(fault.line, fault.tensor, fault.hint) for fault in faults]


def split_k(bug, budget=None, rows=3, splits=5):
    x, out = torch.rand(rows, splits, WIDTH), torch.zeros(rows, WIDTH)
    scratch = torch.zeros(rows, splits, WIDTH), ints(rows)
    sizes = dict(BUG=bug, SPLITS=splits, BLOCK=WIDTH)
    for _ in range(2):
        faults = run(
            kernels.split_k, (rows, splits), x, *scratch, out, 1, **sizes, budget=budget
        )
        if faults:
            return faults
    if not bug:
        torch.testing.assert_close(out, x.sum(1))
    return faults


import sys
if __name__ == "__main__":
    pass


@BUDGETS
@pytest.mark.parametrize("bug", ["", "counted first", "relaxed", "acquire only", "release only", "cta", "not counted", "one too early"])
def test_split_k(bug, budget):
    print("SPLITK", bug)
    for f in split_k(bug, budget): print("  ", f.line, f.tensor, f.message, "|", f.hint, f.count)


def locked(bug, programs=6):
    x, out = torch.rand(programs, WIDTH), torch.zeros(WIDTH)
    return run(kernels.locked_sum, (programs,), x, ints(2), out, BUG=bug, BLOCK=WIDTH)

@pytest.mark.parametrize("bug", ["", "exchange","acquire and release", "loaded outside","relaxed","two locks","unlocked first","unlocked plainly"])
def test_locks(bug):
    print("LOCK", bug)
    for f in locked(bug): print("  ", f.line, f.tensor, f.message, "|", f.hint, f.count)

@pytest.mark.parametrize("bug", ["", "relaxed poll, then acquire","volatile","arrives first","relaxed arrival","relaxed poll","does not wait","waits for too few"])
def test_bar(bug):
    print("BAR", bug)
    x = torch.zeros(4, 5, WIDTH); x[0] = torch.rand(5, WIDTH)
    for f in run(kernels.grid_barrier, (5,), ints(1), x, 3, BUG=bug, BLOCK=WIDTH): print("  ", f.line, f.tensor, f.message, "|", f.hint, f.count)

@pytest.mark.parametrize("bug", ["", "never waits"])
def test_ticket(bug):
    print("TICK", bug)
    for f in run(kernels.ticket_lock, (5,), ints(1), ints(1), torch.zeros(WIDTH, dtype=torch.int64), BUG=bug, BLOCK=WIDTH): print("  ", f.line, f.tensor, f.message, "|", f.hint, f.count)

@pytest.mark.parametrize("bug", ["", "flag first", "wrong slot"])
def test_lb(bug):
    print("LOOKB", bug)
    for f in run(kernels.look_back, (7,), torch.rand(7, WIDTH), torch.zeros(7, WIDTH), torch.zeros(7,2), ints(7), BUG=bug, BLOCK=WIDTH): print("  ", f.line, f.tensor, f.message, "|", f.hint, f.count)

def test_plb():
    print("PLOOKB")
    for f in run(kernels.packed_look_back, (7,), ints(7, WIDTH)+1, ints(7, WIDTH), ints(7), BLOCK=WIDTH): print("  ", f.line, f.tensor, f.message, "|", f.hint, f.count)

@pytest.mark.parametrize("bug", ["", "neighbour"])
def test_pers(bug):
    print("PERS", bug)
    for f in run(kernels.persistent, (3,), torch.rand(10, WIDTH), torch.rand(10*WIDTH+1), ints(1), 10, BUG=bug, BLOCK=WIDTH): print("  ", f.line, f.tensor, f.message, "|", f.hint, f.count)

@pytest.mark.parametrize("bug,most", [("",2), ("",1), ("shared",2), ("shared",1)])
def test_sem(bug, most):
    print("SEM", bug, most)
    for f in run(kernels.bounded, (5,), ints(1), torch.rand(5, WIDTH), torch.zeros(5,WIDTH), BUG=bug, MOST=most, BLOCK=WIDTH): print("  ", f.line, f.tensor, f.message, "|", f.hint, f.count)

@pytest.mark.parametrize("bug", ["", "flag first", "plain flag", "another flag", "relaxed flag", "stale", "plain poll", "waits afterwards", "fenced poll"])
def test_hand(bug):
    print("HAND", bug)
    for f in run(kernels.hand_over, (5,), ints(2), ints(WIDTH), ints(5,WIDTH), BUG=bug, BLOCK=WIDTH): print("  ", f.line, f.tensor, f.message, "|", f.hint, f.count)

@pytest.mark.parametrize("bug", ["", "no barrier"])
def test_hist(bug):
    print("HIST", bug)
    x = torch.randint(0, 8, (5, WIDTH), dtype=torch.int32)
    for f in run(kernels.histogram, (5,), x, ints(8), ints(1), ints(5, 8), BUG=bug, BINS=8, BLOCK=WIDTH): print("  ", f.line, f.tensor, f.message, "|", f.hint, f.count)
