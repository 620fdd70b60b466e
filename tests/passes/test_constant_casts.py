"""`Canonicalize` folds conversions of constants to integers, where no bit is in doubt."""

from __future__ import annotations

import pytest
from pass_support import run_on

from tkdebug.compiler.passes import Canonicalize


def converted(op: str, value: str, target: str) -> str:
    body = f"""
        %w = arith.constant {value} : f32
        %r = {op} %w : f32 -> {target}
        tt.print %r {{prefix = ""}} : {target}
    """
    return run_on(body, Canonicalize())[0]


@pytest.mark.parametrize(
    ("op", "value", "target", "wanted"),
    [
        ("arith.fptosi", "0.0", "i8", "0"),
        ("arith.fptosi", "-0.0", "i32", "0"),
        ("arith.fptosi", "-128.0", "i8", "-128"),
        ("arith.fptosi", "127.0", "i8", "127"),
        ("arith.fptoui", "127.0", "i8", "127"),
    ],
)
def test_whole_numbers_in_range_are_folded(op: str, value: str, target: str, wanted: str) -> None:
    text = converted(op, value, target)
    assert f"= arith.constant {wanted} : {target}" in text
    assert op not in text


@pytest.mark.parametrize(
    ("op", "value", "target"),
    [
        ("arith.fptosi", "0.5", "i8"),
        ("arith.fptosi", "128.0", "i8"),
        ("arith.fptosi", "-129.0", "i8"),
        ("arith.fptoui", "-1.0", "i8"),
        ("arith.fptoui", "200.0", "i8"),
    ],
)
def test_others_are_left_to_the_machine(op: str, value: str, target: str) -> None:
    assert op in converted(op, value, target)
