"""The checks of a launch that cost time and are asked for: races, unwritten memory, NaNs.

Undefined values are asked for here, too, and followed by the evaluator (`undefined`).

Told of every access after its bounds were checked; what it finds goes to the fault log. Knows no
kernel: what the accesses are is the memory ops' to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.faults import FaultLog, Offender
from tkdebug.interpreter.nans import NanTracker
from tkdebug.interpreter.races import Race, RaceDetector, Touched, synchronising_op
from tkdebug.interpreter.unwritten import MARKS, bits_type
from tkdebug.terminal_text import tell

if TYPE_CHECKING:
    from tkdebug.interpreter.state import EvaluatorState

# Modules whose races are not looked for, which is said once.
_announced: set[str] = set()


class Checks:
    """What is looked for in one launch.

    Attributes:
        names: the fault kinds that were asked for.
        nans: told of every op, None when nobody asked.
    """

    def __init__(self, names: Sequence[str], module: Module, faults: FaultLog) -> None:
        self.names = frozenset(names)
        self._faults = faults
        self._function = module.function
        # Tensors that nothing has written before the launch, and who stored to them first.
        self._fresh: dict[Buffer, Operation | None] = {}
        self.nans = NanTracker(faults) if "nan" in self.names else None
        self._races: RaceDetector | None = None
        if "race" in self.names:
            op = synchronising_op(module)
            if op is None:
                self._races = RaceDetector(self._report_race)
            else:
                _announce(faults.kernel, op)

    @staticmethod
    def of(names: Sequence[str], module: Module, faults: FaultLog) -> Checks | None:
        """The checks by the names of their fault kinds; None for no names."""
        return Checks(names, module, faults) if names else None

    def begin(self, buffers: Sequence[Buffer], written: frozenset[int] | None) -> None:
        """The launch begins: what it may write of `buffers`."""
        if "uninitialised-read" not in self.names:
            return
        for buffer in buffers:
            if written is None or buffer.storage_key in written:
                marked = _marked(buffer)
                if marked is not None and bool(marked.all()):
                    self._fresh[buffer] = None

    def finish(self) -> None:
        """The launch has ended: what it stored to in part only, or not at all without programs."""
        no_programs = 0 in self._faults.grid
        for buffer, stored_by in self._fresh.items():
            op = self._function if no_programs else stored_by
            marked = _marked(buffer)
            if op is None or marked is None or not bool(marked.any()):
                continue
            first = int(marked.reshape(-1).to(torch.uint8).argmax())
            self._faults.left_unwritten(op, buffer, first, int(marked.sum()))

    def loaded(
        self,
        state: EvaluatorState,
        op: Operation,
        buffer: Buffer,
        values: Tensor | None,
        touch: Callable[[], Touched],
    ) -> None:
        """After a load: what it gave (None when that is no plain tensor), and from where."""
        if "uninitialised-read" in self.names and values is not None:
            self._look_for_marks(op, buffer, values, touch)
        written = state.written is None or buffer.storage_key in state.written
        if self._races is not None and written:
            self._races.read(op, buffer, touch())

    def stored(
        self,
        op: Operation,
        buffer: Buffer,
        touched: Touched,
        values: Tensor,
        store: Callable[[], None],
    ) -> None:
        """Around a store of `values`, one for each element of `touched`."""
        if self._fresh.get(buffer, op) is None and touched.places.numel():
            self._fresh[buffer] = op
        if self.nans is not None:
            index = touched.places - buffer.storage_offset
            self.nans.stored(op, buffer.name, index, values)
        if self._races is None:
            store()
            return
        bits = bits_type(touched.itemsize)
        memory = buffer.flat(values.dtype).view(bits)
        stored = values.view(bits)
        self._races.write(op, buffer, touched, memory[touched.places] != stored)
        store()
        self._races.overwritten(op, buffer, touched, memory[touched.places] != stored)

    def atomic(self, op: Operation, buffer: Buffer, touched: Touched) -> None:
        """Before an atomic."""
        kind = op.attributes.get("kind")
        if "uninitialised-read" in self.names and kind != "xchg":
            self._look_for_marks(op, buffer, None, lambda: touched)
        if self._races is not None:
            self._races.atomic(op, buffer, touched)

    def _look_for_marks(
        self, op: Operation, buffer: Buffer, values: Tensor | None, touch: Callable[[], Touched]
    ) -> None:
        mark = MARKS.get(buffer.tensor.dtype)
        if mark is None or buffer.itemsize != buffer.tensor.element_size():
            return
        bits = bits_type(buffer.itemsize)
        if values is not None and not bool((values.view(bits) == mark).any()):
            return
        touched = touch()
        memory = buffer.flat(buffer.tensor.dtype).view(bits)
        unwritten = (memory[touched.places] == mark).nonzero().reshape(-1)
        if unwritten.numel():
            offender = self._offender(op, buffer, touched, int(unwritten[0]))
            self._faults.unwritten(op, buffer, offender, int(unwritten.numel()))

    def _report_race(self, op: Operation, buffer: Buffer, touched: Touched, race: Race) -> None:
        offender = self._offender(op, buffer, touched, race.first)
        self._faults.race(op, buffer, offender, race)

    def _offender(self, op: Operation, buffer: Buffer, touched: Touched, at: int) -> Offender:
        index = int(touched.places[at]) - buffer.storage_offset
        shape = touched.shape
        lane, rest = [], int(touched.lanes[at])
        for extent in reversed(shape):
            lane.append(rest % extent)
            rest //= extent
        program = self._faults.program_at(int(touched.programs[at]))
        return Offender(program, tuple(reversed(lane)), index)


def _marked(buffer: Buffer) -> Tensor | None:
    """Where a tensor has not been written; None where its type has no mark, or it is empty."""
    mark = MARKS.get(buffer.tensor.dtype)
    if mark is None or not buffer.tensor.numel():
        return None
    return buffer.tensor.view(bits_type(buffer.tensor.element_size())) == mark


def _announce(kernel: str, op: Operation) -> None:
    if kernel in _announced:
        return
    _announced.add(kernel)
    place = op.location.primary
    tell(
        f"{kernel}: its programs may wait for each other at {place.file}:{place.line}; "
        "races are not looked for in it"
    )
