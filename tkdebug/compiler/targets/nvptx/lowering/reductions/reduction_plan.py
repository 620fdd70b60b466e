"""How a reduction along an axis runs over registers, lanes and warps, for any linear layout.

Elements that are combined differ by vectors that move along the axis alone: the kernel of the
layout read in the other dimensions. Each step of the plan adds the element at one such vector. The
part of a vector in registers is a choice of register, its part in lanes a shuffle, and what has a
part in warps goes through shared memory. Pure functions; `reduce` emits.

Invariant: after all steps every thread that holds a coordinate of the result has combined all
elements along the axis, in one and the same order, so that copies are equal to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tkdebug.compiler.layouts import BLOCK, LANE, REGISTER, WARP, LayoutError, LinearLayout, f2

THREAD_DIMS = (REGISTER, LANE, WARP)
PART = "part"
# From how many combinations saved in each thread a second trip through shared memory pays.
_WORTH_A_TRIP = 32
_CACHED_PLANS = 256


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


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """Steps of a reduction.

    Args:
        register_steps: inside a thread.
        lane_steps: by shuffles.
        warp_steps: through shared memory.
        kept: for each register of the result, the source's register that is reduced into it.
        partial: layout of what warps write, (kept register, lane, warp) -> (dims, part).
        gathered: layout of what threads read: all parts in their lowest registers.
        spread: None where threads combine what they keep; else they combine different elements
            and trade them.
    """

    register_steps: tuple[Step, ...]
    lane_steps: tuple[Step, ...]
    warp_steps: tuple[Step, ...]
    kept: tuple[int, ...]
    partial: LinearLayout
    gathered: LinearLayout
    spread: Spread | None


@dataclass(frozen=True, slots=True)
class Spread:
    """The results of a reduction over warps, made by all threads together.

    Args:
        gathered: layout of what threads read: all parts in their lowest registers.
        combined: layout of what they make of it, without the parts.
        result: layout of what they keep, kept registers alone.
    """

    gathered: LinearLayout
    combined: LinearLayout
    result: LinearLayout


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


@lru_cache(_CACHED_PLANS)
def plan_reduction(layout: LinearLayout, axis: int) -> ReductionPlan:
    """The steps that reduce `axis` of a tensor in `layout`.

    Raises:
        LayoutError: blocks of a cluster hold parts of the axis, or no thread holds some element.
    """
    first, bits = axis_vectors(layout, axis)
    mask = ((1 << bits) - 1) << first
    if any(v & mask for v in layout.packed_bases(BLOCK)):
        raise LayoutError("reduction along an axis that is split over the blocks of a cluster")
    columns = thread_columns(layout)
    vectors = _vectors_along(layout, columns, mask)
    moves = [f2.combine(columns, vector) for vector in vectors]
    if len(moves) != bits:
        raise LayoutError(f"reduction: the layout does not reach all of axis {axis}")
    along = f2.Span(moves)
    # coefficients[i]: which moves lead from 0 to the axis coordinate of input bit i.
    coefficients = [along.solve(column & mask) or 0 for column in columns]

    def parity(index: int) -> Parity:
        chosen = sum((c >> index & 1) << i for i, c in enumerate(coefficients))
        return Parity(*split_place(layout, chosen))

    steps = [Step(*split_place(layout, v), parity(i)) for i, v in enumerate(vectors)]
    warp_steps = tuple(step for step in steps if step.warp)
    parts = [i for i, step in enumerate(steps) if step.warp]
    kept_bits = [i for i, v in enumerate(layout.packed_bases(REGISTER)) if v & ~mask]
    partial, gathered = _exchanged(layout, axis, mask, coefficients, parts, kept_bits)
    return ReductionPlan(
        tuple(step for step in steps if not step.lane and not step.warp),
        tuple(step for step in steps if step.lane and not step.warp),
        warp_steps,
        f2.spanned([1 << bit for bit in kept_bits]),
        partial,
        gathered,
        _spread(gathered, len(parts)),
    )


def _spread(gathered: LinearLayout, parts: int) -> Spread | None:
    """How threads share out the elements that many of them keep, if that saves them enough."""
    rest = gathered.outs[1:]
    bits = gathered.out_bits - parts
    threads = gathered.in_bits(LANE) + gathered.in_bits(WARP)
    kept = gathered.in_bits(REGISTER) - parts
    saved = ((1 << kept) - (1 << max(0, bits - threads))) * ((1 << parts) - 1)
    if not parts or saved < _WORTH_A_TRIP:
        return None
    free = [1 << bit for bit in range(bits)]
    combined = []
    for name in (LANE, WARP):
        count = gathered.in_bits(name)
        combined.append((name, tuple((free[:count] + [0] * count)[:count])))
        free = free[count:]
    combined.insert(0, (REGISTER, tuple(free)))

    def with_parts(name: str, vectors: tuple[int, ...]) -> tuple[int, ...]:
        all_parts = [1 << i for i in range(parts)] if name == REGISTER else []
        return (*all_parts, *(vector << parts for vector in vectors))

    result = []
    for name in THREAD_DIMS:
        vectors = gathered.packed_bases(name)
        own = vectors[parts:] if name == REGISTER else vectors
        result.append((name, tuple(vector >> parts for vector in own)))
    return Spread(
        LinearLayout(tuple((n, with_parts(n, v)) for n, v in combined), gathered.outs),
        LinearLayout(tuple(combined), rest),
        LinearLayout(tuple(result), rest),
    )


def _vectors_along(layout: LinearLayout, columns: tuple[int, ...], mask: int) -> list[int]:
    """Places whose coordinates differ along the axis alone: registers first, warps last."""
    span, seen = f2.Span(), f2.Span()
    found = []
    for index, column in enumerate(columns):
        rest = column & ~mask
        known = span.solve(rest)
        span.add(rest)
        if known is None:
            continue
        vector = known | 1 << index
        if seen.add(f2.combine(columns, vector)):
            found.append(vector)

    def kind(vector: int) -> int:
        _, lane, warp = split_place(layout, vector)
        return 2 if warp else 1 if lane else 0

    # Neighbours first inside each kind, which keeps the order of the axis where it can be kept.
    return sorted(found, key=lambda v: (kind(v), f2.combine(columns, v)))


def _exchanged(
    layout: LinearLayout,
    axis: int,
    mask: int,
    coefficients: list[int],
    parts: list[int],
    kept_bits: list[int],
) -> tuple[LinearLayout, LinearLayout]:
    """What warps write and what threads read when parts of the axis lie in several warps."""
    rest = tuple(entry for i, entry in enumerate(layout.outs) if i != axis)
    outs = ((PART, 1 << len(parts)), *rest)
    first, bits = axis_vectors(layout, axis)

    def coordinates(column: int) -> int:
        low = column & ((1 << first) - 1)
        high = column >> (first + bits)
        return (low | high << first) << len(parts)

    def part(coefficient: int) -> int:
        return sum((coefficient >> step & 1) << i for i, step in enumerate(parts))

    partial, gathered, index = [], [], 0
    for name in THREAD_DIMS:
        vectors = layout.packed_bases(name)
        chosen = kept_bits if name == REGISTER else range(len(vectors))
        places = [coordinates(vectors[bit]) for bit in chosen]
        partial.append(
            (
                name,
                tuple(
                    p | part(coefficients[index + bit])
                    for p, bit in zip(places, chosen, strict=True)
                ),
            )
        )
        all_parts = tuple(1 << i for i in range(len(parts))) if name == REGISTER else ()
        gathered.append((name, (*all_parts, *places)))
        index += len(vectors)
    return LinearLayout(tuple(partial), outs), LinearLayout(tuple(gathered), outs)
