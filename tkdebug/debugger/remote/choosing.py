"""Variables for a Debug pane: which is drawn, and which are too large to be read at each stop."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from torch import Tensor

from tkdebug.debugger.inspection import Inspection
from tkdebug.debugger.values import Pointers, Reading, Tile

_Named = list[tuple[str, Reading]]
# As many lines back it is looked for what a statement has bound.
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
    """What the function of the frame has bound since its statement before."""
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
    """What to draw where nothing was asked for.

    What was just bound, else the latest tile, of floats if there is one, else the first tensor.
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
    """What stands for tensors of the script's that take long to sum up; "" for all else."""
    value = getattr(reading, "value", None)
    if elements_of(value) <= MOST_SUMMED_UP:
        return ""
    if isinstance(value, Tensor):
        return f"{tensor_kind(value)}: large, Enter sums it up"
    count = len(value) if isinstance(value, list | tuple) else 0
    return f"{type(value).__name__} of {count} with large tensors, Enter sums them up"


def elements_of(value: object, depth: int = 3) -> int:
    """The elements of a tensor, or of those in a list or tuple, in as many lists at most."""
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
    """The elements of the tensor of the script's that would be drawn, 0 where it is a tile."""
    if isinstance(reading, Pointers):
        is_drawn_whole = reading.is_whole_tensor and reading.tensor is not None
        return elements_of(reading.tensor) if is_drawn_whole else 0
    return elements_of(getattr(reading, "value", None))
