"""Loads of a loop that become asynchronous copies, and the buffers they are copied to.

A load qualifies when its address can be computed ahead of the loop (from carried values, or from
loads that qualify), nothing in the loop may write the memory that it reads, and neighbouring
elements of a thread fill a copy of at least 4 bytes.

`AssignLayouts` lets every thread load the elements of a small vector that it needs, which saves a
conversion. A load that becomes an asynchronous copy goes through shared memory anyway, so there 16
bytes a thread are better (`widen_copies`): the row statistics of attention's backward pass then
take one copy of 16 bytes, and not 8 copies of 8 bytes in the layout of their users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tkdebug.compiler.analysis import layout_inference
from tkdebug.compiler.analysis.axis_facts import AxisInfo
from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.analysis.global_memory import (
    MAX_ACCESS_BYTES,
    accessible_elems,
    pointer_base,
    vector_elems,
)
from tkdebug.compiler.analysis.tensor_maps import LANDING_ALIGNMENT, LOAD, landing_layout
from tkdebug.compiler.dialects import tt, ttg
from tkdebug.compiler.dialects.interfaces import Effects, PlainDot, PointerAccess, accessed
from tkdebug.compiler.dialects.table import OPS, PURE, is_effect_free
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import (
    MemDescType,
    ScalarType,
    TensorType,
    element_of,
    encoding_of,
    shape_of,
    with_encoding,
)
from tkdebug.compiler.layouts import OFFSET, REGISTER, LinearLayout, blocked
from tkdebug.compiler.layouts.shared import shared
from tkdebug.compiler.passes.gpu.prologue import BackwardSlice, loads_before
from tkdebug.compiler.passes.gpu.select_tensor_cores import fastest_dim
from tkdebug.compiler.rewriting.rewriter import Rewriter

# The minimum number of bytes that cp.async copies (PTX ISA, "cp.async").
_MIN_COPY_BYTES = 4
_SEGMENT_BYTES = 128
# Ops that only move or convert data between a load and a dot.
_MOVES = frozenset(
    (
        ttg.ConvertLayout.name,
        ttg.LocalAlloc.name,
        ttg.LocalLoad.name,
        ttg.MemDescTrans.name,
        ttg.MemDescSubslice.name,
        tt.Split.name,
    )
)
# Ops whose effects are on no memory that a load could read.
_HARMLESS = ("scf.", "ttg.", "ttng.", tt.Print.name, tt.Assert.name, tt.Assume.name, "gpu.")


@dataclass(frozen=True, slots=True)
class PipelinedLoad:
    """A load and the kind of buffer that it is copied to.

    Attributes:
        op: the `tt.load`, or `tt.descriptor_load` by a tensor map.
        layout: the layout of one buffer.
        alignment: the alignment of the buffers, in bytes.
        lookups: loads that its operands are computed from.
    """

    op: Operation
    layout: LinearLayout
    alignment: int
    lookups: tuple[Operation, ...] = ()

    @property
    def is_bulk(self) -> bool:
        """Whether it is copied by a tensor map."""
        return self.op.name == LOAD

    def ring_type(self, buffers: int) -> MemDescType:
        """The type of `buffers` buffers."""
        type_ = self.op.result.type
        return MemDescType((buffers, *shape_of(type_)), element_of(type_), self.layout, True)

    @property
    def buffer_type(self) -> MemDescType:
        """The type of one buffer."""
        type_ = self.op.result.type
        return MemDescType(shape_of(type_), element_of(type_), self.layout, True)


# Called with each load that is not copied ahead, and why.
Refusal: TypeAlias = Callable[[Operation, str], None]


def _unheard(op: Operation, reason: str) -> None:
    pass


def pipelined_loads(
    loop: Operation,
    infos: Mapping[Value, AxisInfo],
    needs_dot: bool,
    refuse: Refusal = _unheard,
) -> list[PipelinedLoad]:
    """The loads of `loop` that can be copied ahead.

    Args:
        loop: an `scf.for`.
        infos: facts about pointers and masks.
        needs_dot: take only loads whose values reach a dot.
        refuse: called with the other loads; with `needs_dot`, only if they reach a dot.
    """
    written = _written(loop)
    found = []
    for op in loop.regions[0].block.operations:
        if op.name != LOAD and not tt.Load.matches(op):
            continue
        if needs_dot and not _reaches_dot(op, loop):
            continue
        reason = _obstacle(loop, op, written)
        if reason:
            refuse(op, reason)
            continue
        load = replace(_with_buffer(op), lookups=tuple(loads_before(loop, op.operands) or ()))
        copied = _MIN_COPY_BYTES if load.is_bulk else _copy_bytes(load, infos)
        if copied >= _MIN_COPY_BYTES:
            found.append(load)
        else:
            refuse(
                op,
                f"only {copied} bytes follow each other at an address that is known to be "
                f"a multiple of them, and an asynchronous copy takes {_MIN_COPY_BYTES} at least",
            )
    # Loads from which others take their addresses are made ahead into registers, not copied.
    looked_up = {lookup for load in found for lookup in load.lookups}
    return [load for load in found if load.op not in looked_up]


def _obstacle(loop: Operation, op: Operation, written: set[Value] | None) -> str:
    """Return why a load cannot be copied ahead, "" if it can."""
    if written is None:
        return "the loop writes memory, or waits, in a way that loads must not overtake"
    if op.name != LOAD and not _is_plain(op):
        return "it is scalar, volatile, or fills with something else than 0"
    lookups = loads_before(loop, op.operands)
    if lookups is None or any(tt.Load(lookup).volatile for lookup in lookups):
        return "its address is loaded in the iteration itself"
    if written and any(_root(accessed(x)) in {None, *written} for x in (op, *lookups)):
        return "the loop stores through the same argument"
    if BackwardSlice.of(loop, op.operands, [lookup.result for lookup in lookups]) is None:
        return "its address depends on what the iteration before computed"
    return ""


def _is_plain(op: Operation) -> bool:
    """Whether a copy that fills with zeros gives the load's values."""
    type_ = op.result.type
    if not isinstance(type_, TensorType) or not isinstance(type_.element, ScalarType):
        return False
    if tt.Load(op).volatile:
        return False
    other = tt.Load(op).other
    return other is None or _is_zero(other)


def _is_zero(value: Value) -> bool:
    number = constant_value(traced(value, names_of(tt.Splat, ttg.ConvertLayout, tt.Broadcast)))
    return number is not None and number == 0 and math.copysign(1.0, number) > 0


def _reaches_dot(op: Operation, loop: Operation) -> bool:
    seen: set[Operation] = set()
    worklist = [op]
    while worklist:
        for result in worklist.pop().results:
            for user in result.uses:
                if PlainDot.matches(user):
                    return True
                moves = user.name in _MOVES or user.name in layout_inference.VIEWS
                if user not in seen and (moves or layout_inference.is_elementwise(user)):
                    seen.add(user)
                    worklist.append(user)
    return False


def _written(loop: Operation) -> set[Value] | None:
    """The function's arguments through which the loop writes memory, or None if unknown.

    None also if the loop has other effects, such as atomics that order memory. Different pointer
    arguments are taken to point to different memory, as everywhere in the language: no iteration
    may read through one pointer what an earlier iteration wrote through another.
    """
    roots: set[Value] = set()
    for op in loop.walk():
        view = OPS.get(op.name)
        if view is None or op.name.startswith("ttg.async"):
            return None
        if Effects.WRITE in view.effects:
            root = _root(accessed(op))
            if root is None or (tt.Atomic.matches(op) and tt.Atomic(op).sem != "relaxed"):
                return None
            roots.add(root)
        elif Effects.OTHER in view.effects and not _is_harmless(op):
            return None
    return roots


def _is_harmless(op: Operation) -> bool:
    return op.name.startswith(_HARMLESS) or is_effect_free(op)


def _root(value: Value) -> Value | None:
    """The argument of the function that a pointer is computed from, or None if it is unknown."""
    base = pointer_base(value)
    parent = None if isinstance(base.owner, Operation) else base.owner.parent_op
    return base if parent is not None and tt.Func.matches(parent) else None


def _with_buffer(op: Operation) -> PipelinedLoad:
    """Return the load with the buffer that its value is stored to, else with a new buffer."""
    type_ = op.result.type
    if op.name == LOAD:
        assert isinstance(type_, TensorType)
        return PipelinedLoad(op, landing_layout(type_), LANDING_ALIGNMENT)
    for user in op.result.uses:
        if ttg.LocalAlloc.matches(user) and user.block is op.block:
            held = user.result.type
            assert isinstance(held, MemDescType)
            alignment = ttg.LocalAlloc(user).alignment or MAX_ACCESS_BYTES
            return PipelinedLoad(op, held.layout, alignment)
    return PipelinedLoad(op, _swizzled(type_), MAX_ACCESS_BYTES)


def _swizzled(type_: object) -> LinearLayout:
    """The layout of a buffer in memory order; 16-byte pieces of rows are in different banks."""
    assert isinstance(type_, TensorType)
    assert type_.encoding is not None
    shape = type_.shape
    element_bytes = max(1, type_.element.bits // 8)
    inner = fastest_dim(type_.encoding)
    dims = [d for d in reversed(range(len(shape))) if d != inner]
    order = tuple(dims if inner is None else (inner, *dims))
    row_bytes = shape[order[0]] * element_bytes
    per_phase = min(8, max(1, _SEGMENT_BYTES // row_bytes))
    phases = max(1, min(8 // per_phase, row_bytes // MAX_ACCESS_BYTES))
    vector = min(max(1, MAX_ACCESS_BYTES // element_bytes), shape[order[0]])
    return shared(shape, vector, per_phase, phases, order)


def _copy_bytes(load: PipelinedLoad, infos: Mapping[Value, AxisInfo]) -> int:
    """The number of bytes that one thread copies at once."""
    op = load.op
    layout = encoding_of(PointerAccess(op).pointer.type)
    assert layout is not None
    mask = tt.Load(op).mask
    masks = None if mask is None else infos[mask]
    width = vector_elems(op, layout, infos[tt.Load(op).pointer], masks)
    together = layout.invert_and_compose(load.layout).consecutive_elements([OFFSET])
    return min(width, together) * load.buffer_type.element_bytes


def widen_copies(
    loop: Operation,
    loads: Sequence[PipelinedLoad],
    infos: Mapping[Value, AxisInfo],
    num_warps: int,
    warp_size: int,
    rewriter: Rewriter,
) -> bool:
    """Give the vectors among `loads` the layout of few wide copies, and convert their results.

    Returns:
        Whether anything changed.
    """
    changed = False
    for load in loads:
        layout = None if load.is_bulk else _wide_layout(load.op, infos, num_warps, warp_size)
        if layout is not None and _registers(layout) < _registers(_encoding(load.op)):
            changed |= _Remake(loop, layout, rewriter).load(load.op)
    return changed


def _wide_layout(
    op: Operation, infos: Mapping[Value, AxisInfo], num_warps: int, warp_size: int
) -> LinearLayout | None:
    """The layout with one access per thread, as wide as possible; None if `op` loads no vector."""
    type_ = op.result.type
    if not isinstance(type_, TensorType) or len(type_.shape) != 1:
        return None
    access = tt.Load(op)
    mask = None if access.mask is None else infos[access.mask]
    width = min(accessible_elems(op, 0, infos[access.pointer], mask), type_.shape[0])
    made = blocked((width,), (warp_size,), (num_warps,), (0,), type_.shape)
    return made.without_zero_bases(REGISTER)


def _encoding(op: Operation) -> LinearLayout:
    assert isinstance(op.result.type, TensorType)
    assert op.result.type.encoding is not None
    return op.result.type.encoding


def _registers(layout: LinearLayout) -> int:
    return layout.in_size(REGISTER)


class _Remake:
    """Makes a load and the values of its address and mask again, in another layout."""

    def __init__(self, loop: Operation, layout: LinearLayout, rewriter: Rewriter) -> None:
        self.loop = loop
        self.layout = layout
        self.rewriter = rewriter
        self.made: dict[Value, Value] = {}

    def load(self, op: Operation) -> bool:
        """Replace `op` by a load in the layout and a conversion; return whether it was possible."""
        if not all(self._can_be_remade(value) for value in op.operands):
            return False
        new = self.rewriter.build_before(
            op,
            op.name,
            [self._remade(value) for value in op.operands],
            [with_encoding(op.result.type, self.layout)],
            {**op.attributes, "layout": self.layout},
            location=op.location,
        )
        new.result.name = op.result.name
        self.rewriter.record_new(new, "widen-copy")
        self.rewriter.replace_with_op(op, "widen-copy", ttg.ConvertLayout, [new.result])
        return True

    def _can_be_remade(self, value: Value) -> bool:
        op = value.defining_op
        if not isinstance(value.type, TensorType):
            return True
        if op is None or op.regions:
            return False
        follows = layout_inference.is_elementwise(op) and op.name in PURE
        return (op.name in layout_inference.SOURCES or follows) and all(
            self._can_be_remade(operand) for operand in op.operands
        )

    def _remade(self, value: Value) -> Value:
        op = value.defining_op
        if not isinstance(value.type, TensorType):
            return value
        assert op is not None
        if value not in self.made:
            inside = op.block is self.loop.regions[0].block
            new = self.rewriter.build_before(
                op if inside else self.loop,
                op.name,
                [self._remade(operand) for operand in op.operands],
                [with_encoding(value.type, self.layout)],
                op.attributes,
                location=op.location,
            )
            self.rewriter.record_new(new, "widen-copy")
            self.made[value] = new.result
        return self.made[value]
