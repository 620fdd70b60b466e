"""Tests whether tiles lie inside their tensors by element offsets instead of addresses.

A checked launch passes how many elements each tensor has from the kernel's pointer on. An element
offset from that pointer is then compared with 0 and with that number, both of 32 bits. Tiles of
several tensors mostly have the same offset and share the first comparison. A comparison of
addresses takes seven instructions of 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.analysis.data_flow import source_of
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import SameElements
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.types import TensorType, element_of
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX
from tkdebug.compiler.targets.nvptx.lowering.probes.corners import Corners, UnknownReachError

_INT32 = 32
_HALF = 1 << 31
# `first`: no tile begins before its pointer. `last`: no tile ends behind its tensor.
REGISTERS = (".reg .pred first, last;", ".reg .b32 low, high;", ".reg .b64 wide, there;")
BEGIN = ("setp.eq.u32 first, 0, 0;", "setp.eq.u32 last, 0, 0;")


@dataclass(slots=True)
class ArgumentTile:
    """The element offsets of a tile from a pointer argument of the kernel.

    Attributes:
        lows: terms of the least offset, i64, each with whether it is known to fit 32 bits.
        constant: the term of the least offset that is known when the kernel is compiled.
        span: the greatest offset minus the least.
    """

    lows: list[tuple[LLVMValue, bool]]
    constant: int
    span: int


class ArgumentTests:
    """Writes the comparisons for several tiles, each of them once.

    Args:
        ctx: the kernel.
        text: where they are written.
    """

    def __init__(self, ctx: Lowering, text: InlinePTX) -> None:
        self._emit = ctx.emit
        self._text = text
        self._narrow: dict[LLVMValue, str] = {}
        self._compared: set[tuple[str, int]] = set()
        self._high: tuple[str, int] | None = None

    def put(self, tile: ArgumentTile, elements: LLVMValue) -> None:
        """Write the comparisons for a tile.

        Args:
            tile: its offsets.
            elements: how many the argument has, i32, from 0 on.
        """
        count, end = self._text.use(elements), tile.constant + tile.span
        if not tile.lows:
            self._text.put(f"setp.gt.and.s32 last, {count}, {end}, last;")
        elif len(tile.lows) == 1 and tile.lows[0][1]:
            low = self._low(tile.lows[0][0])
            if (low, tile.constant) not in self._compared:
                self._compared.add((low, tile.constant))
                self._text.put(f"setp.ge.and.s32 first, {low}, {-tile.constant}, first;")
            # The least offset is not negative and `span` is below 2**31: no wrap as u32.
            if self._high != (low, end):
                self._high = low, end
                self._text.put(f"add.s32 high, {low}, {end};")
            self._text.put(f"setp.lt.and.u32 last, high, {count}, last;")
        else:
            self._high = None
            # Where this sum wraps at 64 bits, the address wraps alike.
            low = self._text.use(reduce(self._emit.add, (low for low, _ in tile.lows)))
            self._text.put(
                f"add.s64 there, {low}, {tile.constant};",
                "mov.b64 {low, high}, there;",
                "setp.ge.and.s32 first, high, 0, first;",
                f"add.s64 there, there, {tile.span};",
                f"cvt.u64.u32 wide, {count};",
                "setp.lt.and.u64 last, there, wide, last;",
            )

    def _low(self, value: LLVMValue) -> str:
        """An operand of 32 bits."""
        if value not in self._narrow:
            self._narrow[value] = self._text.use(self._emit.cast("trunc", value, "i32"))
        return self._narrow[value]


def argument_tile(
    corners: Corners, pointer: Value, size_bytes: int, arguments: Sequence[Value]
) -> ArgumentTile:
    """The element offsets of a tile of pointers from one of the kernel's arguments.

    Args:
        corners: takes the conditions under which that is right.
        pointer: the tile.
        size_bytes: of its elements, of which the argument's have to be, too.
        arguments: of the kernel.

    Raises:
        UnknownReachError: the tile is not such a sum, or counts elements of another size.
    """
    found = ArgumentTile([], 0, 0)
    while (op := pointer.defining_op) is not None:
        if tt.AddPtr.matches(op) and unit_of(pointer.type) == size_bytes:
            _add(found, corners, tt.AddPtr(op).offset)
            pointer = tt.AddPtr(op).pointer
        else:
            pointer = _seen_through(op, pointer)
    # Where all of the offset is known here, it has to be 0 at least.
    least = 1 - _HALF if found.lows else 0
    is_small = least <= found.constant < _HALF and 0 <= found.constant + found.span < _HALF
    if is_small and pointer in arguments and unit_of(pointer.type) == size_bytes:
        return found
    raise UnknownReachError


def _seen_through(op: Operation, pointer: Value) -> Value:
    if tt.Splat.matches(op):
        return tt.Splat(op).source
    source = source_of(pointer, SameElements.names)
    if source is None:
        raise UnknownReachError
    return source


def _add(found: ArgumentTile, corners: Corners, offset: Value) -> None:
    """Add the offset of a `tt.addptr`."""
    number = constant_value(offset)
    if isinstance(number, int):
        found.constant += int(number)
        return
    is_narrow = element_of(offset.type).bits <= _INT32
    if not isinstance(offset.type, TensorType):
        found.lows.append((corners.wide(offset), is_narrow))
        return
    reach = corners.fitting(offset)
    if reach.span.constant is None:
        raise UnknownReachError
    found.span += reach.span.constant
    if reach.low.constant is None:
        found.lows.append((reach.low, is_narrow))
    else:
        found.constant += reach.low.constant
