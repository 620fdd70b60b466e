"""Reports programs of one launch that touch the same memory in no certain order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.faults.messages import FaultText, access_verb, named, place_of
from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.checks.races.detector import Race, RaceDetector, contents
from tkdebug.interpreter.checks.races.happens_before import (
    HappensBefore,
    Synchronisation,
    is_silent_flag,
)
from tkdebug.interpreter.checks.unwritten.patterns import bits_type
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.memory.touched import Touched
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer
from tkdebug.interpreter.scheduler import Scheduler
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tiles.values import TileValue

_SUMS = ("add", "fadd")
# How often a launch stops programs at an op that publishes: each stop may take a thread.
_MOST_STOPS = 4
# For programs that take a lock: the one that holds it makes the others wait.
_MOST_STOPS_OF_LOCKS = 2


class RaceCheck(Observer):
    """`--check race`."""

    follows_accesses = True
    memory_factor = 2  # index vectors where an access is no strided view
    is_passive = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults
        self._synchronisation = Synchronisation.of(module)
        self._order: HappensBefore | None = None
        # By program: how often it has released something to others.
        self._published: Counter[int] = Counter()
        self._stops: Counter[Operation] = Counter()
        # Where the store that is under way changes memory.
        self._brings: Tensor | None = None
        self._detector = RaceDetector(self._report, 1, {}, None)

    def moments(self, op: Operation) -> Moments:
        """Ask to be called before fences; accesses are followed."""
        return Moments.BEFORE if op in self._synchronisation.fences else Moments.NEVER

    def launch_begins(self, launch: LaunchContext) -> None:
        """Make the detector, and an order of programs if they synchronise."""
        programs = math.prod(launch.grid)
        if self._synchronisation.meanings and programs > 1:
            self._order = HappensBefore(programs)
        self._detector = RaceDetector(
            self._report, programs, self._synchronisation.meanings, self._order
        )

    def launch_ends(self) -> None:
        """Compare the accesses of the launch."""
        self._detector.launch_ends()

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Add a fence to the order of the active programs."""
        if self._order is not None:
            here = torch.arange(run.programs, device=run.device)
            here = here if run.active is None else here[run.active]
            self._order.fence((here + run.first).tolist())

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Record a load; loads from memory that the kernel does not write are left out."""
        if run.written is not None and access.buffer.storage_key not in run.written:
            return
        synchronises = access.op in self._synchronisation.meanings
        if not (synchronises and is_silent_flag(access.op)):
            self._detector.read(access)
        if synchronises:
            self._synchronise(run, access, None)

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Record a store before it changes memory."""
        self._detector.write(access, run.first)
        if self._order is not None and access.op in self._synchronisation.meanings:
            old, new = contents(access)
            self._brings = old != new

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Record the order that a store makes, as it may be a flag."""
        if access.op in self._synchronisation.meanings:
            self._synchronise(run, access, self._brings)

    def atomic_done(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Record an atomic: its access, and the order that it makes."""
        changed = _changed(access)
        self._detector.atomic(access, changed)
        if access.op in self._synchronisation.meanings:
            if changed is None:
                changed = torch.ones_like(access.touch().places, dtype=torch.bool)
            self._synchronise(run, access, changed)

    def _synchronise(
        self, run: EvaluatorState, access: ObservedAccess, changed: Tensor | None
    ) -> None:
        if self._order is None:
            return
        touched = access.touch()
        self._order.synchronise(
            access.op,
            self._synchronisation.meanings[access.op],
            access.buffer.storage_key,
            touched.places * touched.itemsize,
            touched.programs,
            changed,
        )
        if run.scheduler is not None and changed is not None and bool(changed.any()):
            self._let_others_come_between(run.scheduler, access.op, run.first)

    def _let_others_come_between(self, scheduler: Scheduler, op: Operation, program: int) -> None:
        """Let some programs step aside here, so that others see their work half done.

        Other programs may act by how far a program has come; run one after the other, they would
        never see it half done.
        """
        self._published[program] += 1
        most = _MOST_STOPS_OF_LOCKS if tt.AtomicCas.matches(op) else _MOST_STOPS
        if (self._published[program] + program) % 2 == 0 and self._stops[op] < most:
            self._stops[op] += 1
            scheduler.step_aside()

    def _report(self, op: Operation, buffer: Buffer, touched: Touched, race: Race) -> None:
        offender = self._faults.offender(buffer, touched, race.first)
        text = race_text(self._faults, op, buffer, offender, race)
        self._faults.record(op, text, offender, race.count)


def race_text(
    log: FaultLog, op: Operation, buffer: Buffer, offender: Offender, race: Race
) -> FaultText:
    """Return the text of a race.

    Args:
        log: the log of the launch.
        op: the access at which it is reported.
        buffer: the buffer that it accesses.
        offender: the element.
        race: what the other program did there.
    """
    other = "another element of the same tile"
    if race.other is not None:
        other = f"program {log.program_at(race.other)}"
    where = "here too" if race.other_op is op else f"at {place_of(race.other_op, op)}"
    hint = race.hint
    if race.through is not None:
        offset = _offset_in(race.through, buffer, offender.index or 0)
        where += f" as offset {offset} of {named(race.through.name)}"
        hint = _alias_hint(log, buffer, race.through)
    message = (
        f"{access_verb(op)} offset {offender.index} of {named(buffer.name)}, which {other} "
        f"{race.did} {where}, in no certain order"
    )
    return FaultText("race", message, tensor=buffer.name, index=offender.index, hint=hint)


def _offset_in(tensor: Buffer, buffer: Buffer, index: int) -> int:
    """Return the offset in `tensor` of an element of `buffer`, which shares its memory."""
    return (buffer.address + index * buffer.itemsize - tensor.address) // tensor.itemsize


def _alias_hint(log: FaultLog, buffer: Buffer, other: Buffer) -> str:
    """Return the fix for programs that race because two arguments share memory."""
    sizes = {tensor.hull_elems * tensor.itemsize for tensor in (buffer, other)}
    is_same = buffer.address == other.address and len(sizes) == 1
    what = "are the same memory" if is_same else "overlap in memory"
    launch = f"launch {log.launch_id}" if log.launch_id else "this launch"
    return (
        f"{named(buffer.name)} and {named(other.name)} {what} in {launch}, of grid {log.grid}: "
        "pass a tensor of its own for one of them; was a copy left out that the kernel counts on?"
    )


def _changed(access: ObservedAccess) -> Tensor | None:
    """Return where an atomic changed the value; None for everywhere, or if that is not known.

    Atomics on one element run one after the other: the new value of each but the last is the old
    value of the next.
    """
    rmw, old, touched = tt.AtomicRmw.cast(access.op), access.loaded, access.touch()
    is_blind = rmw is not None and rmw.kind in _SUMS and not rmw.result.uses
    if old is None or is_blind or not tt.Atomic.matches(access.op):
        return None  # Sums that nobody looks at are not taken one by one.
    bits = bits_type(touched.itemsize)
    before, after = old.view(bits), access.buffer.flat(old.dtype).view(bits)[touched.places]
    if before.shape[0] == 1:
        return before != after
    places, order = torch.sort(touched.places, stable=True)
    before, after = before[order], after[order]
    after[:-1] = torch.where(places[1:] == places[:-1], before[1:], after[:-1])
    changed = torch.empty_like(order, dtype=torch.bool)
    changed[order] = before != after
    return changed
