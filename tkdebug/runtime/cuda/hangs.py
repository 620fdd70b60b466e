"""Kernels that do not end as faults: where each warp waits, by a core dump that was asked for.

Responsible for joining the dump with this process's launches; `compat.gpu_failures.hangs` asks for
one. A fault is one source line of one launch. The dump has the warps' next instructions: for a loop
that waits, any line of the loop may show.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tkdebug.compiler.targets.registered_backends import target_of
from tkdebug.errors import Frame, UnsupportedError
from tkdebug.linemap.nvidia.core_dumps import CoreDump, Grid, Triple, Warp
from tkdebug.linemap.nvidia.loaded_images import Place
from tkdebug.records.events import Fault
from tkdebug.runtime.cuda.crashes import could_be, flying_launches, kernel_of, op_of, program_of
from tkdebug.runtime.launch.launches_in_flight import Flight, InFlight

_MOST_FAULTS = 8
_HINT = (
    "the lines are where its warps were when it was stopped: look for what they wait for, such as "
    "a lock that is never released, or programs that wait for one that has not begun"
)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Warps of one grid on one line.

    Attributes:
        frames: () if the code has no line.
        place: the place of one of their instructions; None if it is in no loaded image.
    """

    grid: Grid
    frames: tuple[Frame, ...]
    place: Place | None
    warps: tuple[Warp, ...]


def hang_faults(dump: CoreDump, launches: InFlight, waited: str) -> tuple[Fault, ...]:
    """Return a fault for each line on which warps were, the line with most warps first.

    Args:
        dump: the dump of this process.
        launches: the launches in flight.
        waited: why the dump was asked for, in words.
    """
    groups = sorted(_groups(dump), key=lambda one: (one.grid.id, -len(one.warps)))
    return tuple(_fault(dump, group, launches, waited) for group in groups[:_MOST_FAULTS])


def _groups(dump: CoreDump) -> Iterator[_Waiting]:
    places: dict[int, Place | None] = {}
    found: dict[tuple[int, tuple[Frame, ...]], tuple[Grid, Place | None, list[Warp]]] = {}
    for warp in dump.warps:
        if warp.grid is None:
            continue
        # Lanes that wait for others of their warp stand elsewhere: each line counts the warp once.
        lines: dict[tuple[Frame, ...], Place | None] = {}
        for pc in warp.pcs:
            if pc not in places:
                places[pc] = dump.place_of(pc)
            place = places[pc]
            lines.setdefault(place.frames if place is not None else (), place)
        for frames, place in lines.items():
            group = found.setdefault((warp.grid.id, frames), (warp.grid, place, []))
            group[2].append(warp)
    for (_, frames), (grid, place, warps) in found.items():
        yield _Waiting(grid, frames, place, tuple(warps))


def _fault(dump: CoreDump, waiting: _Waiting, launches: InFlight, waited: str) -> Fault:
    place, grid = waiting.place, waiting.grid
    kernel = kernel_of(place, launches)
    op = op_of(place, kernel)
    frames = op.location.frames if op is not None else waiting.frames
    name = kernel.name if kernel is not None else place.function if place else "unknown kernel"
    flights = [f for f in flying_launches(dump, launches) if could_be(f, grid)]
    blocks = {warp.block for warp in waiting.warps}
    warps = len(waiting.warps)
    said = [
        f"the kernel has not ended {waited}: {warps:,} warp{'s' * (warps != 1)} of "
        f"{_programs(len(blocks))} {'are' if warps != 1 else 'is'} here",
        _resident(dump, grid),
        _launch(flights),
    ]
    if not frames:
        said.append("its code carries no line for this" if place else "its code is not in the dump")
    first = min(waiting.warps, key=lambda warp: warp.block[::-1])
    return Fault(
        kind="hang",
        kernel=name,
        frames=frames,
        message="; ".join(part for part in said if part),
        launch_id=flights[0].launch_id if len(flights) == 1 else 0,
        column=op.location.primary.column if op is not None else 0,
        op_id=op.id if op is not None else None,
        program_id=program_of(grid, first.block, first.cluster),
        count=warps,
        hint=_HINT,
    )


def _programs(number: int) -> str:
    return f"{number:,} program{'s' * (number != 1)}"


def _resident(dump: CoreDump, grid: Grid) -> str:
    """Say how many blocks of a grid are on the GPU, have ended, or have not begun.

    The GPU begins blocks in the order of their index, x first, as soon as there is room for one.
    """
    resident = {warp.block: warp.sm for warp in dump.warps if warp.grid is grid}
    total = math.prod(grid.size)
    begun = 1 + max(_number(block, grid.size) for block in resident)
    ended, behind = begun - len(resident), total - begun
    text = f"of {_programs(total)}, {len(resident):,} are on the GPU"
    match _has_room(dump, grid, Counter(resident.values())):
        case True:
            # Otherwise the next would have begun.
            ended, behind, unknown = ended + behind, 0, 0
        case False:
            unknown = 0
        case _:
            behind, unknown = 0, behind
    for number, what in ((ended, "ended"), (behind, "not begun"), (unknown, "ended or not begun")):
        text += f", {number:,} have {what}" if number else ""
    return text


def _has_room(dump: CoreDump, grid: Grid, blocks: Counter[int]) -> bool | None:
    """Whether another block would find room; None if that is not known.

    Args:
        dump: the dump of the GPU.
        grid: the grid of the blocks.
        blocks: the number of blocks on each multiprocessor.
    """
    if any(warp.grid is not grid for warp in dump.warps):
        return None
    most = max(blocks.values())
    if len(blocks) < dump.multiprocessors or min(blocks.values()) < most:
        return True
    try:
        target = target_of(dump.architecture)
    except UnsupportedError:
        return None
    warps = -(-math.prod(grid.block_size) // target.threads_per_warp)
    is_full = (most + 1) * warps > target.warps_per_sm or most >= target.blocks_per_sm
    return False if is_full else None


def _number(block: Triple, size: Triple) -> int:
    return (block[2] * size[1] + block[1]) * size[0] + block[0]


def _launch(flights: Sequence[Flight]) -> str:
    if not flights:
        return "no launch of tkdebug's that is known"
    if len(flights) > 1:
        named = ", ".join(str(flight.launch_id) for flight in flights[:5])
        return f"one of {len(flights)} launches with the same arguments: {named}"
    return f"launch {flights[0].launch_id}"
