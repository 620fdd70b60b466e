"""Lowering of dots on FMA units.

tt.dot has its operands in registers (`layouts.fma_operand`: each thread holds the whole K of what
it multiplies). ttg.local_dot reads them from shared memory as it goes along K, so that a thread
holds a few k of them at a time; elements that many threads read at once are broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import MemDescType, element_of, shape_of
from tkdebug.compiler.layouts import OFFSET, REGISTER, LinearLayout, f2, fma_operand
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering import floats8
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import widened
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.buffers import (
    buffer_place,
    buffer_type,
    load_part,
)
from tkdebug.compiler.targets.nvptx.lowering.types import LoweringError, Registers


@dataclass(frozen=True, slots=True)
class Place:
    """A tile in registers: which register holds the element at some coordinates.

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
        """The register with these coordinates."""
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
    """Every thread runs over all of K for each of its accumulators."""
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
        place: the same, in the sizes of what is read at once.
        step: k that are read at once.
        stride: the distance from `span` k to the next ones in memory, in bytes.
        span: k after which the same swizzle comes again.
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
        """The elements from `k` on, of type `wide`."""
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
    """Whether the offset of `bit` doubles that of the bit below; true for the lowest."""
    return bit == len(offsets) or offsets[bit] == 2 * offsets[bit - 1]


def lower_local_dot(
    ctx: Lowering, op: Operation, a: Registers, b: Registers, acc: Registers
) -> Sequence[Registers]:
    """Accumulators stay in registers; operands come a few k at a time."""
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
    """The products of consecutive k.

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
        """Load and multiply from `bases` on."""
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
    """`count` rounds of the body as a loop, whose operands advance by a fixed step."""
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
