"""The level below GPU IR that is named, by stand-ins of native runs."""

from __future__ import annotations

import pytest
import torch

from tkdebug.errors import CompileError
from tkdebug.variations.native_levels import LEVELS, USUAL, below_ir
from tkdebug.variations.outcomes import Outcome, Tolerance

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
    assert text.startswith(f"native code differs, and does not without {guilty.name}: out[0] is 2")


def test_difference_without_all_of_them_lies_in_the_lowering():
    assert "in the lowering to LLVM IR" in said(lambda level: outcome(2.0))
    together = said(lambda level: outcome(1.0 if level == LEVELS[-1] else 2.0))
    assert LEVELS[-1].name in together


def test_level_that_does_not_compile_is_no_agreement():
    def run(level):
        if level == LEVELS[1]:
            raise CompileError("ptxas refuses", frames=(), kernel="k")
        return outcome(2.0)

    assert "at every optimisation level" in said(run)
