"""Known differences between what Triton 3.9 and tkdebug compile, each with its reason.

`ask_triton.py` beside it finds others. docs/triton_versions.md tells users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Difference:
    """A kind of difference.

    Attributes:
        verdict: what Triton makes of the kernel; the other does not.
        pattern: what the refusing compiler's error matches.
        reason: why both stay as they are.
    """

    verdict: Literal["takes", "refuses"]
    pattern: str
    reason: str


DIFFERENCES: tuple[Difference, ...] = ()
