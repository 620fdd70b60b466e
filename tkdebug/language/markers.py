"""Names of the language that only mark: NaN propagation, const pointers."""

from __future__ import annotations

import enum


class PropagateNan(enum.IntEnum):
    """Whether minimum and maximum give NaN when an operand is one."""

    NONE = 0
    ALL = 0xFFFF


class const:
    """Annotation of a pointer parameter whose memory may only be read."""
