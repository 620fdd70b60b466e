"""Kernels under pytest: `pytest -p tkdebug.pytest_plugin --tkdebug-mode interpret`.

The `triton` of tkdebug and the CUDA stand-in are in place before the first conftest is imported. A
test whose kernels had a fault fails with the fault's text, also if its own assertions hold;
warnings are shown and fail nothing, nor do faults that are ignored or in the baseline.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tkdebug.checks import (
    CHECK_CHOICES,
    CHECK_NAMES,
    DEFAULT_CHECKS,
    OTHER_CHECKS,
    not_looked_for,
)
from tkdebug.compat import install
from tkdebug.compat.around_torch.checked_synchronisations import conclude_checked_launches
from tkdebug.compat.replacements import InPlace
from tkdebug.errors import UsageError, instead_of
from tkdebug.fault_printing.text import describe
from tkdebug.findings.reporting import checks_in_force
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import MODE_NAMES, TRITON_RELEASES
from tkdebug.plugins import WithPlugins
from tkdebug.pytest_plugin.findings import Findings, add_options
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS

# Faults that the script also gets as an exception.
RAISED_KINDS = frozenset({"compile-error", "mismatch"})
_SECTION = "tkdebug faults"
_SHOWN = 20
# How long a test waits for answers about its kernels.
_ANSWERS_LIMIT_S = 60.0


class FaultCollector:
    """The faults since the last reported phase of a test, without ignored ones."""

    def __init__(self, installed: InPlace, findings: Findings, fails: bool) -> None:
        self.installed = installed
        self.findings = findings
        self.fails = fails
        self.faults: list[Fault] = []
        self.hook = Hook(fault=self._on_fault)
        # Whether the running test asked for the faults and judges them itself.
        self.expected = False

    def _on_fault(self, fault: Fault) -> None:
        if fault.state == "ignored":
            self.findings.ignore(fault)
        else:
            self.faults.append(fault)

    def take(self) -> list[Fault]:
        """Return the collected faults, and start a new collection."""
        taken = list(self.faults)
        self.faults.clear()
        return taken


_COLLECTOR = pytest.StashKey[FaultCollector]()
_CHOICES = WithPlugins(CHECK_CHOICES, "tkdebug.checks")


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
        "--tkdebug-triton",
        metavar="VERSION",
        help=f"the Triton that kernels are written for: {', '.join(TRITON_RELEASES)} (the default)",
    )
    group.addoption(
        "--tkdebug-ask-triton",
        metavar="PYTHON",
        help="ask the Triton of that Python whether it compiles each signature, too; a kernel that "
        "only one of the two compiles is a fault",
    )
    group.addoption(
        "--tkdebug-check",
        action="append",
        default=[],
        choices=_CHOICES,
        metavar="KIND",
        help=f"also check interpreted kernels for {', '.join(OTHER_CHECKS)}, all of them, or a "
        "plugin's check; slower "
        f"(looked for by default: {', '.join(DEFAULT_CHECKS)}; none: not even these)",
    )
    group.addoption(
        "--tkdebug-faults",
        choices=("fail", "report"),
        default="fail",
        help="whether a fault in a kernel (out-of-bounds…) fails its test or is only shown",
    )
    parser.addini("tkdebug_check", "as --tkdebug-check", "args", [])
    group.addoption(
        "--tkdebug-pdb",
        action="store_true",
        help="open the debugger's console at a kernel's fault, and at breakpoint() in a kernel",
    )
    add_options(parser, group)


def _checks(config: pytest.Config) -> tuple[str, ...]:
    """The checks that are asked for, by the command line or else the ini file."""
    asked = tuple(config.known_args_namespace.tkdebug_check or config.getini("tkdebug_check"))
    for name in asked:
        if name not in _CHOICES:
            raise UsageError(
                f"tkdebug_check: {name!r} is not one{instead_of(name, tuple(_CHOICES))}"
            )
    return CHECK_NAMES if "all" in asked else asked


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Put the stand-ins in place before any conftest can import triton."""
    options = early_config.known_args_namespace
    try:
        checks = _checks(early_config)
        findings = Findings(early_config)
        early_config.add_cleanup(findings.undo.close)
        asked = options.tkdebug_ask_triton or KNOBS.ask_triton
        findings.undo.enter_context(KNOBS.scope(ask_triton=asked))
        installed = install(
            options.tkdebug_mode,
            quick=options.tkdebug_quick,
            checks=checks,
            triton=options.tkdebug_triton,
        )
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    early_config.pluginmanager.register(findings, "tkdebug_findings")
    # A fault that goes into the baseline need not be fixed now.
    fails = options.tkdebug_faults == "fail" and not findings.updates
    collector = FaultCollector(installed, findings, fails)
    early_config.stash[_COLLECTOR] = collector
    HOOKS.add(collector.hook)
    early_config.add_cleanup(installed.uninstall)
    early_config.add_cleanup(lambda: HOOKS.remove(collector.hook))


def pytest_report_header() -> str | None:
    """Return a line on the checks that interpreted kernels do not get, or None."""
    missing = not_looked_for(checks_in_force())
    if not missing or KNOBS.mode == "native":
        return None
    return f"tkdebug: not looked for: {', '.join(missing)} (--tkdebug-check all)"


def pytest_configure(config: pytest.Config) -> None:
    """Debug kernels, if that is asked for."""
    if config.option.tkdebug_pdb:
        from tkdebug.pytest_plugin.debugging import stop_at_faults

        config.add_cleanup(stop_at_faults(config))


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
    """Add the phase's faults to its report, and fail a phase that passed."""
    # Faults of a phase's own native launches, which come up once those have ended.
    conclude_checked_launches()
    if COMPILE_HOOKS.asker is not None:
        COMPILE_HOOKS.asker.wait(_ANSWERS_LIMIT_S)
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    collector = item.config.stash[_COLLECTOR]
    if call.when == "setup" and collector.expected:
        return
    expected, collector.expected = collector.expected, False
    faults = collector.take()
    if expected:
        return
    collector.findings.add(faults)
    faults = [fault for fault in faults if fault.is_open]
    if not faults:
        return
    text = "\n\n".join(describe(fault) for fault in faults[:_SHOWN])
    if len(faults) > _SHOWN:
        text += f"\n\nand {len(faults) - _SHOWN} more"
    report.sections.append((_SECTION, text))
    # An error that reached the test as an exception is the test's to judge.
    wrong = next((f for f in faults if f.fails and f.kind not in RAISED_KINDS), None)
    if collector.fails and wrong and report.outcome == "passed" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = (
            f"{describe(wrong).splitlines()[0]}\n(a fault in a kernel fails its test; "
            "--tkdebug-faults=report only shows it)"
        )
