"""`Canonicalize`: hints reach later uses; constant folding and peephole rules to a fixed point.

Integer rules hold for wrapping arithmetic of any width; float rules only where the result is the
same under IEEE 754 for every operand, NaN and signed zeros included.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import arith, scf, tt, ttg
from tkdebug.compiler.dialects.interfaces import Cast, MaskedAccess
from tkdebug.compiler.dialects.table import FOLDING, OPS, PURE
from tkdebug.compiler.ir.constants import constant_value, constant_values
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import ScalarType, element_of, shape_of
from tkdebug.compiler.rewriting.rewriter import Pattern, Rewriter, apply_patterns, by_root


def _is_int(value: Value, wanted: float) -> bool:
    number = constant_value(value)
    if number is None or isinstance(number, float):
        return False
    element = element_of(value.type)
    # All ones is -1, except for i1, whose constant is 1.
    if wanted == -1 and isinstance(element, ScalarType) and element.bits == 1:
        wanted = 1
    return int(number) == wanted


def _is_float(value: Value, wanted: float) -> bool:
    number = constant_value(value)
    return (
        isinstance(number, float)
        and number == wanted
        and math.copysign(1.0, number) == math.copysign(1.0, wanted)
    )


def _defined_by(value: Value, name: str) -> Operation | None:
    owner = value.owner
    return owner if isinstance(owner, Operation) and owner.name == name else None


def _fold_constants(op: Operation, rewriter: Rewriter) -> bool:
    if op.name not in FOLDING or not op.operands or op.name not in PURE:
        return False
    numbers = constant_values(op.operands)
    if numbers is None or (op.name in arith.IntegerDivision.names and numbers[1] == 0):
        return False
    folded = OPS[op.name](op).fold(numbers)
    if folded is None:
        return False
    rewriter.replace_with_op(op, "fold-constants", arith.Constant, (), {"value": folded})
    return True


# By op: (operand index, constant): with that constant there, the op equals its other operand.
_Identities = Mapping[str, Sequence[tuple[int, float]]]


def _identities(binary: type[arith.Binary]) -> dict[str, list[tuple[int, float]]]:
    return {
        view.name: [(place, view.identity) for place in ((0, 1) if view.commutes else (1,))]
        for view in OPS.values()
        if issubclass(view, binary) and view.identity is not None and math.isfinite(view.identity)
    }


_INT_IDENTITIES: _Identities = {**_identities(arith.IntegerBinary), tt.AddPtr.name: [(1, 0)]}
# x + -0.0, x - 0.0, x * 1.0 and x / 1.0 are x for every x; x + 0.0 is not, for x = -0.0.
_FLOAT_IDENTITIES: _Identities = _identities(arith.FloatBinary)
# By op: the constant that the op equals if an operand is that constant.
_INT_ABSORBERS = {
    view.name: view.absorbing
    for view in OPS.values()
    if issubclass(view, arith.IntegerBinary) and view.absorbing is not None
}


def _side(op: Operation, index: int) -> tuple[Value, Value]:
    """The operand at `index` of two, then the other one."""
    left, right = op.operands
    return (right, left) if index else (left, right)


_IDEMPOTENT = names_of(arith.AndI, arith.OrI, arith.IntegerExtremum)


def _drop_integer_identity(op: Operation, rewriter: Rewriter) -> bool:
    for index, number in _INT_IDENTITIES[op.name]:
        operand, other = _side(op, index)
        if _is_int(operand, number) and other.type == op.results[0].type:
            rewriter.replace_with_values(op, "drop-identity", (other,))
            return True
    return False


def _absorb(op: Operation, rewriter: Rewriter) -> bool:
    for operand in op.operands:
        if _is_int(operand, _INT_ABSORBERS[op.name]):
            rewriter.replace_with_values(op, "absorb", (operand,))
            return True
    return False


def _drop_float_identity(op: Operation, rewriter: Rewriter) -> bool:
    for index, number in _FLOAT_IDENTITIES[op.name]:
        operand, other = _side(op, index)
        if _is_float(operand, number):
            rewriter.replace_with_values(op, "drop-identity", (other,))
            return True
    return False


def _fold_same_operands(op: Operation, rewriter: Rewriter) -> bool:
    left, right = op.operands
    if left is not right:
        return False
    if op.name in _IDEMPOTENT:
        rewriter.replace_with_values(op, "fold-same-operands", (left,))
        return True
    if arith.CmpI.matches(op):
        predicate = arith.CmpI(op).predicate
        answer = int(predicate in ("eq", "sle", "sge", "ule", "uge"))
    else:
        answer = 0
    rewriter.replace_with_op(op, "fold-same-operands", arith.Constant, (), {"value": answer})
    return True


def _fold_select(op: Operation, rewriter: Rewriter) -> bool:
    condition, first, second = op.operands
    number = constant_value(condition)
    if first is second or number is not None:
        chosen = first if first is second or number else second
        rewriter.replace_with_values(op, "fold-select", (chosen,))
        return True
    return False


# (outer, inner): outer(inner(x)) is x when the types agree.
_INVERSE_CASTS = {
    (arith.TruncI.name, arith.ExtSI.name),
    (arith.TruncI.name, arith.ExtUI.name),
    (arith.TruncF.name, arith.ExtF.name),
    (tt.Bitcast.name, tt.Bitcast.name),
    (tt.IntToPtr.name, tt.PtrToInt.name),
}
_WIDENING = (arith.ExtSI.name, arith.ExtUI.name, arith.ExtF.name)


def _drop_redundant_cast(op: Operation, rewriter: Rewriter) -> bool:
    (source,) = op.operands
    if source.type == op.results[0].type and tt.Bitcast.matches(op):
        rewriter.replace_with_values(op, "drop-redundant-cast", (source,))
        return True
    inner = source.owner
    if not isinstance(inner, Operation):
        return False
    if (op.name, inner.name) in _INVERSE_CASTS:
        original = Cast(inner).source
        if original.type == op.results[0].type:
            rewriter.replace_with_values(op, "drop-redundant-cast", (original,))
            return True
    if op.name == inner.name and op.name in (*_WIDENING, arith.TruncI.name, tt.Bitcast.name):
        rewriter.replace_with_op(op, "merge-casts", op.name, inner.operands, absorbed=(inner,))
        return True
    return False


def _is_exact(number: float, type_: ScalarType) -> bool:
    """Whether `number` is a value of a floating-point type, so that no rounding can happen."""
    match type_.name:
        case "f64":
            return True
        case "f32" | "bf16" | "f16":
            code = "e" if type_.name == "f16" else "f"
            try:
                (kept,) = struct.unpack("<" + code, struct.pack("<" + code, number))
            except OverflowError:
                return False
            # bf16 is the upper half of an f32.
            is_short = type_.name != "bf16" or struct.pack(">f", number)[2:] == b"\0\0"
            return bool(kept == number) and is_short
        case _:
            # The fp8 formats differ in having -0.0, infinities and NaN.
            return number == 0.0 and math.copysign(1.0, number) > 0


def _fold_exact_float_cast(op: Operation, rewriter: Rewriter) -> bool:
    """Fold a conversion of a constant to floating point that needs no rounding."""
    number = constant_value(Cast(op).source)
    source, target = element_of(Cast(op).source.type), element_of(op.results[0].type)
    if number is None or not isinstance(source, ScalarType) or not isinstance(target, ScalarType):
        return False
    if op.name in (arith.SIToFP.name, arith.UIToFP.name):
        if isinstance(number, float) or source.bits == 1 or abs(number) > 2**52:
            return False
        if arith.UIToFP.matches(op) and number < 0:
            return False
    elif not isinstance(number, float) or not _is_exact(number, source):
        return False
    if not _is_exact(float(number), target):
        return False
    value = float(number)
    rewriter.replace_with_op(op, "fold-constants", arith.Constant, (), {"value": value})
    return True


def _fold_exact_integer_cast(op: Operation, rewriter: Rewriter) -> bool:
    """Fold a conversion of a float constant to an integer that it equals and that fits."""
    number = constant_value(Cast(op).source)
    target = element_of(op.results[0].type)
    if not isinstance(number, float) or not number.is_integer():
        return False
    assert isinstance(target, ScalarType)
    signed = arith.FPToSI.matches(op)
    # Only values that both readings of the bits have: then the constant's sign does not matter.
    top = 2.0 ** (target.bits - 1)
    if not (-top if signed else 0.0) <= number < top:
        return False
    rewriter.replace_with_op(op, "fold-constants", arith.Constant, (), {"value": int(number)})
    return True


_FLOAT_CASTS = (
    arith.TruncF.name,
    arith.ExtF.name,
    tt.FpToFp.name,
    arith.SIToFP.name,
    arith.UIToFP.name,
)
_ORDER_KEEPING = (
    tt.Broadcast.name,
    tt.Reshape.name,
    tt.ExpandDims.name,
    tt.Trans.name,
    ttg.ConvertLayout.name,
)


def _move_splat_out(op: Operation, rewriter: Rewriter) -> bool:
    """Replace a change of shape or layout of a splat or constant by a new splat or constant."""
    (source,) = op.operands
    splat = _defined_by(source, tt.Splat.name)
    if splat is not None:
        rewriter.replace_with_op(
            op, "reshape-of-splat", tt.Splat, splat.operands, absorbed=(splat,)
        )
        return True
    return _fold_shape_of_constant(op, rewriter)


def _fold_shape_of_constant(op: Operation, rewriter: Rewriter) -> bool:
    (source,) = op.operands
    number = constant_value(source)
    if number is None:
        return False
    rewriter.replace_with_op(op, "fold-constants", arith.Constant, (), {"value": number})
    return True


def _drop_same_shape(op: Operation, rewriter: Rewriter) -> bool:
    (source,) = op.operands
    if source.type != op.results[0].type:
        return False
    rewriter.replace_with_values(op, "drop-same-shape", (source,))
    return True


def _merge_shape_ops(op: Operation, rewriter: Rewriter) -> bool:
    (source,) = op.operands
    inner = _defined_by(source, op.name)
    if inner is None:
        return False
    rewriter.replace_with_op(op, "merge-reshapes", op.name, inner.operands, absorbed=(inner,))
    return True


def _axes(op: Operation) -> Sequence[int]:
    return tt.Trans(op).order


def _merge_trans(op: Operation, rewriter: Rewriter) -> bool:
    order = _axes(op)
    (source,) = op.operands
    if list(order) == list(range(len(order))):
        rewriter.replace_with_values(op, "trans-identity", (source,))
        return True
    inner = _defined_by(source, tt.Trans.name)
    if inner is None:
        return False
    inner_order = _axes(inner)
    merged = tuple(inner_order[axis] for axis in order)
    if merged == tuple(range(len(merged))):
        rewriter.replace_with_values(op, "trans-of-trans", (tt.Trans(inner).source,))
    else:
        rewriter.replace_with_op(
            op, "trans-of-trans", tt.Trans, inner.operands, {"order": merged}, absorbed=(inner,)
        )
    return True


def _fold_unsplat(op: Operation, rewriter: Rewriter) -> bool:
    splat = _defined_by(tt.Unsplat(op).source, tt.Splat.name)
    if splat is None:
        return _fold_shape_of_constant(op, rewriter)
    rewriter.replace_with_values(op, "unsplat-of-splat", splat.operands)
    return True


def _fold_split(op: Operation, rewriter: Rewriter) -> bool:
    join = _defined_by(tt.Split(op).source, tt.Join.name)
    if join is None:
        return False
    rewriter.replace_with_values(op, "split-of-join", join.operands)
    return True


def _fold_if(op: Operation, rewriter: Rewriter) -> bool:
    number = constant_value(scf.If(op).condition)
    if number is None or (not number and len(op.regions) < 2):
        return False
    chosen = op.regions[0 if number else 1].block
    rewriter.replace_with_block(op, "fold-if", chosen)
    return True


def _fold_empty_for(op: Operation, rewriter: Rewriter) -> bool:
    numbers = constant_values(scf.For(op).bounds)
    if numbers is None or numbers[0] < numbers[1] or numbers[2] <= 0 or numbers[1] < 0:
        return False
    rewriter.erase_unreachable(op, "fold-empty-for", scf.For(op).inits)
    return True


def _inline_only_iteration(op: Operation, rewriter: Rewriter) -> bool:
    """Inline a loop of one iteration: a loop around it becomes innermost and can be pipelined."""
    numbers = constant_values(scf.For(op).bounds)
    if numbers is None or not 0 < numbers[1] - numbers[0] <= numbers[2]:
        return False
    arguments = (scf.For(op).lower, *scf.For(op).inits)
    rewriter.replace_with_block(op, "inline-only-iteration", op.regions[0].block, arguments)
    return True


def _drop_true_mask(op: Operation, rewriter: Rewriter) -> bool:
    """Drop a mask that is true everywhere."""
    access = MaskedAccess(op)
    mask = access.mask
    if mask is None or not constant_value(mask):
        return False
    if shape_of(mask.type) != shape_of(access.pointer.type):
        return False
    store = tt.Store.cast(op)
    operands = (access.pointer,) if store is None else (store.pointer, store.value)
    rewriter.replace_with_op(op, "drop-true-mask", op.name, operands, op.attributes)
    return True


_MERGEABLE = (tt.Broadcast.name, tt.Reshape.name, ttg.ConvertLayout.name)
_SAME_OPERANDS = (*_IDEMPOTENT, arith.CmpI.name, arith.SubI.name, arith.XOrI.name)
_CASTS = (*_WIDENING, arith.TruncI.name, arith.TruncF.name, tt.Bitcast.name, tt.IntToPtr.name)
_Rule = Callable[[Operation, Rewriter], bool]
_RULES: tuple[tuple[str, tuple[str, ...], _Rule], ...] = (
    ("drop-integer-identity", tuple(_INT_IDENTITIES), _drop_integer_identity),
    ("absorb", tuple(_INT_ABSORBERS), _absorb),
    ("drop-float-identity", tuple(_FLOAT_IDENTITIES), _drop_float_identity),
    ("fold-same-operands", _SAME_OPERANDS, _fold_same_operands),
    ("fold-select", (arith.Select.name,), _fold_select),
    ("drop-redundant-cast", _CASTS, _drop_redundant_cast),
    ("fold-exact-float-cast", _FLOAT_CASTS, _fold_exact_float_cast),
    ("fold-exact-integer-cast", (arith.FPToSI.name, arith.FPToUI.name), _fold_exact_integer_cast),
    ("drop-same-shape", _MERGEABLE, _drop_same_shape),
    ("merge-reshapes", _MERGEABLE, _merge_shape_ops),
    ("merge-trans", (tt.Trans.name,), _merge_trans),
    ("move-splat-out", _ORDER_KEEPING, _move_splat_out),
    ("fold-splat", (tt.Splat.name,), _fold_shape_of_constant),
    ("fold-unsplat", (tt.Unsplat.name,), _fold_unsplat),
    ("fold-split", (tt.Split.name,), _fold_split),
    ("fold-if", (scf.If.name,), _fold_if),
    ("fold-empty-for", (scf.For.name,), _fold_empty_for),
    ("inline-only-iteration", (scf.For.name,), _inline_only_iteration),
    ("drop-true-mask", (tt.Load.name, tt.Store.name), _drop_true_mask),
)


PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "fold-constants",
        tuple(sorted(FOLDING)),
        _fold_constants,
    ),
    *(Pattern(*rule) for rule in _RULES),
)


_PATTERNS = by_root(PATTERNS)


@dataclass(frozen=True, slots=True)
class Canonicalize:
    """Rewrites ops to their simplest form."""

    name: ClassVar[str] = "canonicalize"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Apply every rule until none matches."""
        for op in list(module.walk()):
            if tt.Hint.matches(op):
                _use_from_here(op, rewriter)
        apply_patterns(module, rewriter, _PATTERNS)


def _use_from_here(hint: Operation, rewriter: Rewriter) -> None:
    """Let users of a hint's operand after the hint use the hint instead.

    So `tl.multiple_of(x, 16)` holds for later uses of `x` without an assignment, as upstream.
    """
    (value,) = hint.operands
    block = hint.block
    assert block is not None
    if len(value.uses) == 1:
        return
    later = set(block.operations[block.operations.index(hint) + 1 :])
    for user in list(value.uses):
        if _is_within(user, block, later) and rewriter.begins(user, "use-hint"):
            user.replace_operand(value, hint.result)
            rewriter.record_change(user, "use-hint")


def _is_within(op: Operation | None, block: Block, ops: Collection[Operation]) -> bool:
    """Whether `op` is one of `ops` of `block`, or in one of their regions."""
    while op is not None and op.block is not block:
        op = None if op.block is None else op.block.parent_op
    return op in ops
