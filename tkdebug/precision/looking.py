"""Launches that are looked at: some of their programs run in fp64 beside themselves, on copies.

Invariant: the script's memory is read and never written, and a launch runs as it would have.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.causes.rerun import Budget, Deadline, OutOfTimeError, on_one_thread
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import DotLike
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.errors import TkError
from tkdebug.interpreter.arguments import Arguments, device_of
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.launch import Batches
from tkdebug.interpreter.memory.host_views import host_view, memory_of
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.plan import Prepared
from tkdebug.interpreter.replay import Replayable
from tkdebug.interpreter.tiles.side_by_side import sides_of
from tkdebug.interpreter.torch_state import apart_from_the_script
from tkdebug.precision.beside import Beside, is_float
from tkdebug.precision.findings import kernel_numerics
from tkdebug.precision.measured import KernelNumerics
from tkdebug.precision.memory_beside import Accesses, MemoryBeside, WrittenElements
from tkdebug.precision.op_errors import OpErrors, OpSources, Place, place_of
from tkdebug.precision.references import Answers, Reference, UnfitReferenceError
from tkdebug.runtime.arguments.specialize import runtime_values
from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.tiles.values import TileValue
    from tkdebug.records.events import LaunchRecord
    from tkdebug.runtime.launch.requests import Grid

# Programs of a launch that are looked at, where not all are: fewer of those with large tiles.
SAMPLED, _FEWEST, _SAMPLED_BYTES = 8, 3, 3 << 18
# Live bytes of programs that run at once, where not all do.
_SMALL_BYTES = 4 << 20
_EXACT_BYTES = 256 << 20
# The most lines for which the error with fp32 is measured, too.
_MOST_TRIED = 6


class Looker:
    """Looks at interpreted launches before they run; a `LaunchDebugger` that debugs none.

    Args:
        kernels: a pattern of the names of kernels; None for all.
        launches: how many of each kernel are looked at.
        whole: whether all programs of a launch are.
        seconds: the seconds of processor time for each launch.
        reference: says what outputs should be; None for nothing.

    Attributes:
        found: what was measured, in the order of launches.
        unfit: why the reference could not be used, "" if it could.
    """

    def __init__(
        self,
        kernels: str | None,
        launches: int = 1,
        whole: bool = False,
        seconds: float = 10.0,
        reference: Reference | None = None,
    ) -> None:
        self._pattern = kernels
        self._launches = launches
        self._whole = whole
        self._seconds = seconds
        self._reference = reference
        self._seen: dict[str, int] = {}
        self.unfit = ""
        self.found: list[KernelNumerics] = []

    def launch(
        self, kernel: object, grid: Grid, values: tuple[Any, ...], record: LaunchRecord | None
    ) -> bool:
        """Look at a launch that is about to run, and leave it to run."""
        assert isinstance(kernel, InterpretedKernel)
        name = kernel.name
        if self._pattern is not None and not fnmatchcase(name, self._pattern):
            return False
        count = self._seen[name] = self._seen.get(name, 0) + 1
        if count > self._launches:
            return False
        launch_id = count if record is None else record.id
        answers: Answers | None = None
        notes = []
        if self._reference is not None:
            named = dict(zip(kernel.src.fn.arg_names, values, strict=True))
            try:
                answers = Answers.of(self._reference, named)
            except UnfitReferenceError as error:
                self.unfit = str(error)
                notes.append(self.unfit)
        found = look(kernel, grid, values, launch_id, self._whole, self._seconds, answers)
        if answers is not None and answers.unfit:
            self.unfit = answers.unfit
            notes.append(answers.unfit)
        self.found.append(replace(found, notes=(*notes, *found.notes)))
        return False


def look(
    kernel: InterpretedKernel,
    grid: Grid,
    values: Sequence[Any],
    launch_id: int,
    whole: bool,
    seconds: float,
    answers: Answers | None = None,
) -> KernelNumerics:
    """Run programs of a launch with every float also in fp64; return the measured errors.

    Args:
        kernel: the kernel that is launched.
        grid: programs along x, y, z.
        values: one for each parameter of the kernel's function.
        launch_id: the id of its record.
        whole: whether all programs run.
        seconds: the seconds of processor time; programs that have not begun by then are left out.
        answers: the answers of a reference; None without one.
    """
    module, total = kernel.module, math.prod(grid)
    begun = time.thread_time()
    obstacle = _obstacle(module)
    look_at = _Look(kernel, grid, values)
    notes = [obstacle] if obstacle else []
    ran = 0
    if not obstacle:
        with on_one_thread():
            ran, ended = look_at.run(_chosen(module, total, whole), Budget(seconds))
        if ended:
            notes.append(f"{ran} programs ran until {seconds:g} s of processor time were over")
    return kernel_numerics(
        kernel.name,
        launch_id,
        grid,
        (ran, total),
        look_at.errors,
        look_at.written(answers),
        [*notes, *look_at.left_out()],
        time.thread_time() - begun,
    )


class _ExactValues(Observer):
    """Notes some floats of one program as they would be in fp64.

    Args:
        wanted: the values of the IR that are noted.

    Attributes:
        found: by value, the tile of each time that it was computed.
        is_whole: whether there was room for all tiles.
    """

    is_passive = True
    needs_intermediates = True

    def __init__(self, wanted: frozenset[Value]) -> None:
        self._wanted = wanted
        self._left = _EXACT_BYTES
        self.found: dict[Value, list[Tensor]] = {}
        self.is_whole = True

    def moments(self, op: Operation) -> Moments:
        """Ask for the moment after ops that give the values."""
        gives = any(value in self._wanted for value in op.results)
        return Moments.AFTER if gives else Moments.NEVER

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """Note the results."""
        if run.active is None or bool(run.active[0]):
            for value, result in zip(op.results, results, strict=True):
                if value in self._wanted:
                    tile = sides_of(result).in_fp64(run, value.type)[0]
                    self._left -= tile.numel() * tile.element_size()
                    self.is_whole = self._left >= 0
                    if self.is_whole:
                        tile = tile.expand(ir.shape_of(value.type))
                        self.found.setdefault(value, []).append(tile)
        return results


def exact_values(
    module: Module,
    wanted: frozenset[Value],
    values: Sequence[Any],
    grid: Grid,
    program: int,
    seconds: float,
) -> dict[Value, list[Tensor]]:
    """Return the values of one program's floats in fp64, one tile for each time; {} if unknown.

    Args:
        module: Tile IR of the kernel.
        wanted: the floats, of ops of it that are no loops or branches.
        values: as the interpreter takes them; what they hold is left as it is.
        grid: programs along x, y, z.
        program: linear number.
        seconds: the seconds of processor time.
    """
    if _obstacle(module):
        return {}
    exact, accesses = _ExactValues(wanted), Accesses()
    observers = [accesses, Deadline(Budget(seconds)), exact]
    with on_one_thread(), apart_from_the_script(device_of(values)):
        moved, keys = _on_copies(module, values)
        log = FaultLog("", 0, grid, is_reported=False)
        launch = Batches(module, moved, grid, log, None, observers)
        beside = Beside(module, OpErrors(), MemoryBeside(accesses, keys))
        launch.plan, launch.fusion = beside.plan(launch.plan), Fusion()
        try:
            launch.run_chosen([program])
        except (OutOfTimeError, TkError):
            return {}
    return exact.found if exact.is_whole and not beside.unfollowed else {}


def _obstacle(module: Module) -> str:
    """Return the reason why launches of a kernel cannot be looked at, or "" if they can."""
    prepared = Prepared.of(module)
    if prepared.spin_loops:
        return "its programs wait for each other; it was not looked at"
    if prepared.written is None:
        return "it writes to memory that is no argument; it was not looked at"
    if not any(is_float(value.type) for op in module.walk() for value in op.results):
        return "it computes no floats"
    return ""


def _chosen(module: Module, total: int, whole: bool) -> Sequence[int]:
    """The numbers of the programs that run: all, or some, the first and the last among them."""
    count = _SAMPLED_BYTES // Prepared.of(module).bytes_per_program
    count = max(_FEWEST, min(SAMPLED, count))
    if whole or total <= count:
        return range(total)
    return [place * (total - 1) // (count - 1) for place in range(count)]


class Written:
    """A tensor of floats that programs wrote, and what it would be on each side.

    Attributes:
        name: the name of the parameter.
        dtype: the dtype of its elements.
        elements: the elements that were written.
        expected: what a reference says of these elements; None without one.
    """

    def __init__(self, elements: WrittenElements) -> None:
        self.elements = elements
        self.name = str(elements.buffer.name)
        self.dtype = elements.buffer.tensor.dtype
        self.expected: Tensor | None = None

    def compare(self, answers: Answers, others: int) -> None:
        """Set `expected` by a reference, if its answer fits; `others` counts the other outputs."""
        buffer = self.elements.buffer
        answer = answers.fitting(self.name, buffer.tensor, others)
        if answer is not None:
            tensor = buffer.tensor
            flat = torch.full(buffer.flat(self.dtype).shape, torch.nan, dtype=torch.float64)
            own = flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            own.copy_(host_view(answer))
            places = self.elements.places
            self.expected = flat[places.cpu()].to(places.device)


class _Look:
    """A launch whose programs run in fp64 beside their own types, on copies of memory."""

    def __init__(self, kernel: InterpretedKernel, grid: Grid, values: Sequence[Any]) -> None:
        self._kernel, self._grid = kernel, grid
        self._given = runtime_values(kernel.src.specs, values)
        self.errors = OpErrors(
            OpSources.of(kernel.module), frozenset(_narrow_places(kernel.module))
        )
        self._memory: MemoryBeside | None = None
        self._beside: Beside | None = None

    def run(self, programs: Sequence[int], budget: Budget) -> tuple[int, bool]:
        """Run programs; return how many ran, and whether time ended before all had."""
        module, ran = self._kernel.module, 0
        log = FaultLog(self._kernel.name, 0, self._grid, is_reported=False)
        accesses = Accesses()
        observers = [accesses, Deadline(budget)]
        with apart_from_the_script(device_of(self._given)):
            values, keys = _on_copies(module, self._given)
            launch = Batches(module, values, self._grid, log, None, observers)
            self._memory = MemoryBeside(accesses, keys)
            beside = self._beside = Beside(module, self.errors, self._memory)
            launch.plan, launch.fusion = beside.plan(launch.plan), Fusion()
            size = launch.size
            if len(programs) < launch.total:
                # Batches are small, as those that ended in time are shown.
                size = max(1, _SMALL_BYTES // launch.prepared.bytes_per_program)
            for begin in range(0, len(programs), size):
                if ran and budget.used() >= 1:
                    return ran, True
                some = programs[begin : begin + size]
                try:
                    launch.run_chosen(some)
                except OutOfTimeError:
                    return ran, True
                ran += len(some)
        return ran, False

    def written(self, answers: Answers | None) -> list[Written]:
        """Return the written float tensors, compared with `answers` if given; [] before `run`."""
        if self._memory is None:
            return []
        found = [Written(each) for each in self._memory.written()]
        if answers is not None:
            for each in found:
                each.compare(answers, len(found) - 1)
        return found

    def left_out(self) -> list[str]:
        """Say which lines are not followed in fp64."""
        if self._beside is None:
            return []
        found: dict[tuple[Place, str], None] = {}
        for op, why in self._beside.unfollowed.items():
            found[place_of(op), why] = None
        return [f"line {place.line}: {why}" for place, why in found]


def _narrow_places(module: Module) -> list[Place]:
    """The first lines that compute in less than fp32: in narrow floats, or dots in tf32."""
    found = dict.fromkeys(place_of(op) for op in module.walk() if _is_less_than_fp32(op))
    return list(found)[:_MOST_TRIED]


def _is_less_than_fp32(op: Operation) -> bool:
    if tt.Load.matches(op) or tt.DescriptorLoad.matches(op):
        return False
    dot = DotLike.cast(op)
    if dot is not None and ir.element_of(dot.a.type) == ir.F32:
        return dot.input_precision in (None, "tf32")
    return any(is_float(value.type) and ir.element_of(value.type).bits < 32 for value in op.results)


def _on_copies(module: Module, values: Sequence[Any]) -> tuple[list[Any], frozenset[int] | None]:
    """Return values with copies of the allocations that the kernel writes, and those it may read.

    The latter are addresses, None for any. Copies of allocations that it does not read are
    uninitialised.
    """
    prepared = Prepared.of(module)
    arguments = Arguments(module, values, prepared.names, prepared.written)
    written, places = arguments.written, Replayable.of(module).reads
    assert written is not None
    read = None
    if places is not None:
        read = frozenset(buffer.storage_key for buffer in arguments.buffers_of(places))
    own: dict[int, torch.UntypedStorage] = {}

    def moved(value: Any) -> Any:
        if isinstance(getattr(value, "base", None), Tensor):
            described = copy.copy(value)
            described.base = moved(value.base)
            return described
        if not isinstance(value, Tensor):
            return value
        tensor = host_view(value).detach()
        storage = memory_of(tensor.untyped_storage())
        address = storage.data_ptr()
        if address not in written:
            return value
        if address not in own:
            whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            is_read = read is None or address in read
            own[address] = (whole.clone() if is_read else torch.empty_like(whole)).untyped_storage()
        out = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return out.set_(own[address], tensor.storage_offset(), tensor.shape, tensor.stride())

    moved_values = [moved(value) for value in values]
    if read is not None:
        read = frozenset(own[key].data_ptr() if key in own else key for key in read)
    return moved_values, read
