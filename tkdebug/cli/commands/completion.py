"""`tkdebug completion`: the script by which a shell completes tkdebug's command line."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from tkdebug.cli.command import Command
from tkdebug.errors import UsageError

SHELLS = ("bash", "zsh", "fish", "tcsh")
# Options with a file though their text is kept as typed.
_TARGETS = ("target",)


class CompletionCommand(Command):
    """Prints the script by which a shell completes command lines."""

    help = "make the shell complete this command line"
    description = (
        "Print the script by which a shell completes tkdebug's command line. For bash, in "
        '~/.bashrc: eval "$(tkdebug completion bash)"; for zsh, as _tkdebug in a folder of $fpath: '
        "tkdebug completion zsh > ~/.zfunc/_tkdebug; for fish: tkdebug completion fish > "
        "~/.config/fish/completions/tkdebug.fish."
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the shell."""
        parser.add_argument("shell", choices=SHELLS)

    def run(self, options: argparse.Namespace) -> int:
        """Print the script; the result is the exit status."""
        if find_spec("shtab") is None:
            raise UsageError("completion: needs the package shtab; pip install shtab")
        import shtab  # only here: nothing else needs it

        from tkdebug.cli.command_line import build_parser, command_of
        from tkdebug.cli.places import put_out
        from tkdebug.records.events import IGNORABLE_KINDS

        parser, parsers = build_parser()
        for name, own in parsers.items():
            rule = command_of(name).script
            # Left to `command_line`, which keeps the words of the script apart.
            if rule is not None and not rule.only_with:
                own.add_argument("target", nargs="*")
            for action in own._actions:  # noqa: SLF001
                if _is_file(action):
                    action.complete = shtab.FILE  # type: ignore[attr-defined]
                elif action.dest == "ignored_kinds":
                    # Not in the parser, which takes several with commas between them.
                    action.choices = IGNORABLE_KINDS
        put_out([shtab.complete(parser, options.shell), "\n"])
        return 0


COMMAND = CompletionCommand()


def _is_file(action: argparse.Action) -> bool:
    return action.type is Path or action.dest in _TARGETS
