"""The time of a warp through a cubin, as far as the order of its instructions decides it.

A rough model, to choose between two cubins of one kernel: instructions issue in order, each loop
runs some iterations, memory answers after a fixed time, and a multiprocessor either waits for its
warps or issues for them. Nothing is known of caches, bandwidth or how long loops really are.

The opcodes are those that nvdisasm names LDG, LDS and SHFL for sm_80 to sm_90a; loads are found in
code for sm_75 to sm_121a, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tkdebug.linemap.nvidia.elf_sections import ET_EXEC, sections
from tkdebug.linemap.nvidia.sass import BARRIERS, BRANCH, NOP, WORDS, Encoded

_NAMES_AT = 62
_GLOBAL_LOADS = frozenset((0x381, 0x981))
# Cycles until the result is there. Of global memory: between a hit in L2 and a miss.
_GLOBAL_CYCLES = 700
_CYCLES = {0x388: 30, 0x984: 30, 0x389: 25, 0x989: 25, 0xF89: 25, 0xB82: 50}
_OTHER_CYCLES, _READ_CYCLES = 20, 15
_ITERATIONS, _MOST_ITERATIONS = 8, 512
_SCHEDULERS = 4


@dataclass(frozen=True)
class WarpTime:
    """The model's answers for a kernel's code.

    Args:
        code: the bytes of its instructions.
    """

    code: bytes

    @staticmethod
    def of(cubin: bytes) -> WarpTime:
        """The warp time of a cubin's only kernel.

        Raises:
            SectionsError: the data is no cubin.
        """
        found = list(sections(cubin, ET_EXEC, "cubin"))
        (names,) = struct.unpack_from("<H", cubin, _NAMES_AT)
        for section in found:
            at = found[names].offset + section.name
            if cubin.startswith(b".text.", at):
                return WarpTime(cubin[section.offset : section.offset + section.size])
        return WarpTime(b"")

    @cached_property
    def _instructions(self) -> tuple[Encoded, ...]:
        whole = len(self.code) // WORDS.size * WORDS.size
        return tuple(Encoded(*words) for words in WORDS.iter_unpack(self.code[:whole]))

    @cached_property
    def _iterations(self) -> list[int]:
        """The estimated number of runs of each instruction."""
        times = [1] * len(self._instructions)
        for index, instruction in enumerate(self._instructions):
            if instruction.opcode != BRANCH:
                continue
            target = index + 1 + instruction.branch_bytes // WORDS.size
            if 0 <= target < index:
                for inside in range(target, index + 1):
                    times[inside] = min(times[inside] * _ITERATIONS, _MOST_ITERATIONS)
        return times

    @property
    def issued(self) -> int:
        """Instructions of a warp."""
        return sum(self._iterations)

    @cached_property
    def cycles(self) -> float:
        """Cycles from a warp's first instruction to its last, were it alone."""
        return sum(
            times * spent for times, (_, spent) in zip(self._iterations, self._steps(), strict=True)
        )

    @property
    def waits_for_memory(self) -> int:
        """Instructions before which the better part of an access to memory is waited for."""
        return sum(waited > _GLOBAL_CYCLES // 2 for waited, _ in self._steps())

    def cycles_per_warp(self, warps: int) -> float:
        """The cycles per warp of a multiprocessor that runs so many warps at a time."""
        return max(self.cycles, warps / _SCHEDULERS * self.issued) / warps

    def _steps(self) -> Iterator[tuple[int, int]]:
        """Yield, for each instruction, the cycles it waited and those until the next issued."""
        now, ready = 0, [0] * (BARRIERS + 2)
        for instruction in self._instructions:
            control = instruction.control
            start = max([now, *(ready[barrier] for barrier in control.waits_for)])
            opcode = instruction.opcode
            after = _CYCLES.get(opcode, _OTHER_CYCLES)
            if opcode in _GLOBAL_LOADS:
                after = _GLOBAL_CYCLES
            for barrier, cycles in (
                (control.write_barrier, after),
                (control.read_barrier, _READ_CYCLES),
            ):
                ready[barrier] = max(ready[barrier], start + cycles)
            is_padding = opcode == NOP and not control.stall_cycles
            end = start if is_padding else start + max(1, control.stall_cycles)
            yield start - now, end - now
            now = end
