"""A second backend: its code is a text that says what each op of the GPU IR does, in order.

Its devices have warps of 16 threads and launch nothing: they write down what they are given.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.core import Operation
from tkdebug.compiler.ir.types import encoding_of
from tkdebug.compiler.layouts import LANE, REGISTER, WARP
from tkdebug.compiler.layouts.shared import SharedBanks
from tkdebug.compiler.passes.cleanup import EliminateDeadCode
from tkdebug.compiler.passes.gpu.assign_layouts import AssignLayouts
from tkdebug.compiler.passes.gpu.coalesce_accesses import CoalesceAccesses
from tkdebug.compiler.passes.insert_checks import add_checks
from tkdebug.compiler.passes.pipeline import run_pipeline
from tkdebug.compiler.sites.checks import CheckPlan
from tkdebug.compiler.targets.backend import NativeOptions, NativeStage, Observers
from tkdebug.compiler.targets.machine_parts import MachinePart, MachineParts
from tkdebug.compiler.targets.target import Target
from tkdebug.errors import Frame, UsageError
from tkdebug.linemap.line_table import Instruction, LineTable
from tkdebug.linemap.parts import Occupancy
from tkdebug.records.events import Fault
from tkdebug.runtime.device.platform import (
    CheckMemory,
    CrashDumps,
    CrashReport,
    DumpSettings,
    GPUTarget,
    LaunchableKernel,
)
from tkdebug.runtime.launch.launches_in_flight import InFlight

WARP_SIZE = 16
PRINTER = Target(
    "printer1",
    "schedule",
    (1, 0),
    threads_per_warp=WARP_SIZE,
    banks=SharedBanks(count=8, word_bytes=4, access_bytes=8),
    shared_bytes_per_sm=4096,
    shared_bytes_per_block=1024,
    warps_per_sm=8,
    blocks_per_sm=2,
    registers_per_sm=1024,
    registers_per_thread=16,
    threads_per_block=128,
)


PARTS: MachineParts = {"printer": lambda: MachinePart("printer", True, "has paper")}


@dataclass(frozen=True)
class Lowered:
    module: Module
    schedule: str
    num_warps: int
    checks: CheckPlan | None = None

    @property
    def code_key(self) -> str:
        return self.schedule


@dataclass(frozen=True)
class Binary:
    entry: str
    schedule: str
    threads: int
    target: str = PRINTER.name
    shared_bytes: int = 0
    registers: int = 1
    spill_bytes: int = 0
    workspace_bytes: int = 0
    checks: CheckPlan | None = None

    @property
    def image(self) -> bytes:
        return self.schedule.encode()

    def stages(self) -> Mapping[str, Callable[[], str | bytes]]:
        return {"schedule": lambda: self.schedule}


@dataclass(frozen=True)
class Generated:
    module: Module
    schedule: str
    num_warps: int
    is_cached: bool = False
    checks: CheckPlan | None = None

    def binary(self) -> Binary:
        threads = self.num_warps * WARP_SIZE
        return Binary(self.module.name, self.schedule, threads, checks=self.checks)

    def texts(self) -> Mapping[str, str]:
        return {"schedule": self.schedule}

    def text_frames(self) -> Mapping[str, dict[int, Any]]:
        ops = list(self.module.function.walk())
        return {"schedule": {line: op.location.frames for line, op in enumerate(ops, 1)}}

    def line_table(self, tile_ops: Mapping[int, Any]) -> Mapping[str, object]:
        from tkdebug.linemap.line_table_data import absent

        return absent("a schedule has no instructions")


class ScheduleBackend:
    name = "schedule"
    upstream_name = "schedule"
    targets: Mapping[str, Target] = {PRINTER.name: PRINTER}
    stages = (NativeStage("schedule", "schedule.txt"),)
    parallel_compiles = 1
    machine_parts = PARTS
    image_name = "schedule"

    def is_image(self, name: str, head: bytes) -> bool:
        return name.endswith(".schedule")

    def image_line_table(self, image: bytes, kernel: str) -> Mapping[str, object]:
        from tkdebug.linemap.line_table_data import to_data

        return to_data(next(one for one in self.image_tables(image) if one.kernel == kernel))

    def image_tables(self, image: bytes) -> tuple[LineTable, ...]:
        """A schedule written by hand: `kernel file line text` for each instruction."""
        rows = [row.split(maxsplit=3) for row in image.decode().splitlines()]
        if not all(len(row) == 4 for row in rows):
            raise UsageError("not a schedule")
        tables: dict[str, list[Instruction]] = {}
        for kernel, file, number, text in rows:
            found = tables.setdefault(kernel, [])
            frame = Frame(file, int(number), kernel)
            found.append(Instruction(len(found), text, None, None, (frame,)))
        return tuple(
            LineTable(kernel=kernel, target=PRINTER.name, instructions=tuple(found))
            for kernel, found in tables.items()
        )

    def find(self, asked: object) -> Target | None:
        return self.targets.get(str(asked))

    def unsupported(self, asked: object) -> str | None:
        return f"{asked} prints nothing" if str(asked).startswith("printer") else None

    def obstacle(self) -> str | None:
        return None

    def fixed_options(self, target: Target) -> Mapping[str, object]:
        return {"ir_override": None}

    def linked_libraries(self) -> frozenset[str]:
        return frozenset()

    def cluster_problem(self, target: Target, num_ctas: int) -> str | None:
        return "printers have no clusters" if num_ctas > 1 else None

    def pipeline(self, target: Target, options: NativeOptions) -> tuple[Any, ...]:
        return CoalesceAccesses(), AssignLayouts(target), EliminateDeadCode()

    def scratch_bytes(self, op: Operation) -> int:
        return 0

    def lower(
        self, module: Module, options: NativeOptions, target: Target, observers: Observers
    ) -> Lowered:
        function = tt.Func(module.function)
        function.num_warps = options.num_warps
        function.threads_per_warp = target.threads_per_warp
        function.target = target.name
        checks = None
        if options.checks is not None:
            _, checks = add_checks(module, options.checks, on_run=observers.on_run)
        passes = self.pipeline(target, options)
        run_pipeline(module, passes, snapshot=observers.snapshot, on_run=observers.on_run)
        if observers.on_resources is not None:
            observers.on_resources(options.num_warps * target.threads_per_warp, 0)
        text = "".join(f"{line(op)}\n" for op in module.function.walk())
        edited = None if observers.on_stage is None else observers.on_stage("schedule", text)
        return Lowered(module, text if edited is None else edited, options.num_warps, checks)

    def generate(
        self, lowered: Lowered, on_stage: object = None, on_image: object = None
    ) -> Generated:
        return Generated(lowered.module, lowered.schedule, lowered.num_warps, checks=lowered.checks)

    def occupancy(
        self, target: Target, threads: int, registers: int, shared_bytes: int
    ) -> Occupancy:
        return Occupancy(1, 1, target.warps_per_sm, {}, ())

    def stopped_by(self, stop: threading.Event) -> nullcontext[None]:
        return nullcontext()

    def prestart(self) -> None:
        pass


def line(op: Operation) -> str:
    """`tt.load: 2 registers, 16 lanes, 4 warps` for an op that makes a tile."""
    layouts = [encoding_of(result.type) for result in op.results]
    if not layouts or layouts[0] is None:
        return op.name
    counts = (layouts[0].in_size(dim) for dim in (REGISTER, LANE, WARP))
    return "{}: {} registers, {} lanes, {} warps".format(op.name, *counts)


class PaperJams:
    """Dumps of one line: `kernel file line`."""

    def settings(self, folder: Callable[[], str], by_request: bool) -> DumpSettings | None:
        return DumpSettings(f"{folder()}/%p.jam", True, {"PRINTER_DUMPS": "1"})

    def asked_for_by(self) -> str | None:
        return None

    def are_understood(self) -> bool:
        return True

    def expanded(self, pattern: str) -> str:
        return pattern.replace("%p", str(os.getpid()))

    def read(self, path: Path, launches: InFlight | None) -> CrashReport:
        kernel, file, number = path.read_text().split()
        jam = Fault("trap", kernel, (Frame(file, int(number), kernel),), "the paper is jammed")
        return CrashReport("a printer", PRINTER.name, "", (jam,))

    def read_hang(self, path: Path, launches: InFlight, waited: str) -> tuple[Fault, ...]:
        return ()

    def without_dump(self, error: str, launches: InFlight) -> Fault:
        raise AssertionError("every jam leaves paper")

    def error(self) -> str | None:
        return None

    def is_busy(self, device: int, stream: int) -> bool:
        return False


@dataclass(eq=False)
class PrinterPlatform:
    """Remembers launches: grid, stream, arguments."""

    launches: list[tuple[tuple[int, int, int], int, tuple[Any, ...]]] = field(default_factory=list)
    backend: str = "schedule"
    modules: tuple[str, ...] = ()
    crash_dumps: CrashDumps | None = field(default_factory=PaperJams)
    machine_parts: MachineParts = field(default_factory=dict)
    is_announced: bool = False

    def announce_with_torch(self) -> None:
        self.is_announced = True

    def is_there(self) -> bool:
        return True

    def is_likely(self) -> bool:
        return True

    def obstacle(self) -> str | None:
        return None

    def require(self) -> None:
        pass

    def current_target(self) -> GPUTarget:
        return GPUTarget("schedule", PRINTER.name, WARP_SIZE)

    def properties(self, device: int) -> dict[str, int]:
        return {"multiprocessor_count": 1, "warpSize": WARP_SIZE}

    def load_binary(self, name: str, image: bytes, shared_bytes: int, device: int) -> Any:
        return 1, 1, 1, 0, PRINTER.threads_per_block

    def getters(self) -> tuple[Callable[[], int], Callable[[int], int]]:
        # Tensors of the CPU are on its device.
        return (lambda: -1), (lambda device: 7)

    def accessible_address(self, kernel: str, argument: str, value: Any, device: int) -> int:
        return int(value.data_ptr())

    def load(self, kernel: Any) -> LaunchableKernel:
        def submit(x: int, y: int, z: int, stream: int, *arguments: Any) -> None:
            self.launches.append(((x, y, z), stream, arguments))

        return LaunchableKernel(1, 1, 1, 0, PRINTER.threads_per_block, submit)

    def check_memory(self, device: int) -> CheckMemory | None:
        return None

    def span_timer(self, device: int) -> Any:
        raise AssertionError("nothing is timed here")

    def prestart(self) -> None:
        pass
