"""Lowering of atomics: one thread acts for an element, all that hold it learn the result.

Scalars are accessed by thread 0. A scalar atomic that releases waits for the whole block before, so
that the program's writes, not merely this thread's, come first; one whose result is used has every
thread wait for it. Tiles order each thread's own accesses, as upstream's do: a thread's only
instruction does so itself; otherwise there are fences before and after all instructions, since each
one by itself would wait for the one before and drop the contents of L1.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: atom".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tkdebug.compiler.analysis.global_memory import vector_elems
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.types import TensorType, element_of
from tkdebug.compiler.layouts import LANE, WARP, LinearLayout
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, floating, integer
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, WARP_SIZE, Lowering
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import load_vector, store_vector
from tkdebug.compiler.targets.nvptx.lowering.types import Good, Lower, Registers, memory_bits
from tkdebug.compiler.targets.target import BF16_ARITHMETIC, VECTOR_ATOMICS

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
    """Update one element, and return its old value; zero where the predicate is false."""
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
    """Write an atomic store as `st`, and return the value: nothing uses the result."""
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
    """Add to consecutive floats by one instruction, each atomically; return the old values."""
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
    """Write atomics of which at most one predicate is true; return the old bits, else zero."""
    return _atoms(ctx, op, sem, instructions, pointer, [[word] for word in words])[0]


def _atoms(
    ctx: Lowering,
    op: Operation,
    sem: str,
    instructions: Sequence[tuple[str, LLVMValue | None]],
    pointer: LLVMValue,
    operands: Sequence[Sequence[LLVMValue]],
) -> list[LLVMValue]:
    """Emit `atom` on vectors of words, or `red`, which returns zeros, if the result is not used."""
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
    """Return `count` operands from number `first` on, as an instruction has them."""
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
    """Update a float minimum or maximum by integer atomics on its bits; return the old value.

    Floats order as signed integers, negative ones as unsigned integers the other way. A NaN becomes
    the infinity that changes nothing.
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
    """Update by a compare-and-swap loop, which LLVM writes; return the old value.

    The target has no instruction for such an update.
    """
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


_RELEASES = ("release", "acq_rel")
_ACQUIRES = ("acquire", "acq_rel")


def lower_atomic_load(
    ctx: Lowering, op: Operation, pointers: Registers, mask: Registers | None = None
) -> Sequence[Registers]:
    """Lower to `ld` with the semantics and the scope; zero where the mask is off."""
    acting, type_ = _begin(ctx, op), ctx.element_type(op.result)
    sem = _ordered(ctx, op, len(pointers))
    bits = TYPE_BITS[type_]
    name = f"ld.{sem}.{tt.Atomic(op).scope}.global.b{bits}"

    def loads(mask: Registers | None) -> Registers:
        results = []
        for place, pointer in enumerate(pointers):
            predicate = _both(ctx, acting, None if mask is None else mask[place])
            guard = "" if predicate is None else "@$2 "
            arguments = [pointer] if predicate is None else [pointer, predicate]
            text = f"mov.b{max(bits, 16)} $0, 0;\n{guard}{name} $0, [$1];"
            constraints = f"=&{LETTERS[bits]},l{'' if predicate is None else ',b'},~{{memory}}"
            word = ctx.emit.asm(text, constraints, f"i{max(bits, 16)}", arguments)
            if bits < 16:
                word = ctx.emit.cast("trunc", word, f"i{bits}")
            results.append(ctx.from_bits(word, type_))
        return results

    guard = ctx.guard(op, pointers, mask, 1)
    if guard is None:
        results = loads(mask)
    else:
        results = guard.either_way(
            lambda: loads(mask), lambda good: loads(_masked_on(ctx, good, 1))
        )
    _fence_behind(ctx, op, sem)
    return (_shared_with_all(ctx, op, results),)


def _both(ctx: Lowering, acting: LLVMValue | None, mask: LLVMValue | None) -> LLVMValue | None:
    """The condition that a thread acts and the mask is on; None for always."""
    if acting is None or mask is None:
        return acting if mask is None else mask
    return ctx.emit.bit_and(acting, mask)


def lower_atomic_rmw(
    ctx: Lowering,
    op: Operation,
    pointers: Registers,
    values: Registers,
    mask: Registers | None = None,
) -> Sequence[Registers]:
    """Lower to `atom`, predicated by the mask and by whether the thread acts for the element."""
    if _only_looks(op):
        return lower_atomic_load(ctx, op, pointers, mask)
    acting, group = _begin(ctx, op), _group(ctx, op)
    sem = _ordered(ctx, op, len(pointers) // group)
    update = partial(_updates, ctx, op, sem, values=values, acting=acting)
    guard = ctx.guard(op, pointers, mask, group)
    if guard is None:
        results = update(pointers, mask, group=group)
    else:
        results = guard.either_way(
            lambda: update(pointers, mask, group=group),
            lambda good: update(pointers, _masked_on(ctx, good, group), group=1),
        )
    _fence_behind(ctx, op, sem)
    return (_shared_with_all(ctx, op, results),)


def _only_looks(op: Operation) -> bool:
    """Whether an atomic adds 0 to one element, as in loops that wait for another program.

    It is lowered to a load, as upstream's: updates by all programs that wait would come one by one.
    """
    rmw = tt.AtomicRmw(op)
    if isinstance(rmw.pointer.type, TensorType) or tt.Atomic(op).sem in _RELEASES:
        return False
    return rmw.kind in ("add", "fadd") and constant_value(rmw.value) == 0


def _updates(
    ctx: Lowering,
    op: Operation,
    sem: str,
    pointers: Registers,
    mask: Registers | None,
    *,
    values: Registers,
    acting: LLVMValue | None,
    group: int,
) -> Registers:
    """Update the elements of registers, `group` by each instruction; return the old values."""
    results: Registers = []
    for first in range(0, len(pointers), group):
        predicate = _both(ctx, acting, None if mask is None else mask[first])
        part = values[first : first + group]
        if group > 1:
            results += vector_sum(ctx, op, sem, pointers[first], part, predicate)
        else:
            results.append(update(ctx, op, sem, pointers[first], part[0], predicate))
    return results


def _group(ctx: Lowering, op: Operation) -> int:
    """Return the registers of one access: several for float sums, if the target adds vectors."""
    pointer, type_ = tt.AtomicRmw(op).pointer, ctx.element_type(op.result)
    if not isinstance(pointer.type, TensorType) or tt.AtomicRmw(op).kind != "fadd":
        return 1
    vectors = ctx.target.has(VECTOR_ATOMICS)
    longest = {"half": 8 if vectors else 2, "bfloat": 8 if vectors else 1, "float": 4 * vectors}
    mask = tt.AtomicRmw(op).mask
    masks = None if mask is None else ctx.axis_info[mask]
    together = vector_elems(op, ctx.layout(pointer), ctx.axis_info[pointer], masks)
    return max(1, min(together, longest.get(type_, 1)))


def lower_atomic_cas(
    ctx: Lowering, op: Operation, pointers: Registers, compare: Registers, values: Registers
) -> Sequence[Registers]:
    """Lower to `atom.cas` on the bits of the element."""
    acting, sem = _begin(ctx, op), _ordered(ctx, op, len(pointers))
    swap = partial(_swaps, ctx, op, sem, pointers, compare, values)
    guard = ctx.guard(op, pointers, None, 1)
    if guard is None:
        results = swap([acting] * len(pointers))
    else:
        results = guard.either_way(
            lambda: swap([acting] * len(pointers)),
            lambda good: swap([_both(ctx, acting, x) for x in _masked_on(ctx, good, 1)]),
        )
    _fence_behind(ctx, op, sem)
    return (_shared_with_all(ctx, op, results),)


def _swaps(
    ctx: Lowering,
    op: Operation,
    sem: str,
    pointers: Registers,
    compare: Registers,
    values: Registers,
    predicates: Sequence[LLVMValue | None],
) -> Registers:
    results = []
    for pointer, expected, value, predicate in zip(
        pointers, compare, values, predicates, strict=True
    ):
        words = (ctx.to_bits(expected), ctx.to_bits(value))
        name = f"cas.b{TYPE_BITS[value.type]}"
        old = atom(ctx, op, sem, ((name, predicate),), pointer, words)
        results.append(ctx.from_bits(old, value.type))
    return results


def _begin(ctx: Lowering, op: Operation) -> LLVMValue | None:
    """Order earlier accesses; return i1: whether this thread acts, or None if all do."""
    pointer = PointerAccess(op).pointer
    if isinstance(pointer.type, TensorType):
        return ctx.owner(ctx.layout(pointer))
    if tt.Atomic(op).sem in _RELEASES:
        ctx.barrier()
    return ctx.is_first_thread


def _ordered(ctx: Lowering, op: Operation, instructions: int) -> str:
    """Return an instruction's semantics; of several, relaxed, after a fence if the op releases."""
    sem = tt.Atomic(op).sem
    if instructions == 1 or sem == "relaxed":
        return sem
    if sem in _RELEASES:
        _fence(ctx, op)
    return "relaxed"


def _fence_behind(ctx: Lowering, op: Operation, sem: str) -> None:
    # A thread that does not use the old value learns nothing of the programs that wrote it.
    if sem != tt.Atomic(op).sem and tt.Atomic(op).sem in _ACQUIRES and op.result.uses:
        _fence(ctx, op)


def _fence(ctx: Lowering, op: Operation) -> None:
    ctx.emit.asm(f"fence.acq_rel.{tt.Atomic(op).scope};", "~{memory}", "void", ())


# The result in every thread that holds the element


def atomic_scratch_bytes(op: Operation) -> int:
    """Bytes of scratch memory through which the result passes; 0 if it needs none."""
    type_ = op.result.type
    if not op.result.uses:
        return 0
    element_bytes = memory_bits(element_of(type_)) // 8
    if not isinstance(type_, TensorType):
        return element_bytes
    assert isinstance(type_.encoding, LinearLayout)
    return type_.size_elems * element_bytes if _crosses_warps(type_.encoding) else 0


def _crosses_warps(layout: LinearLayout) -> bool:
    """Whether an element has copies outside of the lanes that the layout's free bits reach."""
    free = layout.free_masks
    bases = layout.packed_bases(LANE)
    moved = any(base for bit, base in enumerate(bases) if free.get(LANE, 0) >> bit & 1)
    return moved or bool(free.get(WARP, 0))


def _shared_with_all(ctx: Lowering, op: Operation, results: Registers) -> Registers:
    if not op.result.uses:
        return results
    if not isinstance(op.result.type, TensorType):
        return _scalar_shared(ctx, op, results)
    layout = ctx.layout(op.result)
    if _crosses_warps(layout):
        return _tile_shared(ctx, op, layout, results)
    copies = layout.free_masks.get(LANE, 0)
    if not copies:
        return results
    owner = ctx.emit.bit_and(ctx.lane, ~copies & (WARP_SIZE - 1))
    return [ctx.shuffle("idx", value, owner) for value in results]


def _scalar_shared(ctx: Lowering, op: Operation, results: Registers) -> Registers:
    place = ctx.scratch(op)
    store_vector(ctx, place, results, ctx.is_first_thread)
    ctx.barrier()
    return load_vector(ctx, place, results[0].type, 1)


def _tile_shared(
    ctx: Lowering, op: Operation, layout: LinearLayout, results: Registers
) -> Registers:
    """Pass a tile's results through shared memory, where each element has its place."""
    base, element_bytes = ctx.scratch(op), max(8, TYPE_BITS[results[0].type]) // 8
    places = []
    for coordinates in ctx.coordinates(layout):
        index = integer("i32", 0)
        for coordinate, (_, size) in zip(coordinates, layout.outs, strict=True):
            index = ctx.emit.add(ctx.emit.mul(index, size), coordinate)
        places.append(ctx.emit.gep(base, f"i{8 * element_bytes}", index))
    owner = ctx.owner(layout)
    for place, value in zip(places, results, strict=True):
        store_vector(ctx, place, [value], owner)
    ctx.barrier()
    return [load_vector(ctx, place, results[0].type, 1)[0] for place in places]


def _masked_on(ctx: Lowering, good: Good, group: int) -> Registers:
    """i1 of each register: whether its element is masked on and good."""
    return [ctx.emit.icmp("ugt", count, place) for count in good for place in range(group)]


LOWERINGS: dict[str, Lower] = {
    tt.AtomicLoad.name: lower_atomic_load,
    tt.AtomicRmw.name: lower_atomic_rmw,
    tt.AtomicCas.name: lower_atomic_cas,
}
