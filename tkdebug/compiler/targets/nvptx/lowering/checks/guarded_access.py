"""Tested loads and stores, each as one piece of PTX with a fast path and a slow path.

The fast path is the bare access. The slow path tests each vector and element, and accesses the good
ones. It sets the site's flag, or a bit for each bad element; these are reported after the access.
As LLVM sees neither branch nor test, it treats such an access as a bare one, in the same time; and
ptxas's input is short.

Sources: PTX ISA, "Data Movement and Conversion Instructions: ld, st, cp.async", "Integer Arithmetic
Instructions: bmsk".
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.checks.access import (
    TestedAccess,
    result_words,
)
from tkdebug.compiler.targets.nvptx.lowering.checks.two_ways import (
    NOT_UNROLLED,
    REGISTERS,
    LoopedWay,
    TwoWays,
)
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX
from tkdebug.compiler.targets.nvptx.lowering.types import Modifiers, Registers, Vector

_WORD_BITS = 32


def guarded_load(
    access: TestedAccess,
    modifiers: Modifiers,
    vector: Vector,
    fills: Sequence[Registers],
) -> Registers:
    """Write ld.global of a tile, and return all its words.

    A vector that crosses the end of its tensor is read whole, unless its elements have a bit each:
    it lies at a multiple of its size, so that all of it is memory of one allocation.

    Args:
        access: the load.
        modifiers: the modifiers of the instruction.
        vector: the elements of each load instruction.
        fills: for each group, the words of elements that are not loaded.
    """
    emit = access.checks.ctx.emit
    words = [value for fill in fills for value in fill]
    text = InlinePTX([*[vector.register] * len(words), *["i32"] * result_words(access)])
    names = [f"${index}" for index in range(len(words))]
    sources = [
        text.use(emit.cast("zext", value, vector.register))
        if value.constant is None
        else str(value.constant)
        for value in words
    ]
    filled = [
        f"mov.b{max(16, vector.bits)} {name}, {source};"
        for name, source in zip(names, sources, strict=True)
    ]
    is_filled_alike = len(set(sources)) == 1 and words[0].constant is not None
    ways = TwoWays(access, text, may_loop=vector.is_packed and is_filled_alike)

    policy = modifiers.last_operand(text.use)
    # Elements that have a bit each are read one by one: the base of a descriptor may lie at no
    # multiple of a vector, which is reported.
    is_whole = vector.is_packed or ways.has_whole_vectors or access.site.is_recomputed
    is_merged = vector.elements > 1 and is_whole and not ways.has_whole_vectors
    parts = [f"part{word}" for word in range(vector.words)]

    def target(group: int) -> str:
        return _listed(names[group * vector.words : (group + 1) * vector.words])

    def merging(group: int | None, words: Sequence[str], fills: Sequence[str]) -> list[str]:
        there = f"{_listed(words)}, [{ways.place(group)}]{policy}"
        load = f"@q ld{modifiers.text}{vector.suffix} {there};"
        if not is_merged:
            return [*ways.compared_vector(group), load]
        lines = [
            *ways.compared_vector(group),
            f"setp.lt.and.u64 some, o, {ways.limit}, b;",
            "or.pred q, q, some;",
            load,
        ]
        for name, fill, part in zip(words, fills, parts, strict=True):
            lines += _merged(name, fill, part, vector)
        return lines

    def near(group: int) -> None:
        there = f"{target(group)}, [{ways.place(group)}]{policy}"
        text.put(f"{ways.guard(group)}ld{modifiers.text}{vector.suffix} {there};")

    def far(group: int) -> None:
        begin = group * vector.words
        if is_whole:
            of_group = slice(begin, begin + vector.words)
            text.put(*merging(group, names[of_group], sources[of_group]))
            return
        for word in range(vector.words):
            moved = word * vector.element_bytes
            text.put(*((f"add.s64 l, o, {moved};",) if moved else ()))
            text.put(ways.compared(group, "l" if moved else "o", ways.limit))
            text.put(*ways.noted(group, word))
            there = f"{names[begin + word]}, [{ways.place(group, moved)}]{policy}"
            text.put(f"@q ld{modifiers.text}.b{vector.bits} {there};")

    text.put("{", *REGISTERS)
    is_masked = access.mask is not None
    text.put(*(filled if is_masked else ()))
    before_far = [] if is_masked or ways.is_looped else filled
    looped = None
    if is_merged:
        text.put(f".reg .b{vector.bits} {', '.join(parts)};")
        before_far += _parts_of_last(ways, parts, vector)
    if ways.is_looped:
        kept = [f"w{word}" for word in range(vector.words)]
        text.put(f".reg .b{vector.bits} {', '.join(kept)};")
        body = [f"mov.b{vector.bits} {name}, {sources[0]};" for name in kept]
        body += merging(None, kept, [sources[0]] * len(kept))
        body.append(f"st.local{vector.suffix} [slot], {_listed(kept)};")
        targets = [target(group) for group in range(len(access.firsts))]
        looped = LoopedWay(vector.suffix, vector.bytes, (), body, targets)
    ways.write(near, far, before_far, looped=looped)
    text.put("}")
    return [emit.cast("trunc", got, f"i{vector.bits}") for got in ways.emit()]


def _listed(names: Sequence[str]) -> str:
    """Join register names to one operand of an instruction."""
    return f"{{{', '.join(names)}}}" if len(names) > 1 else names[0]


def _parts_of_last(ways: TwoWays, parts: Sequence[str], vector: Vector) -> list[str]:
    """Return instructions that compute a mask for each word of the vector in which the tensor ends.

    A mask's bit is set if that bit of the word belongs to the tensor.
    """
    # A vector lies at a multiple of its size, so the end alone says how much that is.
    kept = vector.bytes - vector.element_bytes
    lines = [f"cvt.u32.u64 tail, {ways.end_of_tensor};", f"and.b32 tail, tail, {kept};"]
    lines.append("shl.b32 n, tail, 3;")
    for word, part in enumerate(parts):
        first_bit = word * vector.bits
        if not vector.is_packed:
            lines.append(f"setp.ge.u32 b, n, {first_bit + vector.bits};")
            lines.append(f"selp.b{vector.bits} {part}, -1, 0, b;")
            continue
        mask = part if vector.bits == _WORD_BITS else "t"
        lines += [
            f"sub.s32 t, n, {first_bit};",
            "max.s32 t, t, 0;",
            f"bmsk.clamp.b32 {mask}, 0, t;",
        ]
        lines += [] if mask == part else [f"cvt.u16.u32 {part}, t;"]
    return lines


def _merged(name: str, fill: str, part: str, vector: Vector) -> list[str]:
    """Return instructions that replace a word's bits outside `part` by `fill`'s if `some` holds."""
    kept = f"@some and.b{vector.bits} {name}, {name}, {part};"
    # The bits in which they differ, where they are not in `part`, are turned back.
    turned = f"@some xor.b{vector.bits} {name}, {name}, {fill};"
    return [kept] if fill == "0" else [turned, kept, turned]


def guarded_store(
    access: TestedAccess,
    modifiers: Modifiers,
    vector: Vector,
    packed: Sequence[Registers],
    owner: LLVMValue | None,
) -> None:
    """Write st.global of a tile.

    Vectors that cross the tensor's end are all at one address: one of them is stored by elements.

    Args:
        access: the store.
        modifiers: the modifiers of the instruction.
        vector: the elements of each store instruction.
        packed: the words of each store instruction.
        owner: i1: whether this thread stores its elements; None if all do.
    """
    text = InlinePTX(["i32"] * result_words(access))
    ways = TwoWays(access, text, owner)
    emit = access.checks.ctx.emit
    is_gathered = vector.elements > 1 and not (ways.is_looped or ways.has_whole_vectors)
    acting = "" if owner is None else text.use(owner)
    names = [
        [text.use(emit.cast("zext", word, vector.register)) for word in words] for words in packed
    ]
    policy = modifiers.last_operand(text.use)
    parts = [f"w{word}" for word in range(vector.words)]
    bits = max(16, vector.bits)

    def near(group: int) -> None:
        place, guard = ways.place(group), ways.guard(group)
        what = f"[{place}], {_listed(names[group])}{policy}"
        text.put(f"{guard}st{modifiers.text}{vector.suffix} {what};")

    def far(group: int) -> None:
        place = ways.place(group)
        text.put(*ways.compared_vector(group))
        if is_gathered:
            text.put(f"setp.lt.and.u64 b, o, {ways.limit}, b;", "or.pred part, part, b;")
            pointer, offset = ways.pointer(group)
            text.put("@b mov.b64 at, o;", f"@b add.s64 to, {pointer}, {offset};")
            moves = zip(parts, names[group], strict=True)
            text.put(*(f"@b mov.b{bits} {part}, {word};" for part, word in moves))
        text.put(*((f"and.pred q, q, {acting};",) if acting else ()))
        what = f"[{place}], {_listed(names[group])}{policy}"
        text.put(f"@q st{modifiers.text}{vector.suffix} {what};")

    text.put("{", *REGISTERS)
    begin: tuple[str, ...] = ()
    end: list[str] = []
    if is_gathered:
        text.put(".reg .pred part;", ".reg .b64 at, to;", f".reg .b{bits} {', '.join(parts)};")
        zeros = (f"mov.b{bits} {part}, 0;" for part in parts)
        begin = ("setp.ne.u32 part, 0, 0;", "mov.b64 at, 0;", "mov.b64 to, 0;", *zeros)
        end = _stored_part(ways, f"st{modifiers.text}", policy, vector, parts, acting)
    looped = None
    if ways.is_looped:
        element_bits = max(16, vector.element_bits)
        text.put(f".reg .b{element_bits} element;", ".reg .b64 from;")
        text.put(f".reg .b{bits} {', '.join(parts)};")
        body = _stored_group(ways, f"st{modifiers.text}", policy, vector, parts, acting)
        listed = [_listed(words) for words in names]
        looped = LoopedWay(vector.suffix, vector.bytes, listed, body)
    ways.write(near, far, begin, end, looped)
    text.put("}")
    ways.emit()


def _stored_group(
    ways: TwoWays, store: str, policy: str, vector: Vector, parts: Sequence[str], acting: str
) -> list[str]:
    """Instructions that store the good elements of a loop's current group."""
    bits, size_bytes = vector.element_bits, vector.element_bytes
    listed, acts = _listed(parts), (f"and.pred q, q, {acting};",) if acting else ()
    whole = [
        f"ld.local{vector.suffix} {listed}, [slot];",
        *ways.compared_vector(None),
        *acts,
        f"@q {store}{vector.suffix} [at], {listed}{policy};",
    ]
    if vector.elements == 1 or ways.has_whole_vectors:
        return whole
    return [
        *whole,
        # Where the vector crosses the tensor's end, element by element.
        f"setp.lt.and.u64 b, o, {ways.limit}, b;",
        "@!b bra DONE_WITH_GROUP;",
        "mov.b64 from, slot;",
        f"mov.b32 n, {vector.elements};",
        "EACH:",
        NOT_UNROLLED,
        ways.compared(None, "o", ways.limit),
        *acts,
        f"ld.local.b{bits} element, [from];",
        f"@q {store}.b{bits} [at], element{policy};",
        *(f"add.s64 {place}, {place}, {size_bytes};" for place in ("o", "at", "from")),
        "sub.s32 n, n, 1;",
        "setp.ne.u32 q, n, 0;",
        "@q bra EACH;",
        "DONE_WITH_GROUP:",
    ]


def _stored_part(
    ways: TwoWays, store: str, policy: str, vector: Vector, parts: Sequence[str], acting: str
) -> list[str]:
    """Return instructions that store good elements of the vector at `to`, tensor offset `at`."""
    lines = [f"and.pred part, part, {acting};"] if acting else []
    per_word = vector.bits // vector.element_bits
    for element in range(vector.elements - 1):
        moved, part = element * vector.element_bytes, parts[element // per_word]
        value = part
        if vector.is_packed:
            shift, value = element % per_word * vector.element_bits, "h"
            if vector.bits == _WORD_BITS:
                lines += [f"shr.u32 t, {part}, {shift};", "cvt.u16.u32 h, t;"]
            else:
                lines.append(f"shr.u16 h, {part}, {shift};")
        lines += [
            f"add.s64 l, at, {moved};",
            f"setp.lt.and.u64 q, l, {ways.limit}, part;",
            f"@q {store}.b{vector.element_bits} [to+{moved}], {value}{policy};",
        ]
    return lines


def guarded_copy(
    access: TestedAccess,
    instruction: str,
    addresses: Sequence[LLVMValue],
    size_bytes: int,
    owner: LLVMValue | None,
) -> None:
    """Write cp.async of a tile; elements that are not read are filled with zeros.

    Args:
        access: the copy.
        instruction: `cp.async` with its modifiers.
        addresses: in shared memory, i32, one for each group of the access.
        size_bytes: the size of a vector.
        owner: i1: whether this thread copies its elements; None if all do.
    """
    text = InlinePTX(["i32"] * result_words(access))
    ways = TwoWays(access, text, owner)
    masks, guard = access.mask, "" if owner is None else f"@{text.use(owner)} "

    def near(group: int) -> None:
        count = ""
        on = None if masks is None else masks[access.firsts[group]]
        if on is not None and on.constant != 1:
            text.put(f"selp.b32 n, {size_bytes}, 0, {text.use(on)};")
            count = ", n"
        to = text.use(addresses[group])
        place = ways.place(group)
        acting = ways.guard(group, is_masked=False)
        text.put(f"{acting}{instruction} [{to}], [{place}], {size_bytes}{count};")

    def testing(group: int | None, to: str) -> list[str]:
        lines = [*ways.compared_vector(group), f"selp.b32 n, {size_bytes}, 0, q;"]
        # The part of a vector that crosses the tensor's end before the end.
        if access.group > 1 and not ways.has_whole_vectors:
            lines += [f"setp.lt.and.u64 q, o, {ways.limit}, b;", f"sub.s64 l, {ways.size}, o;"]
            lines += ["cvt.u32.u64 tail, l;", f"@q and.b32 n, tail, -{ways.element_bytes};"]
        place = ways.place(group)
        return [*lines, f"{guard}{instruction} [{to}], [{place}], {size_bytes}, n;"]

    def far(group: int) -> None:
        text.put(*testing(group, text.use(addresses[group])))

    text.put("{", *REGISTERS)
    looped = None
    if ways.is_looped:
        body = ["ld.local.b32 t, [slot];", *testing(None, "t")]
        looped = LoopedWay(".b32", 4, [text.use(address) for address in addresses], body)
    ways.write(near, far, looped=looped)
    text.put("}")
    ways.emit()
