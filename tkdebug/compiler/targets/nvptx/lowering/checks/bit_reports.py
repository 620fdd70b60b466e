"""Reports of bad elements that have a bit each, as one piece of PTX.

It has its branch in it: the rare block, with the choice of an address among those of all elements,
would take LLVM as long as half of a small kernel.

Source: PTX ISA, "Integer Arithmetic Instructions: popc, clz, brev".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.checks.access import TestedAccess, runs_together
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
        access: what was tested.
        words: of bits, in the order of the access.
        whole: i1, the same in all threads: whether no bit is set; None where that is not known.
    """
    ctx, order, pointer = access.checks.ctx, access.order, PointerAccess(access.op).pointer
    assert order is not None
    # Then all threads report, with what their mask leaves out, where one of them has bad elements.
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
        # Those that have no bad element tell what their mask leaves out.
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
    """Report what was found."""
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
    """Instructions for the register's number and the place of what is at a position."""
    registers = [(index, bit) for index, (bit, _) in enumerate(order.bits)]
    places = [(index, weight.bit_length() - 1) for index, (_, weight) in enumerate(order.bits)]
    lines = ["mov.b32 number, 0;", *_moved_bits(registers, "number")]
    return [*lines, f"mov.b32 place, {first};", *_moved_bits(places, "place")]


def _moved_bits(pairs: Iterable[tuple[int, int]], target: str) -> list[str]:
    """Instructions that add bits of the position to a target, each at another place."""
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
    """Take the address of the register `number`; those of a group follow each other in memory."""
    group, places = access.group, _places(ctx, access, text)
    bases = {base for base, _ in places}
    # Of groups that are seen from one pointer, only how far they are is chosen.
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
        # Of each two one, by the next bit of the number.
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
    """Return for each group a pointer, and how far after that its first element is."""
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
