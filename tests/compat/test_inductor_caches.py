"""Inductor's caches, as upstream's compiler left them: never taken for kernels of this run."""

from __future__ import annotations

import importlib
import pickle
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from tkdebug import compat
from tkdebug.compat.inductor import native
from tkdebug.compat.replacements import Replacements
from tkdebug.compat.upstream.recording import UpstreamRecorded

# What is imported of Inductor is imported by the tests: all of it takes a second, which each
# process that collects tests would take.

HASH = "MWVLHVG42QSKOM6LZ2ORC4XSIODIRNKPH7DNPMKPFVPKTPVQYGFQ"


@contextmanager
def compiled_by_us():
    replacements = Replacements()
    native._compile_here(replacements)
    yield
    replacements.restore()


@contextmanager
def compiled_by_an_installed_triton():
    recorded = UpstreamRecorded()
    yield
    recorded.restore()


@pytest.fixture
def cached_kernels(tmp_path, monkeypatch):
    """Return the kernels that torch has loaded from its caches."""
    from torch._inductor import async_compile, config

    kernels = {}
    monkeypatch.setattr(async_compile.CompiledTritonKernels, "_cache", kernels)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with config.patch(bundle_triton_into_fx_graph_cache=True, use_static_cuda_launcher=True):
        yield kernels


def bundle():
    """A kernel as it is kept beside a graph: a cubin, which torch launches by itself."""
    from torch._inductor.triton_bundler import (
        StaticallyLaunchedAutotuner,
        TritonBundle,
        TritonKernelArtifact,
        TritonKernelArtifacts,
    )

    artifacts = [
        TritonKernelArtifact("triton_poi_fused_add_0.cubin", b"\x7fELF"),
        TritonKernelArtifact("triton_poi_fused_add_0.json", b'{"hash": "[REPLACE]"}'),
    ]
    kernel = SimpleNamespace(compile_results=[])
    static = StaticallyLaunchedAutotuner("key", "triton_poi_fused_add_0", kernel)
    whole = TritonBundle([TritonKernelArtifacts(HASH, 0, artifacts)], [static])
    return pickle.loads(pickle.dumps(whole))


@pytest.mark.parametrize("in_force", [compiled_by_us, compiled_by_an_installed_triton])
def test_kernels_that_torch_would_launch_by_itself_are_not_taken_from_its_cache(
    cached_kernels, in_force
):
    from torch._inductor.triton_bundler import TritonBundler

    with in_force():
        TritonBundler.read_and_emit(bundle())
        assert not cached_kernels
    TritonBundler.read_and_emit(bundle())
    assert list(cached_kernels) == ["key"]


def test_graphs_and_timings_of_another_compiler_have_other_keys(monkeypatch):
    from torch._inductor import codecache
    from torch._inductor.codecache import CacheBase
    from torch._inductor.runtime import triton_compat
    from torch.utils import _triton

    monkeypatch.setattr(torch.version, "cuda", "13.0")

    def keys(triton_key):
        CacheBase.get_system.cache_clear()
        _triton.triton_hash_with_backend.cache_clear()
        for module in (codecache, triton_compat):
            # Not every version of torch names it in both.
            if hasattr(module, "triton_key"):
                monkeypatch.setattr(module, "triton_key", triton_key)
        return CacheBase.get_system()["hash"], _triton.triton_hash_with_backend()

    with compat.install(mode="interpret"):
        key = importlib.import_module("triton.runtime.cache").triton_key
        ours, theirs, again = keys(key), keys(lambda: "upstream's"), keys(key)
    CacheBase.get_system.cache_clear()
    _triton.triton_hash_with_backend.cache_clear()
    assert "upstream's" != key()
    assert again == ours
    assert all(ours[place] != theirs[place] for place in range(2))
