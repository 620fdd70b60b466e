"""`tkdebug mcp`: a server of the Model Context Protocol, for agents."""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path

from tkdebug.cli.command import Command
from tkdebug.errors import UsageError


class McpCommand(Command):
    """Answers an agent on stdin and stdout."""

    help = "let an agent ask, by the Model Context Protocol"
    description = (
        "Answer an agent on stdin and stdout, by the Model Context Protocol: run scripts, list "
        "faults, stop in kernels, and more. Nothing outside of the folder is read or written by "
        "the server itself; the scripts that it runs are run as your own code is. Needs "
        "tkdebug[mcp]."
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the folder."""
        parser.add_argument(
            "folder",
            type=Path,
            nargs="?",
            default=Path("."),
            metavar="FOLDER",
            help="the folder with the scripts, the current one by default",
        )

    def run(self, options: argparse.Namespace) -> int:
        """Serve until the client goes; the result is the exit status."""
        if not os.path.isdir(options.folder):
            raise UsageError(f"{options.folder}: is no folder; give the one with the scripts")
        if find_spec("mcp") is None:
            raise UsageError("mcp: needs the package mcp; pip install 'tkdebug[mcp]'")
        from tkdebug.cli.script.execution import command_in_a_process
        from tkdebug.mcp_server.server import serve  # the SDK

        serve(Path(os.path.realpath(options.folder)), command_in_a_process)
        return 0


COMMAND = McpCommand()
