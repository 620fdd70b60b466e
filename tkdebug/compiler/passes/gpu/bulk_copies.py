"""Bulk copies by tensor maps, and the mbarriers that they complete on.

One mbarrier serves all copies that land together: one thread announces their bytes and issues them,
all wait. An mbarrier's phases alternate, so waiters keep their parity.

Accesses that no pipeline copies ahead become bulk copies here:

- `LowerTensorLoads`: the block lands in a buffer of its own and is waited for at once. A dot that
  reads it from a buffer reads this one; other users get it in registers.
- `LowerTensorStores`: the block goes through a buffer that a bulk copy reads. The copy is waited
  for at once, but only by the thread that issued it, and only until the buffer has been read: the
  others go on until the buffer's bytes are used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.analysis.tensor_maps import LANDING_ALIGNMENT, LOAD, STORE, landing_layout
from tkdebug.compiler.dialects import tt, ttg, ttng
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.location import Location, fuse
from tkdebug.compiler.ir.types import I1, I32, I64, MemDescType, TensorType, element_of, shape_of
from tkdebug.compiler.layouts.shared import shared
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter

FENCE = ttng.FenceAsyncShared.name
WORD_BYTES = 8
_RULE = "copy-block"


@dataclass(frozen=True)
class MbarrierRing:
    """The mbarriers of a ring of buffers, one for each place in it.

    Attributes:
        loads: the `tt.descriptor_load`s whose blocks land together.
        words: the memory of the mbarriers.
        count: the number of mbarriers.
    """

    loads: tuple[Operation, ...]
    words: Value
    count: int
    rewriter: Rewriter

    @staticmethod
    def make(
        loads: Sequence[Operation], count: int, rewriter: Rewriter, anchor: Operation, rule: str
    ) -> MbarrierRing:
        """Make `count` mbarriers before `anchor`.

        The fence is for the copies: they see the threads' earlier writes to shared memory, to the
        mbarriers and to the buffers' bytes.
        """
        location = fuse(*(load.location for load in loads))
        build = OpBuilder(rewriter, anchor, rule, location)
        layout = shared((1,), 1, 1, 1, (0,))
        type_ = MemDescType((count, 1), I64, layout, True)
        words = build.op(ttg.LocalAlloc, (), type_, alignment=WORD_BYTES)
        arrivals = MbarrierRing(tuple(loads), words, count, rewriter)
        for place in range(count):
            barrier = arrivals.at(build, build.constant(I32, place))
            build.effect(ttng.InitBarrier.name, (barrier,), count=1)
        build.effect(FENCE, ())
        return arrivals

    @property
    def location(self) -> Location:
        """The locations of the blocks' loads, fused."""
        return fuse(*(load.location for load in self.loads))

    def at(self, build: OpBuilder, place: Value) -> Value:
        """Build a view of the mbarrier at `place`."""
        return build.op(ttg.MemDescIndex, (self.words, place))

    def copy(
        self,
        anchor: Operation,
        rule: str,
        place: Value,
        buffers: Sequence[Value],
        coordinates: Sequence[Sequence[Value]],
        comes: Value,
    ) -> list[Operation]:
        """Start the copies to one place of the ring if `comes`; return them, one for each load."""
        build = OpBuilder(self.rewriter, anchor, rule, self.location)
        barrier = self.at(build, place)
        size_bytes = 0
        for buffer in buffers:
            assert isinstance(buffer.type, MemDescType)
            size_bytes += buffer.type.buffer_bytes
        build.effect(ttng.BarrierExpect.name, (barrier, comes), size_bytes=size_bytes)
        copies = []
        for load, buffer, place_in_tensor in zip(self.loads, buffers, coordinates, strict=True):
            at_load = OpBuilder(self.rewriter, anchor, rule, load.location)
            operands = (
                tt.DescriptorLoad(load).descriptor,
                buffer,
                barrier,
                comes,
                *place_in_tensor,
            )
            copies.append(at_load.effect(ttng.AsyncTmaCopyGlobalToLocal.name, operands))
        return copies

    def wait(
        self, anchor: Operation, rule: str, place: Value, phase: Value, *also: Location
    ) -> Operation:
        """Wait at one place's mbarrier; `also` are locations of ops that the wait replaces.

        After the wait threads and tensor cores see the copied bytes, without a fence.
        """
        location = fuse(*(load.location for load in self.loads), *also)
        build = OpBuilder(self.rewriter, anchor, rule, location)
        return build.effect(ttng.WaitBarrier.name, (self.at(build, place), phase))

    def end(self, anchor: Operation, rule: str) -> None:
        """Invalidate the mbarriers before `anchor`, where no copy may be under way."""
        build = OpBuilder(self.rewriter, anchor, rule, self.location)
        for place in range(self.count):
            barrier = self.at(build, build.constant(I32, place))
            build.effect(ttng.InvalBarrier.name, (barrier,))


def holds_block(alloc: Operation, buffer: MemDescType) -> bool:
    """Whether `alloc` makes a single buffer in the layout of `buffer`."""
    type_ = alloc.result.type
    assert isinstance(type_, MemDescType)
    return type_.layout == buffer.layout and not type_.is_multiple


def is_landed(buffer: Value) -> bool:
    """Whether a bulk copy will fill a buffer, so that no thread stores to it."""
    alloc = ttg.LocalAlloc.defining(traced(buffer, ttg.MemDescTrans.names))
    if alloc is None or alloc.source is None:
        return False
    load = alloc.source.defining_op
    if load is None or load.name != LOAD:
        return False
    assert isinstance(load.result.type, TensorType)
    type_ = alloc.result.type
    assert isinstance(type_, MemDescType)
    return type_.layout == landing_layout(load.result.type)


def make_mutable(buffer: Value) -> None:
    """Make the views of a buffer mutable, and their views."""
    for user in buffer.uses:
        for result in user.results:
            if isinstance(result.type, MemDescType):
                type_ = result.type
                result.type = MemDescType(type_.shape, type_.element, type_.layout, True)
                make_mutable(result)


@dataclass(frozen=True, slots=True)
class LowerTensorLoads:
    """Replaces each `tt.descriptor_load` by a bulk copy to a buffer and a wait."""

    name: ClassVar[str] = "lower-tensor-loads"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Lower every load."""
        for op in [op for op in module.walk() if op.name == LOAD]:
            if rewriter.begins(op, _RULE):
                _lower_load(op, rewriter)
        rewriter.commit()


def _lower_load(op: Operation, rewriter: Rewriter) -> None:
    build = OpBuilder(rewriter, op, _RULE)
    block = op.result.type
    assert isinstance(block, TensorType)
    type_ = MemDescType(shape_of(block), element_of(block), landing_layout(block), True)
    buffer = build.op(ttg.LocalAlloc, (), type_, alignment=LANDING_ALIGNMENT)
    arrivals = MbarrierRing.make([op], 1, rewriter, op, _RULE)
    first, always = build.constant(I32, 0), build.constant(I1, 1)
    copies = arrivals.copy(op, _RULE, first, [buffer], [tt.DescriptorLoad(op).offsets], always)
    arrivals.wait(op, _RULE, first, first)
    arrivals.end(op, _RULE)
    for user in list(op.result.uses):
        if ttg.LocalAlloc.matches(user) and holds_block(user, type_):
            user.result.replace_all_uses_with(buffer)
            make_mutable(buffer)
            assert buffer.defining_op is not None
            rewriter.replace_with_ops(user, "land-in-operand", [buffer.defining_op])
    if op.result.uses:
        value = build.op(ttg.LocalLoad, (buffer,), block)
        value.name = op.result.name
        rewriter.replace_value(op.result, value)
    rewriter.replace_with_ops(op, _RULE, copies)


@dataclass(frozen=True, slots=True)
class LowerTensorStores:
    """Replaces each `tt.descriptor_store` by a buffer and a bulk copy from it."""

    name: ClassVar[str] = "lower-tensor-stores"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Lower every store."""
        for op in [op for op in module.walk() if op.name == STORE]:
            if rewriter.begins(op, _RULE):
                _lower_store(op, rewriter)
        rewriter.commit()


def _lower_store(op: Operation, rewriter: Rewriter) -> None:
    build = OpBuilder(rewriter, op, _RULE)
    descriptor, value, *coordinates = op.operands
    block = value.type
    assert isinstance(block, TensorType)
    type_ = MemDescType(shape_of(block), element_of(block), landing_layout(block), False)
    buffer = build.op(ttg.LocalAlloc, (value,), type_, alignment=LANDING_ALIGNMENT)
    # The copy sees the threads' stores only after the threads execute a fence.
    build.effect(FENCE, ())
    copy = build.effect(ttng.AsyncTmaCopyLocalToGlobal.name, (descriptor, buffer, *coordinates))
    build.effect(ttng.AsyncTmaStoreWait.name, (), pendings=0)
    rewriter.replace_with_ops(op, _RULE, [copy])
