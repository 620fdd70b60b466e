import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tkdebug.hook_chain import HOOKS

HERE = Path(__file__).parent


def compiled(source, path):
    """A library made of one C file."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(path), str(HERE / source)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="session")
def fake_path(tmp_path_factory):
    """A libcupti of our own."""
    return compiled("fake_cupti.c", tmp_path_factory.mktemp("cupti") / "libcupti.so.13")


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory):
    """An NVML, and a driver, of our own."""
    path = compiled("fake_nvml.c", tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1")
    library = ctypes.CDLL(str(path))
    library.fake_state.argtypes = [ctypes.c_uint, ctypes.c_ulonglong]
    library.fake_state(1980, 0)
    library.path = str(path)
    return library


@pytest.fixture(autouse=True)
def torch_profiler_was_never_used(monkeypatch):
    monkeypatch.setattr(HOOKS, "profiler_has_cupti", None)


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


@pytest.fixture
def fake(fake_path):
    return FakeCupti(fake_path)


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


@pytest.fixture
def buffers():
    return PlainBuffers()
