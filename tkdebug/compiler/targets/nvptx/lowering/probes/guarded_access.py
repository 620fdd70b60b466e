"""Loads and stores that are tested, each as one piece of PTX with both of its ways.

The usual way is the bare access. The other one tests each vector and element, and makes the good
accesses. It sets the site's flag, or sets a bit for each bad element, of which a report is made
after it. As LLVM sees neither branch nor test, it does with such an access what it does with a bare
one, in the same time; and what ptxas has to compile is short.

Sources: PTX ISA, "Data Movement and Conversion Instructions: ld, st, cp.async", "Integer Arithmetic
Instructions: bmsk".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.probes import table
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX
from tkdebug.compiler.targets.nvptx.lowering.memory.modifiers import Modifiers
from tkdebug.compiler.targets.nvptx.lowering.probes.access import (
    TestedAccess,
    report_bits,
    result_words,
    tile_is_whole,
)
from tkdebug.compiler.targets.nvptx.lowering.probes.group_places import group_places
from tkdebug.compiler.targets.nvptx.lowering.types import Registers

_WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class Vector:
    """The words of one instruction.

    Attributes:
        suffix: as the instruction has it: `.v4.b32`.
        bits: of a word.
        words: how many there are.
        element_bits: of an element; a word has one or several.
    """

    suffix: str
    bits: int
    words: int
    element_bits: int

    @property
    def register(self) -> str:
        """LLVM type of a word's register."""
        return f"i{max(16, self.bits)}"

    @property
    def elements(self) -> int:
        """Of the vector."""
        return self.words * self.bits // self.element_bits

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.words * self.bits // 8

    @property
    def element_bytes(self) -> int:
        """Of an element."""
        return self.element_bits // 8

    @property
    def is_packed(self) -> bool:
        """Whether a word has several elements."""
        return self.bits > self.element_bits


# Writes the instructions for one group of registers, by its number.
_Group = Callable[[int], None]


class _TwoWays:
    """Writes both ways of an access.

    Args:
        ctx: the kernel.
        access: what is tested.
        text: where it is written.
        owner: i1: whether this thread acts for its elements; None where all do.

    Attributes:
        whole: i1, the same in all threads: whether all of the tile lies inside; None where that is
            not known, and there is only the second way.
    """

    def __init__(
        self, ctx: Lowering, access: TestedAccess, text: InlinePTX, owner: LLVMValue | None = None
    ) -> None:
        self.whole = tile_is_whole(ctx, access)
        self._places = group_places(ctx, PointerAccess(access.op).pointer, access.firsts)
        self._bits = {} if access.order is None else access.order.positions()
        self._ctx = ctx
        self._access = access
        self._text = text
        self._owner = owner
        assert ctx.probes is not None
        self._probes = ctx.probes
        # Of the tensor: its size, and below which offset an element or a vector may begin.
        self.size, self.limit = "size", "lim"
        self.element_bytes = access.site.element_bytes
        self.vector_limit = self.limit if access.group == 1 else "vlim"

    def place(self, group: int, offset_bytes: int = 0) -> str:
        """Where so many bytes behind the first element of a group are, as an operand."""
        place = self._places[group]
        offset = place.offset_bytes + offset_bytes
        return f"{self._text.use(self._access.pointers[place.register])}{offset:+}"

    def pointer(self, group: int) -> tuple[str, int]:
        """A register and a number whose sum is the pointer of a group's first element."""
        place = self._places[group]
        return self._text.use(self._access.pointers[place.register]), place.offset_bytes

    def write(
        self, near: _Group, far: _Group, before_far: Sequence[str] = (), end: Sequence[str] = ()
    ) -> None:
        """Write them.

        Args:
            near: the access of a group as it is without probes.
            far: that of its good elements; notes the bad ones. `o` is how far its first byte is
                behind the tensor's.
            before_far: comes before the first group of the second way.
            end: comes after the last one.
        """
        access, text = self._access, self._text
        text.put(*(f"mov.b32 {word}, 0;" for word in self._words()))
        if self.whole is not None:
            text.put(f"@!{text.use(self.whole)} bra.uni FAR;")
            for group in range(len(access.firsts)):
                near(group)
            text.put("bra DONE;", "FAR:")
        text.put(*before_far, "setp.ne.u32 bad, 0, 0;")
        first, end_of_tensor = map(text.use, self._probes.ends(access.site, access.op))
        text.put(f"sub.s64 size, {end_of_tensor}, {first};")
        text.put(*self._limited("lim", 1))
        if access.group > 1:
            text.put(*self._limited("vlim", access.group))
        before = ""
        for group in range(len(access.firsts)):
            pointer, offset = self.pointer(group)
            if pointer != before:
                text.put(f"sub.s64 base, {pointer}, {first};")
            before = pointer
            text.put(f"add.s64 o, base, {offset};")
            far(group)
        text.put(*end)
        if access.site.is_recomputed:
            slot = text.use(self._ctx.emit.cast("ptrtoint", self._probes.slot(access.site), "i64"))
            text.put("mov.b64 o, 1;")
            text.put(f"@bad st.relaxed.gpu.global.u64 [{slot}+{table.COUNT}], o;")
        text.put("DONE:")

    def emit(self) -> Registers:
        """Write the text, and the report; the text's results but for what is reported."""
        results = self._text.emit(self._ctx)
        words = len(self._words())
        if words:
            report_bits(self._ctx, self._access, results[-words:], self.whole)
        return results[: len(results) - words]

    def _words(self) -> list[str]:
        """The words of bits, which are the last results."""
        count = result_words(self._access)
        first = len(self._text.results) - count
        return [f"${first + word}" for word in range(count)]

    def noted(self, group: int, element: int) -> tuple[str, ...]:
        """Instructions that note an element of a group where `b` says that it is bad."""
        if self._access.site.is_recomputed:
            # Where one in the middle is bad, so is the first or the last.
            is_end = element in (0, self._access.group - 1)
            return ("or.pred bad, bad, b;",) if is_end else ()
        place = self._bits.get(self._access.firsts[group] + element)
        if place is None:
            return ()
        number, bit = divmod(place, _WORD_BITS)
        word = self._words()[number]
        return (f"@b or.b32 {word}, {word}, {1 << bit};",)

    def compared_vector(self, group: int) -> list[str]:
        """Instructions that compare a group's offset, and note its bad elements.

        `q` says whether all of it is masked on and good, `b` whether it is masked on and is not.
        """
        lines: list[str] = []
        compared, size_bytes = self.compared(group, "o", self.vector_limit), self.element_bytes
        if self._access.site.is_recomputed or self._access.group == 1:
            return [compared, *self.noted(group, 0)]
        for element in range(self._access.group):
            noted = self.noted(group, element)
            if noted:
                lines.append(f"add.s64 l, o, {element * size_bytes};")
                lines += [self.compared(group, "l", self.limit), *noted]
        return [*lines, compared]

    def _limited(self, name: str, elements: int) -> tuple[str, str]:
        """Below which offset so many elements may begin; computed here, to stay in no register."""
        size_bytes = elements * self._access.site.element_bytes
        return f"sub.s64 {name}, size, {size_bytes - 1};", f"max.s64 {name}, {name}, 0;"

    def compared(self, group: int, offset: str, limit: str) -> str:
        """The instruction that compares an offset, where the group is masked on.

        `q` says whether it is below the limit, `b` whether it is not.
        """
        mask = self._mask(group)
        if mask is None:
            return f"setp.lt.u64 q|b, {offset}, {limit};"
        return f"setp.lt.and.u64 q|b, {offset}, {limit}, {self._text.use(mask)};"

    def guard(self, group: int) -> str:
        """What an instruction goes by: mask and owner."""
        mask, owner = self._mask(group), self._owner
        both = owner if mask is None else mask
        if mask is not None and owner is not None:
            both = self._ctx.emit.bit_and(owner, mask)
        return "" if both is None else f"@{self._text.use(both)} "

    def _mask(self, group: int) -> LLVMValue | None:
        if self._access.mask is None:
            return None
        mask = self._access.mask[self._access.firsts[group]]
        return None if mask.constant == 1 else mask


def guarded_load(
    ctx: Lowering,
    access: TestedAccess,
    modifiers: Modifiers,
    vector: Vector,
    fills: Sequence[Registers],
) -> Registers:
    """ld.global of a tile: all its words.

    A vector of packed elements that crosses the end of its tensor is read whole: it lies at a
    multiple of its size, so that all of it is memory of one allocation.

    Args:
        ctx: the kernel.
        access: the load.
        modifiers: of the instruction.
        vector: what each instruction loads.
        fills: for each the words of what is not loaded.
    """
    words = [value for fill in fills for value in fill]
    text = InlinePTX([*[vector.register] * len(words), *["i32"] * result_words(access)])
    names = [f"${index}" for index in range(len(words))]
    sources = [
        text.use(ctx.emit.cast("zext", value, vector.register))
        if value.constant is None
        else str(value.constant)
        for value in words
    ]
    filled = [
        f"mov.b{max(16, vector.bits)} {name}, {source};"
        for name, source in zip(names, sources, strict=True)
    ]
    ways = _TwoWays(ctx, access, text)

    policy = modifiers.last_operand(text.use)

    def target(group: int) -> str:
        listed = ", ".join(names[group * vector.words : (group + 1) * vector.words])
        return f"{{{listed}}}" if vector.words > 1 else listed

    def near(group: int) -> None:
        there = f"{target(group)}, [{ways.place(group)}]{policy}"
        text.put(f"{ways.guard(group)}ld{modifiers.text}{vector.suffix} {there};")

    def far(group: int) -> None:
        begin = group * vector.words
        if vector.is_packed:
            text.put(*ways.compared_vector(group), ways.compared(group, "o", ways.limit))
            there = f"{target(group)}, [{ways.place(group)}]{policy}"
            text.put(f"@q ld{modifiers.text}{vector.suffix} {there};")
            text.put(f"sub.s64 l, {ways.size}, o;", f"min.u64 l, l, {vector.bytes};")
            text.put("cvt.u32.u64 n, l;", f"and.b32 n, n, -{ways.element_bytes};")
            text.put("shl.b32 n, n, 3;")
            for word in range(vector.words):
                text.put(*_merged(names[begin + word], sources[begin + word], vector, word))
            return
        for word in range(vector.words):
            moved = word * vector.element_bytes
            text.put(*((f"add.s64 l, o, {moved};",) if moved else ()))
            text.put(ways.compared(group, "l" if moved else "o", ways.limit))
            text.put(*ways.noted(group, word))
            name = names[begin + word]
            there = f"{name}, [{ways.place(group, moved)}]{policy}"
            text.put(f"@q ld{modifiers.text}.b{vector.bits} {there};")

    text.put("{", *_REGISTERS)
    is_masked = access.mask is not None
    text.put(*(filled if is_masked else ()))
    ways.write(near, far, () if is_masked else filled)
    text.put("}")
    return [ctx.emit.cast("trunc", got, f"i{vector.bits}") for got in ways.emit()]


def _merged(name: str, fill: str, vector: Vector, word: int) -> tuple[str, ...]:
    """Instructions that take `fill` for what is behind the first `n` bits of a vector."""
    mask = (
        f"sub.s32 t, n, {word * vector.bits};",
        "max.s32 t, t, 0;",
        "bmsk.clamp.b32 t, 0, t;",
    )
    if vector.bits == _WORD_BITS:
        if fill == "0":
            return (*mask, f"and.b32 {name}, {name}, t;")
        # (word and mask) or (fill and not mask).
        return (*mask, f"mov.b32 n2, {fill};", f"lop3.b32 {name}, {name}, n2, t, 0xe4;")
    return (
        *mask,
        "cvt.u16.u32 h, t;",
        f"xor.b16 {name}, {name}, {fill};",
        f"and.b16 {name}, {name}, h;",
        f"xor.b16 {name}, {name}, {fill};",
    )


def guarded_store(
    ctx: Lowering,
    access: TestedAccess,
    modifiers: Modifiers,
    vector: Vector,
    packed: Sequence[Registers],
    owner: LLVMValue | None,
) -> None:
    """st.global of a tile.

    Of the vectors that cross the end of the tensor, all at one address, one is stored by elements.

    Args:
        ctx: the kernel.
        access: the store.
        modifiers: of the instruction.
        vector: what each instruction stores.
        packed: the words of each.
        owner: i1: whether this thread stores its elements; None where all do.
    """
    text = InlinePTX(["i32"] * result_words(access))
    ways = _TwoWays(ctx, access, text, owner)
    acting = "" if owner is None else text.use(owner)
    names = [
        [text.use(ctx.emit.cast("zext", word, vector.register)) for word in words]
        for words in packed
    ]
    policy = modifiers.last_operand(text.use)
    parts = [f"w{word}" for word in range(vector.words)]
    bits = max(16, vector.bits)

    def source(words: Sequence[str]) -> str:
        return f"{{{', '.join(words)}}}" if vector.words > 1 else words[0]

    def near(group: int) -> None:
        place, guard = ways.place(group), ways.guard(group)
        what = f"[{place}], {source(names[group])}{policy}"
        text.put(f"{guard}st{modifiers.text}{vector.suffix} {what};")

    def far(group: int) -> None:
        place = ways.place(group)
        text.put(*ways.compared_vector(group))
        if vector.elements > 1:
            text.put(f"setp.lt.and.u64 b, o, {ways.limit}, b;", "or.pred part, part, b;")
            pointer, offset = ways.pointer(group)
            text.put("@b mov.b64 at, o;", f"@b add.s64 to, {pointer}, {offset};")
            moves = zip(parts, names[group], strict=True)
            text.put(*(f"@b mov.b{bits} {part}, {word};" for part, word in moves))
        text.put(*((f"and.pred q, q, {acting};",) if acting else ()))
        what = f"[{place}], {source(names[group])}{policy}"
        text.put(f"@q st{modifiers.text}{vector.suffix} {what};")

    text.put("{", *_REGISTERS)
    begin: tuple[str, ...] = ()
    if vector.elements > 1:
        text.put(".reg .pred part;", ".reg .b64 at, to;", f".reg .b{bits} {', '.join(parts)};")
        zeros = (f"mov.b{bits} {part}, 0;" for part in parts)
        begin = ("setp.ne.u32 part, 0, 0;", "mov.b64 at, 0;", "mov.b64 to, 0;", *zeros)
    ways.write(
        near, far, begin, _stored_part(ways, f"st{modifiers.text}", policy, vector, parts, acting)
    )
    text.put("}")
    ways.emit()


def _stored_part(
    ways: _TwoWays, store: str, policy: str, vector: Vector, parts: Sequence[str], acting: str
) -> list[str]:
    """Instructions that store the good elements of the vector at `to`, `at` in the tensor."""
    lines = [f"and.pred part, part, {acting};"] if acting and vector.elements > 1 else []
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
    ctx: Lowering,
    access: TestedAccess,
    instruction: str,
    addresses: Sequence[LLVMValue],
    size_bytes: int,
    owner: LLVMValue | None,
) -> None:
    """cp.async of a tile; what is not read is filled with zeros.

    Args:
        ctx: the kernel.
        access: the copy.
        instruction: `cp.async` with its modifiers.
        addresses: in shared memory, i32, one for each group of the access.
        size_bytes: of a vector.
        owner: i1: whether this thread copies its elements; None where all do.
    """
    text = InlinePTX(["i32"] * result_words(access))
    ways = _TwoWays(ctx, access, text, owner)
    masks, guard = access.mask, "" if owner is None else f"@{text.use(owner)} "

    def near(group: int) -> None:
        count = ""
        on = None if masks is None else masks[access.firsts[group]]
        if on is not None and on.constant != 1:
            text.put(f"selp.b32 n, {size_bytes}, 0, {text.use(on)};")
            count = ", n"
        to = text.use(addresses[group])
        text.put(f"{guard}{instruction} [{to}], [{ways.place(group)}], {size_bytes}{count};")

    def far(group: int) -> None:
        text.put(*ways.compared_vector(group), f"selp.b32 n, {size_bytes}, 0, q;")
        if access.group > 1:
            # Of a vector that crosses the tensor's end, what is before it.
            text.put(f"setp.lt.and.u64 q, o, {ways.limit}, b;", f"sub.s64 l, {ways.size}, o;")
            text.put("cvt.u32.u64 n2, l;", f"@q and.b32 n, n2, -{ways.element_bytes};")
        to = text.use(addresses[group])
        text.put(f"{guard}{instruction} [{to}], [{ways.place(group)}], {size_bytes}, n;")

    text.put("{", *_REGISTERS)
    ways.write(near, far)
    text.put("}")
    ways.emit()


_REGISTERS = (
    ".reg .pred q, b, bad;",
    ".reg .b64 base, o, l, size, lim, vlim;",
    ".reg .b32 n, n2, t;",
    ".reg .b16 h;",
)
