"""The map of memory: how it is made, and how kernels search it."""

from __future__ import annotations

import random
import re
import struct

import pytest
import torch

from tkdebug.compiler.sites.live_memory import (
    ENTRY_BYTES,
    GONE,
    HIGHEST,
    LIVE,
    LOWEST,
    UNKNOWN,
    AddressRange,
    MemoryMap,
    merged,
    overlapping,
    without,
)
from tkdebug.compiler.targets.nvptx.lowering.checks.kernel_checks import SEARCH
from tkdebug.interpreter.memory.address_registry import AddressRegistry
from tkdebug.runtime.cuda.check_memory import allocations_of

_MAP = 1 << 40


def searched(packed: bytes, address: int) -> tuple[int, int, int]:
    """First address, end and state that the kernel's instructions find for an address."""
    lines = [line for line in SEARCH.splitlines() if line not in "{}" and line[0] != "."]
    labels = {line[:-1]: place for place, line in enumerate(lines) if line.endswith(":")}
    registers: dict[str, int] = {"$3": address, "$4": _MAP}

    def value(text: str) -> int:
        number = registers.get(text)
        return (int(text) if number is None else number) % (1 << 64)

    at = steps = 0
    while at < len(lines):
        line, at, steps = lines[at], at + 1, steps + 1
        assert steps < 2000
        if line.endswith(":"):
            continue
        guard, line = re.fullmatch(r"(?:@(\w+) )?(.*);", line).groups()
        if guard is not None and not registers[guard]:
            continue
        op, *operands = re.split(r", | ", line)
        if op == "bra":
            at = labels[operands[0]]
        elif op == "ld.global.u64":
            base, _, offset = operands[1].strip("[]").partition("+")
            (registers[operands[0]],) = struct.unpack_from(
                "=Q", packed, value(base) + int(offset or 0) - _MAP
            )
        else:
            given = list(map(value, operands[1:]))
            registers[operands[0]] = {
                "mov.u64": lambda a: a,
                "add.u64": lambda a, b: a + b,
                "sub.u64": lambda a, b: a - b,
                "shr.u64": lambda a, b: a >> b,
                "mad.lo.u64": lambda a, b, c: a * b + c,
                "setp.le.u64": lambda a, b: a <= b,
                "setp.lt.u64": lambda a, b: a < b,
                "setp.gt.u64": lambda a, b: a > b,
                "selp.u64": lambda a, b, c: a if c else b,
            }[op](*given) % (1 << 64)
    return registers["$0"], registers["$1"], registers["$2"]


@pytest.mark.parametrize("seed", range(8))
def test_kernels_find_the_interval_of_each_address(seed: int) -> None:
    draw = random.Random(seed)
    cuts = sorted(draw.sample(range(LOWEST + 1, HIGHEST), 2 * draw.randint(1, 20)))
    live = [AddressRange(*cuts[at : at + 2]) for at in range(0, len(cuts), 2)]
    memory = MemoryMap(live)
    packed, intervals = memory.packed(1000), memory.intervals()
    for first, end in live:
        for address in (first, (first + end) // 2, end - 1):
            assert searched(packed, address) == (first, end, LIVE)
        assert searched(packed, end)[2] == UNKNOWN
    for address in (0, LOWEST - 1, HIGHEST, (1 << 64) - 1):
        assert searched(packed, address)[2] == GONE
    assert searched(packed, (1 << 64) - 1) == (HIGHEST, (1 << 64) - 1, GONE)
    assert len(packed) == ENTRY_BYTES * (1 + len(intervals))


def test_allocations_that_meet_stay_apart_and_stale_ones_are_gone() -> None:
    at = 1 << 30
    live = [AddressRange(at, at + 100), AddressRange(at + 100, at + 300)]
    gone = [AddressRange(at + 300, at + 512)]
    stale = [AddressRange(at + 200, at + 300)]
    assert MemoryMap(live, gone, stale).intervals() == [
        (0, GONE),
        (LOWEST, UNKNOWN),
        (at, LIVE),
        (at + 100, LIVE),
        (at + 200, GONE),
        (at + 512, UNKNOWN),
        (HIGHEST, GONE),
    ]


def test_map_that_is_too_large_knows_only_what_is_nowhere() -> None:
    live = [AddressRange(at << 20, (at << 20) + 1) for at in range(1, 100)]
    assert MemoryMap(live).packed(20) == MemoryMap(()).packed(20)


def test_parts_of_ranges() -> None:
    known = merged([AddressRange(30, 40), AddressRange(10, 20), AddressRange(15, 25)])
    assert known == [(10, 25), (30, 40)]
    assert list(overlapping(AddressRange(20, 32), known)) == [(20, 25), (30, 32)]
    assert list(without(AddressRange(5, 50), known)) == [(5, 10), (25, 30), (40, 50)]
    assert list(without(AddressRange(10, 25), known)) == []


def test_blocks_of_torchs_allocator() -> None:
    def block(size: int, state: str, requested: int = 0) -> dict[str, object]:
        return {"size": size, "state": state, "requested_size": requested}

    segments = [
        {
            "address": 4096,
            "total_size": 2048,
            "segment_pool_id": (0, 0),
            "blocks": [
                block(512, "active_allocated", 400),
                block(512, "active_awaiting_free", 8),
                block(1024, "inactive"),
            ],
        },
        {
            "address": 65536,
            "total_size": 512,
            "segment_pool_id": (0, 3),
            "blocks": [block(512, "inactive")],
        },
    ]
    found = allocations_of(segments)
    assert found.live == [(4096, 4496), (4608, 5120), (65536, 66048)]
    assert found.gone == [(4496, 4608), (5120, 6144)]


def test_address_of_a_nested_tensor_stands_for_all_its_values():
    registry = AddressRegistry()
    nested = torch.nested.nested_tensor([torch.ones(4), torch.zeros(3)])
    registry.note(nested, nested.data_ptr())
    (values,) = registry.known().tensors
    assert values.tolist() == [1, 1, 1, 1, 0, 0, 0]


def test_address_that_is_read_again_is_of_the_latest_view() -> None:
    registry = AddressRegistry()
    x, y = torch.zeros(4), torch.zeros(4)
    for view in (x, y, x, x.view(torch.int32)):
        registry.note(view, view.data_ptr())
    tensors = registry.known().tensors
    assert [(t.data_ptr(), t.dtype) for t in tensors] == [
        (y.data_ptr(), torch.float32),
        (x.data_ptr(), torch.int32),
    ]
    registry.note(y, y.data_ptr())
    assert registry.known().tensors[-1].data_ptr() == y.data_ptr()
    y.untyped_storage().resize_(64)
    registry.note(y, y.data_ptr())
    assert registry.known().tensors[-1].untyped_storage().nbytes() == 64
