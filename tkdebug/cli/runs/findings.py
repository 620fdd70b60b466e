"""What `tkdebug run` does about faults that one lives with: options, and the baseline's file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tkdebug import checks as known_checks
from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.places import check_writable
from tkdebug.cli.runs.kernel_checks import checks_of
from tkdebug.errors import TkError, UsageError
from tkdebug.fault_printing.text import counted
from tkdebug.findings.baseline import KnownFault, load, pieces
from tkdebug.findings.reporting import unmatched_lines, used_baseline
from tkdebug.hook_chain import HOOKS
from tkdebug.instrument.analyses.known_faults import baseline_outcome, identities
from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.session import Session
from tkdebug.instrument.whole_file import write_whole
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import CheckedLaunchesName
from tkdebug.terminal_text import tell
from tkdebug.watches.in_force import WATCHES

_CHECK_LAUNCHES = "TKDEBUG_CHECK_LAUNCHES"


def baseline_path(arguments: Arguments) -> Path | None:
    """The file of known faults, absolute; None for none."""
    path = arguments.baseline or KNOBS.baseline
    return None if path is None else path.expanduser().absolute()


def check_baseline(arguments: Arguments, read: dict[str, Path | None]) -> None:
    """Look whether the baseline can be read, and written where that is asked for.

    Args:
        arguments: of the command line.
        read: what else the command reads or writes, by what to call it.

    Raises:
        UsageError: it cannot be; a file that is no baseline is not written over.
    """
    path = baseline_path(arguments)
    if arguments.update_baseline:
        if path is None:
            raise UsageError("--update-baseline: give the file, too: --baseline FILE")
        check_writable("--baseline", path, read)
        if not path.exists():
            return
    if path is not None:
        _ = load(arguments.baseline or path)  # named as it was typed


def checked_launches(arguments: Arguments) -> CheckedLaunchesName:
    """Which launches of native kernels a run checks: the first of each kind by default.

    Where stalls are sampled, none: they are those of the kernels as they are.
    """
    if arguments.check_launches is not None:
        return arguments.check_launches
    if os.environ.get(_CHECK_LAUNCHES) or arguments.stalls:
        return KNOBS.check_launches
    return "first"


@contextlib.contextmanager
def findings_in_force(arguments: Arguments) -> Iterator[None]:
    """The knobs as this command line has them, for this process and those that it starts."""
    path = baseline_path(arguments)
    with KNOBS.scope(
        only_kernels=arguments.only or KNOBS.only_kernels,
        ignored_kinds=arguments.ignored or KNOBS.ignored_kinds,
        baseline=path if path is not None and path.exists() else None,
        check_launches=checked_launches(arguments),
        watches=arguments.watches or KNOBS.watches,
        instrumentations=arguments.instrumentations or KNOBS.instrumentations,
        timelines=arguments.timelines or KNOBS.timelines,
        ask_triton=arguments.ask_triton or KNOBS.ask_triton,
        print_elements=KNOBS.print_elements
        if arguments.print_elements is None
        else arguments.print_elements,
    ):
        WATCHES.reset()
        try:
            yield
        finally:
            WATCHES.reset()


def record_baseline() -> None:
    """Put the baseline that is in force into the session."""
    if KNOBS.baseline is not None:
        HOOKS.record(used_baseline(KNOBS.baseline, load(KNOBS.baseline)))


def update_baseline(arguments: Arguments, session: Session, faults: tuple[FaultGroup, ...]) -> None:
    """Write the baseline anew: this run's faults, and those known ones that it could not show.

    Raises:
        TkError: it cannot be written.
    """
    path = baseline_path(arguments)
    assert path is not None
    outcome = baseline_outcome(session, faults)
    counting = tuple(group for group in faults if group.fault.state != "ignored")
    seen: set[KnownFault] = set(identities(session, counting, path.parent).values())
    known = seen | (set() if outcome is None else outcome.left)
    try:
        write_whole(path, pieces(known))
    except OSError as error:
        raise TkError(f"{path}: baseline cannot be written ({error.strerror})") from error
    tell(f"{arguments.baseline or path}: {counted(len(known), 'known fault')} written")


def not_looked_for(arguments: Arguments) -> tuple[str, ...]:
    """The checks that there are, and that this run did without."""
    checks = checks_of(arguments)
    ignored = arguments.ignored or KNOBS.ignored_kinds
    return known_checks.not_looked_for(checks, ignored)


def tell_unmatched(session: Session, interpret: tuple[str, ...]) -> None:
    """Say which patterns are the name of no kernel that was launched, as when mistyped."""
    names = [summary.kernel for summary in session.kernel_summaries()]
    asked = {
        "--interpret": interpret,
        "--only": KNOBS.only_kernels,
        "--timeline": tuple(text.partition("@")[0] for text in KNOBS.timelines),
    }
    for option, patterns in asked.items():
        for line in unmatched_lines(option, patterns, names):
            tell(line)
