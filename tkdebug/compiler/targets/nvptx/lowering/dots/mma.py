"""Lowering of tt.dot on tensor cores by mma.sync; `fma` lowers dots on FMA units.

Every thread (FMA) or warp (mma) holds the operands of its part of the product; they come in
`layouts.fma_operand` or `layouts.dot_operand`, accumulators in the layout they were made for.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" and the sections "Matrix Fragments for
mma.m16n8k16", "…m16n8k8", "…m16n8k32".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects import tt, ttg
from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import ScalarType, element_of
from tkdebug.compiler.layouts import LANE
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.dots.fma import Place, by_fma, lower_local_dot
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import (
    elements_of_word,
    word_of_elements,
)
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, LoweringError, Registers, llvm_type
from tkdebug.compiler.targets.target import MMA_SM80

_WORD_BITS = 32
# m16n8: the distance between the two rows (and K halves) that a thread holds.
_ROW_STEP = 8
_K_LANES = 4
_PTX_TYPES = {
    "f16": "f16",
    "bf16": "bf16",
    "f32": "tf32",
    "i8": "s8",
    "f8E4M3FN": "e4m3",
    "f8E5M2": "e5m2",
}
_ACC_TYPES = {"f16": "f16", "f32": "f32", "i32": "s32"}
# PTX keeps 10 of the 23 bits of an f32's mantissa when it reads it as tf32.
_TF32_MASK = -(1 << 13)


def lower_dot(
    ctx: Lowering, op: Operation, a: Registers, b: Registers, acc: Registers
) -> Sequence[Registers]:
    """The product plus acc by the unit that SelectTensorCores chose."""
    match tt.Dot(op).unit:
        case "fma":
            return (by_fma(ctx, op, a, b, acc),)
        case "mma":
            return (_by_mma(ctx, op, a, b, acc),)
        case unit:
            raise LoweringError.at(op, f"tt.dot on unit {unit!r}; native mode has fma and mma")


# Tensor cores


@dataclass(frozen=True, slots=True)
class _Instruction:
    """One kind of mma.sync.

    Attributes:
        name: the instruction with all its modifiers.
        acc_type: LLVM type of an accumulator word.
        acc_letter: LLVM's constraint for it.
        acc_words: words of accumulators that a thread holds, 2 for f16, else 4.
        halves: whether it takes one half of K, and two of it do the work of one other.
    """

    name: str
    acc_type: str
    acc_letter: str
    acc_words: int
    halves: bool = False

    @staticmethod
    def of(ctx: Lowering, op: Operation) -> _Instruction:
        a, b, acc = (element_of(value.type) for value in op.operands)
        assert isinstance(a, ScalarType)
        names = [_PTX_TYPES.get(str(a)), _PTX_TYPES.get(str(b)), _ACC_TYPES.get(str(acc))]
        if None in names:
            raise LoweringError.at(op, f"tt.dot: mma.sync does not multiply {a} by {b} into {acc}")
        halves = not ctx.target.has(MMA_SM80)
        if halves and str(a) != "f16":
            raise LoweringError.at(op, f"tt.dot: mma.sync of {ctx.target} does not multiply {a}")
        # m16n8k8 of 16-bit types is all that sm_75 has of these shapes.
        k = _ROW_STEP * _WORD_BITS // a.bits // (2 if halves else 1)
        sums = names[2]
        # Sums of bytes saturate, as upstream's do.
        ends = ".satfinite" if sums == "s32" else ""
        name = f"mma.sync.aligned.m16n8k{k}.row.col{ends}.{sums}.{names[0]}.{names[1]}.{sums}"
        if str(acc) == "f16":
            return _Instruction(name, "i32", "r", 2, halves)
        letter = "f" if str(acc) == "f32" else "r"
        return _Instruction(name, llvm_type(acc), letter, 4, halves)

    def parts(
        self, a: Sequence[LLVMValue], b: Sequence[LLVMValue]
    ) -> list[tuple[Sequence[LLVMValue], Sequence[LLVMValue]]]:
        """The words of each instruction, taken from the words along the whole of K."""
        return [(a[:2], b[:1]), (a[2:], b[1:])] if self.halves else [(a, b)]


def _by_mma(ctx: Lowering, op: Operation, a: Registers, b: Registers, acc: Registers) -> Registers:
    instruction = _Instruction.of(ctx, op)
    left, right = _Operand.of(ctx, op, 0), _Operand.of(ctx, op, 1)
    sums = Place.of(op, ctx.layout(op.result))
    totals = list(acc)
    # A tile smaller than the instruction's comes up in it again and again.
    rows_in_all, columns_in_all = sums.layout.shape[-2:]
    tiles = [at for at in sums.coordinates() if not at[-1] & 1 and not at[-2] & _ROW_STEP]
    products = [(a, b)]
    if tt.Dot(op).input_precision == "tf32x3" and a[0].type == "float":
        products = _split_products(ctx, a, b)
    places = {
        at: [
            sums.register(at[:-2], row % rows_in_all, column % columns_in_all)
            for row, column in _fragment(*at[-2:])
        ]
        for at in tiles
    }
    at_rows = dict.fromkeys((tuple(batch), m) for *batch, m, _ in tiles)
    at_columns = dict.fromkeys((tuple(batch), n) for *batch, _, n in tiles)
    for k in left.steps:
        rows = {at: [left.words(x, *at, k) for x, _ in products] for at in at_rows}
        columns = {at: [right.words(y, *at, k) for _, y in products] for at in at_columns}
        for (*batch, m, n), where in places.items():
            held = [totals[register] for register in where]
            for x, y in zip(rows[tuple(batch), m], columns[tuple(batch), n], strict=True):
                for a_words, b_words in instruction.parts(x, y):
                    held = _mma(ctx, instruction, a_words, b_words, held)
            for register, value in zip(where, held, strict=True):
                totals[register] = value
    return totals


def _fragment(m: int, n: int) -> list[tuple[int, int]]:
    """Rows and columns of c0 to c3."""
    return [(m, n), (m, n + 1), (m + _ROW_STEP, n), (m + _ROW_STEP, n + 1)]


@dataclass(frozen=True, slots=True)
class _Operand:
    """Operand A or B in registers, by the words of an instruction.

    Attributes:
        index: 0 for A, 1 for B.
        place: the operand's registers.
        per_word: elements of a 32-bit word.
        width: consecutive elements along K that a thread holds.
        steps: for each instruction along K the coordinate of its first word in this thread.
    """

    ctx: Lowering
    index: int
    place: Place
    per_word: int
    width: int
    steps: tuple[int, ...]

    @staticmethod
    def of(ctx: Lowering, op: Operation, index: int) -> _Operand:
        value = DotLike(op).factors[index]
        layout = ctx.layout(value)
        k_dim = layout.out_dims[-1 if index == 0 else -2]
        width = layout.unpack_out(layout.packed_bases(LANE)[0])[k_dim]
        bits = element_of(value.type).bits
        per_word = max(1, _WORD_BITS // bits)
        depth = layout.out_size(k_dim)
        tile = 2 * _K_LANES * width
        if width < per_word or depth < tile:
            raise LoweringError.at(
                op, f"tt.dot: operand {index} has {width} of {depth} elements along K in a thread"
            )
        steps = tuple(
            first + word for first in range(0, depth, tile) for word in range(0, width, per_word)
        )
        return _Operand(ctx, index, Place.of(op, layout), per_word, width, steps)

    def words(self, x: Registers, batch: tuple[int, ...], kept: int, k: int) -> list[LLVMValue]:
        """The instruction's words: for A two rows, then both K halves; for B the two halves."""
        rows = [kept]
        if self.index == 0:
            rows.append((kept + _ROW_STEP) % self.place.layout.shape[-2])
        return [
            self._word(x, batch, row, k + half)
            for half in (0, _K_LANES * self.width)
            for row in rows
        ]

    def _word(self, x: Registers, batch: tuple[int, ...], kept: int, k: int) -> LLVMValue:
        elements = []
        for i in range(self.per_word):
            at = (kept, k + i) if self.index == 0 else (k + i, kept)
            elements.append(x[self.place.register(batch, *at)])
        return word_of_elements(self.ctx, elements)


def _mma(
    ctx: Lowering,
    instruction: _Instruction,
    a: Sequence[LLVMValue],
    b: Sequence[LLVMValue],
    held: Sequence[LLVMValue],
) -> list[LLVMValue]:
    """Write one instruction; the accumulators are tied, so that they stay in their registers."""
    emit = ctx.emit
    element = held[0].type
    packed = list(held)
    if instruction.acc_words == 2:
        packed = [word_of_elements(ctx, held[:2]), word_of_elements(ctx, held[2:])]
    count = instruction.acc_words
    groups = []
    first = 0
    for size in (count, len(a), len(b)):
        groups.append("{" + ", ".join(f"${i}" for i in range(first, first + size)) + "}")
        first += size
    letter = instruction.acc_letter
    constraints = [f"={letter}"] * count + ["r"] * (len(a) + len(b))
    constraints += [str(i) for i in range(count)]
    got = emit.asm(
        f"{instruction.name} {groups[0]}, {groups[1]}, {groups[2]}, {groups[0]};",
        ",".join(constraints),
        f"{{ {', '.join([instruction.acc_type] * count)} }}",
        (*a, *b, *packed),
        side_effects=False,
        convergent=True,
    )
    words = [emit.extract_value(got, i, instruction.acc_type) for i in range(count)]
    if count == 2:
        return [value for word in words for value in elements_of_word(ctx, word, element, 2)]
    return words


def _split_products(ctx: Lowering, a: Registers, b: Registers) -> list[tuple[Registers, Registers]]:
    """Three products of tf32 parts that together have nearly f32's precision; small ones first."""
    a_high, a_finite, a_low = _split(ctx, a)
    b_high, b_finite, b_low = _split(ctx, b)
    return [(a_low, b_finite), (a_finite, b_low), (a_high, b_high)]


def _split(ctx: Lowering, x: Registers) -> tuple[Registers, Registers, Registers]:
    """The part of each value that tf32 keeps, that part if it is finite (else 0), and the rest.

    Infinity times the rest 0 of another value would be NaN.
    """
    emit = ctx.emit
    high, finite, low = [], [], []
    zero = LLVMValue("float", "0.0")
    for value in x:
        kept = ctx.from_bits(emit.bit_and(ctx.to_bits(value), integer("i32", _TF32_MASK)), "float")
        rest = emit.binary("fsub", value, kept)
        # The rest of infinities and NaN is NaN.
        is_nan = emit.fcmp("uno", rest, rest)
        high.append(kept)
        finite.append(emit.select(is_nan, zero, kept))
        low.append(emit.select(is_nan, zero, rest))
    return high, finite, low


LOWERINGS: dict[str, Lower] = {tt.Dot.name: lower_dot, ttg.LocalDot.name: lower_local_dot}
