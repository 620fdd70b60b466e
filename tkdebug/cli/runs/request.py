"""The request of `tkdebug run`: options, variables and defaults resolved, once.

An option whose `dest` is the name of a knob changes that knob: while a request is in force, its
settings are read from `KNOBS`, wherever they were made.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tkdebug.checks import CHECK_NAMES, NO_CHECKS
from tkdebug.cli.command_line import ScriptWords
from tkdebug.cli.script.execution import Program, command_program, find_program, stdin_program
from tkdebug.errors import UsageError
from tkdebug.instrument.report import format_of
from tkdebug.knobs import KNOB_TABLE, KNOBS
from tkdebug.knobs.values import CheckedLaunchesName, ModeName, parse_mode
from tkdebug.terminal.display import has_terminal, has_textual, opens_tui_by_default
from tkdebug.watches.in_force import WATCHES

USUAL_TARGET = "sm_90a"
# No code but the script's has it: Python's `<string>` is also that of what dataclasses generate.
_DEBUGGED_CODE = "<code>"


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The checks of a run.

    Attributes:
        names: the checks that options ask for, `none` among them; () for the variable's.
        are_all: whether all were asked for, and not each by its name.
        launches: the launches of native kernels that are checked.
        baseline: the file of known faults, as it was typed; None for none.
        updates_baseline: whether the faults of the run are written into it.
    """

    names: tuple[str, ...]
    are_all: bool
    launches: CheckedLaunchesName
    baseline: Path | None
    updates_baseline: bool

    @property
    def asked(self) -> tuple[str, ...]:
        """The checks that options ask for."""
        return tuple(name for name in self.names if name != NO_CHECKS)

    @property
    def baseline_path(self) -> Path | None:
        """The file of known faults, absolute; None for none."""
        return None if self.baseline is None else self.baseline.absolute()


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """A report that is written at the end of the run.

    Attributes:
        path: the report's file.
        asked_format: its format, whatever the file's name; None for the format of the name.
    """

    path: Path
    asked_format: str | None

    @property
    def format(self) -> str:
        """The format.

        Raises:
            UsageError: the name of its file says none.
        """
        return self.asked_format or format_of(self.path, "--report-format")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run as it was asked for.

    Attributes:
        program: the program to run.
        own_words: the options as they were typed.
        tui: whether the TUI shows the run, and another process runs it.
        mode: how kernels run.
        checks: the checks of kernels.
        report: the report at the end; None for nothing.
        given: the knobs that options change, by name.
        session: the file to record into; None for a temporary one.
        is_temporary: whether the process that started this run deletes the session.
        nvtx: whether launches and scopes are ranges of NVTX.
        stacks: whether to record which lines launch others' kernels.
        stalls: whether to sample where warps wait.
        coredump: whether a kernel that crashes or hangs leaves a GPU core dump to be read.
        hang_timeout_s: how long a kernel may run on the GPU; None for no limit.
        pane_socket: the descriptor of the socket to the TUI's Debug pane; None without one.
        waits_for_pane: whether the pane is asked before the script runs.
    """

    program: Program
    own_words: tuple[str, ...]
    tui: bool
    mode: ModeName
    checks: CheckRequest
    report: ReportRequest | None
    given: Mapping[str, object]
    session: Path | None
    is_temporary: bool
    nvtx: bool
    stacks: bool
    stalls: bool
    coredump: bool
    hang_timeout_s: float | None
    pane_socket: int | None
    waits_for_pane: bool

    @property
    def native_target(self) -> str | None:
        """The architecture that an option has interpreted kernels compiled for, too, or None."""
        return None if "cross_compile" not in self.given else str(self.given["cross_compile"])

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Set the request's knobs, in this process and those that it starts."""
        path = self.checks.baseline_path
        with KNOBS.scope(
            **{
                **self.given,
                "mode": self.mode,
                "check_launches": self.checks.launches,
                "baseline": path if path is not None and path.exists() else None,
            }
        ):
            WATCHES.reset()
            try:
                yield
            finally:
                WATCHES.reset()


def run_request(options: argparse.Namespace) -> RunRequest:
    """Resolve the options of `tkdebug run`.

    Raises:
        UsageError: there is nothing to run, or no TUI.
    """
    program = program_of(options.script, is_debugged=options.wait_for_pane)
    given = given_knobs(options)
    if options.advise:
        given.setdefault("cross_compile", USUAL_TARGET)
    checks = _checks(options)
    if checks.names:
        given["checks"] = checks.names
    report = None
    if options.report is not None:
        report = ReportRequest(options.report, options.report_format)
    return RunRequest(
        program=program,
        own_words=options.own_words,
        tui=_wants_tui(options.tui, program),
        mode=_mode(given, checks),
        checks=checks,
        report=report,
        given=given,
        session=options.session,
        is_temporary=options.temporary,
        nvtx=options.nvtx,
        stacks=options.stacks,
        stalls=options.stalls,
        coredump=options.coredump or options.hang_timeout is not None,
        hang_timeout_s=options.hang_timeout,
        pane_socket=options.pane_socket,
        waits_for_pane=options.wait_for_pane,
    )


def given_knobs(options: argparse.Namespace) -> dict[str, object]:
    """Return the knobs that options change, by name."""
    values = {knob.name: getattr(options, knob.name, None) for knob in KNOB_TABLE}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None
    }


def program_of(script: ScriptWords, is_debugged: bool = False) -> Program:
    """Return the program to run.

    Args:
        script: the script's words on the command line.
        is_debugged: whether the debugger has to distinguish its lines from others.

    Raises:
        NoProgramError: there is nothing to run.
    """
    if script.is_code and is_debugged:
        return command_program(script.target, script.argv, _DEBUGGED_CODE)
    if script.is_code:
        return command_program(script.target, script.argv)
    if script.is_stdin:
        return stdin_program(script.argv)
    return find_program(script.target, script.argv, script.is_module)


def is_upstream(given: Mapping[str, object]) -> bool:
    """Whether an installed Triton compiles and launches kernels."""
    return given.get("compiler", KNOBS.compiler) == "triton"


def _mode(given: Mapping[str, object], checks: CheckRequest) -> ModeName:
    """Return the mode of kernels; options with checks that need it have them interpreted."""
    mode = parse_mode(str(given.get("mode", KNOBS.mode)))
    if mode != "auto":
        return mode
    if is_upstream(given):
        return "native"
    return "interpret" if checks.asked else mode


def _checks(options: argparse.Namespace) -> CheckRequest:
    """Return what kernels are checked for; "all" are tkdebug's own checks."""
    asked = options.checks or ()
    own = CHECK_NAMES if "all" in asked else ()
    baseline = options.baseline or KNOBS.baseline
    return CheckRequest(
        names=tuple(dict.fromkeys((*own, *(name for name in asked if name != "all")))),
        are_all="all" in asked,
        launches=_checked_launches(options),
        baseline=None if baseline is None else baseline.expanduser(),
        updates_baseline=options.update_baseline,
    )


def _checked_launches(options: argparse.Namespace) -> CheckedLaunchesName:
    """Return which launches of native kernels are checked: the first of each kind by default.

    If the knob's variable is set, or stalls are sampled, the knob decides: stalls are to be those
    of bare kernels.
    """
    if options.check_launches is not None:
        asked: CheckedLaunchesName = options.check_launches
        return asked
    if os.environ.get("TKDEBUG_CHECK_LAUNCHES") or options.stalls:
        return KNOBS.check_launches
    return "first"


def _wants_tui(asked: bool | None, program: Program) -> bool:
    """Whether the run is to be shown in the TUI.

    Raises:
        UsageError: the TUI is asked for, and cannot be shown.
    """
    if program.is_stdin:
        if asked:
            raise UsageError("--tui: stdin holds the script; write it into a file")
        return False
    if asked is None:
        return opens_tui_by_default()
    if asked and not has_textual():
        raise UsageError("--tui: the TUI needs the package textual; pip install textual")
    if asked and os.name != "posix":
        raise UsageError("--tui: running a script in the TUI needs a POSIX system; use --no-tui")
    if asked and not has_terminal():
        raise UsageError(
            "--tui: stdin, stdout and stderr are not a terminal with UTF-8; use --no-tui"
        )
    return asked
