"""`EliminateCommonSubexpressions`: what is merged, what is not, and where the lines go."""

from __future__ import annotations

import pytest
from pass_support import PARAMETERS, expect, run_on

from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.passes import EliminateCommonSubexpressions, PassManager

CSE = EliminateCommonSubexpressions()


def test_equal_ops_become_one_that_has_all_their_lines() -> None:
    body = """%a = arith.addi %n, %m : i32
    %b = arith.addi %n, %m : i32
    %e = arith.muli %a, %b : i32
    %d = arith.addi %n, %m : i32
    tt.print %e, %d : i32, i32"""
    module = parse_module(f"tt.func @k({PARAMETERS}) {{\n{body}\ntt.return\n}}")
    (run,) = PassManager([CSE], verify_each=True).run(module)
    addition = next(op for op in module.walk() if op.name == "arith.addi")
    assert [place.line for place in addition.location.sources] == [2, 3, 5]
    assert [record.erased_locations for record in run.records] == [(), ()]
    assert sum(op.name == "arith.addi" for op in module.walk()) == 1


def test_loads_are_never_merged() -> None:
    body = """
    %a = tt.load %p : !tt.ptr<i32> -> i32
    %b = tt.load %p : !tt.ptr<i32> -> i32
    tt.print %a, %b : i32, i32
    """
    assert run_on(body, CSE)[1] == ()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("arith.constant 0 : i32", "arith.constant 0 : i64"),
        ("arith.constant 0.0 : f32", "arith.constant -0.0 : f32"),
        ("arith.constant 1 : i1", "arith.constant true : i1"),
        ("arith.constant 1 : i32", "arith.constant 1.0 : i32"),
        ("arith.subi %n, %m : i32", "arith.subi %m, %n : i32"),
        ("tt.get_program_id {axis = 0} : i32", "tt.get_program_id {axis = 1} : i32"),
        (
            'arith.cmpi %n, %m {predicate = "slt"} : (i32, i32) -> i1',
            'arith.cmpi %n, %m {predicate = "ult"} : (i32, i32) -> i1',
        ),
    ],
)
def test_ops_that_differ_are_not_merged(first: str, second: str) -> None:
    assert run_on(f"%a = {first}\n%b = {second}", CSE)[1] == ()


def test_nan_constants_are_merged() -> None:
    _, records = run_on("%a = arith.constant nan : f32\n%b = arith.constant nan : f32", CSE)
    assert len(records) == 1


def test_an_op_stands_only_for_those_it_dominates() -> None:
    expect(
        """
        scf.if %c {
          %a = arith.addi %n, %m : i32
          tt.print %a : i32
          scf.yield
        } else {
          %a2 = arith.addi %n, %m : i32
          tt.print %a2 : i32
          scf.yield
        }
        %b = arith.addi %n, %m : i32
        scf.if %c {
          %d = arith.addi %n, %m : i32
          tt.print %b, %d : i32, i32
          scf.yield
        } else {
          scf.yield
        }
        """,
        """
        scf.if %c {
          %a = arith.addi %n, %m : i32
          tt.print %a : i32
          scf.yield
        } else {
          %a2 = arith.addi %n, %m : i32
          tt.print %a2 : i32
          scf.yield
        }
        %b = arith.addi %n, %m : i32
        scf.if %c {
          tt.print %b, %b : i32, i32
          scf.yield
        } else {
          scf.yield
        }
        """,
        CSE,
    )


def test_combine_regions_stay_closed() -> None:
    body = """
    %one = arith.constant 1.0 : f32
    %s = tt.reduce %v {axis = 0} ({
    ^bb0(%a: f32, %b: f32):
      %uno = arith.constant 1.0 : f32
      %y = arith.addf %a, %uno : f32
      tt.reduce.return %y : f32
    }) : tensor<8x16xf32> -> tensor<16xf32>
    tt.print %one, %s : f32, tensor<16xf32>
    """
    assert run_on(body, CSE)[1] == ()
