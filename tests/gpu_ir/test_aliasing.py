"""`Region.overlaps`: which parts of shared memory may have a byte in common."""

from __future__ import annotations

import pytest
from buffer_shorthand import BUFFER
from gpu_ir_support import kernel

from tkdebug.compiler.analysis.aliasing import ALLOC, Region
from tkdebug.compiler.ir import Operation


def buffers(*offsets: int | None) -> list[Operation]:
    """Allocations at these offsets, None for not yet placed."""
    lines = []
    for number, offset in enumerate(offsets):
        placed = "" if offset is None else f"{{offset = {offset}}} "
        lines.append(f"%b{number} = ttg.local_alloc {placed}: () -> {BUFFER}")
    return [op for op in kernel("", "\n".join(lines)).walk() if op.name == ALLOC]


@pytest.mark.parametrize(
    ("offsets", "starts", "expected"),
    [
        ((0, 128), (0, 0), False),
        ((0, 64), (0, 0), True),
        ((128, 0), (0, 0), False),
        ((64, 0), (0, 0), True),
        ((512, 256), (0, 128), False),
        ((512, 256), (0, 192), True),
        ((256, 512), (128, 0), False),
        ((256, 512), (129, 0), True),
        ((None, None), (0, 0), False),
        ((0, None), (0, 0), False),
        ((None, 0), (0, 0), False),
    ],
)
def test_buffers_overlap_as_far_as_they_are_placed(
    offsets: tuple[int | None, ...], starts: tuple[int, int], expected: bool
) -> None:
    a, b = buffers(*offsets)
    left, right = Region(a, starts[0], 128), Region(b, starts[1], 128)
    assert left.overlaps(right) is expected
    assert right.overlaps(left) is expected


@pytest.mark.parametrize(("start", "expected"), [(0, True), (127, True), (128, False)])
def test_parts_of_one_buffer(start: int, expected: bool) -> None:
    (buffer,) = buffers(None)
    left, right = Region(buffer, 0, 128), Region(buffer, start, 128)
    assert left.overlaps(right) is expected
    assert right.overlaps(left) is expected
