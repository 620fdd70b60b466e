from __future__ import annotations

import pytest

from tkdebug.compiler.targets.nvptx.architectures import TARGETS, occupancy

SM80, SM90 = TARGETS["sm_80"], TARGETS["sm_90a"]


# Figures of NVIDIA's occupancy calculator.
@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limited_by"),
    [
        (256, 32, 0, 8, ("registers", "warps")),
        (256, 64, 0, 4, ("registers",)),
        (256, 33, 0, 6, ("registers",)),
        (128, 168, 0, 3, ("registers",)),
        (128, 255, 0, 2, ("registers",)),
        (32, 16, 0, 32, ("blocks",)),
        (1024, 64, 0, 1, ("registers",)),
        (128, 32, 100 * 1024, 1, ("shared memory",)),
        (128, 32, 48 * 1024, 3, ("shared memory",)),
        (128, 32, 163 * 1024, 1, ("shared memory",)),
    ],
)
def test_blocks_and_what_limits_them(
    threads: int, registers: int, shared: int, blocks: int, limited_by: tuple[str, ...]
) -> None:
    found = occupancy(SM80, threads, registers, shared)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    assert found.warps == blocks * threads // 32
    assert found.percent == pytest.approx(100 * found.warps / 64)


# Limits that differ: half the warps and no reserve on Turing, 24 blocks on Thor and GB20x.
@pytest.mark.parametrize(
    ("name", "threads", "registers", "shared", "blocks", "limited_by"),
    [
        ("sm_75", 128, 32, 0, 8, ("warps",)),
        ("sm_75", 128, 32, 64 * 1024, 1, ("shared memory",)),
        ("sm_75", 128, 32, 32 * 1024, 2, ("shared memory",)),
        ("sm_75", 32, 16, 100, 16, ("blocks",)),
        ("sm_87", 128, 32, 0, 12, ("warps",)),
        ("sm_87", 32, 16, 163 * 1024, 1, ("shared memory",)),
        ("sm_100a", 256, 32, 0, 8, ("registers", "warps")),
        ("sm_103a", 128, 32, 75 * 1024, 3, ("shared memory",)),
        ("sm_110a", 32, 16, 0, 24, ("blocks",)),
        ("sm_120a", 256, 32, 0, 6, ("warps",)),
        ("sm_121a", 128, 32, 99 * 1024, 1, ("shared memory",)),
    ],
)
def test_limits_of_other_architectures(
    name: str,
    threads: int,
    registers: int,
    shared: int,
    blocks: int,
    limited_by: tuple[str, ...],
) -> None:
    found = occupancy(TARGETS[name], threads, registers, shared)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)


def test_more_shared_memory_than_a_block_may_have_does_not_fit() -> None:
    found = occupancy(SM90, 128, 32, SM90.shared_bytes_per_block + 1)
    assert (found.blocks, found.warps, found.limited_by) == (0, 0, ("shared memory",))
    assert occupancy(SM90, 128, 32, SM90.shared_bytes_per_block).blocks == 1


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_small_kernels_fill_every_architecture(name: str) -> None:
    target = TARGETS[name]
    found = occupancy(target, 128, 16, 0)
    assert found.warps == min(target.warps_per_sm, target.blocks_per_sm * 4)
