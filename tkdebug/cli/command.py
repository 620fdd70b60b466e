"""Commands of `tkdebug`: their interface, and the exit statuses that commands share."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import ClassVar

from tkdebug.errors import UsageError

USAGE_STATUS = 2
FAULT_STATUS = 3
INTERRUPTED_STATUS = 130


class ScriptEndedError(UsageError):
    """A script that was run for a command ended before there was anything to show.

    Args:
        message: what is missing.
        status: the script's own exit status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ScriptRule:
    """The place of a script on a command line: between the command's options and its own.

    Attributes:
        expected: the words that are expected, for messages.
        code_option: the option before code, besides `--code`.
        or_recorded: whether a recorded run may be given instead; options may follow it.
        only_with: the option without which the command takes no script; "" for none.
        names_own: whether a message names words after the script that look like options of the
            command.
    """

    expected: str
    code_option: str = "-c"
    or_recorded: bool = False
    only_with: str = ""
    names_own: bool = True


class Command:
    """A command: its options and its run.

    Each is the `COMMAND` of a file in `commands/` that has its name. The file is imported for its
    help, too, so it imports in `run` what only `run` needs.

    Attributes:
        help: its line in `tkdebug --help`.
        description: the first lines of its own help.
        usage: its usage, if argparse's would not do.
        epilog: the last lines of its own help.
        script: how its command line names a script; None if it takes none.
    """

    help: ClassVar[str]
    description: ClassVar[str]
    usage: ClassVar[str | None] = None
    epilog: ClassVar[str | None] = None
    script: ClassVar[ScriptRule | None] = None

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add its options to `parser`."""

    def check(self, parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
        """End the process by `parser.error` where options do not go together."""

    def run(self, options: argparse.Namespace) -> int:
        """Do what `options` ask for; return the exit status.

        Args:
            options: the options of `prepare_parser`; `script` has the `ScriptWords` of a command
                that takes a script, and `own_words` its options as they were typed.

        Raises:
            TkError: something about the command line is wrong, or a file that it names cannot be
                read.
        """
        raise NotImplementedError
