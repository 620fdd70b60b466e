"""Integer and float arithmetic, comparisons, selects and conversions (MLIR's arith dialect).

Integers are signless. Float ops round to their own type after every op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tkdebug.compiler.ir import Operation, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
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


def _integer(name: str, doc: str, fold: Callable[[int, int, int], int]) -> OpSpec:
    def fold_op(op: Operation, operands: Sequence[Any]) -> Any:
        bits = _element_bits(op)
        return wrap(fold(int(operands[0]), int(operands[1]), bits), bits)

    return OpSpec(name, doc, same_as_first, verifiers.integers, fold=fold_op, operands=2)


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


def _float(name: str, doc: str, operands: int = 2) -> OpSpec:
    return OpSpec(name, doc, same_as_first, verifiers.floats, operands=operands)


def _cast(
    name: str,
    doc: str,
    verify: Verifier,
    fold: Callable[[int, int, int], int] | None = None,
) -> OpSpec:
    def fold_op(op: Operation, operands: Sequence[Any]) -> Any:
        assert fold is not None
        source = ir.element_of(op.operands[0].type).bits
        target = ir.element_of(op.result.type).bits
        return fold(int(operands[0]), source, target)

    folds = None if fold is None else fold_op
    return OpSpec(name, doc, None, verify, operands=1, fold=folds)


def _fold_shift_left(a: int, b: int, bits: int) -> int:
    return a << b if 0 <= b < bits else 0


OPS: tuple[OpSpec, ...] = (
    OpSpec("arith.constant", "A constant, or a tile of one.", None, operands=0),
    _integer("arith.addi", "Integer sum, wrapping.", lambda a, b, n: a + b),
    _integer("arith.subi", "Integer difference, wrapping.", lambda a, b, n: a - b),
    _integer("arith.muli", "Integer product, wrapping.", lambda a, b, n: a * b),
    _integer(
        "arith.divsi",
        "Signed quotient toward zero.",
        lambda a, b, n: truncated_division(a, b),
    ),
    _integer(
        "arith.divui",
        "Unsigned quotient.",
        lambda a, b, n: truncated_division(unsigned(a, n), unsigned(b, n)),
    ),
    _integer(
        "arith.remsi",
        "Signed remainder, sign of the dividend.",
        lambda a, b, n: a - truncated_division(a, b) * b,
    ),
    _integer(
        "arith.remui",
        "Unsigned remainder.",
        lambda a, b, n: (
            unsigned(a, n) - truncated_division(unsigned(a, n), unsigned(b, n)) * unsigned(b, n)
        ),
    ),
    _integer("arith.andi", "Bitwise and.", lambda a, b, n: a & b),
    _integer("arith.ori", "Bitwise or.", lambda a, b, n: a | b),
    _integer("arith.xori", "Bitwise exclusive or.", lambda a, b, n: a ^ b),
    _integer("arith.shli", "Shift left.", _fold_shift_left),
    _integer(
        "arith.shrsi",
        "Arithmetic shift right.",
        lambda a, b, n: a >> (b if 0 <= b < n else n - 1),
    ),
    _integer(
        "arith.shrui",
        "Logical shift right.",
        lambda a, b, n: unsigned(a, n) >> b if 0 <= b < n else 0,
    ),
    _integer("arith.minsi", "Signed minimum.", lambda a, b, n: min(a, b)),
    _integer("arith.maxsi", "Signed maximum.", lambda a, b, n: max(a, b)),
    _integer(
        "arith.minui",
        "Unsigned minimum.",
        lambda a, b, n: min(unsigned(a, n), unsigned(b, n)),
    ),
    _integer(
        "arith.maxui",
        "Unsigned maximum.",
        lambda a, b, n: max(unsigned(a, n), unsigned(b, n)),
    ),
    _integer(
        "arith.mulhiui",
        "High half of the unsigned product.",
        lambda a, b, n: (unsigned(a, n) * unsigned(b, n)) >> n,
    ),
    OpSpec(
        "arith.cmpi",
        "Integer comparison.",
        _boolean_like_first,
        _verify_cmpi,
        fold=_fold_cmpi,
        operands=2,
    ),
    OpSpec(
        "arith.cmpf",
        "Float comparison; ordered predicates are false on NaN.",
        _boolean_like_first,
        _verify_cmpf,
        operands=2,
    ),
    OpSpec(
        "arith.select",
        "Chooses element by element; a scalar condition chooses whole values.",
        lambda operands, attributes: (operands[1],),
        verifiers.select,
        operands=3,
    ),
    _float("arith.addf", "Float sum."),
    _float("arith.subf", "Float difference."),
    _float("arith.mulf", "Float product."),
    _float("arith.divf", "Float quotient."),
    _float("arith.remf", "Float remainder, sign of the dividend."),
    _float("arith.negf", "Float negation.", operands=1),
    _float("arith.maxnumf", "Maximum that ignores NaN."),
    _float("arith.minnumf", "Minimum that ignores NaN."),
    _float("arith.maximumf", "Maximum that propagates NaN."),
    _float("arith.minimumf", "Minimum that propagates NaN."),
    _cast(
        "arith.extsi",
        "Sign extension.",
        conversion("integers", "integers", "wider"),
        lambda value, source, target: value if source > 1 else -value,
    ),
    _cast(
        "arith.extui",
        "Zero extension.",
        conversion("integers", "integers", "wider"),
        lambda value, source, target: unsigned(value, source),
    ),
    _cast(
        "arith.trunci",
        "Truncation to fewer bits.",
        conversion("integers", "integers", "narrower"),
        lambda value, source, target: wrap(value, target),
    ),
    _cast(
        "arith.sitofp",
        "Signed integer to float, to nearest even.",
        conversion("integers", "floats"),
    ),
    _cast(
        "arith.uitofp",
        "Unsigned integer to float.",
        conversion("integers", "floats"),
    ),
    _cast(
        "arith.fptosi",
        "Float to signed integer, toward zero, saturating; to i8, the low byte of an i16.",
        conversion("floats", "integers"),
    ),
    _cast(
        "arith.fptoui",
        "Float to unsigned integer, toward zero, saturating; to i8, the low byte of an i16.",
        conversion("floats", "integers"),
    ),
    _cast(
        "arith.extf",
        "Float to a wider float, exact.",
        conversion("floats", "floats", "wider"),
    ),
    _cast(
        "arith.truncf",
        "Float to a narrower float, to nearest even.",
        conversion("floats", "floats", "narrower"),
    ),
    _cast(
        "tt.fp_to_fp",
        "Float conversion with a rounding mode, fp8 saturating.",
        conversion("floats", "floats"),
    ),
    _cast(
        "tt.bitcast",
        "The same bits under another type of equal width.",
        conversion("numbers or pointers", "numbers or pointers", "of equal width"),
    ),
    _cast(
        "tt.ptr_to_int",
        "Address of a pointer in bytes.",
        conversion("pointers", "integers"),
    ),
    _cast(
        "tt.int_to_ptr",
        "Pointer to an address in bytes.",
        conversion("integers", "pointers"),
    ),
)

LANGUAGE: dict[str, Builtin] = {}
