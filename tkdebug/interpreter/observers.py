"""Observers of programs while they run: checks, and tools such as a debugger.

An observer is made for one launch. When a plan is built it is asked at which moments of each op it
is to be called; a step without observers costs nothing. Observers are called in the order in which
the launch has them, in the thread that runs the program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from typing import TYPE_CHECKING, ClassVar

from tkdebug.compiler.ir import Module, Operation, Region, Value
from tkdebug.interpreter.arguments import LaunchKind
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.compiler.analysis.thread_order import ThreadOrder
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.memory.observed_access import ObservedAccess
    from tkdebug.interpreter.scheduler import Room
    from tkdebug.interpreter.state import EvaluatorState


class Moments(Flag):
    """Moments at which an observer is called at an op."""

    NEVER = 0
    BEFORE = auto()
    AFTER = auto()
    # At the edges into and out of its regions.
    REGIONS = auto()


@dataclass(frozen=True, slots=True)
class CompiledFacts:
    """Facts about a kernel as a GPU would run it, each worked out when it is asked for.

    Attributes:
        room: gives the room for programs that wait for each other; None for any number.
        order_of_threads: gives the thread of each element; None if no code can be made.
    """

    room: Callable[[], Room] | None
    order_of_threads: Callable[[], ThreadOrder | None]


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """A launch that begins.

    Attributes:
        grid: programs along x, y, z; with a 0 if there are none.
        buffers: the launch's tensors.
        written: storages that the kernel may write, None for any.
        can_replay: whether batches can be run again (`Observer.replay`).
        kind: the facts that decide on addresses beside memory; None if an observer may alter
            values.
        compiled: facts about the kernel as a GPU would run it; None without them.
    """

    module: Module
    grid: tuple[int, int, int]
    buffers: Sequence[Buffer]
    written: frozenset[int] | None
    can_replay: bool = False
    kind: LaunchKind | None = None
    compiled: CompiledFacts | None = None


class Observer:
    """Is called at the ops of a launch that it asks for; subclasses override what they need.

    Attributes:
        needs_intermediates: whether every op must give a value of its own, so that no op is fused
            into another.
        keeps_values: whether values stay in `run.values` after their last use.
        follows_accesses: whether it gets accesses to memory; may be settled for a launch when
            it begins.
        memory_factor: the memory that it may take, as a multiple of the live bytes of a batch.
        is_passive: whether it certainly never alters a value, so that a batch can be run again.
        replays: whether it may want batches to be run again.
        sees_reads: whether it has a `read`; no records are made for observers that have none.
        sees_atomics: whether it has an `atomic` or an `atomic_done`.
    """

    needs_intermediates: bool = False
    keeps_values: ClassVar[bool] = False
    follows_accesses: bool = False
    memory_factor: int = 1
    is_passive: ClassVar[bool] = False
    replays: bool = False
    sees_reads: ClassVar[bool] = False
    sees_atomics: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Set `sees_reads` and `sees_atomics` by the methods that the subclass overrides."""
        super().__init_subclass__()
        cls.sees_reads = cls.read is not Observer.read
        is_plain = cls.atomic is Observer.atomic and cls.atomic_done is Observer.atomic_done
        cls.sees_atomics = not is_plain

    @property
    def key(self) -> Hashable | None:
        """Part of a plan's cache key: equal for equal moments; None if the plan is not shared."""
        return (type(self),)

    def moments(self, op: Operation) -> Moments:
        """Return the moments at which to call this observer at `op`; called while planning."""
        return Moments.NEVER

    def needs(self, op: Operation) -> Iterable[Value]:
        """Return values that the observer reads before `op`, to be kept; called with `moments`."""
        return ()

    def keeps(self) -> Collection[Value]:
        """Return values to keep in `run.values` once they are computed; called with `moments`."""
        return ()

    def launch_begins(self, launch: LaunchContext) -> None:
        """Hear that the launch begins: called before the first program and before `moments`."""

    def launch_ends(self) -> None:
        """Hear that the launch has ended: after the last program, not if the launch failed."""

    def of_batch(self, run: Evaluator) -> Observer:
        """Return an observer of one batch, with state of its own: batches may take turns."""
        return self

    def replay(self) -> Observer | None:
        """Return the observer that is to see a batch again, after it has run; None for none.

        Observers of the batch are asked, in launches that can replay. Memory that the batch reads
        is as it was before. Only the observers that were returned here see the replay; prints of
        programs, and faults of others, are dropped.
        """
        return None

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Hear that `op` is about to run for the programs in `run.active`.

        `run.values` has all values that are in scope. The op gets the values that are there
        afterwards.
        """

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """Hear that `op` gave `results`; return the results that replace them."""
        return results

    def enters(self, run: Evaluator, region: Region, arguments: Sequence[TileValue]) -> None:
        """Hear that the programs in `run.active` enter a region: a branch or a loop's iteration.

        `arguments` are the values of its block's arguments, which are in `run.values`, too.
        """

    def leaves(self, run: Evaluator, region: Region, results: Sequence[TileValue]) -> None:
        """Hear that control leaves a region, with the values of its terminator's operands."""

    def forget(self, run: Evaluator, values: Iterable[Value]) -> None:
        """Hear that values had their last use; called while it attends (`Evaluator.attend`)."""

    # Accesses to memory, after their bounds were checked

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Hear that a load has given `access.loaded`."""

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Hear that a store of `access.stored()` is about to happen."""

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Hear that a store has happened."""

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Hear that an atomic is about to happen."""

    def atomic_done(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Hear that an atomic is done; `access.loaded` has the old values of `touch()`.

        Old values are not known for sums whose result is unused.
        """
