"""What a function of libdevice is: its overloads, and their symbols.

An overload is written `symbol(arguments)result` with one letter a type: i int32, u uint32, l int64,
m uint64, f fp32, d fp64.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tkdebug.compiler import dtypes as dt

_TYPES = {
    "i": dt.int32,
    "u": dt.uint32,
    "l": dt.int64,
    "m": dt.uint64,
    "f": dt.float32,
    "d": dt.float64,
}


@dataclass(frozen=True, slots=True)
class Overload:
    """One argument list of a function.

    Attributes:
        symbol: its name in libdevice.
        is_unsigned: whether its integers, also those of signed type, are read unsigned.
    """

    symbol: str
    arguments: tuple[dt.dtype, ...]
    result: dt.dtype
    is_unsigned: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """One function of `tl.extra.libdevice`.

    Attributes:
        is_predicate: whether it gives int1.
        native_only: whether it has no closed form: it compiles, and says so by name when an
            interpreted kernel reaches it.
    """

    name: str
    doc: str
    overloads: tuple[Overload, ...]
    is_predicate: bool = False
    native_only: bool = False


def overloads_of(text: str) -> tuple[Overload, ...]:
    """Those that `text` writes, with blanks between them."""
    found = []
    for overload in text.split():
        match = re.fullmatch(r"(\w+)\((\w+)\)(\w)", overload)
        assert match is not None, overload
        symbol, arguments, result = match.groups()
        found.append(
            Overload(
                f"__nv_{symbol}",
                tuple(_TYPES[letter] for letter in arguments),
                _TYPES[result],
                re.search("uint|ull", symbol) is not None,
            )
        )
    return tuple(found)
