"""Lets an editor attach to a process that runs, or to `tkdebug dap`, over a port of this machine.

Any user of the machine, and any web page in a browser on it, can reach the port. Invariant: before
a client has shown the token nothing is done for it but to answer `initialize`, with a constant.
"""

from __future__ import annotations

import hmac
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tkdebug.debugger.dap.adapter import Adapter
from tkdebug.debugger.dap.wire import Connection, ProtocolError, Request, capabilities_for
from tkdebug.errors import UsageError
from tkdebug.process.forks import renew_after_forks
from tkdebug.terminal.text import tell

LOOPBACK = "127.0.0.1"
_TOKEN_BYTES = 16
# The time for a client to show the token once connected: long, as a script that computes may
# keep Python's lock meanwhile, and strangers keep nobody waiting.
LONGEST_HANDSHAKE_S = 60.0
# The time for the previous client to be gone, and for what it evaluated to end.
LONGEST_TURN_S = 5.0
# The most strangers at a time; if more come, the oldest is hung up on.
MOST_STRANGERS = 16
_MOST_STRANGER_BYTES = 1 << 20
_MOST_COMPLAINTS = 3
# The wait until the system has room for another connection.
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Listening:
    """The place where a client attaches.

    Attributes:
        token: the token that its `attach` request must have: it may run code in this process.
    """

    port: int
    token: str
    attached: threading.Event

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until a client has attached and set its breakpoints; False if none came."""
        return self.attached.wait(timeout_s)


def listen(port: int = 0, *, wait: bool = False) -> Listening:
    """Let an editor attach to this process; its kernels have to be interpreted.

    One client at a time, from this machine alone, with the token.

    Args:
        port: the port of the loopback interface; 0 for any that is free.
        wait: whether to wait until a client has attached.

    Raises:
        UsageError: the port is taken.
    """
    attached = threading.Event()

    def serve(connection: Connection, request: Request) -> None:
        Adapter(connection, _Attached(attached)).serve(request)

    door = Door(port, serve)
    tell(f"an editor may attach to {LOOPBACK}:{door.port} with token {door.token}")
    threading.Thread(target=door.open, daemon=True).start()
    listening = Listening(door.port, door.token, attached)
    if wait:
        listening.wait()
    return listening


class Door:
    """A port at which one client after the other is served, if it has the token.

    Strangers are heard in threads of their own, few at a time and not for long, so that none keeps
    the client waiting.

    Args:
        port: the port of the loopback interface; 0 for any that is free.
        serve: called with a client that has shown the token, and the request in which it did.

    Attributes:
        token: the token that a client has to show in `attach` or `launch`.

    Raises:
        UsageError: the port is taken.
    """

    def __init__(self, port: int, serve: Callable[[Connection, Request], None]) -> None:
        self._server = _listening_socket(port)
        self.port: int = self._server.getsockname()[1]
        self.token = secrets.token_hex(_TOKEN_BYTES)
        self._serve = serve
        self._complaints = 0
        self._lock = threading.Lock()
        self._seat = threading.Lock()
        self._room = threading.Semaphore(MOST_STRANGERS)
        self._clients: set[socket.socket] = set()
        # Clients that have not shown the token, and when they connected, the oldest first.
        self._strangers: dict[socket.socket, float] = {}
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Close the port and the clients in a forked child: they are the parent's."""
        for one in (self._server, *self._clients):
            with suppress(OSError):  # closed already
                os.close(one.detach())
        self._lock = threading.Lock()
        self._clients.clear()
        self._strangers.clear()

    def open(self) -> None:
        """Let clients in until the door is closed."""
        while True:
            try:
                self._server.settimeout(self._time_left_s())
                client, _ = self._server.accept()
            except TimeoutError:
                continue
            except OSError:
                if self._server.fileno() < 0:
                    return
                time.sleep(_PAUSE_S)
                continue
            client.settimeout(None)
            self._hear(client)

    def close(self) -> None:
        """Close the port, and hang up on clients that have not shown the token."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            for stranger in self._strangers:
                _hang_up(stranger)

    def _time_left_s(self) -> float | None:
        """Hang up on strangers whose time is over; return the next one's time left, or None."""
        with self._lock:
            for stranger, since_s in list(self._strangers.items()):
                left_s = since_s + LONGEST_HANDSHAKE_S - time.monotonic()
                if left_s > 0:
                    return left_s
                _hang_up(stranger)
                del self._strangers[stranger]
        return None

    def _hear(self, client: socket.socket) -> None:
        with self._lock:
            if len(self._strangers) >= MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                _hang_up(oldest)
                del self._strangers[oldest]
            self._strangers[client] = time.monotonic()
            self._clients.add(client)
        self._room.acquire()
        threading.Thread(target=self._receive, args=(client,), daemon=True).start()

    def _receive(self, client: socket.socket) -> None:
        """Serve a client once it has shown the token. In a thread of its own."""
        with client:
            try:
                connection = _connection_of(client)
                try:
                    request = self._shown(connection)
                finally:
                    with self._lock:
                        is_in_time = self._strangers.pop(client, None) is not None
                    self._room.release()
                if request is not None and is_in_time:
                    self._seat_one(connection, request)
            except ProtocolError as error:
                self._complain(str(error))
            finally:
                _hang_up(client)
                with self._lock:
                    self._clients.discard(client)

    def _shown(self, connection: Connection) -> Request | None:
        """The request in which a client shows the token; None for a client that does not."""
        first = connection.request(_MOST_STRANGER_BYTES)
        if first is None:
            return None
        if first.command != "initialize":
            connection.refuse(first, "got another request, expected initialize first")
            return None
        try:
            capabilities = capabilities_for(first.arguments)
        except UsageError as error:
            connection.refuse(first, str(error))
            return None
        connection.respond(first, capabilities)
        second = connection.request(_MOST_STRANGER_BYTES)
        if second is None or self._has_token(second):
            return second
        self._complain("debug adapter: a client did not show the token")
        connection.refuse(
            second, "the token is wrong or missing: it was printed with the port", True
        )
        return None

    def _has_token(self, request: Request) -> bool:
        token = request.arguments.get("token")
        if request.command not in ("attach", "launch") or not isinstance(token, str):
            return False
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def _seat_one(self, connection: Connection, request: Request) -> None:
        if not self._seat.acquire(timeout=LONGEST_TURN_S):
            connection.refuse(request, "another editor is attached", True)
            return
        try:
            self._serve(connection, request)
        finally:
            self._seat.release()

    def _complain(self, text: str) -> None:
        """Report what came to the port, but only the first few times: it may come without end."""
        with self._lock:
            self._complaints += 1
            count = self._complaints
        if count <= _MOST_COMPLAINTS:
            tell(text if count < _MOST_COMPLAINTS else f"{text}; no more is said of others")


def _listening_socket(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except (OSError, OverflowError) as error:
        raise UsageError(f"port {port}: cannot be listened at ({error})") from None


def _connection_of(client: socket.socket) -> Connection:
    """Return a connection that speaks the protocol over a socket."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(client.makefile("rb"), client.makefile("wb"), lambda: _hang_up(client))


def _hang_up(client: socket.socket) -> None:
    with suppress(OSError):  # it has gone by itself
        client.shutdown(socket.SHUT_RDWR)


class _Attached:
    """The host of a client that attaches: this process, whose script runs already."""

    def __init__(self, attached: threading.Event) -> None:
        self._attached = attached

    def check(self, command: str, arguments: Mapping[str, Any]) -> None:
        if command != "attach":
            raise UsageError(f"got {command}, expected attach: the script runs already")

    def begin(self) -> None:
        self._attached.set()

    def terminate(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def abandon(self, is_ending: bool) -> None:
        tell("debug adapter: an expression of a client that has gone still runs, in C code")
