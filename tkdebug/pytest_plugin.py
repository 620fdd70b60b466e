"""Kernels under pytest: `pytest -p tkdebug.pytest_plugin --tkdebug-mode interpret`.

The `triton` of tkdebug and the CUDA stand-in are in place before the first conftest is imported. A
test whose kernels had a fault fails with the fault's text, also if its own assertions hold;
warnings are shown and fail nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tkdebug.compat import Installed, install
from tkdebug.errors import UsageError
from tkdebug.events import HOOKS, Fault, Hook
from tkdebug.fault_text import describe
from tkdebug.knobs import CHECK_NAMES, MODE_NAMES
from tkdebug.plugins import WithPlugins

# Faults that the script also gets as an exception.
RAISED_KINDS = frozenset({"compile-error"})
_SECTION = "tkdebug faults"
_SHOWN = 20


class FaultCollector:
    """The faults since the last phase of a test was reported."""

    def __init__(self, installed: Installed, fails: bool) -> None:
        self.installed = installed
        self.fails = fails
        self.faults: list[Fault] = []
        self.hook = Hook(fault=self.faults.append)
        # Whether the running test asked for the faults and judges them itself.
        self.expected = False

    def take(self) -> list[Fault]:
        """The collected faults; the collection starts anew."""
        taken = list(self.faults)
        self.faults.clear()
        return taken


_COLLECTOR = pytest.StashKey[FaultCollector]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("tkdebug", "tkdebug: Triton-style kernels without a GPU")
    group.addoption(
        "--tkdebug-mode",
        choices=MODE_NAMES,
        default="auto",
        help="how kernels run: auto (native where a GPU is usable), interpret or native",
    )
    group.addoption(
        "--tkdebug-quick",
        action="store_true",
        help="do_bench runs once, benchmark sweeps take their first x value",
    )
    group.addoption(
        "--tkdebug-check",
        action="append",
        default=[],
        choices=WithPlugins((*CHECK_NAMES, "all"), "tkdebug.checks"),
        metavar="KIND",
        help="also check interpreted kernels for race, uninitialised-read, nan, inf, "
        "padding, narrowing, undefined-value, all of them, or a plugin's check; slower",
    )
    group.addoption(
        "--tkdebug-faults",
        choices=("fail", "report"),
        default="fail",
        help="whether a fault in a kernel (out-of-bounds…) fails its test or is only shown",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Put the stand-ins in place before any conftest can import triton."""
    options = early_config.known_args_namespace
    checks = CHECK_NAMES if "all" in options.tkdebug_check else options.tkdebug_check
    try:
        installed = install(options.tkdebug_mode, quick=options.tkdebug_quick, checks=checks)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    collector = FaultCollector(installed, fails=options.tkdebug_faults == "fail")
    early_config.stash[_COLLECTOR] = collector
    HOOKS.add(collector.hook)
    early_config.add_cleanup(installed.uninstall)
    early_config.add_cleanup(lambda: HOOKS.remove(collector.hook))


@pytest.fixture
def tkdebug_faults(request: pytest.FixtureRequest) -> list[Fault]:
    """The faults of this test's kernels so far; a test that takes this judges them itself."""
    collector = request.config.stash[_COLLECTOR]
    collector.expected = True
    return collector.faults


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """Add the phase's faults to its report, and fail it where it passed."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    collector = item.config.stash[_COLLECTOR]
    if call.when == "setup" and collector.expected:
        return
    expected, collector.expected = collector.expected, False
    faults = collector.take()
    if not faults or expected:
        return
    text = "\n\n".join(describe(fault) for fault in faults[:_SHOWN])
    if len(faults) > _SHOWN:
        text += f"\n\nand {len(faults) - _SHOWN} more"
    report.sections.append((_SECTION, text))
    # An error that reached the test as an exception is the test's to judge.
    wrong = any(f.severity == "error" and f.kind not in RAISED_KINDS for f in faults)
    if collector.fails and wrong and report.outcome == "passed" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = (
            f"{describe(faults[0]).splitlines()[0]}\n(a fault in a kernel fails its test; "
            "--tkdebug-faults=report only shows it)"
        )
