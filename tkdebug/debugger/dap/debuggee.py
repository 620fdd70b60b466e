"""The process that is debugged, as one client sees it: the engine, and the stop it is at.

The engine imports torch; it is made when something is first asked of it. Questions about a stop are
answered in the thread that is stopped (`Debuggee.at_stop`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError, wait
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.dap.variables import References
    from tkdebug.debugger.engine import Debugger
    from tkdebug.debugger.goals import Resume
    from tkdebug.debugger.inspection import Inspection
    from tkdebug.debugger.queued_front import QueuedFront
    from tkdebug.debugger.stops import Stop

T = TypeVar("T")
# The protocol's threads: the script, and after it each program of a kernel.
SCRIPT_THREAD = 1
FIRST_PROGRAM_THREAD = 2
_MOST_AHEAD = 20
_INTERRUPTED = "interrupted"
# The time for interrupted code to end.
_LONGEST_STUCK_S = 5.0
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class At:
    """A frame that a client was shown.

    Attributes:
        program: linear number; None if no program is meant.
        frame: 0 for the kernel's innermost, the script's after those; below 0 for a frame of a
            launch that has ended.
    """

    program: int | None
    frame: int


@dataclass(frozen=True, slots=True)
class Going:
    """A client's command to let the launch go on.

    Attributes:
        program: linear number of the one in focus from then on; None to leave it.
        follows: whether it is a step, which follows that program.
    """

    resume: Resume
    program: int | None
    follows: bool


class Debuggee:
    """The engine, and the state of the stop.

    Args:
        on_stop: called with each stop, in the stopped thread.
        on_log: called with text to show.

    Attributes:
        stop: the present stop, None if there is none.
        focus: the program that steps follow; None for none yet.
        assignable: the scopes whose variables can be assigned, by reference.
        frames: the frames of `frameId`s, from 1 on.
    """

    def __init__(
        self,
        on_stop: Callable[[Stop], None],
        on_log: Callable[[str], None],
    ) -> None:
        self._on_stop, self._on_log = on_stop, on_log
        self._resume: Resume | None = None
        self.stop: Stop | None = None
        self.focus: int | None = None
        self.frames: list[At] = []
        self.assignable: dict[int, At] = {}
        # Guards `stop` and the functions for the next stop.
        self._lock = threading.Lock()
        # Guards what the request under way asks of the stopped thread.
        self._asking = threading.Lock()
        self._asked: Future[Any] | None = None
        self._answer: Future[Any] | None = None
        # The call interrupted last, which goes on as long as it is in C code.
        self._stuck: Future[Any] | None = None
        self._can_be_cut = self._is_cut = self._is_gone = False
        self._ahead: list[Going] = []
        self._ahead_of = 0  # the launch that they are for

    @cached_property
    def front(self) -> QueuedFront:
        """The front that runs functions in the stopped thread."""
        from tkdebug.debugger.queued_front import QueuedFront

        return QueuedFront(self._stopped, self._on_log)

    @cached_property
    def debugger(self) -> Debugger:
        """The engine."""
        from tkdebug.debugger.engine import Debugger

        return Debugger(self.front)

    @cached_property
    def references(self) -> References:
        """The values that a client may unfold."""
        from tkdebug.debugger.dap.variables import References

        return References()

    def close(self) -> None:
        """Note that nobody asks any more: nothing stops, and no condition is evaluated further."""
        if "debugger" in vars(self):
            self.debugger.detach()
            self.front.close()
            if self.debugger.is_running:
                self.debugger.pause()

    def forget_gaps(self) -> None:
        """Forget gaps: the script is ended before it has read them, which is no fault."""
        if "debugger" in vars(self):
            from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS

            HELD_GAPS.forget()

    def at_stop(self, function: Callable[[Debugger], T]) -> T:
        """Return the result of a function that is called in the thread that is stopped.

        Raises:
            UsageError: nothing is stopped, or it was interrupted.
        """
        if not self._ends(self._stuck, _LONGEST_STUCK_S):
            raise UsageError("an expression that was interrupted runs still, in C code")
        with self._asking:
            if self._is_cut or self._is_gone:
                raise UsageError(_INTERRUPTED)
            answer: Future[T] = Future()
            asked = self.front.call(function)
            self._asked, self._answer = asked, answer
        asked.add_done_callback(lambda done: _hand_over(done, answer))
        return answer.result()

    def begin_request(self, can_be_cut: bool) -> None:
        """Note that a request begins to be answered, and whether `interrupt` may cut it short."""
        with self._asking:
            self._can_be_cut, self._is_cut = can_be_cut, False

    def interrupt(self, is_gone: bool = False) -> None:
        """Interrupt the evaluation of the current request, which is answered at once.

        Args:
            is_gone: whether the client is gone: then any request is cut, and nothing more is asked.
        """
        with self._asking:
            self._is_gone = is_gone or self._is_gone
            if not (self._can_be_cut or self._is_gone):
                return
            self._is_cut = True
            if self._asked is not None and not self._asked.cancel():
                self._stuck = self._asked
                self.debugger.expressions.interrupt()
            if self._answer is not None:
                _fail(self._answer, UsageError(_INTERRUPTED))

    def is_answered(self, timeout_s: float) -> bool:
        """Wait until the interrupted request has ended; return False if it still runs."""
        return self._ends(self._asked, timeout_s)

    def _ends(self, asked: Future[Any] | None, timeout_s: float) -> bool:
        """Interrupt a question again and again until it ends; return False if it does not.

        One interrupt may miss it, if it was about to wait in the system.
        """
        until = time.monotonic() + timeout_s
        while asked is not None and wait([asked], _PAUSE_S).not_done:
            if time.monotonic() > until:
                return False
            self.debugger.expressions.interrupt()
        return True

    def go_on(self, going: Going) -> None:
        """Let the launch go on once the request is answered; while it runs, at its next stop.

        Raises:
            UsageError: nothing is stopped and no launch runs, or too much waits already.
        """
        with self._lock:
            waits = self.stop is None and self.debugger.has_launch
            if waits and len(self._ahead) >= _MOST_AHEAD:
                raise UsageError(f"{_MOST_AHEAD} steps wait for the next stop already")
            if waits:
                self._ahead_of = self.debugger.launches
                self._ahead.append(going)
        if not waits:
            self.at_stop(lambda debugger: self._choose(debugger, going))
            self.afterwards(going.resume)

    def forget_ahead(self) -> None:
        """Drop the commands that wait for the next stop."""
        with self._lock:
            self._ahead.clear()

    def _choose(self, debugger: Debugger, going: Going) -> None:
        from tkdebug.debugger.programs import ALL, Selection

        if going.program is not None:
            self.focus = going.program
        follows = going.follows and self.focus is not None
        debugger.select(Selection(frozenset((self.focus or 0,))) if follows else ALL)

    def afterwards(self, resume: Resume) -> None:
        """Set how the launch goes on once the request is answered."""
        self._resume = resume

    def answered(self) -> None:
        """Let the launch go on if the answered request asked for that."""
        resume, self._resume = self._resume, None
        if resume is not None:
            self.stop = None
            self.front.resume(resume)

    def at(self, frame: int) -> At:
        """Return the frame of a `frameId`.

        Raises:
            UsageError: the frame is of another stop.
        """
        if not 1 <= frame <= len(self.frames):
            raise UsageError(f"frameId {frame} is not of this stop")
        return self.frames[frame - 1]

    @property
    def thread(self) -> int:
        """The protocol's number of the thread in focus."""
        return SCRIPT_THREAD if self.focus is None else FIRST_PROGRAM_THREAD + self.focus

    def _stopped(self, stop: Stop) -> None:
        from tkdebug.debugger.programs import ALL
        from tkdebug.debugger.stops import Reason

        # A condition or a step has selected some programs; the others are shown, too.
        debugger = self.debugger
        programs = debugger.at_stop.programs
        debugger.select(ALL)
        if self.focus not in programs:
            self.focus = programs[0] if programs else None
        with self._lock:
            # A step that was asked for meanwhile goes on from where the one before it ends.
            goes_on = stop.reason is Reason.STEP and stop.launch == self._ahead_of
            going = self._ahead.pop(0) if self._ahead and goes_on else None
            if going is None:
                self._ahead.clear()
                self.stop = stop
        if going is not None:
            for note in stop.notes:
                self._on_log(note)
            self._choose(debugger, going)
            self.front.resume(going.resume)
            return
        self.frames.clear()
        self.assignable.clear()
        self.references.clear()
        self._on_stop(stop)


def _hand_over(done: Future[T], answer: Future[T]) -> None:
    """Give an answer to the thread that waits for it, unless that was interrupted."""
    if done.cancelled():
        _fail(answer, UsageError(_INTERRUPTED))
    elif (error := done.exception()) is not None:
        # An exception that ends the script is not one of the thread that asked.
        _fail(answer, error if isinstance(error, Exception) else UsageError(repr(error)))
    else:
        with contextlib.suppress(InvalidStateError):
            answer.set_result(done.result())


def _fail(answer: Future[T], error: Exception) -> None:
    with contextlib.suppress(InvalidStateError):
        answer.set_exception(error)


@contextlib.contextmanager
def meaning(inspection: Inspection, program: int | None) -> Iterator[None]:
    """Select one program inside the block; None leaves the selection unchanged."""
    from tkdebug.debugger.programs import Selection

    before = inspection.selection
    if program is not None:
        inspection.selection = Selection(frozenset((program,)))
    try:
        yield
    finally:
        inspection.selection = before
