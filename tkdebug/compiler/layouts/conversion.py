"""How a tensor gets from one register layout to another, at the least cost.

Nothing, register moves, or the cheaper of shuffles inside each warp (arXiv:2505.23819) and a trip
through shared memory. The plan is data; lowering turns it into instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from tkdebug.compiler.layouts import f2
from tkdebug.compiler.layouts.linear import BLOCK, LANE, REGISTER, WARP, LayoutError, LinearLayout
from tkdebug.compiler.layouts.shared_banks import SharedBanks
from tkdebug.compiler.layouts.shuffles import ShufflePlan, plan_shuffles
from tkdebug.compiler.layouts.swizzle import SharedTrip, plan_shared_trip

_CACHED_PLANS = 512

# Instructions that are always better than a trip through shared memory: that waits for all warps
# twice, and for the memory, some 30 cycles each.
_FEW = 100


@dataclass(frozen=True, slots=True)
class NoConversion:
    """Both layouts are the same map."""


@dataclass(frozen=True, slots=True)
class RegisterMoves:
    """Every thread holds what it needs.

    Args:
        sources: for every target register the source register that holds its element.
    """

    sources: tuple[int, ...]


Conversion: TypeAlias = NoConversion | RegisterMoves | ShufflePlan | SharedTrip


@lru_cache(_CACHED_PLANS)
def classify_conversion(
    source: LinearLayout, target: LinearLayout, element_bytes: int, banks: SharedBanks
) -> Conversion:
    """The cheapest way from `source` to `target`.

    Args:
        source: layout of the tensor now, (register, lane, warp, block) -> coordinates.
        target: layout of the tensor afterwards.
        element_bytes: size of an element, for the vectors of shared memory.
        banks: the target's.

    Raises:
        LayoutError: the layouts are of different shapes or thread counts, do not cover the tensor,
            or place data in different blocks.
    """
    if set(source.out_dims) != set(target.out_dims):
        raise LayoutError(f"conversion from {source.outs} to {target.outs}: shapes differ")
    target = target.transpose_outs(source.out_dims)
    _expect_convertible(source, target)
    threads = (LANE, WARP, BLOCK)
    if all(source.packed_bases(d) == target.packed_bases(d) for d in threads):
        if source.packed_bases(REGISTER) == target.packed_bases(REGISTER):
            return NoConversion()
        moves = _register_moves(source, target)
        if moves is not None:
            return moves
    shuffles = plan_shuffles(source, target)
    if shuffles is not None and shuffles.instructions <= _FEW:
        return shuffles
    trip = plan_shared_trip(source, target, element_bytes, banks)
    cycles = _cycles(trip, source, element_bytes, banks)
    if shuffles is not None and shuffles.instructions <= _FEW + cycles:
        return shuffles
    return trip


def _cycles(trip: SharedTrip, layout: LinearLayout, element_bytes: int, banks: SharedBanks) -> int:
    """For how many cycles one warp's accesses of a trip keep shared memory busy."""
    access = layout.in_size(LANE) * trip.vector * element_bytes
    accesses = len(trip.stores) + len(trip.loads)
    # A cycle moves a row of the banks (NVIDIA, CUDA C++ Programming Guide, "Shared Memory").
    moved = accesses * max(1, access // banks.row_bytes)
    return moved + trip.store_conflicts + trip.load_conflicts


def _register_moves(source: LinearLayout, target: LinearLayout) -> RegisterMoves | None:
    span = f2.Span(source.packed_bases(REGISTER))
    sources = []
    for element in f2.spanned(target.packed_bases(REGISTER)):
        register = span.solve(element)
        if register is None:
            return None
        sources.append(register)
    return RegisterMoves(tuple(sources))


def _expect_convertible(source: LinearLayout, target: LinearLayout) -> None:
    if source.outs != target.outs:
        raise LayoutError(f"conversion from {source.outs} to {target.outs}: shapes differ")
    for dim in (LANE, WARP, BLOCK):
        if source.in_bits(dim) != target.in_bits(dim):
            raise LayoutError(
                f"conversion from {source.in_size(dim)} to {target.in_size(dim)} {dim}s; "
                f"expected the same number"
            )
    for name, layout in (("source", source), ("target", target)):
        if not layout.is_surjective:
            raise LayoutError(f"conversion: the {name} layout does not cover the tensor")
