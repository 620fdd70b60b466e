"""Runs a compiled module over a grid in batches that fit the memory budget.

Batches go in program order. Programs that wait for each other (spin locks) run one at a time, and
tkdebug says so once per kernel. Invariant: a launch leaves no reference to its tensors.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch

from tkdebug.compiler.ir import DescriptorType, Module, Operation, PointerType, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.errors import LaunchError
from tkdebug.events import HOOKS, Fault, LaunchProgress, LaunchRecord
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.checks import Checks
from tkdebug.interpreter.evaluator import Evaluator, Plan
from tkdebug.interpreter.faults import FaultLog
from tkdebug.interpreter.footprint import live_bytes_per_program, written_arguments
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.torch_state import apart_from_the_script
from tkdebug.interpreter.turns import Turns
from tkdebug.interpreter.values import AddressTile, DescriptorTile, PointerTile, TileValue
from tkdebug.interpreter.waiting import waiting_loops
from tkdebug.knobs import KNOBS

Grid = tuple[int, int, int]
_FLOAT_DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
# Batches larger than this only fall out of the caches.
_CACHE_FRIENDLY_BYTES = 64 << 20
# Checks hold several index vectors of each access.
_CHECKED_BYTES_FACTOR = 4
# Live bytes of a batch up to which torch works on one thread: a dot of 128 x 128 x 128 fits.
_ONE_THREAD_BYTES = 1 << 20
_PROGRESS_EVERY_NS = 100_000_000


class Prepared:
    """What is worked out once per module: the plan of its blocks, its footprint, its writes."""

    def __init__(self, module: Module) -> None:
        self.fusion = Fusion.of(module)
        self.bytes_per_program = live_bytes_per_program(module)
        self.written = written_arguments(module)
        self.waiting_loops = waiting_loops(module)
        self.plan = Plan(counts_changes=bool(self.waiting_loops))
        self.names = _argument_names(module)
        self.announced = False

    @classmethod
    def of(cls, module: Module) -> Prepared:
        """That of a module, made when it is first asked for."""
        prepared = module.derived.get(cls)
        if prepared is None:
            prepared = module.derived[cls] = cls(module)
        assert isinstance(prepared, cls)
        return prepared


def _argument_names(module: Module) -> tuple[str, ...]:
    names = module.function.attributes.get("arg_names", ())
    assert isinstance(names, tuple)
    return tuple(str(name) for name in names)


def run_module(
    module: Module,
    values: Sequence[Any],
    grid: Grid,
    record: LaunchRecord | None = None,
    kernel_name: str | None = None,
) -> list[Fault]:
    """Run a module's kernel for every program of `grid`.

    Args:
        module: Tile IR or GPU IR, as it stands after any pass; not changed since it was first run.
        values: one per block argument: tensors for pointers, numbers for scalars, a tensor
            descriptor followed by its shape and strides.
        grid: programs along x, y, z.
        record: the launch being recorded, if any.
        kernel_name: how faults name the kernel.

    Returns:
        The faults, which were also handed to the hooks.
    """
    prepared = Prepared.of(module)
    name = kernel_name or module.name
    launch_id = record.id if record is not None else 0
    faults = FaultLog(name, launch_id, grid)
    with apart_from_the_script(_device_of(values)), ExitStack() as stack:
        arguments = _Arguments(module, prepared, values)
        total = grid[0] * grid[1] * grid[2]
        checks = Checks.of(KNOBS.checks, module, faults)
        if checks is not None:
            checks.begin(arguments.buffers, arguments.written)
        size = _batch_size(prepared, grid, 1 if checks is None else _CHECKED_BYTES_FACTOR)
        if prepared.waiting_loops:
            if total > 1:
                _announce_sequential(prepared, name)
            size = 1
        stack.enter_context(_threads_for(prepared.bytes_per_program * size))
        report = _progress_reporter(record, name, total)

        def run_batch(first: int) -> None:
            evaluator = Evaluator(
                prepared.plan,
                # Who follows NaNs needs every op's operands and result.
                Fusion() if checks is not None and checks.nans else prepared.fusion,
                grid,
                first,
                min(size, total - first),
                arguments.device,
                faults,
                arguments.written,
                arguments.buffers,
                strict_ieee=KNOBS.strict_ieee,
                checks=checks,
                turns=turns,
            )
            try:
                evaluator.run_kernel(module.function, arguments.values)
            finally:
                evaluator.release()
            if report is not None:
                report(min(first + size, total))

        turns = None
        if prepared.waiting_loops:
            turns = Turns(prepared.waiting_loops, total, run_batch, arguments.device)
        try:
            if turns is not None:
                turns.run()
            else:
                for first in range(0, total, size):
                    run_batch(first)
            if checks is not None:
                checks.finish()
        except KeyboardInterrupt as error:
            _tell_interrupted(name, error, turns)
            raise
        finally:
            turns = None  # which holds what holds it
            published = faults.publish()
    return published


@contextmanager
def _threads_for(batch_bytes: int) -> Iterator[None]:
    """One thread of torch for small batches.

    Waking the others and waiting for all of them saves nothing there, and takes milliseconds where
    the machine has other work.
    """
    threads = torch.get_num_threads()
    if threads == 1 or batch_bytes > _ONE_THREAD_BYTES:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _batch_size(prepared: Prepared, grid: Grid, factor: int) -> int:
    """Programs per batch: within the budget, cache friendly, whole grid rows where possible."""
    total = grid[0] * grid[1] * grid[2]
    budget = int(KNOBS.memory_budget_bytes)
    bytes_per_program = prepared.bytes_per_program * factor
    limit = min(budget, max(_CACHE_FRIENDLY_BYTES, bytes_per_program))
    size = max(1, limit // bytes_per_program)
    if size >= total:
        return total
    for unit in (grid[0] * grid[1], grid[0]):
        if unit > 1 and size >= unit:
            return size // unit * unit
    return size


def _announce_sequential(prepared: Prepared, name: str) -> None:
    if prepared.announced:
        return
    prepared.announced = True
    where = prepared.waiting_loops[0].location.primary
    print(
        f"tkdebug: {name}: programs wait for each other at {where.file}:{where.line}; "
        "running them one after the other",
        file=sys.stderr,
    )


def _tell_interrupted(name: str, error: KeyboardInterrupt, turns: Turns | None) -> None:
    """Say which line was running: of a loop that does not end the traceback shows nothing."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    running = _running_ops(frames)
    if not running and turns is not None:
        # Another thread's, whose innermost frame comes first.
        frame = turns.interrupted
        frames = []
        while frame is not None:
            frames.insert(0, frame)
            frame = frame.f_back
        running = _running_ops(frames)
    if not running:
        return
    place = running[-1].location.primary
    loops = [op.location.primary for op in running if op.name in ("scf.for", "scf.while")]
    where = f", in the loop at line {loops[-1].line}" if loops else ""
    print(
        f"tkdebug: {place.file}:{place.line}: {name} was interrupted here{where}", file=sys.stderr
    )


def _running_ops(frames: Sequence[FrameType]) -> list[Operation]:
    """The ops that are run in `frames`, outermost first."""
    ops = [
        frame.f_locals.get("op") for frame in frames if frame.f_code is Evaluator.run_block.__code__
    ]
    return [op for op in ops if isinstance(op, Operation)]


def _progress_reporter(
    record: LaunchRecord | None, name: str, total: int
) -> Callable[[int], None] | None:
    if record is None or not HOOKS.wants_progress():
        return None
    started_ns = last_ns = time.perf_counter_ns()

    def report(done: int) -> None:
        nonlocal last_ns
        now_ns = time.perf_counter_ns()
        if now_ns - last_ns < _PROGRESS_EVERY_NS and done < total:
            return
        last_ns = now_ns
        HOOKS.progress(LaunchProgress(record.id, name, done, total, now_ns - started_ns))

    return report


class _Arguments:
    """Block arguments as tile values, the buffers behind them, and what may be written."""

    def __init__(self, module: Module, prepared: Prepared, values: Sequence[Any]) -> None:
        self.device = _device_of(values)
        block = module.function.regions[0].block
        self.buffers: list[Buffer] = []
        self._owners: list[int] = []
        self.values: list[TileValue] = []
        rest = list(zip(block.arguments, values, prepared.names, strict=True))
        for place, (argument, value, name) in enumerate(rest):
            self.values.append(self._tile(argument.type, value, name, place, values))
        self.written = self._written_storages(prepared.written)

    def _tile(
        self, type_: Type, value: Any, name: str, place: int, values: Sequence[Any]
    ) -> TileValue:
        if isinstance(type_, PointerType):
            return self._pointer(type_, value, name, place)
        if isinstance(type_, DescriptorType):
            return self._descriptor(type_, value, name, place, values)
        element = ir.element_of(type_)
        assert isinstance(element, ir.ScalarType)
        if element.is_integer:
            return _signless(int(value), element.bits)
        return torch.full((1,), float(value), dtype=_FLOAT_DTYPES[str(element)], device=self.device)

    def _pointer(self, type_: PointerType, value: Any, name: str, place: int) -> TileValue:
        if value is None:
            return AddressTile(0, (), max(1, type_.pointee.bits // 8))
        if not isinstance(value, torch.Tensor):
            return AddressTile(int(value.data_ptr()), (), max(1, type_.pointee.bits // 8))
        if value.is_meta:
            raise LaunchError(
                f"argument `{name}` is a meta tensor, which has no memory; pass one of a device"
            )
        buffer = Buffer(value.detach(), name)
        self.buffers.append(buffer)
        self._owners.append(place)
        return PointerTile(buffer, 0)

    def _descriptor(
        self, type_: DescriptorType, value: Any, name: str, place: int, values: Sequence[Any]
    ) -> TileValue:
        rank = len(type_.block.shape)
        element = type_.block.element
        assert isinstance(element, ir.ScalarType)
        base = self._pointer(PointerType(element), value.base, name, place)
        assert isinstance(base, PointerTile | AddressTile)
        shape = [int(v) for v in values[place + 1 : place + 1 + rank]]
        strides = [int(v) for v in values[place + 1 + rank : place + 1 + 2 * rank]]
        padding = str(getattr(value, "padding", "zero"))
        return DescriptorTile(base, shape, strides, padding)

    def _written_storages(self, written: frozenset[int] | None) -> frozenset[int] | None:
        if written is None:
            return None
        keys = {
            buffer.storage_key
            for buffer, owner in zip(self.buffers, self._owners, strict=True)
            if owner in written
        }
        stored_to = [buffer for buffer in self.buffers if buffer.storage_key in keys]
        for buffer in self.buffers:
            # Storages made from foreign memory (numpy, dlpack) may overlap.
            if buffer.storage_key not in keys and any(map(buffer.overlaps, stored_to)):
                keys.add(buffer.storage_key)
        return frozenset(keys)


def _device_of(values: Sequence[Any]) -> torch.device:
    """Where the first tensor's memory is; the CPU when there is none."""
    for value in values:
        tensor = getattr(value, "base", value)
        if isinstance(tensor, torch.Tensor):
            # What a tensor says of its device may be the stand-in's word; its storage's is true.
            return tensor.untyped_storage().device
    return torch.device("cpu")


def _signless(value: int, bits: int) -> int:
    if bits == 1:
        return value & 1
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
