"""Locks across `os.fork`.

A forked child has one thread. A lock that another thread of the parent held at that moment stays
held in the child forever, so owners of locks replace them there. Invariant: no lock of
tkdebug that a launch may take is inherited.

Python's own locks of modules that are being imported cannot be replaced, and a launch may import
modules: so a fork waits for such imports of other threads.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol
from weakref import WeakMethod, WeakSet

# Modules that launches import at first use.
_IMPORTED_LATE = ("tkdebug", "llvmlite", "numpy", "torch")
# An import may wait for a lock that the forking thread holds.
_LONGEST_WAIT_S = 5.0


class OwnsLocks(Protocol):
    """An object with locks that other threads may hold during a fork."""

    def renew_locks(self) -> None:
        """Replace the locks, and the unfinished work of threads that do not exist in a fork."""


_OWNERS: WeakSet[OwnsLocks] = WeakSet()


def renew_after_forks(owner: OwnsLocks) -> None:
    """Have `owner` renew its locks in every forked child, as long as it lives."""
    _OWNERS.add(owner)


def follow_forks(**methods: Callable[[], None]) -> None:
    """Call bound methods around forks while their owners live; keywords of `register_at_fork`."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**{when: _while_alive(method) for when, method in methods.items()})


def _while_alive(method: Callable[[], None]) -> Callable[[], None]:
    reference = WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    return call


def _after_fork_in_child() -> None:
    for owner in list(_OWNERS):
        owner.renew_locks()


def _await_imports() -> None:
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while _imports_under_way() and time.monotonic() < deadline:
        time.sleep(0.001)


def _imports_under_way() -> bool:
    """Whether another thread imports a module that a launch in a child may want."""
    # Each of these locks has its thread as `owner`: CPython 3.3 to 3.13, Lib/importlib/_bootstrap.
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    for name, reference in list(locks.items()):
        if name.partition(".")[0] in _IMPORTED_LATE:
            owner = getattr(reference(), "owner", None)
            if owner not in (None, threading.get_ident()):
                return True
    return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_await_imports, after_in_child=_after_fork_in_child)
