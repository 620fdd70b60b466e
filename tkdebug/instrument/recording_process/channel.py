"""Messages between the script's process and the recording process, over a socket.

A message is a pickled tuple: its kind and its parts, which are plain values, records of tkdebug's,
and nothing of the script's. It goes in packets, each of which arrives as a whole or not at all.

Invariants: `send` never waits for a frame that it has interrupted (a signal handler may print, or
launch): the frame that is sending sends that, too. An exception of a signal handler may come
between any two steps here, and neither tears a message nor sends it twice. A message that was sent
outlives the sender.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import select
import socket
import struct
import threading
from collections import deque
from typing import Any

Message = tuple[Any, ...]
_PACKET_BYTES = 1 << 16
# A number that no packet before it had, and whether it is the last of its message.
_HEAD = struct.Struct("=Q?")
_AT_ONCE_BYTES = 4 << 20
# The byte that comes with a descriptor on a socket of its own, and is in the message about it.
DESCRIPTOR_NUMBER = struct.Struct("=Q")


class ChannelClosed(OSError):
    """The other side is gone."""


class Channel:
    """One end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._numbers = itertools.count(1)
        self._waiting: deque[deque[bytes]] = deque()
        # Reentrant, and taken by `with` alone, between whose steps no signal handler runs.
        self._sending, self._is_sending = threading.RLock(), False
        self._receiving, self._is_receiving = threading.RLock(), False
        self._last_number = 0
        self._parts: list[bytes] = []
        self._is_closed = False
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    def send(self, *message: Any) -> None:
        """Send a message, or leave it to the call that is sending right now.

        Raises:
            ChannelClosed: the other side is gone.
        """
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        starts = range(0, len(data), _PACKET_BYTES)
        self._waiting.append(
            deque(
                _HEAD.pack(next(self._numbers), start == starts[-1])
                + data[start : start + _PACKET_BYTES]
                for start in starts
            )
        )
        while self._waiting and not (self._is_sending and self._is_nested()):
            with self._sending:
                self._is_sending = True
                try:
                    self._send_waiting()
                except OSError as error:
                    raise ChannelClosed(str(error)) from error
                finally:
                    self._is_sending = False

    def _is_nested(self) -> bool:
        """Whether this thread is sending already, in a frame that a signal handler interrupted."""
        return bool(self._sending._is_owned())  # type: ignore[attr-defined]  # noqa: SLF001

    def _send_waiting(self) -> None:
        while self._waiting:
            packets = self._waiting[0]
            while packets:
                # One that is sent again, since an exception came here, has its old number.
                self._socket.send(packets[0])
                packets.popleft()
            self._waiting.popleft()

    def receive(self, wait_s: float = 0.0) -> list[Message]:
        """Return the messages that have come, some megabytes at most; wait `wait_s` for the first.

        In a signal handler that interrupts a call of this method, there are none.

        Raises:
            ChannelClosed: the other side is gone, and all that it sent was received.
        """
        with self._receiving:
            if self._is_receiving:
                return []  # a signal handler, in the midst of it
            self._is_receiving = True
            try:
                return self._receive(wait_s)
            finally:
                self._is_receiving = False

    def _receive(self, wait_s: float) -> list[Message]:
        if wait_s:
            self._poll.poll(wait_s * 1000)
        found: list[Message] = []
        size_bytes = 0
        while not self._is_closed and size_bytes < _AT_ONCE_BYTES:
            try:
                packet = self._socket.recv(_PACKET_BYTES + _HEAD.size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionError:
                packet = b""
            if not packet:
                self._is_closed = True
                break
            size_bytes += len(packet)
            self._add(packet, found)
        if self._is_closed and not found:
            raise ChannelClosed("the other side has closed")
        return found

    def _add(self, packet: bytes, found: list[Message]) -> None:
        number, is_last = _HEAD.unpack_from(packet)
        if number == self._last_number:
            return
        self._last_number = number
        self._parts.append(packet[_HEAD.size :])
        if is_last:
            found.append(pickle.loads(b"".join(self._parts)))
            self._parts = []

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end."""
        with contextlib.suppress(OSError):
            self._socket.close()


def channel_pair() -> tuple[Channel, socket.socket]:
    """Return one end, and the other as it is handed to another process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours), theirs
