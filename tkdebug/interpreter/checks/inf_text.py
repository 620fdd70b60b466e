"""How messages tell of an op that made an Inf."""

from __future__ import annotations

from tkdebug.compiler.dialects import arith, math, tt
from tkdebug.compiler.faults.messages import op_text
from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.checks.shadow_values import Origin, element_at


def is_exponential(op: Operation) -> bool:
    """Whether an op is exp or a function like it."""
    if tt.ExternElementwise.matches(op):
        return "exp" in tt.ExternElementwise(op).function
    return math.Exponential.matches(op)


def _is_logarithm(op: Operation) -> bool:
    if tt.ExternElementwise.matches(op):
        return "log" in tt.ExternElementwise(op).function
    return math.Logarithm.matches(op)


def cause_of(origin: Origin, at: tuple[int, ...]) -> str:
    """What an elementwise op was given at `at`; "" of others."""
    shown = [f"{float(element_at(values, at)):g}" for values in origin.operands]
    return op_text(origin.op, shown) if shown else ""


def hint_for(op: Operation) -> str:
    """What to do about an Inf that `op` made."""
    if is_exponential(op):
        return "subtract the maximum first, as in exp(x - max), or bound the operand"
    if arith.FloatDivision.matches(op) or math.Rsqrt.matches(op):
        return "guard the divisor: add an epsilon, or tl.where(d == 0, 1, d)"
    if _is_logarithm(op):
        return "keep 0 out: log(x + eps), or the logarithm before the exponential (x - logsumexp)"
    if tt.Dot.matches(op) or tt.Combining.matches(op):
        return "accumulate in fp32, and scale before the result is narrowed"
    return "compute it in a wider type, or scale the operands down first"
