"""Reads of shared memory for the operands of a loop's dots on mma.sync, which are in registers.

`PrefetchOperands`: reads an iteration's first operands in the iteration before.

A dot on mma.sync has its operands in registers. In a pipelined loop nothing can be read from the
buffers before the iteration's wait and barrier, so that each iteration begins with tensor cores
that wait for addresses, copies and `ldmatrix`: an assembler moves neither past a barrier. Here the
dot is cut along K, and the loop carries its first slice:

    wait for the copies of iteration 0; read slice 0
    for t, with slice 0:
        copies of iteration t + S - 1
        read slices 1 … n - 1, multiply slices 0 … n - 2
        wait for the copies of iteration t + 1 (and a barrier); read its slice 0
        multiply slice n - 1

The wait at the beginning of an iteration is now at the end of the one before: there is one barrier
an iteration still, and the last slice is multiplied while the next is read. Where the body reads
other buffers after the dot, wait and reading are its last ops. The reads after the last iteration
see buffers that copies filled with zeros; nothing uses them. Operands that were read whole before
the loop (queries of attention) are read there in slices.

Left are dots of warp groups (wgmma), which read shared memory by themselves; loops whose blocks
tensor maps bring; dots whose accumulators leave no registers for two slices (their spills would
double); and loops that it does not help, measured on an H200 with code for sm_80:

- Loops of two stages that read no buffer after the dot: copies have the time of one iteration, and
  are issued later in it (0.81 to 0.84 of the speed without the pass, one of three 1.11).
- Operands that `ldmatrix` cannot read, which threads gather (0.96 in tf32, 1.00 in int8).
- Products of 16 rows, which wait for memory (0.98 to 1.01, with code for sm_90a).

All else kept its speed or gained: products of 4096 in fp16 1.00 to 1.33 of it, in int8 1.01 to
1.16, in tf32 1.13; attention 1.01 to 1.10; on sm_90a a product of 32 rows 1.28.

`RereadOperands`: operands that do not fit into registers across a loop stay in shared memory.

An operand of a dot on mma.sync that is loaded before a loop (queries of attention) is read from its
buffer there, into registers that it takes throughout. Where those, the accumulators that the loop
carries and the dot's own do not fit together, the assembler would spill: each iteration would store
and load what it could read from the buffer as well. There the reading moves into the loop. The
buffer then lives as long as the loop, which counts when its rings are given their place: this pass
comes before `PipelineLoops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.analysis.layout_inference import register_words
from tkdebug.compiler.dialects import scf, tt, ttg
from tkdebug.compiler.dialects.table import is_effect_free
from tkdebug.compiler.ir.control_flow import carry
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
from tkdebug.compiler.ir.location import Location
from tkdebug.compiler.ir.types import (
    TOKEN,
    MemDescType,
    TensorType,
    Type,
    element_of,
    encoding_of,
    shape_of,
)
from tkdebug.compiler.layouts import OFFSET, REGISTER, dot_operand
from tkdebug.compiler.rewriting.op_builder import OpBuilder
from tkdebug.compiler.rewriting.rewriter import Rewriter

# The part of each row of A that one instruction multiplies (PTX ISA, "mma": m16n8k16 of 16-bit
# types).
_INSTRUCTION_K_BITS = 256
# The rows of one instruction: a dot with no more of them multiplies each slice of B only once.
_ROWS = 16
# Registers of a thread that carried values, sums and two slices of each operand may take together.
_REGISTERS = 224
# `ldmatrix` transposes elements of this size only (PTX ISA, "ldmatrix").
_TRANSPOSED_BITS = 16
_ALLOC, _LOAD, _WAIT = ttg.LocalAlloc.name, ttg.LocalLoad.name, ttg.AsyncWait.name
_COMMIT, _COPY = ttg.AsyncCommitGroup.name, ttg.AsyncCopyGlobalToLocal.name
_INDEX, _TRANS = ttg.MemDescIndex.name, ttg.MemDescTrans.name
# Slices by buffer, block in which it is read, type of the whole operand, and source location.
_Slices = dict[tuple[Value, "Block | None", Type, Location], list[Value]]


@dataclass(frozen=True, slots=True)
class PrefetchOperands:
    """Reads the first slice of a pipelined loop's dot an iteration ahead."""

    name: ClassVar[str] = "prefetch-operands"
    other_rounds: ClassVar[frozenset[str]] = frozenset(("read-ahead",))

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every pipelined loop."""
        lasting: _Slices = {}
        for loop in [
            op for op in module.walk() if scf.For.matches(op) and scf.For(op).pipelined is not None
        ]:
            target = _target(loop)
            if target is not None and rewriter.begins(loop, "prefetch"):
                _Prefetch(target, rewriter, lasting).build()
                rewriter.commit()


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of a dot that is read from shared memory.

    Attributes:
        index: 0 for A, 1 for B.
        load: the `ttg.local_load`.
        views: the views from a ring to the loaded buffer, of which the first takes one of the
            ring's buffers; empty for a buffer that is filled before the loop.
    """

    index: int
    load: Operation
    views: tuple[Operation, ...]

    @staticmethod
    def of(dot: Operation, index: int, loop: Operation) -> _Operand | None:
        """Operand `index` of a dot in the body of `loop`; None if it cannot be read in slices."""
        operand = tt.Dot(dot).factors[index]
        body, load = loop.regions[0].block, operand.defining_op
        if load is None or load.name != _LOAD:
            return None
        shape = shape_of(load.result.type)
        if len(shape) != 2 or load.result.type != _operand_type(dot, index, shape):
            return None
        if load.result.uses != {dot: 1}:
            return None
        if not _memory(load).mutable and ttg.LocalLoad(load).buffer.parent_block is not body:
            return _Operand(index, load, ())
        if load.block is not body:
            return None
        views = _views_of_ring(load, body)
        if not views or not _is_read_by_matrices(load, index):
            return None
        return _Operand(index, load, views)

    @property
    def slot(self) -> Value:
        """The index of its buffer in the ring, carried by the loop."""
        return ttg.MemDescIndex(self.views[0]).index


@dataclass(frozen=True, slots=True)
class _Target:
    """A pipelined loop with the dot whose operands can be read ahead.

    Attributes:
        is_last_reader: whether nothing is read from buffers after the dot.
    """

    loop: Operation
    dot: Operation
    operands: tuple[_Operand, _Operand]
    is_last_reader: bool


def _target(loop: Operation) -> _Target | None:
    """The loop with its first dot on mma.sync whose operands can be read in slices, or None.

    Both are read from shared memory, at least one from a ring. None also if it would not pay off.
    """
    ops = loop.regions[0].block.operations
    names = [op.name for op in ops]
    if names.count(_WAIT) != 1 or names.count(_COMMIT) != 1:
        return None
    for place in range(names.index(_COMMIT), len(ops)):
        dot = ops[place]
        if not tt.Dot.matches(dot) or tt.Dot(dot).unit != "mma":
            continue
        if _slice_extent(dot) == shape_of(tt.Dot(dot).a.type)[-1]:
            continue
        a, b = (_Operand.of(dot, index, loop) for index in (0, 1))
        if a is None or b is None or not (a.views or b.views) or not _is_worth_it(loop, dot):
            continue
        is_last_reader = not any(map(_reads_buffers, ops[place + 1 :]))
        stages = scf.For(loop).pipelined
        assert stages is not None
        return None if is_last_reader and stages < 3 else _Target(loop, dot, (a, b), is_last_reader)
    return None


def _views_of_ring(load: Operation, body: Block) -> tuple[Operation, ...]:
    """The views through which `load` reads a buffer of a copied ring; () if it reads none."""
    views: list[Operation] = []
    view = ttg.LocalLoad(load).buffer.defining_op
    while view is not None and view.block is body and view.name in (_INDEX, _TRANS):
        views.insert(0, view)
        view = ttg.MemDescView(view).buffer.defining_op
    if view is None or view.name != _ALLOC or view.block is body:
        return ()
    if not views or views[0].name != _INDEX:
        return ()
    slot = ttg.MemDescIndex(views[0]).index
    is_carried = slot.owner is body and slot.index > 0
    return tuple(views) if is_carried and _is_copied_to(view.result) else ()


def _is_copied_to(ring: Value) -> bool:
    """Whether asynchronous copies by threads, which are waited for by groups, fill `ring`."""
    buffers = [user.result for user in ring.uses if user.name == _INDEX]
    return any(user.name == _COPY for buffer in buffers for user in buffer.uses)


def _is_read_by_matrices(load: Operation, index: int) -> bool:
    """Whether `ldmatrix` can read an operand: contiguous along K, or of 16 bits and transposed."""
    memory = _memory(load)
    k_dim = memory.layout.out_dims[1 - index]
    fastest = memory.layout.unpack_out(memory.layout.packed_bases(OFFSET)[0])
    return element_of(memory).bits == _TRANSPOSED_BITS or fastest[k_dim] > 0


def _memory(load: Operation) -> MemDescType:
    type_ = ttg.LocalLoad(load).buffer.type
    assert isinstance(type_, MemDescType)
    return type_


def _reads_buffers(op: Operation) -> bool:
    return any(isinstance(v.type, MemDescType) for inner in op.walk() for v in inner.operands)


def _is_worth_it(loop: Operation, dot: Operation) -> bool:
    """Whether the dot has enough rows to gain, and a thread has registers for two slices."""
    extent, (rows, columns) = _slice_extent(dot), shape_of(dot.result.type)
    if rows <= _ROWS:
        return False
    a, b = _operand_type(dot, 0, (rows, extent)), _operand_type(dot, 1, (extent, columns))
    carried = [x.type for x in loop.regions[0].block.arguments if x is not tt.Dot(dot).accumulator]
    return sum(map(register_words, (*carried, dot.result.type, a, a, b, b))) <= _REGISTERS


def _slice_extent(dot: Operation) -> int:
    """The extent of a slice along K: that of one instruction."""
    return _INSTRUCTION_K_BITS // element_of(tt.Dot(dot).a.type).bits


def _operand_type(dot: Operation, index: int, shape: tuple[int, ...]) -> TensorType:
    """The type of a slice of `shape` of operand `index` of `dot`."""
    acc, width = encoding_of(dot.result.type), tt.Dot(dot).k_width
    assert acc is not None
    assert isinstance(width, int)
    layout = dot_operand(acc, index, width, shape).without_zero_bases(REGISTER)
    return TensorType(shape, element_of(tt.Dot(dot).factors[index].type), layout)


class _Prefetch:
    """The rewrite of one loop.

    Args:
        target: the loop and its dot.
        rewriter: the rewriter.
        lasting: slices of operands that were read before loops; several loops share them.
    """

    def __init__(self, target: _Target, rewriter: Rewriter, lasting: _Slices) -> None:
        self.loop, self.dot, self.operands = target.loop, target.dot, target.operands
        self.body = target.loop.regions[0].block
        self.is_last_reader = target.is_last_reader
        self.rewriter = rewriter
        self.lasting = lasting
        self.rings = [x for x in self.operands if x.views]
        self.extent = _slice_extent(self.dot)
        self.starts = range(0, shape_of(tt.Dot(self.dot).a.type)[-1], self.extent)
        self.reads: dict[_Operand, list[Operation]] = {x: [] for x in self.operands}

    def build(self) -> None:
        """Rewrite the loop and the code before it."""
        (old,) = (op for op in self.body.operations if op.name == _WAIT)
        terminator = self.body.terminator
        waits = [self._wait(self.loop, old)]
        firsts = [
            self._first(x, self.loop, scf.For(self.loop).inits[x.slot.index - 1])
            for x in self.rings
        ]
        carried = dict(zip(self.rings, (carry(self.loop, first) for first in firsts), strict=True))
        total, dots = tt.Dot(self.dot).accumulator, []
        following: list[Value] = []
        for start in self.starts:
            pieces = [
                carried[x] if x.views and start == 0 else self._slice(x, start)
                for x in self.operands
            ]
            if self.is_last_reader and start == self.starts[-1]:
                waits.append(self._wait(self.dot, old))
                following = self._following(self.dot)
            build = OpBuilder(self.rewriter, self.dot, "multiply-slice")
            total = build.op(tt.Dot, (*pieces, total), total.type, **self.dot.attributes)
            assert total.defining_op is not None
            dots.append(total.defining_op)
        if not self.is_last_reader:
            waits.append(self._wait(terminator, old))
            following = self._following(terminator)
        self.rewriter.replace_with_values(self.dot, "cut-along-k", [total], dots)
        for x in self.operands:
            self.rewriter.replace_with_ops(x.load, "read-in-slices", self.reads[x])
        self.rewriter.replace_with_ops(old, "wait-ahead", waits)
        terminator.operands = (*terminator.operands, *following)
        for op in (terminator, self.loop):
            self.rewriter.record_change(op, "carry-slice")

    def _wait(self, anchor: Operation, old: Operation) -> Operation:
        """A wait like `old`, which leaves as many groups pending."""
        build = OpBuilder(self.rewriter, anchor, "wait-ahead", old.location)
        wait = build.op(_WAIT, (), TOKEN, **old.attributes).defining_op
        assert wait is not None
        return wait

    def _following(self, anchor: Operation) -> list[Value]:
        """The first slices of the next iteration, read before `anchor`."""
        yielded = self.body.terminator.operands
        slots = [yielded[x.slot.index - 1] for x in self.rings]
        self._bring_before(slots, anchor)
        return [self._first(x, anchor, slot) for x, slot in zip(self.rings, slots, strict=True)]

    def _bring_before(self, values: Sequence[Value], anchor: Operation) -> None:
        """Move the ops that compute `values` before `anchor`, if they come later."""
        ops = self.body.operations
        later = set(ops[ops.index(anchor) :])
        wanted: set[Operation] = set()
        worklist = list(values)
        while worklist:
            op = worklist.pop().defining_op
            if op in later and op not in wanted:
                wanted.add(op)
                worklist += op.operands
        for op in [op for op in ops if op in wanted]:
            assert is_effect_free(op)
            self.rewriter.move_before(op, anchor, "step-ring-early")

    def _first(self, x: _Operand, anchor: Operation, slot: Value) -> Value:
        """Read slice 0 of `x` from buffer `slot` of its ring, before `anchor`."""
        build = OpBuilder(self.rewriter, anchor, "read-ahead", x.load.location)
        buffer = ttg.MemDescView(x.views[0]).buffer
        for view in x.views:
            operands = (buffer, slot) if view.name == _INDEX else (buffer,)
            buffer = build.op(view.name, operands, None, **view.attributes)
        return self._read(x, buffer, 0, build)

    def _slice(self, x: _Operand, start: int) -> Value:
        """The slice of operand `x` that begins at `start` along K, read in or before the loop."""
        buffer = ttg.LocalLoad(x.load).buffer
        if x.load.block is self.body:
            build = OpBuilder(self.rewriter, self.dot, "read-slice", x.load.location)
            return self._read(x, buffer, start, build)
        key = (buffer, x.load.block, x.load.result.type, x.load.location)
        slices = self.lasting.get(key)
        if slices is None:
            build = OpBuilder(self.rewriter, x.load, "read-slice")
            slices = [self._read(x, buffer, place, build) for place in self.starts]
            self.lasting[key] = slices
        made = slices[start // self.extent]
        assert made.defining_op is not None
        self.reads[x].append(made.defining_op)
        return made

    def _read(self, x: _Operand, buffer: Value, start: int, build: OpBuilder) -> Value:
        """Read the slice from `start` on of an operand that `buffer` holds."""
        memory = buffer.type
        assert isinstance(memory, MemDescType)
        k_dim = 1 - x.index
        shape = tuple(self.extent if d == k_dim else memory.shape[d] for d in (0, 1))
        offsets = tuple(start if d == k_dim else 0 for d in (0, 1))
        part = MemDescType(shape, memory.element, memory.layout, memory.mutable)
        view = build.op(ttg.MemDescSubslice, (buffer,), part, offsets=offsets)
        read = build.op(_LOAD, (view,), _operand_type(self.dot, x.index, shape))
        assert read.defining_op is not None
        self.reads[x].append(read.defining_op)
        return read


@dataclass(frozen=True, slots=True)
class RereadOperands:
    """Moves the reading of operands from before a loop into it, where registers are short.

    Attributes:
        registers: how many of a thread's 255 registers the operand, the sums and the carried values
            may take; the others are for addresses, masks and a slice of the other operand.
    """

    registers: int = 224
    name: ClassVar[str] = "reread-operands"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at the dots of every loop."""
        for loop in [op for op in module.walk() if scf.For.matches(op)]:
            for dot in [op for op in loop.regions[0].block.operations if tt.Dot.matches(op)]:
                for operand in dict.fromkeys(tt.Dot(dot).factors):
                    if (
                        _lasts(operand, loop)
                        and _words(loop, dot, operand) > self.registers
                        and rewriter.begins(dot, "reread-operand")
                    ):
                        _reread(operand, dot, rewriter)
        rewriter.commit()


def _lasts(operand: Value, loop: Operation) -> bool:
    """Whether `operand` was read before `loop`, from a buffer that is not written again."""
    load = operand.defining_op
    if load is None or not ttg.LocalLoad.matches(load) or load.block is loop.regions[0].block:
        return False
    memory = ttg.LocalLoad(load).buffer.type
    assert isinstance(memory, MemDescType)
    return not memory.mutable


def _words(loop: Operation, dot: Operation, operand: Value) -> int:
    """The registers that `operand`, the dot's sums and the carried values take together."""
    carried = [x for x in loop.regions[0].block.arguments[1:] if x is not tt.Dot(dot).accumulator]
    return sum(register_words(value.type) for value in (*carried, dot.result, operand))


def _reread(operand: Value, dot: Operation, rewriter: Rewriter) -> None:
    load = operand.defining_op
    assert load is not None
    build = OpBuilder(rewriter, dot, "reread-operand", load.location)
    again = build.op(load.name, load.operands, operand.type)
    dot.replace_operand(operand, again)
    rewriter.record_change(dot, "reread-operand")
    if not operand.uses:
        assert again.defining_op is not None
        rewriter.replace_with_ops(load, "reread-operand", [again.defining_op])
