"""Launches whose accesses were found right are not looked at again, where arguments decide."""

import coverage_kernels
import pytest
import row_kernels
import torch
from differential import run
from marked_lines import only

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.interpreter.arguments import Arguments, LaunchKind
from tkdebug.interpreter.checks.coverage.check import CoverageCheck
from tkdebug.interpreter.checks.row_overruns import RowOverruns
from tkdebug.knobs import scope

ones, zeros = torch.ones, torch.zeros


def scaled(n, programs):
    with scope(checks=("coverage",)):
        return run(coverage_kernels.scale, (programs,), ones(n), zeros(n), n, BLOCK=16)


def row_sums(*arguments, **options):
    with scope(checks=("row-overrun",)):
        return run(row_kernels.row_sum, (6,), *arguments, **options)


class Looked(Exception):
    pass


def looked(*_):
    raise Looked


def test_a_launch_that_was_right_is_not_looked_at_again(monkeypatch):
    assert not scaled(328, 21)
    monkeypatch.setattr(CoverageCheck, "before", looked)
    assert not scaled(328, 21)
    for n, programs in ((329, 21), (328, 22)):
        with pytest.raises(Looked):
            scaled(n, programs)


def test_rows_that_were_right_are_not_looked_at_again(monkeypatch):
    arguments = ones(6, 77), zeros(6), 6, 77
    assert not row_sums(*arguments, FLAT=False, BLOCK=128)
    monkeypatch.setattr(RowOverruns, "before", looked)
    assert not row_sums(*arguments, FLAT=False, BLOCK=128)
    with pytest.raises(Looked):
        row_sums(ones(77, 6).t(), *arguments[1:], FLAT=False, BLOCK=128)


def test_faults_are_found_in_every_launch():
    first, second = (only(scaled(231, 14)) for _ in range(2))
    assert (first.kind, first.count, first.index) == ("coverage", 7, 224)
    assert (second.kind, second.count, second.index) == ("coverage", 7, 224)


@tkdebug.jit
def sums_up_to(x_ptr, end_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = row * n + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < tl.load(end_ptr), other=0.0)
    tl.store(out_ptr + row, tl.sum(x))


def test_what_memory_decides_on_is_looked_at_in_every_launch():
    x, out = ones(6, 100), zeros(6)
    with scope(checks=("row-overrun",)):
        assert not run(sums_up_to, (6,), x, torch.tensor([100]), out, 100, BLOCK=128)
        fault = only(run(sums_up_to, (6,), x, torch.tensor([600]), out, 100, BLOCK=128))
    assert (fault.kind, fault.index) == ("row-overrun", 100)


def test_kinds_differ_by_what_decides_on_addresses():
    module = parse_module("tt.func @f(%a: !tt.ptr<f32>, %b: !tt.ptr<f32>, %n: i32) { tt.return }")

    def key(a, b, n, grid=(1, 1, 1)):
        arguments = Arguments(module, [a, b, n], ["a", "b", "n"], frozenset([1]))
        return LaunchKind(grid, arguments).key()

    a, b = ones(8, 4), ones(8, 4)
    assert key(a, b, 3) == key(zeros(8, 4), b, 3)
    assert len({key(a, b, 3), key(a, a, 3), key(a, b, 4), key(a, b, 3, (2, 1, 1)),
                key(ones(4, 8).t(), b, 3), key(ones(9, 4)[1:], b, 3)}) == 6  # fmt: skip
