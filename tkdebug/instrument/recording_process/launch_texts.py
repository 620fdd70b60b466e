"""The columns of packed launches, made of texts that launches share.

What a launch has for itself are its numbers: encoding everything else again for each would take the
recording process longer than storing it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import cast

from tkdebug.instrument.records import Launch
from tkdebug.instrument.session_file.columns import columns_of
from tkdebug.records.events import ArgumentInfo

# Which arguments lie in slots, and their struct codes.
Scalars = Sequence[tuple[int, str]]
_COLUMNS = {column.name: column for column in columns_of(Launch)}
# No repr of a number has it.
_HOLE = "?"


def column_encoder(name: str) -> Callable[[object], str]:
    """What encodes a column of launches."""
    encode = _COLUMNS[name].encode
    assert encode is not None
    return cast("Callable[[object], str]", encode)


encode_options = column_encoder("options")
encode_scopes = column_encoder("scopes")
encode_stream = column_encoder("stream")
_encode_arguments = column_encoder("arguments")
_encode_grid = column_encoder("grid")


@lru_cache(maxsize=4096)
def grid_text(x: int, y: int, z: int) -> str:
    """The column `grid`."""
    return _encode_grid((x, y, z))


class ArgumentTexts:
    """The column `arguments` of launches that differ in their scalars alone."""

    def __init__(self, infos: tuple[ArgumentInfo, ...], scalars: Scalars) -> None:
        self._unpack = struct.Struct("=" + "".join(code for _, code in scalars)).unpack_from
        self._parts = _parts_around(infos, [place for place, _ in scalars])
        self._last: tuple[bytes, str] = (b"", "")

    def text(self, scalars: bytes) -> str:
        """That of a launch with these scalars."""
        if self._last[0] == scalars:
            return self._last[1]
        values = self._unpack(scalars)
        pieces = [self._parts[0]]
        for value, part in zip(values, self._parts[1:], strict=True):
            pieces += (repr(value), part)
        text = "".join(pieces)
        self._last = (scalars, text)
        return text


def _parts_around(infos: tuple[ArgumentInfo, ...], places: Sequence[int]) -> list[str]:
    """The text of `infos`, cut where the values of the scalars at `places` stand."""
    parts, text = [], "["
    for place, info in enumerate(infos):
        text += ", " if place else ""
        if place not in places:
            text += _encode_arguments((info,))[1:-1]
            continue
        one = _encode_arguments((replace(info, value=_HOLE),))[1:-1]
        # The value comes behind name and type, neither of which is looked into.
        before = _encode_arguments((replace(info, value=""),))[1:-1]
        cut = next(at for at, (a, b) in enumerate(zip(one, before, strict=False)) if a != b)
        parts.append(text + one[:cut])
        text = one[cut + len(_HOLE) :]
    return [*parts, text + "]"]
