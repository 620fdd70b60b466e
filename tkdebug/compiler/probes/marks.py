"""The bit patterns that fresh memory is filled with, where reads of it are looked for.

`interpreter.checks.unwritten.patterns` says what they are for, and fills memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# By the element type's name; other types have none.
MARKS: Final[Mapping[str, int]] = {
    "f16": 0x7D5A,
    "bf16": 0x7FA5,
    "f32": 0x7FA5A5A5,
    "f64": 0x7FF5A5A5A5A5A5A5,
    "i32": 0xA5A5A5A5,
    "i64": 0xA5A5A5A5A5A5A5A5,
}
