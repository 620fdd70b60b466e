"""Waits of a warp on its way through machine code, were it alone on its multiprocessor.

The compiler's own schedule is followed: each instruction says for how many cycles the next one has
to wait, and which earlier results it needs. Responsible for that alone: how long memory takes is
the caller's to say, and the work of other warps meanwhile is the model's (`tkdebug.advice`).

Invariant: a loop is followed for a few iterations; the rest take as long as the last of these.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tkdebug.linemap.line_table import Instruction
from tkdebug.linemap.nvidia.sass import BARRIERS, NO_BARRIER, Control

# Causes of waits: results of instructions of these kinds, other warps at a barrier, or in
# "dependency" results of ordinary arithmetic, for which the schedule has fixed times.
Cause = Literal[
    "load",
    "copy",
    "atomic",
    "spill",
    "shared",
    "shuffle",
    "barrier",
    "special",
    "tensor",
    "dependency",
    "other",
]


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction on a warp's path.

    Attributes:
        index: the index of the instruction.
        share: the share of passes in which it is executed.
    """

    index: int
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Rounds:
    """A loop on the path.

    Attributes:
        times: the trip count, on average.
        body: the steps and inner loops of an iteration.
    """

    times: float
    body: Way


Way = tuple["Step | Rounds", ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Cycles that a warp waits for one thing.

    Attributes:
        cause: the kind of wait.
        made_by: index of the instruction whose result is waited for.
        cycles: cycles of a warp, in all iterations.
    """

    cause: Cause
    made_by: int
    cycles: float


# Cycles until results are there. Source: W. Luo et al., "Benchmarking and Dissecting the Nvidia
# Hopper GPU Architecture via Microbenchmarking", 2024 (shared memory 29, first-level cache 41), and
# Z. Jia et al. 2018 (shuffles, special functions).
SHARED_CYCLES, LOCAL_CYCLES = 29, 41
_SHUFFLE_CYCLES, _SPECIAL_CYCLES, _OTHER_CYCLES, _READ_CYCLES = 24, 22, 22, 15
# Cycles from the arrival of the last warp at a barrier until the warps continue.
_BARRIER_CYCLES = 30
# A product of a warpgroup with N columns takes N / 2 cycles of all four tensor cores, whatever its
# type: 64 x N x 32 bytes of operands at 16,384 multiply-adds of bytes a cycle. Its latency is more.
_WGMMA_LATENCY, _MMA_LATENCY = 60, 33
_FOLLOWED_ROUNDS, _LAST_ROUNDS = 6, 2
_MOST_STEPS = 400_000
_WGMMA = re.compile(r"64x(\d+)x\d+")
_COMMITS = re.compile(r"gsb(\d)$")
_OUTSTANDING = re.compile(r"(?:SB|gsb)(\d), (0x[0-9a-f]+)")
_SPECIAL = frozenset(("MUFU", "F2F", "I2F", "F2I", "FRND", "I2I", "POPC", "FLO"))


def waits(
    code: Sequence[Instruction], way: Way, memory_cycles: Callable[[Instruction], float]
) -> tuple[Wait, ...]:
    """Return the waits of a warp; none if the schedule is not known.

    Args:
        code: the kernel's instructions.
        way: the instructions that a warp executes.
        memory_cycles: the time until a load, a copy or an atomic has its data.
    """
    if any(instruction.control is None for instruction in code):
        return ()
    warp = _Warp(code, memory_cycles)
    warp.follow(way)
    return tuple(Wait(cause, index, cycles) for (cause, index), cycles in warp.waited.items())


@dataclass(slots=True)
class _Result:
    """A pending result: its instruction, and the time at which it is ready."""

    made_by: int
    ready: float


class _Warp:
    """A warp on its way.

    Attributes:
        waited: cycles by cause and maker.
    """

    def __init__(
        self, code: Sequence[Instruction], memory_cycles: Callable[[Instruction], float]
    ) -> None:
        self._code = code
        self._controls = [Control(one.control or 0) for one in code]
        self._waits_for = [control.waits_for for control in self._controls]
        self._cycles = [_cycles(one, memory_cycles) for one in code]
        self._now = 0.0
        self._barriers: list[list[_Result]] = [[] for _ in range(BARRIERS)]
        self._copies: list[_Result] = []
        self._bulk: list[_Result] = []
        self._products: dict[int, list[_Result]] = defaultdict(list)
        self._tensor_free = 0.0
        self._steps = 0
        self.waited: dict[tuple[Cause, int], float] = defaultdict(float)

    def follow(self, way: Way) -> None:
        """Execute the steps and loops of a path in order."""
        for item in way:
            if isinstance(item, Step):
                self._step(item)
            else:
                self._rounds(item)

    def _rounds(self, loop: Rounds) -> None:
        """Follow some iterations of a loop, and extrapolate from the last of them to the rest."""
        whole = min(int(loop.times), _FOLLOWED_ROUNDS)
        if whole < 1 or self._steps > _MOST_STEPS:
            whole = 1
        started: list[tuple[float, dict[tuple[Cause, int], float]]] = []
        for _ in range(whole):
            started.append((self._now, dict(self.waited)))
            self.follow(loop.body)
        left = loop.times - whole
        if not left:
            return
        since, waited = started[-min(_LAST_ROUNDS, whole)]
        scale = left / min(_LAST_ROUNDS, whole)
        for key, cycles in list(self.waited.items()):
            self.waited[key] += scale * (cycles - waited.get(key, 0.0))
        self._skip(scale * (self._now - since))

    def _skip(self, cycles: float) -> None:
        """Advance the clock; every pending result becomes ready as much later."""
        self._now += cycles
        self._tensor_free += cycles
        for results in (*self._barriers, self._copies, self._bulk, *self._products.values()):
            for result in results:
                result.ready += cycles

    def _step(self, step: Step) -> None:
        self._steps += 1
        at, share = step.index, step.share
        instruction = self._code[at]
        for barrier in self._waits_for[at]:
            self._wait(self._barriers[barrier], 0, share)
        self._special_waits(at, instruction, share)
        control = self._controls[at]
        issued = self._now
        stall = max(1, control.stall_cycles)
        if stall > 1:
            self.waited["dependency", at] += (stall - 1) * share
        self._now += stall * share
        self._put_under_way(at, instruction, control, issued, share)

    def _wait(self, results: list[_Result], may_be_left: int, share: float) -> None:
        """Wait until at most `may_be_left` of `results` are pending; they arrive in order."""
        count = len(results) - may_be_left
        if count <= 0:
            return
        last = max(results[:count], key=lambda result: result.ready)
        del results[:count]
        if last.ready > self._now:
            cycles = (last.ready - self._now) * share
            self.waited[_cause(self._code[last.made_by]), last.made_by] += cycles
            self._now += cycles

    def _special_waits(self, at: int, instruction: Instruction, share: float) -> None:
        match instruction.opcode:
            case "DEPBAR":
                for barrier, left in _OUTSTANDING.findall(instruction.text):
                    self._wait(self._barriers[int(barrier)], int(left, 16), share)
            case "WARPGROUP":
                for group, left in _OUTSTANDING.findall(instruction.text):
                    self._wait(self._products[int(group)], int(left, 16), share)
            case "SYNCS" if "TRYWAIT" in instruction.text and self._bulk:
                self._wait(self._bulk, len(self._bulk) - 1, share)
            case "BAR" if "ARV" not in instruction.text:
                self.waited["barrier", at] += _BARRIER_CYCLES * share
                self._now += _BARRIER_CYCLES * share

    def _put_under_way(
        self, at: int, instruction: Instruction, control: Control, issued: float, share: float
    ) -> None:
        cycles = self._cycles[at]
        opcode = instruction.opcode
        if opcode == "LDGSTS":
            self._copies.append(_Result(at, issued + cycles))
        elif opcode == "LDGDEPBAR" and control.write_barrier != NO_BARRIER:
            group = max(self._copies, key=lambda copy: copy.ready, default=_Result(at, issued))
            self._copies.clear()
            self._barriers[control.write_barrier].append(group)
            return
        elif opcode == "SYNCS" and "ARRIVE" in instruction.text and "TRANS64" in instruction.text:
            # The bytes of a stage are announced; its copies follow.
            self._bulk.append(_Result(at, issued))
        elif opcode.startswith(("UTMALDG", "UBLKCP")) and self._bulk:
            self._bulk[-1] = _Result(at, max(self._bulk[-1].ready, issued + cycles))
        elif opcode.endswith("GMMA"):
            self._multiply(at, instruction, issued)
        if control.write_barrier != NO_BARRIER:
            result = _Result(at, issued + cycles * share)
            self._barriers[control.write_barrier].append(result)
        if control.read_barrier != NO_BARRIER:
            read = min(cycles, _READ_CYCLES) if cycles else _READ_CYCLES
            self._barriers[control.read_barrier].append(_Result(at, issued + read * share))

    def _multiply(self, at: int, instruction: Instruction, issued: float) -> None:
        """Add a WGMMA: tensor cores run these one after the other, asynchronously to the warp."""
        columns = _WGMMA.search(instruction.text)
        begun = max(issued, self._tensor_free)
        self._tensor_free = begun + (int(columns[1]) / 2 if columns else 1)
        committed = _COMMITS.search(instruction.text)
        if committed:
            result = _Result(at, self._tensor_free + _WGMMA_LATENCY)
            self._products[int(committed[1])].append(result)


def _cycles(instruction: Instruction, memory_cycles: Callable[[Instruction], float]) -> float:
    match instruction.kind:
        case "global-load" | "shared-copy":
            return memory_cycles(instruction)
        case "atomic" if instruction.opcode != "ATOMS":
            return memory_cycles(instruction)
        case "local-load":
            return LOCAL_CYCLES
        case "shared-load" | "atomic":
            return SHARED_CYCLES
        case "global-store" | "shared-store" | "local-store":
            return _READ_CYCLES
        case "tensor-core":
            return _MMA_LATENCY
        case "special":
            return _SPECIAL_CYCLES
        case _:
            return _SHUFFLE_CYCLES if instruction.opcode == "SHFL" else _OTHER_CYCLES


_CAUSES: Mapping[str, Cause] = {
    "global-load": "load",
    "shared-copy": "copy",
    "atomic": "atomic",
    "local-load": "spill",
    "local-store": "spill",
    "shared-load": "shared",
    "shared-store": "shared",
    "tensor-core": "tensor",
    "special": "special",
    "barrier": "copy",
}


def _cause(instruction: Instruction) -> Cause:
    if instruction.opcode == "SHFL":
        return "shuffle"
    if instruction.opcode in _SPECIAL:
        return "special"
    return _CAUSES.get(instruction.kind, "other")


def executed(way: Way) -> Iterator[tuple[int, float]]:
    """Yield how often a warp executes each instruction, on average."""
    for item in way:
        if isinstance(item, Step):
            yield item.index, item.share
        else:
            yield from ((at, share * item.times) for at, share in executed(item.body))
