"""Locks across `os.fork`.

A forked child has one thread. A lock that another thread of the parent held at that moment stays
held in the child forever, so owners of locks make them anew there. Invariant: no lock of
tkdebug that a launch may take is inherited.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class OwnsLocks(Protocol):
    """What has locks that other threads may hold during a fork."""

    def renew_locks(self) -> None:
        """Replace the locks, and whatever a thread that is gone has left half done."""


_OWNERS: WeakSet[OwnsLocks] = WeakSet()


def renew_after_forks(owner: OwnsLocks) -> None:
    """Have `owner` renew its locks in every forked child, as long as it lives."""
    _OWNERS.add(owner)


def _after_fork_in_child() -> None:
    for owner in list(_OWNERS):
        owner.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
