"""Ops whose operands have element types or shapes that the op does not take."""

from __future__ import annotations

import pytest

from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.verifier import verify
from tkdebug.errors import IRError

HEAD = """
tt.func @kernel(%i: i32, %j: i64, %f: f32, %d: f64, %p: !tt.ptr<f32>, %b: i1) {
  %t = tt.make_range {start = 0, end = 8} : () -> tensor<8xi32>
  %c = arith.cmpi %t, %t {predicate = "eq"} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
  """
TAIL = "\n  tt.return\n}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%x = arith.addi %f, %f : (f32, f32) -> f32", "got f32, expected integers"),
        ("%x = arith.addf %i, %i : (i32, i32) -> i32", "got i32, expected floats"),
        ("%x = arith.addf %f, %d : (f32, f64) -> f32", "operand types differ"),
        ("%x = arith.addf %f : (f32) -> f32", "got 1 operands, expected 2"),
        ("%x = math.exp %i : (i32) -> i32", "got i32, expected floats"),
        ("%x = math.absi %f : (f32) -> f32", "got f32, expected integers"),
        (
            "%x = arith.select %i, %f, %f : (i32, f32, f32) -> f32",
            "got i32, expected i1",
        ),
        ("%x = arith.select %b, %f, %d : (i1, f32, f64) -> f32", "operand types differ: f32, f64"),
        (
            "%x = arith.select %c, %f, %f : (tensor<8xi1>, f32, f32) -> f32",
            "a condition of tensor<8xi1> for values of f32",
        ),
        ("%x = arith.trunci %i : (i32) -> i64", "got i64 for i32, expected it narrower"),
        ("%x = arith.extsi %i : (i32) -> i32", "got i32 for i32, expected it wider"),
        ("%x = arith.extf %i : (i32) -> f64", "got i32, expected floats"),
        ("%x = arith.sitofp %t : (tensor<8xi32>) -> f32", "shapes differ"),
        ("%x = tt.bitcast %i : (i32) -> f64", "got f64 for i32, expected it of equal width"),
        ("%x = tt.ptr_to_int %i : (i32) -> i64", "got i32, expected pointers"),
    ],
)
def test_verifier_names_operands_that_do_not_fit(line: str, message: str) -> None:
    with pytest.raises(IRError, match=message.replace("(", r"\(")):
        verify(parse_module(HEAD + line + TAIL))


def test_verifier_takes_operands_that_fit() -> None:
    verify(parse_module(HEAD + "%x = tt.bitcast %p : (!tt.ptr<f32>) -> i64" + TAIL))
