"""How long a warp takes through a cubin, as far as the order of its instructions decides that.

A rough model, to choose between two cubins of one kernel: instructions issue in order, each loop
runs some iterations, memory answers after a fixed time, and a multiprocessor either waits for its
warps or issues for them. Nothing is known of caches, bandwidth or how long loops really are.

Source: Z. Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018,
section 2.1: the stall count and the barriers in an instruction's 128 bits. Later architectures have
the same. The opcodes are those that nvdisasm names LDG, LDS, SHFL, BRA and NOP for sm_80 to sm_90a;
loads are found in code for sm_75 to sm_121a, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tkdebug.linemap.nvidia.elf_sections import ET_EXEC, sections

_WORDS = struct.Struct("<QQ")
_NAMES_AT = 62
_OPCODE = 0xFFF
_GLOBAL_LOADS = frozenset((0x381, 0x981))
_BRANCH, _NOP = 0x947, 0x918
# Cycles until the result is there. Of global memory: between a hit in L2 and a miss.
_GLOBAL_CYCLES = 700
_CYCLES = {0x388: 30, 0x984: 30, 0x389: 25, 0x989: 25, 0xF89: 25, 0xB82: 50}
_OTHER_CYCLES, _READ_CYCLES = 20, 15
_BARRIERS = 6
_ITERATIONS, _MOST_ITERATIONS = 8, 512
_SCHEDULERS = 4


@dataclass(frozen=True, slots=True)
class _Instruction:
    low: int
    high: int

    @property
    def opcode(self) -> int:
        return self.low & _OPCODE

    @property
    def stall_cycles(self) -> int:
        return self.high >> 41 & 0xF

    @property
    def write_barrier(self) -> int:
        """Signalled when the result is there; 7 for none."""
        return self.high >> 46 & 7

    @property
    def read_barrier(self) -> int:
        """Signalled when the operands have been read; 7 for none."""
        return self.high >> 49 & 7

    @property
    def waits_for(self) -> tuple[int, ...]:
        mask = self.high >> 52 & 0x3F
        return tuple(bit for bit in range(_BARRIERS) if mask >> bit & 1)

    @property
    def branch_bytes(self) -> int:
        """How far a branch goes, from the instruction behind it."""
        units = (self.high & 0x3FFFF) << 30 | self.low >> 34
        if units >> 47:
            units -= 1 << 48
        return units << 10 | (self.low >> 16 & 0xFF) << 2


@dataclass(frozen=True)
class WarpTime:
    """The model's answers for a kernel's code.

    Args:
        code: the bytes of its instructions.
    """

    code: bytes

    @staticmethod
    def of(cubin: bytes) -> WarpTime:
        """That of the kernel in a cubin of one.

        Raises:
            SectionsError: it is no cubin.
        """
        found = list(sections(cubin, ET_EXEC, "cubin"))
        (names,) = struct.unpack_from("<H", cubin, _NAMES_AT)
        for section in found:
            at = found[names].offset + section.name
            if cubin.startswith(b".text.", at):
                return WarpTime(cubin[section.offset : section.offset + section.size])
        return WarpTime(b"")

    @cached_property
    def _instructions(self) -> tuple[_Instruction, ...]:
        whole = len(self.code) // _WORDS.size * _WORDS.size
        return tuple(_Instruction(*words) for words in _WORDS.iter_unpack(self.code[:whole]))

    @cached_property
    def _iterations(self) -> list[int]:
        """How often each instruction runs."""
        times = [1] * len(self._instructions)
        for index, instruction in enumerate(self._instructions):
            if instruction.opcode != _BRANCH:
                continue
            target = index + 1 + instruction.branch_bytes // _WORDS.size
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
        """From a warp's first instruction to its last, were it alone."""
        return sum(
            times * spent for times, (_, spent) in zip(self._iterations, self._steps(), strict=True)
        )

    @property
    def waits_for_memory(self) -> int:
        """Instructions before which the better part of an access to memory is waited for."""
        return sum(waited > _GLOBAL_CYCLES // 2 for waited, _ in self._steps())

    def cycles_per_warp(self, warps: int) -> float:
        """Of a multiprocessor that runs so many warps at a time."""
        return max(self.cycles, warps / _SCHEDULERS * self.issued) / warps

    def _steps(self) -> Iterator[tuple[int, int]]:
        """For each instruction how long it waited, and until the next one issued."""
        now, ready = 0, [0] * (_BARRIERS + 2)
        for instruction in self._instructions:
            start = max([now, *(ready[barrier] for barrier in instruction.waits_for)])
            opcode = instruction.opcode
            after = _CYCLES.get(opcode, _OTHER_CYCLES)
            if opcode in _GLOBAL_LOADS:
                after = _GLOBAL_CYCLES
            for barrier, cycles in (
                (instruction.write_barrier, after),
                (instruction.read_barrier, _READ_CYCLES),
            ):
                ready[barrier] = max(ready[barrier], start + cycles)
            is_padding = opcode == _NOP and not instruction.stall_cycles
            end = start if is_padding else start + max(1, instruction.stall_cycles)
            yield start - now, end - now
            now = end
