"""Lines of JSON over a socket between the script's process and the TUI's."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

MAX_LINE_BYTES = 64 << 20


class Wire:
    """One end of the socket.

    Args:
        end: one of a connected pair; ours from now on.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._reader = end.makefile("rb")
        self._lock = threading.Lock()
        self._is_open = True

    def messages(self) -> Iterator[dict[str, Any]]:
        """What the other end sends, until it is gone or sends what is no message."""
        while True:
            try:
                line = self._reader.readline(MAX_LINE_BYTES)
                if not line.endswith(b"\n"):
                    return
                message = json.loads(line)
            except (OSError, ValueError):
                return
            if not isinstance(message, dict):
                return
            yield message

    def send(self, message: Mapping[str, Any], *, waits: bool = True) -> bool:
        """Send a message; the result is whether the other end takes it.

        Args:
            message: of what JSON has, NaN and infinities included.
            waits: until there is room for it; else it is not sent where there is none.
        """
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            if not self._is_open:
                return False
            try:
                if waits:
                    self._socket.sendall(data)
                    return True
                # Behind a part of a message nothing else could be understood.
                self._is_open = self._socket.send(data, socket.MSG_DONTWAIT) == len(data)
                return self._is_open
            except BlockingIOError:
                return False
            except OSError:
                self._is_open = False
                return False

    def close(self) -> None:
        """Close it; who reads in another thread comes to the end."""
        with self._lock:
            self._is_open = False
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end has closed it
        self._socket.close()

    def forget(self) -> None:
        """Leave it to the process that this one was forked from."""
        self._is_open = False
        self._lock = threading.Lock()
        os.close(self._socket.detach())
