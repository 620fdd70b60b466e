"""Reports fresh tensors that a launch stores to and leaves with gaps that are read.

Whether gaps are read shows later: `gaps` holds the fault back until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import Effects, accessed
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.faults.hints import counted
from tkdebug.compiler.faults.messages import FaultText, named
from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS, has_nan
from tkdebug.interpreter.checks.unwritten.patterns import MARKS, bits_type, is_unwritten, marked
from tkdebug.interpreter.checks.value_sources import LaneSelections
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.memory_usage import pointer_origins
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tiles.values import DescriptorTile, PointerTile, TileValue


class UnwrittenOutputs(Observer):
    """`--check unwritten-output`."""

    is_passive = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults
        self._module = module
        # Tensors that nothing has written before the launch, and who stored to them first.
        self._fresh: dict[Buffer, Operation | None] = {}
        self._stored: list[Buffer] = []
        # Tensors whose gaps were read, and where first.
        self._read: dict[Buffer, Operation] = {}

    def moments(self, op: Operation) -> Moments:
        """Ask to be called before ops that write memory."""
        return Moments.BEFORE if Effects.WRITE in OPS[op.name].effects else Moments.NEVER

    def launch_begins(self, launch: LaunchContext) -> None:
        """Note which tensors nothing has written, and which have gaps of an earlier launch."""
        for buffer in launch.buffers:
            # Held gaps are looked for at reads of this launch only, which cost.
            if HELD_GAPS and HELD_GAPS.use(buffer.tensor):
                self.follows_accesses = True
                self.memory_factor = 4  # index vectors of each access
            if launch.written is None or buffer.storage_key in launch.written:
                self._stored.append(buffer)
                if is_unwritten(buffer.tensor):
                    self._fresh[buffer] = None

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Note the op that stores to a tensor first."""
        place = operands[0].base if isinstance(operands[0], DescriptorTile) else operands[0]
        if isinstance(place, PointerTile):
            if self._fresh.get(place.buffer, op) is None:
                self._fresh[place.buffer] = op
            return
        for buffer, stored_by in self._fresh.items():
            # An address may be of any of them; one that was not written is in the end as it was.
            self._fresh[buffer] = stored_by or op

    def launch_ends(self) -> None:
        """Hold back faults of tensors that were stored to in part only, or not at all.

        A tensor that was not stored to at all is a fault only if something reads it: a launch may
        have nothing to store. The same holds for a workspace, from which the kernel itself loads.
        A grid without programs is usually a mistake.
        """
        for buffer, reader in self._read.items():
            if self._is_used(buffer):
                HELD_GAPS.read_gap(buffer.tensor, self._faults.kernel, reader.location.primary)
        if self._read:
            return  # what was stored may be copies of gaps
        no_programs = 0 in self._faults.grid
        for buffer, stored_by in self._fresh.items():
            if stored_by is not None and self._is_added_to(buffer):
                self._report_added_to(buffer, stored_by)
                continue
            op = (
                self._module.function
                if no_programs
                else stored_by or next(self._accesses_to(buffer, Effects.WRITE), None)
            )
            where = None if op is None else marked(buffer.tensor)
            if op is None or where is None or not bool(where.any()):
                continue
            count = int(where.sum())
            first = int(where.reshape(-1).to(bits_type(1)).argmax())
            # Whether it is a fault shows when something reads the gaps.
            if self._faults.is_reported:
                text = self._text(buffer, first, count)
                is_workspace = any(self._accesses_to(buffer, Effects.READ, Effects.WRITE))
                has_to_be_read = is_workspace or (not no_programs and count == where.numel())
                fault = self._faults.fault(op, text, None, count)
                HELD_GAPS.hold(buffer.tensor, fault, has_to_be_read)

    def _is_added_to(self, buffer: Buffer) -> bool:
        """Whether all writes to a tensor are atomics that compute with what is there."""
        is_alone = [one.storage_key for one in self._stored].count(buffer.storage_key) == 1
        writers = list(self._accesses_to(buffer, Effects.WRITE)) if is_alone else []
        return bool(writers) and all(
            tt.Atomic.matches(op) and not tt.is_exchange(op) for op in writers
        )

    def _report_added_to(self, buffer: Buffer, atomic: Operation) -> None:
        where = marked(buffer.tensor)
        count = buffer.tensor.numel() - (0 if where is None else int(where.sum()))
        if count:
            text = FaultText(
                "unwritten-output",
                f"atomics compute with {count} of the {counted(buffer.tensor.numel())} of "
                f"{named(buffer.name)}, which nothing has written since torch.empty made it",
                "warning",
                buffer.name,
                hint="make it by torch.zeros or the like",
            )
            self._faults.record(atomic, text, count=count)

    def _accesses_to(
        self, buffer: Buffer, effect: Effects, but: Effects = Effects.PURE
    ) -> Iterator[Operation]:
        """Yield ops on an argument's memory that have `effect` and not `but`."""
        names = tt.Func(self._module.function).arg_names
        if buffer.name not in names:
            return
        place, origins = names.index(buffer.name), pointer_origins(self._module)
        for op in self._module.walk():
            effects = OPS[op.name].effects
            if effect in effects and not effects & but and op.operands:
                if place in origins.get(accessed(op), frozenset()):
                    yield op

    def _text(self, buffer: Buffer, first: int, count: int) -> FaultText:
        return FaultText(
            "unwritten-output",
            f"the launch leaves {count} of the {counted(buffer.tensor.numel())} of "
            f"{named(buffer.name)} as torch.empty made them, the first at position {first}",
            "warning",
            buffer.name,
            first,
            hint=(
                f"is the grid, {self._faults.grid}, too small, a mask too narrow, or what reads it "
                "too wide?"
            ),
        )

    def _is_used(self, buffer: Buffer) -> bool:
        """Whether the kernel used a gap that it read, rather than dropping it."""
        if buffer.tensor.dtype.is_floating_point:
            return any(map(_shows_gaps, self._stored))
        return not LaneSelections.of(self._module).any_by_lane

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note a load of a gap that an earlier launch left."""
        if access.loaded is not None:
            self._look_for_gaps(access)

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note an atomic on a gap; an exchange does not use what is there."""
        if not tt.is_exchange(access.op):
            self._look_for_gaps(access)

    def _look_for_gaps(self, access: ObservedAccess) -> None:
        buffer, values = access.buffer, access.loaded
        mark = MARKS.get(buffer.tensor.dtype)
        if mark is None or buffer.itemsize != buffer.tensor.element_size():
            return
        bits = bits_type(buffer.itemsize)
        if values is not None and not bool((values.view(bits) == mark).any()):
            return
        memory = buffer.flat(buffer.tensor.dtype).view(bits)
        if bool((memory[access.touch().places] == mark).any()):
            self._read.setdefault(buffer, access.op)


def _shows_gaps(buffer: Buffer) -> bool:
    """Whether a tensor of floats that was stored to has NaNs, as gaps give unless dropped."""
    return buffer.tensor.dtype.is_floating_point and has_nan(buffer.tensor)
