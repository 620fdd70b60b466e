"""A plugin of pytest: writes down the smallest launch of each kernel that a library's tests make.

`CORPUS_OUT` is the folder of the files. Used beside `tkdebug.pytest_plugin`, in mode interpret.
"""

from __future__ import annotations

import collections
import os
import random
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from launches import Launch, NotKept, Packing, place_of

OUT = Path(os.environ["CORPUS_OUT"])
_MOST_BYTES = 4 << 20
_MOST_PROGRAMS = 1024
_SECONDS = int(os.environ.get("CORPUS_TEST_S", "8"))
_SAMPLE = int(os.environ.get("CORPUS_SAMPLE", "2"))


class _Capture:
    """Takes the place of a debugger, and stops nothing."""

    def __init__(self) -> None:
        self.least: dict[tuple[str, str], int] = {}
        self.refused: dict[str, str] = {}
        self.test = ""

    def launch(self, kernel: Any, grid: Any, values: Any, record: Any) -> bool:
        """Write a launch down if it is the smallest of its kernel's so far."""
        function = kernel.src.fn
        programs = grid[0] * grid[1] * grid[2]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        size = sum(each.untyped_storage().nbytes() for each in tensors)
        if size > _MOST_BYTES or programs > _MOST_PROGRAMS:
            self.refused.setdefault(function.__name__, f"{size} bytes, {programs} programs")
            return False
        cost = size + 4096 * programs
        try:
            place = place_of(function)
            if self.least.get(place, cost + 1) <= cost:
                return False
            arguments = Packing().packed_all(function.arg_names, values)
        except NotKept as error:
            self.refused[function.__name__] = str(error)
            return False
        constants = tuple(one.name for one in function.params if one.is_constexpr)
        self.least[place] = cost
        OUT.mkdir(parents=True, exist_ok=True)
        launch = Launch(*place, tuple(grid), arguments, constants)
        file = (
            OUT / f"{Path(place[0]).stem if place[0].endswith('.py') else place[0]}.{place[1]}.pt"
        )
        torch.save((launch, self.test), file)
        return False


_CAPTURE = _Capture()


def pytest_configure(config: Any) -> None:
    """Take the launches of this process."""
    from tkdebug.records.hook_chain import HOOKS

    HOOKS.debugger = _CAPTURE  # type: ignore[assignment]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str, location: Any) -> None:
    """Keep the name of the test that launches."""
    _CAPTURE.test = nodeid


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep a few parameters of each test."""
    if not _SAMPLE:
        return
    groups = collections.defaultdict(list)
    for item in items:
        groups[item.nodeid.split("[")[0]].append(item)
    draw = random.Random(0)
    kept = {
        id(each) for one in groups.values() for each in draw.sample(one, min(_SAMPLE, len(one)))
    }
    items[:] = [item for item in items if id(item) in kept]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Any:
    """End a test that takes too long to interpret."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"over {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pytest_sessionfinish(session: Any) -> None:
    """Say which kernels there is no launch of."""
    for name, why in sorted(_CAPTURE.refused.items()):
        if not any(place[1] == name for place in _CAPTURE.least):
            with suppress(OSError):
                print(f"not kept: {name}: {why}")
