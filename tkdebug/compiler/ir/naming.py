"""Names of values in IR text, shared by printer and parser.

Invariant: both allocate names in the order in which they appear in the text, so that a name read
back and printed again comes out the same.
"""

from __future__ import annotations

import re

from tkdebug.compiler.ir.core import Operation
from tkdebug.compiler.ir.types import ScalarType

_UNFIT = re.compile(r"[^\w$.-]")
_SUFFIXED = re.compile(r"(.+)_([1-9]\d*)")


class NameTable:
    """The names taken so far in one text."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next_suffix: dict[str, int] = {}
        self._next_number = 0

    def allocate(self, name: str | None, hint: str | None = None) -> str:
        """A free name for a value called `name`; unnamed ones get `hint` or a number."""
        wanted = name or hint
        if not wanted:
            return self._allocate_number()
        wanted = _UNFIT.sub("_", wanted)
        if wanted[0].isdigit():
            wanted = "_" + wanted
        free = self._free(wanted)
        self._taken.add(free)
        return free

    def claim(self, text: str) -> str | None:
        """Take the name read as `text`; return the variable that it names, or None if it is new.

        `%x_1` is variable `x` when that is what `allocate("x")` would have answered here.
        Raises KeyError when the name is taken.
        """
        if text in self._taken:
            raise KeyError(text)
        if text.isdigit():
            self._taken.add(text)
            return None
        name = text
        match = _SUFFIXED.fullmatch(text)
        if match is not None and self._free(match[1]) == text:
            name = match[1]
        self._taken.add(text)
        return name

    def _free(self, wanted: str) -> str:
        if wanted not in self._taken:
            return wanted
        suffix = self._next_suffix.get(wanted, 1)
        while f"{wanted}_{suffix}" in self._taken:
            suffix += 1
        self._next_suffix[wanted] = suffix
        return f"{wanted}_{suffix}"

    def _allocate_number(self) -> str:
        while str(self._next_number) in self._taken:
            self._next_number += 1
        number = str(self._next_number)
        self._taken.add(number)
        return number


def constant_hint(op: Operation) -> str | None:
    """MLIR's name of an unnamed constant: `c128_i32`, `true`, `cst`; None for other ops."""
    if op.name != "arith.constant" or len(op.results) != 1:
        return None
    value, type_ = op.attributes.get("value"), op.results[0].type
    if not isinstance(type_, ScalarType) or not type_.is_integer or not isinstance(value, int):
        return "cst"
    if type_.name == "i1":
        return "true" if value else "false"
    return f"c{int(value)}_{type_}"
