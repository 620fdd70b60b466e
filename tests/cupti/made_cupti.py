"""A CUPTI of our own, and buffers for it."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading

import numpy as np

from tkdebug.records.hook_chain import CALL_FIELDS, LentBuffer

# The calls that were noted and not taken yet, of all there is in this process.
NOTED = bytearray()


def taken_notes():
    """Return what `FakeCupti.note` noted since the last call."""
    found = bytes(NOTED)
    NOTED.clear()
    return found


class FakeCupti:
    """Says what the fake libcupti answers."""

    def __init__(self, path):
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)
        self.library.fake_deliver.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.library.fake_dropped.argtypes = [ctypes.c_size_t]
        self.library.fake_call.argtypes = [ctypes.c_uint32, ctypes.c_int, ctypes.c_void_p]
        self._delivered = []
        self.reset()

    def reset(self, version=130001):
        self.library.fake_reset(version)
        NOTED.clear()

    def statuses(self, subscribe=0, register=0, enable=0, flush=0):
        self.library.fake_statuses(subscribe, register, enable, flush)

    def deliver(self, *records):
        data = b"".join(records)
        self._delivered.append(data)
        self.library.fake_deliver(data, len(data))

    def call(self, number, status=0, stream=0):
        """A call of the driver that launches a kernel, by this thread."""
        self.library.fake_call(number, status, stream)

    def note(self, time_ns, number, thread=None, captured=False):
        """A call that `PlainBuffers` has noted; of this thread, if of no other."""
        thread = threading.get_native_id() if thread is None else thread
        note = np.array([(time_ns, thread, number, captured)], list(CALL_FIELDS))
        NOTED.extend(note.tobytes())

    @property
    def has_client(self):
        return bool(self.library.fake_subscribed())

    def dropped(self, count):
        self.library.fake_dropped(count)

    @property
    def enabled(self):
        bits = self.library.fake_enabled()
        return {kind for kind in range(32) if bits >> kind & 1}


class PlainBuffers:
    """Buffers with callbacks in Python: the fake calls back in the thread that flushes."""

    def __init__(self, size_bytes=1 << 20, count=64):
        self._filled = []
        self._size_bytes, self._count = size_bytes, count
        self.descriptor = os.memfd_create("buffers") if hasattr(os, "memfd_create") else -1
        if self.descriptor >= 0:
            os.ftruncate(self.descriptor, count * (1 + size_bytes))
        # A byte for each, which is 0 while it is free; then they lie one behind the other.
        self._memory = mmap.mmap(self.descriptor, count * (1 + size_bytes))
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        pointer = ctypes.POINTER
        request = ctypes.CFUNCTYPE(
            None, pointer(ctypes.c_void_p), pointer(ctypes.c_size_t), pointer(ctypes.c_size_t)
        )
        complete = ctypes.CFUNCTYPE(
            None,
            ctypes.c_void_p,
            ctypes.c_uint32,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_size_t,
        )
        self._callbacks = request(self._request), complete(self._complete)
        self.called = 0  # `FakeCupti.note` notes calls
        self.requested, self.completed = (
            ctypes.cast(callback, ctypes.c_void_p).value for callback in self._callbacks
        )

    def _request(self, buffer, size, records):
        number = self._memory.find(b"\0", 0, self._count)
        self._memory[number] = 1
        buffer[0] = self._address + self._count + number * self._size_bytes
        size[0] = self._size_bytes

    def _complete(self, context, stream, buffer, size, valid):
        at = buffer - self._address
        word = (at - self._count) // self._size_bytes
        self._filled.append(LentBuffer(word, at, valid))

    def filled(self):
        found = []
        for one in self.lend():
            found.append(self._memory[one.at : one.at + one.size_bytes])
            self._memory[one.word_at] = 0
        return found

    def lend(self):
        taken, self._filled = self._filled, []
        return taken

    def calls(self):
        return taken_notes()

    def lent_count(self):
        return 0

    def take_back(self):
        pass
