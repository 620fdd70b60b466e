"""Waits of warps in a session: samples by kernel, source line and instruction.

Names of stall reasons are CUPTI's; their meanings are in NVIDIA's Nsight Compute documentation,
"Profiling Guide", section "Warp Stall Reasons".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from tkdebug.errors import Frame
from tkdebug.instrument.device_records import SampledImage, SamplingTotal, StallSamples
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.tables import Recorded
from tkdebug.linemap.line_table import Instruction, LineTable, LineTableError
from tkdebug.linemap.line_table_data import from_data

_T = TypeVar("_T")
_PAGE = 1000
# The warp's waits, for reasons whose name does not say it.
MEANINGS: Mapping[str, str] = {
    "barrier": "other warps, at a barrier",
    "branch_resolving": "a branch",
    "dispatch_stall": "the dispatcher",
    "drain": "stores, at its end",
    "gmma": "wgmma",
    "imc_miss": "constants",
    "lg_throttle": "the queue to global memory",
    "long_scoreboard": "global or local memory",
    "math_pipe_throttle": "a busy arithmetic unit",
    "membar": "a memory fence",
    "mio_throttle": "the queue to shared memory and special functions",
    "no_instructions": "instructions",
    "not_selected": "nothing: another warp issued",
    "selected": "nothing: it issued",
    "short_scoreboard": "shared memory or special functions",
    "sleeping": "nanosleep",
    "tex_throttle": "the queue to texture units",
    "wait": "the instruction before, of fixed latency",
    "warpgroup_arrive": "the other warps of its warp group",
}


@dataclass(frozen=True, slots=True)
class InstructionStalls:
    """Samples at one instruction.

    Attributes:
        instruction: None if the line table has none at that place.
        reasons: samples by stall reason.
    """

    address: int
    instruction: Instruction | None
    samples: int
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LineStalls:
    """Samples at the instructions of one source line.

    Attributes:
        frame: the frame of the line; None for instructions of no known line.
    """

    frame: Frame | None
    samples: int
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class KernelStalls:
    """Samples of one kernel.

    Attributes:
        kernel: its name; for others' kernels, the name of the function in its cubin.
        kernel_hash: the specialisation; None for others' kernels.
        lines: the most sampled first; () without a line table.
        instructions: the same, in the order of addresses.
    """

    kernel: str
    kernel_hash: str | None
    samples: int
    reasons: Mapping[str, int]
    lines: tuple[LineStalls, ...]
    instructions: tuple[InstructionStalls, ...]


@dataclass(frozen=True, slots=True)
class Stalls:
    """All samples of a session.

    Attributes:
        kernels: the most sampled first.
        samples: the samples of all kernels, also of those for which CUPTI gives no instructions.
        dropped: samples for which the hardware had no room.
    """

    kernels: tuple[KernelStalls, ...]
    samples: int
    dropped: int


def recorded_stalls(session: Session) -> Stalls | None:
    """The samples of a session, or None if none were taken."""
    totals = [one.event for one in _all(session, SamplingTotal)]
    if not totals:
        return None
    hashes = {one.event.crc: one.event.kernel_hash for one in _all(session, SampledImage)}
    counts: dict[tuple[str | None, str], Counter[tuple[int, str]]] = defaultdict(Counter)
    for one in _all(session, StallSamples):
        found = counts[hashes.get(one.event.crc), one.event.function]
        for pc, place, count in one.event.counts:
            if 0 <= place < len(one.event.reasons):
                found[pc, one.event.reasons[place]] += count
    kernels = [
        _kernel(session, kernel_hash, function, found)
        for (kernel_hash, function), found in counts.items()
    ]
    return Stalls(
        tuple(sorted(kernels, key=lambda one: -one.samples)),
        sum(total.samples for total in totals),
        sum(total.dropped for total in totals),
    )


def _all(session: Session, kind: type[_T]) -> list[Recorded[_T]]:
    found: list[Recorded[_T]] = []
    since = 0
    while page := session.records(kind, since, limit=_PAGE):
        found += page
        since = page[-1].seq
    return found


def _kernel(
    session: Session,
    kernel_hash: str | None,
    function: str,
    counts: Mapping[tuple[int, str], int],
) -> KernelStalls:
    table = None if kernel_hash is None else _line_table(session, kernel_hash)
    known = {} if table is None else {one.address: one for one in table.instructions}
    by_address: dict[int, Counter[str]] = defaultdict(Counter)
    by_frame: dict[Frame | None, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    for (pc, reason), count in counts.items():
        instruction = known.get(pc)
        is_placed = instruction is not None and instruction.mapped
        frame = instruction.frames[-1] if instruction is not None and is_placed else None
        by_address[pc][reason] += count
        by_frame[frame][reason] += count
        reasons[reason] += count
    lines = [LineStalls(frame, found.total(), found) for frame, found in by_frame.items()]
    return KernelStalls(
        function,
        kernel_hash,
        reasons.total(),
        reasons,
        tuple(sorted(lines, key=lambda one: -one.samples)) if table is not None else (),
        tuple(
            InstructionStalls(address, known.get(address), found.total(), found)
            for address, found in sorted(by_address.items())
        ),
    )


def _line_table(session: Session, kernel_hash: str) -> LineTable | None:
    data = session.line_table(kernel_hash)
    try:
        return None if data is None else from_data(data)
    except LineTableError:
        return None
