"""How messages tell of an op that made an Inf."""

from __future__ import annotations

from tkdebug.compiler.dialects import arith, math, tt
from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.checks.shadow_values import Origin, element_at

_SYMBOLS = {
    arith.AddF.name: "+",
    arith.SubF.name: "-",
    arith.MulF.name: "*",
    arith.DivF.name: "/",
    tt.PreciseDivF.name: "/",
}
_DIVISIONS = (arith.DivF.name, tt.PreciseDivF.name, math.Rsqrt.name)
_EXPONENTIALS = (math.Exp.name, math.Exp2.name)
_LOGARITHMS = (math.Log.name, math.Log2.name)
COMBINATIONS = (tt.Reduce.name, tt.Scan.name)


def is_exponential(op: Operation) -> bool:
    """Whether an op is exp or a function like it."""
    if tt.ExternElementwise.matches(op):
        return "exp" in tt.ExternElementwise(op).function
    return op.name in _EXPONENTIALS


def _is_logarithm(op: Operation) -> bool:
    if tt.ExternElementwise.matches(op):
        return "log" in tt.ExternElementwise(op).function
    return op.name in _LOGARITHMS


def cause_of(origin: Origin, at: tuple[int, ...]) -> str:
    """What an elementwise op was given at `at`; "" of others."""
    op = origin.op
    shown = [f"{float(element_at(values, at)):g}" for values in origin.operands]
    if op.name in _SYMBOLS and len(shown) == 2:
        return f"{shown[0]} {_SYMBOLS[op.name]} {shown[1]}"
    if tt.ExternElementwise.matches(op):
        return f"{tt.ExternElementwise(op).function}({', '.join(shown)})"
    return f"{op.name.removeprefix('math.')}({', '.join(shown)})" if shown else ""


def hint_for(op: Operation) -> str:
    """What to do about an Inf that `op` made."""
    if is_exponential(op):
        return "subtract the maximum first, as in exp(x - max), or bound the operand"
    if op.name in _DIVISIONS:
        return "guard the divisor: add an epsilon, or tl.where(d == 0, 1, d)"
    if _is_logarithm(op):
        return "keep 0 out: log(x + eps), or the logarithm before the exponential (x - logsumexp)"
    if tt.Dot.matches(op) or op.name in COMBINATIONS:
        return "accumulate in fp32, and scale before the result is narrowed"
    return "compute it in a wider type, or scale the operands down first"
