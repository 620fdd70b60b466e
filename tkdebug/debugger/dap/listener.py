"""Lets an editor attach to a process that runs: `tkdebug.debugger.listen()`."""

from __future__ import annotations

import hmac
import os
import secrets
import signal
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tkdebug.debugger.dap.adapter import Adapter
from tkdebug.debugger.dap.arguments import optional
from tkdebug.debugger.dap.wire import Connection, ProtocolError
from tkdebug.errors import UsageError
from tkdebug.terminal_text import tell

LOOPBACK = "127.0.0.1"
_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a client attaches.

    Attributes:
        token: what its `attach` request has to have: it may run code in this process.
    """

    port: int
    token: str
    attached: threading.Event

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until a client has attached and set its breakpoints; False where none came."""
        return self.attached.wait(timeout_s)


def listen(port: int = 0, *, wait: bool = False) -> Listening:
    """Let an editor attach to this process; its kernels have to be interpreted.

    One client at a time, from this machine alone, with the token.

    Args:
        port: of the loopback interface; 0 for any that is free.
        wait: until a client has attached.

    Raises:
        UsageError: the port is taken.
    """
    server = listening_socket(port)
    token = secrets.token_hex(_TOKEN_BYTES)
    listening = Listening(server.getsockname()[1], token, threading.Event())
    tell(f"an editor may attach to {LOOPBACK}:{listening.port} with token {token}")
    threading.Thread(target=_serve, args=(server, listening), daemon=True).start()
    if wait:
        listening.wait()
    return listening


def listening_socket(port: int) -> socket.socket:
    """A socket on the loopback interface.

    Raises:
        UsageError: the port is taken.
    """
    try:
        return socket.create_server((LOOPBACK, port), backlog=1)
    except (OSError, OverflowError) as error:
        raise UsageError(f"port {port}: cannot be listened at ({error})") from None


def connection_of(client: socket.socket) -> Connection:
    """The protocol over a socket."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(client.makefile("rb"), client.makefile("wb"))


def _serve(server: socket.socket, listening: Listening) -> None:
    while True:
        client, _ = server.accept()
        with client:
            try:
                Adapter(connection_of(client), _Attached(listening)).serve()
            except ProtocolError as error:
                tell(str(error))


class _Attached:
    """The process that runs already."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening

    def check(self, command: str, arguments: Mapping[str, Any]) -> None:
        if command != "attach":
            raise UsageError(f"got {command}, expected attach: the script runs already")
        token = optional(arguments, "token", "")
        if not hmac.compare_digest(token.encode(), self._listening.token.encode()):
            raise UsageError("the token is wrong: the process that is attached to prints it")

    def begin(self) -> None:
        self._listening.attached.set()

    def terminate(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
