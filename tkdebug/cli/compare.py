"""`tkdebug compare`: two recorded runs against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.places import put_out, view_of_answer
from tkdebug.cli.statuses import FAULT_STATUS
from tkdebug.instrument.analyses.comparison import Comparison, compare
from tkdebug.instrument.renderers import comparison_json, comparison_text
from tkdebug.instrument.session import Session
from tkdebug.terminal_text import tell


def compare_command(arguments: Arguments) -> int:
    """Print what differs; the result is the exit status.

    3 where faults are new, or kernels are slower than was allowed.

    Raises:
        SessionError: a session cannot be read.
    """
    if arguments.target:
        # Only a comparison of compilers runs something.
        from tkdebug.cli.compare_compilers import compared_runs, output_lines

        with compared_runs(arguments) as runs:
            lines = [*output_lines(runs.outputs)]
            return _compare(arguments, runs.before, runs.after, lines)
    assert arguments.earlier is not None
    assert arguments.session is not None
    return _compare(arguments, arguments.earlier, arguments.session, ())


def _compare(arguments: Arguments, earlier: Path, later: Path, outputs: Sequence[str]) -> int:
    with Session.open(earlier) as before, Session.open(later) as after:
        comparison = compare(before, after)
        if arguments.format == "json":
            put_out(comparison_json.render(comparison, before, after))
        else:
            view = view_of_answer(None)
            text = comparison_text.render(comparison, before, after, view)
            put_out(chain(text, _section(outputs)), styled=view.style.is_on)
    new = any(group.fault.fails for group in comparison.new_faults)
    allowed = arguments.max_slowdown_percent
    slower = comparison.slower(allowed) if allowed is not None else ()
    for change in slower:
        tell(f"{change.kernel}: slower than before by more than {allowed:g} %")
    if allowed is not None:
        _tell_unjudged(comparison)
    return FAULT_STATUS if new or slower else 0


def _tell_unjudged(comparison: Comparison) -> None:
    """Say of which kernels `--max-slowdown` says nothing."""
    if not comparison.is_timed:
        tell("--max-slowdown: nothing is judged, as times of interpreted kernels are not a GPU's")
        return
    for why, kernels in comparison.unknown().items():
        tell(f"--max-slowdown: not judged: {', '.join(kernels)} ({why})")


def _section(outputs: Sequence[str]) -> Iterator[str]:
    if outputs:
        yield "\nwhat kernels wrote, before and after\n"
    yield from (f"{line}\n" for line in outputs)
