"""The inline PTX of lowering, on numpy: rules of `llvm_simulator`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from simulated_tma import TMA_RULES

if TYPE_CHECKING:
    from llvm_simulator import Simulator, Value


def _as_tf32(words: np.ndarray) -> np.ndarray:
    return (words & np.uint32(0xFFFFE000)).view(np.float32)[..., None]


def _as_halves(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words)[..., None].view(np.float16)


def _as_bfloats(words: np.ndarray) -> np.ndarray:
    halves = np.ascontiguousarray(words)[..., None].view(np.uint16)
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _as_bytes(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words)[..., None].view(np.int8)


MMA_ELEMENTS = {"f16": _as_halves, "bf16": _as_bfloats, "tf32": _as_tf32, "s8": _as_bytes}


def _mma(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> Value:
    """PTX ISA, "Matrix Fragments for mma.m16n8k16", "...m16n8k8" and "...m16n8k32"."""
    simulator.whole_warps()
    k, sums, kind = int(match.group(1)), match.group(2), match.group(3)
    read = MMA_ELEMENTS[kind]
    exact = np.int64 if kind == "s8" else np.float64
    words = [v.view(np.uint32).reshape(-1, 32) for v in values]
    warps = len(words[0])
    a, b = np.zeros((warps, 16, k), exact), np.zeros((warps, k, 8), exact)
    c = np.zeros((warps, 16, 8), exact)
    lane = np.arange(32)
    group, thread = lane // 4, lane % 4
    width = read(words[0]).shape[-1]
    steps = k // (4 * width)
    for j in range(3 * steps):
        elements = read(words[j])
        for e in range(width):
            along = thread * width + e
            if j < 2 * steps:
                a[:, group + 8 * (j % 2), along + 4 * width * (j // 2)] = elements[..., e]
            else:
                b[:, along + 4 * width * (j - 2 * steps), group] = elements[..., e]
    held = words[3 * steps :]
    if sums == "f16":
        pairs = [_as_halves(w) for w in held]
        parts = [pairs[j // 2][..., j % 2] for j in range(4)]
    else:
        parts = [w.view(np.float32 if sums == "f32" else np.int32) for w in held]
    places = [(group + 8 * (j // 2), 2 * thread + j % 2) for j in range(4)]
    for part, (row, column) in zip(parts, places, strict=True):
        c[:, row, column] = part
    d = c + a @ b
    found = [d[:, row, column].reshape(-1) for row, column in places]
    if sums == "f16":
        halves = [f.astype(np.float16).view(np.uint16).astype(np.uint32) for f in found]
        return [halves[0] | halves[1] << 16, halves[2] | halves[3] << 16]
    if sums == "f32":
        return [f.astype(np.float32) for f in found]
    return [f.astype(np.int32).view(np.uint32) for f in found]


def _count(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    """Every active thread whose predicate holds adds 1 to a word of shared memory."""
    address, predicate = values
    at = address[simulator.mask & predicate].astype(np.int64)
    assert (simulator.written_by[at[:, None] + np.arange(4)] == -1).all(), "no barrier before"
    np.add.at(simulator.shared.view(np.uint32), at // 4, 1)


def _copy_async(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    """PTX ISA, "cp.async": what is beyond the source size is zero; it lands at the wait."""
    guard, size, counted = match.group(1), int(match.group(3)), match.group(4)
    target, source, *rest = values
    active = simulator.mask & (rest[-1] if guard else True)
    count = rest[0].astype(np.int64) if counted else np.full(simulator.threads, size)
    before = simulator.mask
    simulator.mask = active & (count > 0)
    raw = simulator.read("1", source, size, size)
    raw = np.where(np.arange(size) < count[:, None], raw, 0).astype(np.uint8)
    simulator.mask = before
    simulator.copies.append((active, target.astype(np.uint64), raw))


def _commit(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    simulator.groups.append(simulator.copies)
    simulator.copies = []


def _wait(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> None:
    while len(simulator.groups) > int(match.group(1)):
        for active, target, raw in simulator.groups.pop(0):
            before, simulator.mask = simulator.mask, active
            simulator.write("3", target, raw, raw.shape[1])
            simulator.mask = before


def _permute(simulator: Simulator, match: re.Match[str], values: list[np.ndarray]) -> np.ndarray:
    """PTX ISA, "prmt": each nibble of the selector names a byte of both words."""
    both = values[0].astype(np.uint64) | values[1].astype(np.uint64) << np.uint64(32)
    selector = int(match.group(1), 16)
    made = np.zeros(simulator.threads, np.uint64)
    for place in range(4):
        byte = both >> np.uint64(8 * (selector >> 4 * place & 7)) & np.uint64(0xFF)
        made |= byte << np.uint64(8 * place)
    return made.astype(np.uint32)


PERMUTE = re.compile(r"^prmt\.b32 \$0, \$1, \$2, (0x[0-9a-f]{4});$")
COPY = re.compile(r"^(@\$\d )?cp\.async\.(c[ag])\.shared\.global \[\$0\], \[\$1\], (\d+)(, \$2)?;$")
COMMIT = re.compile(r"^cp\.async\.commit_group;$")
WAIT = re.compile(r"^cp\.async\.wait_group (\d+);$")
COUNT = re.compile(r"^@\$1 red\.shared\.add\.u32 \[\$0\], 1;$")
MMA = re.compile(
    r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col(?:\.satfinite)?\.(\w+)\.(\w+)\.\w+\.\w+ "
)
ASM_RULES: list[tuple[re.Pattern[str], Callable[..., object]]] = [
    (MMA, _mma),
    (PERMUTE, _permute),
    (COUNT, _count),
    (COPY, _copy_async),
    (COMMIT, _commit),
    (WAIT, _wait),
    *TMA_RULES,
]
