"""`uninstall` leaves torch and the modules as they were."""

from __future__ import annotations

import os
import sys
import threading

import pytest
import torch

from tkdebug import compat
from tkdebug.compat import cuda_standin
from tkdebug.errors import UsageError
from tkdebug.knobs import KNOBS
from tkdebug.runtime.cuda import first_use


def _snapshot() -> dict[str, object]:
    owners = {
        "torch": torch,
        "torch.cuda": torch.cuda,
        "torch.cuda.memory": torch.cuda.memory,
        "torch.cuda.random": torch.cuda.random,
        "torch.cuda.streams": torch.cuda.streams,
        "torch.cuda.nvtx": torch.cuda.nvtx,
        "torch.accelerator": getattr(torch, "accelerator", torch),
        "torch.version": torch.version,
        "torch.serialization": torch.serialization,
        "torch.autograd": torch.autograd,
        "torch.autograd.graph": torch.autograd.graph,
        "Function": torch.autograd.Function,
        "BackwardCFunction": torch.autograd.function.BackwardCFunction,
        "autocast": torch.amp.autocast_mode.autocast,
        "DeviceContext": torch.utils._device.DeviceContext,
        "Tensor": torch.Tensor,
        "saved_tensors_hooks": torch.autograd.graph.saved_tensors_hooks,
        "checkpoint": torch.utils.checkpoint,
        "Thread": threading.Thread,
    }
    return {
        f"{where}.{name}": value
        for where, owner in owners.items()
        for name, value in vars(owner).items()
    }


def test_uninstall_restores_every_attribute():
    with cuda_standin.install():
        pass
    before = _snapshot()
    with cuda_standin.install():
        torch.set_default_device("cuda")
        torch.ones(2, device="cuda").sum()
        assert _snapshot() != before
    after = _snapshot()
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] is not after[name]] == []
    assert torch._C._len_torch_function_stack() == 0
    assert torch.get_default_device() == torch.device("cpu")


def test_threads_that_outlive_the_stand_in_see_plain_torch():
    ready, go, heard = threading.Event(), threading.Event(), []

    def work():
        ready.set()
        go.wait(60)
        heard.append((torch.ones(2) + 1).tolist())

    installed = cuda_standin.install()
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(60)
    installed.uninstall()
    go.set()
    thread.join()
    assert heard == [[2, 2]]


def test_install_restores_modules_knobs_and_environment():
    sentinel = type(sys)("triton")
    upstream = sys.modules.get("triton")
    sys.modules["triton"] = sentinel
    # Where Triton is installed, torch may have imported parts of it.
    below = [name for name in sys.modules if name.startswith("triton.")]
    environment, path, mode = dict(os.environ), list(sys.meta_path), KNOBS.mode
    try:
        installed = compat.install("interpret", quick=True, interpret=("softmax*",))
        import triton

        assert triton is not sentinel
        assert KNOBS.quick
        assert KNOBS.interpret_kernels == ("softmax*",)
        installed.uninstall()
        installed.uninstall()
        assert sys.modules["triton"] is sentinel
        assert sorted(name for name in sys.modules if name.startswith("triton.")) == sorted(below)
    finally:
        del sys.modules["triton"]
        if upstream is not None:
            sys.modules["triton"] = upstream
    assert dict(os.environ) == environment
    assert sys.meta_path == path
    assert KNOBS.mode == mode
    assert not KNOBS.quick


def test_unknown_mode_is_a_usage_error():
    with pytest.raises(UsageError, match="mode: got 'fast'"):
        compat.install("fast")


@pytest.mark.skipif(cuda_standin.cuda_usable(), reason="a real CUDA device is here")
def test_stand_in_that_cannot_be_installed_leaves_torch_as_it_was(monkeypatch):
    from tkdebug.compat.cuda_standin import patches

    def fail(patches):
        raise RuntimeError("no collectives")

    before = torch.cuda.is_available
    monkeypatch.setattr(patches, "_patch_collectives", fail)
    with pytest.raises(RuntimeError, match="no collectives"):
        cuda_standin.install()
    assert torch.cuda.is_available is before


@pytest.mark.skipif(cuda_standin.cuda_usable(), reason="a real CUDA device is here")
def test_second_installation_takes_the_stand_in_for_no_gpu(monkeypatch):
    told = []
    monkeypatch.setattr(first_use, "announce", lambda: told.append("CUDA is in use"))
    with compat.install("interpret"):
        available = torch.cuda.is_available
        with compat.install("interpret"):
            assert not cuda_standin.cuda_usable()
            assert torch.cuda.is_available is available
        assert torch.zeros(2, device="cuda").is_cuda
    assert not told
    assert not torch.cuda.is_available()
