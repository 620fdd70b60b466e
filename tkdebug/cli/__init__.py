"""The `tkdebug` command.

Responsible for parsing and for the exit status; each command has a file of its own, imported when
it is the one. Invariants: stdout belongs to the user's script, or to what a command was asked for;
what is wrong with the input is one line on stderr and status 2, never a traceback of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tkdebug.cli.statuses import INTERRUPTED_STATUS, USAGE_STATUS, ScriptEndedError
from tkdebug.errors import TkError
from tkdebug.terminal_text import tell

if TYPE_CHECKING:
    from tkdebug.cli.command_line.arguments import Arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (the process's own by default); the result is the exit status."""
    from tkdebug.cli.command_line.arguments import parse

    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
        return _run(arguments)
    except TkError as error:
        tell(str(error))
        return error.status if isinstance(error, ScriptEndedError) else USAGE_STATUS
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS  # the script's own is shown where it runs; this is in our part
    except BrokenPipeError:
        from tkdebug.cli.places import drop_stdout

        drop_stdout()  # its reader has gone (`… | head`)
        return 1


def _run(arguments: Arguments) -> int:
    """Run the command; the result is the exit status."""
    match arguments.command:
        case "run":
            from tkdebug.cli.run import run_command

            return run_command(arguments)
        case "debug":
            from tkdebug.cli.debug import debug_command

            return debug_command(arguments)
        case "dap":
            from tkdebug.cli.dap import dap_command

            return dap_command(arguments)
        case "view":
            from tkdebug.cli.view import view_command

            return view_command(arguments)
        case "report":
            from tkdebug.cli.report import report_command

            return report_command(arguments)
        case "compare":
            from tkdebug.cli.compare import compare_command

            return compare_command(arguments)
        case "passes":
            from tkdebug.cli.passes import passes_command

            return passes_command(arguments)
        case "lines":
            from tkdebug.cli.lines import lines_command

            return lines_command(arguments)
        case "advise":
            from tkdebug.cli.advise import advise_command

            return advise_command(arguments)
        case "ceilings":
            from tkdebug.cli.ceilings import ceilings_command

            return ceilings_command(arguments)
        case "crash":
            from tkdebug.cli.crash import crash_command

            return crash_command(arguments)
        case "completion":
            from tkdebug.cli.completion import completion_command

            return completion_command(arguments.shell)
        case "doctor":
            from tkdebug.cli.doctor import doctor_command

            return doctor_command()
