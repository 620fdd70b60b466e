"""`tkdebug compare`: two recorded runs against each other."""

from __future__ import annotations

from tkdebug.cli.arguments import Arguments
from tkdebug.cli.places import put_out, view_of_answer
from tkdebug.cli.statuses import FAULT_STATUS
from tkdebug.instrument.comparison import compare
from tkdebug.instrument.renderers import comparison_json, comparison_text
from tkdebug.instrument.session import Session
from tkdebug.terminal_text import tell


def compare_command(arguments: Arguments) -> int:
    """Print what differs; the result is the exit status.

    3 where faults are new, or kernels are slower than was allowed.

    Raises:
        SessionError: a session cannot be read.
    """
    assert arguments.earlier is not None
    assert arguments.session is not None
    with Session.open(arguments.earlier) as before, Session.open(arguments.session) as after:
        comparison = compare(before, after)
        if arguments.format == "json":
            put_out(comparison_json.render(comparison, before, after))
        else:
            view = view_of_answer(None)
            put_out(
                comparison_text.render(comparison, before, after, view), styled=view.style.is_on
            )
    new = any(group.fault.fails for group in comparison.new_faults)
    allowed = arguments.max_slowdown_percent
    slower = comparison.slower(allowed) if allowed is not None else ()
    for change in slower:
        tell(f"{change.kernel}: slower than before by more than {allowed:g} %")
    return FAULT_STATUS if new or slower else 0
