"""Messages of the Debug Adapter Protocol as bytes: a header with the length, then JSON.

Source: Debug Adapter Protocol, "Base Protocol". What comes from a client is untrusted: sizes are
bounded, and nothing but JSON is read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from tkdebug.errors import TkError

MAX_HEADER_BYTES = 4096
MAX_BODY_BYTES = 16 << 20


class ProtocolError(TkError):
    """What a client sent is no message of the protocol."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for.

    Attributes:
        number: the client's, which the response repeats.
    """

    number: int
    command: str
    arguments: Mapping[str, Any]


class Connection:
    """Requests of one client, in order; responses and events to it, from any thread.

    Args:
        reader: bytes from the client.
        writer: bytes to it.
    """

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader, self._writer = reader, writer
        self._lock = threading.Lock()
        self._sent = 0
        self._is_open = True

    def requests(self) -> Iterator[Request]:
        """What the client asks for, until it is gone.

        Raises:
            ProtocolError: it sent no message.
        """
        while (body := self._body()) is not None:
            yield _request(body)

    def _body(self) -> bytes | None:
        length: int | None = None
        while True:
            try:
                line = self._reader.readline(MAX_HEADER_BYTES)
            except (OSError, ValueError):
                return None  # the client closed the connection
            if not line:
                return None
            if line in (b"\r\n", b"\n"):
                break
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                length = _length(value)
        if length is None:
            raise ProtocolError("debug adapter: got a message without Content-Length")
        body = self._reader.read(length)
        return body if len(body) == length else None

    def respond(self, request: Request, body: Mapping[str, Any] | None) -> None:
        """Say that a request was done."""
        self._send_response(request, {"success": True, "body": body or {}})

    def refuse(self, request: Request, message: str, shows_user: bool = False) -> None:
        """Say why a request was not done."""
        error = {"id": 1, "format": message.replace("{", "(").replace("}", ")")}
        body = {"error": {**error, "showUser": shows_user}}
        self._send_response(request, {"success": False, "message": message, "body": body})

    def _send_response(self, request: Request, fields: Mapping[str, Any]) -> None:
        kind = {"type": "response", "request_seq": request.number, "command": request.command}
        self._send({**kind, **fields})

    def event(self, name: str, body: Mapping[str, Any] | None = None) -> None:
        """Tell the client of something; nothing happens once it is gone."""
        self._send({"type": "event", "event": name, "body": body or {}})

    def _send(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            if not self._is_open:
                return
            self._sent += 1
            text = json.dumps({"seq": self._sent, **message}, allow_nan=False).encode()
            try:
                self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
                self._writer.flush()
            except (OSError, ValueError):
                self._is_open = False


def _length(text: bytes) -> int:
    digits = text.strip()
    if not digits.isdigit() or len(digits) > 9 or int(digits) > MAX_BODY_BYTES:
        shown = digits[:20].decode("ascii", "replace")
        raise ProtocolError(
            f"debug adapter: got Content-Length {shown!r}, expected at most {MAX_BODY_BYTES}"
        )
    return int(digits)


def _request(body: bytes) -> Request:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"debug adapter: a message is no JSON ({error})") from None
    if not isinstance(message, dict):
        raise ProtocolError("debug adapter: a message is no JSON object")
    number, command = message.get("seq"), message.get("command")
    arguments = message.get("arguments")
    if message.get("type") != "request" or type(number) is not int or not isinstance(command, str):
        raise ProtocolError("debug adapter: got a message, expected a request with seq and command")
    return Request(number, command, arguments if isinstance(arguments, dict) else {})
