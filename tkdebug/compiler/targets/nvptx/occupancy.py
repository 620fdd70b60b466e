"""How many blocks of a kernel fit on a multiprocessor, and what limits them.

Computed from the target's limits, so that no device is needed.
Source: CUDA Occupancy Calculator (cuda_occupancy.h): registers are given to warps by the unit and
each of the four partitions of a multiprocessor has a quarter of them; shared memory is given to
blocks by the unit, with what the system reserves.
"""

from __future__ import annotations

from tkdebug.compiler.targets.target import Target
from tkdebug.linemap.resources import Occupancy

_PARTITIONS = 4


def occupancy(target: Target, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """The occupancy of a kernel.

    Args:
        target: the architecture.
        threads: of a block.
        registers: of a thread.
        shared_bytes: of a block, static and dynamic.
    """
    warps = -(-threads // target.threads_per_warp)
    shared = _up(shared_bytes + target.shared_bytes_reserved, target.shared_unit_bytes)
    limits = {
        "registers": _by_registers(target, warps, registers),
        # Before sm_80 a block without any takes none, and other limits are lower.
        "shared memory": target.shared_bytes_per_sm // (shared or target.shared_unit_bytes),
        "warps": target.warps_per_sm // warps,
        "blocks": target.blocks_per_sm,
    }
    if shared_bytes > target.shared_bytes_per_block:
        limits["shared memory"] = 0
    blocks = min(limits.values())
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        max_warps=target.warps_per_sm,
        limits=limits,
        limited_by=tuple(name for name, most in limits.items() if most == blocks),
    )


def _by_registers(target: Target, warps: int, registers: int) -> int:
    if registers > target.registers_per_thread:
        return 0
    per_warp = _up(max(registers, 1) * target.threads_per_warp, target.register_unit)
    per_partition = target.registers_per_sm // _PARTITIONS // per_warp
    return per_partition * _PARTITIONS // warps


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
