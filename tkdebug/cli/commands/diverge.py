"""`tkdebug diverge`: launches run again with what must not matter varied."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tkdebug.cli.command import FAULT_STATUS, Command, ScriptRule
from tkdebug.cli.options import (
    ANSWER_FORMATS,
    ARCHITECTURES,
    add_format,
    add_kernel,
    add_output,
    add_program,
    add_triton,
    positive_seconds,
)

if TYPE_CHECKING:
    from tkdebug.variations.diverge_report import Diverged
    from tkdebug.variations.launches import KeptLaunch

_VARIED = "BLOCK,order,padding,outputs,passes"
_SECONDS = 20.0


class DivergeCommand(Command):
    """Runs launches in several ways, and names the first value that differs."""

    help = "whether block sizes, order, padding and leftovers change a kernel's result, and where"
    usage = "tkdebug diverge [options] (script.py | -m module | -c code | -) [arguments]"
    description = (
        "Run a script, and each of its launches again with what must not matter varied: block "
        "sizes, warps and stages, the order of programs, padding, what outputs held before, the "
        "compiler's passes. Where the result differs by more than rounding, the first value that "
        "does is named, with its line. Of autotuned kernels: which configurations agree bit for "
        "bit. No GPU is needed."
    )
    epilog = (
        "The exit status is 3 where something differs, else the script's own. Everything after "
        "the script (or after -m module, -c code, - for stdin) belongs to the script."
    )
    script = ScriptRule("a script.py, -m module, -c code, or - for stdin, to run")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add what is varied, of which kernels, and how long it may take."""
        add_program(parser)
        add_kernel(parser, "name or pattern")
        parser.add_argument(
            "--vary",
            default=_VARIED,
            metavar="WHAT",
            help="between commas: names, or beginnings of names, of meta-parameters, warps, "
            "stages, order, padding, outputs, passes, native, triton (these two need a GPU); "
            f"{_VARIED} by default",
        )
        parser.add_argument(
            "--against",
            metavar="FILE|REV",
            help="also run the kernels of another version of the script on the same inputs: of "
            "that file, or of a commit of git",
        )
        parser.add_argument(
            "--bits",
            action="store_true",
            help="end with 3 where bits differ, too, among a tuner's configurations as well",
        )
        parser.add_argument(
            "--target",
            dest="native_target",
            metavar="ARCH",
            help=f"the passes for that architecture ({ARCHITECTURES}); by default those of the "
            "GPU here, without one those of sm_90a",
        )
        parser.add_argument(
            "--seconds",
            type=positive_seconds,
            default=_SECONDS,
            metavar="S",
            help="processor time for each way to run a launch; 20 by default",
        )
        add_triton(parser)
        add_format(parser, ANSWER_FORMATS)
        add_output(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Print what was found; the result is the exit status."""
        # Torch, the interpreter and the compiler: nothing that help needs.
        from tkdebug.cli.places import check_answer, put_out
        from tkdebug.cli.runs.checks import check_known
        from tkdebug.cli.runs.varied_run import other_version, varied_run
        from tkdebug.variations.diverge_report import diverge_json, diverge_text

        check_answer(options.output, options.script.file)
        if options.native_target is not None:
            check_known("--target", options.native_target)
        other = None if options.against is None else other_version(options)
        with varied_run(options) as run:
            others = () if other is None else run.also(other)
            rows = run.looked_at(_look(launch, options, others) for launch in run.launches)
        shown = diverge_json(rows) if options.format == "json" else diverge_text(rows)
        put_out(shown, options.output)
        return FAULT_STATUS if any(row.differs(options.bits) for row in rows) else run.status


COMMAND = DivergeCommand()


def _look(
    launch: KeptLaunch, options: argparse.Namespace, others: tuple[KeptLaunch, ...]
) -> Diverged:
    """Run a launch in all ways that are asked for, and return what differs."""
    from tkdebug.errors import TkError
    from tkdebug.variations.diverge_report import Diverged
    from tkdebug.variations.divergence import Divergence
    from tkdebug.variations.native_levels import targets
    from tkdebug.variations.outcomes import crash_text
    from tkdebug.variations.ways import Found, Way

    words = [word.strip() for word in options.vary.split(",") if word.strip()]
    found: list[Found] = []
    try:
        divergence = Divergence(launch, targets(options.native_target)[0], options.seconds)
        ways = [way for word in words for way in divergence.ways(word)]
        same = [one for one in others if one.name == launch.name]
        ways += [divergence.against(one) for one in same[:1]]
        for way in ways:
            found.append(divergence.look(way) if isinstance(way, Way) else way)
        return Diverged(launch, found, divergence.classes())
    except TkError as error:
        return Diverged(launch, found, note=str(error).splitlines()[0])
    except RuntimeError as error:
        return Diverged(launch, found, note=crash_text(error))
