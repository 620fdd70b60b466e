"""Both ways of a tested access: the bare fast path; the slow path that tests vectors and elements.

The slow path is written group by group, or as a loop over the groups, whose operands are then in
local memory. A loop is a third of the text, and takes longer to run: it is for accesses that run
once, in a kernel that has loops of its own.

Bad elements, a bit each, are reported by one piece of PTX with its branch in it: in LLVM IR the
rare block chooses an address among those of all elements, which would take LLVM as long as half of
a small kernel.

Sources: PTX ISA, "Data Movement and Conversion Instructions: ld, st, cp.async", "Performance-Tuning
Directives: .pragma nounroll", "Integer Arithmetic Instructions: popc, clz, brev".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.sites import table
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.checks.access import (
    TestedAccess,
    result_words,
    runs_together,
    tile_is_whole,
)
from tkdebug.compiler.targets.nvptx.lowering.checks.kernel_checks import COPY_BITS
from tkdebug.compiler.targets.nvptx.lowering.checks.places import (
    PlaceOrder,
    acting_thread,
    first_bit,
    group_places,
    linear_places,
)
from tkdebug.compiler.targets.nvptx.lowering.checks.reports import in_any_thread, report_text
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX
from tkdebug.compiler.targets.nvptx.lowering.types import Registers

_WORD_BITS = 32
# The names in the text of both ways.
REGISTERS = (
    ".reg .pred q, b, some;",
    ".reg .b64 base, o, l, size, lim, vlim;",
    ".reg .b32 n, t, bad, tail;",
    ".reg .b16 h;",
)
# A 32-bit register: the masks of an access may take all seven predicate registers.
BAD = "@b mov.b32 bad, 1;"
# After the label of a loop.
NOT_UNROLLED = '.pragma "nounroll";'
_FEW_GROUPS = 2
# A way of fewer groups is no shorter as a loop, and of more would take too much local memory.
_LOOPED_GROUPS = range(4, 17)
# Bytes of a group's operands in local memory.
_SLOT_ALIGNMENT = 16
_POINTER_BYTES = 8
# Writes the instructions for one group of registers, by its number.
_Group = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LoopedWay:
    """The slow path of any group, as the body of a loop over groups.

    The body finds the group's address in `at`, its distance from the tensor's first byte in `o`,
    whether the group is masked on in `some`, and its words in local memory at `slot`.

    Attributes:
        suffix: the suffix of the instruction that stores a group's words to local memory:
            `.v4.b32`.
        size_bytes: the size of these words.
        kept: the words of each group, as one operand of an instruction; none if the loop makes
            them.
        body: the instructions for a group.
        results: the registers for the words of each group after the loop; none if the words are not
            kept.
    """

    suffix: str
    size_bytes: int
    kept: Sequence[str]
    body: Sequence[str]
    results: Sequence[str] = ()


class TwoWays:
    """Writes the fast path and the slow path of an access.

    Args:
        access: the tested access.
        text: the PTX that they are written to.
        owner: i1: whether this thread acts for its elements; None if all do.
        may_loop: whether the slow path may be a loop over the groups.

    Attributes:
        has_whole_vectors: whether no vector crosses an end of the tensor.
        is_looped: whether the slow path is a loop over the groups.
        whole: i1, the same in all threads: whether all of the tile lies inside; None if that is not
            known, and there is only the slow path.
    """

    def __init__(
        self,
        access: TestedAccess,
        text: InlinePTX,
        owner: LLVMValue | None = None,
        *,
        may_loop: bool = True,
    ) -> None:
        self._checks, self._ctx = access.checks, access.checks.ctx
        self.whole = tile_is_whole(access)
        # Few instructions come before the branch around the slow path: they need not wait for it.
        self._is_ahead = self.whole is not None and len(access.firsts) <= _FEW_GROUPS
        self._places = group_places(self._ctx, PointerAccess(access.op).pointer, access.firsts)
        self._bits = {} if access.order is None else access.order.positions()
        self._access = access
        self._text = text
        self._owner = owner
        self.is_looped = may_loop and self._is_loop_better()
        vector_bytes = access.group * access.site.element_bytes
        is_known = access.group > 1 and self._checks.holds_whole_vectors(access.site, vector_bytes)
        self.has_whole_vectors = is_known
        # The tensor's size, and the offsets below which an element or a vector may begin.
        self.size, self.limit, self.vector_limit = "size", "lim", "vlim"
        self.element_bytes = access.site.element_bytes
        if access.group == 1:
            self.vector_limit = self.limit
        elif is_known:
            self.limit = self.vector_limit = self.size

    def _is_loop_better(self) -> bool:
        """Whether the slow path is so rare that a loop, shorter but slower, is better."""
        access, checks = self._access, self._checks
        is_rare = self.whole is not None and not checks.is_in_loop(access.op)
        is_flagged = access.site.is_recomputed
        return is_rare and is_flagged and checks.has_loop and len(access.firsts) in _LOOPED_GROUPS

    @property
    def end_of_tensor(self) -> str:
        """The address after the tensor, as an operand."""
        return self._text.use(self._checks.ends(self._access.site, self._access.op)[1])

    def place(self, group: int | None, offset_bytes: int = 0) -> str:
        """Return the address `offset_bytes` after a group's first element, as an operand.

        Here and below, a group of None is the one that a loop is at.
        """
        if group is None:
            return f"at{offset_bytes:+}"
        place = self._places[group]
        offset = place.offset_bytes + offset_bytes
        return f"{self._text.use(self._access.pointers[place.register])}{offset:+}"

    def pointer(self, group: int) -> tuple[str, int]:
        """A register and a number whose sum is the pointer of a group's first element."""
        place = self._places[group]
        return self._text.use(self._access.pointers[place.register]), place.offset_bytes

    def write(
        self,
        near: _Group,
        far: _Group,
        before_far: Sequence[str] = (),
        end: Sequence[str] = (),
        looped: LoopedWay | None = None,
    ) -> None:
        """Write the fast path and the slow path.

        Args:
            near: the access of a group without checks.
            far: the access of a group's good elements; notes the bad ones. `o` is the distance of
                its first byte from the tensor's.
            before_far: comes before the first group of the slow path.
            end: comes after the last one.
            looped: replaces `far` and `end` where `is_looped`.
        """
        access, text = self._access, self._text
        text.put(*(f"mov.b32 {word}, 0;" for word in self._words()))
        if self.whole is not None and self._is_ahead:
            for group in range(len(access.firsts)):
                near(group)
            text.put(f"@{text.use(self.whole)} bra.uni DONE;")
        elif self.whole is not None:
            text.put(f"@{text.use(self.whole)} bra.uni NEAR;")
        text.put("mov.b32 bad, 0;")
        first, end_of_tensor = map(text.use, self._checks.ends(access.site, access.op))
        text.put(f"sub.s64 size, {end_of_tensor}, {first};")
        if not self.has_whole_vectors:
            text.put(*self._limited("lim", 1))
            text.put(*(self._limited("vlim", access.group) if access.group > 1 else ()))
        text.put(*before_far)
        if self.is_looped:
            assert looped is not None
            self._write_loop(looped, first)
        else:
            self._write_groups(far, first)
            text.put(*end)
        if access.site.is_recomputed:
            address, offset = self._checks.place(access.site, shown=True)
            flag = f"[{text.use(address)}+{offset + table.COUNT}]"
            text.put("setp.ne.u32 b, bad, 0;", f"@b st.relaxed.sys.global.u32 {flag}, bad;")
        if self.whole is not None and not self._is_ahead:
            # After the slow path: before a branch, ptxas turns masks into branches, too.
            text.put("bra.uni DONE;", "NEAR:")
            for group in range(len(access.firsts)):
                near(group)
        text.put("DONE:")

    def _write_groups(self, far: _Group, first: str) -> None:
        """Write the slow path group by group."""
        text, before = self._text, ""
        for group in range(len(self._access.firsts)):
            pointer, offset = self.pointer(group)
            if pointer != before:
                text.put(f"sub.s64 base, {pointer}, {first};")
            before = pointer
            text.put(f"add.s64 o, base, {offset};")
            far(group)

    def _write_loop(self, looped: LoopedWay, first: str) -> None:
        """Write the slow path as a loop over the groups."""
        text, groups = self._text, len(self._access.firsts)
        at_byte = -(-looped.size_bytes // _POINTER_BYTES) * _POINTER_BYTES
        slot_bytes = -(-(at_byte + _POINTER_BYTES) // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT
        scratch = self._checks.scratch(groups * slot_bytes)
        masked_on: dict[str, int] = {}
        # Bit by bit whether groups are masked on, and after the last one a bit that ends the loop.
        on = 1 << groups
        for group in range(groups):
            slot = group * slot_bytes
            for words in looped.kept[group : group + 1]:
                text.put(f"st.local{looped.suffix} [{scratch}+{slot}], {words};")
            pointer, offset = self.pointer(group)
            if offset:
                text.put(f"add.s64 o, {pointer}, {offset};")
                pointer = "o"
            text.put(f"st.local.b64 [{scratch}+{slot + at_byte}], {pointer};")
            mask = self._mask(group)
            if mask is None:
                on |= 1 << group
            else:
                name = text.use(mask)
                masked_on[name] = masked_on.get(name, 0) | 1 << group
        text.put(".reg .b64 at, slot;", ".reg .b32 on;", f"mov.b32 on, {on};")
        text.put(*(f"@{mask} or.b32 on, on, {bits};" for mask, bits in masked_on.items()))
        text.put(f"mov.b64 slot, {scratch};", "NEXT:", NOT_UNROLLED)
        text.put(f"ld.local.b64 at, [slot+{at_byte}];", f"sub.s64 o, at, {first};")
        text.put("and.b32 t, on, 1;", "setp.ne.u32 some, t, 0;", *looped.body)
        text.put("shr.u32 on, on, 1;", f"add.s64 slot, slot, {slot_bytes};")
        text.put("setp.ne.u32 q, on, 1;", "@q bra NEXT;")
        for group, result in enumerate(looped.results):
            text.put(f"ld.local{looped.suffix} {result}, [{scratch}+{group * slot_bytes}];")

    def emit(self) -> Registers:
        """Write the text, and the report; return the text's results without the words of bits."""
        results = self._text.emit(self._ctx)
        words = len(self._words())
        if words:
            report_bits(self._access, results[-words:], self.whole)
        return results[: len(results) - words]

    def _words(self) -> list[str]:
        """Return the operands of the words of bits, which are the last results of the text."""
        count = result_words(self._access)
        first = len(self._text.results) - count
        return [f"${first + word}" for word in range(count)]

    def noted(self, group: int | None, *elements: int) -> tuple[str, ...]:
        """Return instructions that note elements of a group as bad if `b` holds."""
        if self._access.site.is_recomputed:
            # Where one in the middle is bad, so is the first or the last.
            has_end = not {0, self._access.group - 1}.isdisjoint(elements)
            return (BAD,) if has_end else ()
        assert group is not None
        bits: dict[int, int] = {}
        for element in elements:
            place = self._bits.get(self._access.firsts[group] + element)
            if place is not None:
                number, bit = divmod(place, _WORD_BITS)
                bits[number] = bits.get(number, 0) | 1 << bit
        words = self._words()
        return tuple(f"@b or.b32 {words[n]}, {words[n]}, {noted};" for n, noted in bits.items())

    def compared_vector(self, group: int | None) -> list[str]:
        """Return instructions that compare a group's offset, and note its bad elements.

        They set `q` if the group is masked on and all good, `b` if it is masked on and is not.
        """
        lines: list[str] = []
        compared, size_bytes = self.compared(group, "o", self.vector_limit), self.element_bytes
        if self._access.site.is_recomputed or self._access.group == 1:
            return [compared, *self.noted(group, 0)]
        if self.has_whole_vectors:
            return [compared, *self.noted(group, *range(self._access.group))]
        for element in range(self._access.group):
            noted = self.noted(group, element)
            if noted:
                lines.append(f"add.s64 l, o, {element * size_bytes};")
                lines += [self.compared(group, "l", self.limit), *noted]
        return [*lines, compared]

    def _limited(self, name: str, elements: int) -> tuple[str, str]:
        """Return instructions that set `name` to the offset below which `elements` may begin.

        The offset is computed where it is used, so that it takes no register before.
        """
        size_bytes = elements * self._access.site.element_bytes
        return f"sub.s64 {name}, size, {size_bytes - 1};", f"max.s64 {name}, {name}, 0;"

    def compared(self, group: int | None, offset: str, limit: str) -> str:
        """Return the instruction that compares an offset, if the group is masked on.

        It sets `q` if the offset is below the limit, `b` if it is not.
        """
        if group is None:
            return f"setp.lt.and.u64 q|b, {offset}, {limit}, some;"
        mask = self._mask(group)
        if mask is None:
            return f"setp.lt.u64 q|b, {offset}, {limit};"
        return f"setp.lt.and.u64 q|b, {offset}, {limit}, {self._text.use(mask)};"

    def guard(self, group: int, *, is_masked: bool = True) -> str:
        """Return the predicate of a fast-path instruction, or ""; `is_masked`: with the mask."""
        mask, owner = self._mask(group) if is_masked else None, self._owner
        whole = self.whole if self._is_ahead else None
        known = [one for one in (whole, owner, mask) if one is not None]
        both = reduce(self._ctx.emit.bit_and, known) if known else None
        return "" if both is None else f"@{self._text.use(both)} "

    def _mask(self, group: int) -> LLVMValue | None:
        if self._access.mask is None:
            return None
        mask = self._access.mask[self._access.firsts[group]]
        return None if mask.constant == 1 else mask


_REGISTERS = (
    ".reg .pred here, second;",
    ".reg .b64 address, beyond, time;",
    ".reg .b32 bits, found, position, number, place, left_out, t;",
)


def report_bits(
    access: TestedAccess,
    words: Registers,
    whole: LLVMValue | None,
) -> None:
    """Report the elements of this thread whose bits are set.

    Args:
        access: the tested access.
        words: words of bits, in the order of the access.
        whole: i1, the same in all threads: whether no bit is set; None if that is not known.
    """
    ctx, order, pointer = access.checks.ctx, access.order, PointerAccess(access.op).pointer
    assert order is not None
    # Then all threads report where one of them has bad elements, with the elements masked off.
    is_complete = whole is not None and runs_together(access.op)
    text = InlinePTX(())
    names = [text.use(word) for word in words]
    text.put("{", *_REGISTERS, f"mov.b32 bits, {names[0]};")
    text.put(*(f"or.b32 bits, bits, {name};" for name in names[1:]))
    text.put("setp.ne.u32 here, bits, 0;")
    if whole is not None:
        text.put(f"@{text.use(whole)} bra.uni REPORTED;")
    text.put(in_any_thread(ctx, "here") if is_complete else "@!here bra REPORTED;")
    text.put(*first_bit(names, "found", "position"))
    text.put(*_placed(order, text.use(linear_places(ctx, pointer)[0])))
    _choose_address(ctx, access, text)
    _count_left_out(access, text)
    if is_complete:
        # Threads without a bad element report the elements that their mask leaves out.
        text.put("setp.ne.u32 second, found, 0;", "selp.b32 place, place, -1, second;")
        text.put("or.b32 t, found, left_out;", "setp.ne.and.u32 here, t, 0, here;")
    acting = acting_thread(ctx, pointer)
    if acting is not None:
        text.put(f"and.pred here, here, {text.use(acting)};")
    if is_complete or acting is not None:
        text.put("@!here bra REPORTED;")
    _report(access, text, is_complete)
    text.put("REPORTED:", "}")
    text.emit(ctx, convergent=is_complete)


def _report(access: TestedAccess, text: InlinePTX, is_complete: bool) -> None:
    """Write the report of the bad elements."""
    checks = access.checks
    slot_address, offset = checks.place(access.site)
    text.put(f"add.s64 beyond, {text.use(slot_address)}, {offset};")
    origin = checks.pointers.origin(access.op) if access.site.is_loaded else None
    iterations, copy = checks.clock()
    text.put(f"cvt.u64.u32 time, {text.use(iterations)};", f"shl.b64 time, time, {COPY_BITS};")
    text.put(f"or.b64 time, time, {copy};")
    complete = str(int(is_complete or not access.site.shape))
    operands = ["beyond", complete, "time", "found", "place", "left_out", "address"]
    operands += [] if origin is None else [text.use(origin)]
    template = report_text(checks.ctx, access.site, has_origin=origin is not None)
    text.put(re.sub(r"\$(\d)", lambda found: operands[int(found[1])], template))


def _placed(order: PlaceOrder, first: str) -> list[str]:
    """Return instructions that compute `number` and `place` of the element at `position`."""
    registers = [(index, bit) for index, (bit, _) in enumerate(order.bits)]
    places = [(index, weight.bit_length() - 1) for index, (_, weight) in enumerate(order.bits)]
    lines = ["mov.b32 number, 0;", *_moved_bits(registers, "number")]
    return [*lines, f"mov.b32 place, {first};", *_moved_bits(places, "place")]


def _moved_bits(pairs: Iterable[tuple[int, int]], target: str) -> list[str]:
    """Return instructions that OR bits of `position` into a target, moved as `pairs` says."""
    masks: dict[int, int] = {}
    for index, bit in pairs:
        masks[bit - index] = masks.get(bit - index, 0) | 1 << index
    lines = []
    for by, mask in masks.items():
        lines.append(f"and.b32 t, position, {mask};")
        if by:
            lines.append(f"{'shl.b32' if by > 0 else 'shr.u32'} t, t, {abs(by)};")
        lines.append(f"or.b32 {target}, {target}, t;")
    return lines


def _choose_address(ctx: Lowering, access: TestedAccess, text: InlinePTX) -> None:
    """Write the choice of register `number`'s address; a group's elements are consecutive."""
    group, places = access.group, _places(ctx, access, text)
    bases = {base for base, _ in places}
    # For groups that are seen from one pointer, only the distance is chosen.
    addresses = [str(offset) for _, offset in places]
    if len(bases) > 1:
        moved = [f"moved{index}" for index in range(len(places))]
        text.put(f".reg .b64 {', '.join(moved)};")
        for name, (base, offset) in zip(moved, places, strict=True):
            text.put(f"add.s64 {name}, {base}, {offset};")
        addresses = moved
    chosen = [f"address{index}" for index in range(len(addresses) // 2)]
    text.put(*((f".reg .b64 {', '.join(chosen)};",) if chosen else ()))
    bit = group
    while len(addresses) > 1:
        # One of each pair, by the next bit of the number.
        text.put(f"and.b32 t, number, {bit};", "setp.ne.u32 second, t, 0;")
        for index, (one, other) in enumerate(_pairs(addresses)):
            text.put(f"selp.b64 {chosen[index]}, {other}, {one}, second;")
        addresses, bit = chosen[: len(addresses) // 2], bit << 1
    text.put(f"mov.b64 address, {addresses[0]};")
    text.put(*(f"add.s64 address, address, {base};" for base in bases if len(bases) == 1))
    if group > 1:
        text.put(f"and.b32 t, number, {group - 1};")
        text.put(f"mul.wide.u32 beyond, t, {access.site.element_bytes};")
        text.put("add.s64 address, address, beyond;")


def _places(ctx: Lowering, access: TestedAccess, text: InlinePTX) -> list[tuple[str, int]]:
    """Return for each group a pointer, and its first element's distance from that in bytes."""
    found = group_places(ctx, PointerAccess(access.op).pointer, access.firsts)
    return [(text.use(access.pointers[place.register]), place.offset_bytes) for place in found]


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(names[::2], names[1::2], strict=True))


def _count_left_out(access: TestedAccess, text: InlinePTX) -> None:
    """Count the elements that the mask leaves out."""
    text.put("mov.b32 left_out, 0;")
    assert access.order is not None
    if access.mask is None:
        return
    counted = set(access.order.registers).intersection(access.firsts)
    for mask, groups in Counter(access.mask[first] for first in sorted(counted)).items():
        if mask.constant is None:
            text.put(f"selp.b32 t, 0, {groups * access.group}, {text.use(mask)};")
            text.put("add.u32 left_out, left_out, t;")
        elif mask.constant == 0:
            text.put(f"add.u32 left_out, left_out, {groups * access.group};")
