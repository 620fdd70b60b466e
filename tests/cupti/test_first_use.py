import threading
from types import SimpleNamespace

import pytest
import torch

from tkdebug.records.hook_chain import HOOKS, Hook, HookChain
from tkdebug.runtime.cuda import first_use


@pytest.fixture
def profiler(monkeypatch):
    """Functions as torch's profiler calls them."""
    made = SimpleNamespace(
        calls=[],
        _prepare_profiler=lambda config, activities: made.calls.append("prepare"),
        _enable_profiler=lambda config, activities, scopes=(): made.calls.append("enable"),
        _disable_profiler=lambda: made.calls.append("disable") or "results",
    )
    monkeypatch.setattr(torch.autograd, "profiler", made)
    monkeypatch.setitem(__import__("sys").modules, "torch.autograd.profiler", made)
    return made


@pytest.fixture
def reported(profiler):
    hook = Hook(profiler=lambda is_taken: profiler.calls.append(is_taken))
    HOOKS.add(hook)
    yield profiler.calls
    HOOKS.remove(hook)


def test_hooks_are_reported_before_cuda_is_profiled_and_after(profiler, reported):
    first_use.tell_of_profiler()
    activities = {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA}
    profiler._prepare_profiler(None, activities)
    profiler._enable_profiler(None, activities, scopes=())
    assert profiler._disable_profiler() == "results"
    assert reported == [True, "prepare", True, "enable", "disable", False]


def test_profile_of_the_cpu_alone_takes_nothing(profiler, reported):
    first_use.tell_of_profiler()
    profiler._enable_profiler(None, {torch.profiler.ProfilerActivity.CPU})
    assert reported == ["enable"]


def test_functions_are_wrapped_once(profiler, reported):
    first_use.tell_of_profiler()
    first_use.tell_of_profiler()
    profiler._enable_profiler(None, {torch.profiler.ProfilerActivity.CUDA})
    assert reported == [True, "enable"]


def test_torch_without_these_functions_is_left_alone(profiler, reported):
    del profiler._prepare_profiler
    before = profiler._enable_profiler
    first_use.tell_of_profiler()
    assert profiler._enable_profiler is before


def test_profiler_of_torch_has_the_functions():
    import torch.autograd.profiler as real

    assert all(hasattr(real, name) for name in ("_prepare_profiler", "_enable_profiler"))
    assert hasattr(real, "_disable_profiler")


def test_other_threads_launch_once_hooks_know_of_cuda():
    chain, order = HookChain(), []
    begun, may_end = threading.Event(), threading.Event()

    def on_device(make_buffers):
        begun.set()
        may_end.wait(20)
        order.append("hook")

    def second():
        chain.device_used(list)
        order.append("launch of another thread")

    chain.add(Hook(device=on_device))
    threads = [threading.Thread(target=chain.device_used, args=(list,))]
    threads[0].start()
    assert begun.wait(20)
    threads.append(threading.Thread(target=second))
    threads[1].start()
    threads[1].join(0.1)
    may_end.set()
    for thread in threads:
        thread.join()
    assert order == ["hook", "launch of another thread"]
