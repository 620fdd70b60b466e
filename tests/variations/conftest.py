"""Launches of kernels, kept as `tkdebug bisect` and `diverge` keep those of a script."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import tkdebug
from tkdebug.records.hook_chain import HOOKS
from tkdebug.variations.launches import KeptLaunch, LaunchKeeper

Keep = Callable[[Callable[[], object]], list[KeptLaunch]]


@contextmanager
def keeping(each: bool = False) -> Iterator[LaunchKeeper]:
    """Keep the launches inside the `with`."""
    keeper = LaunchKeeper(None, 1 << 28, each)
    before, HOOKS.debugger = HOOKS.debugger, keeper
    try:
        with tkdebug.mode("interpret"):
            yield keeper
    finally:
        HOOKS.debugger = before


@pytest.fixture
def keep() -> Keep:
    """Run what launches, and return its kept launches."""

    def run(launches: Callable[[], object]) -> list[KeptLaunch]:
        # What wrong passes left may fail in any way, as in a script; inputs are kept before.
        with keeping() as keeper, contextlib.suppress(Exception):
            launches()
        return keeper.kept

    return run
