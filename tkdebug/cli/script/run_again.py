"""Running the user's script under a debugger, which may ask for it to begin again."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tkdebug.cli.script.execution import Ending, Program, run_program


def run_debugged_program(program: Program, begin: Callable[[], None]) -> Ending:
    """Run it, and again as often as the debugger asks for that.

    Args:
        program: what to run.
        begin: has its lines traced from now on.
    """
    # Imports what a run without a debugger has no need of.
    from tkdebug.debugger.goals import RunAgain

    while True:
        begin()
        try:
            ending = run_program(program)
        finally:
            sys.settrace(None)
        if not isinstance(ending.error, RunAgain):
            return ending
