"""The script's side: a console that is asked over a socket, and shows pictures of stops.

Threads: `serve` reads the other process's messages. While a launch is stopped they are answered in
the thread that is stopped, else at once; breakpoints may be changed at any time. The engine, which
imports torch, is made when something is first asked of it.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tkdebug.debugger.goals import Continue, Detach, Quit, Resume, RunAgain
from tkdebug.debugger.remote.records import Look, RecordError, View, Wire, record_of
from tkdebug.debugger.stops import Reason
from tkdebug.errors import UsageError
from tkdebug.process.forks import renew_after_forks
from tkdebug.process.named_files import source_lines

if TYPE_CHECKING:
    from tkdebug.debugger.console.shell import Console
    from tkdebug.debugger.engine import Debugger
    from tkdebug.debugger.remote.host import PaneHost
    from tkdebug.debugger.stops import Stop
    from tkdebug.records.hook_chain import LaunchDebugger

_MAX_SOURCE_CHARS = 4_000_000
_MOST_AHEAD = 20
NO_RUN = "run: only `tkdebug debug --tui` can begin its script again"
Message = Mapping[str, Any]


class RemoteFront:
    """Asks the process at the other end of a wire how launches go on.

    Args:
        wire: the wire to it.
        script: the file of a bare line number while nothing is stopped; "" for a module's, which is
            known when its lines begin to run.
    """

    def __init__(self, wire: Wire, script: str = "") -> None:
        self._wire, self._given_script = wire, script
        self._asked: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._waits = False
        self._is_gone = False
        # Whether the script is to end, and whether Ctrl-C stops it until then.
        self._is_ending = self._stops_by_signal = False
        self._look = Look()
        self._said: list[str] = []
        # Commands that were typed while a launch ran, for its next stop.
        self._ahead: list[str] = []
        self._is_at_host = self._can_run_again = False
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Drop the wire in a forked child: it is the parent's, and nothing stops here."""
        self._lock = threading.RLock()
        self._wire.forget()
        self._is_gone = True

    @cached_property
    def debugger(self) -> Debugger:
        """The engine, which takes over launches from now on."""
        from tkdebug.debugger.engine import Debugger

        made = Debugger(self)
        self.console.attach(made)
        made.attach()
        return made

    @cached_property
    def console(self) -> Console:
        """Runs the commands that are typed."""
        from tkdebug.debugger.console.commands import find_command
        from tkdebug.debugger.console.shell import Console

        return Console(find_command, script=self._given_script, write=self._said.append)

    @property
    def _script(self) -> str:
        return self.console.script

    @cached_property
    def host(self) -> PaneHost:
        """Stops at the script's own lines."""
        from tkdebug.debugger.remote.host import PaneHost

        return PaneHost(self.console, self._script, self._ask_at_host)

    def break_into(self) -> LaunchDebugger | None:
        """The debugger for a kernel that calls `breakpoint()`, or None if nobody is asked."""
        with self._lock:
            return None if self._is_gone else self.debugger

    # Messages from the wire

    def serve(self) -> None:
        """Do what the other process asks for, until it is gone. In a thread of its own."""
        for message in self._wire.messages():
            if message == {"do": "end"}:
                self._is_ending = True
                self._interrupts()
                continue
            if message == {"do": "pause"} and self._interrupts():
                continue
            with self._lock:
                if self._waits:
                    self._asked.put(message)
                    continue
                # Only a stopped launch can go on; what this gives otherwise was refused.
                self._do(message, is_stopped=False)
        self._interrupts()
        with self._lock:
            self._is_gone = True
            if "debugger" in vars(self):
                self.debugger.detach()
            self._asked.put(None)

    def _interrupts(self) -> bool:
        """Interrupt the running evaluation; return False if there is none."""
        return "debugger" in vars(self) and self.debugger.expressions.interrupt()

    def _do(self, message: Message, *, is_stopped: bool) -> Resume | None:
        resume: Resume | None = None
        match message:
            case {"do": "command", "line": str(line)}:
                if is_stopped:
                    resume = self._run(line)
                else:
                    self._run_unstopped(line)
            case {"do": "forget"}:
                self._forget_ahead()
            case {"do": "commands", "lines": [*lines]}:
                self.console.commands += [str(line) for line in lines]
            case {"do": "look", "look": look}:
                with contextlib.suppress(RecordError):
                    self._look = record_of(Look, look)
            case {"do": "break", "file": str(file), "line": int(line)}:
                self._toggle(file, line)
            case {"do": "source", "file": str(file)}:
                self._send_source(file)
            case {"do": "pause"}:
                self.debugger.attach()  # `detach` may have gone before
                self._pause()
        return resume

    def _pause(self) -> None:
        """Stop in the kernel that runs, at the script's next line, or in the next kernel."""
        if self._stops_by_signal and not self.debugger.is_running:
            # Only its own thread can have the script's lines traced; that wakes it up, too.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            self.debugger.pause()

    @contextlib.contextmanager
    def interrupts(self) -> Iterator[None]:
        """Let Ctrl-C in the main thread stop the script as at the console, until it is to end."""
        from tkdebug.debugger.interruption import interrupts

        self._stops_by_signal = True
        try:
            with interrupts(self.debugger, self.console, lambda: self._is_ending):
                yield
        finally:
            self._stops_by_signal = False

    def _run(self, line: str) -> Resume | None:
        """Run a line of the user's, and send the answer; return how the launch goes on."""
        resume = self._run_quietly(line)
        self._answer(line)
        return resume

    def _run_unstopped(self, line: str) -> None:
        """Run what needs no stop; the rest waits for the next stop of the launch that runs."""
        console = self.console
        parts = [part.strip() for part in line.split(";;")]
        for place, part in enumerate(parts):
            resume = self._run_quietly(part)
            if resume is None and not console.lacked_stop:
                self._answer(part)
                continue
            console.commands.clear()
            if not self._stops_soon():
                self._said[:] = ["*** no kernel is stopped"]
            elif len(self._ahead) >= _MOST_AHEAD:
                self._said[:] = [f"*** {_MOST_AHEAD} commands wait for the next stop already"]
            else:
                self._said[:] = ["waits for the next stop"]
                self._ahead.append(" ;; ".join(parts[place:]))
                self._send_ahead()
            self._answer(part)
            return

    def _stops_soon(self) -> bool:
        """Whether a launch that can be stopped runs, or the script's lines are stepped."""
        return self.debugger.is_running or ("host" in vars(self) and self.host.is_stepping)

    def _run_quietly(self, line: str) -> Resume | None:
        """Run a line, and keep its output; return how the launch goes on."""
        console = self.console
        console.attach(self.debugger)
        self._said.clear()
        resume, before = None, len(self.debugger.breakpoints)
        console.lacked_stop = False
        try:
            if not self._is_at_host:
                resume = console.run_line(line)
                if isinstance(resume, Quit) and resume.runs_again and not self._can_run_again:
                    resume = None
                    self._said.append(f"*** {NO_RUN}")
            elif self.host.run_line(line):
                resume = Continue()
        except RunAgain:
            self._answer(line)
            raise
        if len(self.debugger.breakpoints) > before:
            self.debugger.attach()  # `detach` may have gone before
        return resume

    def _answer(self, line: str) -> None:
        self._send({"event": "answer", "command": line, "lines": list(self._said)})
        self._said.clear()  # what pdb says next is why it stops
        self._send_breakpoints()

    def _forget_ahead(self) -> None:
        self._ahead.clear()
        self._send_ahead()

    def _send_ahead(self) -> None:
        self._send({"event": "ahead", "count": len(self._ahead)})

    def _toggle_in_script(self, file: str, line: int) -> str:
        """Toggle a breakpoint at a line of the script; return the mistake, or ""."""
        if self._is_at_host:
            return self.host.toggle(file, line)
        if self.debugger.inspection is None:
            return f"{file}:{line} is the script's own: stop first (P), then set it"
        problem = self.host.toggle(file, line)
        self.host.keep_tracing()
        return problem

    def _is_of_script(self, file: str, line: int) -> bool:
        from tkdebug.debugger.lines import kernel_lines

        return "host" in vars(self) and line not in kernel_lines(file)

    def _toggle(self, file: str, line: int) -> None:
        """Set a breakpoint at a line, or delete the one that is there."""
        from tkdebug.debugger.lines import checked_line
        from tkdebug.debugger.remote.looking import place_shown

        debugger, script = self.debugger, self._script
        there = [one for one in debugger.breakpoints if place_shown(one, script) == (file, line)]
        problem = ""
        try:
            for one in there:
                debugger.remove(one.number)
            if not there and self._is_of_script(file, line):
                problem = self._toggle_in_script(file, line)
            elif not there:
                debugger.add_line(file, checked_line(file, line))
                debugger.attach()  # `detach` may have gone before
        except UsageError as error:
            problem = str(error)
        if problem:
            self._send({"event": "answer", "command": "", "lines": [f"*** {problem}"]})
        self._send_breakpoints()

    # Messages to the wire

    def _send(self, message: Message) -> None:
        if not self._is_gone:
            self._wire.send(message)

    def _send_breakpoints(self) -> None:
        from tkdebug.debugger.remote.looking import breakpoints_of

        found = [*breakpoints_of(self.debugger, self._script)]
        if "host" in vars(self):
            found += self.host.shown_breakpoints()
        shown = [asdict(one) for one in found]
        self._send({"event": "breakpoints", "breakpoints": shown})

    def _send_source(self, file: str) -> None:
        linecache.checkcache(file)
        text = "".join(source_lines(file))
        self._send({"event": "source", "file": file, "text": text[:_MAX_SOURCE_CHARS]})

    def _send_view(self, make: Callable[[], View]) -> None:
        try:
            view = make()
        except Exception as error:  # a picture that cannot be made is no reason to end the script
            text = f"*** this stop cannot be shown: {type(error).__name__}: {error}"
            self._send({"event": "answer", "command": "", "lines": [text]})
            return
        self._send({"event": "view", "view": asdict(view)})

    # As a front

    def log(self, text: str) -> None:
        """Send a log point's text."""
        self._send({"event": "answer", "command": "", "lines": [text]})

    def stopped(self, debugger: Debugger, stop: Stop) -> Resume:
        """Show the stop, and answer until the launch is to go on."""
        console = self.console
        console.attach(debugger)
        console.frame, console.listed = 0, None
        from tkdebug.debugger.remote.looking import view_of

        if not self._begins_to_wait():
            return Detach()
        try:
            resume = self._ask(
                lambda: view_of(debugger, stop, console.frame, self._look), console.displayed
            )
        finally:
            self._goes_on()
        if self._script and stop.reason is Reason.END:
            _ = self.host  # once it is made, it stops at the script's lines
        console.follow_in_script(resume, stop)
        return resume

    def _ask_at_host(self) -> None:
        """Show a stop at a line of the script's own, and answer."""
        host = self.host
        # How to end it instead is in the keys.
        reasons = tuple(line.partition(": it stops")[0] for line in self._said)
        if not self._begins_to_wait():
            host.set_continue()
            return
        self._is_at_host = True
        try:
            resume = self._ask(lambda: host.view(self._look, reasons))
        except KeyboardInterrupt:
            # It ends the script: where it passes no line is stopped at any more.
            self.console.is_over = True
            raise
        finally:
            self._is_at_host = False
            self._goes_on()
        if isinstance(resume, Detach):
            host.clear_all_breaks()
            host.set_continue()

    def _begins_to_wait(self) -> bool:
        """Begin a stop, answering requests in this thread; False if nobody asks any more."""
        # The zoom and the moment looked at belonged to another stop.
        self._look = replace(self._look, begin=(), end=(), around=None)
        with self._lock:
            if self._is_gone:
                return False
            self._waits = True
            self.console.commands += self._ahead
            if self._ahead:
                self._forget_ahead()
        return True

    def _goes_on(self) -> None:
        with self._lock:
            self._waits = False
        self._send({"event": "running"})

    def _ask(self, make: Callable[[], View], displayed: Sequence[str] = ()) -> Resume:
        self._send_view(make)
        self._send_breakpoints()
        for text in displayed:
            self._run(f"p {text}")
        return self._asked_resume(lambda: self._send_view(make))

    def begin_at_script(self) -> None:
        """Stop at the first line of the script, which is about to run in this thread."""
        if self._can_run_again:
            self.debugger.begin_again()
            self._send_source(self._script)  # it may have been edited meanwhile
        self._can_run_again = True
        self.console.attach(self.debugger)
        self.host.begin(self._given_script)

    def ended(self) -> None:
        """Report, as the script has ended, which breakpoints it never met."""
        if "host" in vars(self):
            sys.settrace(None)
        if "debugger" in vars(self):
            left = [f"*** never run, as nothing stopped any more: {line}" for line in self._ahead]
            lines = [*self.debugger.unmet(), *left]
            self._send({"event": "answer", "command": "", "lines": lines})

    def _asked_resume(self, show: Callable[[], None]) -> Resume:
        while True:
            if self._is_ending:
                raise KeyboardInterrupt  # that of the signal may have ended an expression alone
            commands = self.console.commands
            if commands:
                self.console.has_failed = False
                resume = self._run(commands.pop(0))
                if self.console.has_failed and commands:
                    self.log(f"not run: {' ;; '.join(commands)}")
                    commands.clear()
            else:
                message = self._asked.get()
                if message is None:
                    return Detach()
                resume = self._do(message, is_stopped=True)
            if resume is not None:
                return resume
            show()


def front_over(descriptor: int, script: str) -> RemoteFront:
    """A front that is asked over an inherited socket, and read from in a thread.

    Args:
        descriptor: the descriptor of the socket, which belongs to the front from now on, and to no
            process that the script starts.
        script: the file that the script's code has; "" for a module.
    """
    import socket

    os.set_inheritable(descriptor, False)
    front = RemoteFront(Wire(socket.socket(fileno=descriptor)), script)
    threading.Thread(target=front.serve, name="tkdebug-debug-pane", daemon=True).start()
    return front
