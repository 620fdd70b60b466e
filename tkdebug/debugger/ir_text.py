"""The IR that a debugger runs, as people see it: text, values by name, threads that hold them.

A tile's layout says which thread holds an element in which register; the interpreter keeps whole
tiles, so a thread's elements are read off the tile by the layout.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.types import encoding_of, shape_of
from tkdebug.compiler.layouts.linear import BLOCK, LANE, REGISTER, WARP, LinearLayout
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.code import DebugCode

_NAME = re.compile(r"%(\w+)")
# After these a `%` begins a name, after anything else it divides.
_BEFORE_NAMES = "([{,=+-*/<>&|^~:%!"


@dataclass(frozen=True, slots=True)
class IRLine:
    """A line of the IR's text.

    Attributes:
        source: the source line of its op; None if no op begins there.
        is_current: whether its op is about to run.
    """

    source: int | None
    text: str
    is_current: bool


def op_text(code: DebugCode, op: Operation) -> str:
    """The first line of an op."""
    printed = code.printed
    return printed.lines[printed.places[op]].strip()


def lines_around(code: DebugCode, op: Operation, before: int, after: int) -> list[IRLine]:
    """The IR around an op."""
    printed = code.printed
    by_place = {place: each for each, place in printed.places.items()}
    here = printed.places[op]
    found = []
    for place in range(max(here - before, 0), min(here + after + 1, len(printed.lines))):
        each = by_place.get(place)
        mark = None if each is None else code.context.get(each)
        source = None if mark is None else mark.location.line
        found.append(IRLine(source, printed.lines[place], place == here))
    return found


def value_named(code: DebugCode, name: str) -> Value:
    """The value that the IR's text calls `%name`.

    Raises:
        UsageError: there is no such value.
    """
    found = code.values_by_name.get(name)
    if found is None:
        near = difflib.get_close_matches(name, list(code.values_by_name), n=1)
        hint = f"; did you mean %{near[0]}?" if near else ""
        raise UsageError(f"%{name}: {code.stage} has no value of this name{hint}")
    return found


def spelled(code: DebugCode, text: str) -> tuple[str, Mapping[str, Value]]:
    """An expression with Python names in place of `%x`, and the values by these names.

    Raises:
        UsageError: there is no value of a name.
    """
    used: dict[str, Value] = {}

    def name(match: re.Match[str]) -> str:
        before = text[: match.start()].rstrip()
        if before and before[-1] not in _BEFORE_NAMES:
            return match[0]
        made = f"_ir_{match[1]}"
        used[made] = value_named(code, match[1])
        return made

    return _NAME.sub(name, text), used


# Layouts


@dataclass(frozen=True, slots=True)
class Holder:
    """A register of a thread."""

    block: int
    warp: int
    lane: int
    register: int

    def text(self, has_blocks: bool) -> str:
        """Return the register as people write it."""
        block = f"block {self.block}, " if has_blocks else ""
        return f"{block}warp {self.warp}, lane {self.lane}, register {self.register}"


def layout_of(value: Value, name: str) -> LinearLayout:
    """Return the layout of a tile: which thread holds which element.

    Raises:
        UsageError: the value has no layout.
    """
    layout = encoding_of(value.type)
    if layout is None:
        what = "no tile in registers" if not shape_of(value.type) else "Tile IR, without layouts"
        raise UsageError(f"{name}: it is {what}; layouts are in GPU IR after assign-layouts")
    return layout


def holders(layout: LinearLayout, element: tuple[int, ...], name: str) -> list[Holder]:
    """The registers that hold an element, those of lower warps and lanes first.

    Raises:
        UsageError: the tile has no such element.
    """
    shape = layout.shape
    if len(element) != len(shape) or not all(
        0 <= place < extent for place, extent in zip(element, shape, strict=True)
    ):
        shown = ", ".join(map(str, element))
        raise UsageError(f"{name}[{shown}]: no element of a tile of shape {list(shape)}")
    wanted = layout.pack_out(dict(zip(layout.out_dims, element, strict=True)))
    found = []
    for packed, place in enumerate(layout.table):
        if place == wanted:
            at = layout.unpack_in(packed)
            found.append(
                Holder(at.get(BLOCK, 0), at.get(WARP, 0), at.get(LANE, 0), at.get(REGISTER, 0))
            )
    return sorted(found, key=lambda one: (one.block, one.warp, one.lane, one.register))


def held_by(layout: LinearLayout, warp: int, lane: int) -> list[tuple[int, ...]]:
    """The element in each register of a thread of the first block.

    Raises:
        UsageError: there is no such thread.
    """
    for what, number, size in (
        ("warp", warp, layout.in_size(WARP)),
        ("lane", lane, layout.in_size(LANE)),
    ):
        if not 0 <= number < size:
            raise UsageError(f"{what} {number}: the layout has {what}s 0 to {size - 1}")
    return [
        tuple(layout.apply({REGISTER: register, WARP: warp, LANE: lane}).values())
        for register in range(layout.in_size(REGISTER))
    ]
