"""A CUPTI of our own, and buffers for it."""

from __future__ import annotations

import ctypes


class FakeCupti:
    """Says what the fake libcupti answers."""

    def __init__(self, path):
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)
        self.library.fake_deliver.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.library.fake_dropped.argtypes = [ctypes.c_size_t]
        self._delivered = []
        self.reset()

    def reset(self, version=130001):
        self.library.fake_reset(version)

    def statuses(self, subscribe=0, register=0, enable=0, flush=0):
        self.library.fake_statuses(subscribe, register, enable, flush)

    def deliver(self, *records):
        data = b"".join(records)
        self._delivered.append(data)
        self.library.fake_deliver(data, len(data))

    def dropped(self, count):
        self.library.fake_dropped(count)

    @property
    def enabled(self):
        bits = self.library.fake_enabled()
        return {kind for kind in range(32) if bits >> kind & 1}


class PlainBuffers:
    """Buffers with callbacks in Python: the fake calls back in the thread that flushes."""

    def __init__(self, size_bytes=1 << 20):
        self._memory = []
        self._filled = []
        self._size_bytes = size_bytes
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
        self.requested, self.completed = (
            ctypes.cast(callback, ctypes.c_void_p).value for callback in self._callbacks
        )

    def _request(self, buffer, size, records):
        self._memory.append(ctypes.create_string_buffer(self._size_bytes))
        buffer[0], size[0] = ctypes.addressof(self._memory[-1]), self._size_bytes

    def _complete(self, context, stream, buffer, size, valid):
        self._filled.append(ctypes.string_at(buffer, valid))

    def filled(self):
        taken, self._filled = self._filled, []
        return taken
