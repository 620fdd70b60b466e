"""The `tkdebug` command.

Responsible for what every command has in common: how it is found (`command_line`), and the exit
status of what went wrong. Invariants: stdout belongs to the user's script, or to what a command was
asked for; what is wrong with the input is one line on stderr and status 2, never a traceback of
ours; with `--errors json` that line is an object.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tkdebug.cli.command import INTERRUPTED_STATUS, USAGE_STATUS, ScriptEndedError
from tkdebug.errors import TkError, error_record
from tkdebug.terminal.text import tell


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (the process's own by default); the result is the exit status."""
    from tkdebug.cli.command_line import asks_for_objects, parse

    words = sys.argv[1:] if argv is None else argv
    try:
        command, options = parse(words)
        return command.run(options)
    except TkError as error:
        if not asks_for_objects(words):
            tell(str(error))
        elif sys.stderr is not None:
            sys.stderr.write(f"{error_record(error).as_json()}\n")
        return error.status if isinstance(error, ScriptEndedError) else USAGE_STATUS
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS  # the script's own is shown where it runs; this is in our part
    except BrokenPipeError:
        from tkdebug.cli.places import drop_stdout

        drop_stdout()  # its reader has gone (`… | head`)
        return 1
