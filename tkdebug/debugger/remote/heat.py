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
    data = data.detach().cpu()
    values = data if data.dtype in (torch.float32, torch.float64) else data.double()
    begin, end = _region(look, tuple(values.shape))
    part = values[tuple(slice(b, e) for b, e in zip(begin, end, strict=True))]
    cells, step, wrap = _flat(part, look.cells) if part.dim() == 1 else _square(part, look.cells)
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
        largest=_largest(part),
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


def _largest(part: Tensor) -> float:
    """The largest finite magnitude; 0 where there is none."""
    if not part.numel():
        return 0.0
    if _is_finite(part):
        return max(abs(float(end)) for end in part.aminmax())
    return float(part.abs().nan_to_num_(nan=0.0, posinf=0.0).max())


def _is_finite(values: Tensor) -> bool:
    """Whether all elements are, in one pass."""
    return not values.numel() or all(math.isfinite(float(end)) for end in values.aminmax())


def _counts(values: Tensor) -> tuple[int, ...]:
    if _is_finite(values):
        negative, other = int((values < 0).sum()), int(values.count_nonzero())
        return negative, values.numel() - other, other - negative, 0, 0
    negative, zero, positive = (int(v.sum()) for v in (values < 0, values == 0, values > 0))
    below, above = int((values == -math.inf).sum()), int((values == math.inf).sum())
    nan = values.numel() - negative - zero - positive
    return negative - below, zero, positive - above, nan, below + above


_Cells = tuple[tuple[float | None, ...], ...]


def _square(part: Tensor, room: tuple[int, int]) -> tuple[_Cells, tuple[int, ...], int]:
    rows, columns = part.shape
    if not part.numel():
        return (), (1, 1), 0
    step = (max(1, -(-rows // max(1, room[0]))), max(1, -(-columns // max(1, room[1]))))
    high, wide = -(-rows // step[0]), -(-columns // step[1])
    if (rows, columns) != (high * step[0], wide * step[1]):
        padded = torch.zeros(high * step[0], wide * step[1], dtype=part.dtype)
        padded[:rows, :columns] = part
        part = padded
    cells = _notable(part.reshape(high, step[0], wide, step[1]), (1, 3))
    return tuple(map(tuple, cells.tolist())), step, 0


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
    values: list[float | None] = _notable(padded.reshape(cells, step), (1,)).tolist()
    values += [None] * (-cells % wrap)
    rows = (values[place : place + wrap] for place in range(0, len(values), wrap))
    return tuple(map(tuple, rows)), (step,), wrap


def _notable(blocks: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Along some axes: NaN where one is, else the element of the largest magnitude."""
    high, low = blocks.amax(axes), blocks.amin(axes)  # both are NaN where one is
    return torch.where(high.abs() >= low.abs(), high, low)
