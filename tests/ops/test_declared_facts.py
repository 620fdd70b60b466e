"""Facts that classes of ops declare of their numbers, against the numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.dialects.interfaces import FloatOp
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Block, Operation, SourceLocation, Value
from tkdebug.compiler.ir import types as ir

TYPES = (ir.I1, ir.I8, ir.I32, ir.I64)
INTEGERS = [view for view in OPS.values() if issubclass(view, arith.IntegerBinary)]
FLOATS = [view for view in OPS.values() if issubclass(view, FloatOp) and view.torch]
FLOAT_BINARIES = [view for view in FLOATS if issubclass(view, arith.FloatBinary)]
LARGEST = torch.finfo(torch.float32).max
FINITE = (0.0, -0.0, 1.0, -1.0, 0.5, -3.0, 100.0, 1e-40, -1e-40, LARGEST, -LARGEST)
NUMBERS = (*FINITE, float("inf"), float("-inf"))


def binary(view: type[arith.IntegerBinary], type_: ir.ScalarType) -> arith.IntegerBinary:
    """An op of two operands of a type."""
    values = [Value(type_, Block(), 0) for _ in range(2)]
    return view(Operation(view.name, values, [type_], {}, (), SourceLocation("k", 1, 0, "k"), 1))


def numbers_of(type_: ir.ScalarType) -> list[int]:
    """Numbers of a type, its least and largest among them, as signed ones."""
    edge = 1 << (type_.bits - 1)
    chosen = {0, 1, -1, 5, -7, edge - 1, -edge}
    return [0, 1] if type_ == ir.I1 else [n for n in sorted(chosen) if -edge <= n < edge]


def computed(view: type[FloatOp], operands: tuple[float, ...]) -> torch.Tensor:
    """Return torch's result for operands of fp32."""
    function: Callable[..., Any] = getattr(torch, view.torch)
    result: torch.Tensor = function(*(torch.tensor([x]) for x in operands))
    return result


def operands_of(view: type[FloatOp], numbers: tuple[float, ...]) -> list[tuple[float, ...]]:
    """All combinations of numbers for the operands of an op."""
    return list(itertools.product(numbers, repeat=len(view.declaration.operands)))


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("view", INTEGERS, ids=lambda view: view.name)
def test_identity_leaves_the_other_integer_as_it_is(
    view: type[arith.IntegerBinary], type_: ir.ScalarType
) -> None:
    op = binary(view, type_)
    neutral = op.neutral
    for number in numbers_of(type_) if neutral is not None else ():
        if type_ == ir.I1 and issubclass(view, arith.IntegerExtremum) and view.identity is None:
            continue  # no kernel has signed extrema of i1
        assert op.fold((number, neutral)) == number
        if view.commutes:
            assert op.fold((neutral, number)) == number


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("view", INTEGERS, ids=lambda view: view.name)
def test_absorbing_integer_stays_whatever_the_other_is(
    view: type[arith.IntegerBinary], type_: ir.ScalarType
) -> None:
    if view.absorbing is None:
        return
    op, absorbing = binary(view, type_), arith.wrap(int(view.absorbing), type_.bits)
    for number in numbers_of(type_):
        assert op.fold((number, absorbing)) == absorbing == op.fold((absorbing, number))


@pytest.mark.parametrize("view", INTEGERS, ids=lambda view: view.name)
def test_integers_commute_where_the_op_says_so(view: type[arith.IntegerBinary]) -> None:
    op, numbers = binary(view, ir.I8), numbers_of(ir.I8)
    pairs = itertools.product(numbers, repeat=2)
    commutes = all(op.fold((a, b)) == op.fold((b, a)) for a, b in pairs)
    assert commutes or not view.commutes


@pytest.mark.parametrize("view", FLOAT_BINARIES, ids=lambda view: view.name)
def test_identity_leaves_the_other_float_as_it_is(view: type[arith.FloatBinary]) -> None:
    for number in (*NUMBERS, float("nan")) if view.identity is not None else ():
        sides = [(number, view.identity)] + [(view.identity, number)] * view.commutes
        for operands in sides:
            same = torch.tensor([number])
            got = computed(view, operands)
            assert torch.equal(got.view(torch.int32), same.view(torch.int32)) or (
                bool(got.isnan()) and bool(same.isnan())
            )


@pytest.mark.parametrize("view", FLOATS, ids=lambda view: view.name)
def test_no_nan_is_made_where_the_op_makes_none(view: type[FloatOp]) -> None:
    nan = [x for x in operands_of(view, NUMBERS) if bool(computed(view, x).isnan())]
    assert view.makes_nan or not nan


@pytest.mark.parametrize("view", FLOATS, ids=lambda view: view.name)
def test_infinities_are_made_just_where_the_op_makes_some(view: type[FloatOp]) -> None:
    infinite = [x for x in operands_of(view, FINITE) if bool(computed(view, x).isinf())]
    assert view.makes_inf == bool(infinite)
