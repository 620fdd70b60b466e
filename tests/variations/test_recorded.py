"""The first value that differs in a run of which only watches show anything, by a stand-in.

What would run natively is interpreted here, with one line that computes something else.
"""

from functools import partial

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.causes.rerun import Budget
from tkdebug.errors import UsageError
from tkdebug.variations.divergence import Divergence
from tkdebug.variations.outcomes import run_kept
from tkdebug.variations.recorded import Recorded, run_watched
from tkdebug.variations.ways import Way

SECONDS = 30.0


@tkdebug.jit
def shifted(x, SHIFT: tl.constexpr):
    moved = x + SHIFT
    return moved * moved


@tkdebug.jit
def sums(x_ptr, y_ptr, n, WRONG: tl.constexpr, INSIDE: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n, B):
        at = start + tl.arange(0, B)
        x = tl.load(x_ptr + row * n + at, mask=at < n)
        kept = tl.where(at < n, x, 0.0)
        scale = tl.where(start >= 2 * B, 2.0 + WRONG, 2.0)
        part = tl.sum(shifted(kept, INSIDE) * scale)
        total += part
    out = total / n
    tl.store(y_ptr + row, out)


@pytest.fixture
def look(keep):
    """Compare a launch with a stand-in for a native one; what it records is in `recorded`."""

    def run(record=None, is_right_again=False, **wrong):
        torch.manual_seed(0)
        x, given = torch.rand(3, 100), dict(WRONG=0, INSIDE=0, B=16)
        (usual,) = keep(lambda: sums[(3,)](x, torch.empty(3), 100, **given))
        (other,) = keep(lambda: sums[(3,)](x, torch.empty(3), 100, **{**given, **wrong}))
        divergence = Divergence(usual, "sm_80", SECONDS)
        outcome = lambda: run_kept(other, other.kernel.module, Budget(SECONDS))  # noqa: E731
        again = usual if is_right_again else other
        recorded = record or partial(run_watched, again, mode_name="interpret")
        return divergence.look(
            Way("native", usual, divergence.module, run=outcome, record=recorded)
        )

    return run


def test_value_in_a_round_is_named(look):
    found = look(WRONG=1)
    assert (found.variable, found.program, found.round) == ("scale", 0, 2)
    assert (found.got, found.expected) == ("3", "2")
    assert found.at[-1].line == sums.fn.__code__.co_firstlineno + 8


def test_value_is_named_on_a_gpu(look, on_a_gpu):
    assert look(WRONG=1).variable == "scale"


def test_value_in_a_function_that_is_called_is_named(look):
    found = look(INSIDE=1)
    assert (found.variable, found.round) == ("moved", 0)
    assert [frame.function for frame in found.at] == ["sums", "shifted"]
    assert float(found.got) == pytest.approx(float(found.expected) + 1)


def test_run_that_records_nothing_says_so(look, keep):
    found = look(record=lambda watches: Recorded([], {}), WRONG=1)
    assert found.difference.tensor == "y_ptr"
    assert found.note == "no value of a variable on the way was recorded"


def test_result_that_is_another_one_when_it_is_recorded_is_said_to_depend_on_timing(look):
    found = look(is_right_again=True, WRONG=1)
    assert found.note.startswith("run again, with watches, it agrees")


def test_run_that_cannot_be_watched_says_why(look):
    def refuse(watches):
        assert {"x", "kept", "scale", "part", "total", "out", "moved"} <= {w.name for w in watches}
        raise UsageError("no room")

    assert look(record=refuse, WRONG=1).note == "no values were recorded: no room"
