"""The launches that a function makes, kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from kept_launches import keeping

from tkdebug.variations.launches import KeptLaunch

Keep = Callable[[Callable[[], object]], list[KeptLaunch]]


@pytest.fixture
def keep() -> Keep:
    """Run what launches, and return its kept launches."""

    def run(launches: Callable[[], object]) -> list[KeptLaunch]:
        # What wrong passes left may fail in any way, as in a script; inputs are kept before.
        with keeping() as keeper, contextlib.suppress(Exception):
            launches()
        return keeper.kept

    return run
