"""Serves one client: its requests, in order, and events of the script meanwhile.

Requests by which a stopped launch goes on are here; requests that look, or set breakpoints,
elsewhere.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from tkdebug.debugger.dap.breakpoint_requests import BreakpointRequests
from tkdebug.debugger.dap.debuggee import FIRST_PROGRAM_THREAD, Debuggee, Going
from tkdebug.debugger.dap.instructions import Instructions
from tkdebug.debugger.dap.looking import Looking
from tkdebug.debugger.dap.wire import Connection, Request, capabilities_for, optional, required
from tkdebug.errors import TkError, UsageError, error_text

if TYPE_CHECKING:
    from tkdebug.debugger.goals import Resume
    from tkdebug.debugger.stops import Stop

Body = Mapping[str, Any] | None


class Moving:
    """Lets a launch go on as a client asks.

    Args:
        debuggee: the stopped process.
    """

    def __init__(self, debuggee: Debuggee) -> None:
        self._debuggee = debuggee
        self._targets: dict[int, tuple[str, int, bool]] = {}
        self.requests: dict[str, Callable[[Mapping[str, Any]], Body]] = {
            "continue": self._continue,
            "reverseContinue": self._reverse_continue,
            "next": self._next,
            "stepIn": self._step_in,
            "stepOut": self._step_out,
            "stepBack": self._step_back,
            "restartFrame": self._restart_frame,
            "gotoTargets": self._goto_targets,
            "goto": self._goto,
            "pause": self._pause,
        }

    def _continue(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.goals import Continue

        self._resume(arguments, Continue(), follows=False)
        return {"allThreadsContinued": True}

    def _reverse_continue(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.goals import Continue

        return self._resume(arguments, Continue(backwards=True), follows=False)

    def _next(self, arguments: Mapping[str, Any]) -> Body:
        return self._step(arguments, "OVER")

    def _step_in(self, arguments: Mapping[str, Any]) -> Body:
        return self._step(arguments, "INTO")

    def _step_out(self, arguments: Mapping[str, Any]) -> Body:
        return self._step(arguments, "OUT")

    def _step_back(self, arguments: Mapping[str, Any]) -> Body:
        return self._step(arguments, "OVER", backwards=True)

    def _step(self, arguments: Mapping[str, Any], kind: str, backwards: bool = False) -> Body:
        from tkdebug.debugger.goals import Step, StepKind

        by_instruction = optional(arguments, "granularity", "statement") == "instruction"
        step = StepKind.OP if by_instruction else StepKind[kind]
        return self._resume(arguments, Step(step, backwards), follows=True)

    def _restart_frame(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.goals import Restart

        self._debuggee.at(required(arguments, "frameId", int))
        return self._resume(arguments, Restart(), follows=False)

    def _goto_targets(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.lines import checked_line

        source: dict[str, Any] = required(arguments, "source", dict)
        file = os.path.abspath(required(source, "path", str))
        line = checked_line(file, required(arguments, "line", int))
        self._targets = {1: (file, line, False), 2: (file, line, True)}
        labels = {1: f"run to line {line}", 2: f"go back to line {line}"}
        return {"targets": [{"id": n, "label": text, "line": line} for n, text in labels.items()]}

    def _goto(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.goals import RunToLine

        target = self._targets.get(required(arguments, "targetId", int))
        if target is None:
            raise UsageError(f"targetId {arguments['targetId']} is unknown")
        return self._resume(arguments, RunToLine(*target), follows=True)

    def _pause(self, arguments: Mapping[str, Any]) -> Body:
        self._debuggee.forget_ahead()
        self._debuggee.debugger.pause()
        return None

    def _resume(self, arguments: Mapping[str, Any], resume: Resume, *, follows: bool) -> Body:
        """Let the launch go on; a step follows the program of its thread."""
        thread = optional(arguments, "threadId", 0)
        program = thread - FIRST_PROGRAM_THREAD if thread >= FIRST_PROGRAM_THREAD else None
        self._debuggee.go_on(Going(resume, program, follows))
        return None


_BEFORE_INITIALIZE = ("initialize", "disconnect")
# These interrupt what is evaluated for the requests before them, and are answered at once.
_URGENT = frozenset(("pause", "terminate", "disconnect"))
# These run the user's code, such as that of an expression or of a `__repr__`.
_EVALUATING = frozenset(
    (
        *("evaluate", "variables", "scopes", "setVariable", "setExpression", "completions"),
        "dataBreakpointInfo",
    )
)
# The time for interrupted code to end, once the client is gone.
_LONGEST_ENDING_S = 2.0


class Host(Protocol):
    """Runs the script."""

    def check(self, command: str, arguments: Mapping[str, Any]) -> None:
        """Look at the arguments of `launch` or `attach`.

        Raises:
            UsageError: something is wrong with them.
        """
        ...

    def begin(self) -> None:
        """Hear that the client has sent everything that comes before the script runs."""
        ...

    def terminate(self) -> None:
        """End the script, which is not stopped."""
        ...

    def abandon(self, is_ending: bool) -> None:
        """End evaluation in C code that cannot be interrupted: the client is gone.

        Args:
            is_ending: whether the script is to end.
        """
        ...


class Adapter:
    """Serves one client.

    Args:
        connection: the connection to it.
        host: runs the script.
    """

    def __init__(self, connection: Connection, host: Host) -> None:
        self._connection, self._host = connection, host
        self._debuggee = Debuggee(self._stopped, self.show)
        self._requests: dict[str, Callable[[Mapping[str, Any]], Body]] = {
            "initialize": self._initialize,
            "launch": self._launch,
            "attach": self._attach,
            "configurationDone": lambda _: None,
            "terminate": self._terminate,
            "disconnect": self._disconnect,
            **BreakpointRequests(self._debuggee).requests,
            **Looking(self._debuggee).requests,
            **Instructions(self._debuggee).requests,
            **Moving(self._debuggee).requests,
        }
        self._done: set[str] = set()
        self._runs = False
        self._debugs = True
        self._has_ended = False
        # Requests that have come, and how many of them interrupt those before them.
        self._waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._urgent = 0
        self._is_initialized = self._is_gone = self._is_ending = False

    def serve(self, first: Request | None = None) -> None:
        """Answer until the client is gone, which ends a script that it launched.

        Args:
            first: the request that follows `initialize`, if both have been read already.

        Raises:
            ProtocolError: the client sent something that is no message.
        """
        if first is not None:
            self._done.add("initialize")
            self._waiting.put(first)
        answering = threading.Thread(target=self._answer_all, daemon=True)
        answering.start()
        is_left = False
        try:
            for request in self._connection.requests():
                self._take(request)
                if is_left := request.command == "disconnect":
                    break
        finally:
            if not is_left:
                self._is_gone = True
                self._debuggee.interrupt(is_gone=True)
            self._waiting.put(None)
            answering.join()
            self._leave()

    def _take(self, request: Request) -> None:
        """Take a request; an urgent one interrupts those before it."""
        if request.command in _URGENT:
            with self._lock:
                self._urgent += 1
                self._debuggee.interrupt()
        self._waiting.put(request)

    def _answer_all(self) -> None:
        try:
            while (request := self._waiting.get()) is not None:
                if not self._is_gone:
                    self._answer_in_turn(request)
        finally:
            self._connection.hang_up()

    def _answer_in_turn(self, request: Request) -> None:
        evaluates = request.command in _EVALUATING
        with self._lock:
            self._urgent -= request.command in _URGENT
            is_interrupted = evaluates and self._urgent > 0
            self._debuggee.begin_request(evaluates)
        if is_interrupted:
            self._connection.refuse(request, "interrupted")
        else:
            self._answer(request)

    def _leave(self) -> None:
        """Let the script go on, or end it with the client, which is gone."""
        if "disconnect" not in self._done and "launch" in self._done:
            self._terminate({})
            with suppress(UsageError):  # what was stopped is not any more
                self._debuggee.answered()
        self._debuggee.close()
        if not self._debuggee.is_answered(_LONGEST_ENDING_S):
            self._host.abandon(self._is_ending)

    def _answer(self, request: Request) -> None:
        handler = self._requests.get(request.command)
        if handler is None:
            self._connection.refuse(request, f"request {request.command!r} is not supported")
            return
        if "initialize" not in self._done and request.command not in _BEFORE_INITIALIZE:
            self._connection.refuse(request, f"got {request.command}, expected initialize first")
            return
        try:
            body = handler(request.arguments)
        except TkError as error:
            shows_user = request.command in ("launch", "attach")
            self._connection.refuse(request, str(error), shows_user)
            return
        except Exception as error:  # expressions run the user's code
            self._connection.refuse(request, error_text(error))
            return
        self._connection.respond(request, body)
        self._debuggee.answered()
        self._done.add(request.command)
        if not self._is_initialized and "initialize" in self._done:
            self._is_initialized = True
            self._connection.event("initialized")
        if not self._runs and "configurationDone" in self._done and self._is_started:
            self._runs = True
            if self._debugs:
                self._debuggee.debugger.attach()
            self._host.begin()

    @property
    def _is_started(self) -> bool:
        return not self._done.isdisjoint(("launch", "attach"))

    # Its life

    def _initialize(self, arguments: Mapping[str, Any]) -> Body:
        return capabilities_for(arguments)

    def _launch(self, arguments: Mapping[str, Any]) -> Body:
        return self._start("launch", arguments)

    def _attach(self, arguments: Mapping[str, Any]) -> Body:
        return self._start("attach", arguments)

    def _start(self, command: str, arguments: Mapping[str, Any]) -> Body:
        if self._is_started:
            raise UsageError(f"got {command}, but the script is there already")
        self._host.check(command, arguments)
        self._debugs = not optional(arguments, "noDebug", False)
        debugger = self._debuggee.debugger
        debugger.stops_in_trials = optional(arguments, "stopsInTrials", False)
        if stage := optional(arguments, "stage", ""):
            debugger.choose_stage(stage)
        if optional(arguments, "stopOnEntry", False):
            debugger.stop_at_next_launch()
        return None

    def _terminate(self, arguments: Mapping[str, Any]) -> Body:
        from tkdebug.debugger.goals import Quit

        self._is_ending = True
        if self._debuggee.stop is not None:
            self._debuggee.afterwards(Quit())
        elif not self._has_ended:
            self._debuggee.forget_gaps()
            self._host.terminate()
        return None

    def _disconnect(self, arguments: Mapping[str, Any]) -> Body:
        if optional(arguments, "terminateDebuggee", "launch" in self._done):
            self._terminate(arguments)
        return None

    # What happens

    def _stopped(self, stop: Stop) -> None:
        """Report a stop to the client; called in the stopped thread, before anything is asked."""
        from tkdebug.debugger.dap.stop_events import stopped_event

        debugger = self._debuggee.debugger
        for note in stop.notes:
            self.show(note)
        kinds = [one.kind for one in debugger.breakpoints if one.number in stop.breakpoints]
        census = debugger.at_stop.census()
        event = stopped_event(stop, self._debuggee.thread, kinds, census)
        self._connection.event("stopped", event)

    def show(self, text: str) -> None:
        """Show a line of tkdebug's in the client's console."""
        self.output(f"{text}\n", "console")

    def output(self, text: str, category: str) -> None:
        """Send text that the script wrote to "stdout" or "stderr"."""
        self._connection.event("output", {"category": category, "output": text})

    def ended(self, status: int | None) -> None:
        """Report to the client that the script ended, with its exit status unless it never ran."""
        self._has_ended = True
        if status is not None:
            self._connection.event("exited", {"exitCode": status})
        self._connection.event("terminated")
