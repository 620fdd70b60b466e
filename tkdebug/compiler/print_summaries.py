"""Printed forms of tiles in `device_print`: each element, or one line that sums them up.

The interpreter writes that line as it prints; for native code `SummarisePrints` makes ops
of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dtypes import block_type
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.types import ScalarType, element_of, shape_of


def index_widths(shape: Sequence[int]) -> list[int]:
    """Width of each index of a printed element, in characters: the digits of the greatest index."""
    return [len(str(extent - 1)) for extent in shape]


def is_summarised(op: Operation, value: Value, most: int) -> bool:
    """Whether `value`, which `op` prints, is shown as a summary.

    Args:
        op: a `tt.print`; with `hex`, no value is summarised.
        value: one of its operands.
        most: the most elements of a tile that are printed one by one.
    """
    element, count = element_of(value.type), 1
    for extent in shape_of(value.type):
        count *= extent
    return isinstance(element, ScalarType) and count > most and not tt.Print(op).hex


def summary_template(prefix: str, type_: str, is_float: bool) -> str:
    """The format of a summary's line after the program, for `%` and for printf."""
    prefix, number = prefix.replace("%", "%%"), "%g" if is_float else "%.0f"
    return f"{prefix}{type_}: min {number}, max {number}, mean %g, %d NaN, %d Inf, %d zeros"


def printed_type(value: Value, is_signed: bool) -> dt.LanguageType:
    """The language's type of a printed value."""
    element, shape = element_of(value.type), shape_of(value.type)
    names = dt.dtype.SINT_TYPES if is_signed else dt.dtype.UINT_TYPES
    known = (dt.dtype(name) for name in (*names, *dt.dtype.FP_TYPES))
    found = next(one for one in known if one.to_ir() == element)
    return block_type(found, shape) if shape else found
