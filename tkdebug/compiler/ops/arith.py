"""Integer and float arithmetic, comparisons, selects and conversions (MLIR's arith dialect).

Integers are signless. Float ops round to their own type after every op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Operation, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ops import verifiers
from tkdebug.compiler.ops.spec import Builtin, OpSpec, Verifier, same_as_first
from tkdebug.compiler.ops.verifiers import conversion
from tkdebug.errors import IRError


def wrap(value: int, bits: int) -> int:
    """`value` modulo 2**bits as a signed number; i1 stays 0 or 1."""
    if bits == 1:
        return value & 1
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def unsigned(value: int, bits: int) -> int:
    """The unsigned reading of a signless value."""
    return value & ((1 << bits) - 1)


def truncated_division(a: int, b: int) -> int:
    """Quotient rounded toward zero; 0 for division by zero, which is undefined on the GPU."""
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _element_bits(op: Operation) -> int:
    element = ir.element_of(op.operands[0].type)
    return element.bits


def _integer(view: type[OpView], fold: Callable[[int, int, int], int]) -> OpSpec:
    def fold_op(op: Operation, operands: Sequence[Any]) -> Any:
        bits = _element_bits(op)
        return wrap(fold(int(operands[0]), int(operands[1]), bits), bits)

    return OpSpec(view, same_as_first, verifiers.integers, fold=fold_op)


_CMPI_PREDICATES: dict[str, Callable[[int, int, int], bool]] = {
    "eq": lambda a, b, n: a == b,
    "ne": lambda a, b, n: a != b,
    "slt": lambda a, b, n: a < b,
    "sle": lambda a, b, n: a <= b,
    "sgt": lambda a, b, n: a > b,
    "sge": lambda a, b, n: a >= b,
    "ult": lambda a, b, n: unsigned(a, n) < unsigned(b, n),
    "ule": lambda a, b, n: unsigned(a, n) <= unsigned(b, n),
    "ugt": lambda a, b, n: unsigned(a, n) > unsigned(b, n),
    "uge": lambda a, b, n: unsigned(a, n) >= unsigned(b, n),
}
_CMPF_PREDICATES = ("oeq", "olt", "ole", "ogt", "oge", "one", "une", "ord", "uno")


def _boolean_like_first(
    operands: Sequence[Type], attributes: Mapping[str, Attribute]
) -> Sequence[Type]:
    return (ir.with_element(operands[0], ir.I1),)


def _verify_cmpi(op: Operation) -> None:
    verifiers.integers(op)
    if op.attributes.get("predicate") not in _CMPI_PREDICATES:
        raise IRError(f"{op.name}: unknown predicate {op.attributes.get('predicate')!r}")


def _verify_cmpf(op: Operation) -> None:
    verifiers.floats(op)
    if op.attributes.get("predicate") not in _CMPF_PREDICATES:
        raise IRError(f"{op.name}: unknown predicate {op.attributes.get('predicate')!r}")


def _fold_cmpi(op: Operation, operands: Sequence[Any]) -> Any:
    predicate = _CMPI_PREDICATES[str(op.attributes["predicate"])]
    return int(predicate(int(operands[0]), int(operands[1]), _element_bits(op)))


def _float(view: type[OpView]) -> OpSpec:
    return OpSpec(view, same_as_first, verifiers.floats)


def _cast(
    view: type[OpView],
    verify: Verifier,
    fold: Callable[[int, int, int], int] | None = None,
) -> OpSpec:
    def fold_op(op: Operation, operands: Sequence[Any]) -> Any:
        assert fold is not None
        source = ir.element_of(op.operands[0].type).bits
        target = ir.element_of(op.result.type).bits
        return fold(int(operands[0]), source, target)

    folds = None if fold is None else fold_op
    return OpSpec(view, None, verify, fold=folds)


def _fold_shift_left(a: int, b: int, bits: int) -> int:
    return a << b if 0 <= b < bits else 0


OPS: tuple[OpSpec, ...] = (
    OpSpec(arith.Constant, None),
    _integer(arith.AddI, lambda a, b, n: a + b),
    _integer(arith.SubI, lambda a, b, n: a - b),
    _integer(arith.MulI, lambda a, b, n: a * b),
    _integer(
        arith.DivSI,
        lambda a, b, n: truncated_division(a, b),
    ),
    _integer(
        arith.DivUI,
        lambda a, b, n: truncated_division(unsigned(a, n), unsigned(b, n)),
    ),
    _integer(
        arith.RemSI,
        lambda a, b, n: a - truncated_division(a, b) * b,
    ),
    _integer(
        arith.RemUI,
        lambda a, b, n: (
            unsigned(a, n) - truncated_division(unsigned(a, n), unsigned(b, n)) * unsigned(b, n)
        ),
    ),
    _integer(arith.AndI, lambda a, b, n: a & b),
    _integer(arith.OrI, lambda a, b, n: a | b),
    _integer(arith.XOrI, lambda a, b, n: a ^ b),
    _integer(arith.ShLI, _fold_shift_left),
    _integer(
        arith.ShRSI,
        lambda a, b, n: a >> (b if 0 <= b < n else n - 1),
    ),
    _integer(
        arith.ShRUI,
        lambda a, b, n: unsigned(a, n) >> b if 0 <= b < n else 0,
    ),
    _integer(arith.MinSI, lambda a, b, n: min(a, b)),
    _integer(arith.MaxSI, lambda a, b, n: max(a, b)),
    _integer(
        arith.MinUI,
        lambda a, b, n: min(unsigned(a, n), unsigned(b, n)),
    ),
    _integer(
        arith.MaxUI,
        lambda a, b, n: max(unsigned(a, n), unsigned(b, n)),
    ),
    _integer(
        arith.MulHiUI,
        lambda a, b, n: (unsigned(a, n) * unsigned(b, n)) >> n,
    ),
    OpSpec(
        arith.CmpI,
        _boolean_like_first,
        _verify_cmpi,
        fold=_fold_cmpi,
    ),
    OpSpec(
        arith.CmpF,
        _boolean_like_first,
        _verify_cmpf,
    ),
    OpSpec(
        arith.Select,
        lambda operands, attributes: (operands[1],),
        verifiers.select,
    ),
    _float(
        arith.AddF,
    ),
    _float(
        arith.SubF,
    ),
    _float(
        arith.MulF,
    ),
    _float(
        arith.DivF,
    ),
    _float(
        arith.RemF,
    ),
    _float(arith.NegF),
    _float(
        arith.MaxNumF,
    ),
    _float(
        arith.MinNumF,
    ),
    _float(
        arith.MaximumF,
    ),
    _float(
        arith.MinimumF,
    ),
    _cast(
        arith.ExtSI,
        conversion("integers", "integers", "wider"),
        lambda value, source, target: value if source > 1 else -value,
    ),
    _cast(
        arith.ExtUI,
        conversion("integers", "integers", "wider"),
        lambda value, source, target: unsigned(value, source),
    ),
    _cast(
        arith.TruncI,
        conversion("integers", "integers", "narrower"),
        lambda value, source, target: wrap(value, target),
    ),
    _cast(
        arith.SIToFP,
        conversion("integers", "floats"),
    ),
    _cast(
        arith.UIToFP,
        conversion("integers", "floats"),
    ),
    _cast(
        arith.FPToSI,
        conversion("floats", "integers"),
    ),
    _cast(
        arith.FPToUI,
        conversion("floats", "integers"),
    ),
    _cast(
        arith.ExtF,
        conversion("floats", "floats", "wider"),
    ),
    _cast(
        arith.TruncF,
        conversion("floats", "floats", "narrower"),
    ),
    _cast(
        tt.FpToFp,
        conversion("floats", "floats"),
    ),
    _cast(
        tt.Bitcast,
        conversion("numbers or pointers", "numbers or pointers", "of equal width"),
    ),
    _cast(
        tt.PtrToInt,
        conversion("pointers", "integers"),
    ),
    _cast(
        tt.IntToPtr,
        conversion("integers", "pointers"),
    ),
)

LANGUAGE: dict[str, Builtin] = {}
