"""The parser's messages for text that is not IR."""

from __future__ import annotations

import pytest

from tkdebug.compiler.ir.attribute_parser import MAX_NESTING
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.errors import IRError


def error_of(text: str) -> str:
    with pytest.raises(IRError) as caught:
        parse_module(text)
    return str(caught.value)


def in_func(*lines: str) -> str:
    body = "\n".join(lines)
    return f"tt.func @k(%n: i32, %x: f32) {{\n{body}\ntt.return\n}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "<ir>:1:1: got end of text, expected a tt.func"),
        ("tt.func", "<ir>:1:8: got end of text, expected '@'"),
        ("tt.func @k() {", "<ir>:1:15: got end of text, expected '}'"),
        ("tt.func @k() { } }", "got '}', expected an operation such as arith.addi"),
        (in_func("%a = arith.addi %n, %n"), "expected ':' and types"),
        (in_func("%a = arith.addi %n, %b : i32"), "<ir>:2:21: %b is used but not defined"),
        (in_func("%n = arith.addi %n, %n : i32"), "<ir>:2:1: %n is defined twice"),
        (in_func("%a = arith.addi %n, %x : i32"), "got type i32 for operand 1, expected f32"),
        (in_func("%a = arith.addi %n, %n : (i32) -> i32"), "got 1 operand types, expected 2"),
        (in_func("%a, %b = arith.addi %n, %n : i32"), "arith.addi: got 2 result names, expected"),
        (in_func("arith.addi %n, %n : (i32, i32) -> i32"), "got 0 result names"),
        (in_func("%a = arith.addi %n, %n : i33"), "got 'i33', expected a type such as i32"),
        (in_func("%a = arith.addi %n, %n : !tt.foo"), "got type !tt.foo, expected !tt.ptr"),
        (in_func("tt.barrier {a = }"), "got '}', expected an attribute value"),
        (in_func("tt.barrier {a = 1, a = 2}"), "attribute a is given twice"),
        (in_func('tt.barrier {a = "x}'), "expected a closed string"),
        (in_func('tt.barrier {a = "\\q"}'), "malformed string"),
        (in_func("tt.barrier {a = " + "9" * 100 + "}"), "number of 100 characters"),
        (in_func("tt.barrier {a = __import__}"), "got '__import__', expected a type"),
        (in_func("%a = arith.constant dense<0> : i32"), "got i32, expected a tensor type"),
        (in_func("%a = arith.constant 0 : tensor<8xi32>"), "expected dense<…> for a tensor"),
        (in_func("%a = arith.constant f32 : i32"), "expected a number or a boolean"),
        (in_func("tt.barrier loc(3)"), "expected a closed string"),
        (in_func("tt.barrier id(2)", "tt.barrier id(2)"), "operation id 2 is given twice"),
        (in_func("scf.if %n {", "scf.yield", "}"), "got type i1 for operand 0, expected i32"),
        (
            in_func("%r = scf.for %k = %n to %n step %n : i32 {", "scf.yield", "}"),
            "got 1 result names",
        ),
        (
            in_func("scf.for %k = %n to %n step %n : i32 {", "scf.yield", "}")
            + "\ntt.func @l() {\n tt.print %k : i32\n}",
            "%k is used but not defined before its region or outside it",
        ),
        ("tt.func @k() \x00", "expected '{'"),
        ("tt.func @k(%x: tensor<9999999999999x" + "f32>)", "expected a type"),
    ],
)
def test_malformed_text_is_one_clear_error(text: str, message: str) -> None:
    assert message in error_of(text)


def test_error_shows_the_line_with_a_caret() -> None:
    assert error_of(in_func("  tt.print %y : i32")).splitlines() == [
        "<ir>:2:12: %y is used but not defined",
        "      tt.print %y : i32",
        "               ^",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "!tt.ptr<" * 5000,
        "tt.func @k(%x: " + "!tt.ptr<" * 5000,
        "tt.barrier {a = " + "[" * 5000,
        "tt.func @k() {" * 5000,
        "%c = arith.constant true : i1\n" + "scf.if %c {\n" * 5000,
        'tt.barrier loc("a":1:1 in "f"' + ' at "a":1:1 in "f"' * 5000,
        "tt.func @k(%x: tensor<" + "1x" * 5000,
    ],
)
def test_deep_nesting_is_an_error_not_a_crash(text: str) -> None:
    assert "<ir>" in error_of(text)


def test_nesting_within_the_limit_is_read() -> None:
    depth = MAX_NESTING // 4
    text = "tt.func @k(%c: i1) {\n" + "scf.if %c {\n" * depth + "scf.yield\n}\n" * depth
    parse_module(text + "tt.return\n}")
