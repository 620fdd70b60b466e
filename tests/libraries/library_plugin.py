"""The pytest side of `run.py`: a sample of a library's tests, each within a time, and a record.

As many cases of each test function run as are asked for, drawn with a fixed seed. Results go to one
JSON line per case.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
from libraries import LIBRARIES

_LIBRARY = LIBRARIES[os.environ["TKDEBUG_LIBRARY"]]
_CASES = int(os.environ["TKDEBUG_LIBRARY_CASES"])
_SECONDS = int(os.environ["TKDEBUG_LIBRARY_SECONDS"])
_SEED = 19
_RECORD = Path(os.environ["TKDEBUG_LIBRARY_RECORD"]).open("a", buffering=1, encoding="utf-8")


# Of the clock on the wall, for a case that waits: so many times what it may compute.
_PATIENCE = 8


class OverTime(BaseException):
    """A case ran longer than it may; no `except Exception` of a test catches it."""


def pytest_load_initial_conftests() -> None:
    """Make what the library lacks, and name its platform."""
    for name in _LIBRARY.extensions:
        sys.modules[name] = ModuleType(name)
    if _LIBRARY.platform:
        module, _, function = _LIBRARY.platform.partition(":")
        getattr(importlib.import_module(module), function)()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep some cases of each test function."""
    by_function: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_function[item.nodeid.partition("[")[0]].append(item)
    kept = set[pytest.Item]()
    for name, cases in by_function.items():
        kept.update(random.Random(f"{_SEED} {name}").sample(cases, min(_CASES, len(cases))))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _stop(number: int, frame: FrameType | None) -> None:
    raise OverTime(f"over {_SECONDS} s")


def _set_clocks(seconds: int) -> None:
    # Seconds of the processor: what else the machine does is no matter.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds * _PATIENCE)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, None]:
    """Stop a case that takes too long."""
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _stop)
    yield
    _set_clocks(0)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Start the clock."""
    _set_clocks(_SECONDS)
    outcome = yield
    _set_clocks(0)
    if outcome.excinfo is not None and isinstance(outcome.excinfo[1], OverTime):
        outcome.force_exception(TimeoutError(f"over {_SECONDS} s"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record each case once, with the faults of its kernels."""
    if report.when != "call" and report.outcome == "passed":
        return
    row = {"id": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 2)}
    row["faults"] = [text for title, text in report.sections if title == "tkdebug faults"]
    if report.outcome == "skipped":
        row["reason"] = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    elif report.outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        row["reason"] = (crash.message if crash else report.longreprtext).strip()[:600]
        row["text"] = report.longreprtext[-6000:]
    _write(row)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record files that could not be imported."""
    if report.failed:
        text = report.longreprtext
        row = {"id": report.nodeid, "outcome": "not collected", "reason": text[-400:], "faults": []}
        _write(row)


def _write(row: dict[str, Any]) -> None:
    _RECORD.write(json.dumps(row) + "\n")
    if (path := os.environ.get("TKDEBUG_LIBRARY_LOG")) is not None:
        with open(path, "a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
