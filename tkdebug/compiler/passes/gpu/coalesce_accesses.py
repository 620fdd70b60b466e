"""`CoalesceAccesses`: the layout in which each tile of memory is read and written.

Neighbouring lanes get neighbouring addresses, and each thread as many consecutive elements as one
access can move. Accesses to tiles of one shape that run along the same axes share a layout, so that
between the loads and the stores of a kernel nothing needs to be converted. Where such accesses are
of different widths, those in the innermost loops decide.

The layout goes into the attribute `layout` of the access; tiles get theirs from `AssignLayouts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.axis_facts import AxisInfo, unit_of
from tkdebug.compiler.analysis.axis_info import analyse
from tkdebug.compiler.analysis.dot_use import feeds_dot
from tkdebug.compiler.analysis.global_memory import (
    MAX_ACCESS_BYTES,
    accessible_elems,
    mask_of,
)
from tkdebug.compiler.analysis.layout_inference import num_warps_of
from tkdebug.compiler.analysis.tensor_maps import LOAD
from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.dialects.interfaces import PointerAccess
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ir.types import TensorType, element_of, shape_of
from tkdebug.compiler.layouts import REGISTER, LinearLayout, blocked
from tkdebug.compiler.rewriting.rewriter import Rewriter

_ATOMICS = (tt.AtomicRmw.name, tt.AtomicCas.name)


@dataclass(frozen=True, slots=True)
class CoalesceAccesses:
    """Chooses the layouts of loads, stores and atomics on tiles.

    Args:
        vector_atomics: whether one atomic adds 16 bytes of floats.
    """

    vector_atomics: bool = False
    name: ClassVar[str] = "coalesce-accesses"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Annotate every access.

        Raises:
            IRError: the function does not say how many warps run it.
        """
        warps, warp_size = num_warps_of(module), tt.Func(module.function).threads_per_warp
        infos = analyse(module.function)
        groups: dict[tuple[object, ...], list[_Access]] = {}
        for access in _accesses(module, infos, self.vector_atomics):
            groups.setdefault(access.group, []).append(access)
        _adopt_scattered(groups)
        for group in groups.values():
            if not rewriter.begins(group[0].op, "choose-layout"):
                continue
            layout = _layout(group, warps, warp_size)
            for access in group:
                OpView(access.op).layout = layout
                rewriter.record_change(access.op, "choose-layout")
        for op in module.walk():
            if op.name == LOAD:
                # A block that goes to registers is read from shared memory, by rows.
                shape, element_bytes = (
                    shape_of(op.result.type),
                    element_of(op.result.type).bits // 8,
                )
                order = tuple(reversed(range(len(shape))))
                elems = MAX_ACCESS_BYTES // element_bytes
                OpView(op).layout = tiled(shape, order, elems, warps, warp_size)
                rewriter.record_change(op, "choose-layout")


@dataclass(frozen=True, slots=True)
class _Access:
    """One access to a tile of memory.

    Attributes:
        order: the axes, the one with the longest runs in memory first.
        elems: how many elements along the first axis of `order` one access can move.
        runs: whether elements are consecutive in memory along any axis.
        feeds_dot: whether a dot multiplies what it loads, for which its layout changes anyway.
        loops: how many loops it is in.
        combines_lanes: whether it is an atomic whose accesses by neighbouring lanes become one.
    """

    op: Operation
    shape: tuple[int, ...]
    order: tuple[int, ...]
    elems: int
    runs: bool
    feeds_dot: bool
    loops: int
    combines_lanes: bool

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return unit_of(PointerAccess(self.op).pointer.type)

    @property
    def group(self) -> tuple[object, ...]:
        """The key of the accesses that share a layout with this one."""
        return self.shape, self.order, self.combines_lanes, self.feeds_dot

    @property
    def most_elems(self) -> int:
        """The most consecutive elements of a thread that leave no gaps between threads' accesses.

        A gap costs a store twice the transactions. Loads find the second half of a pair in the
        cache. The lanes of an atomic are combined where they lie side by side.
        """
        if self.combines_lanes:
            return 2 if self.element_bytes == 2 else 1
        bytes_ = MAX_ACCESS_BYTES if not tt.Load.matches(self.op) else 2 * MAX_ACCESS_BYTES
        return max(1, bytes_ // self.element_bytes)


def _accesses(
    module: Module, infos: Mapping[Value, AxisInfo], vector_atomics: bool
) -> Iterator[_Access]:
    for op in module.walk():
        if not PointerAccess.matches(op) or not isinstance(
            PointerAccess(op).pointer.type, TensorType
        ):
            continue
        pointers = infos[PointerAccess(op).pointer]
        mask_value = mask_of(op)
        mask = None if mask_value is None else infos[mask_value]
        order = _order(pointers)
        elems = accessible_elems(op, order[0], pointers, mask)
        runs = max(pointers.contiguity) > 1
        dot = tt.Load.matches(op) and feeds_dot(op.result)
        vectors = vector_atomics and elems > 1 and _adds_floats(op)
        atomic = op.name in _ATOMICS and not vectors
        shape = shape_of(PointerAccess(op).pointer.type)
        loops = sum(1 for _ in scf.loops_around(op))
        yield _Access(op, shape, order, elems, runs, dot, loops, atomic and runs)


def _adds_floats(op: Operation) -> bool:
    """Whether `op` adds floats that one atomic of 16 bytes can add.

    On an H200 that takes 1 to 30 % less time than one atomic a lane.
    """
    atomic = tt.AtomicRmw.cast(op)
    return atomic is not None and atomic.kind == "fadd" and unit_of(atomic.pointer.type) in (2, 4)


def _order(pointers: AxisInfo) -> tuple[int, ...]:
    """Axes by their contiguity, then by their constancy; of equal axes the last one first."""

    def rank(axis: int) -> tuple[int, int, int]:
        return pointers.contiguity[axis], pointers.constancy[axis], axis

    return tuple(sorted(range(len(pointers.contiguity)), key=rank, reverse=True))


def _adopt_scattered(groups: dict[tuple[object, ...], list[_Access]]) -> None:
    """Move groups without runs into a group of the same shape with runs: they lose nothing."""
    for key, group in list(groups.items()):
        if any(access.runs for access in group):
            continue
        for other, members in groups.items():
            if other[0] == key[0] and other[2] is False and members[0].runs:
                members += group
                del groups[key]
                break


def _layout(group: Sequence[_Access], num_warps: int, warp_size: int) -> LinearLayout:
    first = next((access for access in group if access.runs), group[0])
    elems = max(access.elems for access in group)
    # A gap after the loops costs one store; shorter accesses inside cost each iteration.
    loops = max(access.loops for access in group)
    elems = min(elems, *(access.most_elems for access in group if access.loops == loops))
    return tiled(first.shape, first.order, elems, num_warps, warp_size)


def tiled(
    shape: tuple[int, ...], order: tuple[int, ...], elems: int, num_warps: int, warp_size: int
) -> LinearLayout:
    """A blocked layout with `elems` consecutive elements a thread, fewer where threads would idle.

    Lanes fill the axes in `order`. Warps fill them from the other end, so that a warp holds whole
    rows and reductions along them stay inside it.

    Args:
        shape: the shape of the tile.
        order: axes, fastest first.
        elems: elements of a thread along `order[0]`.
        num_warps: warps of the block.
        warp_size: threads of a warp.
    """
    size = 1
    for extent in shape:
        size *= extent
    rank = len(shape)
    held = [1] * rank
    held[order[0]] = min(elems, shape[order[0]], max(1, size // (warp_size * num_warps)))
    lanes, left = [1] * rank, warp_size
    for axis in order:
        lanes[axis] = min(left, shape[axis] // held[axis])
        left //= lanes[axis]
    # Lanes without an element of their own hold copies.
    lanes[order[-1]] *= left
    warps, left = [1] * rank, num_warps
    for axis in reversed(order):
        warps[axis] = min(left, max(1, shape[axis] // (held[axis] * lanes[axis])))
        left //= warps[axis]
    warps[order[-1]] *= left
    layout = blocked(tuple(held), tuple(lanes), tuple(warps), order, shape)
    return layout.without_zero_bases(REGISTER)
