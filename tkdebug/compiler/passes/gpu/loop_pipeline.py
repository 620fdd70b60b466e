"""The rewrite of one loop whose loads become asynchronous copies that run iterations ahead.

With S stages each load gets a ring of S buffers. Iteration t reads buffer t % S, while the copies
of iteration t + S - 1 fill buffer (t - 1) % S, which the iteration before has read: so one barrier
an iteration, after the wait, orders both the copies' arrival and the reuse of buffers. (A dot that
runs on reads its buffer longer, and has a second barrier. A spare buffer instead of it was measured
on an H200: no faster, and slower where it costs a block its place.)

Where a block's shared memory has no room for S buffers, the copies of iteration t + S - 1 fill the
buffer that iteration t has read, at its end: S - 1 buffers suffice for that, and a second barrier
comes between reading and filling. Where there is no room for these either, there are fewer stages.

    copies of iterations 0 … S - 2, a group each
    for t:
        wait until S - 2 groups are on their way: that of iteration t has landed
        copies of iteration t + S - 1, a group     (after the dots, if these run asynchronously)
        the body, reading buffers
    wait for all groups

Blocks that tensor maps bring (bulk copies) are not waited for by groups: each place of the ring has
an mbarrier, one thread announces the iteration's bytes to it and issues the copies, and all threads
wait at it. That wait shows the blocks to tensor cores too, so such loops have no fence, and one
barrier an iteration, for the reuse of buffers. The phase to wait for alternates with each turn of
the ring.

Where an address depends on another load (a page table), that one runs one iteration further ahead,
into registers, so that nothing waits for it.

Copies past the last iteration are masked but still commit a group, so any trip count is right.
Addresses are computed ahead from what the loop carries; the body's own carried values are often
unused afterwards. `pipeline_loops` decides which loops are rewritten, and how far ahead they run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from tkdebug.compiler.dialects import arith, scf, tt, ttg, ttng
from tkdebug.compiler.dialects.arith import wrap
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import carry
from tkdebug.compiler.ir.core import Block, Operation, Value
from tkdebug.compiler.ir.location import fuse
from tkdebug.compiler.ir.types import I1, I32, I64, TOKEN, MemDescType, element_of
from tkdebug.compiler.passes.gpu.bulk_copies import (
    FENCE,
    MbarrierRing,
    holds_block,
    is_landed,
    make_mutable,
)
from tkdebug.compiler.passes.gpu.pipeline_wgmma import DOT, is_carried
from tkdebug.compiler.passes.gpu.pipelined_loads import PipelinedLoad
from tkdebug.compiler.passes.gpu.prologue import BackwardSlice, Lookups, Prologue, masked
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter

# Fences before warpgroup dots, which make threads' writes to buffers visible to them. One fence
# after the wait serves all dots of a pipelined loop, or none where bulk copies bring the operands.
# They are found before the loop is rewritten.


def fences_of_loads(body: Block, loaded: Collection[Value]) -> list[Operation]:
    """The fences of a loop's body before dots that read nothing which the body itself writes.

    Args:
        body: the body of the loop.
        loaded: values that will lie in rings, so that no thread stores them.
    """
    return [
        fence
        for fence, dot in _fenced_dots(body)
        if all(_lasts(value, body, loaded) for value in _buffers(dot))
    ]


def reads_landed(body: Block, fences: Sequence[Operation]) -> bool:
    """Whether bulk copies bring all that the dots after `fences` read from buffers."""
    dots = [dot for fence, dot in _fenced_dots(body) if fence in fences]
    return bool(fences) and all(is_landed(buffer) for dot in dots for buffer in _buffers(dot))


def _fenced_dots(body: Block) -> Iterator[tuple[Operation, Operation]]:
    """Each fence with the dot after it, the only one whose buffers the fence surely covers."""
    waiting: list[Operation] = []
    for op in body.operations:
        if op.name == FENCE:
            waiting.append(op)
        elif ttng.WarpGroupDot.matches(op):
            yield from ((fence, op) for fence in waiting)
            waiting.clear()


def _buffers(dot: Operation) -> list[Value]:
    return [value for value in dot.operands if isinstance(value.type, MemDescType)]


def _lasts(buffer: Value, body: Block, loaded: Collection[Value]) -> bool:
    """Whether a buffer is made outside the loop, or will be replaced by a buffer of a ring."""
    op = buffer.defining_op
    while op is not None and op.block is body and op.operands:
        (source, *_) = op.operands
        if ttg.LocalAlloc.matches(op):
            return source in loaded
        op = source.defining_op
    return op is None or op.block is not body


def trip_count(loop: Operation) -> int | None:
    """The iterations of an `scf.for`, or None if they are unknown."""
    numbers = [constant_value(value) for value in scf.For(loop).bounds]
    lower, upper, step = numbers
    if not (isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int)):
        return None
    return len(range(lower, upper, step)) if step > 0 else None


class LoopPipeline:
    """The rewrite of one loop.

    Args:
        loop: an `scf.for`.
        loads: the loads that are copied ahead.
        buffers: the number of buffers in each ring.
        distance: how many iterations ahead the copies run. If it equals `buffers`, an iteration
            ends with refilling the buffers that it has read.
        rewriter: the rewriter.
    """

    def __init__(
        self,
        loop: Operation,
        loads: Sequence[PipelinedLoad],
        buffers: int,
        distance: int,
        rewriter: Rewriter,
    ) -> None:
        self.loop = loop
        self.body = loop.regions[0].block
        self.loads = loads
        self.ahead, self.lookups = _ahead(loop, loads)
        self.buffers = buffers
        self.distance = distance
        self.refills = distance == buffers
        self.rewriter = rewriter
        self.before = self._builder(loop, "fill-pipeline")
        self.bulk = [load for load in loads if load.is_bulk]
        self.plain = [load for load in loads if not load.is_bulk]
        # The mbarriers at which bulk copies land.
        self.mbarriers: MbarrierRing | None = None
        self.rings: dict[PipelinedLoad, Value] = {}
        self.copies: dict[Operation, list[Operation]] = {load.op: [] for load in loads}

    def build(self) -> None:
        """Rewrite the loop and the code around it."""
        assert self.loop.block is not None
        place = self.loop.block.operations.index(self.loop)
        following = self.loop.block.operations[place + 1]
        fences = fences_of_loads(self.body, [load.op.result for load in self.loads])
        self._allocate()
        limits = [self._limit(count) for count in (self.distance, self.distance + 1)]
        carried = self._fill()
        fence = self._rewrite_body(carried, limits, fences)
        self._drain(following)
        for old in fences:
            assert fence is not None
            self.rewriter.replace_with_ops(old, "order-proxies-once", [fence])
        for load in self.loads:
            self.rewriter.replace_with_ops(load.op, "copy-ahead", self.copies[load.op])
        if self.lookups is not None:
            self.lookups.erase_unused(self.ahead, self.rewriter)
        scf.For(self.loop).pipelined = self.distance + 1
        self.rewriter.record_change(self.loop, "carry-pipeline")

    def _builder(self, anchor: Operation, rule: str) -> OpBuilder:
        return OpBuilder(self.rewriter, anchor, rule, self.loop.location)

    # Before the loop

    def _allocate(self) -> None:
        """Make the rings, and the mbarriers at which bulk copies land."""
        for load in self.loads:
            ring_type = load.ring_type(self.buffers)
            ring = self.before.op(ttg.LocalAlloc, (), ring_type, alignment=load.alignment)
            self.rings[load] = ring
        if self.bulk:
            ops = [load.op for load in self.bulk]
            self.mbarriers = MbarrierRing.make(
                ops, self.buffers, self.rewriter, self.loop, "fill-pipeline"
            )

    def _limit(self, count: int) -> Value:
        """Return the counter below which the iteration `count` later exists; i64 cannot wrap."""
        upper, step = (
            self._wide(self.before, value)
            for value in (scf.For(self.loop).upper, scf.For(self.loop).step)
        )
        return self.before.binary(arith.SubI, upper, self.before.binary(arith.MulI, step, count))

    def _wide(self, build: OpBuilder, value: Value) -> Value:
        number = constant_value(value)
        if isinstance(number, int):
            return build.constant(I64, number)
        return value if value.type == I64 else build.op(arith.ExtSI, (value,), I64)

    def _fill(self) -> Prologue:
        """Emit the copies of the first iterations; return the body's values after them."""
        values = self.ahead.first()
        scouted = {} if self.lookups is None else self.lookups.slice.first()
        found: dict[Value, Value] = {}
        for k in range(self.distance + 1):
            position, comes = self._first_position(k)
            known = {self.body.arguments[0]: position}
            if self.lookups is not None:
                found, scouted = self.lookups.look_up(
                    {**known, **scouted}, comes, self.rewriter, self.loop
                )
            if k == self.distance:
                break
            clones = self.ahead.clone(
                {**known, **values, **found}, self.rewriter, self.loop, "fill-pipeline"
            )
            self._copies(self.loop, clones, self.before.constant(I32, k), comes, "fill-pipeline")
            self._commit(self.before)
            values = self.ahead.next(clones)
        return Prologue(values, found, scouted)

    def _first_position(self, k: int) -> tuple[Value, Value]:
        """Return the counter of iteration k, and whether the loop has that iteration."""
        loop = scf.For(self.loop)
        lower, upper, step = loop.lower, loop.upper, loop.step
        position = lower if k == 0 else self._plus_steps(self.before, lower, step, k)
        trips = trip_count(self.loop)
        if trips is not None:
            return position, self.before.constant(I1, int(k < trips))
        wide = self._wide(self.before, lower)
        if k:
            far = self.before.binary(arith.MulI, self._wide(self.before, step), k)
            wide = self.before.op(arith.AddI, (wide, far))
        return position, self.before.compare("slt", wide, self._wide(self.before, upper))

    def _plus_steps(self, build: OpBuilder, value: Value, step: Value, count: int) -> Value:
        number, amount = constant_value(value), constant_value(step)
        if isinstance(amount, int):
            if isinstance(number, int):
                bits = element_of(value.type).bits
                return build.constant(value.type, wrap(number + amount * count, bits))
            return build.binary(arith.AddI, value, amount * count)
        far = step if count == 1 else build.binary(arith.MulI, step, count)
        return build.op(arith.AddI, (value, far))

    def _copies(
        self,
        anchor: Operation,
        clones: Mapping[Value, Value],
        slot: Value,
        comes: Value,
        rule: str,
    ) -> None:
        """Start the copies of one iteration into buffer `slot` of each ring, if it comes."""
        for load in self.plain:
            build = OpBuilder(self.rewriter, anchor, rule, load.op.location)
            pointer, *rest = (clones.get(value, value) for value in load.op.operands)
            mask = masked(build, pointer, rest[0] if rest else None, comes)
            buffer = build.op(ttg.MemDescIndex, (self.rings[load], slot))
            kept = {k: v for k, v in load.op.attributes.items() if k != "layout"}
            operands = (pointer, buffer) if mask is None else (pointer, buffer, mask)
            token = build.op(ttg.AsyncCopyGlobalToLocal, operands, TOKEN, **kept)
            assert token.defining_op is not None
            self.copies[load.op].append(token.defining_op)
            self.rewriter.note_copied(load.op, token.defining_op, clones)
        if self.mbarriers is None:
            return
        places = [
            OpBuilder(self.rewriter, anchor, rule, load.op.location).op(
                ttg.MemDescIndex, (self.rings[load], slot)
            )
            for load in self.bulk
        ]
        coordinates = [
            [clones.get(value, value) for value in tt.DescriptorLoad(load.op).offsets]
            for load in self.bulk
        ]
        copies = self.mbarriers.copy(anchor, rule, slot, places, coordinates, comes)
        for load, copy in zip(self.bulk, copies, strict=True):
            self.copies[load.op].append(copy)
            self.rewriter.note_copied(load.op, copy, clones)

    def _commit(self, build: OpBuilder) -> None:
        """Commit an iteration's copies by threads as a group; bulk copies are in none."""
        if self.plain:
            build.op(ttg.AsyncCommitGroup, (), TOKEN)

    # Inside the loop

    def _rewrite_body(
        self, carried: Prologue, limits: Sequence[Value], fences: Sequence[Operation]
    ) -> Operation | None:
        """Wait, read the rings, copy ahead and step; return the replacement of the dots' fences."""
        first = self.body.operations[0]
        zero = self.before.constant(I32, 0)
        # With one buffer in each ring, the next buffer is always number 0.
        reading = zero if self.buffers == 1 else carry(self.loop, zero)
        filling = reading
        if not self.refills:
            filling = carry(self.loop, self.before.constant(I32, self.distance))
        phase = None if self.mbarriers is None else carry(self.loop, zero)
        fence = self._wait(first, reading, phase, fences)
        ahead = carried.map(partial(carry, self.loop))
        fills_late = self.refills or has_carried_dot(self.loop)
        needs_fence = self._read(reading)
        anchor = self.body.terminator if fills_late else first
        ahead = self._copy_ahead(anchor, ahead, filling, limits, needs_fence)
        self._step(reading, filling, phase, ahead)
        return fence

    def _wait(
        self,
        anchor: Operation,
        reading: Value,
        phase: Value | None,
        fences: Sequence[Operation],
    ) -> Operation | None:
        """Wait for the iteration's buffers; return the op that replaces the dots' fences."""
        if self.plain:
            start = self._builder(anchor, "wait-for-copies")
            start.op(ttg.AsyncWait, (), TOKEN, num=self.distance - 1)
        locations = [op.location for op in fences]
        landed = reads_landed(self.body, fences)
        wait: Operation | None = None
        if self.mbarriers is not None:
            assert phase is not None
            also = locations if landed else []
            wait = self.mbarriers.wait(anchor, "wait-for-copies", reading, phase, *also)
        if landed or not fences:
            return wait
        # Stores of threads before the loop become visible to the tensor cores, once. Copies of
        # cp.async are visible after their wait and a barrier: CUTLASS's main loop with cp.async
        # and wgmma (sm90_mma_multistage_gmma_ss_warpspecialized.hpp) has no fence either.
        fence = self.rewriter.build_before(self.loop, FENCE, (), (), location=fuse(*locations))
        self.rewriter.record_new(fence, "order-proxies-once")
        return fence

    def _read(self, slot: Value) -> bool:
        """Let all uses of the loads read the rings; return whether threads read a bulk copy."""
        read_by_threads = False
        for load, ring in self.rings.items():
            build = OpBuilder(self.rewriter, load.op, "read-ring", load.op.location)
            buffer = build.op(ttg.MemDescIndex, (ring, slot))
            for user in list(load.op.result.uses):
                if user.block is not self.body:
                    continue
                if ttg.LocalAlloc.matches(user) and holds_block(user, load.buffer_type):
                    new = self.rewriter.replace_with_op(
                        user,
                        "read-ring",
                        ttg.MemDescIndex,
                        (ring, slot),
                        result_types=[load.buffer_type],
                    )
                    make_mutable(new.result)
                    self.rewriter.note_replaced(load.op.result, new.result)
                elif ttg.ConvertLayout.matches(user):
                    read_by_threads |= load.is_bulk
                    self.rewriter.replace_with_op(user, "read-ring", ttg.LocalLoad, (buffer,))
            if load.op.result.uses:
                read_by_threads |= load.is_bulk
                value = build.op(ttg.LocalLoad, (buffer,), load.op.result.type)
                self.rewriter.replace_value(load.op.result, value)
        return read_by_threads

    def _copy_ahead(
        self,
        anchor: Operation,
        ahead: Prologue,
        slot: Value,
        limits: Sequence[Value],
        needs_fence: bool,
    ) -> Prologue:
        """Emit the copies of the iteration that runs ahead; return its values for the next one."""
        counter, step = self.body.arguments[0], scf.For(self.loop).step
        build = self._builder(anchor, "copy-ahead")
        wide = self._wide(build, counter)
        position = self._plus_steps(build, counter, step, self.distance)
        known = {counter: position, **ahead.values, **ahead.found}
        clones = self.ahead.clone(known, self.rewriter, anchor, "copy-ahead")
        comes = build.compare("slt", wide, limits[0])
        if needs_fence:
            # Threads finish their reads of a buffer before a bulk copy fills it again.
            build.effect(FENCE, ())
        self._copies(anchor, clones, slot, comes, "copy-ahead")
        self._commit(build)
        values = self.ahead.next(clones)
        if self.lookups is None:
            return Prologue(values, {}, {})
        position = self._plus_steps(build, counter, step, self.distance + 1)
        comes = build.compare("slt", wide, limits[1])
        known = {counter: position, **ahead.scouted}
        return Prologue(values, *self.lookups.look_up(known, comes, self.rewriter, anchor))

    def _step(self, reading: Value, filling: Value, phase: Value | None, ahead: Prologue) -> None:
        """Yield the next slots, the phase to wait for, and the values that run ahead."""
        terminator = self.body.terminator
        build = self._builder(terminator, "step-ring")
        after = []
        slots = [slot for slot in (reading, filling) if slot.owner is self.body]
        for slot in dict.fromkeys(slots):
            stepped = build.binary(arith.AddI, slot, 1)
            inside = build.compare("slt", stepped, build.constant(I32, self.buffers))
            after.append(build.op(arith.Select, (inside, stepped, build.constant(I32, 0)), I32))
            if slot is reading and phase is not None:
                turned = build.binary(arith.XOrI, phase, 1)
                turning = build.op(arith.Select, (inside, phase, turned), I32)
        if phase is not None:
            after.append(turning)
        terminator.operands = (*terminator.operands, *after, *ahead.all())
        self.rewriter.record_change(terminator, "carry-pipeline")

    # After the loop

    def _drain(self, following: Operation) -> None:
        """Wait for all copies after the loop, and free the buffers."""
        build = self._builder(following, "drain-pipeline")
        if self.plain:
            build.op(ttg.AsyncWait, (), TOKEN, num=0)
        if self.mbarriers is not None:
            self.mbarriers.end(following, "drain-pipeline")
        for ring in self.rings.values():
            dealloc = self.rewriter.build_before(
                following, ttg.LocalDealloc, [ring], [], location=self.loop.location
            )
            self.rewriter.record_new(dealloc, "drain-pipeline")


def _ahead(loop: Operation, loads: Sequence[PipelinedLoad]) -> tuple[BackwardSlice, Lookups | None]:
    """The slice that computes the operands of `loads` ahead, and the lookups that it needs."""
    lookups = tuple(dict.fromkeys(lookup for load in loads for lookup in load.lookups))
    operands = [value for load in loads for value in load.op.operands]
    ahead = BackwardSlice.of(loop, operands, [lookup.result for lookup in lookups])
    assert ahead is not None
    return ahead, Lookups.of(loop, lookups) if lookups else None


def has_carried_dot(loop: Operation) -> bool:
    """Whether a warpgroup dot adds to a carried value, so that `PipelineWgmma` lets it run on.

    Such a dot reads its buffers until it is waited for in the next iteration; only then can they be
    filled.
    """
    return any(op.name == DOT and is_carried(loop, op) for op in loop.regions[0].block.operations)
