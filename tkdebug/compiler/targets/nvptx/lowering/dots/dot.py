"""Lowering of dots on tensor cores by mma.sync, and on FMA units.

Every thread (FMA) or warp (mma) holds the operands of its part of the product; they come in
`layouts.fma_operand` or `layouts.dot_operand`, accumulators in the layout they were made for.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" and the sections "Matrix Fragments for
mma.m16n8k16", "…m16n8k8", "…m16n8k32".

tt.dot has its operands in registers (`layouts.fma_operand`: each thread holds the whole K of what
it multiplies). ttg.local_dot reads them from shared memory as it goes along K, so that a thread
holds a few k of them at a time; elements that many threads read at once are broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects import tt, ttg
from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import MemDescType, ScalarType, element_of, shape_of
from tkdebug.compiler.layouts import LANE, OFFSET, REGISTER, LinearLayout, f2, fma_operand
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering import floats8
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import (
    elements_of_word,
    widened,
    word_of_elements,
)
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.buffers import (
    buffer_place,
    buffer_type,
    load_part,
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


@dataclass(frozen=True, slots=True)
class Place:
    """A map from a tile's coordinates to the register that holds the element.

    The coordinates are those that the register alone contributes; lane and warp contribute the same
    to both operands and the accumulators.
    """

    op: Operation
    layout: LinearLayout
    registers: dict[tuple[int, ...], int]

    @staticmethod
    def of(op: Operation, layout: LinearLayout) -> Place:
        """The place of a tile in `layout`; errors name `op`."""
        registers: dict[tuple[int, ...], int] = {}
        for register, packed in enumerate(f2.spanned(layout.packed_bases(REGISTER))):
            registers.setdefault(tuple(layout.unpack_out(packed).values()), register)
        return Place(op, layout, registers)

    def register(self, batch: tuple[int, ...], row: int, column: int) -> int:
        """Return the register with these coordinates.

        Raises:
            LoweringError: no register has them.
        """
        found = self.registers.get((*batch, row, column))
        if found is None:
            raise LoweringError.at(
                self.op,
                f"{self.op.name}: no register holds {(*batch, row, column)} of a tile "
                f"{self.layout.shape}",
            )
        return found

    def coordinates(self) -> list[tuple[int, ...]]:
        """The coordinates of each register."""
        return [
            tuple(self.layout.unpack_out(v).values())
            for v in f2.spanned(self.layout.packed_bases(REGISTER))
        ]


_ACCESS_BYTES = 16
# More k at once would take more registers than they save accesses.
_MOST_K = 4
# Products of a thread that are written out; more are a loop, whose code stays in the cache.
_MOST_PRODUCTS = 2048

Step = Callable[[LLVMValue, LLVMValue, LLVMValue], LLVMValue]


def by_fma(ctx: Lowering, op: Operation, a: Registers, b: Registers, acc: Registers) -> Registers:
    """Compute a dot by FMA: each thread runs over all of K for each of its accumulators."""
    places = [Place.of(op, ctx.layout(value)) for value in op.operands]
    acc_type = ctx.element_type(op.result)
    # Halves are summed as the tensor cores do it: in single precision, rounded at the end.
    wide = "float" if acc_type in ("half", "bfloat") else acc_type
    a, b = (_widened(ctx, op, i, x, wide) for i, x in enumerate((a, b)))
    totals = [_converted(ctx, value, wide) for value in acc]
    step = _step(ctx, wide)
    at = places[2].coordinates()
    for k in range(shape_of(DotLike(op).a.type)[-1]):
        # All accumulators for one k: independent instructions next to each other.
        for index, (*batch, m, n) in enumerate(at):
            left = a[places[0].register(tuple(batch), m, k)]
            right = b[places[1].register(tuple(batch), k, n)]
            totals[index] = step(left, right, totals[index])
    return [_converted(ctx, value, acc_type) for value in totals]


# Operands in shared memory


@dataclass(frozen=True, slots=True)
class _Streamed:
    """An operand that is read from shared memory a few k at a time.

    Attributes:
        op: the dot.
        index: 0 for A, 1 for B.
        memory: the operand's buffer.
        fixed: the operand's beginning in the buffer, XORed to offsets, in elements.
        layout: the elements that a thread reads at once, in the buffer's sizes.
        place: the same elements, by their coordinates in the part that is read at once.
        step: the number of k that are read at once.
        stride: the distance in memory from the first of `span` k to that of the next, in bytes.
        span: the number of k after which the swizzle repeats.
    """

    op: Operation
    index: int
    memory: MemDescType
    fixed: int
    layout: LinearLayout
    place: Place
    step: int
    stride: int
    span: int

    @staticmethod
    def of(op: Operation, index: int, acc: LinearLayout, fixed: int) -> _Streamed:
        memory = buffer_type(DotLike(op).factors[index])
        shape = memory.buffer_shape
        k_axis = len(shape) - (1 if index == 0 else 2)
        k_dim = memory.layout.out_dims[k_axis]
        along_k = _offsets_along(memory.layout, k_dim)
        # Only where K is contiguous is a vector one of several k.
        step = min(shape[k_axis], _MOST_K, _ACCESS_BYTES // memory.element_bytes)
        step = step if along_k[:1] == [1] else 1
        part = (*shape[:k_axis], step, *shape[k_axis + 1 :])
        layout = fma_operand(acc, index, part).without_zero_bases(REGISTER)
        whole = widened(layout, memory.layout)
        used = fixed
        to_offset = whole.invert_and_compose(memory.layout)
        for vector in (v for dim in to_offset.in_dims for v in to_offset.packed_bases(dim)):
            used |= to_offset.unpack_out(vector)[OFFSET]
        bit = len(along_k)
        while bit and not along_k[bit - 1] & used and _is_double(along_k, bit):
            bit -= 1
        span = max(step, 1 << bit)
        stride = along_k[bit] * memory.element_bytes if bit < len(along_k) else 0
        return _Streamed(op, index, memory, fixed, whole, Place.of(op, layout), step, stride, span)

    def load(self, ctx: Lowering, base: LLVMValue, k: int, wide: str) -> Registers:
        """Return the elements from `k` on, as type `wide`."""
        layout = self.memory.layout
        start = [0] * len(layout.out_dims)
        start[len(start) - (1 if self.index == 0 else 2)] = k
        at = dict(zip(layout.out_dims, start, strict=True))
        offset = layout.unpack_in(layout.solve(layout.pack_out(at)))[OFFSET]
        found = load_part(ctx, base, self.fixed ^ offset, self.memory, self.layout)
        return _widened(ctx, self.op, self.index, found, wide)


def _offsets_along(layout: LinearLayout, dim: str) -> list[int]:
    """The offset in elements of each bit of the coordinate in `dim`."""
    bits = layout.out_size(dim).bit_length() - 1
    solved = (layout.solve(layout.pack_out({dim: 1 << bit})) for bit in range(bits))
    return [layout.unpack_in(packed)[OFFSET] for packed in solved]


def _is_double(offsets: Sequence[int], bit: int) -> bool:
    """Whether the offset of `bit` doubles that of the bit below; True after the highest bit."""
    return bit == len(offsets) or offsets[bit] == 2 * offsets[bit - 1]


def lower_local_dot(
    ctx: Lowering, op: Operation, a: Registers, b: Registers, acc: Registers
) -> Sequence[Registers]:
    """Lower `ttg.local_dot`: accumulators stay in registers, operands come a few k at a time."""
    layout = ctx.layout(op.result)
    acc_type = ctx.element_type(op.result)
    wide = "float" if acc_type in ("half", "bfloat") else acc_type
    streams, bases = [], []
    for index, pointer in enumerate((a[0], b[0])):
        base, fixed = buffer_place(ctx, op, DotLike(op).factors[index], pointer)
        bases.append(base)
        streams.append(_Streamed.of(op, index, layout, fixed))
    depth = shape_of(DotLike(op).a.type)[-1]
    unrolled = max(*(stream.span for stream in streams), _MOST_PRODUCTS // len(acc))
    body = _Body(ctx, streams, Place.of(op, layout).coordinates(), wide, min(unrolled, depth))
    totals = [_converted(ctx, value, wide) for value in acc]
    if unrolled >= depth:
        totals = body.emit(bases, totals)
    else:
        totals = _looped(ctx, body, bases, totals, depth // unrolled)
    return ([_converted(ctx, value, acc_type) for value in totals],)


@dataclass(frozen=True, slots=True)
class _Body:
    """Writes the products of consecutive k.

    Attributes:
        ctx: the kernel.
        streams: both operands.
        at: coordinates of each accumulator.
        wide: the type that is computed in.
        depth: the number of k.
    """

    ctx: Lowering
    streams: Sequence[_Streamed]
    at: Sequence[tuple[int, ...]]
    wide: str
    depth: int

    def emit(self, bases: Sequence[LLVMValue], acc: Registers) -> Registers:
        """Load operands from `bases` on; return the accumulators with their products added."""
        left, right = self.streams
        totals, step = list(acc), _step(self.ctx, self.wide)
        a: Registers = []
        b: Registers = []
        for k in range(self.depth):
            if k % left.step == 0:
                a = left.load(self.ctx, bases[0], k, self.wide)
            if k % right.step == 0:
                b = right.load(self.ctx, bases[1], k, self.wide)
            for index, (*batch, m, n) in enumerate(self.at):
                x = a[left.place.register(tuple(batch), m, k % left.step)]
                y = b[right.place.register(tuple(batch), k % right.step, n)]
                totals[index] = step(x, y, totals[index])
        return totals


def _looped(
    ctx: Lowering, body: _Body, bases: Sequence[LLVMValue], acc: Registers, count: int
) -> Registers:
    """Write a loop of `count` iterations of the body; operands advance by a fixed distance."""
    emit = ctx.emit
    before, inside, after = emit.block, emit.new_block("dot.body"), emit.new_block("dot.end")
    emit.branch(inside)
    emit.start(inside)
    counter = emit.phi("i32")
    carried = [emit.phi(value.type) for value in acc]
    counter.add_incoming(integer("i32", 0), before)
    moved = [
        emit.gep(base, "i8", emit.mul(counter.value, stream.stride * (body.depth // stream.span)))
        for base, stream in zip(bases, body.streams, strict=True)
    ]
    totals = body.emit(moved, [phi.value for phi in carried])
    following = emit.add(counter.value, 1)
    counter.add_incoming(following, emit.block)
    for phi, start, value in zip(carried, acc, totals, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(value, emit.block)
    emit.branch_if(emit.icmp("slt", following, count), inside, after)
    emit.start(after)
    return totals


def _step(ctx: Lowering, type_: str) -> Step:
    emit = ctx.emit
    if type_[0] == "i":
        return lambda x, y, total: emit.add(emit.mul(x, y), total)
    name = {"float": "llvm.fma.f32", "double": "llvm.fma.f64"}[type_]
    return lambda x, y, total: emit.intrinsic(name, x, y, total)


def _widened(ctx: Lowering, op: Operation, index: int, x: Registers, wide: str) -> Registers:
    element = element_of(DotLike(op).factors[index].type)
    x = floats8.readable(ctx, element, x)
    return [_converted(ctx, value, wide) for value in x]


def _converted(ctx: Lowering, value: LLVMValue, type_: str) -> LLVMValue:
    if value.type == type_:
        return value
    if value.type[0] == "i" and type_[0] == "i":
        return ctx.emit.cast("sext", value, type_)
    wider = TYPE_BITS[type_] > TYPE_BITS[value.type]
    return ctx.emit.cast("fpext" if wider else "fptrunc", value, type_)


def lower_dot(
    ctx: Lowering, op: Operation, a: Registers, b: Registers, acc: Registers
) -> Sequence[Registers]:
    """Lower `tt.dot`: the product plus acc, by the unit that SelectTensorCores chose."""
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
        halves: whether it covers only half of the usual K, so that two of it replace one.
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
        """Return the A and B words of each instruction, out of the words of one step along K."""
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
    """(row, column) of a thread's accumulators c0 to c3, from (m, n) of c0."""
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
        """The instruction's words: for each half of K, both rows of A, or the one column of B."""
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
    """Write one instruction, and return its sums; tied accumulators stay in their registers."""
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
