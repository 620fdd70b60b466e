"""`HoistLoopInvariants`: what leaves a loop and what stays."""

from __future__ import annotations

from pass_support import expect, run_on

from tkdebug.compiler.passes import HoistLoopInvariants

HOIST = HoistLoopInvariants()


def loop(*lines: str) -> str:
    body = "\n".join(lines)
    return f"""
%one = arith.constant 1 : i32
scf.for %i = %one to %n step %one : i32 {{
{body}
scf.yield
}}
"""


def test_invariant_chain_leaves_every_loop_around_it() -> None:
    records = expect(
        loop(
            "scf.for %j = %one to %n step %one : i32 {",
            "%a = arith.addi %n, %m : i32",
            "%b = arith.muli %a, %m : i32",
            "%d = arith.muli %b, %i : i32",
            "%e = arith.muli %d, %j : i32",
            "tt.print %e : i32",
            "scf.yield",
            "}",
        ),
        """
        %one = arith.constant 1 : i32
        %a = arith.addi %n, %m : i32
        %b = arith.muli %a, %m : i32
        scf.for %i = %one to %n step %one : i32 {
          %d = arith.muli %b, %i : i32
          scf.for %j = %one to %n step %one : i32 {
            %e = arith.muli %d, %j : i32
            tt.print %e : i32
            scf.yield
          }
          scf.yield
        }
        """,
        HOIST,
    )
    assert {record.rule for record in records} == {"hoist"}
    assert all(not record.erased_locations for record in records)


def test_loads_and_prints_stay() -> None:
    body = loop(
        "%a = tt.load %p : !tt.ptr<i32> -> i32",
        "%b = arith.addi %a, %n : i32",
        "tt.print %b : i32",
    )
    assert run_on(body, HOIST)[1] == ()


def test_division_stays_unless_its_divisor_is_a_constant_but_zero() -> None:
    expect(
        loop(
            "%four = arith.constant 4 : i32",
            "%zero = arith.constant 0 : i32",
            "%a = arith.divsi %n, %m : i32",
            "%b = arith.remsi %n, %four : i32",
            "%d = arith.divui %n, %zero : i32",
            "tt.print %a, %b, %d : i32, i32, i32",
        ),
        """
        %one = arith.constant 1 : i32
        %four = arith.constant 4 : i32
        %zero = arith.constant 0 : i32
        %b = arith.remsi %n, %four : i32
        scf.for %i = %one to %n step %one : i32 {
          %a = arith.divsi %n, %m : i32
          %d = arith.divui %n, %zero : i32
          tt.print %a, %b, %d : i32, i32, i32
          scf.yield
        }
        """,
        HOIST,
    )


def test_while_loop_is_left_by_ops_of_both_regions() -> None:
    expect(
        """
        %r = scf.while (%i = %n) : (i32) -> (i32) {
          %a = arith.addi %n, %m : i32
          %more = arith.cmpi %i, %a {predicate = "slt"} : (i32, i32) -> i1
          scf.condition(%more) %i : i32
        } do {
        ^bb0(%j: i32):
          %b = arith.muli %n, %m : i32
          %d = arith.addi %j, %b : i32
          scf.yield %d : i32
        }
        tt.print %r : i32
        """,
        """
        %a = arith.addi %n, %m : i32
        %b = arith.muli %n, %m : i32
        %r = scf.while (%i = %n) : (i32) -> (i32) {
          %more = arith.cmpi %i, %a {predicate = "slt"} : (i32, i32) -> i1
          scf.condition(%more) %i : i32
        } do {
        ^bb0(%j: i32):
          %d = arith.addi %j, %b : i32
          scf.yield %d : i32
        }
        tt.print %r : i32
        """,
        HOIST,
    )


def test_invariant_reduction_moves_with_its_region() -> None:
    got, records = run_on(
        loop(
            "%s = tt.reduce %v {axis = 0} ({",
            "^bb0(%a: f32, %b: f32):",
            "%y = arith.addf %a, %b : f32",
            "tt.reduce.return %y : f32",
            "}) : tensor<8x16xf32> -> tensor<16xf32>",
            "tt.print %s : tensor<16xf32>",
        ),
        HOIST,
    )
    assert [record.rule for record in records] == ["hoist"]
    assert got.index("tt.reduce ") < got.index("scf.for")


def test_if_is_not_a_loop() -> None:
    body = """
    scf.if %c {
      %a = arith.addi %n, %m : i32
      tt.print %a : i32
      scf.yield
    } else {
      scf.yield
    }
    """
    assert run_on(body, HOIST)[1] == ()


def test_assembly_stays_where_the_kernel_comes_to_it() -> None:
    """The interpreter does not know all of it: it must not meet what no iteration runs."""
    text = loop(
        """%a = tt.elementwise_inline_asm %n {asm = "mov.b32 $0, $1;", constraints = "=r,r",
        pack = 1, pure = true} : i32 -> i32""",
        "tt.print %a : i32",
    )
    assert not run_on(text, HOIST)[1]
