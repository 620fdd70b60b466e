"""`tkdebug skills`: installs what teaches agents to use tkdebug."""

from __future__ import annotations

import argparse
from pathlib import Path

from tkdebug.cli.command import Command

_USUAL = Path(".claude/skills")


class SkillsCommand(Command):
    """Writes the skills into a folder, or lists them."""

    help = "install skills for agents: find a bug, make a kernel faster, verify one"
    description = (
        "Install skills, folders with a SKILL.md, that agents read by themselves: how to find a "
        "kernel bug, make a kernel faster, and verify it, by commands of tkdebug."
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add what is done, and where."""
        parser.add_argument("action", choices=("install", "list"))
        parser.add_argument(
            "--to",
            type=Path,
            default=_USUAL,
            metavar="DIR",
            help=f"the folder of skills, {_USUAL} by default",
        )
        parser.add_argument("--force", action="store_true", help="write over skills that differ")

    def run(self, options: argparse.Namespace) -> int:
        """Install or list; the result is the exit status."""
        from tkdebug.cli.places import put_out
        from tkdebug.skills import install, skills

        if options.action == "list":
            put_out(f"{name}\n" for name in skills())
        else:
            put_out(f"{file}\n" for file in install(options.to, force=options.force))
        return 0


COMMAND = SkillsCommand()
