"""The fences before warpgroup dots, which make what threads wrote to buffers visible to them.

In a pipelined loop one fence after the wait serves them all, or none where bulk copies bring what
they read. Found before the loop is rewritten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tkdebug.compiler.dialects import ttg, ttng
from tkdebug.compiler.ir.core import Block, Operation, Value
from tkdebug.compiler.ir.types import MemDescType
from tkdebug.compiler.passes.gpu.mbarrier_ring import FENCE, is_landed


def fences_of_loads(body: Block, loaded: Collection[Value]) -> list[Operation]:
    """The fences of a loop's body before dots that read nothing which the body itself writes.

    Args:
        body: of the loop.
        loaded: what will lie in rings, so that no thread stores it.
    """
    return [
        fence
        for fence, dot in _fenced_dots(body)
        if all(_lasts(value, body, loaded) for value in _buffers(dot))
    ]


def reads_landed(body: Block, fences: Sequence[Operation]) -> bool:
    """Whether bulk copies bring all that the dots behind `fences` read from buffers."""
    dots = [dot for fence, dot in _fenced_dots(body) if fence in fences]
    return bool(fences) and all(is_landed(buffer) for dot in dots for buffer in _buffers(dot))


def _fenced_dots(body: Block) -> Iterator[tuple[Operation, Operation]]:
    """Each fence with the dot behind it; buffers of later dots may be filled in between."""
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
    """Whether a buffer is from outside the loop, or will be one of a ring's."""
    op = buffer.defining_op
    while op is not None and op.block is body and op.operands:
        (source, *_) = op.operands
        if ttg.LocalAlloc.matches(op):
            return source in loaded
        op = source.defining_op
    return op is None or op.block is not body
