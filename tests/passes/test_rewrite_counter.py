"""Rewrites of a pass are numbered, and those after a limit are not done."""

from __future__ import annotations

import pytest
from pass_support import PARAMETERS

from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.passes.canonicalize import Canonicalize
from tkdebug.compiler.passes.cleanup import EliminateCommonSubexpressions
from tkdebug.compiler.passes.pass_run import Pass, run_pass
from tkdebug.compiler.rewriting.rewriter import RewriteCounter
from tkdebug.compiler.verifier import verify

BODY = """
    %s1 = arith.addi %n, %m : i32
    %s2 = arith.addi %n, %m : i32
    %s3 = arith.addi %n, %m : i32
    %zero = arith.constant 0 : i32
    %s4 = arith.addi %s3, %zero : i32
    tt.print %s1, %s2, %s4 : i32, i32, i32
"""


def run_up_to(pass_: Pass, limit: int | None) -> tuple[int, RewriteCounter]:
    """Return the number of additions that are left, and the counter."""
    module = parse_module(f"tt.func @k({PARAMETERS}) {{\n{BODY}\ntt.return\n}}")
    counter = RewriteCounter(limit)
    run_pass(pass_, module, None, counter)
    verify(module)
    return sum(op.name == "arith.addi" for op in module.walk()), counter


@pytest.mark.parametrize(("limit", "left"), [(0, 4), (1, 3), (2, 2), (None, 2)])
def test_rewrites_after_the_limit_are_not_done(limit: int | None, left: int) -> None:
    count, counter = run_up_to(EliminateCommonSubexpressions(), limit)
    assert count == left
    assert [one.number for one in counter.begun] == list(range(1, 5 - left))
    assert {(one.rule, one.op) for one in counter.begun} <= {("merge-equal", "arith.addi")}


def test_tries_of_patterns_count_too() -> None:
    whole, counter = run_up_to(Canonicalize(), None)
    assert whole == 3
    done = [
        one
        for one, following in zip(counter.begun, [*counter.begun[1:], None], strict=True)
        if following is None or following.first_record > one.first_record
    ]
    number = next(one.number for one in done)
    assert run_up_to(Canonicalize(), number)[0] == 3
    assert run_up_to(Canonicalize(), number - 1)[0] == 4
