"""Verifiers that many ops share: which element types and shapes their operands may have.

They run when an op is emitted and after each pass that is verified, so they stay cheap.
"""

from __future__ import annotations

from collections.abc import Callable

from tkdebug.compiler.ir import Operation, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ops.spec import Verifier
from tkdebug.errors import IRError

# What an element may be, by the word for it in messages.
_KINDS: dict[str, Callable[[ir.ScalarType | ir.PointerType], bool]] = {
    "integers": lambda element: isinstance(element, ir.ScalarType) and element.is_integer,
    "floats": lambda element: isinstance(element, ir.ScalarType) and element.is_float,
    "pointers": lambda element: isinstance(element, ir.PointerType),
    "numbers or pointers": lambda element: True,
}
_WIDTHS: dict[str, Callable[[int, int], bool]] = {
    "narrower": lambda source, target: target < source,
    "wider": lambda source, target: target > source,
    "of equal width": lambda source, target: target == source,
}


def same_operands(op: Operation) -> None:
    """All operands are of one type."""
    types = {value.type for value in op.operands}
    if len(types) > 1:
        raise IRError(f"{op.name}: operand types differ: {', '.join(map(str, types))}")


def integers(op: Operation) -> None:
    """All operands are integers of one type."""
    same_operands(op)
    _require(op, op.operands[0].type, "integers")


def floats(op: Operation) -> None:
    """All operands are floats of one type."""
    same_operands(op)
    _require(op, op.operands[0].type, "floats")


def conversion(source: str, target: str, width: str | None = None) -> Verifier:
    """A verifier of element by element conversions.

    Args:
        source: kind of what is converted, a key of `_KINDS`.
        target: kind of what it becomes.
        width: how an element of the result is against one of the operand: a key of `_WIDTHS`,
            None for any.
    """

    def verify(op: Operation) -> None:
        before, after = op.operands[0].type, op.result.type
        _require(op, before, source)
        _require(op, after, target)
        if ir.shape_of(before) != ir.shape_of(after):
            raise IRError(f"{op.name}: shapes differ: {before} and {after}")
        if width is not None:
            bits = ir.element_of(before).bits, ir.element_of(after).bits
            if not _WIDTHS[width](*bits):
                raise IRError(f"{op.name}: got {after} for {before}, expected it {width}")

    return verify


def select(op: Operation) -> None:
    """Two values of one type, and an i1 for each element or for all."""
    condition, chosen, other = (value.type for value in op.operands)
    if chosen != other:
        raise IRError(f"{op.name}: operand types differ: {chosen}, {other}")
    if ir.element_of(condition) != ir.I1:
        raise IRError(f"{op.name}: got a condition of {condition}, expected i1")
    if ir.shape_of(condition) not in ((), ir.shape_of(chosen)):
        raise IRError(f"{op.name}: got a condition of {condition} for values of {chosen}")


def _require(op: Operation, type_: Type, kind: str) -> None:
    if not _KINDS[kind](ir.element_of(type_)):
        raise IRError(f"{op.name}: got {type_}, expected {kind}")
