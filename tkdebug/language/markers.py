"""Names of the language that only mark: NaN propagation, const pointers, results that are used."""

from __future__ import annotations

import enum
from typing import Any


class PropagateNan(enum.IntEnum):
    """Whether minimum and maximum give NaN when an operand is one."""

    NONE = 0
    ALL = 0xFFFF


class const:
    """Annotation of a pointer parameter whose memory may only be read."""


def must_use_result(x: Any, s: bool | str = True) -> Any:
    """Decorator of a jit function: a call whose result is dropped is a compile error.

    Args:
        x: the function, or words to add to the error.
        s: words to add to the error, or True for none.
    """
    if isinstance(x, str):
        return lambda function: must_use_result(function, x)
    x._must_use_result = s  # noqa: SLF001
    return x
