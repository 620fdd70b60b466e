"""Bulk copies by tensor maps and mbarriers, on numpy: rules of `llvm_simulator`.

A copy lands, swizzled, when somebody waits at its mbarrier: until then its target keeps what it
held. Source: PTX ISA, "cp.async.bulk.tensor", "Swizzling Modes", "mbarrier".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from llvm_simulator import Simulator


@dataclass
class SimulatedMap:
    """A tensor map.

    Attributes:
        tensor: what it describes.
        box: what one copy moves, the contiguous axis last.
        swizzle_bytes: 0, 32, 64 or 128.
    """

    tensor: np.ndarray
    box: tuple[int, ...]
    swizzle_bytes: int

    def read(self, start: tuple[int, ...]) -> np.ndarray:
        """The box that begins at `start`; zeros outside the tensor."""
        found = np.zeros(self.box, self.tensor.dtype)
        for at in itertools.product(*map(range, self.box)):
            place = tuple(s + i for s, i in zip(start, at, strict=True))
            if all(0 <= p < n for p, n in zip(place, self.tensor.shape, strict=True)):
                found[at] = self.tensor[place]
        return found

    def write(self, start: tuple[int, ...], values: np.ndarray) -> None:
        for at in itertools.product(*map(range, self.box)):
            place = tuple(s + i for s, i in zip(start, at, strict=True))
            if all(0 <= p < n for p, n in zip(place, self.tensor.shape, strict=True)):
                self.tensor[place] = values[at]

    def addresses(self, base: int) -> np.ndarray:
        """Return the addresses of a box's bytes, in order: 16-byte chunks, swizzled."""
        size = int(np.prod(self.box)) * self.tensor.itemsize
        plain = base + np.arange(size)
        chunks = max(1, self.swizzle_bytes // 16)
        return plain ^ ((plain >> 7) % 8 % chunks) << 4


@dataclass
class Barrier:
    """An mbarrier."""

    count: int
    phase: int = 0
    pending: int = 0
    left_bytes: int = 0

    def settle(self) -> None:
        if self.pending == 0 and self.left_bytes == 0:
            self.phase, self.pending = self.phase + 1, self.count


def _one(simulator: Simulator, predicate: np.ndarray) -> int | None:
    """The thread that acts; None where none does."""
    (threads,) = np.nonzero(simulator.mask & predicate)
    assert len(threads) <= 1, "several threads do what one should"
    return int(threads[0]) if len(threads) else None


def _init(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    thread = _one(simulator, values[1])
    if thread is not None:
        address, count = int(values[0][thread]), int(match.group(1))
        assert address % 8 == 0
        simulator.barriers[address] = Barrier(count, pending=count)
        simulator.shared[address : address + 8] = 0xBB
        simulator.written_by[address : address + 8] = thread // 32


def _inval(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    thread = _one(simulator, values[1])
    if thread is not None:
        del simulator.barriers[int(values[0][thread])]


def _barrier(simulator: Simulator, address: int) -> Barrier:
    assert (simulator.shared[address : address + 8] == 0xBB).all(), "no mbarrier, or overwritten"
    return simulator.barriers[address]


def _expect(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    thread = _one(simulator, values[1])
    if thread is not None:
        barrier = _barrier(simulator, int(values[0][thread]))
        barrier.left_bytes += int(match.group(1))
        barrier.pending -= 1
        barrier.settle()


def _load(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    target, which, arrival, *start, predicate = values
    thread = _one(simulator, predicate)
    if thread is None:
        return
    map_ = simulator.tensor_maps[int(which[thread])]
    at = tuple(int(s[thread].astype(np.int32)) for s in start[::-1])
    address = int(target[thread])
    assert address % 128 == 0
    places = map_.addresses(address)
    assert (simulator.written_by[places] < 0).all(), "no barrier before a bulk copy"
    data = np.frombuffer(map_.read(at).tobytes(), np.uint8)
    simulator.bulk_copies.append((int(arrival[thread]), places, data))


def _wait(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    addresses, parity = (value[simulator.mask] for value in values)
    assert (addresses == addresses[0]).all()
    assert (parity == parity[0]).all()
    address = int(addresses[0])
    others = simulator.written_by[address]
    assert others < 0, "an mbarrier is waited at without a barrier after it was made"
    barrier, left = _barrier(simulator, address), []
    for arrival, places, data in simulator.bulk_copies:
        if arrival == address:
            simulator.shared[places] = data
            barrier.left_bytes -= len(data)
        else:
            left.append((arrival, places, data))
    simulator.bulk_copies = left
    barrier.settle()
    assert barrier.phase % 2 != int(parity[0]), "a wait that never ends"


def _store(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    source, which, *start, predicate = values
    thread = _one(simulator, predicate)
    if thread is None:
        return
    map_ = simulator.tensor_maps[int(which[thread])]
    places = map_.addresses(int(source[thread]))
    assert (simulator.written_by[places] < 0).all(), "no barrier before a bulk copy"
    block = simulator.shared[places].view(map_.tensor.dtype).reshape(map_.box)
    map_.write(tuple(int(s[thread].astype(np.int32)) for s in start[::-1]), block)
    simulator.is_committed = False


def _commit(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    simulator.is_committed = True


def _wait_for_groups(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    assert simulator.is_committed, "no wait reaches stores that are in no group"


def _nothing(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    """Orders what the simulator does in order anyway."""


TMA_RULES: list[tuple[re.Pattern[str], Callable[..., object]]] = [
    (re.compile(r"mbarrier\.init\.shared::cta\.b64 \[\$0\], (\d+);$"), _init),
    (re.compile(r"mbarrier\.inval\.shared::cta\.b64 \[\$0\];$"), _inval),
    (re.compile(r"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, \[\$0\], (\d+);$"), _expect),
    (re.compile(r"mbarrier\.try_wait\.parity\.shared::cta\.b64 ended, \[\$0\], \$1;"), _wait),
    (re.compile(r"cp\.async\.bulk\.tensor\.\dd\.shared::cluster\.global"), _load),
    (re.compile(r"cp\.async\.bulk\.tensor\.\dd\.global\.shared::cta"), _store),
    (re.compile(r"^cp\.async\.bulk\.commit_group;$"), _commit),
    (re.compile(r"^cp\.async\.bulk\.wait_group(\.read)? \d+;$"), _wait_for_groups),
    (re.compile(r"^fence\.proxy\.async"), _nothing),
]
