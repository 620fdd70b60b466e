"""Known faults of a test suite: options, the baseline, and their lines in the summary.

Responsible for counts over the whole session, the workers of pytest-xdist included; `pytest_plugin`
decides which test fails. Fixed faults and unused comments are named if all tests ran and passed:
otherwise more might have come up.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tkdebug.errors import UsageError
from tkdebug.fault_printing.text import counted
from tkdebug.findings.baseline import KnownFault, fixed, identity, load, pieces
from tkdebug.findings.reporting import unmatched_lines, used_baseline
from tkdebug.findings.source import IgnoreComment, problem_lines, unused_lines
from tkdebug.instrument.records import FaultKey, fault_key
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import parse_kinds
from tkdebug.process.named_files import write_whole
from tkdebug.records.events import Fault, LaunchRecord
from tkdebug.records.hook_chain import HOOKS, Hook

_SENT = "tkdebug_faults"


@dataclass(slots=True)
class Tally:
    """The findings of a session, or of a worker of it.

    Attributes:
        seen: faults that are not ignored, by the identity that finds them again.
        ignored: one fault for each identity.
    """

    seen: set[KnownFault] = field(default_factory=set)
    ignored: dict[FaultKey, Fault] = field(default_factory=dict)
    comments: set[IgnoreComment] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    deselected: bool = False

    def merge(self, other: Tally) -> None:
        """Add the findings of another tally."""
        self.seen |= other.seen
        self.ignored |= other.ignored
        self.comments |= other.comments
        self.kernels |= other.kernels
        self.deselected = self.deselected or other.deselected


def add_options(parser: pytest.Parser, group: pytest.OptionGroup) -> None:
    """Declare the options, and their names in an ini file."""
    group.addoption(
        "--tkdebug-only",
        action="append",
        default=[],
        metavar="KERNEL",
        help="check only the kernels of that name, such as 'softmax*'; may be repeated",
    )
    group.addoption(
        "--tkdebug-ignore",
        action="append",
        default=[],
        type=_kinds,
        metavar="KIND[,KIND]",
        help="do not report faults of that kind; may be repeated",
    )
    group.addoption(
        "--tkdebug-baseline",
        metavar="FILE",
        help="known faults: only others fail a test",
    )
    group.addoption(
        "--tkdebug-update-baseline",
        action="store_true",
        help="write the faults of these tests into the file of --tkdebug-baseline",
    )
    parser.addini("tkdebug_only", "names of the kernels that are checked", "args", [])
    parser.addini("tkdebug_ignore", "kinds of faults that are not reported", "args", [])
    parser.addini("tkdebug_baseline", "file of known faults, relative to the ini file", "string")


def _kinds(text: str) -> tuple[str, ...]:
    try:
        return parse_kinds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {error}") from None


class Findings:
    """A plugin of pytest: knobs by its options, and the tally of a session.

    Raises:
        UsageError: an option or an ini value is wrong, or the baseline cannot be read.
    """

    def __init__(self, config: pytest.Config) -> None:
        options = config.known_args_namespace
        self.tally = Tally()
        self.updates: bool = options.tkdebug_update_baseline
        self.path = _baseline_path(config)
        if self.updates and self.path is None:
            raise UsageError("--tkdebug-update-baseline: give the file: --tkdebug-baseline FILE")
        given = None
        self._known: frozenset[KnownFault] = frozenset()
        if self.path is not None and not (self.updates and not self.path.exists()):
            self._known = load(self.path, "--tkdebug-update-baseline")
            given = self.path
        # Entered before the stand-ins, whose child processes get the same.
        self.undo = ExitStack()
        self.undo.enter_context(
            KNOBS.scope(
                only_kernels=_asked(config, "tkdebug_only") or KNOBS.only_kernels,
                ignored_kinds=_ignored(config) or KNOBS.ignored_kinds,
                baseline=given,
            )
        )
        needs_names = given is not None or KNOBS.only_kernels
        enter = self._on_enter if needs_names else None
        hook = Hook(enter=enter, record=self._on_record, shows_faults=False)
        HOOKS.add(hook)
        self.undo.callback(HOOKS.remove, hook)

    def add(self, faults: list[Fault]) -> None:
        """Count the faults in a phase of a test that does not expect them."""
        if self.path is not None:
            folder = self.path.parent
            self.tally.seen.update(identity(fault, folder) for fault in faults)

    def ignore(self, fault: Fault) -> None:
        """Count a fault that a comment ignores."""
        self.tally.ignored.setdefault(fault_key(fault), fault)

    def _on_enter(self, kernel: object, record: LaunchRecord) -> None:
        self.tally.kernels.add(record.kernel)

    def _on_record(self, record: object) -> None:
        if isinstance(record, IgnoreComment):
            self.tally.comments.add(record)

    def pytest_deselected(self) -> None:
        """Note that not all tests run."""
        self.tally.deselected = True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send a worker's counts to its session."""
        sent: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if sent is not None:
            sent[_SENT] = pickle.dumps(self.tally)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Merge the findings of a worker of pytest-xdist that has ended."""
        sent = getattr(node, "workeroutput", {}).get(_SENT)
        if sent is not None:
            self.tally.merge(pickle.loads(sent))

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        """Write the baseline if that is asked for, and print the remarks."""
        is_whole = exitstatus == pytest.ExitCode.OK and not self.tally.deselected
        lines = list(self._lines(is_whole))
        if lines:
            terminalreporter.write_sep("=", "tkdebug")
            for line in lines:
                terminalreporter.write_line(line)

    def _lines(self, is_whole: bool) -> Iterator[str]:
        tally = self.tally
        yield from problem_lines(tally.comments)
        if is_whole:
            yield from unused_lines(tally.comments, tally.ignored.values())
            yield from unmatched_lines("--tkdebug-only", KNOBS.only_kernels, tally.kernels)
        gone: tuple[KnownFault, ...] = ()
        if self._known and self.path is not None and is_whole:
            gone = fixed(used_baseline(self.path, self._known), tally.seen, tally.kernels)
        states = (
            (len(self._known & tally.seen), "in the baseline"),
            (len(gone), "of the baseline fixed"),
            (len(tally.ignored), "ignored by comments"),
        )
        counts = [f"{counted(number, 'fault')} {what}" for number, what in states if number]
        if counts:
            yield ", ".join(counts)
        if self.updates and self.path is not None:
            kept = tally.seen | (self._known - set(gone))
            try:
                write_whole(self.path, pieces(kept))
            except OSError as error:
                yield f"{self.path}: baseline cannot be written ({error.strerror})"
            else:
                yield f"{self.path}: {counted(len(kept), 'known fault')} written"


def _asked(config: pytest.Config, name: str) -> tuple[str, ...]:
    """The values of an option, else those of the ini file."""
    return tuple(getattr(config.known_args_namespace, name) or config.getini(name))


def _ignored(config: pytest.Config) -> tuple[str, ...]:
    asked = config.known_args_namespace.tkdebug_ignore
    if asked:
        return tuple(dict.fromkeys(kind for kinds in asked for kind in kinds))
    text = ",".join(config.getini("tkdebug_ignore"))
    try:
        return parse_kinds(text)
    except ValueError as error:
        raise UsageError(f"tkdebug_ignore: got {text!r}, expected {error}") from None


def _baseline_path(config: pytest.Config) -> Path | None:
    asked = config.known_args_namespace.tkdebug_baseline
    if asked:
        return Path(asked).expanduser().absolute()
    stated = config.getini("tkdebug_baseline")
    if stated:
        return config.rootpath / Path(stated).expanduser()
    return KNOBS.baseline
