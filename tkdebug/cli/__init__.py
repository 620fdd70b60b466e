"""The `tkdebug` command.

Responsible for the common parts of all commands: how one is found (`command_line`), and the exit
status of a failure. Invariants: stdout belongs to the user's script, or to a command's answer; a
mistake in the input is one line on stderr and status 2, never a traceback of tkdebug's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tkdebug.cli.command import INTERRUPTED_STATUS, USAGE_STATUS, ScriptEndedError
from tkdebug.errors import TkError
from tkdebug.terminal.text import tell


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (the process's own by default); the result is the exit status."""
    from tkdebug.cli.command_line import parse

    try:
        command, options = parse(sys.argv[1:] if argv is None else argv)
        return command.run(options)
    except TkError as error:
        tell(str(error))
        return error.status if isinstance(error, ScriptEndedError) else USAGE_STATUS
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS  # the script's own is shown where it runs; this is in our part
    except BrokenPipeError:
        from tkdebug.cli.places import drop_stdout

        drop_stdout()  # its reader has gone (`… | head`)
        return 1
