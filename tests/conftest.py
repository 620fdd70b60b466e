"""Fixtures and options that all tests share.

A process started in the background must not hand its signals on. Tests marked `gpu` need a GPU; the
others run as on a machine without one, so that the mode "auto" interprets.
"""

import gc
import os
import signal
import sys
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent / "native"))
pytest_plugins = ["corpus_plugin"]

# Tiles are small, and the processes of a parallel run have all cores: torch's second thread would
# only wait, which takes a core. Before torch is imported, and for the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Inductor would ask the C++ compiler, and a process that loads what it made, whether the vector
# instructions that this processor says it has can be used: for each empty cache.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP ignored; children inherit
# that, and the tests of Ctrl-C would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Textual's `Pilot.press` waits until animations have ended. If the key quits the app during one, it
# waits forever, as seen on a busy machine.
os.environ["TEXTUAL_ANIMATIONS"] = "none"

if profile := os.environ.get("HYPOTHESIS_PROFILE"):
    hypothesis.settings.load_profile(profile)


# What is imported and collected stays: garbage collections look at what tests make alone.
gc.disable()


def pytest_collection_finish():
    gc.enable()
    gc.collect()
    gc.freeze()


def has_gpu():
    from tkdebug.runtime.device.driver import has_real_gpu

    return has_real_gpu()


def pytest_configure(config):
    # Who only hands tests to workers starts them sooner without an import of torch.
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        # Of the processes that tests start, too.
        os.environ.setdefault("TKDEBUG_MODE", "interpret" if has_gpu() else "auto")
    if os.environ.get("HYPOTHESIS_PROFILE") == "ci" and config.option.durations is None:
        # What makes CI slow is listed at its end.
        config.option.durations, config.option.durations_min = 40, 3.0


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")
    parser.addoption(
        "--zoo",
        default="gpu-ir",
        choices=("gpu-ir", "ptx", "native", "none"),
        help="how interpreted launches with faults are run again, as checked kernels",
    )


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow; run it with --slow"))
    if has_gpu():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU; this machine has none"))


@pytest.fixture(autouse=True)
def cuda_is_not_in_use(monkeypatch):
    """A test with a made-up device leaves no recorder that looks for CUPTI."""
    if not has_gpu():
        from tkdebug.records.hook_chain import HOOKS

        monkeypatch.setattr(HOOKS, "_make_buffers", None)


@pytest.fixture(autouse=True)
def auto_interprets(request, monkeypatch):
    """Mode "auto" means the same for tests that need no GPU, wherever they run."""
    if not request.node.get_closest_marker("gpu") and has_gpu():
        from tkdebug.runtime.device import modes

        ask = modes._auto
        interpreted = {"nvptx": "interpret"}
        monkeypatch.setattr(
            modes, "_auto", lambda platform: interpreted.get(platform.backend) or ask(platform)
        )


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Launches work on CUDA tensors over the memory of those they are given.

    Operators of the stand-in refuse tensors of two devices, as a GPU's do.
    """
    import torch

    from tkdebug.compat import cuda_standin
    from tkdebug.interpreter import arguments

    in_place = cuda_standin.install()
    from tkdebug.compat.cuda_standin.tensors import place

    monkeypatch.setattr(arguments, "host_view", place)
    monkeypatch.setattr(arguments, "device_of", lambda values: torch.device("cuda", 0))
    yield
    monkeypatch.undo()
    in_place.uninstall()


@pytest.fixture
def many_open_files():
    """Descriptors that are opened in the test have numbers from 1100 on."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < 2048:
        pytest.skip("this system lets no process open as many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    yield
    for descriptor in descriptors:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
