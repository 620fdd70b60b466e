import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from made_cupti import FakeCupti, PlainBuffers

from tkdebug.records.hook_chain import HOOKS

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


@pytest.fixture
def fake(fake_path):
    return FakeCupti(fake_path)


@pytest.fixture
def buffers():
    return PlainBuffers()
