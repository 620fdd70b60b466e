"""The data-flow driver, on lattices small enough to see through."""

from __future__ import annotations

from tkdebug.compiler.analysis.data_flow import Fact, ForwardAnalysis, backward
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import incoming
from tkdebug.compiler.ir.parser import parse_module


class Constants(ForwardAnalysis[frozenset[int]]):
    """The constants of the function that a value may be."""

    def visit(self, op: Operation) -> None:
        if op.name == "arith.constant":
            self.set(op.result, frozenset([int(constant_value(op.result) or 0)]))

    def join(self, value: Value, known: frozenset[int], fact: frozenset[int]) -> frozenset[int]:
        return known | fact


class Parity(ForwardAnalysis[str]):
    """ "even", "odd" or "any"; a sum's follows from its operands'."""

    def visit(self, op: Operation) -> None:
        if op.name == "arith.constant":
            self.set(op.result, ("even", "odd")[int(constant_value(op.result) or 0) % 2])
        elif op.name == "arith.addi":
            left, right = (self.facts[value] for value in op.operands)
            same = "even" if left == right else "odd"
            self.set(op.result, "any" if "any" in (left, right) else same)

    def join(self, value: Value, known: str, fact: str) -> str:
        return known if known == fact else "any"


def parsed(body: str) -> Module:
    constants = "\n".join(f"%c{i} = arith.constant {i} : i32" for i in range(5))
    return parse_module(f"tt.func @k(%n: i32, %c: i1) {{\n{constants}\n{body}\ntt.return\n}}")


def printed(analysis: ForwardAnalysis[Fact], module: Module) -> list[Fact]:
    """The facts of what is printed, in program order."""
    analysis.run(module.function.regions[0].block)
    return [analysis.facts[op.operands[0]] for op in module.walk() if op.name == "tt.print"]


ROTATED = """
%r, %r1, %r2 = scf.for %i = %n to %n step %n iter_args(%x = %c1, %y = %c2, %z = %c3) -> (i32, i32, i32) : i32 {
  tt.print %x : i32
  scf.yield %y, %z, %c4 : i32, i32, i32
}
tt.print %r : i32
tt.print %r2 : i32
"""  # noqa: E501


def test_a_loop_is_walked_until_nothing_changes() -> None:
    found = printed(Constants(), parsed(ROTATED))
    assert found == [{1, 2, 3, 4}, {1, 2, 3, 4}, {3, 4}]


def test_an_inner_loop_is_walked_again_with_the_outer_one() -> None:
    module = parsed(
        """
        %r = scf.for %i = %n to %n step %n iter_args(%x = %c2) -> (i32) : i32 {
          %s = scf.for %j = %n to %n step %n iter_args(%y = %x) -> (i32) : i32 {
            tt.print %y : i32
            %t = arith.addi %y, %c2 : i32
            scf.yield %t : i32
          }
          tt.print %s : i32
          %u = arith.addi %s, %c1 : i32
          scf.yield %u : i32
        }
        """
    )
    assert printed(Parity(), module) == ["any", "any"]


def test_parity_survives_a_loop_of_even_steps_and_a_branch() -> None:
    module = parsed(
        """
        %r = scf.for %i = %n to %n step %n iter_args(%x = %c1) -> (i32) : i32 {
          %s = scf.if %c -> (i32) {
            scf.yield %c2 : i32
          } else {
            scf.yield %c4 : i32
          }
          %t = arith.addi %x, %s : i32
          scf.yield %t : i32
        }
        tt.print %r : i32
        """
    )
    assert printed(Parity(), module) == ["odd"]


def test_a_while_loop_forwards_from_its_condition() -> None:
    module = parsed(
        """
        %r = scf.while (%a = %c1) : (i32) -> (i32) {
          scf.condition(%c) %a : i32
        } do {
        ^bb0(%b: i32):
          tt.print %b : i32
          scf.yield %c3 : i32
        }
        tt.print %r : i32
        """
    )
    assert printed(Constants(), module) == [{1, 3}, {1, 3}]


def test_values_without_facts_are_left_alone() -> None:
    module = parsed(
        """
        %r = scf.for %i = %n to %n step %n iter_args(%x = %n) -> (i32) : i32 {
          scf.yield %x : i32
        }
        """
    )
    analysis = Constants()
    analysis.run(module.function.regions[0].block)
    assert len(analysis.facts) == 5


def test_backward_follows_needs_around_a_loop_once() -> None:
    module = parsed(ROTATED)
    loop = next(op for op in module.walk() if op.name == "scf.for")
    asked: list[Value] = []

    def needs(value: Value) -> tuple[Value, ...]:
        asked.append(value)
        return incoming(value)

    found = backward([loop.results[1]], needs)
    names = {value.name or constant_value(value) for value in found if value is not loop.results[1]}
    assert names == {"c2", "c3", "c4", "z"} or names == {2, 3, 4, "z"}
    assert len(asked) == len(found)
