"""Pointers that may point into one tensor."""

from __future__ import annotations

import pytest

from tkdebug.compiler.analysis.global_memory import Origin, may_meet, pointer_origin
from tkdebug.compiler.ir.parser import parse_module

KERNEL = """
tt.func @k(%a: !tt.ptr<f16>, %b: !tt.ptr<f16>, %t: !tt.ptr<i64>, %n: i64, %c: i1) {
  %zero = arith.constant 0 : i64
  %moved = tt.addptr %a, %n : (!tt.ptr<f16>, i64) -> !tt.ptr<f16>
  %word = tt.load %t : !tt.ptr<i64> -> i64
  %loaded = tt.int_to_ptr %word : i64 -> !tt.ptr<f16>
  %sum = arith.addi %word, %n : i64
  %behind = tt.int_to_ptr %sum : i64 -> !tt.ptr<f16>
  %number = tt.ptr_to_int %a : !tt.ptr<f16> -> i64
  %further = arith.addi %number, %word : i64
  %turned = tt.int_to_ptr %further : i64 -> !tt.ptr<f16>
  %either = arith.select %c, %a, %b : (i1, !tt.ptr<f16>, !tt.ptr<f16>) -> !tt.ptr<f16>
  %as_words = tt.bitcast %moved : !tt.ptr<f16> -> !tt.ptr<i32>
  %carried = scf.for %i = %zero to %n step %n iter_args(%p = %loaded) -> (!tt.ptr<f16>) : i64 {
    scf.yield %b : !tt.ptr<f16>
  }
  tt.return
}
"""


def values():
    module = parse_module(KERNEL)
    arguments = module.function.regions[0].block.arguments
    results = [value for op in module.walk() for value in op.results]
    return {value.name: value for value in (*arguments, *results)}


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("a", "a"),
        ("moved", "a"),
        ("as_words", "a"),
        ("loaded", Origin.LOADED),
        ("behind", Origin.LOADED),
        ("turned", Origin.UNKNOWN),
        ("either", Origin.UNKNOWN),
        ("carried", Origin.UNKNOWN),
    ],
)
def test_origins_of_pointers(name, origin):
    known = values()
    wanted = known[origin] if isinstance(origin, str) else origin
    assert pointer_origin(known[name]) is wanted


def test_only_what_is_plainly_apart_does_not_meet():
    known = values()
    a, b = known["a"], known["b"]
    assert not may_meet(a, b)
    assert not may_meet(a, Origin.LOADED)
    for pair in ((a, a), (Origin.LOADED, Origin.LOADED), (a, Origin.UNKNOWN),
                 (Origin.UNKNOWN, Origin.UNKNOWN)):  # fmt: skip
        assert may_meet(*pair)
