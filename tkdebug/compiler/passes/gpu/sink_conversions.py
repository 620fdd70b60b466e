"""`SinkConversions`: issues all loads of a stretch of code before the first is waited for.

A conversion that goes through shared memory waits for its operand, and for the other warps. The
passes before put it right after the load whose result it converts, so that the next load would
be issued no sooner than the first has arrived:

    a = load                    a = load
    A = convert a               b = load
    b = load               =>   A = convert a
    B = convert b               B = convert b
    dot(A, B)                   dot(A, B)

What does not depend on memory or on other threads the assembler orders well by itself. Nothing
passes an op with effects, a region or a dot, and no more than `held_bytes` of a thread's registers
wait to be converted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.compiler.dialects import tt, ttg
from tkdebug.compiler.dialects.interfaces import StatementRegions
from tkdebug.compiler.dialects.table import PURE
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import ScalarType, TensorType, element_of, encoding_of
from tkdebug.compiler.layouts import REGISTER
from tkdebug.compiler.rewriting.rewriter import Rewriter

_RULE = "sink-conversion"
_LOAD = tt.Load.name
_ALLOC = ttg.LocalAlloc.name
_CONVERSIONS = frozenset((_ALLOC, ttg.LocalLoad.name, ttg.ConvertLayout.name))
_POINTER_BITS = 64
_VIEWS = names_of(ttg.MemDescTrans, ttg.MemDescSubslice)


@dataclass(frozen=True, slots=True)
class SinkConversions:
    """Moves conversions after the loads that follow them.

    Attributes:
        held_bytes: the maximum bytes of a thread's registers that wait to be converted.
    """

    held_bytes: int = 256
    name: ClassVar[str] = "sink-conversions"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Look at every block."""
        for block in list(_blocks(module)):
            for stretch in _stretches(block):
                if rewriter.begins(stretch[0], _RULE):
                    self._delay(stretch, rewriter)
        rewriter.commit()

    def _delay(self, stretch: Sequence[Operation], rewriter: Rewriter) -> None:
        """Reorder the ops of `stretch`, except the last one."""
        waiting: dict[Operation, None] = {}
        held: set[Value] = set()
        count, last = 0, -1
        for index, op in enumerate(stretch[:-1]):
            if op.name in _CONVERSIONS or any(value.owner in waiting for value in op.operands):
                waiting[op] = None
                held.update(op.operands)
            elif op.name == _LOAD and waiting:
                held.add(op.result)
                if sum(map(_register_bytes, held)) > self.held_bytes:
                    break
                count, last = len(waiting), index
        if last < 0:
            return
        anchor = stretch[last + 1]
        # Buffers that are filled one after the other share a barrier.
        delayed = list(waiting)[:count]
        for op in sorted(delayed, key=lambda op: not _is_first(op, waiting)):
            rewriter.move_past(op, anchor, _RULE)
        rest = stretch[last + 1 :]
        if len(rest) > 1:
            self._delay(rest, rewriter)


def _blocks(module: Module) -> Iterator[Block]:
    for op in module.walk():
        if StatementRegions.matches(op):
            yield from (block for region in op.regions for block in region.blocks)


def _stretches(block: Block) -> Iterator[list[Operation]]:
    """Runs of ops that may be reordered, each with the op that ends it."""
    stretch: list[Operation] = []
    for op in block.operations:
        stretch.append(op)
        if not _may_move(op):
            if len(stretch) > 1:
                yield stretch
            stretch = []


def _may_move(op: Operation) -> bool:
    if op.regions or tt.Dot.matches(op):
        return False
    if op.name == _LOAD:
        return not tt.Load(op).volatile
    if op.name == _ALLOC:
        return bool(op.operands)
    return op.name in _CONVERSIONS or op.name in _VIEWS or op.name in PURE


def _is_first(op: Operation, waiting: dict[Operation, None]) -> bool:
    """Whether `op` fills a buffer with a value that no waiting op makes."""
    return op.name == _ALLOC and not any(value.owner in waiting for value in op.operands)


def _register_bytes(value: Value) -> int:
    type_, layout = value.type, encoding_of(value.type)
    if not isinstance(type_, TensorType) or layout is None:
        return 0
    element = element_of(type_)
    bits = element.bits if isinstance(element, ScalarType) else _POINTER_BITS
    return layout.in_size(REGISTER) * max(1, bits // 8)
