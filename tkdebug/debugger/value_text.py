"""Texts of values: summaries of tiles, grids of numbers; and the same as data for JSON."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tkdebug.debugger.expressions import ProgramNumber, ProgramPlace, Scalar
from tkdebug.debugger.programs import program_text
from tkdebug.debugger.values import (
    Buffer,
    Constant,
    Described,
    PerProgram,
    Pointers,
    Reading,
    Tile,
    Unavailable,
)
from tkdebug.errors import error_text

_SHOWN_ELEMENTS = 8
# More than those of any type of the language; Python refuses to print ints of some thousand digits.
_MOST_BITS = 4096
_MOST_CHARS = 100_000
_SHOWN_PROGRAMS = 6
_COLUMNS = 12
_ROWS = 24
# These tell all fp32 numbers apart (IEEE 754-2019, 5.12.2), and those of smaller types.
_MOST_DIGITS = 9


def number_text(value: Any) -> str:
    """Return a number of a summary or a grid, with six significant digits."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return safe_repr(value)


def element_text(element: Tensor) -> str:
    """Return a single element with the fewest digits that its dtype reads back as the same number.

    Args:
        element: a tensor of any shape with one element.
    """
    value, dtype = element.item(), element.dtype
    if not isinstance(value, float) or not math.isfinite(value):
        return number_text(value)
    if dtype != torch.float64:
        shorter = [float(f"{value:.{digits}g}") for digits in range(1, _MOST_DIGITS + 1)]
        back = torch.tensor(shorter, dtype=torch.float64).to(dtype).double()
        value = shorter[int((back == value).int().argmax())]
    return float_text(value)


def float_text(value: float) -> str:
    """Return a Python float with all of its digits, without a trailing `.0`."""
    return repr(value).removesuffix(".0")


def safe_repr(value: object) -> str:
    """Return the `repr` of a value, or why it has none."""
    try:
        return repr(value)
    except Exception as error:  # the user's code, or an int of more digits than Python prints
        if isinstance(value, int):
            return f"an int of {value.bit_length():,} bits"
        return f"<{type(value).__name__} without a repr: {error_text(error)}>"


def summary(data: Tensor) -> dict[str, Any]:
    """The minimum, maximum and mean of finite elements; for floats, how many are NaN or Inf.

    Args:
        data: a tensor of any shape and dtype of numbers; with at least one element.
    """
    if not data.dtype.is_floating_point:
        wide = data.double()
        return {"min": int(data.min()), "max": int(data.max()), "mean": float(wide.mean())}
    wide = data.double()
    low, high = map(float, wide.aminmax())
    if math.isfinite(low) and math.isfinite(high):  # then all are, and none has to be left out
        return {"min": low, "max": high, "mean": float(wide.mean()), "nan": 0, "inf": 0}
    finite = wide[wide.isfinite()]
    found: dict[str, Any] = {}
    if finite.numel():
        found = {
            "min": float(finite.min()),
            "max": float(finite.max()),
            "mean": float(finite.mean()),
        }
    found["nan"], found["inf"] = int(wide.isnan().sum()), int(wide.isinf().sum())
    return found


def tensor_data(data: Tensor) -> dict[str, Any]:
    """A tensor for JSON: shape, dtype, summary, and the elements of a small one."""
    found: dict[str, Any] = {
        "shape": list(data.shape),
        "dtype": str(data.dtype).removeprefix("torch."),
    }
    if data.numel():
        found |= summary(data)
    if data.numel() <= _SHOWN_ELEMENTS:
        found["values"] = _plain(data.tolist())
    return found


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: NaN and infinities become names."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def truths_text(data: Tensor) -> str:
    """Say how many elements of a mask are true."""
    true, total = int(data.sum()), data.numel()
    return {0: "all false", total: "all true"}.get(true, f"{true} of {total} are true")


def _summary_text(data: Tensor) -> str:
    if not data.numel():
        return "no elements"
    if data.dtype == torch.bool:
        return truths_text(data)
    found = summary(data)
    parts = [
        f"{name} {number_text(found[name])}" for name in ("min", "max", "mean") if name in found
    ]
    if "min" in found and found["min"] == found["max"] and not found.get("nan", 0):
        parts = [f"all {number_text(found['min'])}"] if not found.get("inf", 0) else parts
    negative = int((data == -math.inf).sum()) if found.get("inf", 0) else 0
    counts = (
        (found.get("nan", 0), "NaN"),
        (found.get("inf", 0) - negative, "Inf"),
        (negative, "-Inf"),
    )
    return ", ".join([*parts, *(f"{count} {name}" for count, name in counts if count)])


def _elements(data: Tensor) -> str:
    values = data.reshape(-1).tolist()
    shown = " ".join(number_text(value) for value in values)
    return f"[{shown}]"


def tensor_text(data: Tensor) -> str:
    """A tensor on one line."""
    kind = f"{str(data.dtype).removeprefix('torch.')}{list(data.shape)}"
    if data.dim() == 0:
        return element_text(data)
    if data.numel() <= _SHOWN_ELEMENTS:
        return f"{kind} {_elements(data)}"
    return f"{kind}: {_summary_text(data)}"


def reading_text(reading: Reading, programs: tuple[int, ...], grid: tuple[int, int, int]) -> str:
    """A variable on one line.

    Args:
        reading: the reading, for `programs`.
        programs: linear numbers.
        grid: the grid of the launch.
    """
    match reading:
        case Tile():
            return _tile_text(reading, programs, grid)
        case Buffer():
            where = f" in {len(programs)} programs" if len(programs) > 1 else ""
            kind = f"{reading.type}{list(reading.data.shape[1:])}"
            return f"shared memory, {kind}{where}: {_summary_text(reading.data)}"
        case Pointers():
            return _pointers_text(reading)
        case Described():
            parts = ", ".join(
                f"{name} {reading_text(part, programs, grid)}"
                for name, part in reading.parts.items()
            )
            return f"{reading.kind} of blocks {list(reading.block_shape)}: {parts}"
        case Constant():
            return value_text(reading.value)
        case Unavailable():
            return f"not available: {reading.reason}"
        case _:
            return f"({', '.join(reading_text(item, programs, grid) for item in reading)})"


def found_text(found: Any, programs: tuple[int, ...], grid: tuple[int, int, int]) -> str:
    """Return a result of `Inspection.ask` as text; arguments as for `reading_text`."""
    if type(found) in (tuple, ProgramPlace):
        texts = [found_text(item, programs, grid) for item in found]
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    if isinstance(found, PerProgram):
        return _each_text(found, programs, grid)
    if isinstance(found, Tile | Buffer | Pointers | Described | Constant | Unavailable):
        return reading_text(found, programs, grid)
    return value_text(found)


def _each_text(found: PerProgram, programs: tuple[int, ...], grid: tuple[int, int, int]) -> str:
    """Return an expression's values in several programs; small tiles have a line each."""
    data, names = found.data, [program_text(program, grid) for program in programs]
    if data is None:
        texts = [value_text(value) for value in found.values]
        if len(set(texts)) == 1:
            return texts[0]
        return _named(names, texts)
    first = found.values[0]
    kind = str(data.dtype).removeprefix("torch.")
    kind = kind if isinstance(first, Tensor) else type_name(first)
    if found.is_tile and data[0].numel() <= _SHOWN_ELEMENTS and len(names) <= _SHOWN_PROGRAMS:
        if not bool((data == data[:1]).all()):
            lines = [f"\n  {name}: {_elements(row)}" for name, row in zip(names, data, strict=True)]
            return f"{kind}{list(data.shape[1:])} in {len(names)} programs{''.join(lines)}"
    if found.is_tile:
        return _tile_text(Tile(data, kind, True), programs, grid)
    if data.dtype == torch.bool and bool(data.any()) and not bool(data.all()):
        true = [name for name, holds in zip(names, data.tolist(), strict=True) if holds]
        more = ", …" if len(true) > _SHOWN_PROGRAMS else ""
        shown = ", ".join(true[:_SHOWN_PROGRAMS])
        return f"True in {len(true)} of {len(names)} programs: {shown}{more}"
    return _tile_text(Tile(data, kind, False), programs, grid)


def _named(names: list[str], texts: list[str]) -> str:
    pairs = list(zip(names, texts, strict=True))
    more = f", … ({len(names)} programs)" if len(names) > _SHOWN_PROGRAMS else ""
    return ", ".join(f"{name}: {text}" for name, text in pairs[:_SHOWN_PROGRAMS]) + more


def value_text(value: Any) -> str:
    """The value of an expression on one line; a long list is cut."""
    if type(value) not in (list, tuple):
        return _single_text(value)
    text = io.StringIO()
    for piece in _pieces(value):
        if text.tell() > _MOST_CHARS:
            return f"{text.getvalue()}…"
        text.write(piece)
    return text.getvalue()


def _pieces(value: Any) -> Iterator[str]:
    """Yield the text of a value in pieces: a list that holds itself has no end."""
    if type(value) not in (list, tuple):
        yield _single_text(value)
        return
    begin, end = "[]" if type(value) is list else "()"
    yield begin
    for place, item in enumerate(value):
        if place:
            yield ", "
        yield from _pieces(item)
    yield f",{end}" if end == ")" and len(value) == 1 else end


def _single_text(value: Any) -> str:
    if isinstance(value, Tensor):
        return tensor_text(value)
    if isinstance(value, Pointers):
        return _pointers_text(value)
    if isinstance(value, Scalar):
        return element_text(torch.tensor(float(value), dtype=value.dtype))
    if isinstance(value, float):
        return float_text(value)
    return safe_repr(value)


def type_name(value: Any) -> str:
    """Return the name of a value's type; for tkdebug's types, the built-in type's."""
    own = type(value)
    is_ours = isinstance(value, ProgramPlace | ProgramNumber | Scalar)
    return own.__mro__[1].__name__ if is_ours else own.__name__


def value_data(value: Any) -> Any:
    """The value of an expression, or a reading, for JSON."""
    match value:
        case Tensor():
            return tensor_data(value)
        case PerProgram(data=Tensor() as data):
            return {"programs": len(data), **tensor_data(data)}
        case PerProgram():
            return [value_data(each) for each in value.values]
        case Tile():
            return {"type": kind_text(value), **tensor_data(value.data)}
        case Buffer():
            return {"shared": value.type, **tensor_data(value.data)}
        case Pointers():
            return {"points_into": value.name, "offsets": tensor_data(value.offsets)}
        case Constant():
            return value_data(value.value)
        case Unavailable():
            return {"unavailable": value.reason}
        case Described():
            return {name: value_data(part) for name, part in value.parts.items()}
        case tuple() | list():
            return [value_data(item) for item in value]
        case int() if value.bit_length() > _MOST_BITS:
            return safe_repr(value)
        case None | bool() | int() | str():
            return value
        case float():
            return _plain(value)
        case _:
            return safe_repr(value)


def kind_text(tile: Tile) -> str:
    """A tile's type as people write it: `fp32[64, 64]`."""
    element = tile.type.rsplit(" ", 1)[-1].rstrip(">") if tile.is_tile else tile.type
    return f"{element}{list(tile.shape)}" if tile.is_tile else element


def _tile_text(tile: Tile, programs: tuple[int, ...], grid: tuple[int, int, int]) -> str:
    data, kind = tile.data, kind_text(tile)
    count = data.shape[0]
    if count == 1:
        if not tile.is_tile:
            return element_text(data)
        if data.numel() <= _SHOWN_ELEMENTS:
            return f"{kind} {_elements(data)}"
        return f"{kind}: {_summary_text(data)}"
    same = bool((data == data[:1]).all())
    where = f"{kind} in {count} programs"
    if tile.is_tile:
        return f"{where}{' alike' if same else ''}: {_summary_text(data)}"
    if same:
        return element_text(data[:1])
    if count > _SHOWN_PROGRAMS:
        return f"{where}: {_summary_text(data)}"
    shown = [
        f"{program_text(program, grid)}: {element_text(value)}"
        for program, value in zip(programs, data.reshape(-1).unbind(), strict=True)
    ]
    return f"{where}: {', '.join(shown)}"


def _pointers_text(pointers: Pointers) -> str:
    offsets = pointers.offsets
    shape = list(offsets.shape[1:])
    what = f"pointers{shape}" if shape else "pointer"
    if pointers.tensor is None:
        low, high = int(offsets.min()), int(offsets.max())
        return f"{what}: " + (
            f"address {low:#x}" if low == high else f"addresses {low:#x} to {high:#x}"
        )
    name = pointers.name or "memory"
    if pointers.is_whole_tensor:
        kind = str(pointers.tensor.dtype).removeprefix("torch.")
        return f"{what} to `{name}`, {kind}{list(pointers.tensor.shape)}"
    low, high = int(offsets.min()), int(offsets.max())
    return f"{what} into `{name}`: " + (
        f"element {low}" if low == high else f"elements {low} to {high}"
    )


def grid_lines(data: Tensor) -> list[str]:
    """A tile of at most two axes as rows of numbers, long ones cut; others plane by plane."""
    if data.dim() == 0:
        return [number_text(data.item())]
    if not data.numel():
        return ["no elements"]
    if data.dim() > 2:
        lines = []
        for place in range(min(data.shape[0], _ROWS)):
            lines += [f"[{place}]", *grid_lines(data[place])]
        return lines
    rows = data.reshape(1, -1) if data.dim() == 1 else data
    shown = rows[:_ROWS, :_COLUMNS].tolist()
    texts = [[number_text(value) for value in row] for row in shown]
    width = max((len(text) for row in texts for text in row), default=1)
    more = " …" if rows.shape[1] > _COLUMNS else ""
    lines = [" ".join(text.rjust(width) for text in row) + more for row in texts]
    if rows.shape[0] > _ROWS:
        left = rows.shape[0] - _ROWS
        lines.append(f"… {left} more row{'s' if left > 1 else ''}")
    return lines
