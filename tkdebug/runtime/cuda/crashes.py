"""Kernels that crash or do not end on the GPU, as faults: the lines, the instruction, the launch.

Responsible for joining a core dump with what this process knows: its native kernels' op tables and
the launches it has in flight. `linemap.nvidia.core_dumps` reads the dump.

Invariant: facts that the dump does not have are reported as unknown. A dump of another process, or
a kernel that tkdebug did not compile, is placed by the line table in its code.

The dump of a kernel that does not end was asked for, by `compat.gpu_failures.hangs`, and shows
where each warp waits. A fault is one source line of one launch. The dump has the warps' next
instructions: for a loop that waits, any line of the loop may show.
"""

from __future__ import annotations

import math
import os
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tkdebug.compiler.targets.registered_backends import target_of
from tkdebug.errors import Frame, UnsupportedError
from tkdebug.linemap.nvidia.core_dumps import CoreDump, Grid, Stop, Triple, Warp
from tkdebug.linemap.nvidia.loaded_images import Place
from tkdebug.records.events import Fault, FaultKind
from tkdebug.runtime.launch.launches_in_flight import Flight, InFlight

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Operation
    from tkdebug.compiler.targets.nvptx.compile import Binary
    from tkdebug.runtime.device.platform import DeviceKernel

_MOST_FAULTS = 8
_MOST_NAMED = 5
# nvdisasm takes minutes for the largest images of libraries.
_MOST_DISASSEMBLED_BYTES = 4 << 20
_INTERPRET = "`tkdebug run --mode interpret` names the tensor and the offset"
_HINTS = {"illegal-address": _INTERPRET, "misaligned": _INTERPRET}
_HANG_HINT = (
    "the lines are where its warps were when it was stopped: look for what they wait for, such as "
    "a lock that is never released, or programs that wait for one that has not begun"
)


def faults_of(dump: CoreDump, launches: InFlight | None = None) -> tuple[Fault, ...]:
    """Return a fault for each stopped instruction of each grid, those with a block first.

    Args:
        dump: the dump of this process or another.
        launches: the launches in flight, if the dump is of this process.
    """
    groups: dict[tuple[object, ...], list[Stop]] = {}
    for stop in dump.stops:
        groups.setdefault((stop.grid and stop.grid.id, stop.pc, stop.kind), []).append(stop)
    return tuple(_fault(dump, stops, launches) for stops in list(groups.values())[:_MOST_FAULTS])


def no_dump_fault(error: str, launches: InFlight) -> Fault:
    """The fault for a CUDA error that left no core dump: it names the launches in flight."""
    flying = [flight for flight in launches.latest if not flight.had_ended()]
    kernel = flying[0].kernel if flying else None
    known = "no launch of tkdebug's was in flight"
    if flying:
        known = f"in flight: {_named(flying, with_kernel=True)}"
    return Fault(
        kind="cuda-error",
        kernel=kernel.name if kernel is not None else "unknown kernel",
        frames=(),
        message=f"{error}; {known}; `tkdebug run --coredump` names the source line",
        launch_id=flying[0].launch_id if len(flying) == 1 else 0,
        hint=_INTERPRET,
    )


def _fault(dump: CoreDump, stops: Sequence[Stop], launches: InFlight | None) -> Fault:
    first = stops[0]
    place = dump.place_of(first.pc) if first.pc is not None else None
    flights = _candidates(dump, first, place, launches)
    kernel = kernel_of(place, launches)
    op = op_of(place, kernel)
    frames = op.location.frames if op is not None else place.frames if place is not None else ()
    name = kernel.name if kernel is not None else place.function if place else "unknown kernel"
    what = first.text + _asserted(op, first) + _instruction(place)
    said = [what, _where(first), _launch(flights, launches, first)]
    if not frames:
        said.append("its code carries no line for this" if place else "its code is not in the dump")
    return Fault(
        kind=cast("FaultKind", first.kind),
        kernel=name,
        frames=frames,
        message=", ".join(part for part in said if part),
        launch_id=flights[0].launch_id if len(flights) == 1 else 0,
        column=op.location.primary.column if op is not None else 0,
        op_id=op.id if op is not None else None,
        program_id=program_of(first.grid, first.block, first.cluster),
        count=max(1, sum(len(stop.threads) for stop in stops)),
        hint=_HINTS.get(first.kind),
    )


def _candidates(
    dump: CoreDump, stop: Stop, place: Place | None, launches: InFlight | None
) -> list[Flight]:
    """Return the launches in flight that may have made a stop of the dump."""
    if launches is None:
        return []
    flying = flying_launches(dump, launches)
    if stop.grid is not None:
        return [flight for flight in flying if could_be(flight, stop.grid)]
    if place is None:
        return []
    return [flight for flight in flying if flight.kernel.module == place.module]


def flying_launches(dump: CoreDump, launches: InFlight) -> list[Flight]:
    """The launches of this process that had not ended when the dump was made."""
    return [flight for flight in launches.latest if not flight.had_ended(dump.time_s or 0)]


def could_be(flight: Flight, grid: Grid) -> bool:
    """Whether a launch may be this grid of a core dump: same kernel, size and arguments."""
    return (
        grid.function == flight.kernel.function
        and grid.size == tuple(flight.grid)
        and _passed(flight, grid.parameters)
    )


def _passed(flight: Flight, parameters: bytes) -> bool:
    """Whether the parameter memory holds the passed arguments, as far as they are known."""
    from tkdebug.runtime.cuda.packing import kernel_slots

    if not _is_ours(flight.kernel):
        return True
    source = flight.kernel.src
    numbers = [p.num for p in source.fn.params if not p.is_constexpr]
    values = {f"v{number}": v for number, v in zip(numbers, flight.values, strict=True)}
    at = 0
    for slot in kernel_slots(source.fn.arg_names, source.specs, _binary(flight.kernel)):
        size = struct.calcsize(f"={slot.code}")
        at = -(-at // slot.alignment) * slot.alignment
        value = None if slot.is_tensor_map else values.get(slot.expression)
        if value is not None and len(parameters) >= at + size:
            if struct.pack(f"={slot.code}", value) != parameters[at : at + size]:
                return False
        at += size
    return True


def _is_ours(kernel: DeviceKernel) -> bool:
    """Whether tkdebug compiled a kernel; less is known of kernels of an installed Triton."""
    return getattr(kernel, "binary", None) is not None


def _binary(kernel: DeviceKernel) -> Binary:
    # Kernels on CUDA devices were compiled by NVIDIA's backend.
    return cast("Binary", kernel.binary)


def kernel_of(place: Place | None, launches: InFlight | None) -> DeviceKernel | None:
    """Return the kernel of this process that a place in code belongs to, or None if unknown."""
    if place is None or launches is None:
        return None
    for flight in launches.latest:
        kernel = flight.kernel
        entry = kernel.binary.entry if _is_ours(kernel) else kernel.name
        if kernel.module == place.module and entry == place.function:
            return kernel
    return None


def op_of(place: Place | None, kernel: DeviceKernel | None) -> Operation | None:
    """Return the op that an instruction belongs to; None if unknown, or not tkdebug's kernel."""
    if place is None or kernel is None or place.ptx_line is None or not _is_ours(kernel):
        return None
    wanted = _binary(kernel).ptx_ops.get(place.ptx_line)
    if wanted is None:
        return None
    return next((op for op in kernel.gpu_module.walk() if op.id == wanted), None)


def _asserted(op: Operation | None, stop: Stop) -> str:
    """Return the message of the kernel's own assert as a clause; "" if there is none."""
    # Only the report of a crash needs the dialects.
    from tkdebug.compiler.dialects import tt

    asserted = tt.Assert.cast(op) if stop.kind == "assert" else None
    message = "" if asserted is None else asserted.message
    return f": {message}," if message else ""


def _instruction(place: Place | None) -> str:
    """Return a place as text, ` by `LDG.E R2, …` (SASS kernel+0x80)`; "" if unknown."""
    if place is None:
        return ""
    at = f"SASS {place.function}+{place.offset:#x}"
    if len(place.image) > _MOST_DISASSEMBLED_BYTES:
        return f" ({at})"
    from tkdebug.linemap.nvidia.sass import parse_sass
    from tkdebug.linemap.nvidia.tools import DisassemblyError, disassemble

    try:
        code = parse_sass(disassemble(place.image)).get(place.function, ())
    except DisassemblyError:
        return f" ({at})"
    base = code[0].address if code else 0
    for item in code:
        if item.address - base == place.offset:
            return f" by `{item.text}` ({at})"
    return f" ({at})"


def _where(stop: Stop) -> str:
    if stop.block is None:
        return "the block is not known, as its warp had left when the GPU stopped"
    return f"thread {stop.threads[0]}" if stop.threads else ""


def program_of(grid: Grid | None, block: Triple | None, cluster: Triple | None) -> Triple | None:
    """Return a block's program: the block, or its cluster of several; None if unknown."""
    if grid is not None and cluster is not None:
        x, y, z = grid.cluster_size
        if x * y * z > 1:
            return cluster
    return block


def _launch(flights: Sequence[Flight], launches: InFlight | None, stop: Stop) -> str:
    number = f"grid {stop.grid.id} of the context" if stop.grid is not None else ""
    if launches is None:
        return number
    if not flights:
        return f"{number}, no launch of tkdebug's that is known" if number else ""
    if len(flights) > 1:
        alike = "with the same arguments" if stop.grid is not None else "in flight"
        return f"one of {len(flights)} launches {alike}: {_named(flights)}"
    flight = flights[0]
    name = flight.kernel.name
    same = [other.ordinal for other in launches.latest if other.kernel.name == name]
    return f"launch {flight.launch_id} ({same.index(flight.ordinal) + 1} of {len(same)} of {name})"


def _described(flight: Flight) -> str:
    """Describe a launch by its kernel and the line of the script that made it."""
    made = flight.caller
    if made is None:
        return flight.kernel.name
    return f"{flight.kernel.name}, {os.path.basename(made.file)}:{made.line}"


def _named(flights: Sequence[Flight], with_kernel: bool = False) -> str:
    names = [
        f"launch {flight.launch_id}" + (f" ({_described(flight)})" if with_kernel else "")
        for flight in flights[:_MOST_NAMED]
    ]
    left = len(flights) - len(names)
    return ", ".join(names) + (f" and {left} more" if left else "")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Warps of one grid on one line.

    Attributes:
        frames: the source frames of the line; () if the code has no line.
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
    return tuple(_hang_fault(dump, group, launches, waited) for group in groups[:_MOST_FAULTS])


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


def _hang_fault(dump: CoreDump, waiting: _Waiting, launches: InFlight, waited: str) -> Fault:
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
        _hung_launch(flights),
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
        hint=_HANG_HINT,
    )


def _programs(number: int) -> str:
    return f"{number:,} program{'s' * (number != 1)}"


def _resident(dump: CoreDump, grid: Grid) -> str:
    """Return a text: how many blocks of a grid are on the GPU, have ended, or have not begun.

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


def _hung_launch(flights: Sequence[Flight]) -> str:
    if not flights:
        return "no launch of tkdebug's that is known"
    if len(flights) > 1:
        named = ", ".join(str(flight.launch_id) for flight in flights[:5])
        return f"one of {len(flights)} launches with the same arguments: {named}"
    return f"launch {flights[0].launch_id}"
