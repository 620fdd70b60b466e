"""What warps write and threads read where parts of a reduction's axis lie in several warps.

Each thread reads all parts of what it keeps and combines them, unless that takes many instructions:
then the lanes of a warp share out the parts, or all threads the elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout
from tkdebug.compiler.targets.nvptx.lowering.reductions.reduction_steps import (
    THREAD_DIMS,
    Parity,
    Step,
    axis_vectors,
)

PART = "part"
# From how many combinations saved in each thread a second trip through shared memory pays.
_WORTH_A_TRIP = 32
# Cycles that a shuffle adds to the chain of a result, times the four warps that an SM issues for in
# one: what each shuffle has to save in instructions of all warps.
_WORTH_A_SHUFFLE = 120
# Shuffles are issued at half the rate of other instructions.
_SHUFFLE_OPS = 2


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


def exchanged(
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


def is_worth_shuffles(part_bits: int, combine_ops: int, values: int) -> bool:
    """Whether lanes are to share out 2**part_bits parts, which each thread combines otherwise."""
    in_thread = ((1 << part_bits) - 1) * combine_ops
    shuffles = (part_bits + 1) * values
    in_lanes = part_bits * combine_ops + shuffles * _SHUFFLE_OPS
    return (in_thread - in_lanes) << part_bits > _WORTH_A_SHUFFLE * part_bits


def shared_out(gathered: LinearLayout, parts: int) -> tuple[LinearLayout, tuple[Step, ...]]:
    """Parts moved from registers to the lanes that hold the same elements, and how these meet."""
    registers, lanes = list(gathered.packed_bases(REGISTER)), list(gathered.packed_bases(LANE))
    free = [bit for bit, vector in enumerate(lanes) if not vector][:parts]
    # The first parts stay in registers, so that all are combined in the same order as there.
    first = parts - len(free)
    for part, bit in enumerate(free, first):
        lanes[bit] = 1 << part
    bases = {REGISTER: registers[:first] + registers[parts:], LANE: lanes}
    bases[WARP] = list(gathered.packed_bases(WARP))
    steps = tuple(Step(0, 1 << bit, 0, Parity(0, 1 << bit, 0)) for bit in free)
    return LinearLayout(tuple((n, tuple(v)) for n, v in bases.items()), gathered.outs), steps


def spread_out(gathered: LinearLayout, parts: int) -> Spread | None:
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
