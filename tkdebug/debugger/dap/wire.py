"""The Debug Adapter Protocol: messages as bytes, and the capabilities of the adapter.

A message is a header with the length, then JSON.

Source: Debug Adapter Protocol, "Base Protocol", whose one header is Content-Length. Data from a
client is untrusted: sizes are bounded, nothing but JSON is read, and reading ends at data that is
no message, such as HTTP. A wrong field of a request is refused by its name.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

from tkdebug.errors import TkError, UsageError

MAX_BODY_BYTES = 16 << 20
_HEADER = re.compile(rb"content-length: *([0-9]{1,8})\r\n", re.IGNORECASE)
_MAX_HEADER_BYTES = 64
_END_OF_HEADERS = b"\r\n"
FAULTS = "faults"
EXCEPTION_FILTERS = [
    {
        "filter": FAULTS,
        "label": "Faults of kernels",
        "description": "Stop where an access leaves its tensor, an assertion fails, …",
        "default": True,
    }
]


CAPABILITIES: dict[str, Any] = {
    "exceptionBreakpointFilters": EXCEPTION_FILTERS,
    "completionTriggerCharacters": ["."],
    **dict.fromkeys(
        (
            "supportsBreakpointLocationsRequest",
            "supportsCompletionsRequest",
            "supportsConditionalBreakpoints",
            "supportsConfigurationDoneRequest",
            "supportsDataBreakpoints",
            "supportsDisassembleRequest",
            "supportsEvaluateForHovers",
            "supportsExceptionInfoRequest",
            "supportsFunctionBreakpoints",
            "supportsGotoTargetsRequest",
            "supportsHitConditionalBreakpoints",
            "supportsInstructionBreakpoints",
            "supportsLogPoints",
            "supportsRestartFrame",
            "supportsSetExpression",
            "supportsSetVariable",
            "supportsStepBack",
            "supportsSteppingGranularity",
            "supportsTerminateRequest",
            "supportTerminateDebuggee",
            "supportsVariablePaging",
        ),
        True,
    ),
}


class ProtocolError(TkError):
    """Bytes of a client that are no message of the protocol."""


@dataclass(frozen=True, slots=True)
class Request:
    """A message by which a client asks for something.

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
        hang_up: ends the connection, from any thread.
    """

    def __init__(
        self, reader: BinaryIO, writer: BinaryIO, hang_up: Callable[[], None] = lambda: None
    ) -> None:
        self._reader, self._writer, self.hang_up = reader, writer, hang_up
        self._lock = threading.Lock()
        self._sent = 0
        self._is_open = True

    def fileno(self) -> int:
        """The file descriptor of the client's data."""
        return self._reader.fileno()

    def requests(self) -> Iterator[Request]:
        """Yield the client's requests, until it is gone.

        Raises:
            ProtocolError: it sent no message.
        """
        while (request := self.request()) is not None:
            yield request

    def request(self, most_bytes: int = MAX_BODY_BYTES) -> Request | None:
        """Return the next request, or None if the client is gone.

        Raises:
            ProtocolError: it sent no message, or one that is longer.
        """
        try:
            length = self._length(most_bytes)
            body = b"" if length is None else self._reader.read(length)
        except (OSError, ValueError):
            return None  # the client closed the connection
        return None if length is None or len(body) < length else _request(body)

    def _length(self, most_bytes: int) -> int | None:
        line = self._reader.readline(_MAX_HEADER_BYTES)
        header = _HEADER.fullmatch(line)
        if header is None:
            if _is_cut(line, _MAX_HEADER_BYTES):
                return None
            raise ProtocolError("debug adapter: got another line than the header Content-Length")
        end = self._reader.readline(len(_END_OF_HEADERS))
        if end != _END_OF_HEADERS:
            if _is_cut(end, len(_END_OF_HEADERS)):
                return None
            raise ProtocolError("debug adapter: got more headers than Content-Length")
        if (length := int(header[1])) > most_bytes:
            raise ProtocolError(
                f"debug adapter: got Content-Length {length}, expected at most {most_bytes}"
            )
        return length

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
        """Send the client an event; do nothing once it is gone."""
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


def _is_cut(line: bytes, most_bytes: int) -> bool:
    """Whether a line is not whole because the client is gone."""
    return not line.endswith(b"\n") and len(line) < most_bytes


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


T = TypeVar("T", int, str, bool, list[Any], dict[str, Any])
_NAMES = {int: "a number", str: "text", bool: "true or false", list: "a list", dict: "an object"}


def required(arguments: Mapping[str, Any], name: str, type_: type[T]) -> T:
    """A field that has to be there.

    Raises:
        UsageError: the field is missing, or has another type.
    """
    if name not in arguments:
        raise UsageError(f"`{name}` is missing, expected {_NAMES[type_]}")
    return _checked(name, arguments[name], type_)


def optional(arguments: Mapping[str, Any], name: str, default: T) -> T:
    """A field, or `default` if it is left out or null.

    Raises:
        UsageError: it has another type than `default`.
    """
    value = arguments.get(name)
    return default if value is None else _checked(name, value, type(default))


def _checked(name: str, value: Any, type_: type[T]) -> T:
    if type(value) is not type_:
        shown = repr(value)
        shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
        raise UsageError(f"`{name}` is {shown}, expected {_NAMES[type_]}")
    found: T = value
    return found


def texts(arguments: Mapping[str, Any], name: str) -> list[str]:
    """A list of texts; empty if it is left out.

    Raises:
        UsageError: the list holds something else.
    """
    empty: list[Any] = []
    found = optional(arguments, name, empty)
    return [_checked(f"{name}[{place}]", item, str) for place, item in enumerate(found)]


def capabilities_for(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer to `initialize`, which is the same for all clients.

    Raises:
        UsageError: the client counts lines, or writes paths, otherwise than the adapter.
    """
    for name in ("linesStartAt1", "columnsStartAt1"):
        if not optional(arguments, name, True):
            raise UsageError(f"{name} is false, expected true")
    if optional(arguments, "pathFormat", "path") != "path":
        raise UsageError(f"pathFormat is {arguments['pathFormat']!r}, expected 'path'")
    return CAPABILITIES
