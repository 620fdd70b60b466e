"""The instructions that update memory atomically."""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import TensorType
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, floating, integer
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import Registers
from tkdebug.compiler.targets.target import BF16_ARITHMETIC

# A byte is in a register of 16 bits.
LETTERS = {8: "h", 16: "h", 32: "r", 64: "l"}
_WORD_BITS = 32
# kind -> operation and type letter of atom.
_KINDS = {
    "add": ("add", "u"),
    "max": ("max", "s"),
    "min": ("min", "s"),
    "umax": ("max", "u"),
    "umin": ("min", "u"),
    "and": ("and", "b"),
    "or": ("or", "b"),
    "xor": ("xor", "b"),
    "xchg": ("exch", "b"),
}
_FLOAT_ADDS = {
    "half": "add.noftz.f16",
    "bfloat": "add.noftz.bf16",
    "float": "add.f32",
    "double": "add.f64",
}
_LLVM_ORDERINGS = {"relaxed": "monotonic"}
_LLVM_SCOPES = {"gpu": ' syncscope("device")', "cta": ' syncscope("block")', "sys": ""}


def update(
    ctx: Lowering,
    op: Operation,
    sem: str,
    pointer: LLVMValue,
    value: LLVMValue,
    predicate: LLVMValue | None,
) -> LLVMValue:
    """One element's old value; zero where the predicate is false."""
    kind, type_ = tt.AtomicRmw(op).kind, value.type
    if kind == "store":
        return _stored(ctx, op, sem, pointer, value, predicate)
    if TYPE_BITS[type_] < _WORD_BITS and kind != "fadd":
        return _loop_of_swaps(ctx, op, sem, pointer, value, predicate)
    if kind in ("fmax", "fmin"):
        return _float_extremum(ctx, op, sem, kind, pointer, value, predicate)
    if kind == "fadd":
        if type_ == "bfloat" and not ctx.target.has(BF16_ARITHMETIC):
            return _loop_of_swaps(ctx, op, sem, pointer, value, predicate)
        name = _FLOAT_ADDS[type_]
    else:
        name = f"{_KINDS[kind][0]}.{_KINDS[kind][1]}{TYPE_BITS[type_]}"
    old = atom(ctx, op, sem, ((name, predicate),), pointer, (ctx.to_bits(value),))
    return ctx.from_bits(old, type_)


def _stored(
    ctx: Lowering,
    op: Operation,
    sem: str,
    pointer: LLVMValue,
    value: LLVMValue,
    predicate: LLVMValue | None,
) -> LLVMValue:
    """`st`; the result, which nothing uses, is the value."""
    word, bits = ctx.to_bits(value), TYPE_BITS[value.type]
    if bits < 16:
        word = ctx.emit.cast("zext", word, "i16")
    guard = "" if predicate is None else "@$2 "
    arguments = [pointer, word] if predicate is None else [pointer, word, predicate]
    text = f"{guard}st.{sem}.{tt.Atomic(op).scope}.global.b{bits} [$0], $1;"
    constraints = f"l,{LETTERS[bits]}{'' if predicate is None else ',b'},~{{memory}}"
    ctx.emit.asm(text, constraints, "void", arguments)
    return value


def vector_sum(
    ctx: Lowering,
    op: Operation,
    sem: str,
    pointer: LLVMValue,
    values: Sequence[LLVMValue],
    predicate: LLVMValue | None,
) -> Registers:
    """Consecutive float sums by one instruction; each is atomic for itself."""
    emit, type_ = ctx.emit, values[0].type
    if type_ == "float":
        name, words = f"add.v{len(values)}.f32", [ctx.to_bits(value) for value in values]
    else:
        pairs = zip(values[::2], values[1::2], strict=True)
        words = [emit.cast("bitcast", emit.vector(pair), "i32") for pair in pairs]
        vector = f".v{len(words)}" if len(words) > 1 else ""
        name = f"add.noftz{vector}.{'f16' if type_ == 'half' else 'bf16'}x2"
    old = _atoms(ctx, op, sem, ((name, predicate),), pointer, (words,))
    if type_ == "float":
        return [ctx.from_bits(word, type_) for word in old]
    vectors = [emit.cast("bitcast", word, f"<2 x {type_}>") for word in old]
    return [value for both in vectors for value in emit.elements(both, 2, type_)]


def atom(
    ctx: Lowering,
    op: Operation,
    sem: str,
    instructions: Sequence[tuple[str, LLVMValue | None]],
    pointer: LLVMValue,
    words: Sequence[LLVMValue],
) -> LLVMValue:
    """The old bits, by whichever of the instructions has a true predicate; zero by none."""
    return _atoms(ctx, op, sem, instructions, pointer, [[word] for word in words])[0]


def _atoms(
    ctx: Lowering,
    op: Operation,
    sem: str,
    instructions: Sequence[tuple[str, LLVMValue | None]],
    pointer: LLVMValue,
    operands: Sequence[Sequence[LLVMValue]],
) -> list[LLVMValue]:
    """As `atom`, on vectors of words; what is only added up, and not looked at, by `red`."""
    emit, count = ctx.emit, len(operands[0])
    bits = int(operands[0][0].type[1:])
    letter = LETTERS[bits]
    arguments = [pointer, *(word for operand in operands for word in operand)]
    # ptxas makes the same of an unused result of some kinds, and not of others.
    is_blind = _is_blind(op, sem)
    outputs = 0 if is_blind else count
    constraints = [f"=&{letter}"] * outputs + ["l"] + [letter] * (len(arguments) - 1)
    lines = []
    if any(predicate is not None for _, predicate in instructions):
        lines += [f"mov.b{bits} ${i}, 0;" for i in range(outputs)]
    sources = ", ".join(_tuple_of(outputs + 1 + i * count, count) for i in range(len(operands)))
    # Space, scope, semantics: the order in which upstream writes them; ptxas takes any.
    scope = tt.Atomic(op).scope
    order, swaps = f"global.{scope}.{sem}", f"global.{sem}.{scope}"
    for name, predicate in instructions:
        guard = ""
        if predicate is not None:
            guard = f"@${outputs + len(arguments)} "
            arguments.append(predicate)
            constraints.append("b")
        qualifiers = swaps if name.startswith("cas") else order
        what = f"red.{qualifiers}.{name} " if is_blind else f"atom.{qualifiers}.{name} "
        target = "" if is_blind else f"{_tuple_of(0, count)}, "
        lines.append(f"{guard}{what}{target}[${outputs}], {sources};")
    text = ",".join([*constraints, "~{memory}"])
    type_ = f"i{bits}"
    if is_blind:
        emit.asm("\n".join(lines), text, "void", arguments)
        return [integer(type_, 0)] * count
    result = type_ if count == 1 else f"{{ {', '.join([type_] * count)} }}"
    got = emit.asm("\n".join(lines), text, result, arguments)
    return [got] if count == 1 else [emit.extract_value(got, i, type_) for i in range(count)]


def _is_blind(op: Operation, sem: str) -> bool:
    is_sum = tt.AtomicRmw.matches(op) and tt.AtomicRmw(op).kind != "xchg"
    is_tile = isinstance(tt.Atomic(op).pointer.type, TensorType)
    return is_sum and is_tile and sem == "relaxed" and not op.result.uses


def _tuple_of(first: int, count: int) -> str:
    """Operands `first` and following as an instruction has them."""
    names = ", ".join(f"${first + i}" for i in range(count))
    return names if count == 1 else f"{{{names}}}"


def _float_extremum(
    ctx: Lowering,
    op: Operation,
    sem: str,
    kind: str,
    pointer: LLVMValue,
    value: LLVMValue,
    predicate: LLVMValue | None,
) -> LLVMValue:
    """By the bits: positive floats are ordered as signed integers, negative ones the other way.

    A NaN becomes the infinity that changes nothing.
    """
    emit, bits = ctx.emit, TYPE_BITS[value.type]
    largest = kind == "fmax"
    neutral = floating(value.type, float("-inf") if largest else float("inf"))
    number = emit.select(emit.fcmp("uno", value, value), neutral, value)
    word = ctx.to_bits(number)
    negative = emit.icmp("slt", word, 0)
    positive = emit.xor(negative, 1)
    if predicate is not None:
        negative, positive = (emit.bit_and(predicate, sign) for sign in (negative, positive))
    same, opposite = ("max", "min") if largest else ("min", "max")
    instructions = ((f"{same}.s{bits}", positive), (f"{opposite}.u{bits}", negative))
    return ctx.from_bits(atom(ctx, op, sem, instructions, pointer, (word,)), value.type)


def _loop_of_swaps(
    ctx: Lowering,
    op: Operation,
    sem: str,
    pointer: LLVMValue,
    value: LLVMValue,
    predicate: LLVMValue | None,
) -> LLVMValue:
    """What the target has no instruction for: LLVM writes the loop."""
    emit = ctx.emit
    kind = tt.AtomicRmw(op).kind
    scope = tt.AtomicRmw(op).scope
    text = (
        f"atomicrmw {kind} {pointer.type} {pointer.text}, {value.type} {value.text}"
        f"{_LLVM_SCOPES[scope]} {_LLVM_ORDERINGS.get(sem, sem)}"
    )
    if predicate is None:
        return emit.raw(value.type, text)
    before = emit.block
    inside, after = emit.new_block("atomic"), emit.new_block("atomic.end")
    emit.branch_if(predicate, inside, after)
    emit.start(inside)
    old = emit.raw(value.type, text)
    emit.branch(after)
    emit.start(after)
    phi = emit.phi(value.type)
    zero = floating(value.type, 0.0) if kind[0] == "f" else integer(value.type, 0)
    phi.add_incoming(zero, before)
    phi.add_incoming(old, inside)
    return phi.value
