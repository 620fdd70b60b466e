"""The functions around a compile, and what makes a compiled kernel stale."""

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.runtime.errors import GlobalChangedError
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS


@tkdebug.jit
def store(X, value, N: tl.constexpr):
    tl.store(X, value + N)


@pytest.fixture
def hooks(monkeypatch):
    store.device_caches.clear()
    monkeypatch.setattr(COMPILE_HOOKS, "before", None)
    monkeypatch.setattr(COMPILE_HOOKS, "after", None)
    return COMPILE_HOOKS


def test_hooks_hear_one_compile_each_with_the_same_key(hooks):
    heard = []
    hooks.before = lambda **keywords: heard.append(keywords)
    hooks.after = lambda **keywords: heard.append(keywords)
    x = torch.zeros(1, dtype=torch.int32)
    for _ in range(3):
        store.interpret[(1,)](x, 2, N=3)
    before, after = heard
    assert before["compile"]["specialization_data"] == after["compile"]["specialization_data"]
    assert before["key"] in store.device_caches[0][0]
    assert before["fn"].name == "store"
    assert before["compile"]["constants"] == {(2,): 3}


def test_compiled_kernels_are_found_under_each_device(hooks):
    kernel = store.interpret[(1,)](torch.zeros(1, dtype=torch.int32), 2, N=3)
    caches = store.device_caches
    assert len(caches) == max(1, torch.cuda.device_count())
    for device, (cache,) in caches.items():
        assert list(cache.values()) == [kernel], device


def test_cache_hook_that_returns_true_skips_the_compile(hooks):
    hooks.before = lambda **keywords: True
    x = torch.zeros(1, dtype=torch.int32)
    assert store.interpret[(1,)](x, 2, N=3) is None
    assert x.item() == 0


def make_closure():
    factor = tl.constexpr(2)

    @tkdebug.jit
    def kernel(X):
        tl.store(X, factor)

    def change():
        nonlocal factor
        factor = tl.constexpr(3)

    return kernel, change


def test_changed_variable_of_the_enclosing_function_is_an_error():
    kernel, change = make_closure()
    x = torch.zeros(1, dtype=torch.int32)
    kernel.interpret[(1,)](x)
    change()
    with pytest.raises(GlobalChangedError, match="`factor` has changed"):
        kernel.interpret[(1,)](x)


@tkdebug.jit
def one():
    return 1


@tkdebug.jit
def call(X, function: tl.constexpr):
    tl.store(X, function())


def test_replaced_source_of_a_function_argument_is_compiled():
    x = torch.zeros(1, dtype=torch.int32)
    call.interpret[(1,)](x, one)
    original = one.src
    one._unsafe_update_src(original.replace("1", "5"))
    call.interpret[(1,)](x, one)
    one._unsafe_update_src(original)
    assert x.item() == 5
