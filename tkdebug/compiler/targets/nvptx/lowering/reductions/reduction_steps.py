"""Steps of a reduction: two elements that differ by a vector along the axis are combined."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass

from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout

THREAD_DIMS = (REGISTER, LANE, WARP)


@dataclass(frozen=True, slots=True)
class Parity:
    """A linear function of a thread's place: the parity of its masked bits.

    Args:
        register: mask of register bits.
        lane: mask of lane bits.
        warp: mask of warp bits.
    """

    register: int
    lane: int
    warp: int

    def of_register(self, register: int) -> int:
        """What register number `register` contributes, 0 or 1."""
        return (self.register & register).bit_count() & 1


@dataclass(frozen=True, slots=True)
class Step:
    """Combine each element with the one at a vector's distance.

    Args:
        register: XORed to the register.
        lane: XORed to the lane.
        warp: XORed to the warp.
        is_second: 1 for the elements that come second in the combination.
    """

    register: int
    lane: int
    warp: int
    is_second: Parity

    @property
    def is_led(self) -> bool:
        """Whether two lanes meet in it, of which the one with a bit of 0 holds what comes first."""
        is_one_bit = self.lane.bit_count() == 1 and not (self.register or self.warp)
        return is_one_bit and self.is_second == Parity(0, self.lane, 0)


def followers(steps: tuple[Step, ...]) -> int:
    """The lane bits of `steps`: a lane with one of them set comes second in that step."""
    return functools.reduce(operator.or_, (step.lane for step in steps), 0)


def axis_vectors(layout: LinearLayout, axis: int) -> tuple[int, int]:
    """(lowest bit, number of bits) of dimension `axis` in a packed output."""
    first = sum(size.bit_length() - 1 for _, size in layout.outs[:axis])
    return first, layout.outs[axis][1].bit_length() - 1


def thread_columns(layout: LinearLayout) -> tuple[int, ...]:
    """Packed outputs of the bits of register, lane and warp, in this order."""
    return tuple(v for d in THREAD_DIMS for v in layout.packed_bases(d))


def split_place(layout: LinearLayout, vector: int) -> tuple[int, int, int]:
    """(register, lane, warp) of a mask over `thread_columns`."""
    registers, lanes = layout.in_bits(REGISTER), layout.in_bits(LANE)
    lane = vector >> registers & ((1 << lanes) - 1)
    return vector & ((1 << registers) - 1), lane, vector >> (registers + lanes)
