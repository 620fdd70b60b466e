"""Lowering of loads and stores of global memory to vector PTX instructions.

Inline PTX, because LLVM knows neither predicated accesses nor cache and eviction modifiers. An
access takes as many consecutive registers as are consecutive and aligned in memory (16 bytes at
most) and share one mask.

Source: PTX ISA, "Data Movement and Conversion Instructions: ld" and "st".

Elements of registers become the words of an access to memory, and back; modifiers of accesses are
written. PTX ISA, "ld" and "st": `.L1::evict_last` and the like set the priority in L1. The priority
in L2 is a policy of `createpolicy`, an operand after the address, which `.L2::cache_hint` announces
(sm_80). A cache operator excludes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tkdebug.compiler.analysis.global_memory import vector_elems
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import MaskedAccess, PointerAccess
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.types import PointerType, ScalarType, TensorType, element_of
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import TYPE_BITS, ZEROS, Lowering
from tkdebug.compiler.targets.nvptx.lowering.types import (
    Good,
    Lower,
    Modifiers,
    Registers,
    Vector,
    memory_bits,
)
from tkdebug.compiler.targets.target import L2_POLICIES

# Width of a register -> LLVM's constraint letter, and the register's own width.
CONSTRAINTS = {8: ("h", 16), 16: ("h", 16), 32: ("r", 32), 64: ("l", 64)}
_WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class Words:
    """The partition of elements into the words of one instruction.

    Attributes:
        count: words of the instruction.
        bits: the bits of a word.
        per_word: elements of a word.
    """

    count: int
    bits: int
    per_word: int

    @staticmethod
    def of(element_bits: int, elements: int) -> Words:
        """The words of an instruction that moves `elements` of so many bits."""
        total = element_bits * elements
        bits = max(element_bits, min(_WORD_BITS, total))
        return Words(total // bits, bits, bits // element_bits)

    @property
    def vector(self) -> Vector:
        """The words as instructions of checked accesses take them."""
        return Vector(self.suffix, self.bits, self.count, self.bits // self.per_word)

    def groups(self, words: Registers) -> Iterator[Registers]:
        """The words of a tile, grouped by instruction."""
        return (words[i : i + self.count] for i in range(0, len(words), self.count))

    @property
    def suffix(self) -> str:
        """The suffix of the instruction: `.v4.b32`."""
        return f"{f'.v{self.count}' if self.count > 1 else ''}.b{self.bits}"


def pack(ctx: Lowering, values: Sequence[LLVMValue], words: Words) -> Registers:
    """Pack elements into words of `words.bits` bits."""
    emit = ctx.emit
    packed = []
    for first in range(0, len(values), words.per_word):
        part = [_to_memory(ctx, value) for value in values[first : first + words.per_word]]
        if len(part) == 1:
            packed.append(part[0])
            continue
        known = [value.constant for value in part]
        if all(number is not None for number in known):
            width = int(part[0].type[1:])
            total = sum(((n or 0) & ((1 << width) - 1)) << width * i for i, n in enumerate(known))
            packed.append(integer(f"i{words.bits}", total))
            continue
        packed.append(emit.cast("bitcast", emit.vector(part), f"i{words.bits}"))
    return packed


def _to_memory(ctx: Lowering, value: LLVMValue) -> LLVMValue:
    if value.type == "i1":
        return ctx.emit.cast("zext", value, "i8")
    if value.text == ZEROS.get(value.type):
        return integer(f"i{TYPE_BITS[value.type]}", 0)
    return ctx.to_bits(value)


def unpack(
    ctx: Lowering, words: Sequence[LLVMValue], shape: Words, type_: str, element_bits: int
) -> list[LLVMValue]:
    """The elements that loaded words hold."""
    emit = ctx.emit
    elements: list[LLVMValue] = []
    for word in words:
        if shape.per_word == 1:
            elements.append(_from_memory(ctx, word, type_))
            continue
        piece = f"i{element_bits}" if type_ in ("i1", "i8", "i16") else type_
        vector = emit.cast("bitcast", word, f"<{shape.per_word} x {piece}>")
        elements += [
            _from_memory(ctx, value, type_)
            for value in emit.elements(vector, shape.per_word, piece)
        ]
    return elements


def _from_memory(ctx: Lowering, value: LLVMValue, type_: str) -> LLVMValue:
    if type_ == "i1":
        return ctx.emit.icmp("ne", value, 0)
    return value if value.type == type_ else ctx.from_bits(value, type_)


_PRIORITIES = frozenset(("evict_first", "evict_last"))


def modifiers_of(ctx: Lowering, op: Operation) -> Modifiers:
    """The modifiers of a tt.load or tt.store."""
    access = PointerAccess(op)
    if tt.Load.matches(op) and tt.Load(op).volatile:
        return Modifiers(".volatile.global")
    if access.cache or access.eviction not in _PRIORITIES:
        return Modifiers(f".global{access.cache}")
    text = f".global.L1::{access.eviction}"
    if not ctx.target.has(L2_POLICIES):
        return Modifiers(text)
    return Modifiers(f"{text}.L2::cache_hint", ctx.l2_policy(access.eviction))


def lower_load(
    ctx: Lowering,
    op: Operation,
    pointers: Registers,
    mask: Registers | None = None,
    other: Registers | None = None,
) -> Sequence[Registers]:
    """Lower `tt.load` to ld.global, predicated by the mask; `other` or zero elsewhere."""
    group, pointee = _group(ctx, op), pointee_of(tt.Load(op).pointer)
    words = Words.of(memory_bits(pointee), group)
    guard = ctx.guard(op, pointers, mask, group)
    fills = None
    if mask is not None or guard is not None:
        fills = fill_words(ctx, pointee, other, len(pointers), words)
    load = partial(_load_groups, ctx, modifiers_of(ctx, op), pointers, mask, fills, words)
    if guard is None:
        loaded = load()
    elif guard.is_short:
        assert fills is not None
        loaded = guard.load(modifiers_of(ctx, op), words.vector, fills)
    else:
        assert fills is not None
        modifiers = modifiers_of(ctx, op)
        narrowed = partial(load_good, ctx, modifiers, pointers, fills, words)
        loaded = guard.either_way(load, narrowed)
    type_, bits = ctx.element_type(op.result), memory_bits(pointee)
    return ([x for got in words.groups(loaded) for x in unpack(ctx, got, words, type_, bits)],)


def fill_words(
    ctx: Lowering,
    pointee: ScalarType | PointerType,
    other: Registers | None,
    count: int,
    words: Words,
) -> list[Registers]:
    """The words of `other`, or zeros, for each instruction that loads some of `count` registers."""
    values = other or [ctx.zero_of(pointee)] * count
    group = words.count * words.per_word
    return [
        pack(ctx, values[first : first + group], words) for first in range(0, len(values), group)
    ]


def _load_groups(
    ctx: Lowering,
    modifiers: Modifiers,
    pointers: Registers,
    mask: Registers | None,
    fills: Sequence[Registers] | None,
    words: Words,
) -> Registers:
    """Load all words of a tile; those that are masked off are `fills`."""
    loaded: Registers = []
    group = words.count * words.per_word
    for index, first in enumerate(range(0, len(pointers), group)):
        fill = None if fills is None or mask is None else fills[index]
        predicate = None if mask is None else mask[first]
        loaded += _load_words(ctx, pointers[first], words, modifiers, predicate, fill)
    return loaded


def load_good(
    ctx: Lowering,
    modifiers: Modifiers,
    pointers: Registers,
    fills: Sequence[Registers],
    words: Words,
    good: Good,
) -> Registers:
    """Load the good elements of a tile; the others are from `fills`. Return all words.

    A vector that crosses the end of its tensor is read whole: it lies at a multiple of its size,
    so that all of it is memory of one allocation.
    """
    emit, group = ctx.emit, words.count * words.per_word
    on = [emit.icmp("ne", count, 0) for count in good for _ in range(group)]
    loaded = _load_groups(ctx, modifiers, pointers, on, fills, words)
    if group == 1:
        return loaded
    merged: Registers = []
    for got, fill, count in zip(words.groups(loaded), fills, good, strict=True):
        for place, (word, other) in enumerate(zip(got, fill, strict=True)):
            kept = _kept_bits(ctx, words, count, place)
            bits = emit.bit_and(emit.binary("xor", word, other), kept)
            merged.append(emit.binary("xor", bits, other))
    return merged


def _kept_bits(ctx: Lowering, words: Words, count: LLVMValue, place: int) -> LLVMValue:
    """Return a mask of word `place`: the bits of the vector's first `count` elements."""
    emit, type_ = ctx.emit, f"i{words.bits}"
    first, width = place * words.per_word, words.bits // words.per_word
    kept = integer(type_, 0)
    for element in range(words.per_word):
        bits = integer(type_, (1 << width * (element + 1)) - 1)
        kept = emit.select(emit.icmp("ugt", count, first + element), bits, kept)
    return kept


def _load_words(
    ctx: Lowering,
    pointer: LLVMValue,
    words: Words,
    modifiers: Modifiers,
    predicate: LLVMValue | None,
    fill: Sequence[LLVMValue] | None,
) -> list[LLVMValue]:
    if predicate is not None and predicate.constant == 1:
        predicate = fill = None
    letter, register_bits = CONSTRAINTS[words.bits]
    names = [f"${i}" for i in range(words.count)]
    outputs = ", ".join(names)
    target = f"{{{outputs}}}" if words.count > 1 else outputs
    arguments = [pointer]
    constraints = [f"={letter}"] * words.count + ["l"]
    policy = modifiers.last_operand(lambda value: f"${words.count + 1}")
    access = f"ld{modifiers.text}{words.suffix} {target}, [${words.count}]{policy};"
    lines = [access]
    if modifiers.policy is not None:
        arguments.append(modifiers.policy)
        constraints.append("l")
    if predicate is not None and fill is not None:
        guard = f"@${words.count + len(arguments)}"
        arguments.append(predicate)
        constraints.append("b")
        for i, value in enumerate(fill):
            source = str(value.constant)
            if value.constant is None:
                source = f"${words.count + len(arguments)}"
                arguments.append(ctx.emit.cast("zext", value, f"i{register_bits}"))
                constraints.append(letter)
            lines.insert(i, f"mov.b{register_bits} {names[i]}, {source};")
        lines[-1] = f"{guard} {access}"
        # The old values must not share registers with the pointer, which is read after them.
        constraints[: words.count] = [f"=&{letter}"] * words.count
    register = f"i{register_bits}"
    result = register if words.count == 1 else f"{{ {', '.join([register] * words.count)} }}"
    got = ctx.emit.asm("\n".join(lines), ",".join(constraints), result, arguments)
    if words.count == 1:
        return [ctx.emit.cast("trunc", got, f"i{words.bits}")]
    return [
        ctx.emit.cast("trunc", ctx.emit.extract_value(got, i, register), f"i{words.bits}")
        for i in range(words.count)
    ]


def lower_store(
    ctx: Lowering,
    op: Operation,
    pointers: Registers,
    values: Registers,
    mask: Registers | None = None,
) -> Sequence[Registers]:
    """Lower `tt.store` to st.global, predicated by the mask and by whether the thread acts."""
    group, pointer = _group(ctx, op), tt.Store(op).pointer
    words = Words.of(memory_bits(pointee_of(pointer)), group)
    packed = [
        pack(ctx, values[first : first + group], words) for first in range(0, len(values), group)
    ]
    store = partial(_store_groups, ctx, op, pointers, packed, mask, words)
    guard = ctx.guard(op, pointers, mask, group)
    if guard is None:
        store()
    elif guard.is_short:
        owner = _store_owner(ctx, op)
        guard.store(modifiers_of(ctx, op), words.vector, packed, owner)
    else:
        narrowed = partial(_store_good, ctx, op, pointers, values, packed, words)
        guard.either_way(store, narrowed)
    return ()


def _store_good(
    ctx: Lowering,
    op: Operation,
    pointers: Registers,
    values: Registers,
    packed: Sequence[Registers],
    words: Words,
    good: Good,
) -> Registers:
    """Write st.global of the good elements; no registers result.

    Vectors that cross the tensor's end are all at one address: one is stored by elements.
    """
    emit, group = ctx.emit, words.count * words.per_word
    whole = [emit.icmp("eq", count, group) for count in good for _ in range(group)]
    _store_groups(ctx, op, pointers, packed, whole, words)
    if group == 1:
        return []
    part, pointer = integer("i32", 0), pointers[0]
    crossing = list(values[:group])
    for index, count in enumerate(good):
        first = index * group
        is_part = emit.icmp("ult", emit.add(count, -1), group - 1)
        part = emit.select(is_part, count, part)
        pointer = emit.select(is_part, pointers[first], pointer)
        crossing = [
            emit.select(is_part, value, known)
            for value, known in zip(values[first : first + group], crossing, strict=True)
        ]
    some, after = emit.new_block("store.part"), emit.new_block("store.stored")
    emit.branch_rarely(emit.icmp("ne", part, 0), some, after)
    emit.start(some)
    single = Words.of(words.bits // words.per_word, 1)
    element_bytes = single.bits // 8
    owner = _store_owner(ctx, op)
    for place, value in enumerate(crossing[:-1]):
        is_on = emit.icmp("ugt", part, place)
        predicate = is_on if owner is None else emit.bit_and(owner, is_on)
        there = emit.gep(pointer, "i8", place * element_bytes)
        word = pack(ctx, [value], single)
        _store_words(ctx, there, word, single, modifiers_of(ctx, op), predicate)
    emit.branch(after)
    emit.start(after)
    return []


def _store_owner(ctx: Lowering, op: Operation) -> LLVMValue | None:
    """i1: whether this thread stores its elements; None when all do."""
    pointer = tt.Store(op).pointer
    is_tile = isinstance(pointer.type, TensorType)
    return ctx.owner(ctx.layout(pointer)) if is_tile else ctx.is_first_thread


def _store_groups(
    ctx: Lowering,
    op: Operation,
    pointers: Registers,
    packed: Sequence[Registers],
    mask: Registers | None,
    words: Words,
) -> Registers:
    """Write st.global of all words of a tile; no registers result."""
    modifiers, owner = modifiers_of(ctx, op), _store_owner(ctx, op)
    for index, part in enumerate(packed):
        first = index * words.count * words.per_word
        predicate = owner
        if mask is not None:
            inside = mask[first]
            predicate = inside if owner is None else ctx.emit.binary("and", owner, inside)
        _store_words(ctx, pointers[first], part, words, modifiers, predicate)
    return []


def _store_words(
    ctx: Lowering,
    pointer: LLVMValue,
    packed: Sequence[LLVMValue],
    words: Words,
    modifiers: Modifiers,
    predicate: LLVMValue | None,
) -> None:
    letter, register_bits = CONSTRAINTS[words.bits]
    arguments = [pointer]
    constraints = ["l"]
    for word in packed:
        arguments.append(ctx.emit.cast("zext", word, f"i{register_bits}"))
        constraints.append(letter)
    sources = ", ".join(f"${i + 1}" for i in range(words.count))
    source = f"{{{sources}}}" if words.count > 1 else sources
    policy = modifiers.last_operand(lambda value: f"${words.count + 1}")
    access = f"st{modifiers.text}{words.suffix} [$0], {source}{policy};"
    if modifiers.policy is not None:
        arguments.append(modifiers.policy)
        constraints.append("l")
    if predicate is not None:
        access = f"@${len(arguments)} {access}"
        arguments.append(predicate)
        constraints.append("b")
    ctx.emit.asm(access, ",".join([*constraints, "~{memory}"]), "void", arguments)


def _group(ctx: Lowering, op: Operation) -> int:
    """Number of registers that one instruction accesses."""
    access = MaskedAccess(op)
    pointer, mask = access.pointer, access.mask
    if not isinstance(pointer.type, TensorType):
        return 1
    return vector_elems(
        op,
        ctx.layout(pointer),
        ctx.axis_info[pointer],
        None if mask is None else ctx.axis_info[mask],
    )


def pointee_of(pointer: Value) -> ScalarType | PointerType:
    """The type that a pointer, or a tile of pointers, points to."""
    type_ = element_of(pointer.type)
    assert isinstance(type_, PointerType)
    return type_.pointee


LOWERINGS: dict[str, Lower] = {tt.Load.name: lower_load, tt.Store.name: lower_store}
