"""Forks in the middle of what another thread does."""

import contextlib
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.records.scopes import SCOPES
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
CHILD_S = 20


@tkdebug.jit
def store(X, value):
    tl.store(X, value)


def status_of_child(work: Callable[[], None]) -> int:
    """Exit status of a forked child that does `work`; -SIGALRM where it never ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: there are other threads
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(CHILD_S)
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)


@contextlib.contextmanager
def another_thread(hold: Callable[[Callable[[], None]], None]):
    """Run `hold` in a thread; the body comes when it calls what it is given, and then waits."""
    inside, release = threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        release.wait()

    thread = threading.Thread(target=hold, args=(stay,))
    thread.start()
    try:
        assert inside.wait(CHILD_S)
        yield
    finally:
        release.set()
        thread.join()


def test_fork_while_a_thread_compiles_leaves_the_child_able_to(monkeypatch):
    store.device_caches.clear()
    monkeypatch.setattr(COMPILE_HOOKS, "after", None)

    def compile_slowly(stay: Callable[[], None]) -> None:
        monkeypatch.setattr(COMPILE_HOOKS, "before", lambda **keywords: stay())
        store.interpret[(1,)](torch.zeros(1, dtype=torch.int32), 7)

    def launch_in_child() -> None:
        COMPILE_HOOKS.before = None
        x = torch.zeros(1, dtype=torch.int32)
        store.interpret[(1,)](x, 7)
        assert x.item() == 7

    with another_thread(compile_slowly):
        assert status_of_child(launch_in_child) == 0


SLOW = """
import sys, time

sys.tkdebug_begins_import.set()
time.sleep(0.2)
done = True
"""


def test_fork_while_a_thread_imports_leaves_the_child_able_to(tmp_path, monkeypatch):
    (tmp_path / "slow_module.py").write_text(SLOW)
    monkeypatch.setattr(tkdebug, "__path__", [*tkdebug.__path__, str(tmp_path)])
    begins = threading.Event()
    monkeypatch.setattr(sys, "tkdebug_begins_import", begins, raising=False)

    def import_it() -> None:
        assert importlib.import_module("tkdebug.slow_module").done

    thread = threading.Thread(target=import_it)
    thread.start()
    assert begins.wait(CHILD_S)
    status = status_of_child(import_it)
    thread.join()
    del sys.modules["tkdebug.slow_module"]
    assert status == 0


def test_fork_while_a_thread_hashes_a_source_leaves_no_half_hash(monkeypatch):
    from tkdebug.runtime.jit import function_source

    content_key = function_source.content_key
    expected = store.cache_key
    store.hash = None

    def hash_slowly(stay: Callable[[], None]) -> None:
        monkeypatch.setattr(
            function_source, "content_key", lambda *of: (stay(), content_key(*of))[1]
        )
        assert store.cache_key == expected

    def hash_in_child() -> None:
        function_source.content_key = content_key
        assert store.cache_key == expected

    with another_thread(hash_slowly):
        assert status_of_child(hash_in_child) == 0


@pytest.mark.parametrize("owner", [HOOKS, SCOPES], ids=["hooks", "scopes"])
def test_fork_while_a_thread_subscribes_leaves_the_child_able_to(owner):
    def subscribe_slowly(stay: Callable[[], None]) -> None:
        with owner._lock:
            stay()

    def subscribe_in_child() -> None:
        hook = Hook()
        HOOKS.add(hook)
        HOOKS.remove(hook)
        SCOPES.keep(1)

    with another_thread(subscribe_slowly):
        assert status_of_child(subscribe_in_child) == 0
