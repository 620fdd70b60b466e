"""Tests whether a tile of pointers lies in its tensor, by a few scalars instead of each element.

Where no scalars bound the tile, elements are tested. On an H200, tests of elements alone make a
checked softmax of 1823x781 take 1.30 of the bare one's time, causal attention 1.16; with these
tests it is 1.16 and 1.09.

Invariant: the test may fail for a tile that lies inside, and never holds for one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from tkdebug.compiler.analysis.axis_facts import unit_of
from tkdebug.compiler.analysis.data_flow import source_of
from tkdebug.compiler.dialects import scf, tt, ttg
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import TensorType, element_of
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.checks.corners import Corners, Reach, UnknownReachError
from tkdebug.compiler.targets.nvptx.lowering.checks.kernel_checks import KernelChecks
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX

_VIEWS = names_of(tt.Rearrangement, tt.Hint, ttg.ConvertLayout)
_INT32 = 32
_HALF = 1 << 31
# `first`: no tile begins before its pointer. `last`: no tile ends after its tensor.
_ELEMENT_REGISTERS = (".reg .pred first, last;", ".reg .b32 low, high;", ".reg .b64 wide, there;")
_BEGIN = ("setp.eq.u32 first, 0, 0;", "setp.eq.u32 last, 0, 0;")


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
    """Writes the comparisons of offsets for several tiles, each of them once.

    A checked launch passes how many elements each tensor has from the kernel's pointer on. An
    element offset from that pointer is compared with 0 and with that number, both of 32 bits. Tiles
    of several tensors mostly have the same offset and share the first comparison. A comparison of
    addresses takes seven instructions of 64 bits.

    Args:
        ctx: the kernel.
        text: the PTX that they are written to.
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
            tile: the offsets of the tile.
            elements: the number of the argument's elements, i32, from 0 on.
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
            # Where this sum wraps at 64 bits, the address wraps, too.
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
        """Return the operand for an offset's low 32 bits."""
        if value not in self._narrow:
            self._narrow[value] = self._text.use(self._emit.cast("trunc", value, "i32"))
        return self._narrow[value]


def argument_tile(
    corners: Corners, pointer: Value, size_bytes: int, arguments: Sequence[Value]
) -> ArgumentTile:
    """The element offsets of a tile of pointers from one of the kernel's arguments.

    Args:
        corners: collects the conditions under which the offsets are right.
        pointer: the tile.
        size_bytes: the size of its elements, which the argument's elements must have, too.
        arguments: the arguments of the kernel.

    Raises:
        UnknownReachError: the tile is no argument plus bounded offsets, or counts elements of
            another size.
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
    source = source_of(pointer, _VIEWS)
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


# The test of one tile, by the signs of its distances from the ends of its tensor.
_SIGNS = (
    "mov.b64 {rest, sign}, begin;",
    "or.b32 before, before, sign;",
    "mov.b64 {rest, sign}, left;",
    "or.b32 behind, behind, sign;",
)
# Make `last` false where one of them is negative. What begins 2**62 bytes after its tensor counts
# as negative, too: from there `left` may wrap.
_EITHER_SIGN = (
    "shl.b32 sign, before, 1;",
    "or.b32 before, before, sign;",
    "or.b32 behind, behind, before;",
    "setp.ge.and.s32 last, behind, 0, last;",
)


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of pointers of an access, and the tensor that it has to lie in.

    Attributes:
        op: the access.
        pointer: the tile.
        size_bytes: the size of an element.
        first: address of the tensor's first byte, i64.
        end: address after the tensor's last byte, i64.
        elements: the number of the tensor's elements from the kernel's pointer on, i32; None if the
            kernel got no pointer to it.
    """

    op: Operation
    pointer: Value
    size_bytes: int
    first: LLVMValue
    end: LLVMValue
    elements: LLVMValue | None


@dataclass(frozen=True, slots=True)
class TileTest:
    """A test of a whole tile.

    Attributes:
        inside: i1, the same in all threads: whether the tile certainly lies in its tensor.
        is_before_loop: whether the test is invariant in the innermost loop around the access, so
            that LLVM moves it before the loop.
    """

    inside: LLVMValue
    is_before_loop: bool


def tile_is_inside(checks: KernelChecks, tile: Tile) -> TileTest | None:
    """The test of a tile of pointers; None if elements have to be tested."""
    loop = next(scf.loops_around(tile.op), None)
    if loop is None:
        _, inside = tiles_are_inside(checks, (tile,))
        return None if inside is None else TileTest(inside, is_before_loop=False)
    corners = Corners(checks.ctx, checks.carried)
    reach = _addresses(corners, tile)
    if reach is None:
        return None
    emit = checks.ctx.emit
    size = emit.binary("sub", tile.end, tile.first)
    last = emit.add(reach.span, tile.size_bytes - 1)
    begin = emit.binary("sub", reach.low, tile.first)
    # The tile spans the same number of bytes in all iterations of a loop that moves it, and may
    # begin at the same places: a loop has one comparison. As unsigned numbers: places before the
    # tensor are very far after it.
    places = emit.binary("sub", size, last)
    places = emit.select(emit.icmp("ult", last, size), places, integer("i64", 0))
    # All conditions first: the accesses of a tensor have them in common.
    inside = emit.bit_and(corners.all_conditions(), emit.icmp("ult", begin, places))
    return TileTest(inside, not any(_is_in(value, loop) for value in corners.scalars))


def tiles_are_inside(
    checks: KernelChecks, tiles: Sequence[Tile]
) -> tuple[list[Operation], LLVMValue | None]:
    """Test several tiles at once, by values that are known before the first of their accesses.

    Returns:
        The accesses whose tiles are tested, and i1, the same in all threads: whether all of these
        certainly lie in their tensors; None if no tile can be tested.
    """
    # LLVM may compute an address in 64 bits from a product that wraps in 32. The test is PTX: LLVM
    # would think about it for as long as about the rest of a small kernel.
    ctx, text = checks.ctx, InlinePTX(("i32",))
    corners = Corners(ctx, checks.carried, trusts_scalars=False)
    text.put("{", *_ELEMENT_REGISTERS, *_BEGIN)
    text.put(".reg .b64 begin, left;", ".reg .b32 before, behind, rest, sign;")
    text.put("mov.b32 before, 0;", "mov.b32 behind, 0;")
    tests = ArgumentTests(ctx, text)
    tested, has_signs = [], False
    for tile in tiles:
        if _put_elements(ctx, corners, tests, tile):
            tested.append(tile.op)
        elif _put_signs(ctx, corners, text, tile):
            tested.append(tile.op)
            has_signs = True
    text.put(*(_EITHER_SIGN if has_signs else ()))
    text.put("and.pred last, last, first;", "selp.u32 $0, 1, 0, last;", "}")
    if not tested:
        return tested, None
    (inside,) = text.emit(ctx, side_effects=False)
    return tested, ctx.emit.bit_and(corners.all_conditions(), ctx.emit.icmp("ne", inside, 0))


def _put_elements(ctx: Lowering, corners: Corners, tests: ArgumentTests, tile: Tile) -> bool:
    """Write the test of a tile by offsets of elements, if there is one; return whether."""
    size, elements = tile.size_bytes, tile.elements
    if elements is None:
        return False
    arguments = tt.Func(ctx.module.function).body.arguments
    known = corners.tried(lambda: argument_tile(corners, tile.pointer, size, arguments))
    if known is not None:
        tests.put(known, elements)
    return known is not None


def _put_signs(ctx: Lowering, corners: Corners, text: InlinePTX, tile: Tile) -> bool:
    """Write a tile's test by the signs of its distances from its tensor's ends; return whether.

    No test is written if the tile's bounds are unknown.
    """
    reach = _addresses(corners, tile)
    if reach is None:
        return False
    bytes_ = ctx.emit.add(reach.span, tile.size_bytes)
    low, first, end = map(text.use, (reach.low, tile.first, tile.end))
    taken = text.use(bytes_) if bytes_.constant is None else str(bytes_.constant)
    text.put(
        f"sub.s64 begin, {low}, {first};",
        f"sub.s64 left, {end}, {low};",
        f"sub.s64 left, left, {taken};",
        *_SIGNS,
    )
    return True


def _addresses(corners: Corners, tile: Tile) -> Reach | None:
    if not isinstance(tile.pointer.type, TensorType):
        return None
    return corners.tried(lambda: corners.addresses(tile.pointer))


def _is_in(value: Value, loop: Operation) -> bool:
    """Whether a value is defined in a loop's body."""
    block = value.parent_block
    return block is not None and loop in block.ancestors()
