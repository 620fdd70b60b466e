"""Lowering of warpgroup dots to wgmma.mma_async.

One fence, then an inline-asm block per accumulator tile with all steps along K, and after the last
tile the commit. The accumulators are tied operands, so that they stay in their registers. All of
them, and the fragments of A, pass through the fence: a register that is written between the blocks
would make ptxas wait for the running ones (its note C7517). Descriptors and fragment order are the
hardware's. Each step has a descriptor of its own, which LLVM may compute before a loop. Kernels
with many steps would spill these: a block then gets one for each operand, and adds to it.

Source: PTX ISA, "Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async", "Matrix
Descriptor Format", "Register Fragments and Shared Memory Matrix Layouts".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tkdebug.compiler.dialects import ttng
from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir import MemDescType, Operation, Value
from tkdebug.compiler.ir.types import TensorType, element_of, shape_of
from tkdebug.compiler.layouts import OFFSET, REGISTER, WARP, LinearLayout, f2
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Lower, LoweringError, Registers

_PTX_TYPES = {
    "f16": "f16",
    "bf16": "bf16",
    "f32": "tf32",
    "f8E4M3FN": "e4m3",
    "f8E5M2": "e5m2",
    "i8": "s8",
}
_MAX_N = 256
# Sums on FMA units take as many registers again as the accumulators, so these tiles are narrow.
_PARTIAL_MAX_N = 64
_K_BYTES = 32
# "Matrix Descriptor Format": bits 62-63, by bytes of the swizzle.
_SWIZZLE_MODES = {128: 1, 64: 2, 32: 3, 16: 0}
# Attention's forward pass has 40 at most, and is up to 5 % slower where it adds in its loop; its
# backward pass has 73 of heads of 64 elements, 137 of 128 (H200, CUDA 13.0).
_MOST_DESCRIPTORS = 64
# 16-bit words of A that a thread holds for one step.
_A_ELEMENTS = 8


@dataclass(frozen=True, slots=True)
class _Matrix:
    """An operand in shared memory.

    Attributes:
        descriptor: its matrix descriptor without the address.
        to_offset: coordinates -> offset in elements.
        is_transposed: whether not K but the other dimension is contiguous.
        element_bytes: size of an element.
    """

    descriptor: int
    to_offset: LinearLayout
    is_transposed: bool
    element_bytes: int


def _matrix(op: Operation, value: Value, k_dim: int) -> _Matrix:
    """Read swizzle and order off the buffer's layout, as `layouts.nvmma_shared` makes it."""
    type_ = value.type
    assert isinstance(type_, MemDescType)
    layout, element_bytes = type_.layout, element_of(value.type).bits // 8
    bases = layout.bases(OFFSET)
    contiguous = 0 if bases and bases[0][0] else 1
    chunk = 16 // element_bytes
    width = 1
    while width < layout.shape[contiguous] and width * element_bytes < 128:
        basis = bases[width.bit_length() - 1]
        if basis[contiguous] != width or basis[1 - contiguous]:
            break
        width *= 2
    row_bytes = width * element_bytes
    if row_bytes not in _SWIZZLE_MODES or width < chunk:
        raise LoweringError.at(op, f"{op.name}: a buffer of {type_} is not a wgmma operand")
    is_transposed = contiguous != k_dim
    rows = layout.shape[1 - contiguous]
    # Between groups of 8 rows, and between columns of tiles.
    stride_bytes, leading_bytes = 8 * row_bytes, row_bytes * rows
    descriptor = (
        (leading_bytes >> 4 & 0x3FFF) << 16
        | (stride_bytes >> 4 & 0x3FFF) << 32
        | _SWIZZLE_MODES[row_bytes] << 62
    )
    return _Matrix(descriptor, layout.pseudo_inverse(), is_transposed, element_bytes)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The partition of the accumulators into instructions.

    Attributes:
        n: columns of one instruction.
        origins: (row, column) of each tile, without the warp's offset.
        per_tile: accumulator registers of a tile.
        k: elements of one step along K.
        steps: steps along K.
    """

    n: int
    origins: tuple[tuple[int, int], ...]
    per_tile: int
    k: int
    steps: int


def _shape(acc: LinearLayout, k_size: int, element_bytes: int, max_n: int) -> _Shape:
    bases = acc.bases(REGISTER)
    n, bit = 8, 2
    while bit < len(bases) and bases[bit] == (0, n) and n < max_n:
        n, bit = 2 * n, bit + 1
    origins = tuple(
        (acc.unpack_out(v)["dim0"], acc.unpack_out(v)["dim1"])
        for v in f2.spanned(acc.packed_bases(REGISTER)[bit:])
    )
    k = _K_BYTES // element_bytes
    return _Shape(n, origins, n // 2, k, k_size // k)


def lower_warp_group_dot(
    ctx: Lowering, op: Operation, a: Registers, b: Registers, acc: Registers
) -> Sequence[Registers]:
    """Lower `ttng.warp_group_dot` to one block per tile; wait for the result unless `async`."""
    a_value, b_value = DotLike(op).a, DotLike(op).b
    element_bytes = element_of(b_value.type).bits // 8
    layout = ctx.layout(op.result)
    depth = shape_of(a_value.type)[1]
    steps = imprecise_steps(op, _K_BYTES // element_bytes)
    # Also where a part is the whole of K: sums carried from dot to dot are in fp32.
    in_parts = steps is not None and steps * _K_BYTES <= depth * element_bytes
    shape = _shape(layout, depth, element_bytes, _PARTIAL_MAX_N if in_parts else _MAX_N)
    adds_in_blocks = _adds_in_blocks(ctx)
    matrix_b = _matrix(op, b_value, 0)
    matrix_a = _matrix(op, a_value, 1) if isinstance(a_value.type, MemDescType) else None
    if matrix_a is not None:
        a_inputs = _descriptors(
            ctx, layout, matrix_a, a[0], shape, 0, adds_in_blocks=adds_in_blocks
        )
    else:
        a_inputs = [_fragments(ctx, a, shape, origin) for origin in shape.origins]
    b_inputs = _descriptors(ctx, layout, matrix_b, b[0], shape, 1, adds_in_blocks=adds_in_blocks)
    if not in_parts:
        acc, a_inputs = _fence(ctx, acc, a_inputs, matrix_a is None)
    done: Registers = []
    for index in range(len(shape.origins)):
        mine = acc[index * shape.per_tile : (index + 1) * shape.per_tile]
        if in_parts:
            assert steps is not None
            part = _Block(op, replace(shape, steps=steps), matrix_a, matrix_b, True, True)
            done += _in_parts(ctx, part, mine, a_inputs[index], b_inputs[index])
            continue
        is_last = index == len(shape.origins) - 1
        block = _Block(op, shape, matrix_a, matrix_b, is_last)
        done += block.emit(ctx, mine, a_inputs[index], b_inputs[index])
    if not ttng.WarpGroupDot(op).is_async:
        done = wait(ctx, done, 0)
    return (done,)


def _fence(
    ctx: Lowering, acc: Registers, a_inputs: Sequence[_Input], has_fragments: bool
) -> tuple[Registers, list[_Input]]:
    """Order earlier writes to the registers before the tensor core's.

    Returns:
        The accumulators, and A's inputs of each tile, as they are after the fence.
    """
    # Tiles beside each other share A's fragments.
    words = (word for tile in a_inputs for word in tile.values)
    fragments = list(dict.fromkeys(words)) if has_fragments else []
    values = [*acc, *fragments]
    letters = {"i32": "r", "float": "f"}
    constraints = [f"={letters[value.type]}" for value in values]
    text = "wgmma.fence.sync.aligned;"
    fenced = tied(ctx, text, [*constraints, *map(str, range(len(values)))], values)
    after = dict(zip(fragments, fenced[len(acc) :], strict=True))
    inputs = [
        replace(tile, values=tuple(after.get(value, value) for value in tile.values))
        for tile in a_inputs
    ]
    return fenced[: len(acc)], inputs


def imprecise_steps(op: Operation, k: int) -> int | None:
    """Steps along K whose sums may stay in the tensor core; None when all may."""
    limit = DotLike(op).max_num_imprecise_acc
    return None if limit is None or limit <= 0 else max(1, limit // k)


def _in_parts(
    ctx: Lowering,
    part: _Block,
    acc: Registers,
    a_input: _Input,
    b_input: _Input,
) -> Registers:
    """Sum some steps from zero on the tensor core, then add that to `acc` in fp32 by FMA units."""
    zeros = [LLVMValue(value.type, "0.0") for value in acc]
    steps = part.shape.steps
    for first in range(0, b_input.steps, steps):
        sums = part.emit(
            ctx, zeros, a_input.cut(first, first + steps), b_input.cut(first, first + steps)
        )
        sums = wait(ctx, sums, 0)
        pairs = zip(acc, sums, strict=True)
        acc = [ctx.emit.binary("fadd", total, more) for total, more in pairs]
    return acc


@dataclass(frozen=True, slots=True)
class _Input:
    """The part of one operand that a tile's steps read.

    Attributes:
        steps: the number of steps.
        values: registers with fragments, as many for each step; or descriptors, i64: one for each
            step, or one for all steps.
        moves: the offset of each step from the descriptor for all; empty if there is none.
    """

    steps: int
    values: tuple[LLVMValue, ...]
    moves: tuple[int, ...] = ()

    def cut(self, first: int, end: int) -> _Input:
        """Return the input of the steps from `first` up to `end`."""
        if self.moves:
            return _Input(end - first, self.values, self.moves[first:end])
        each = len(self.values) // self.steps
        return _Input(end - first, self.values[first * each : end * each])


def _descriptors(
    ctx: Lowering,
    acc: LinearLayout,
    matrix: _Matrix,
    base: LLVMValue,
    shape: _Shape,
    operand: int,
    *,
    adds_in_blocks: bool,
) -> list[_Input]:
    """The descriptors of each tile: one per step, or if `adds_in_blocks` one that steps add to."""
    emit = ctx.emit
    kept, along_k = ("dim0", "dim1") if operand == 0 else ("dim1", "dim0")
    # Where this warp's group has its rows (columns); the warps of a group share one matrix.
    by_group = [
        acc.unpack_out(v)["dim0" if operand == 0 else "dim1"] if bit >= 2 else 0
        for bit, v in enumerate(acc.packed_bases(WARP))
    ]
    offsets = [_offset(matrix, {kept: index, along_k: 0}) for index in by_group]
    group_map = LinearLayout(((WARP, tuple(offsets)),), (("offset", _power_above(offsets)),))
    group = ctx.warp_part(group_map)["offset"]
    address = emit.cast("ptrtoint", base, "i32")
    start = emit.add(address, emit.mul(group, matrix.element_bytes))
    field = emit.cast("zext", emit.bit_and(emit.lshr(start, 4), 0x3FFF), "i64")
    whole = emit.binary("or", field, integer("i64", matrix.descriptor))
    made = []
    for origin in shape.origins:
        places = [
            _offset(matrix, {kept: origin[operand], along_k: step * shape.k})
            for step in range(shape.steps)
        ]
        moves = tuple(place * matrix.element_bytes >> 4 for place in places)
        if adds_in_blocks:
            made.append(_Input(shape.steps, (whole,), moves))
        else:
            each = tuple(emit.add(whole, move) for move in moves)
            made.append(_Input(shape.steps, each))
    return made


def _adds_in_blocks(ctx: Lowering) -> bool:
    """Whether the descriptors of all steps are more than registers can keep across loops."""
    dots = [ttng.WarpGroupDot(op) for op in ctx.module.walk() if ttng.WarpGroupDot.matches(op)]
    return sum(map(_read_steps, dots)) > _MOST_DESCRIPTORS


def _read_steps(dot: ttng.WarpGroupDot) -> int:
    """The number of matrices in shared memory that a dot's steps read."""
    depth_bytes = shape_of(dot.a.type)[1] * element_of(dot.a.type).bits // 8
    shared = sum(isinstance(value.type, MemDescType) for value in (dot.a, dot.b))
    return shared * max(1, depth_bytes // _K_BYTES)


def _offset(matrix: _Matrix, coordinates: dict[str, int]) -> int:
    to_offset = matrix.to_offset
    total = 0
    for dim, index in coordinates.items():
        bases = to_offset.packed_bases(dim)
        for bit, vector in enumerate(bases):
            if index >> bit & 1:
                total ^= vector
    return total


def _power_above(values: Sequence[int]) -> int:
    return 1 << max((value.bit_length() for value in values), default=0)


def _fragments(ctx: Lowering, a: Registers, shape: _Shape, origin: tuple[int, int]) -> _Input:
    """A's registers for every step: pairs of 16-bit elements as i32."""
    rows = sorted({row for row, _ in shape.origins})
    first = rows.index(origin[0]) * shape.steps * _A_ELEMENTS
    words = []
    for index in range(first, first + shape.steps * _A_ELEMENTS, 2):
        words.append(ctx.emit.cast("bitcast", ctx.emit.vector(a[index : index + 2]), "i32"))
    return _Input(shape.steps, tuple(words))


@dataclass(frozen=True, slots=True)
class _Block:
    """The inline assembly of one accumulator tile.

    Attributes:
        op: the dot.
        shape: steps and sizes.
        matrix_a: A in shared memory; None if it is in registers.
        matrix_b: B in shared memory.
        is_last: whether to commit.
        from_zero: whether the first step forgets the accumulators' values; it then begins with
            a fence of its own.
    """

    op: Operation
    shape: _Shape
    matrix_a: _Matrix | None
    matrix_b: _Matrix
    is_last: bool
    from_zero: bool = False

    def emit(
        self,
        ctx: Lowering,
        acc: Registers,
        a_input: _Input,
        b_input: _Input,
    ) -> list[LLVMValue]:
        """Write the instructions, and return the accumulators (still being computed)."""
        count = len(acc)
        letter = "r" if acc[0].type == "i32" else "f"
        a_letter = "l" if self.matrix_a is not None else "r"
        constraints = [
            *[f"={letter}"] * count,
            *map(str, range(count)),
            *[a_letter] * len(a_input.values),
            *["l"] * len(b_input.values),
        ]
        text = self._text(count, a_input, b_input)
        return tied(ctx, text, constraints, acc, [*a_input.values, *b_input.values])

    def _text(self, count: int, a_input: _Input, b_input: _Input) -> str:
        names = ", ".join(f"${i}" for i in range(count))
        lines = ["{", ".reg .pred p, q;", ".reg .b64 da, db;"]
        lines += ["setp.eq.u32 p, 0, 0;", "setp.ne.u32 q, 0, 0;"]
        if self.from_zero:
            lines.append("wgmma.fence.sync.aligned;")
        for step in range(self.shape.steps):
            a_name = self._step(lines, a_input, step, 2 * count, "da")
            b_name = self._step(lines, b_input, step, 2 * count + len(a_input.values), "db")
            adds = "q" if self.from_zero and step == 0 else "p"
            lines.append(
                f"{self._instruction()} {{{names}}}, {a_name}, {b_name}, {adds}{self._flags()};"
            )
        if self.is_last:
            lines.append("wgmma.commit_group.sync.aligned;")
        return "\n".join([*lines, "}"])

    @staticmethod
    def _step(lines: list[str], operand: _Input, step: int, first: int, moved: str) -> str:
        """Return a step's operand, whose values begin with number `first`; append its add."""
        if not operand.moves:
            each = len(operand.values) // operand.steps
            words = range(first + step * each, first + (step + 1) * each)
            names = ", ".join(f"${i}" for i in words)
            return f"{{{names}}}" if each > 1 else names
        if not operand.moves[step]:
            return f"${first}"
        lines.append(f"add.s64 {moved}, ${first}, {operand.moves[step]};")
        return moved

    def _instruction(self) -> str:
        a, b = (_PTX_TYPES[str(element_of(value.type))] for value in DotLike(self.op).factors)
        acc = "s32" if a == "s8" else "f32"
        return f"wgmma.mma_async.sync.aligned.m64n{self.shape.n}k{self.shape.k}.{acc}.{a}.{b}"

    def _flags(self) -> str:
        """Return the flags: no negation, and for 16-bit types which operands are transposed."""
        element = str(element_of(DotLike(self.op).b.type))
        if element == "i8":
            return ""
        if element not in ("f16", "bf16"):
            return ", 1, 1"
        flags = "" if self.matrix_a is None else f", {int(self.matrix_a.is_transposed)}"
        return f", 1, 1{flags}, {int(self.matrix_b.is_transposed)}"


def tied(
    ctx: Lowering,
    text: str,
    constraints: Sequence[str],
    registers: Registers,
    others: Sequence[LLVMValue] = (),
) -> list[LLVMValue]:
    """Inline assembly that updates `registers` in place."""
    types = [register.type for register in registers]
    result = types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"
    got = ctx.emit.asm(text, ",".join(constraints), result, [*registers, *others], convergent=True)
    if len(types) == 1:
        return [got]
    return [ctx.emit.extract_value(got, i, type_) for i, type_ in enumerate(types)]


def wait(ctx: Lowering, registers: Registers, pendings: int) -> Registers:
    """Wait until at most `pendings` groups run; `registers` are complete afterwards."""
    count = len(registers)
    letters = {"i32": "r", "float": "f"}
    constraints = [f"={letters[value.type]}" for value in registers]
    text = f"wgmma.wait_group.sync.aligned {pendings};"
    return tied(ctx, text, [*constraints, *map(str, range(count))], registers)


def lower_wait(ctx: Lowering, op: Operation, *values: Registers) -> Sequence[Registers]:
    """Lower `ttng.warp_group_dot_wait`: all tiles pass through it."""
    pendings = ttng.WarpGroupDotWait(op).pendings
    tiles = [isinstance(value.type, TensorType) for value in op.operands]
    passing = [
        x for registers, is_tile in zip(values, tiles, strict=True) if is_tile for x in registers
    ]
    waited = iter(wait(ctx, passing, pendings))
    return [
        [next(waited) for _ in registers] if is_tile else registers
        for registers, is_tile in zip(values, tiles, strict=True)
    ]


LOWERINGS: dict[str, Lower] = {
    ttng.WarpGroupDot.name: lower_warp_group_dot,
    ttng.WarpGroupDotWait.name: lower_wait,
}
