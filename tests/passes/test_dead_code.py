"""`EliminateDeadCode`: what nothing depends on goes, what can be observed stays."""

from __future__ import annotations

from pass_support import expect, run_on

from tkdebug.compiler.passes import EliminateDeadCode

DCE = EliminateDeadCode()


def test_unused_chain_goes_and_its_lines_are_logged() -> None:
    records = expect(
        """
        %a = arith.addi %n, %m : i32
        %b = arith.muli %a, %m : i32
        tt.print %n : i32
        """,
        "tt.print %n : i32",
        DCE,
    )
    assert [record.rule for record in records] == ["erase-dead", "erase-dead"]
    assert [loc.primary.line for r in records for loc in r.erased_locations] == [4, 3]


def test_unused_load_stays_for_its_bounds_check() -> None:
    body = "%a = tt.load %p : !tt.ptr<i32> -> i32\n"
    assert run_on(body, DCE) == (body, ())


def test_loop_without_effects_goes_whole() -> None:
    records = expect(
        """
        %one = arith.constant 1 : i32
        %r = scf.for %i = %one to %n step %one iter_args(%a = %n) -> (i32) : i32 {
          %b = arith.addi %a, %i : i32
          scf.yield %b : i32
        }
        tt.barrier
        """,
        "tt.barrier",
        DCE,
    )
    assert len(records) == 2


def test_while_loop_stays_because_it_may_not_end() -> None:
    body = """%one = arith.constant 1 : i32
scf.while () : () -> () {
  scf.condition(%c)
} do {
  scf.yield
}
"""
    assert run_on(body, DCE)[0] == body.replace("%one = arith.constant 1 : i32\n", "")


def test_carried_value_that_feeds_only_itself_goes() -> None:
    expect(
        """
        %one = arith.constant 1 : i32
        %r, %u, %s = scf.for %i = %one to %n step %one iter_args(%a = %n, %b = %m, %d = %n) -> (i32, i32, i32) : i32 {
          %a2 = arith.addi %a, %i : i32
          %b2 = arith.addi %b, %i : i32
          %d2 = arith.addi %d, %i : i32
          tt.print %d : i32
          scf.yield %a2, %b2, %d2 : i32, i32, i32
        }
        tt.print %r : i32
        """,  # noqa: E501
        """
        %one = arith.constant 1 : i32
        %r, %s = scf.for %i = %one to %n step %one iter_args(%a = %n, %d = %n) -> (i32, i32) : i32 {
          %a2 = arith.addi %a, %i : i32
          %d2 = arith.addi %d, %i : i32
          tt.print %d : i32
          scf.yield %a2, %d2 : i32, i32
        }
        tt.print %r : i32
        """,
        DCE,
    )


def test_carried_value_that_another_one_needs_stays() -> None:
    body = """%one = arith.constant 1 : i32
%r, %s = scf.for %i = %one to %n step %one iter_args(%a = %n, %b = %m) -> (i32, i32) : i32 {
  scf.yield %b, %i : i32, i32
}
tt.print %r : i32
"""
    assert run_on(body, DCE) == (body, ())


def test_unused_result_of_an_if_goes_from_both_branches() -> None:
    expect(
        """
        %r, %s = scf.if %c -> (i32, i32) {
          %a = arith.addi %n, %m : i32
          tt.barrier
          scf.yield %a, %n : i32, i32
        } else {
          scf.yield %n, %m : i32, i32
        }
        tt.print %s : i32
        """,
        """
        %s = scf.if %c -> (i32) {
          tt.barrier
          scf.yield %n : i32
        } else {
          scf.yield %m : i32
        }
        tt.print %s : i32
        """,
        DCE,
    )


def test_unused_values_of_a_while_loop_go() -> None:
    expect(
        """
        %r, %s = scf.while (%i = %n, %j = %m) : (i32, i32) -> (i32, i32) {
          %more = arith.cmpi %i, %n {predicate = "slt"} : (i32, i32) -> i1
          scf.condition(%more) %i, %j : i32, i32
        } do {
        ^bb0(%i2: i32, %j2: i32):
          %i3 = arith.addi %i2, %m : i32
          %j3 = arith.addi %j2, %m : i32
          scf.yield %i3, %j3 : i32, i32
        }
        """,
        """
        %r = scf.while (%i = %n) : (i32) -> (i32) {
          %more = arith.cmpi %i, %n {predicate = "slt"} : (i32, i32) -> i1
          scf.condition(%more) %i : i32
        } do {
        ^bb0(%i2: i32):
          %i3 = arith.addi %i2, %m : i32
          scf.yield %i3 : i32
        }
        """,
        DCE,
    )


def test_store_inside_branches_keeps_what_it_needs() -> None:
    body = """%a = arith.addi %n, %m : i32
scf.if %c {
  %b = arith.muli %a, %m : i32
  tt.store %p, %b : !tt.ptr<i32>, i32
  scf.yield
} else {
  scf.yield
}
"""
    assert run_on(body, DCE) == (body, ())


def test_combine_region_is_kept_whole() -> None:
    body = """%s = tt.reduce %v {axis = 0} ({
^bb0(%a: f32, %b: f32):
  %y = arith.addf %a, %b : f32
  tt.reduce.return %y : f32
}) : tensor<8x16xf32> -> tensor<16xf32>
tt.print %s : tensor<16xf32>
"""
    assert run_on(body, DCE) == (body, ())
