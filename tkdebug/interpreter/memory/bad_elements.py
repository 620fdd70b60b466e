"""The bad elements of an access: where they are in the tensor, in the tile and in the grid.

Responsible for what a picture of the fault needs, of one execution of the access by a batch; a
launch's are put together by its `FaultLog`. Only made where something is bad.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from tkdebug.compiler.dialects import scf
from tkdebug.compiler.faults.hints import mask_axes, mask_text
from tkdebug.interpreter.tiles.values import AffineTile
from tkdebug.process.named_files import source_line
from tkdebug.records.events import FaultExtent, LoopRound

if TYPE_CHECKING:
    from tkdebug.interpreter.memory.checked_access import Access
    from tkdebug.interpreter.state import EvaluatorState

_MOST_BOXES = 16
_LOOP = re.compile(r"\s*for\s+(\w+)\s+in\b")
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class BadElements:
    """The bad elements of one execution of an access.

    Attributes:
        extent: the extent, without counts by program.
        programs: numbers in the grid of those that have any.
        counts: the counts of bad elements, by program.
    """

    extent: FaultExtent
    programs: Tensor
    counts: Tensor


def bad_elements(
    run: EvaluatorState,
    access: Access,
    bad: Tensor,
    offsets: Tensor,
    programs: Tensor | None,
    row: int,
) -> BadElements:
    """Return the places of an access's bad elements.

    Args:
        run: the evaluator.
        access: the load, store or atomic.
        bad: (programs, *tile) bool.
        offsets: broadcastable to `bad`.
        programs: positions in the batch of its rows; None for all of them.
        row: the first row of `bad` that has a bad element.
    """
    buffer, tile = access.buffer, access.tile
    by_row = bad.reshape(bad.shape[0], -1).sum(1)
    rows = by_row.nonzero().reshape(-1)
    positions = rows if programs is None else programs[rows]
    places = offsets.expand(bad.shape)[bad]
    boxes, is_exact = _boxes(bad[row])
    mask = access.mask_value
    position = row if programs is None else int(programs[row])
    extent = FaultExtent(
        shape=buffer.shape,
        strides=tuple(buffer.strides),
        element_type=buffer.element_type.removeprefix("torch."),
        first_elem=buffer.storage_offset,
        allocation_elems=buffer.allocation_elems,
        low=int(places.min()),
        high=int(places.max()),
        tile=access.shape,
        tile_start=int(offsets.expand(bad.shape)[row].reshape(-1)[0]),
        tile_steps=_steps(tile),
        boxes=boxes,
        is_exact=is_exact,
        bad_elems=int(by_row[row]),
        rounds=tuple(_rounds(run, access, position)),
        mask=None if mask is None else mask_text(access.op, mask),
        mask_axes=() if mask is None else mask_axes(mask),
    )
    return BadElements(extent, run.first + positions // run.lanes, by_row[rows])


def _steps(tile: AffineTile) -> tuple[int, ...]:
    """Return the offset between neighbours along each axis; () if that differs within the tile."""
    if tile.base is not None and any(size > 1 for size in tile.base.shape[1:]):
        return ()
    return tile.coefs


def _boxes(bad: Tensor) -> tuple[tuple[Box, ...], bool]:
    """Return boxes that hold the true elements of a tile, and whether they are exact."""
    found: list[Box] = []
    for box in _parts(bad):
        if len(found) == _MOST_BOXES:
            places = bad.nonzero()
            low, high = places.amin(0).tolist(), places.amax(0).tolist()
            return (tuple((a, b + 1) for a, b in zip(low, high, strict=True)),), False
        found.append(box)
    return tuple(found), True


def _parts(bad: Tensor) -> Iterator[Box]:
    """Yield the boxes of a tile's bad elements: one for each run of equal slices along axis 0."""
    if not bad.ndim:
        yield ()
        return
    flat = bad.reshape(bad.shape[0], -1)
    change = (flat[1:] != flat[:-1]).any(1).nonzero().reshape(-1) + 1
    ends = [*change.tolist(), bad.shape[0]]
    begin = 0
    for end in ends:
        if bool(flat[begin].any()):
            for rest in _parts(bad[begin]):
                yield ((begin, end), *rest)
        begin = end


def _rounds(run: EvaluatorState, access: Access, position: int) -> Iterator[LoopRound]:
    """Yield the iterations of the loops around an access, the outermost first."""
    around = access.op.ancestors()
    loops = [op for op in around if scf.For.matches(op) and op in run.rounds]
    for loop in reversed(loops):
        number, value = run.rounds[loop]
        if not isinstance(value, int):
            values = run.dense(value, scf.For(loop).lower.type).reshape(-1)
            value = int(values[position if values.shape[0] > 1 else 0])
        place = loop.location.primary
        name = _LOOP.match(source_line(place.file, place.line))
        yield LoopRound(name[1] if name else "", value, number, place.line)
