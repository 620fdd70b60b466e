"""Whether a whole tile of pointers lies in its tensor, by a few scalars instead of each element.

Where it is not known between which scalars the tile lies, elements are tested.

Invariant: the test may fail for a tile that lies inside, and never holds for one that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.types import TensorType
from tkdebug.compiler.targets.nvptx.emitter import LLVMValue, integer
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.inline_ptx import InlinePTX
from tkdebug.compiler.targets.nvptx.lowering.probes import argument_tiles
from tkdebug.compiler.targets.nvptx.lowering.probes.corners import Corners
from tkdebug.compiler.targets.nvptx.lowering.probes.reaches import Reach

# Of one tile, by the signs of its distances from the ends of its tensor.
_SIGNS = (
    "mov.b64 {rest, sign}, begin;",
    "or.b32 before, before, sign;",
    "mov.b64 {rest, sign}, left;",
    "or.b32 behind, behind, sign;",
)
# Make `last` false where one of them is negative. What begins 2**62 bytes behind its tensor counts
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
        size_bytes: of an element.
        first: address of the tensor's first byte, i64.
        end: the one behind its last, i64.
        elements: how many it has from the pointer on that the kernel got, i32; None where it got
            none.
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
        is_before_loop: whether nothing of it changes in the innermost loop around the access,
            before which LLVM moves it.
    """

    inside: LLVMValue
    is_before_loop: bool


def tile_is_inside(ctx: Lowering, tile: Tile) -> TileTest | None:
    """The test of a tile of pointers; None where elements have to be tested."""
    loop = _loop_around(tile.op)
    if loop is None:
        _, inside = tiles_are_inside(ctx, (tile,))
        return None if inside is None else TileTest(inside, is_before_loop=False)
    corners = Corners(ctx)
    reach = _addresses(corners, tile)
    if reach is None:
        return None
    emit = ctx.emit
    size = emit.binary("sub", tile.end, tile.first)
    last = emit.add(reach.span, tile.size_bytes - 1)
    begin = emit.binary("sub", reach.low, tile.first)
    # How many bytes the tile spans is the same in all iterations of a loop that moves it, and so
    # are the places where it may begin: a loop has one comparison. As unsigned numbers: what lies
    # before the tensor lies very far behind it.
    places = emit.binary("sub", size, last)
    places = emit.select(emit.icmp("ult", last, size), places, integer("i64", 0))
    # All conditions first: the accesses of a tensor have them in common.
    inside = emit.bit_and(corners.all_conditions(), emit.icmp("ult", begin, places))
    return TileTest(inside, not any(_is_in(value, loop) for value in corners.scalars))


def tiles_are_inside(
    ctx: Lowering, tiles: Sequence[Tile]
) -> tuple[list[Operation], LLVMValue | None]:
    """One test of several tiles, by what is known before the first of their accesses.

    Returns:
        The accesses whose tiles are tested, and i1, the same in all threads: whether all of these
        certainly lie in their tensors; None where no tile can be tested.
    """
    # LLVM may compute an address in 64 bits from a product that wraps in 32. The test is PTX: LLVM
    # would think about it for as long as about the rest of a small kernel.
    corners, text = Corners(ctx, trusts_scalars=False), InlinePTX(("i32",))
    text.put("{", *argument_tiles.REGISTERS, *argument_tiles.BEGIN)
    text.put(".reg .b64 begin, left;", ".reg .b32 before, behind, rest, sign;")
    text.put("mov.b32 before, 0;", "mov.b32 behind, 0;")
    tests = argument_tiles.ArgumentTests(ctx, text)
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


def _put_elements(
    ctx: Lowering, corners: Corners, tests: argument_tiles.ArgumentTests, tile: Tile
) -> bool:
    """Write the test of a tile by offsets of elements, if there is one."""
    size, elements = tile.size_bytes, tile.elements
    if elements is None:
        return False
    arguments = tt.Func(ctx.module.function).body.arguments
    known = corners.tried(
        lambda: argument_tiles.argument_tile(corners, tile.pointer, size, arguments)
    )
    if known is not None:
        tests.put(known, elements)
    return known is not None


def _put_signs(ctx: Lowering, corners: Corners, text: InlinePTX, tile: Tile) -> bool:
    """Write the test of a tile by the signs of its distances from the tensor's ends."""
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


def _loop_around(op: Operation) -> Operation | None:
    """The innermost loop that an op is in."""
    around = None if op.block is None else op.block.parent_op
    while around is not None and not scf.Loop.matches(around):
        around = None if around.block is None else around.block.parent_op
    return around


def _is_in(value: Value, loop: Operation) -> bool:
    """Whether a value is of a loop's body."""
    owner = value.owner
    block = owner.block if isinstance(owner, Operation) else owner
    while block is not None and (around := block.parent_op) is not None:
        if around is loop:
            return True
        block = around.block
    return False
