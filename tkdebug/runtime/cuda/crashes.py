"""Crashes of kernels on the GPU as faults: the line, the call chain, the instruction, the launch.

Responsible for joining a core dump with what this process knows: its native kernels' op tables and
the launches it has in flight. `linemap.nvidia.core_dumps` reads the dump.

Invariant: facts that the dump does not have are reported as unknown. A dump of another process, or
a kernel that tkdebug did not compile, is placed by the line table in its code.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from tkdebug.linemap.nvidia.core_dumps import CoreDump, Grid, Stop, Triple
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
    """Return the launches that may have stopped there."""
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
    """Whether tkdebug compiled it; no more is known of kernels of an installed Triton."""
    return getattr(kernel, "binary", None) is not None


def _binary(kernel: DeviceKernel) -> Binary:
    # Kernels on CUDA devices were compiled by NVIDIA's backend.
    return cast("Binary", kernel.binary)


def kernel_of(place: Place | None, launches: InFlight | None) -> DeviceKernel | None:
    """The kernel of this process that the code belongs to."""
    if place is None or launches is None:
        return None
    for flight in launches.latest:
        kernel = flight.kernel
        entry = kernel.binary.entry if _is_ours(kernel) else kernel.name
        if kernel.module == place.module and entry == place.function:
            return kernel
    return None


def op_of(place: Place | None, kernel: DeviceKernel | None) -> Operation | None:
    """Return the op that an instruction belongs to, if the kernel is ours."""
    if place is None or kernel is None or place.ptx_line is None or not _is_ours(kernel):
        return None
    wanted = _binary(kernel).ptx_ops.get(place.ptx_line)
    if wanted is None:
        return None
    return next((op for op in kernel.gpu_module.walk() if op.id == wanted), None)


def _asserted(op: Operation | None, stop: Stop) -> str:
    """Return the message of the kernel's own assert."""
    # Only the report of a crash needs the dialects.
    from tkdebug.compiler.dialects import tt

    asserted = tt.Assert.cast(op) if stop.kind == "assert" else None
    message = "" if asserted is None else asserted.message
    return f": {message}," if message else ""


def _instruction(place: Place | None) -> str:
    """` by `LDG.E R2, …` (SASS 0x80)`, as far as known."""
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
    """Return the program of a block: the block, or the cluster if clusters have several."""
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
