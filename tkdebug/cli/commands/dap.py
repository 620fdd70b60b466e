"""`tkdebug dap`: a script under an editor, by the Debug Adapter Protocol."""

from __future__ import annotations

import argparse
import codecs
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tkdebug.cli.command import Command
from tkdebug.errors import UsageError
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.cli.script.execution import Program
    from tkdebug.debugger.dap.adapter import Adapter
    from tkdebug.debugger.dap.wire import Connection, Request

# For a script to end after `terminate`, and for a client to disconnect.
_LONGEST_ENDING_S = 5.0
_CHUNK_BYTES = 1 << 16
_NAMES = {1: "stdout", 2: "stderr"}
# Children of the script may hold the pipes open after it has ended.
_LONGEST_WAIT_S = 2.0


class DapCommand(Command):
    """Serves one client; the exit status is that of the script which it launches."""

    help = "serve an editor that speaks the Debug Adapter Protocol"
    description = (
        "Debug a script from an editor, by the Debug Adapter Protocol: on stdin and stdout, or for "
        "one client at a port of this machine, which has to show the token that is printed on "
        "stderr. Its `launch` request names the script. To attach to a process that runs, it calls "
        "tkdebug.debugger.listen()."
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the port."""
        parser.add_argument(
            "--port",
            type=int,
            metavar="PORT",
            help="listen there, on 127.0.0.1; 0 for any free one",
        )

    def run(self, options: argparse.Namespace) -> int:
        """Serve the client; the result is the script's exit status."""
        # The debugger's parts: nothing that help needs.
        from tkdebug.debugger.dap.adapter import Adapter
        from tkdebug.debugger.dap.watchdog import watched
        from tkdebug.debugger.dap.wire import ProtocolError

        launch = _Launch()
        problems: list[ProtocolError] = []
        is_served = threading.Event()

        def serve(connection: Connection, first: Request | None = None) -> None:
            launch.adapter = Adapter(connection, launch)
            try:
                with watched(connection.fileno()):
                    launch.adapter.serve(first)
            except ProtocolError as error:
                problems.append(error)
            finally:
                launch.give_up()
                is_served.set()

        if options.port is None:
            threading.Thread(target=serve, args=(_on_stdio(),), daemon=True).start()
        else:
            _listen(options.port, serve)
        status = 0
        if launch.is_wanted():
            status = _run(launch, launch.adapter)
        else:
            launch.adapter.ended(None)
        is_served.wait(_LONGEST_ENDING_S)
        if problems:
            raise problems[0]
        return status


COMMAND = DapCommand()


def _listen(port: int, serve: Callable[[Connection, Request], None]) -> None:
    """Serve the first client that has the token, and nobody after it."""
    from tkdebug.debugger.dap.listener import LOOPBACK, Door

    def serve_one(connection: Connection, request: Request) -> None:
        door.close()
        serve(connection, request)

    door = Door(port, serve_one)
    tell(f"an editor may connect to {LOOPBACK}:{door.port} with token {door.token}")
    threading.Thread(target=door.open, daemon=True).start()


def _run(launch: _Launch, adapter: Adapter) -> int:
    from tkdebug import compat
    from tkdebug.cli.script.execution import run_program
    from tkdebug.fault_printing.processes import printing_faults

    with _ForwardedOutput(adapter.output):
        with compat.install(mode="interpret"), printing_faults():
            status = run_program(launch.program).exit_status
    adapter.ended(status)
    return status


def _on_stdio() -> Connection:
    """Return the connection on the present stdin and stdout; the script gets others."""
    from tkdebug.debugger.dap.wire import Connection

    reader = os.fdopen(os.dup(0), "rb")
    writer = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    # Output before the script runs is no message of the protocol.
    os.dup2(2, 1)
    os.close(nothing)
    return Connection(reader, writer)


class _ForwardedOutput(AbstractContextManager["_ForwardedOutput"]):
    """Forwards a script's output: stdout and stderr are the protocol's, or nobody's.

    Args:
        forward: called with a piece of text and "stdout" or "stderr", in threads of its own.
    """

    def __init__(self, forward: Callable[[str, str], None]) -> None:
        self._forward = forward
        self._saved: dict[int, int] = {}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> _ForwardedOutput:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, name in _NAMES.items():
            self._saved[number] = os.dup(number)
            reading, writing = os.pipe()
            os.dup2(writing, number)
            os.close(writing)
            thread = threading.Thread(target=self._read, args=(reading, name), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, saved in self._saved.items():
            os.dup2(saved, number)
            os.close(saved)
        for thread in self._threads:
            thread.join(_LONGEST_WAIT_S)

    def _read(self, pipe: int, name: str) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while data := os.read(pipe, _CHUNK_BYTES):
            if text := decoder.decode(data):
                self._forward(text, name)
        os.close(pipe)


class _Launch:
    """The script that a client wants to run, in this process."""

    def __init__(self) -> None:
        self.adapter: Adapter
        self.program: Program
        self._decided = threading.Event()
        self._runs = False

    def is_wanted(self) -> bool:
        """Wait until the script is to run; False if the client leaves before."""
        self._decided.wait()
        return self._runs

    def give_up(self) -> None:
        """Stop waiting for the client, which is gone."""
        self._decided.set()

    def check(self, command: str, arguments: Mapping[str, Any]) -> None:
        from tkdebug.cli.command_line import check_variables
        from tkdebug.cli.script.execution import find_program
        from tkdebug.debugger.dap.wire import optional, texts
        from tkdebug.runtime.device.torch_package import check_installed, import_torch

        if command != "launch":
            raise UsageError(
                f"got {command}, expected launch: a process is attached to at the port of its "
                "tkdebug.debugger.listen()"
            )
        check_variables()
        check_installed()
        module = optional(arguments, "module", "")
        target = optional(arguments, "program", "") or module
        if not target or (module and module != target):
            raise UsageError("expected either `program`, a script, or `module`, its name")
        if folder := optional(arguments, "cwd", ""):
            _enter(folder)
        self.program = find_program(target, tuple(texts(arguments, "args")), bool(module))
        import_torch()
        os.environ.update(_environment(arguments))

    def begin(self) -> None:
        self._runs = True
        self._decided.set()

    def terminate(self) -> None:
        if not self._runs:
            self._decided.set()
            return
        timer = threading.Timer(_LONGEST_ENDING_S, os._exit, (128 + signal.SIGTERM,))
        timer.daemon = True
        timer.start()
        os.kill(os.getpid(), signal.SIGTERM)

    def abandon(self, is_ending: bool) -> None:
        if is_ending:
            os._exit(128 + signal.SIGTERM)


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise UsageError(f"cwd {folder}: {error.strerror}") from None
    if sys.path and sys.path[0] == "":
        sys.path[0] = str(Path.cwd())


def _environment(arguments: Mapping[str, Any]) -> dict[str, str]:
    from tkdebug.debugger.dap.wire import optional

    empty: dict[str, Any] = {}
    given = optional(arguments, "env", empty)
    for name, value in given.items():
        if not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise UsageError(f"env: {name!r} cannot be set, expected text without null characters")
    return given
