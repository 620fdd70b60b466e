"""`tkdebug passes`: the changes of each compiler pass, in a recorded run or one made for it."""

from __future__ import annotations

import argparse

from tkdebug.cli.command import Command, ScriptRule
from tkdebug.cli.options import (
    ASKED,
    ASKED_EPILOG,
    ASKED_EXPECTED,
    add_architecture,
    add_compiler,
    add_format,
    add_kernel,
    add_output,
    add_program,
    add_triton,
)
from tkdebug.instrument.renderers.formats import PASSES, format_by_name


class PassesCommand(Command):
    """Shows the changes of each compiler pass, op by op."""

    help = "what each compiler pass did to a script's kernels"
    usage = f"tkdebug passes [options] ({ASKED}) [arguments]"
    description = (
        "Show what each compiler pass did, op by op: of a recorded run, or of a script, which is "
        "run for it. What the script prints goes to stderr."
    )
    epilog = ASKED_EPILOG
    script = ScriptRule(ASKED_EXPECTED, or_recorded=True)

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the choice of passes and kernels, and the format."""
        add_program(parser)
        add_kernel(parser, "name or pattern, or that hash")
        parser.add_argument(
            "--pass", dest="pass_name", metavar="NAME", help="only that pass, each change of it"
        )
        parser.add_argument(
            "--only-changed", action="store_true", help="leave out passes that changed nothing"
        )
        parser.add_argument(
            "--diff", action="store_true", help="also show how the text of the IR changed"
        )
        parser.add_argument(
            "--line", metavar="[FILE:]N", help="follow that source line through every pass"
        )
        add_format(parser, tuple(one.name for one in PASSES), by_name=True)
        add_output(parser)
        add_architecture(parser, "sm_90a by default; none for no architecture")
        add_triton(parser)
        add_compiler(parser)

    def check(self, parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
        """Read the line of `script.py:24`."""
        options.script, options.line = options.script.and_line(options.line)

    def run(self, options: argparse.Namespace) -> int:
        """Show the passes; the result is the exit status."""
        # Sessions and the compiler: nothing that help needs.
        from tkdebug.cli.places import check_answer, put_out, view_of_answer
        from tkdebug.cli.runs.compiled_run import AskedRun, compiled_run
        from tkdebug.instrument.passes.query import PassQuery
        from tkdebug.instrument.passes_report import render_passes

        check_answer(options.output, options.script.file)
        format_name = options.format or format_by_name(options.output, PASSES)
        query = PassQuery(
            kernel=options.kernel,
            pass_name=options.pass_name,
            only_changed=options.only_changed,
            text_diff=options.diff,
            line=options.line,
        )
        with compiled_run(AskedRun.of(options, shows_passes=True)) as run:
            view = view_of_answer(options.output)
            put_out(render_passes(run.session, query, format_name, view), options.output)
            return run.status


COMMAND = PassesCommand()
