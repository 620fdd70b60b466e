"""`tkdebug explain`: what a kind of fault means, how it is found, and how it is fixed."""

from __future__ import annotations

import argparse

from tkdebug.cli.command import Command
from tkdebug.cli.options import ANSWER_FORMATS, add_format
from tkdebug.errors import UsageError, instead_of

SCHEMA = 1


class ExplainCommand(Command):
    """Prints the section of a kind of fault, or all kinds in a line each."""

    help = "what a kind of fault means, and how to fix it"
    description = (
        "Explain a kind of fault: what happened, an example, how to fix it, and what is no fault. "
        "Without a kind, all of them in a line each."
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the kind."""
        parser.add_argument("kind", nargs="?", metavar="KIND", help="such as oob-load")
        add_format(parser, ANSWER_FORMATS)

    def run(self, options: argparse.Namespace) -> int:
        """Print what is known of the kind; the result is the exit status."""
        from tkdebug.cli.places import put_out
        from tkdebug.findings.fault_kinds import FaultKind, fault_kinds
        from tkdebug.instrument.text_forms import json_text

        kinds = fault_kinds()
        wanted: list[FaultKind] = [*kinds.values()]
        if options.kind is not None:
            if options.kind not in kinds:
                hint = instead_of(options.kind, kinds)
                raise UsageError(f"explain {options.kind}: no such kind of fault{hint}")
            wanted = [kinds[options.kind]]
        if options.format == "json":
            records = [kind.as_json(has_text=options.kind is not None) for kind in wanted]
            put_out((json_text({"schema": SCHEMA, "kinds": records}, indent=1), "\n"))
        elif options.kind is None:
            width = max(map(len, kinds))
            put_out(f"{kind.name:{width}}  {kind.summary}\n" for kind in wanted)
        else:
            put_out((wanted[0].as_text(),))
        return 0


COMMAND = ExplainCommand()
