"""Batches that are run again, for observers that want to see each op of some of them only.

A batch can be run again if that gives the same: its programs compare nothing with a clock and wait
for nobody, nobody alters their values, and memory that they read is as it was. Memory that they
both read and write is saved before each batch; a batch whose memory is too large for that is not
run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import Effects, accessed
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import DescriptorType, Module, Operation, PointerType
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import fact_of
from tkdebug.interpreter.arguments import Arguments
from tkdebug.interpreter.memory_usage import pointer_origins, written_arguments
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.scheduler import spin_loops
from tkdebug.interpreter.tiles.values import AddressTile

_EFFECTS = Effects.READ | Effects.WRITE | Effects.TERMINATOR
# Saved bytes may be this part of a batch's live bytes.
_SAVED_PART = 4


@dataclass(frozen=True, slots=True)
class Replayable:
    """Facts about replaying that are known of a module before its launches.

    Attributes:
        is_possible: whether its ops give the same when they run again.
        reads: positions of the parameters that it may read through, None for any memory.
    """

    is_possible: bool
    reads: frozenset[int] | None

    @classmethod
    def of(cls, module: Module) -> Replayable:
        """Return the facts of a module, found when they are first asked for."""
        return fact_of(module, cls, lambda m: cls(_is_possible(m), read_arguments(m)))


def _is_possible(module: Module) -> bool:
    names = {op.name for op in module.walk()}
    return all(OPS[name].is_repeatable or OPS[name].effects in _EFFECTS for name in names)


def read_arguments(
    module: Module, counts: Callable[[Operation], bool] = lambda op: True
) -> frozenset[int] | None:
    """Return positions of the parameters read by ops that `counts` accepts; None for any memory."""
    origins = pointer_origins(module)
    read: set[int] = set()
    for op in module.walk():
        if Effects.READ in OPS[op.name].effects and op.operands and counts(op):
            pointer = accessed(op)
            is_pointer = isinstance(ir.element_of(pointer.type), PointerType)
            if is_pointer or isinstance(pointer.type, DescriptorType):
                read |= origins.get(pointer, frozenset([-1]))
    return None if -1 in read else frozenset(read)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters through which a kernel reads and writes memory, if all of it is known.

    Attributes:
        read: their positions, without parameters that are used for atomic sums alone.
        written: positions.
    """

    read: frozenset[int]
    written: frozenset[int]

    @classmethod
    def of(cls, module: Module) -> Parameters | None:
        """Return a module's parameters, or None.

        It is None if they are unknown, or if programs cannot be run again or wait for others.
        """
        if cls not in module.derived:
            read, written = read_arguments(module, _is_of_consequence), written_arguments(module)
            is_known = Replayable.of(module).is_possible and not spin_loops(module)
            known = None if read is None or written is None or not is_known else cls(read, written)
            module.derived[cls] = known
        found = module.derived[cls]
        assert found is None or isinstance(found, cls)
        return found


def _is_of_consequence(op: Operation) -> bool:
    """Whether the value that an op reads is used: False for an atomic with an unused result."""
    return not tt.Atomic.matches(op) or bool(op.result.uses)


class SavedMemory:
    """The memory that a batch may both read and write, as it was before the batch."""

    def __init__(self, memory: Sequence[Tensor]) -> None:
        self._memory = memory
        self._saved = [tensor.clone() for tensor in memory]

    def restore(self) -> None:
        """Write the saved contents back to the memory."""
        for tensor, saved in zip(self._memory, self._saved, strict=True):
            tensor.copy_(saved)


def memory_to_save(
    module: Module, arguments: Arguments, observers: Iterable[Observer], batch_bytes: int
) -> list[Tensor] | None:
    """Return the memory to save before each batch of a launch; None if none can be run again.

    Args:
        module: the module that is launched.
        arguments: the launch's arguments.
        observers: observers of the launch.
        batch_bytes: live bytes of a batch.
    """
    if arguments.written is None:
        return None
    replays = False
    for observer in observers:
        if not observer.is_passive:
            return None
        replays |= observer.replays
    if not replays:
        return None
    known = Replayable.of(module)
    if not known.is_possible:
        return None
    for value in arguments.values:
        if isinstance(value, AddressTile) and value.address != 0:
            return None  # memory that nobody passed as a tensor
    found: dict[int, Tensor] = {}
    for buffer in arguments.buffers_of(known.reads):
        if buffer.storage_key in arguments.written and buffer.storage_key not in found:
            storage = buffer.tensor.untyped_storage()
            memory = torch.empty(0, dtype=torch.uint8, device=storage.device)
            found[buffer.storage_key] = memory.set_(storage, 0, (storage.nbytes(),), (1,))
    saved_bytes = sum(memory.numel() for memory in found.values())
    return list(found.values()) if saved_bytes * _SAVED_PART <= batch_bytes else None
