"""IR that the verifier refuses, and its messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tkdebug.compiler.ir import Block, Module, Operation, SourceLocation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.verifier import verify
from tkdebug.errors import IRError

LOOP = """
tt.func @k(%p: !tt.ptr<i32>, %n: i32) {
  %c1 = arith.constant 1 : i32
  %s = scf.for %i = %c1 to %n step %c1 iter_args(%a = %c1) -> (i32) : i32 {
    %b = arith.addi %a, %i : i32
    scf.yield %b : i32
  }
  tt.store %p, %s : !tt.ptr<i32>, i32
  tt.return
}
"""


def error_of(module: Module) -> str:
    with pytest.raises(IRError) as caught:
        verify(module)
    return str(caught.value)


def op_named(module: Module, name: str) -> Operation:
    return next(op for op in module.walk() if op.name == name)


def test_well_formed_module_passes() -> None:
    verify(parse_module(LOOP))


def in_func(*lines: str) -> str:
    body = "\n  ".join(lines)
    return f"tt.func @k(%n: i32, %x: f32, %c: i1) {{\n  {body}\n  tt.return\n}}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%a = arith.nonsense %n : i32", "is not in the op table"),
        ("%a = arith.addi %n : i32", "got 1 operands, expected 2"),
        ("%a = arith.addi %n, %x : (i32, f32) -> i32", "operand types differ"),
        ("%a = arith.addi %n, %n : (i32, i32) -> f32", "got result types (f32), expected (i32)"),
        ('%a = arith.cmpi %n, %n {predicate = "lt"} : (i32, i32) -> i1', "unknown predicate 'lt'"),
        ("%a = tt.load %x : f32", "pointer: got f32, expected pointers"),
        ("%a = tt.trans %n {order = [1, 0]} : i32", "source: got i32, expected a tile"),
        ("%a = tt.expand_dims %n : i32", "attribute axis is missing"),
        (
            '"scf.if" %n ({\n scf.yield\n}, {\n scf.yield\n}) : i32',
            "condition: got i32, expected i1",
        ),
        (
            "scf.for %i = %x to %x step %x : f32 {\n scf.yield\n}",
            "lower: got f32, expected an integer scalar",
        ),
        ("scf.if %c {\n scf.yield\n}", "got 1 regions, expected 2"),
        ("scf.if %c {\n} else {\n scf.yield\n}", "does not end in scf.yield"),
        ("scf.if %c {\n tt.return\n} else {\n scf.yield\n}", "ends in tt.return, expected scf.yi"),
        (
            "%r = scf.if %c -> (i32) {\n scf.yield %x : f32\n} else {\n scf.yield %n : i32\n}",
            "forwards (f32), expected (i32) of scf.if",
        ),
        ("tt.return\n  tt.barrier", "is a terminator but not the last op of its block"),
        (
            "scf.while (%i = %n) : (i32) -> () {\n scf.condition(%c) %i : i32\n} do {\n"
            " scf.yield %n : i32\n}",
            "forwards (i1, i32), expected (i1) of scf.while",
        ),
    ],
)
def test_rule_broken_by_one_op_is_reported(line: str, message: str) -> None:
    assert message in error_of(parse_module(in_func(line)))


def test_error_names_line_op_and_printed_form() -> None:
    module = parse_module(in_func("%y = arith.addi %n : i32"))
    with pytest.raises(IRError, match=r"^<ir>:2: arith.addi #2: got 1 operands") as caught:
        verify(module)
    assert caught.value.__notes__ == ["in: %y = arith.addi %n : i32"]


def test_combine_region_may_not_use_outer_values() -> None:
    text = in_func(
        "%t = tt.splat %x : f32 -> tensor<8xf32>",
        "%s = tt.reduce %t {axis = 0} ({",
        "^bb0(%a: f32, %b: f32):",
        "%y = arith.addf %a, %x : f32",
        "tt.reduce.return %y : f32",
        "}) : tensor<8xf32> -> f32",
    )
    assert "operand 1 (%x: f32) is not defined before this op" in error_of(parse_module(text))


def use_before_definition(module: Module) -> None:
    block = module.function.regions[0].block
    block.operations.insert(0, block.operations.pop(1))


def use_outside_region(module: Module) -> None:
    inner = op_named(module, "arith.addi")
    store = op_named(module, "tt.store")
    store.operands = (store.operands[0], inner.result)


def two_ops_of_one_id(module: Module) -> None:
    op_named(module, "tt.store").id = op_named(module, "arith.addi").id


def stale_use(module: Module) -> None:
    op_named(module, "arith.constant").result.uses.clear()


def wrong_block(module: Module) -> None:
    op_named(module, "tt.store").block = Block()


def second_block(module: Module) -> None:
    op_named(module, "scf.for").regions[0].blocks.append(Block())


def no_line(module: Module) -> None:
    op_named(module, "tt.store").location = SourceLocation("k.py", 0, 0, "k")


def no_location(module: Module) -> None:
    op_named(module, "tt.store").location = None  # type: ignore[assignment]


def other_result_index(module: Module) -> None:
    op_named(module, "scf.for").result.index = 3


def carried_type_changes(module: Module) -> None:
    op_named(module, "scf.for").regions[0].block.arguments[1].type = ir.I64


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (use_before_definition, "is not defined before this op"),
        (use_outside_region, "operand 1 (%b: i32) is not defined before this op"),
        (two_ops_of_one_id, "has the same id as arith.addi"),
        (stale_use, "use list of %c1: i32 names ops []"),
        (wrong_block, "listed in a block that it does not belong to"),
        (second_block, "has a region of 2 blocks, expected 1"),
        (no_line, "has a location with a line below 1"),
        (no_location, "got location None, expected a place"),
        (other_result_index, "has another owner or index"),
        (carried_type_changes, "got result types (i32), expected (i64)"),
    ],
)
def test_damaged_structure_is_reported(damage: Callable[[Module], None], message: str) -> None:
    module = parse_module(LOOP)
    damage(module)
    assert message in error_of(module)
