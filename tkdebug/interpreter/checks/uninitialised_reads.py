"""Tells of memory that is read, or returned, before anything has written it."""

from __future__ import annotations

import torch
from torch import Tensor

from tkdebug.compiler.ir import Module, Operation
from tkdebug.interpreter.buffers import Buffer
from tkdebug.interpreter.faults import FaultLog
from tkdebug.interpreter.observed_access import ObservedAccess
from tkdebug.interpreter.observers import LaunchContext, Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.unwritten import MARKS, bits_type


class UninitialisedReads(Observer):
    """`--check uninitialised-read`."""

    follows_accesses = True
    memory_factor = 4  # index vectors of each access

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults
        self._function = module.function
        # Tensors that nothing has written before the launch, and who stored to them first.
        self._fresh: dict[Buffer, Operation | None] = {}

    def launch_begins(self, launch: LaunchContext) -> None:
        """Note which tensors nothing has written, of those that the kernel may write."""
        for buffer in launch.buffers:
            if launch.written is None or buffer.storage_key in launch.written:
                marked = _marked(buffer)
                if marked is not None and bool(marked.all()):
                    self._fresh[buffer] = None

    def launch_ends(self) -> None:
        """Tell of what was stored to in part only, or not at all without programs."""
        no_programs = 0 in self._faults.grid
        for buffer, stored_by in self._fresh.items():
            op = self._function if no_programs else stored_by
            marked = _marked(buffer)
            if op is None or marked is None or not bool(marked.any()):
                continue
            first = int(marked.reshape(-1).to(torch.uint8).argmax())
            self._faults.left_unwritten(op, buffer, first, int(marked.sum()))

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After a load: whether it gave what nothing has written."""
        if access.loaded is not None:
            self._look_for_marks(access)

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before a store."""
        if self._fresh.get(access.buffer, access.op) is None and not access.is_empty:
            self._fresh[access.buffer] = access.op

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before an atomic: all but an exchange compute with what is there."""
        if access.op.attributes.get("kind") != "xchg":
            self._look_for_marks(access)

    def _look_for_marks(self, access: ObservedAccess) -> None:
        buffer, values = access.buffer, access.loaded
        mark = MARKS.get(buffer.tensor.dtype)
        if mark is None or buffer.itemsize != buffer.tensor.element_size():
            return
        bits = bits_type(buffer.itemsize)
        if values is not None and not bool((values.view(bits) == mark).any()):
            return
        touched = access.touch()
        memory = buffer.flat(buffer.tensor.dtype).view(bits)
        unwritten = (memory[touched.places] == mark).nonzero().reshape(-1)
        if unwritten.numel():
            offender = self._faults.offender(buffer, touched, int(unwritten[0]))
            self._faults.unwritten(access.op, buffer, offender, int(unwritten.numel()))


def _marked(buffer: Buffer) -> Tensor | None:
    """Where a tensor has not been written; None where its type has no mark, or it is empty."""
    mark = MARKS.get(buffer.tensor.dtype)
    if mark is None or not buffer.tensor.numel():
        return None
    return buffer.tensor.view(bits_type(buffer.tensor.element_size())) == mark
