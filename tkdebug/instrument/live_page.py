"""The page of a run, served while its session grows: `tkdebug view --web`.

Responsible for who may read it, and for how much they may ask. Any user of the machine, and any web
page in a browser on it, can reach the port. Invariants: a request is answered only if it names this
address as its host and has the token; it can name nothing but the page and its data, no file; it is
bounded in size and time, and nothing is written but an answer.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import secrets
import socket
import socketserver
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from string import Template
from typing import Any

from tkdebug.errors import SessionError, UsageError
from tkdebug.instrument.home.model import model_of, state_of
from tkdebug.instrument.home.records import State
from tkdebug.instrument.renderers.page import blocks_of, policy, render_live
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.connection import log_path, log_size_bytes
from tkdebug.terminal.text import visible_line

LOOPBACK = "127.0.0.1"
# Of a request up to the end of its headers; browsers send the cookies of all servers of a host.
MOST_REQUEST_BYTES = 16 << 10
LONGEST_REQUEST_S = 5.0
LONGEST_ANSWER_S = 30.0
MOST_CONNECTIONS = 32
_TOKEN_BYTES = 16
_BACKLOG = 16
_REFUSAL = "open the address that `tkdebug view --web` printed: its token is wrong or missing here"
_NO_PAGE = Template(
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="5">'
    "<title>tkdebug</title><p>$problem. This page tries again every 5 seconds.</p></html>"
)
_CLOSED = "default-src 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class Reading:
    """A session as it was read last.

    Attributes:
        version: changes when the session does; "" if it could not be read.
        problem: a sentence that says why it could not be read; "" if it could.
        blocks: the packed model and its texts.
        document: the page.
    """

    version: str
    problem: str
    blocks: dict[str, str]
    document: str


class LivePage:
    """The page of the session at `path`, made again on a request after the session has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._last = Reading("", "", {}, "")

    def state(self) -> dict[str, str]:
        """Return the version of the session and the state of its run, without reading the model."""
        try:
            with Session.open(self.path) as session:
                return {"version": self._version(session), "state": self._state(session)}
        except (SessionError, OSError) as error:
            return {"version": "", "state": "", "problem": _sentence(error)}

    def reading(self) -> Reading:
        """Return the page and its data as the session is now; each version is read once."""
        with self._lock:
            try:
                with Session.open(self.path) as session:
                    version = self._version(session)
                    if version != self._last.version:
                        with session.snapshot():
                            model = model_of(session)
                        blocks = blocks_of(model)
                        page = render_live(model, blocks, version)
                        self._last = Reading(version, "", blocks, page)
                return self._last
            except (SessionError, OSError) as error:  # it may go while it is read
                return Reading("", _sentence(error), {}, "")

    def _version(self, session: Session) -> str:
        """Return a hash that changes when the session gets records or the run's state changes."""
        seen: list[object] = [self._state(session), session.path.stat().st_ino]
        # Rows that move from the log to the file are not new.
        has_log = log_size_bytes(session.path)
        status = (log_path(session.path) if has_log else session.path).stat()
        seen += [status.st_size, status.st_mtime_ns]
        return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]

    @staticmethod
    def _state(session: Session) -> State:
        return state_of(session.run(), session.path)


def _sentence(error: SessionError | OSError) -> str:
    return visible_line(str(error).partition("\n")[0])


class PageServer(socketserver.ThreadingTCPServer):
    """Serves one page on the loopback interface, to those who have its token.

    Args:
        page: the page.
        port: the port; 0 for any that is free.

    Raises:
        UsageError: the port cannot be had.
    """

    daemon_threads = True
    block_on_close = False
    # Elsewhere this would let another process take the port, too.
    allow_reuse_address = os.name == "posix"
    request_queue_size = _BACKLOG

    def __init__(self, page: LivePage, port: int) -> None:
        try:
            super().__init__((LOOPBACK, port), _Request)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "expected 0 to 65535"
            raise UsageError(f"port {port}: cannot be listened at ({why}); choose another") from (
                error
            )
        self.page = page
        self.token = secrets.token_hex(_TOKEN_BYTES)
        self.port: int = self.server_address[1]
        self.hosts = frozenset(f"{name}:{self.port}" for name in (LOOPBACK, "localhost"))
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)

    @property
    def address(self) -> str:
        """The address of the page, with its token."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a request in a thread, or hang up if too many requests are being answered."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request; runs in a thread of its own."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of a bug in tkdebug; ignore errors of the connection."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    """One request of a connection, and its answer, after which the connection is closed."""

    server: PageServer
    rfile: io.BytesIO
    # The header `Server` names neither Python nor the machine.
    server_version, sys_version = "tkdebug", ""
    command = ""

    def setup(self) -> None:
        """Read the whole request before anything else, within a time limit."""
        super().setup()
        self.rfile = io.BytesIO(_head_of(self.connection))
        self.connection.settimeout(LONGEST_ANSWER_S)

    def parse_request(self) -> bool:
        """Return whether it is a GET or HEAD to this address with the token; refuse others."""
        if not self.rfile.getvalue().endswith(_END):
            self.requestline = ""
            self.send_error(431, f"expected a request of at most {MOST_REQUEST_BYTES:,} bytes")
            return False
        if not super().parse_request():
            return False
        if self.headers.get_all("Host") not in [[host] for host in self.server.hosts]:
            self.send_error(403, _REFUSAL)
            return False
        token, _, self.asked = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode()):
            self.send_error(403, _REFUSAL)
            return False
        if self.command not in ("GET", "HEAD"):
            self.send_error(405, "only GET and HEAD are answered")
            return False
        return True

    def do_GET(self) -> None:
        """Answer with the page, its state or its data."""
        if self.asked == "state":
            self._answer(200, "application/json", json.dumps(self.server.page.state()))
        elif self.asked == "data":
            now = self.server.page.reading()
            answer = {"version": now.version, "problem": now.problem, **now.blocks}
            self._answer(200, "application/json", json.dumps(answer))
        elif self.asked == "":
            self._answer_page(self.server.page.reading())
        else:
            self.send_error(404, "there is the page alone, at the address that was printed")

    do_HEAD = do_GET

    def _answer_page(self, now: Reading) -> None:
        if now.problem:
            from html import escape

            self._answer(503, "text/html", _NO_PAGE.substitute(problem=escape(now.problem)))
            return
        allowed = policy("'self'") + "; frame-ancestors 'none'"
        self._answer(200, "text/html", now.document, allowed)

    def _answer(self, status: int, kind: str, text: str, allowed: str = _CLOSED) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", allowed),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        if status == 405:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer that a request is wrong, in plain text."""
        self.request_version = "HTTP/1.0"  # one without a version gets headers, too
        self._answer(code, "text/plain", message or "no request that is answered here")

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing: the requests of a page that follows a run are many."""


_END = b"\r\n\r\n"


def _head_of(client: socket.socket) -> bytes:
    """Return a request up to the end of its headers, or its first `MOST_REQUEST_BYTES`.

    Raises OSError if the client hangs up or is too slow.
    """
    head = b""
    end_s = time.monotonic() + LONGEST_REQUEST_S
    while not head.endswith(_END) and len(head) < MOST_REQUEST_BYTES:
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        client.settimeout(left_s)
        piece = client.recv(MOST_REQUEST_BYTES - len(head))
        if not piece:
            raise ConnectionError
        head += piece
        end = head.find(_END)
        if end >= 0:
            return head[: end + len(_END)]
    return head
