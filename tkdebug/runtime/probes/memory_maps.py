"""The map of memory that a launch of a kernel which loads pointers takes (`live_memory`).

It is made when the launch is, of what torch's allocator has given out, the tensors that the launch
was passed, and those whose addresses the script has read.

Invariant: what is said to be gone certainly is. Memory of other libraries is unknown, and so is all
of the device's where torch's allocator has no list of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.compiler.probes.live_memory import (
    AddressRange,
    MemoryMap,
    merged,
    overlapping,
    without,
)
from tkdebug.interpreter.memory.address_registry import ADDRESSES, FreedTensor
from tkdebug.interpreter.probes.checked_launch import PassedTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tkdebug.runtime.device.platform import ProbeMemory
    from tkdebug.runtime.probes.passed_arguments import PassedArguments

# Of a map: 512 KiB.
MOST_INTERVALS = 1 << 15


@dataclass(frozen=True, slots=True)
class LaunchMemory:
    """What was known of memory when a launch was made; it keeps none alive.

    Attributes:
        packed: the map, as the kernel takes it.
        tensors: those whose addresses were read.
        freed: such that are freed, the latest first.
        live: allocations, ascending.
    """

    packed: bytes
    tensors: tuple[PassedTensor, ...]
    freed: tuple[FreedTensor, ...]
    live: Sequence[AddressRange]

    def freed_at(self, address: int) -> str | None:
        """Which tensor had an address, that it is freed, and whether another one has it."""
        for one in self.freed:
            if one.span.first <= address < one.span.end:
                is_reused = any(overlapping(AddressRange(address, address + 1), self.live))
                return f"{one.text}, and whose memory another has" if is_reused else one.text
        return None


def launch_memory(memory: ProbeMemory, arguments: PassedArguments) -> LaunchMemory:
    """What is known just now.

    Args:
        memory: of the device.
        arguments: what the launch is passed.
    """
    known, given = ADDRESSES.known(), memory.allocations()
    tensors = tuple(PassedTensor.of(tensor) for tensor in known.tensors)
    seen = {tensor.storage for tensor in (*arguments.tensors.values(), *tensors)}
    torchs = sorted(given.live)
    # Storages that are none of torch's allocator; those of its own are in its list.
    others = [span for span in seen if not any(overlapping(span, torchs))]
    live = sorted({*torchs, *others})
    stale: list[AddressRange] = []
    if not ADDRESSES.are_stored_by_kernels:
        alive, managed = merged(seen), merged((*given.live, *given.gone))
        for freed in known.freed:
            for part in overlapping(freed.span, managed):
                stale += without(part, alive)
    packed = MemoryMap(live, given.gone, stale).packed(MOST_INTERVALS)
    return LaunchMemory(packed, tensors, tuple(known.freed), live)
