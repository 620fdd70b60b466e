"""Serves one client: its requests, in order, and what happens to the script meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tkdebug.debugger.dap.arguments import optional
from tkdebug.debugger.dap.breakpoint_requests import BreakpointRequests
from tkdebug.debugger.dap.capabilities import CAPABILITIES
from tkdebug.debugger.dap.debuggee import Debuggee
from tkdebug.debugger.dap.instructions import Instructions
from tkdebug.debugger.dap.looking import Looking
from tkdebug.debugger.dap.moving import Moving
from tkdebug.debugger.dap.wire import Connection, Request
from tkdebug.errors import TkError, UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.stops import Stop

Body = Mapping[str, Any] | None
_BEFORE_INITIALIZE = ("initialize", "disconnect")


class Host(Protocol):
    """What runs the script."""

    def check(self, command: str, arguments: Mapping[str, Any]) -> None:
        """Look at the arguments of `launch` or `attach`.

        Raises:
            UsageError: something is wrong with them.
        """
        ...

    def begin(self) -> None:
        """The client has said all that it wants to before the script runs."""
        ...

    def terminate(self) -> None:
        """End the script, which is not stopped."""
        ...


class Adapter:
    """Serves one client.

    Args:
        connection: to it.
        host: what runs the script.
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

    def serve(self) -> None:
        """Answer until the client is gone.

        Raises:
            ProtocolError: what it sends is no message.
        """
        try:
            for request in self._connection.requests():
                self._answer(request)
                if "disconnect" in self._done:
                    return
        finally:
            self._debuggee.close()

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
            self._connection.refuse(request, f"{type(error).__name__}: {error}")
            return
        self._connection.respond(request, body)
        self._debuggee.answered()
        self._done.add(request.command)
        if request.command == "initialize":
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
        for name in ("linesStartAt1", "columnsStartAt1"):
            if not optional(arguments, name, True):
                raise UsageError(f"{name} is false, expected true")
        if optional(arguments, "pathFormat", "path") != "path":
            raise UsageError(f"pathFormat is {arguments['pathFormat']!r}, expected 'path'")
        return CAPABILITIES

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

        if self._debuggee.stop is not None:
            self._debuggee.afterwards(Quit())
        elif not self._has_ended:
            self._host.terminate()
        return None

    def _disconnect(self, arguments: Mapping[str, Any]) -> Body:
        if optional(arguments, "terminateDebuggee", "launch" in self._done):
            self._terminate(arguments)
        return None

    # What happens

    def _stopped(self, stop: Stop) -> None:
        """In the stopped thread, before anything is asked."""
        from tkdebug.debugger.dap.stop_events import stopped_event

        debugger = self._debuggee.debugger
        for note in stop.notes:
            self.show(note)
        kinds = [one.kind for one in debugger.breakpoints if one.number in stop.breakpoints]
        census = debugger.at_stop.census()
        event = stopped_event(stop, self._debuggee.thread, kinds, census)
        self._connection.event("stopped", event)

    def show(self, text: str) -> None:
        """A line of ours, in the client's console."""
        self.output(f"{text}\n", "console")

    def output(self, text: str, category: str) -> None:
        """What the script wrote: "stdout" or "stderr"."""
        self._connection.event("output", {"category": category, "output": text})

    def ended(self, status: int | None) -> None:
        """The script has ended with this exit status, None where it never ran."""
        self._has_ended = True
        if status is not None:
            self._connection.event("exited", {"exitCode": status})
        self._connection.event("terminated")
