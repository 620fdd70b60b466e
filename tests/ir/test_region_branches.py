"""Edges of loops and branches: which value becomes which, and what the forwarded values are."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.control_flow import (
    deciding,
    edges,
    edges_from,
    forwarded,
    incoming,
    iter_arg,
    iter_args,
    junctions,
    tied_values,
)
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.verifier import verify

# A branch in a `while` in a `for`: %x and %y change places in each iteration.
NESTED = """
tt.func @k(%n: i32, %p: i32, %q: i32, %c: i1) {
  %r, %s2 = scf.for %i = %n to %p step %q iter_args(%x = %p, %y = %q) -> (i32, i32) : i32 {
    %w = scf.while (%a = %x, %b = %y) : (i32, i32) -> (i32) {
      %t = arith.cmpi %a, %n {predicate = "slt"} : (i32, i32) -> i1
      scf.condition(%t) %b : i32
    } do {
    ^bb0(%d: i32):
      %s = scf.if %c -> (i32) {
        scf.yield %d : i32
      } else {
        scf.yield %i : i32
      }
      scf.yield %s, %d : i32, i32
    }
    scf.yield %y, %w : i32, i32
  }
  tt.print %r : i32
  tt.print %s2 : i32
  tt.return
}
"""


@pytest.fixture
def module() -> Module:
    parsed = parse_module(NESTED)
    verify(parsed)
    return parsed


def op_named(module: Module, name: str) -> Operation:
    return next(op for op in module.walk() if op.name == name)


def shown(values: Iterable[Value]) -> str:
    """Names of arguments; of results the op."""
    return " ".join(
        value.name if value.name and value.defining_op is None else _result(value)
        for value in values
    )


def _result(value: Value) -> str:
    op = value.defining_op
    return f"{op.name if op is not None else '?'}#{value.index}"


def pairs(branch: Operation) -> list[str]:
    return [f"{shown([source])} -> {shown([target])}" for source, target in forwarded(branch)]


def test_for_forwards_to_its_body_and_past_it(module: Module) -> None:
    loop = op_named(module, "scf.for")
    assert pairs(loop) == ["p -> x", "q -> y", "p -> scf.for#0", "q -> scf.for#1"]
    assert pairs(loop.regions[0].block.terminator) == [
        "y -> x",
        "scf.while#0 -> y",
        "y -> scf.for#0",
        "scf.while#0 -> scf.for#1",
    ]


def test_while_forwards_through_its_condition(module: Module) -> None:
    loop = op_named(module, "scf.while")
    before, after = (region.block for region in loop.regions)
    assert pairs(loop) == ["x -> a", "y -> b"]
    assert pairs(before.terminator) == ["b -> d", "b -> scf.while#0"]
    assert pairs(after.terminator) == ["scf.if#0 -> a", "d -> b"]


def test_branches_forward_to_the_results_only(module: Module) -> None:
    branch = op_named(module, "scf.if")
    assert [(edge.target, edge.operands) for edge in edges_from(branch)] == [
        (region, ()) for region in branch.regions
    ]
    assert [pairs(region.block.terminator) for region in branch.regions] == [
        ["d -> scf.if#0"],
        ["i -> scf.if#0"],
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("scf.for", [False, False, True, False]),
        ("scf.while", [False, True, False, False]),
        ("scf.if", [False, False, False, False]),
    ],
)
def test_back_edges_go_to_where_control_has_been(
    module: Module, name: str, expected: list[bool]
) -> None:
    assert [edge.is_back_edge for edge in edges(op_named(module, name))] == expected


def test_what_decides_is_not_forwarded(module: Module) -> None:
    before = op_named(module, "scf.while").regions[0].block
    assert shown(deciding(op_named(module, "scf.for"))) == "n p q"
    assert shown(deciding(op_named(module, "scf.while"))) == ""
    assert shown(deciding(before.terminator)) == "arith.cmpi#0"
    assert shown(deciding(op_named(module, "scf.if"))) == "c"
    assert shown(deciding(op_named(module, "arith.cmpi"))) == "a n"


def test_ops_without_edges(module: Module) -> None:
    for name in ("arith.cmpi", "tt.return", "tt.func"):
        assert edges(op_named(module, name)) == edges_from(op_named(module, name)) == []


def test_tied_values_are_one_variable(module: Module) -> None:
    loop = op_named(module, "scf.while")
    entry, condition = (junction.tied()[-1] for junction in junctions(loop))
    assert [shown(x) for x in (entry.values, entry.entering, entry.yielded)] == ["b", "y", "d"]
    assert [shown(x) for x in (condition.values, condition.entering, condition.yielded)] == [
        "d scf.while#0",
        "",
        "b",
    ]


def test_every_value_finds_the_variable_that_it_is(module: Module) -> None:
    for op in module.walk():
        for junction in junctions(op):
            for tied in junction.tied():
                assert all(tied_values(value) == tied for value in tied.values)


def test_incoming_values(module: Module) -> None:
    loop, branch = op_named(module, "scf.for"), op_named(module, "scf.if")
    counter, x, _ = loop.regions[0].block.arguments
    assert shown(incoming(x)) == "p y"
    assert shown(incoming(loop.results[1])) == "q scf.while#0"
    assert shown(incoming(branch.result)) == "d i"
    assert incoming(counter) == incoming(module.function.regions[0].block.arguments[0]) == ()
    assert incoming(op_named(module, "arith.cmpi").result) == ()


def test_iter_args_of_a_for(module: Module) -> None:
    loop = op_named(module, "scf.for")
    counter, _, y = loop.regions[0].block.arguments
    second = iter_args(loop)[1]
    parts = (second.initial, second.argument, second.yielded, second.result)
    assert shown(parts) == "q y scf.while#0 scf.for#1"
    assert iter_arg(y) == second
    assert iter_arg(counter) is None
    assert iter_arg(loop.results[1]) is None
    assert iter_arg(op_named(module, "scf.while").regions[0].block.arguments[1]) is None


def test_a_loop_begins_with_another_value(module: Module) -> None:
    loop = op_named(module, "scf.for")
    (first, second), (n, *_) = iter_args(loop), loop.operands
    second.begin_with(n)
    assert (shown([first.initial, second.initial]), len(loop.operands)) == ("p n", 5)


def test_keeping_some_of_what_is_forwarded(module: Module) -> None:
    loop = op_named(module, "scf.while")
    entry, _ = junctions(loop)
    entry.keep([1])
    assert pairs(loop) == ["y -> b"]
    assert pairs(loop.regions[1].block.terminator) == ["d -> b"]
    assert [value.index for value in loop.regions[0].block.arguments] == [0]
