"""Tiles of offsets and pointers that loops carry: an iteration moves each as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.analysis.data_flow import backward, source_of
from tkdebug.compiler.dialects import arith, tt, ttg
from tkdebug.compiler.dialects.interfaces import PointerAccess, SameElements
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import forwarded_operands, tied_values
from tkdebug.compiler.ir.op_view import OpView, names_of
from tkdebug.compiler.ir.types import PointerType, ScalarType, TensorType, element_of
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering

_SAME = names_of(tt.Hint, ttg.ConvertLayout)


@dataclass(frozen=True, slots=True)
class Reach:
    """Between which numbers the elements of a tile lie, i64.

    Attributes:
        low: the least of them, or less.
        span: how far the greatest one is from there at most, from 0 on; mostly a constant.
        fits: whether they are known to fit the tile's type.
    """

    low: LLVMValue
    span: LLVMValue
    fits: bool


@dataclass(frozen=True, slots=True)
class CarriedReach:
    """That of a tile which a loop carries.

    Attributes:
        low: its least element, i64.
        span: how far the greatest one is from there, in all iterations.
        conditions: under which that is right, i1.
    """

    low: LLVMValue
    span: LLVMValue
    conditions: tuple[LLVMValue, ...]


def carried_offsets(loop: Operation) -> Iterator[tuple[int, tuple[Value, ...]]]:
    """Tiles that a loop carries, that tested accesses go by, and that iterations move as a whole.

    Args:
        loop: an `scf.for`.

    Yields:
        Which of the carried values it is, and by which values an iteration moves it: each is the
        same in all of a tile.
    """
    body = loop.regions[0].block
    accesses = [op for op in loop.walk() if OpView(op).probe is not None]
    pointers = [PointerAccess(op).pointer for op in accesses if PointerAccess.matches(op)]
    needed = backward(pointers, _sources)
    for index, argument in enumerate(body.arguments[1:]):
        if argument in needed and _is_index(argument):
            steps = _steps(argument, forwarded_operands(body.terminator)[index])
            if steps is not None:
                yield index, steps


def step_bytes(ctx: Lowering, argument: Value, step: Value) -> LLVMValue:
    """By how much a step moves what a loop carries, i64; bytes of pointers, else the number."""
    emit, source = ctx.emit, _scalar(step)
    assert source is not None
    if isinstance(source, int):
        return integer("i64", source * unit_of(argument.type))
    wide = emit.cast("sext", ctx.values[source][0], "i64")
    return emit.mul(wide, unit_of(argument.type))


def _sources(value: Value) -> Iterator[Value]:
    tied = tied_values(value)
    if tied is not None:
        yield from tied.sources
    elif isinstance(value.owner, Operation):
        yield from value.owner.operands


def _is_index(value: Value) -> bool:
    """Whether a value is a tile of pointers or integers."""
    element = element_of(value.type)
    is_integer = isinstance(element, ScalarType) and element.is_integer
    return isinstance(value.type, TensorType) and (is_integer or isinstance(element, PointerType))


def _steps(argument: Value, value: Value) -> tuple[Value, ...] | None:
    """What is added to an argument to give the value of the next iteration; None if all else."""
    steps = list[Value]()
    while value is not argument:
        op = value.defining_op
        if op is None:
            return None
        source = source_of(value, _SAME)
        if source is not None:
            value = source
        elif tt.AddPtr.matches(op) or arith.AddI.matches(op):
            value, step = op.operands
            if _scalar(step) is None:
                return None
            steps.append(step)
        else:
            return None
    return tuple(steps)


def _scalar(value: Value) -> Value | int | None:
    """The number that a value is in all of its tile; None where it differs."""
    while True:
        number = constant_value(value)
        if isinstance(number, int):
            return int(number)
        if not isinstance(value.type, TensorType):
            return value
        source = source_of(value, SameElements.names)
        if source is None:
            return None
        value = source
