"""The level below GPU IR that is named, by stand-ins of native runs."""

from __future__ import annotations

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.errors import CompileError
from tkdebug.knobs import scope
from tkdebug.variations import bisection
from tkdebug.variations.divergence import Divergence
from tkdebug.variations.native_levels import LEVELS, USUAL, below_ir
from tkdebug.variations.outcomes import Outcome, Tolerance
from tkdebug.variations.ways import Way, front_end

GRID = (1, 1, 1)


def outcome(number):
    return Outcome({"out": torch.tensor([number])}, GRID)


def said(run):
    return below_ir(outcome(1.0), run, Tolerance())


def test_native_code_that_agrees_is_compiled_once():
    asked = []

    def run(level):
        asked.append(level)
        return outcome(1.0)

    assert said(run) == "native code gives what its GPU IR does"
    assert asked == [USUAL]


@pytest.mark.parametrize("guilty", LEVELS[:-1], ids=["contraction", "ptxas", "llvm"])
def test_optimisation_without_which_it_agrees_is_named(guilty):
    text = said(lambda level: outcome(1.0 if level == guilty else 2.0))
    start = "native code differs below the GPU IR, and does not without"
    assert text.startswith(f"{start} {guilty.name}: out[0] is 2")


@pytest.mark.parametrize("number", [1.0, 2.0])
def test_difference_below_the_ir_is_one_of_the_launch(keep, number):
    (kept,) = keep(lambda: exact[(1,)](torch.ones(1), torch.empty(1)))
    looked_at = bisection.Bisected(kept, "sm_90a", 37, below=said(lambda level: outcome(number)))
    assert looked_at.differs == (number != 1.0)
    assert not bisection.Bisected(kept, "sm_90a", 37).differs


def test_difference_without_all_of_them_lies_in_the_lowering():
    assert "in the lowering to LLVM IR" in said(lambda level: outcome(2.0))
    together = said(lambda level: outcome(1.0 if level == LEVELS[-1] else 2.0))
    assert LEVELS[-1].name in together


def test_edited_stages_are_not_blamed_on_a_level(tmp_path):
    with scope(override_dir=tmp_path):
        text = said(lambda level: outcome(1.0 if level == LEVELS[0] else 2.0))
    assert text.startswith("native code differs below the GPU IR, where TKDEBUG_OVERRIDE replaces")


def test_native_code_that_crashes_is_run_once():
    asked = []

    def run(level):
        asked.append(level)
        return Outcome({}, GRID, failure="CUDA error: an illegal memory access")

    assert said(run) == "below the GPU IR: it cannot be run: CUDA error: an illegal memory access"
    assert asked == [USUAL]


@tkdebug.jit
def contracted(x, y):
    tl.store(y, tl.load(x) * 1.5 + 0.25)


@tkdebug.jit
def approximated(x, y):
    tl.store(y, 1.5 / tl.load(x))


@tkdebug.jit
def exact(x, y):
    tl.store(y, (tl.load(x) * 1.5).to(tl.float16))


@pytest.mark.parametrize(
    ("kernel", "natively"), [(contracted, 1e-4), (approximated, 1e-4), (exact, 0.0)]
)
def test_rounding_of_a_gpu_is_no_difference_natively(keep, kernel, natively):
    x = torch.ones(1)
    (kept,) = keep(lambda: kernel[(1,)](x, torch.empty(1)))
    module = front_end(kept)
    assert Tolerance.of(module).relative == 0.0
    assert Tolerance.of(module, natively=True).relative == natively


def test_crash_is_a_difference_from_what_ran_before(keep):
    (kept,) = keep(lambda: exact[(1,)](torch.ones(1), torch.empty(1)))
    divergence = Divergence(kept, "sm_80", 9.0)

    def run():
        assert "expected" in vars(divergence)
        return Outcome({}, GRID, failure="CUDA error: an illegal memory access")

    found = divergence.look(Way("native", kept, divergence.module, run=run))
    assert found.difference.text == "it cannot be run: CUDA error: an illegal memory access"


def test_after_a_crash_what_was_found_is_kept(keep, monkeypatch):
    def crashed(launch, module, budget, **options):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    (kept,) = keep(lambda: exact[(1,)](torch.ones(1), torch.empty(1)))
    monkeypatch.setattr(bisection, "run_kept", crashed)
    assert "the GPU runs nothing more: CUDA error: an" in bisection.bisect(kept, "sm_80", 9.0).note


def test_level_that_does_not_compile_is_no_agreement():
    def run(level):
        if level == LEVELS[1]:
            raise CompileError("ptxas refuses", frames=(), kernel="k")
        return outcome(2.0)

    assert "at every optimisation level" in said(run)
