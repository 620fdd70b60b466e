"""What `tkdebug lines` is asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinesQuery:
    """One question; with none of the three places, all source lines are shown.

    Attributes:
        kernel: a pattern of names, or the beginning of a hash.
        line: `N`, a line of the kernel's file, or `FILE:N` with the end of a path.
        ptx: a line (1-based) of the PTX.
        sass: an address in hexadecimal, as nvdisasm prints it.
    """

    kernel: str | None = None
    line: str | None = None
    ptx: int | None = None
    sass: str | None = None

    @property
    def is_place(self) -> bool:
        """Whether one place is asked for."""
        return self.line is not None or self.ptx is not None or self.sass is not None
