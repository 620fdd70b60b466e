"""`tkdebug completion`: the script by which a shell completes tkdebug's command line."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from tkdebug.cli.command_line.parser import build_parser
from tkdebug.cli.places import put_out
from tkdebug.errors import UsageError
from tkdebug.events import IGNORABLE_KINDS

# What is a file though its text is kept as typed.
_TARGETS = ("target",)


def completion_command(shell: str) -> int:
    """Print the script for `shell`.

    Raises:
        UsageError: the package that writes such scripts is not installed.
    """
    if find_spec("shtab") is None:
        raise UsageError("completion: needs the package shtab; pip install shtab")
    import shtab  # only here: nothing else needs it

    parser, commands = build_parser()
    # Left to `script_words`, which keeps the words of the script apart.
    for name in ("run", "debug", "passes", "lines", "advise"):
        commands[name].add_argument("target", nargs="*")
    for command in commands.values():
        for action in command._actions:  # noqa: SLF001
            if _is_file(action):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.dest == "ignore":
                # Not in the parser, which takes several with commas between them.
                action.choices = IGNORABLE_KINDS
    put_out([shtab.complete(parser, shell), "\n"])
    return 0


def _is_file(action: argparse.Action) -> bool:
    return action.type is Path or action.dest in _TARGETS
