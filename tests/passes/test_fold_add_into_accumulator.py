"""`FoldAddIntoAccumulator`: what is added to a dot becomes what it starts at."""

from __future__ import annotations

import pytest
from pass_support import PARAMETERS, expect, run_on

from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.passes import PassManager
from tkdebug.compiler.passes.dots import FoldAddIntoAccumulator

START = """\
%a = arith.constant dense<1.0> : tensor<16x16xf16>
%zero = arith.constant dense<0.0> : tensor<16x16xf32>
%acc = tt.splat %x : f32 -> tensor<16x16xf32>
"""
DOT = "(tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>"
PRINT = 'tt.print %s {prefix = ""} : tensor<16x16xf32>'


@pytest.mark.parametrize("operands", ["%acc, %d", "%d, %acc"])
def test_a_sum_with_a_dot_is_a_dot(operands: str) -> None:
    expect(
        START
        + f'%d = tt.dot %a, %a, %zero {{input_precision = "tf32"}} : {DOT}\n'
        + f"%s = arith.addf {operands} : tensor<16x16xf32>\n"
        + PRINT,
        START + f'%s = tt.dot %a, %a, %acc {{input_precision = "tf32"}} : {DOT}\n' + PRINT,
        FoldAddIntoAccumulator(),
    )


def test_the_dot_keeps_its_line_first() -> None:
    body = (
        START
        + f'%d = tt.dot %a, %a, %zero : {DOT} loc("k.py":5:3 in "k")\n'
        + '%s = arith.addf %acc, %d : tensor<16x16xf32> loc("k.py":6:3 in "k")\n'
        + PRINT
    )
    module = parse_module(f"tt.func @k({PARAMETERS}) {{\n{body}\ntt.return\n}}")
    PassManager([FoldAddIntoAccumulator()], verify_each=True, print_after=()).run(module)
    (dot,) = [op for op in module.walk() if op.name == "tt.dot"]
    assert [source.line for source in dot.location.sources] == [5, 6]


@pytest.mark.parametrize(
    "lines",
    [
        # It starts elsewhere already.
        f"%d = tt.dot %a, %a, %acc : {DOT}\n%s = arith.addf %acc, %d : tensor<16x16xf32>",
        # The product is wanted for itself.
        f"%d = tt.dot %a, %a, %zero : {DOT}\n%s = arith.addf %d, %d : tensor<16x16xf32>",
        # Of fp8 the tensor cores' sums have fewer bits than the addition.
        "%b = arith.constant dense<0.0> : tensor<16x16xf8E5M2>\n"
        f"%d = tt.dot %b, %b, %zero : {DOT.replace('f16', 'f8E5M2')}\n"
        "%s = arith.addf %acc, %d : tensor<16x16xf32>",
    ],
)
def test_others_are_left_as_written(lines: str) -> None:
    text, records = run_on(f"{START}\n{lines}\n{PRINT}", FoldAddIntoAccumulator())
    assert "arith.addf" in text
    assert records == ()


def test_a_dot_before_a_loop_is_not_repeated_in_it() -> None:
    text, records = run_on(
        START
        + f"%d = tt.dot %a, %a, %zero : {DOT}\n"
        + "%s = scf.for %i = %n to %m step %n iter_args(%t = %acc) -> (tensor<16x16xf32>) : i32 {\n"
        + "  %u = arith.addf %t, %d : tensor<16x16xf32>\n"
        + "  scf.yield %u : tensor<16x16xf32>\n}\n"
        + PRINT,
        FoldAddIntoAccumulator(),
    )
    assert "arith.addf" in text
    assert records == ()
