"""`UnrollLoops`: constant and run-time bounds, carried values, what is left over."""

from __future__ import annotations

import pytest
import torch
from pass_support import expect

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.passes import UnrollLoops

COUNT = """
    %a = arith.constant {first} : i32
    %b = arith.constant {last} : i32
    %s = arith.constant 1 : i32
    scf.for %i = %a to %b step %s : i32 {{
      tt.print %i {{prefix = ""}} : i32
      scf.yield
    }} {{loop_unroll_factor = {factor}}}
"""


def test_whole_groups_leave_no_second_loop() -> None:
    expect(
        COUNT.format(first=0, last=4, factor=2),
        """
        %a = arith.constant 0 : i32
        %b = arith.constant 4 : i32
        %s = arith.constant 1 : i32
        %c2_i32 = arith.constant 2 : i32
        scf.for %i = %a to %b step %c2_i32 : i32 {
          tt.print %i {prefix = ""} : i32
          %0 = arith.addi %i, %s : i32
          tt.print %0 {prefix = ""} : i32
          scf.yield
        }
        """,
        UnrollLoops(),
    )


def test_iterations_left_over_have_a_loop_of_their_own() -> None:
    expect(
        COUNT.format(first=1, last=6, factor=3),
        """
        %a = arith.constant 1 : i32
        %b = arith.constant 6 : i32
        %s = arith.constant 1 : i32
        %c4_i32 = arith.constant 4 : i32
        %c3_i32 = arith.constant 3 : i32
        scf.for %i = %a to %c4_i32 step %c3_i32 : i32 {
          tt.print %i {prefix = ""} : i32
          %0 = arith.addi %i, %s : i32
          tt.print %0 {prefix = ""} : i32
          %1 = arith.addi %0, %s : i32
          tt.print %1 {prefix = ""} : i32
          scf.yield
        }
        scf.for %i_1 = %c4_i32 to %b step %s : i32 {
          tt.print %i_1 {prefix = ""} : i32
          scf.yield
        } {num_stages = 1}
        """,
        UnrollLoops(),
    )


@pytest.mark.parametrize(("last", "factor"), [(3, 4), (0, 2), (5, 1)])
def test_fewer_iterations_than_a_group_stay_as_they_are(last: int, factor: int) -> None:
    body = COUNT.format(first=0, last=last, factor=factor)
    unmarked = body.replace(f" {{loop_unroll_factor = {factor}}}", "")
    expect(body, unmarked, UnrollLoops())


@tkdebug.jit
def sums(out, first, last, STEP: tl.constexpr, FACTOR: tl.constexpr):
    total, product = 0, 1
    for i in tl.range(first, last, STEP, loop_unroll_factor=FACTOR):
        for j in tl.range(0, i, loop_unroll_factor=2):
            total += j
        if total > 5:
            product = product * 3 + i
        total += product
    tl.store(out, total)
    tl.store(out + 1, product)


def expected(first: int, last: int, step: int) -> list[int]:
    total, product = 0, 1
    for i in range(first, last, step):
        total += sum(range(i))
        if total > 5:
            product = product * 3 + i
        total += product
    return [total, product]


@pytest.mark.parametrize("factor", [2, 3, 8])
@pytest.mark.parametrize("step", [1, 2, 5, -1, -3])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 1), (2, 9), (3, 12), (9, 1), (12, 0)])
def test_results_of_unrolled_loops(first: int, last: int, step: int, factor: int) -> None:
    out = torch.zeros(2, dtype=torch.int32)
    with tkdebug.mode("interpret"):
        sums[(1,)](out, first, last, STEP=step, FACTOR=factor)
    assert out.tolist() == expected(first, last, step)


@tkdebug.jit
def visits(out, first, last):
    for i in tl.range(first, last, 3, loop_unroll_factor=2):
        tl.store(out + i - first, 1)


def test_bounds_near_the_end_of_int32() -> None:
    out = torch.zeros(12, dtype=torch.int8)
    with tkdebug.mode("interpret"):
        visits[(1,)](out, 2**31 - 12, 2**31 - 4)
    assert out.tolist() == [1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0]


@tkdebug.jit
def unrolled_without_end(out):
    for i in tl.range(0, 8, loop_unroll_factor=100_000):
        tl.store(out + i, i)


def test_factors_have_a_limit() -> None:
    with pytest.raises(
        tkdebug.CompileError, match="loop_unroll_factor 100000 exceeds the limit of"
    ):
        unrolled_without_end.interpret[(1,)](torch.zeros(8))
