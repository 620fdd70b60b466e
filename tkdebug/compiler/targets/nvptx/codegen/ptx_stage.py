"""PTX to cubin, in the worker process: with ptxas if it is installed, else with nvJitLink.

For a kernel that ptxas keeps partly in memory, nvJitLink makes another cubin, and the one with
fewer spills is taken: pressed to the limit, ptxas sometimes gives up nearly all registers.

By itself ptxas gives up loads in flight, too, if one more block then fits a multiprocessor. Where
a kernel waits for memory several times it also assembles one for which blocks do not count, and
`WarpTime` decides which is faster: measured on an H200, a layer norm of which each thread loads 16
bytes at a time runs at 2570 GB/s, with 64 bytes at 3190.

Where a few registers less let one more block fit, it assembles a cubin for that, and takes it if
nothing spills: attention over blocks of 64 x 64 needs 139 registers by itself, and 128 where four
blocks have to fit.

A checked kernel that does not spill is assembled once: few of its launches follow, and they wait
for it. One whose launches are all checked is compiled again beside them, and then assembled for
one more block, too.

`WarpTime` is the time of a warp through a cubin, as far as the order of its instructions decides
it. A rough model, to choose between two cubins of one kernel: instructions issue in order, each
loop runs some iterations, memory answers after a fixed time, and a multiprocessor either waits for
its warps or issues for them. Nothing is known of caches, bandwidth or how long loops really are.

The opcodes are those that nvdisasm names LDG, LDS and SHFL for sm_80 to sm_90a; loads are found in
code for sm_75 to sm_121a, too.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from tkdebug.compiler.targets.nvptx.architectures import TARGETS, occupancy
from tkdebug.compiler.targets.nvptx.codegen import ptxas
from tkdebug.compiler.targets.nvptx.codegen.wire import StageError
from tkdebug.compiler.targets.target import Target
from tkdebug.linemap.nvidia.elf_sections import ET_EXEC, SectionsError, sections
from tkdebug.linemap.nvidia.sass import BARRIERS, BRANCH, NOP, WORDS, Encoded

_NAMES_AT = 62
_GLOBAL_LOADS = frozenset((0x381, 0x981))
# Cycles until the result is there. Of global memory: between a hit in L2 and a miss.
_GLOBAL_CYCLES = 700
_CYCLES = {0x388: 30, 0x984: 30, 0x389: 25, 0x989: 25, 0xF89: 25, 0xB82: 50}
_OTHER_CYCLES, _READ_CYCLES = 20, 15
_ITERATIONS, _MOST_ITERATIONS = 8, 512
_SCHEDULERS = 4
# PTX ISA, "Release Notes": the CUDA release that each version came with.
_PTX_VERSIONS = (
    ((13, 0), 90),
    ((12, 9), 88),
    ((12, 8), 87),
    ((12, 7), 86),
    ((12, 5), 85),
    ((12, 4), 84),
    ((12, 3), 83),
    ((12, 2), 82),
    ((12, 1), 81),
    ((12, 0), 80),
)
_VERSION = re.compile(rb"^\s*\.version (\d+)\.(\d+)", re.MULTILINE)
_SPILLS = re.compile(r"(\d+) bytes spill (?:stores|loads)")
_REGISTERS = re.compile(r"Used (\d+) registers")
# With few registers ptxas serialises wgmma (C7512).
_LOSSES = re.compile(r"Potential Performance Loss")
_THREADS = re.compile(rb"^(\.reqntid (\d+))$", re.MULTILINE)
_ARCHITECTURE = "-arch="
# The other cubin must be so much faster by the model, which knows little of memory. A launch may
# have fewer blocks than fit: code that is as fast with all of them may be slower with few.
_WORTH_IT = 0.93
_NO_DIFFERENCE, _WORTH_IT_ALONE = 1.05, 0.6
# The least share of its registers that a kernel is to keep for one more block.
_KEPT_REGISTERS = 7 / 8
# The same for one with checks, where one block fits and where more do, and the most bytes that it
# may store and load for it.
_KEPT_FOR_TWO, _KEPT_WITH_CHECKS, _SPILLED_AROUND_LOOPS = 7 / 10, 4 / 5, 128
# Kernels with dots are tried with one more block up to so many; each takes a run of ptxas.
_FEW_BLOCKS = 3
_DOTS = re.compile(rb"\b(?:wg)?mma\.")
# PTX of a kernel that holds few values at a time.
_SMALL_BYTES = 12 << 10


@dataclass(frozen=True)
class WarpTime:
    """Estimates of a warp's time through a kernel's code.

    Args:
        code: the bytes of its instructions.
    """

    code: bytes

    @staticmethod
    def of(cubin: bytes) -> WarpTime:
        """The warp time of a cubin's only kernel; that of empty code if it has none.

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
        """Estimated number of instructions that a warp issues."""
        return sum(self._iterations)

    @cached_property
    def cycles(self) -> float:
        """Cycles from a warp's first instruction to its last, were it alone."""
        return sum(
            times * spent for times, (_, spent) in zip(self._iterations, self._steps(), strict=True)
        )

    @property
    def waits_for_memory(self) -> int:
        """Number of instructions that wait for more than half of a memory access's latency."""
        return sum(waited > _GLOBAL_CYCLES // 2 for waited, _ in self._steps())

    def cycles_per_warp(self, warps: int) -> float:
        """The cycles per warp of a multiprocessor that runs so many warps at a time."""
        return max(self.cycles, warps / _SCHEDULERS * self.issued) / warps

    def _steps(self) -> Iterator[tuple[int, int]]:
        """Yield, for each instruction, the cycles it waited, and all until the next may issue."""
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


def version() -> tuple[int, int]:
    """Version of nvJitLink, (13, 0).

    Raises:
        StageError: nvJitLink is not installed.
    """
    nvjitlink = _nvjitlink()
    major, minor = nvjitlink.version()
    return major, minor


def newest_ptx(wanted: int, least: int, architecture: str) -> int:
    """Return the PTX version to write, 87 for 8.7: `wanted`, or the latest that nvJitLink takes.

    Raises:
        StageError: nvJitLink takes less than `least`, and does not know the architecture.
    """
    release = version()
    known = [ptx for first, ptx in _PTX_VERSIONS if release >= first]
    newest = known[0] if known else 80
    if newest < least:
        first = ".".join(map(str, _release_with(least)))
        raise StageError(
            "emit",
            f"{architecture} needs nvJitLink {first} or later, got {release[0]}.{release[1]}; "
            "pip install -U nvidia-nvjitlink",
        )
    return min(wanted, newest)


def _release_with(ptx_version: int) -> tuple[int, int]:
    """The first CUDA release that takes this PTX version."""
    return min(first for first, ptx in _PTX_VERSIONS if ptx >= ptx_version)


def assemble(
    ptx: bytes,
    name: str,
    options: Sequence[str],
    timeout_s: float,
    shared_bytes: int = 0,
    *,
    is_checked: bool = False,
    is_lasting: bool = False,
) -> tuple[bytes, str]:
    """The cubin and the assembler's log.

    Args:
        ptx: the text.
        name: its name in messages.
        options: as nvJitLink takes them.
        timeout_s: how long ptxas may take, all its runs together.
        shared_bytes: dynamic shared memory of a block.
        is_checked: whether the kernel has checks.
        is_lasting: for a kernel with checks: whether all launches use it, and none waits for it.

    Raises:
        StageError: the assembler refuses the PTX or an option; its log is in `log`.
    """
    program = _ptxas_for(ptx)
    if program is None:
        return link(ptx, name, options)
    deadline = time.monotonic() + timeout_s
    if is_checked and len(ptx) < _SMALL_BYTES:
        found = _with_every_warp(program, ptx, options, deadline, shared_bytes)
        if found is not None:
            return found
    cubin, log = ptxas.assemble(program, ptx, options, deadline - time.monotonic())
    if _spilled_bytes(log):
        return _with_fewer_spills(cubin, log, ptx, name, options)
    if is_checked and not is_lasting:
        return cubin, log
    if is_checked:
        return _with_one_more_block(program, ptx, cubin, log, options, deadline, shared_bytes)
    tighter = _for_one_more_block(ptx, log, options, shared_bytes, _KEPT_REGISTERS)
    if tighter is not None:
        other = _without_spills(program, tighter, options, deadline)
        if other is not None and not _LOSSES.search(other[1]):
            return other
    wider = _for_any_number_of_blocks(ptx)
    if wider is None or not _waits_again_and_again(cubin):
        return cubin, log
    other = _without_spills(program, wider, options, deadline)
    if other is None:
        return cubin, log
    took, took_alone = _cycles_per_warp(ptx, cubin, log, options, shared_bytes)
    takes, takes_alone = _cycles_per_warp(ptx, *other, options, shared_bytes)
    worth_it = takes < _WORTH_IT * took or (
        takes < _NO_DIFFERENCE * took and takes_alone < _WORTH_IT_ALONE * took_alone
    )
    return other if worth_it else (cubin, log)


def _with_fewer_spills(
    cubin: bytes, log: str, ptx: bytes, name: str, options: Sequence[str]
) -> tuple[bytes, str]:
    """Return ptxas's cubin and log, or nvJitLink's if that spills less."""
    try:
        other, other_log = link(ptx, name, options)
    except StageError:
        # The kernel is assembled: an attempt to improve it must not fail it.
        return cubin, log
    return (other, other_log) if _spilled_bytes(other_log) < _spilled_bytes(log) else (cubin, log)


def _without_spills(
    program: Path, ptx: bytes, options: Sequence[str], deadline: float
) -> tuple[bytes, str] | None:
    """Return ptxas's cubin and log; None if it spills, or is not ready in time.

    None, too, if an instruction of the kernel needs more registers than it may take (ptxas: C7602).
    """
    try:
        cubin, log = ptxas.assemble(program, ptx, options, deadline - time.monotonic())
    except StageError:
        return None
    return None if _spilled_bytes(log) else (cubin, log)


def _with_every_warp(
    program: Path, ptx: bytes, options: Sequence[str], deadline: float, shared_bytes: int
) -> tuple[bytes, str] | None:
    """Cubin and log of a kernel that fills a multiprocessor with warps; None if it spills.

    The bare build mostly has all its warps, and a launch that fits the GPU at once without checks
    would take twice as long if its checked build did not.
    """
    threads = _THREADS.search(ptx)
    if threads is None:
        return None
    blocks = occupancy(_target(options), int(threads[2]), 1, shared_bytes).blocks
    changed = _for_blocks(ptx, blocks) if blocks else None
    found = None if changed is None else _without_spills(program, changed, options, deadline)
    return None if found is None or _LOSSES.search(found[1]) else found


def _with_one_more_block(
    program: Path,
    ptx: bytes,
    cubin: bytes,
    log: str,
    options: Sequence[str],
    deadline: float,
    shared_bytes: int,
) -> tuple[bytes, str]:
    """Return cubin and log of a checked kernel, made for one more block if that is worth it.

    Its bare build may fit that many. Values that its checks hold over a loop may be spilled around
    the loop: on an H200 a causal attention of one block took 1.38 times as long as the bare kernel
    of two, and 1.02 times with two. With blocks of 64 x 64, of which four fit without checks, it
    took 1.39 times as long with two, by a few registers.
    """
    threads, registers = _THREADS.search(ptx), _REGISTERS.search(log)
    if threads is None or registers is None:
        return cubin, log
    used = int(registers[1])
    blocks = occupancy(_target(options), int(threads[2]), used, shared_bytes).blocks
    if blocks != 1 and (blocks > _FEW_BLOCKS or _DOTS.search(ptx) is None):
        return cubin, log
    kept_share = _KEPT_FOR_TWO if blocks == 1 else _KEPT_WITH_CHECKS
    tighter = _for_one_more_block(ptx, log, options, shared_bytes, kept_share)
    if tighter is None:
        return cubin, log
    try:
        other = ptxas.assemble(program, tighter, options, deadline - time.monotonic())
    except StageError:
        return cubin, log
    if _LOSSES.search(other[1]) or _spilled_bytes(other[1]) > _SPILLED_AROUND_LOOPS:
        return cubin, log
    took, _ = _cycles_per_warp(ptx, cubin, log, options, shared_bytes)
    takes, _ = _cycles_per_warp(ptx, *other, options, shared_bytes)
    return other if takes < _WORTH_IT * took else (cubin, log)


def _ptxas_for(ptx: bytes) -> Path | None:
    """Path of a ptxas that takes the text's PTX version, or None without one."""
    stated = _VERSION.search(ptx)
    number = 10 * int(stated[1]) + int(stated[2]) if stated else 0
    if number > _PTX_VERSIONS[0][1]:
        return ptxas.find_ptxas()
    return ptxas.find_ptxas(_release_with(number))


def _for_any_number_of_blocks(ptx: bytes) -> bytes | None:
    """PTX that lets ptxas use all the registers it needs; None if the text limits them."""
    return _for_blocks(ptx, 1)


def _for_one_more_block(
    ptx: bytes, log: str, options: Sequence[str], shared_bytes: int, kept_share: float
) -> bytes | None:
    """Return PTX that lets one more block fit; None if that costs too many registers."""
    registers, threads = _REGISTERS.search(log), _THREADS.search(ptx)
    if registers is None or threads is None:
        return None
    target, used = _target(options), int(registers[1])
    fitting = occupancy(target, int(threads[2]), used, shared_bytes)
    if fitting.limited_by != ("registers",) or fitting.blocks == 0:
        return None
    kept = int(used * kept_share)
    if occupancy(target, int(threads[2]), kept, shared_bytes).blocks <= fitting.blocks:
        return None
    return _for_blocks(ptx, fitting.blocks + 1)


def _for_blocks(ptx: bytes, blocks: int) -> bytes | None:
    """PTX that has ptxas make `blocks` fit; None if the text already limits them."""
    if b".maxnreg" in ptx or b".minnctapersm" in ptx:
        return None
    # On the same line, so that no line of the text moves.
    changed, count = _THREADS.subn(rb"\1 .minnctapersm %d" % blocks, ptx)
    return changed if count == 1 else None


def _target(options: Sequence[str]) -> Target:
    (name,) = (option for option in options if option.startswith(_ARCHITECTURE))
    return TARGETS[name.removeprefix(_ARCHITECTURE)]


def _waits_again_and_again(cubin: bytes) -> bool:
    try:
        return WarpTime.of(cubin).waits_for_memory > 1
    except SectionsError:
        return False


def _cycles_per_warp(
    ptx: bytes, cubin: bytes, log: str, options: Sequence[str], shared_bytes: int
) -> tuple[float, float]:
    """The cycles per warp with as many blocks as fit, and the cycles of one warp alone."""
    threads, registers = _THREADS.search(ptx), _REGISTERS.search(log)
    assert threads is not None
    target = _target(options)
    used = int(registers[1]) if registers else target.registers_per_thread
    warps = occupancy(target, int(threads[2]), used, shared_bytes).warps
    time = WarpTime.of(cubin)
    return time.cycles_per_warp(max(1, warps)), time.cycles


def _spilled_bytes(log: str) -> int:
    return sum(int(size) for size in _SPILLS.findall(log))


def link(ptx: bytes, name: str, options: Sequence[str]) -> tuple[bytes, str]:
    """The cubin that nvJitLink makes, and its log.

    Raises:
        StageError: nvJitLink refuses the PTX or an option; its log is in `log`.
    """
    nvjitlink = _nvjitlink()
    try:
        handle = nvjitlink.create(len(options), list(options))
    except nvjitlink.nvJitLinkError as error:
        raise StageError("assemble", f"{error} (options {' '.join(options)})") from None
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), name)
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        return bytes(cubin), _log(nvjitlink, handle)
    except nvjitlink.nvJitLinkError as error:
        raise StageError("assemble", str(error), _log(nvjitlink, handle)) from None
    finally:
        nvjitlink.destroy(handle)


def assemble_nothing() -> None:
    """Assemble an empty kernel, unless ptxas is found: nvJitLink's first takes 60 ms longer."""
    ptx = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
    if ptxas.find_ptxas() is None:
        link(ptx, "k", ["-arch=sm_80", "-O3"])


def _log(nvjitlink: ModuleType, handle: int) -> str:
    texts = []
    for size, get in (
        (nvjitlink.get_error_log_size, nvjitlink.get_error_log),
        (nvjitlink.get_info_log_size, nvjitlink.get_info_log),
    ):
        buffer = bytearray(size(handle))
        if buffer:
            get(handle, buffer)
        texts.append(buffer.rstrip(b"\0").decode(errors="replace").strip())
    return "\n".join(text for text in texts if text)


def _nvjitlink() -> ModuleType:
    # Loading takes tens of milliseconds, and the library may be absent.
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except (ImportError, RuntimeError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        advice = "pip install -U cuda-bindings nvidia-nvjitlink"
        raise StageError("assemble", f"nvJitLink is not usable ({first}); {advice}") from None
    module: ModuleType = nvjitlink
    return module
