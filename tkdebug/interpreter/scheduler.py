"""A cooperative scheduler: programs that wait for each other, one of them running at a time.

Programs that wait for others are found in the IR, by their spin loops. They cannot run in lockstep:
a program that waits would keep the one that it waits for from going on.

They run in order. A program that waits keeps its thread, and a new thread goes on with the programs
that have not begun; when all have begun, or as many as a GPU holds at once, those that wait take
turns. A program that waits for no later one never costs a thread, and every run takes the same
turns. A program may also step aside without need, so that others come between its ops.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from types import FrameType

import torch

from tkdebug.compiler.analysis.data_flow import backward
from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.control_flow import deciding, forwarded
from tkdebug.errors import LaunchError
from tkdebug.interpreter.memory_usage import pointer_origins, written_arguments
from tkdebug.interpreter.torch_state import apart_from_the_script

# How long nothing must have changed: what they wait for might be another process's to write.
_PATIENCE_S = 2.0
# Programs that have stepped aside at a time.
_MOST_ASIDE = 7


class Abandoned(BaseException):
    """Ends a program that waits in a launch which has failed."""


@dataclass(frozen=True, slots=True)
class Room:
    """The number of programs that a GPU holds: further ones begin when others have ended.

    Attributes:
        multiprocessors: the multiprocessors of the GPU; each holds one program at least.
        fitting: gives the number of programs that fit, and what limits it; it may compile the
            kernel, so it is called only when a launch may come to need more.
    """

    multiprocessors: int
    fitting: Callable[[], tuple[int, str]]


class Scheduler:
    """Runs the programs of one launch.

    Args:
        loops: the loops that may wait for other programs.
        programs: the number of programs.
        run_program: runs one of them.
        device: the device of the launch.
        room: gives the number that a GPU holds; None for any number.

    Attributes:
        loops: the loops that may wait for other programs.
        changes: the number of times that a program has changed memory, or may have.
        interrupted: the place of the running program when the launching thread was interrupted.
    """

    def __init__(
        self,
        loops: Collection[Operation],
        programs: int,
        run_program: Callable[[int], None],
        device: torch.device,
        room: Room | None = None,
    ) -> None:
        self.loops = frozenset(loops)
        self.changes = 0
        self.interrupted: FrameType | None = None
        self._programs = programs
        self._room = room
        self._most: tuple[int, str] | None = None
        self._run_program = run_program
        self._begun = 0
        self._waiting: deque[threading.Semaphore] = deque()
        # They wait for nothing, and go on before those that do.
        self._aside: deque[threading.Semaphore] = deque()
        self._threads: list[threading.Thread] = []
        self._all_ended = threading.Event()
        self._failure: BaseException | None = None
        self._running = threading.get_ident()
        self._idle_turns = 0
        self._idle_since = time.monotonic()
        self._changes_seen = 0
        self._device = device
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._infers = torch.is_inference_mode_enabled()

    def run(self) -> None:
        """Run all programs until the last has ended; raise the first error of any of them."""
        try:
            self._run_those_left()
            self._hand_over()
            self._all_ended.wait()
        except BaseException as error:
            self.interrupted = sys._current_frames().get(self._running)  # noqa: SLF001
            self._fail(error)
        for thread in self._threads:
            thread.join()
        failure, self._failure = self._failure, None
        if failure is None:
            return
        try:
            raise failure
        finally:
            # Else the error holds this frame, which holds the error.
            del failure

    def wait(self, op: Operation, program_id: tuple[int, int, int], is_idle: bool) -> None:
        """Let the others go on; called by the running program, in an iteration of a loop.

        Args:
            op: the loop.
            program_id: the program that waits.
            is_idle: whether its iteration changed nothing, so that the next one will be the same.

        Raises:
            LaunchError: all programs that have begun wait, and memory does not change any more.
        """
        if not is_idle or self.changes != self._changes_seen:
            self._idle_turns = 0
            self._idle_since = time.monotonic()
        self._changes_seen = self.changes
        self._idle_turns += 1
        may_begin = self._may_begin()
        if not may_begin and self._waits_in_vain():
            raise self._deadlock(op, program_id)
        following: threading.Semaphore | None = None
        if self._aside:
            following = self._aside.popleft()
        elif may_begin:
            pass
        elif self._waiting:
            following = self._waiting.popleft()
        else:
            return
        self._stop_for(following, self._waiting)

    def step_aside(self) -> None:
        """Let some other programs run first; called by the running program."""
        self._idle_turns = 0
        following: threading.Semaphore | None = None
        if len(self._aside) >= _MOST_ASIDE or not self._may_begin():
            others = self._aside or self._waiting
            if not others:
                return
            following = others.popleft()
        self._stop_for(following, self._aside)

    def _stop_for(
        self, following: threading.Semaphore | None, queue: deque[threading.Semaphore]
    ) -> None:
        """Stop the running program until its turn in `queue`, and wake `following`.

        For None, a new thread goes on with the programs that have not begun.
        """
        mine = threading.Semaphore(0)
        queue.append(mine)
        if following is None:
            self._start_thread()
        else:
            following.release()
        mine.acquire()
        self._running = threading.get_ident()
        self.go_on()

    def go_on(self) -> None:
        """Raise `Abandoned` in the calling program if the launch has failed."""
        if self._failure is not None:
            raise Abandoned

    def _may_begin(self) -> bool:
        """Whether a program has not begun, and fits on the GPU beside those that run."""
        if self._begun == self._programs:
            return False
        held = len(self._waiting) + len(self._aside) + 1
        if self._room is None or held < self._room.multiprocessors:
            return True
        if self._most is None:
            self._most = self._room.fitting()
        return held < self._most[0]

    def _waits_in_vain(self) -> bool:
        return (
            not self._aside
            and self._idle_turns > 2 * (len(self._waiting) + 1)
            and time.monotonic() - self._idle_since > _PATIENCE_S
        )

    def _start_thread(self) -> None:
        context = copy_context()
        # A daemon: a script that is interrupted twice ends, whatever its kernel does.
        thread = threading.Thread(
            target=context.run, args=(self._work,), name="tkdebug-programs", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        self._running = threading.get_ident()
        # torch's settings of each thread are as in the thread that launched.
        with torch.inference_mode(self._infers), apart_from_the_script(self._device):
            try:
                with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
                    self._run_those_left()
                self._hand_over()
            except BaseException as error:
                self._fail(error)

    def _run_those_left(self) -> None:
        while self._begun < self._programs:
            self._begun += 1
            self._run_program(self._begun - 1)
            self.go_on()

    def _hand_over(self) -> None:
        """Wake a waiting program: the running one has ended, and all have begun.

        If none waits, end the launch.
        """
        others = self._aside or self._waiting
        if others:
            others.popleft().release()
        else:
            self._all_ended.set()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        for waiting in [*self._aside, *self._waiting]:
            waiting.release()
        self._all_ended.set()

    def _deadlock(self, op: Operation, program_id: tuple[int, int, int]) -> LaunchError:
        place = op.location.primary
        waiting = len(self._waiting) + 1
        unbegun = self._programs - self._begun
        why, advice = " for memory that no other program changes any more", ""
        if unbegun:
            assert self._most is not None
            fitting, limit = self._most
            why = f", and so do all others that a GPU holds at once, {fitting:,} ({limit})"
            advice = f"; launch at most {fitting:,} programs, or let fewer wait for later ones"
        return LaunchError(
            f"{place.file}:{place.line}: program {program_id} waits{why}: of {self._programs:,} "
            f"programs {self._begun - waiting:,} have ended, {waiting:,} wait, "
            f"{unbegun:,} have not begun{advice}"
        )


def spin_loops(module: Module) -> tuple[Operation, ...]:
    """Loops that other programs may bring to their end, in program order.

    They read memory with an atomic or a load that may not be cached, or their condition depends on
    a plain load at one address in memory that the kernel writes.
    """
    found = []
    for op in module.walk():
        # A value that the body reads may reach the condition through a carried value.
        if scf.While.matches(op) and (
            any(map(_reads_shared, op.walk())) or polled_loads(op, module)
        ):
            found.append(op)
    return tuple(found)


def is_uncached_load(op: Operation) -> bool:
    """Whether `op` is a load that sees what other programs store meanwhile."""
    load = tt.Load.cast(op)
    return load is not None and (load.volatile or load.cache == ".cv")


def _reads_shared(op: Operation) -> bool:
    return is_uncached_load(op) or (tt.Atomic.matches(op) and bool(op.result.uses))


def polled_loads(loop: Operation, module: Module) -> list[Operation]:
    """Return a loop's loads of one address that decide its end, in memory the kernel writes."""
    loads = [tt.Load(op) for op in loop.walk() if tt.Load.matches(op)]
    if not loads:
        return []
    feeds, view = _feeds(loop), scf.While(loop)
    reached = _sources(scf.Condition(view.before.terminator).condition, feeds)
    carried = {*view.before.arguments, *view.after.arguments}
    polled = [
        load
        for load in loads
        if load.result in reached and not carried & _sources(load.pointer, feeds)
    ]
    written = written_arguments(module) if polled else None
    if written is None:
        return [load.op for load in polled]
    origins = pointer_origins(module)
    elsewhere = frozenset([-1])
    shared = written | elsewhere
    return [load.op for load in polled if origins.get(load.pointer, elsewhere) & shared]


def _feeds(loop: Operation) -> dict[Value, list[Value]]:
    """Return, for each value of a loop, the values that it is directly computed from."""
    feeds: dict[Value, list[Value]] = {}
    for op in loop.walk():
        for result in op.results:
            feeds.setdefault(result, []).extend(_deciding(op))
        if scf.For.matches(op):
            feeds.setdefault(scf.For(op).induction_variable, []).extend(_deciding(op))
        for source, value in forwarded(op):
            feeds.setdefault(value, []).append(source)
    return feeds


def _deciding(op: Operation) -> list[Value]:
    """Return the values that decide how often `op`'s regions run; without regions, its operands."""
    branches = [op, *(region.block.terminator for region in op.regions)]
    return [value for branch in branches for value in deciding(branch)]


def _sources(value: Value, feeds: dict[Value, list[Value]]) -> set[Value]:
    """Return all values that `value` may be computed from, itself included."""
    return backward([value], lambda made: feeds.get(made, ()))
