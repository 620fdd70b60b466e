"""Tiles as cells: of the elements that a cell stands for, the one of the largest magnitude."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tkdebug.debugger.remote.records import HeatMap, Look


def heat_map(
    name: str, kind: str, program: str, data: Tensor, look: Look, labels: Sequence[str] = ()
) -> HeatMap:
    """A tile drawn as `look` asks for.

    Args:
        name: of the variable.
        kind: as people write its type.
        program: whose it is.
        data: of any shape and dtype of numbers.
        look: which part of it, and how many cells there is room for.
        labels: where elements are programs, their names.
    """
    plane: tuple[int, ...] = ()
    if data.dim() > 2:
        ahead = data.shape[:-2]
        count = math.prod(ahead)
        index = look.plane % count if count else 0
        plane = tuple(int(place) for place in torch.unravel_index(torch.tensor(index), ahead))
        data = data[plane]
    if data.dim() == 0:
        data = data.reshape(1)
    values = data.double()
    begin, end = _region(look, tuple(values.shape))
    part = values[tuple(slice(b, e) for b, e in zip(begin, end, strict=True))]
    cells, step, wrap = _flat(part, look.cells) if part.dim() == 1 else _square(part, look.cells)
    finite = part[part.isfinite()]
    return HeatMap(
        name=name,
        kind=kind,
        program=program,
        begin=begin,
        end=end,
        shape=tuple(values.shape),
        plane=plane,
        step=step,
        wrap=wrap,
        cells=cells,
        largest=float(finite.abs().max()) if finite.numel() else 0.0,
        counts=_counts(values),
        labels=tuple(labels[begin[0] : end[0]]) if labels else (),
    )


def _region(look: Look, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """First and last element along each axis; all where what was asked for is of another tile."""
    if len(look.begin) == len(look.end) == len(shape):
        begin = tuple(max(0, place) for place in look.begin)
        end = tuple(map(min, look.end, shape))
        if all(b < e for b, e in zip(begin, end, strict=True)):
            return begin, end
    return (0,) * len(shape), shape


def _counts(values: Tensor) -> tuple[int, ...]:
    finite = values.isfinite()
    return (
        int(((values < 0) & finite).sum()),
        int((values == 0).sum()),
        int(((values > 0) & finite).sum()),
        int(values.isnan().sum()),
        int(values.isinf().sum()),
    )


_Cells = tuple[tuple[float | None, ...], ...]


def _square(part: Tensor, room: tuple[int, int]) -> tuple[_Cells, tuple[int, ...], int]:
    rows, columns = part.shape
    if not part.numel():
        return (), (1, 1), 0
    step = (max(1, -(-rows // max(1, room[0]))), max(1, -(-columns // max(1, room[1]))))
    high, wide = -(-rows // step[0]), -(-columns // step[1])
    padded = torch.zeros(high * step[0], wide * step[1], dtype=part.dtype)
    padded[:rows, :columns] = part
    blocks = padded.reshape(high, step[0], wide, step[1]).transpose(1, 2).reshape(high, wide, -1)
    return tuple(tuple(row) for row in _notable(blocks).tolist()), step, 0


def _flat(part: Tensor, room: tuple[int, int]) -> tuple[_Cells, tuple[int, ...], int]:
    """One axis, row by row; a row has a power of two of cells where that is not all of them."""
    count = part.shape[0]
    if not count:
        return (), (1,), 1
    columns = max(1, room[1])
    step = max(1, -(-count // (max(1, room[0]) * columns)))
    cells = -(-count // step)
    wrap = cells
    if cells > columns:
        wrap = 1 << (columns.bit_length() - 1)
        while -(-cells // wrap) > room[0] and cells > 1:
            step += 1
            cells = -(-count // step)
    padded = torch.zeros(cells * step, dtype=part.dtype)
    padded[:count] = part
    values: list[float | None] = _notable(padded.reshape(cells, step)).tolist()
    values += [None] * (-cells % wrap)
    rows = (values[place : place + wrap] for place in range(0, len(values), wrap))
    return tuple(map(tuple, rows)), (step,), wrap


def _notable(blocks: Tensor) -> Tensor:
    """Along the last axis: NaN where one is, else the element of the largest magnitude."""
    high, low = blocks.amax(-1), blocks.amin(-1)  # both are NaN where one is
    return torch.where(high.abs() >= low.abs(), high, low)
