"""Lines of `device_print`: a line per element, or one line for a large tile."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dtypes import describe_type
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.print_summaries import (
    index_widths,
    is_summarised,
    printed_type,
    summary_template,
)
from tkdebug.errors import shown_path
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.memory.pointers import byte_addresses
from tkdebug.interpreter.tiles.values import AddressTile, PointerTile, TileValue
from tkdebug.knobs import KNOBS
from tkdebug.terminal.text import tell


def device_print(run: Evaluator, view: tt.Print, *operands: TileValue) -> Sequence[TileValue]:
    """tt.print, in program order."""
    if not run.faults.is_reported:
        return ()
    count, most = run.programs, int(KNOBS.print_elements)
    tensors = []
    for value, operand in zip(operands, view.values, strict=True):
        if isinstance(value, PointerTile | AddressTile):
            value = byte_addresses(value)
        tensors.append(run.full(value, operand.type).expand(count, *ir.shape_of(operand.type)))
    for program in range(count):
        if run.active is not None and not bool(run.active[program]):
            continue
        name = "pid ({}, {}, {})".format(*run.program_at(program))
        for line in _lines(view, [tensor[program] for tensor in tensors], most):
            print(f"{name}{line}")
    sys.stdout.flush()
    return ()


def _lines(view: tt.Print, tiles: Sequence[Tensor], most: int) -> Iterator[str]:
    """Yield the lines that one program prints, without its name."""
    prefix = view.prefix
    if view.template is not None:
        yield view.template % tuple(tile.item() for tile in tiles)
        return
    if not tiles:
        yield f" idx (){prefix}"
    for place, tile in enumerate(tiles):
        label = f"(operand {place}) " if len(tiles) > 1 else ""
        is_signed = view.signed is None or view.signed[place]
        value = view.values[place]
        if is_summarised(view.op, value, most):
            tell_summarised(view.op, most)
            yield _summary(value, tile, prefix + label, is_signed)
            continue
        for index, shown in _elements(tile, view.hex, is_signed):
            yield f" idx ({index}){prefix}{label}{shown}"


def _summary(value: Value, tile: Tensor, prefix: str, is_signed: bool) -> str:
    # Few kernels print, and all import this module.
    from tkdebug.interpreter.watching.records import Summaries, as_numbers

    type_, element = printed_type(value, is_signed), ir.element_of(value.type)
    assert isinstance(element, ir.ScalarType)
    found = Summaries.of(as_numbers(tile.reshape(1, -1), element.name, not is_signed))
    numbers = (found.minimum, found.maximum, found.mean, found.nan, found.inf, found.zeros)
    template = summary_template(prefix, describe_type(type_), element.is_float)
    return template % tuple(number.item() for number in numbers)


def tell_summarised(op: Operation, most: int) -> None:
    """Report once, at the op's line, how to print each element in place of a summary."""
    place = op.location.primary
    tell_once(f"{shown_path(place.file)}:{place.line}", most)


@lru_cache(maxsize=256)
def tell_once(place: str, most: int) -> None:
    """Report once for a place, `file:line`, how to print each element in place of a summary."""
    tell(
        f"{place}: device_print of tiles of more than {most:,} elements prints a summary; "
        "TKDEBUG_PRINT_ELEMENTS=all prints each element"
    )


def _elements(tile: Tensor, hexadecimal: bool, signed: bool) -> Iterator[tuple[str, str]]:
    """Yield the index and the value of each element, as text."""
    shape = tuple(tile.shape)
    widths = index_widths(shape)
    for linear, value in enumerate(tile.reshape(-1).tolist()):
        place, rest = [], linear
        for extent in reversed(shape):
            place.append(rest % extent)
            rest //= extent
        index = ", ".join(
            f"{position:{width}d}" for position, width in zip(reversed(place), widths, strict=True)
        )
        yield index, _shown(value, tile, hexadecimal, signed)


def _shown(value: Any, tile: Tensor, hexadecimal: bool, signed: bool) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        bits = 8 * tile.element_size()
        if hexadecimal:
            return f"0x{value & ((1 << bits) - 1):0{bits // 4}x}"
        return str(value if signed else value & ((1 << bits) - 1))
    return _as_percent_a(value) if hexadecimal else f"{value:f}"


def _as_percent_a(value: float) -> str:
    """Format as printf's `%a` does: 0x1.8p+1, without the zeros that `float.hex` ends with."""
    mantissa, p, exponent = value.hex().partition("p")
    return (mantissa.rstrip("0").removesuffix(".") if "." in mantissa else mantissa) + p + exponent
