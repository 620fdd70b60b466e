"""`Canonicalize`: each rule on a small body."""

from __future__ import annotations

import math
import struct

import pytest
from pass_support import expect, run_on

from tkdebug.compiler.dialects.table import FOLDING, OPS
from tkdebug.compiler.passes import Canonicalize, EliminateDeadCode, canonicalize

USE = "tt.print %r : {type}"


def simplify(*lines: str, type_: str = "i32") -> list[str]:
    """The lines that are left of a body whose result is %r, after dead code is gone."""
    body = "\n".join([*lines, f'tt.print %r {{prefix = ""}} : {type_}'])
    got, _ = run_on(body, Canonicalize(), EliminateDeadCode())
    return [line.strip().removesuffix(' {prefix = ""} : ' + type_) for line in got.splitlines()]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("%r = arith.addi %n, %zero : i32", "%n"),
        ("%r = arith.addi %zero, %n : i32", "%n"),
        ("%r = arith.subi %n, %zero : i32", "%n"),
        ("%r = arith.muli %n, %one : i32", "%n"),
        ("%r = arith.muli %one, %n : i32", "%n"),
        ("%r = arith.divsi %n, %one : i32", "%n"),
        ("%r = arith.divui %n, %one : i32", "%n"),
        ("%r = arith.andi %n, %ones : i32", "%n"),
        ("%r = arith.andi %n, %n : i32", "%n"),
        ("%r = arith.ori %n, %zero : i32", "%n"),
        ("%r = arith.ori %n, %n : i32", "%n"),
        ("%r = arith.xori %n, %zero : i32", "%n"),
        ("%r = arith.shli %n, %zero : i32", "%n"),
        ("%r = arith.maxsi %n, %n : i32", "%n"),
        ("%r = arith.select %c, %n, %n : (i1, i32, i32) -> i32", "%n"),
    ],
)
def test_integer_identity_is_dropped(line: str, value: str) -> None:
    assert simplify(
        "%zero = arith.constant 0 : i32",
        "%one = arith.constant 1 : i32",
        "%ones = arith.constant -1 : i32",
        line,
    ) == [f"tt.print {value}"]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("%r = arith.muli %n, %zero : i32", 0),
        ("%r = arith.andi %zero, %n : i32", 0),
        ("%r = arith.ori %n, %ones : i32", -1),
        ("%r = arith.subi %n, %n : i32", 0),
        ("%r = arith.xori %n, %n : i32", 0),
        ("%r = arith.addi %big, %big : i32", -2),
        ("%r = arith.divsi %ones, %big : i32", 0),
        ("%r = arith.shrui %ones, %big : i32", 0),
    ],
)
def test_integer_op_folds_to_a_constant(line: str, value: int) -> None:
    got = simplify(
        "%zero = arith.constant 0 : i32",
        "%ones = arith.constant -1 : i32",
        "%big = arith.constant 2147483647 : i32",
        line,
    )
    assert got[0].endswith(f"= arith.constant {value} : i32")


@pytest.mark.parametrize("name", ["divsi", "divui", "remsi", "remui"])
def test_division_by_zero_is_left_to_fail_where_it_runs(name: str) -> None:
    lines = [
        "%seven = arith.constant 7 : i32",
        "%zero = arith.constant 0 : i32",
        f"%r = arith.{name} %seven, %zero : i32",
    ]
    assert simplify(*lines)[:3] == lines


def test_and_with_true_is_the_other_mask() -> None:
    assert simplify("%t = arith.constant true : i1", "%r = arith.andi %t, %c : i1", type_="i1") == [
        "tt.print %c"
    ]


@pytest.mark.parametrize(
    ("predicate", "answer"),
    [("eq", 1), ("sle", 1), ("uge", 1), ("ne", 0), ("slt", 0), ("ugt", 0)],
)
def test_comparison_of_a_value_with_itself_folds(predicate: str, answer: int) -> None:
    line = f'%r = arith.cmpi %n, %n {{predicate = "{predicate}"}} : (i32, i32) -> i1'
    assert simplify(line, type_="i1")[0] == f"%r = arith.constant {answer} : i1"


@pytest.mark.parametrize(
    "line",
    [
        "%r = arith.addf %x, %zero : f32",
        "%r = arith.mulf %x, %zero : f32",
        "%r = arith.subf %x, %x : f32",
        "%r = arith.subf %zero, %x : f32",
        '%r = arith.cmpf %x, %x {predicate = "oeq"} : (f32, f32) -> i1',
    ],
)
def test_float_rule_that_is_not_exact_is_not_applied(line: str) -> None:
    type_ = "i1" if "cmpf" in line else "f32"
    assert line in simplify("%zero = arith.constant 0.0 : f32", line, type_=type_)


SPECIAL = [0.0, -0.0, 1.0, -2.5, 5e-324, 1e308, math.inf, -math.inf, math.nan]
FLOAT_OPS = {
    "arith.addf": lambda a, b: a + b,
    "arith.subf": lambda a, b: a - b,
    "arith.mulf": lambda a, b: a * b,
    "arith.divf": lambda a, b: a / b,
    "tt.precise_divf": lambda a, b: a / b,
}


@pytest.mark.parametrize("name", sorted(canonicalize._FLOAT_IDENTITIES))
def test_float_identities_hold_for_special_values(name: str) -> None:
    for index, number in canonicalize._FLOAT_IDENTITIES[name]:
        for value in SPECIAL:
            operands = (number, value) if index == 0 else (value, number)
            got = FLOAT_OPS[name](*operands)
            assert struct.pack("d", got) == struct.pack("d", value) or math.isnan(value)
        constant = f"%k = arith.constant {number} : f32"
        shown = "%k, %x" if index == 0 else "%x, %k"
        assert simplify(constant, f"%r = {name} {shown} : f32", type_="f32") == ["tt.print %x"]


@pytest.mark.parametrize("name", sorted(canonicalize._INT_IDENTITIES))
def test_integer_identities_agree_with_the_op_table(name: str) -> None:
    for index, number in canonicalize._INT_IDENTITIES[name]:
        if name not in FOLDING:
            continue
        for bits in (8, 32):
            op = _binary(name, bits)
            for value in (0, 1, -1, 77, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1):
                operands = (number, value) if index == 0 else (value, number)
                assert OPS[name](op).fold(operands) == value


def _binary(name: str, bits: int):  # type: ignore[no-untyped-def]
    from tkdebug.compiler.ir.parser import parse_module

    text = f"tt.func @k(%a: i{bits}) {{ %r = {name} %a, %a : i{bits} tt.return }}"
    return next(op for op in parse_module(text).walk() if op.name == name)


@pytest.mark.parametrize(
    ("number", "target", "is_folded"),
    [
        ("0.0", "f16", True),
        ("-inf", "f16", True),
        ("1.5", "bf16", True),
        ("0.1", "f16", False),
        ("65536.0", "f16", False),
        ("1.0009765625", "bf16", False),
        ("nan", "f16", False),
        ("0.0", "f8E4M3FN", True),
        ("-0.0", "f8E4M3FNUZ", False),
        ("inf", "f8E4M3FN", False),
    ],
)
def test_float_cast_folds_only_where_it_rounds_nothing(
    number: str, target: str, is_folded: bool
) -> None:
    got = simplify(
        f"%k = arith.constant {number} : f32",
        f"%r = arith.truncf %k : f32 -> {target}",
        type_=target,
    )
    assert (got[0] == f"%r = arith.constant {number} : {target}") is is_folded


def test_casts_there_and_back_are_dropped() -> None:
    assert simplify(
        "%w = arith.extsi %n : i32 -> i64",
        "%r = arith.trunci %w : i64 -> i32",
    ) == ["tt.print %n"]
    assert simplify(
        "%w = arith.extf %x : f32 -> f64",
        "%r = arith.truncf %w : f64 -> f32",
        type_="f32",
    ) == ["tt.print %x"]


def test_narrowing_cast_is_kept() -> None:
    lines = ["%h = arith.truncf %x : f32 -> f16", "%r = arith.extf %h : f16 -> f32"]
    assert simplify(*lines, type_="f32")[:2] == lines


def test_transposition_twice_is_the_tile_itself() -> None:
    assert simplify(
        "%t = tt.trans %v {order = [1, 0]} : tensor<8x16xf32> -> tensor<16x8xf32>",
        "%r = tt.trans %t {order = [1, 0]} : tensor<16x8xf32> -> tensor<8x16xf32>",
        type_="tensor<8x16xf32>",
    ) == ["tt.print %v"]


def test_transpositions_compose() -> None:
    records = expect(
        """
        %a = tt.reshape %v : tensor<8x16xf32> -> tensor<2x4x16xf32>
        %b = tt.trans %a {order = [1, 2, 0]} : tensor<2x4x16xf32> -> tensor<4x16x2xf32>
        %r = tt.trans %b {order = [1, 0, 2]} : tensor<4x16x2xf32> -> tensor<16x4x2xf32>
        tt.print %r {prefix = ""} : tensor<16x4x2xf32>
        """,
        """
        %a = tt.reshape %v : tensor<8x16xf32> -> tensor<2x4x16xf32>
        %r = tt.trans %a {order = [2, 1, 0]} : tensor<2x4x16xf32> -> tensor<16x4x2xf32>
        tt.print %r {prefix = ""} : tensor<16x4x2xf32>
        """,
        Canonicalize(),
        EliminateDeadCode(),
    )
    assert [record.rule for record in records] == ["trans-of-trans", "erase-dead"]


def test_changes_of_shape_of_a_splat_become_a_splat() -> None:
    expect(
        """
        %s = tt.splat %x : f32 -> tensor<8xf32>
        %e = tt.expand_dims %s {axis = 0} : tensor<8xf32> -> tensor<1x8xf32>
        %b = tt.broadcast %e : tensor<1x8xf32> -> tensor<4x8xf32>
        %t = tt.trans %b {order = [1, 0]} : tensor<4x8xf32> -> tensor<8x4xf32>
        %r = tt.reshape %t : tensor<8x4xf32> -> tensor<32xf32>
        tt.print %r {prefix = ""} : tensor<32xf32>
        """,
        """
        %r = tt.splat %x : f32 -> tensor<32xf32>
        tt.print %r {prefix = ""} : tensor<32xf32>
        """,
        Canonicalize(),
        EliminateDeadCode(),
    )


def test_splat_and_arithmetic_of_constants_become_constant_tiles() -> None:
    expect(
        """
        %two = arith.constant 2 : i32
        %s = tt.splat %two : i32 -> tensor<8xi32>
        %t = arith.muli %s, %s : tensor<8xi32>
        %r = tt.expand_dims %t {axis = 0} : tensor<8xi32> -> tensor<1x8xi32>
        tt.print %r {prefix = ""} : tensor<1x8xi32>
        """,
        """
        %r = arith.constant dense<4> : tensor<1x8xi32>
        tt.print %r {prefix = ""} : tensor<1x8xi32>
        """,
        Canonicalize(),
        EliminateDeadCode(),
    )


def test_split_of_join_and_unsplat_of_splat() -> None:
    expect(
        """
        %j = tt.join %v, %v : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16x2xf32>
        %a, %b = tt.split %j : tensor<8x16x2xf32> -> (tensor<8x16xf32>, tensor<8x16xf32>)
        %s = tt.splat %x : f32 -> tensor<1xf32>
        %u = tt.unsplat %s : tensor<1xf32> -> f32
        tt.print %a, %b, %u {prefix = ""} : tensor<8x16xf32>, tensor<8x16xf32>, f32
        """,
        'tt.print %v, %v, %x {prefix = ""} : tensor<8x16xf32>, tensor<8x16xf32>, f32',
        Canonicalize(),
        EliminateDeadCode(),
    )


@pytest.mark.parametrize(("condition", "kept"), [("true", "%n"), ("false", "%m")])
def test_if_of_a_constant_is_its_branch(condition: str, kept: str) -> None:
    expect(
        f"""
        %t = arith.constant {condition} : i1
        %r = scf.if %t -> (i32) {{
          tt.store %p, %n : !tt.ptr<i32>, i32
          scf.yield %n : i32
        }} else {{
          tt.store %p, %m : !tt.ptr<i32>, i32
          scf.yield %m : i32
        }}
        tt.store %p, %r : !tt.ptr<i32>, i32
        """,
        f"""
        tt.store %p, {kept} : !tt.ptr<i32>, i32
        tt.store %p, {kept} : !tt.ptr<i32>, i32
        """,
        Canonicalize(),
        EliminateDeadCode(),
    )


def test_constant_ifs_inside_each_other_fold() -> None:
    expect(
        """
        %t = arith.constant true : i1
        scf.if %t {
          %u = arith.andi %t, %t : i1
          scf.if %u {
            tt.store %p, %n : !tt.ptr<i32>, i32
            scf.yield
          } else {
            scf.yield
          }
          tt.store %p, %m : !tt.ptr<i32>, i32
          scf.yield
        } else {
          scf.if %t {
            scf.yield
          } else {
            tt.barrier
            scf.yield
          }
          scf.yield
        }
        """,
        """
        tt.store %p, %n : !tt.ptr<i32>, i32
        tt.store %p, %m : !tt.ptr<i32>, i32
        """,
        Canonicalize(),
        EliminateDeadCode(),
    )


def test_loop_without_iterations_gives_its_initial_values() -> None:
    expect(
        """
        %zero = arith.constant 0 : i32
        %one = arith.constant 1 : i32
        %r = scf.for %i = %one to %zero step %one iter_args(%a = %n) -> (i32) : i32 {
          tt.store %p, %a : !tt.ptr<i32>, i32
          scf.yield %i : i32
        }
        tt.store %p, %r : !tt.ptr<i32>, i32
        """,
        "tt.store %p, %n : !tt.ptr<i32>, i32",
        Canonicalize(),
        EliminateDeadCode(),
    )


@pytest.mark.parametrize(("lower", "upper", "step"), [(0, 1, 1), (-1, 0, 1), (3, 5, 8)])
def test_only_iteration_stands_for_its_loop(lower: int, upper: int, step: int) -> None:
    expect(
        f"""
        %lower = arith.constant {lower} : i32
        %upper = arith.constant {upper} : i32
        %step = arith.constant {step} : i32
        %r = scf.for %i = %lower to %upper step %step iter_args(%a = %n) -> (i32) : i32 {{
          tt.store %p, %a : !tt.ptr<i32>, i32
          scf.yield %i : i32
        }}
        tt.store %p, %r : !tt.ptr<i32>, i32
        """,
        f"""
        %lower = arith.constant {lower} : i32
        tt.store %p, %n : !tt.ptr<i32>, i32
        tt.store %p, %lower : !tt.ptr<i32>, i32
        """,
        Canonicalize(),
        EliminateDeadCode(),
    )


def test_loop_of_two_iterations_stays() -> None:
    text = """
        %c0 = arith.constant 0 : i32
        %c2 = arith.constant 2 : i32
        %c1 = arith.constant 1 : i32
        scf.for %i = %c0 to %c2 step %c1 : i32 {
          tt.store %p, %i : !tt.ptr<i32>, i32
          scf.yield
        }
        """
    expect(text, text, Canonicalize(), EliminateDeadCode())


def test_mask_of_all_true_is_dropped_and_keeps_the_line() -> None:
    records = expect(
        """
        %t = arith.constant true : i1
        %r = tt.load %p, %t, %n {volatile = true} : (!tt.ptr<i32>, i1, i32) -> i32
        tt.store %p, %r, %t : !tt.ptr<i32>, i32, i1
        """,
        """
        %r = tt.load %p {volatile = true} : !tt.ptr<i32> -> i32
        tt.store %p, %r : !tt.ptr<i32>, i32
        """,
        Canonicalize(),
        EliminateDeadCode(),
    )
    masks = [record for record in records if record.rule == "drop-true-mask"]
    assert len(masks) == 2
    assert all(not record.erased_locations for record in masks)


def test_every_rule_names_ops_of_the_table() -> None:
    unknown = {
        root for pattern in canonicalize.PATTERNS for root in pattern.roots if root not in OPS
    }
    assert unknown == set()


def test_what_comes_after_a_hint_uses_it() -> None:
    expect(
        """
        tt.print %n {prefix = ""} : i32
        %h = tt.hint %n {kind = "divisibility", values = [16]} : i32
        scf.if %c {
          tt.print %n {prefix = ""} : i32
          scf.yield
        } else {
          scf.yield
        }
        """,
        """
        tt.print %n {prefix = ""} : i32
        %h = tt.hint %n {kind = "divisibility", values = [16]} : i32
        scf.if %c {
          tt.print %h {prefix = ""} : i32
          scf.yield
        } else {
          scf.yield
        }
        """,
        Canonicalize(),
    )


def test_a_hint_in_a_branch_is_about_the_branch() -> None:
    body = """
        scf.if %c {
          %h = tt.hint %n {kind = "divisibility", values = [16]} : i32
          tt.print %h {prefix = ""} : i32
          scf.yield
        } else {
          scf.yield
        }
        tt.print %n {prefix = ""} : i32
        """
    expect(body, body, Canonicalize())


def test_hints_of_one_value_add_up() -> None:
    expect(
        """
        %h = tt.hint %n {kind = "divisibility", values = [16]} : i32
        %g = tt.hint %n {kind = "constancy", values = [4]} : i32
        tt.print %n {prefix = ""} : i32
        """,
        """
        %h = tt.hint %n {kind = "divisibility", values = [16]} : i32
        %g = tt.hint %h {kind = "constancy", values = [4]} : i32
        tt.print %g {prefix = ""} : i32
        """,
        Canonicalize(),
    )
