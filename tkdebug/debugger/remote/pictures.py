"""Pictures of variables and programs for a Debug pane, in as many cells as it has room for.

Large variables are not read at each stop. A cell of a tile shows the element of the largest
magnitude among its elements; a cell of programs has a sign.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.debugger.inspection import Inspection
from tkdebug.debugger.remote.records import HeatMap, Look, ProgramGroup
from tkdebug.debugger.values import Pointers, Reading, Tile

_Named = list[tuple[str, Reading]]
# Lines back in which the names that a statement has bound are searched.
_MOST_LINES_BACK = 400
# Tensors of the script's with more elements are read where somebody asks for them: summing up takes
# 3 ms for a million.
MOST_SUMMED_UP = 1 << 20


def is_drawn(reading: Reading | None) -> bool:
    """Whether there is a picture of a variable."""
    match reading:
        case Tile(data=data):
            return data.numel() > 0
        case Pointers(tensor=tensor, offsets=offsets) if reading.is_whole_tensor:
            return tensor is not None and _is_real(tensor)
        case Pointers(offsets=offsets):
            return offsets.numel() > 0
        case None:
            return False
        case _:
            value = getattr(reading, "value", None)
            return isinstance(value, Tensor) and _is_real(value)


def _is_real(data: Tensor) -> bool:
    return data.numel() > 0 and not data.is_complex()


def just_bound(inspection: Inspection, frame: int) -> frozenset[str]:
    """Return the names that the frame's function has bound since its statement before."""
    if inspection.here is None or inspection.host_frame(frame) is not None:
        return frozenset()
    mark, moment = inspection.mark_of(frame), inspection.moment
    recent = itertools.islice(reversed(inspection.execution.passed), _MOST_LINES_BACK)
    for entry in recent:
        if entry.moment < moment and entry.mark.activation is mark.activation:
            before = entry.mark.names
            names = mark.names.items()
            return frozenset(name for name, value in names if before.get(name) is not value)
    return frozenset()


def most_telling(readings: Mapping[str, Reading], bound: frozenset[str]) -> str:
    """Return the variable to draw if none was asked for.

    It is one that was just bound, else the latest tile, of floats if there is one, else the first
    tensor.
    """
    drawn: _Named = [(name, each) for name, each in readings.items() if is_drawn(each)]
    scalars: _Named = [each for each in drawn if isinstance(each[1], Tile)]
    tiles: _Named = [each for each in scalars if isinstance(each[1], Tile) and each[1].is_tile]
    floats: _Named = [
        each for each in tiles if isinstance(each[1], Tile) and each[1].data.is_floating_point()
    ]
    recent = [[each for each in group if each[0] in bound] for group in (floats, tiles, scalars)]
    quick = [each for each in drawn if _tensor_elements(each[1]) <= MOST_SUMMED_UP]
    pointers = [each for each in quick if isinstance(each[1], Pointers)][:1]
    groups: list[_Named] = [*recent, floats, tiles, pointers, quick]
    return next((found[-1][0] for found in groups if found), "")


def large_text(reading: Reading) -> str:
    """Return a text for tensors of the script that take long to summarise; "" for all else."""
    value = getattr(reading, "value", None)
    if elements_of(value) <= MOST_SUMMED_UP:
        return ""
    if isinstance(value, Tensor):
        return f"{tensor_kind(value)}: large, Enter sums it up"
    count = len(value) if isinstance(value, list | tuple) else 0
    return f"{type(value).__name__} of {count} with large tensors, Enter sums them up"


def elements_of(value: object, depth: int = 3) -> int:
    """The elements of a tensor, or of the tensors in a list or tuple, in `depth` lists at most."""
    if isinstance(value, Tensor):
        return value.numel()
    if not depth or not isinstance(value, list | tuple):
        return 0
    return sum(elements_of(item, depth - 1) for item in value)


def tensor_kind(data: Tensor) -> str:
    """A tensor's type as people write it."""
    return f"{str(data.dtype).removeprefix('torch.')}{list(data.shape)}"


def has_nan(reading: Reading | None) -> bool:
    """Whether an element is NaN; of a tensor of the script's, too."""
    data = reading.data if isinstance(reading, Tile) else getattr(reading, "value", None)
    is_real = isinstance(data, Tensor) and data.is_floating_point()
    return is_real and isinstance(data, Tensor) and bool(data.isnan().any())


def _tensor_elements(reading: Reading) -> int:
    """The elements of the script's tensor that would be drawn, 0 if it is a tile."""
    if isinstance(reading, Pointers):
        is_drawn_whole = reading.is_whole_tensor and reading.tensor is not None
        return elements_of(reading.tensor) if is_drawn_whole else 0
    return elements_of(getattr(reading, "value", None))


def heat_map(
    name: str, kind: str, program: str, data: Tensor, look: Look, labels: Sequence[str] = ()
) -> HeatMap:
    """A tile drawn as `look` asks for.

    Args:
        name: the name of the variable.
        kind: its type as people write it.
        program: the program whose tile it is.
        data: a tensor of any shape and dtype of numbers.
        look: the part to draw, and the number of cells there is room for.
        labels: the names of elements that are programs.
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
    """Return the first and the end of the elements along each axis; all if `look` does not fit."""
    if len(look.begin) == len(look.end) == len(shape):
        begin = tuple(max(0, place) for place in look.begin)
        end = tuple(map(min, look.end, shape))
        if all(b < e for b, e in zip(begin, end, strict=True)):
            return begin, end
    return (0,) * len(shape), shape


def _largest(part: Tensor) -> float:
    """The largest finite magnitude; 0 if there is none."""
    if not part.numel():
        return 0.0
    if _is_finite(part):
        return max(abs(float(end)) for end in part.aminmax())
    return float(part.abs().nan_to_num_(nan=0.0, posinf=0.0).max())


def _is_finite(values: Tensor) -> bool:
    """Whether all elements are finite, found in one pass."""
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
    """Return rows of cells of one axis, the step of a cell, and the number of cells in a row.

    If there are several rows, each has a power of two of cells.
    """
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
    """Reduce blocks along some axes to NaN if they have one, else to the largest magnitude."""
    high, low = blocks.amax(axes), blocks.amin(axes)  # both are NaN where one is
    return torch.where(high.abs() >= low.abs(), high, low)


HERE, DIFFERS, ENDED, WAITING, NOT_BEGUN = "#", "≠", ".", "w", "-"
# Programs that are masked off, by the line where they parted from those that are here.
_ELSEWHERE = "abcdefgh"
_MOST_CELLS = 4096


@dataclass(frozen=True, slots=True)
class ProgramStates:
    """A sign for each cell.

    Attributes:
        text: the signs, of programs in linear order.
        per_cell: the number of programs of a cell; its sign is the most notable one of its
            programs' signs.
        groups: the meanings of the signs.
    """

    text: str
    per_cell: int
    groups: tuple[ProgramGroup, ...]

    @classmethod
    def of(cls, inspection: Inspection, differing: Iterable[int], compared: str) -> ProgramStates:
        """The programs of the launch that is stopped.

        Args:
            inspection: the inspection of the stop.
            differing: programs here whose value differs from the shown program's.
            compared: the variable that is compared.
        """
        signs, texts = _signs(inspection, differing)
        texts[DIFFERS] = f"here, with another {compared}"
        counts = Counter(signs)
        groups = tuple(
            ProgramGroup(sign, text, counts[sign]) for sign, text in texts.items() if counts[sign]
        )
        per_cell = -(-len(signs) // _MOST_CELLS)
        if per_cell > 1:
            order = list(texts)
            signs = [
                min(signs[place : place + per_cell], key=order.index)
                for place in range(0, len(signs), per_cell)
            ]
        return cls("".join(signs), max(1, per_cell), groups)


def _signs(inspection: Inspection, differing: Iterable[int]) -> tuple[list[str], dict[str, str]]:
    """A sign for each program, and the meanings of signs, the most notable first."""
    census, here = inspection.census(), inspection.here
    texts = {DIFFERS: "", HERE: "here"}
    if here is None:
        return [ENDED] * census.total, {**texts, ENDED: "ended"}
    signs = [NOT_BEGUN] * census.total
    run, execution = here.run, inspection.execution
    if run.scheduler is None:
        signs[: run.first] = [ENDED] * run.first
    else:
        for program in execution.begun:
            signs[program] = ENDED if program in execution.ended else WAITING
    for program in census.here:
        signs[program] = HERE
    for number, group in enumerate(census.elsewhere):
        sign = _ELSEWHERE[min(number, len(_ELSEWHERE) - 1)]
        text = f"{group.reason} at line {group.line}"
        texts[sign] = text if sign not in texts else "in other places"
        for program in group.programs:
            signs[program] = sign
    for program in differing:
        signs[program] = DIFFERS
    return signs, {**texts, WAITING: "waiting", ENDED: "ended", NOT_BEGUN: "not begun"}
