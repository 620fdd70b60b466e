"""`UnrollLoops`: several iterations of a loop in one, where `loop_unroll_factor` asks for it.

    for i = lower to upper by step                  for i = lower to middle by step * factor
        body(i)                            =>           body(i), body(i + step), …
                                                    for i = middle to upper by step
                                                        body(i)

The second loop runs the iterations that are left over; it is left out if there are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import arith, scf
from tkdebug.compiler.ir.constants import constant_value, constant_values
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.types import I64
from tkdebug.compiler.rewriting.copies import clone_before
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter

_FACTOR = "loop_unroll_factor"
_RULE = "unroll"


@dataclass(frozen=True, slots=True)
class UnrollLoops:
    """Unrolls every scf.for with the attribute, innermost first."""

    name: ClassVar[str] = "unroll-loops"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every loop."""
        for op in reversed(list(module.walk())):
            if not scf.For.matches(op) or _FACTOR not in op.attributes:
                continue
            if not rewriter.begins(op, _RULE):
                continue
            factor = op.attributes.pop(_FACTOR)
            rewriter.record_change(op, _RULE)
            if isinstance(factor, int) and factor > 1:
                _unroll(op, factor, rewriter)
                rewriter.commit()


def _unroll(loop: Operation, factor: int, rewriter: Rewriter) -> None:
    build = OpBuilder(rewriter, loop, _RULE)
    view = scf.For(loop)
    lower, upper, step = view.lower, view.upper, view.step
    bounds = constant_values((lower, upper, step))
    middle, stride = upper, constant_value(step)
    if bounds is None:
        middle = _middle(build, lower, upper, step, factor)
    else:
        first, last, stride = map(int, bounds)
        trips = len(range(first, last, stride)) if stride > 0 else 0
        if trips < factor:
            return
        if trips % factor:
            middle = build.constant(lower.type, first + trips // factor * factor * stride)
    if middle is not upper:
        _add_rest(loop, middle, rewriter)
    if stride is None:
        long_step = build.binary(arith.MulI, step, factor)
    else:
        long_step = build.constant(step.type, int(stride) * factor)
    _repeat_body(loop, factor, rewriter)
    loop.operands = (lower, middle, long_step, *view.inits)


def _middle(build: OpBuilder, lower: Value, upper: Value, step: Value, factor: int) -> Value:
    """The counter at which the whole groups of `factor` iterations end.

    Computed in 64 bits: the number of iterations of an int32 loop need not fit into an int32.
    """
    low, high, by = (
        value if value.type == I64 else build.op(arith.ExtSI, (value,), I64)
        for value in (lower, upper, step)
    )
    distance = build.binary(arith.MaxSI, build.binary(arith.SubI, high, low), 0)
    rounded = build.binary(arith.AddI, distance, build.binary(arith.SubI, by, 1))
    trips = build.binary(arith.DivSI, rounded, by)
    whole = build.binary(arith.SubI, trips, build.binary(arith.RemSI, trips, factor))
    end = build.binary(arith.AddI, low, build.binary(arith.MulI, whole, by))
    end = build.binary(arith.MinSI, end, build.binary(arith.MaxSI, high, low))
    return end if lower.type == I64 else build.op(arith.TruncI, (end,), lower.type)


def _add_rest(loop: Operation, middle: Value, rewriter: Rewriter) -> None:
    """Add a copy of the loop after it, from `middle` on."""
    block = loop.block
    assert block is not None
    following = block.operations[block.operations.index(loop) + 1]
    users = [list(result.uses) for result in loop.results]
    (rest,) = clone_before(following, [loop], {}, rewriter, _RULE)
    rest.operands = (middle, scf.For(rest).upper, scf.For(rest).step, *loop.results)
    # The few remaining iterations are not worth a pipeline with its own buffers.
    scf.For(rest).num_stages = 1
    for result, after, using in zip(loop.results, rest.results, users, strict=True):
        for user in using:
            user.replace_operand(result, after)
            rewriter.record_change(user, _RULE)
        rewriter.note_replaced(result, after)


def _repeat_body(loop: Operation, factor: int, rewriter: Rewriter) -> None:
    body = loop.regions[0].block
    terminator = body.terminator
    counter = body.arguments[0]
    step = scf.For(loop).step
    ops = body.operations[:-1]
    handed_on = terminator.operands
    values = [*body.arguments, *(result for op in ops for result in op.results)]
    known = {value: value for value in values}
    for _ in range(factor - 1):
        build = OpBuilder(rewriter, terminator, _RULE, loop.location)
        counter = build.op(arith.AddI, (counter, step))
        assert counter.defining_op is not None
        # Between two copies of the body: the values after the first of them.
        rewriter.note_copied(terminator, counter.defining_op, known)
        known = dict(zip(body.arguments, (counter, *handed_on), strict=True))
        clone_before(terminator, ops, known, rewriter, _RULE)
        handed_on = tuple(known.get(value, value) for value in terminator.operands)
    rewriter.note_copied(terminator, terminator, known)
    terminator.operands = handed_on
    rewriter.record_change(terminator, _RULE)
