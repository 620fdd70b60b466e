"""The banks of a target's shared memory, as data: what layouts of buffers are chosen by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedBanks:
    """How shared memory serves a warp.

    Successive words are in successive banks, and in one wavefront each bank gives one word. An
    access of several words per thread is made for fewer lanes at a time, consecutive ones.

    Attributes:
        count: banks, a power of two.
        word_bytes: what a bank gives in one wavefront, a power of two.
        access_bytes: most that one thread accesses at once.
    """

    count: int
    word_bytes: int
    access_bytes: int

    @property
    def row_bytes(self) -> int:
        """What all banks give in one wavefront."""
        return self.count * self.word_bytes

    def lanes_per_wavefront(self, access_bytes: int) -> int:
        """Lanes that are served together, of accesses of so many bytes each."""
        return self.row_bytes // max(access_bytes, self.word_bytes)
