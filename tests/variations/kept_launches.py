"""Launches of kernels, kept as `tkdebug bisect` and `diverge` keep those of a script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tkdebug
from tkdebug.records.hook_chain import HOOKS
from tkdebug.variations.launches import LaunchKeeper


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
