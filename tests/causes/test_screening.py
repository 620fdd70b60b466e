"""Kernels that run as Python: they store what launches do, and tell edits that fix from others."""

import ast
from functools import partial

import mismatched_kernels as kernels
import pytest
import torch

from tkdebug.causes.comparison import Comparison
from tkdebug.causes.kernel_text import Change, Edit, span
from tkdebug.causes.screening import Screening, Wanted
from tkdebug.causes.tile_language import MissingError
from tkdebug.knobs import scope


def screening_of(kernel, given, out, want, program, grid):
    source = kernel.kernel_source
    comparison = Comparison("", out, want, 1e-4, 1e-4, False)
    wanted = Wanted.of(comparison, out)
    return Screening(kernel.fn, source, given, program, grid, wanted), comparison


@pytest.fixture
def scaled():
    """A program of `scaled_rows`, what it should store, and what a launch has stored."""
    torch.manual_seed(0)
    x, s, out = torch.randn(64, 64), torch.randn(64), torch.zeros(64, 64)
    with scope(mode="interpret"):
        kernels.scaled_rows[(2, 2)](x, s, out, 64, 64, *x.stride(), BM=32, BN=32)
    given = {"x_ptr": x, "s_ptr": s, "o_ptr": out, "M": 64, "N": 64, "sxm": 64, "sxn": 1}
    given |= {"BM": 32, "BN": 32}
    want = x * s[:, None]
    row, column = divmod(int((out - want).abs().argmax()), 64)
    program = (row // 32, column // 32, 0)
    return screening_of(kernels.scaled_rows, given, out, want, program, (2, 2, 1))


def replaced(kernel, old, new):
    """An edit of a kernel: a name in the place of each of another one."""
    source = kernel.kernel_source
    names = (n for n in ast.walk(source.definition) if isinstance(n, ast.Name) and n.id in old)
    text = dict(zip(old, new, strict=True))
    places = [(*span(name), text[name.id]) for name in names]
    changes = tuple(Change(*place) for place in places)
    return Edit("name", changes[0].start[0], changes)


def test_a_program_stores_what_the_launch_stored(scaled):
    screening, comparison = scaled
    now = Wanted.of(comparison, comparison.actual, is_now=True)
    assert screening.agrees(now.values)
    assert not screening.agrees(now.values + 1)


def test_an_edit_that_fixes_the_program_passes(scaled):
    screening, _ = scaled
    swapped = partial(replaced, kernels.scaled_rows)
    right = swapped(["sxm", "sxn"], ["sxn", "sxm"])
    assert screening.may_fix(kernels.scaled_rows.fn, right)
    assert not screening.may_fix(kernels.scaled_rows.fn, swapped(["sxm"], ["sxn"]))
    assert screening.may_fix(kernels.scaled_rows.fn, right)


def test_an_edit_that_leaves_memory_does_not_pass(scaled):
    screening, _ = scaled
    assert not screening.may_fix(
        kernels.scaled_rows.fn, replaced(kernels.scaled_rows, ["sxm"], ["sxm * 64"])
    )


def test_a_function_that_the_kernel_calls_is_edited_too():
    x, out = torch.randn(64), torch.zeros(64)
    given = {"x_ptr": x, "o_ptr": out, "n": 64, "BLOCK": 64}
    screening, _ = screening_of(kernels.twice, given, out, 2 * x, (0, 0, 0), (1, 1, 1))
    nodes = ast.walk(kernels.doubled.kernel_source.definition.body[0])
    last = next(n for n in nodes if isinstance(n, ast.Name))
    edit = Edit("name", last.lineno, (Change(*span(last), "0.0"),))
    assert screening.may_fix(kernels.doubled.fn, edit)
    wrong = Edit("name", last.lineno, (Change(*span(last), "1.0"),))
    assert not screening.may_fix(kernels.doubled.fn, wrong)


def test_a_kernel_of_what_is_missing_is_refused():
    import tkdebug
    import tkdebug.language as tl

    @tkdebug.jit
    def sorted_tile(x_ptr, o_ptr):
        i = tl.arange(0, 16)
        tl.store(o_ptr + i, tl.sort(tl.load(x_ptr + i)))

    x, out = torch.randn(16), torch.zeros(16)
    with pytest.raises(MissingError, match="sort"):
        screening_of(sorted_tile, {"x_ptr": x, "o_ptr": out}, out, x, (0, 0, 0), (1, 1, 1))
