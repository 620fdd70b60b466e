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

from tkdebug.compiler.layouts import BLOCK, LANE, REGISTER, LayoutError, LinearLayout, f2
from tkdebug.compiler.targets.nvptx.lowering.reductions.reduction_parts import (
    Spread,
    exchanged,
    is_worth_shuffles,
    shared_out,
    spread_out,
)
from tkdebug.compiler.targets.nvptx.lowering.reductions.reduction_steps import (
    Parity,
    Step,
    axis_vectors,
    followers,
    split_place,
    thread_columns,
)

_CACHED_PLANS = 256


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """Steps of a reduction.

    Args:
        register_steps: inside a thread.
        lane_steps: by shuffles.
        warp_steps: through shared memory.
        kept: for each register of the result, the source's register that is reduced into it.
        partial: layout of what warps write, (kept register, lane, warp) -> (dims, part).
        gathered: layout of what threads read: parts in their lowest registers, and in lanes.
        part_steps: by shuffles, of the parts that the lanes of a warp share out.
        spread: None where threads combine what they keep; else they combine different elements
            and trade them.
    """

    register_steps: tuple[Step, ...]
    lane_steps: tuple[Step, ...]
    warp_steps: tuple[Step, ...]
    kept: tuple[int, ...]
    partial: LinearLayout
    gathered: LinearLayout
    part_steps: tuple[Step, ...]
    spread: Spread | None

    @property
    def leaves_to_leaders(self) -> bool:
        """Whether the lanes whose element comes first in each lane step can act for the others."""
        if not all(step.is_led for step in self.lane_steps):
            return False
        writes = ~self.partial.free_masks[LANE] if self.warp_steps else 0
        return not followers(self.lane_steps) & writes


@lru_cache(_CACHED_PLANS)
def plan_reduction(
    layout: LinearLayout, axis: int, combine_ops: int = 1, values: int = 1
) -> ReductionPlan:
    """The steps that reduce `axis` of a tensor in `layout`.

    Args:
        layout: of the tensor.
        axis: which is reduced.
        combine_ops: how many ops combine two elements.
        values: how many numbers an element has: 2 of an argmax.

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
    partial, gathered = exchanged(layout, axis, mask, coefficients, parts, kept_bits)
    spread = spread_out(gathered, len(parts))
    part_steps: tuple[Step, ...] = ()
    if spread is None and is_worth_shuffles(len(parts), combine_ops, values):
        gathered, part_steps = shared_out(gathered, len(parts))
    return ReductionPlan(
        tuple(step for step in steps if not step.lane and not step.warp),
        tuple(step for step in steps if step.lane and not step.warp),
        warp_steps,
        f2.spanned([1 << bit for bit in kept_bits]),
        partial,
        gathered,
        part_steps,
        spread,
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
