"""`tkdebug reproduce`: a short script that shows a fault, a mismatch or a crash again."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from tkdebug.checks import CHECK_CHOICES
from tkdebug.cli.command import Command, ScriptRule
from tkdebug.cli.options import (
    ANSWER_FORMATS,
    add_format,
    add_program,
    add_triton,
    positive_count,
    positive_seconds,
)
from tkdebug.plugins import WithPlugins

_SECONDS = 120.0
_FILE = Path("repro.py")


class ReproduceCommand(Command):
    """Writes a script of at most 40 lines that shows the symptom of a run."""

    help = "a short script that shows a fault, a mismatch or a crash again"
    usage = (
        "tkdebug reproduce [options] (script.py | -m module | -c code | run.tkd | answer.json) "
        "[arguments]"
    )
    description = (
        "Write a short script that shows a fault again: its kernel, its launch and its tensors, "
        "with what the fault does not need taken out. The script is run for it, interpreted, up to "
        "the launch; of a recorded run, the script that was recorded; of an answer of `tkdebug "
        "verify --format json`, its failing case. The short script runs under tkdebug and under "
        "Triton alone."
    )
    epilog = (
        "Everything after the script (or after -m module, -c code) belongs to the script. What it "
        "prints goes to stderr."
    )
    script = ScriptRule(
        "a script.py, -m module, -c code, a recorded run.tkd, or an answer.json of verify",
        or_recorded=True,
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the fault, the time and the file."""
        add_program(parser)
        parser.add_argument(
            "--fault",
            type=positive_count,
            metavar="N",
            help="the fault of that number among those of the run, in the order of its report; by "
            "default the first that fails it, else the first warning",
        )
        parser.add_argument(
            "--budget",
            type=positive_seconds,
            default=_SECONDS,
            metavar="S",
            help="processor time for making it shorter; 120 by default",
        )
        parser.add_argument(
            "--check",
            dest="checks",
            action="append",
            choices=WithPlugins(CHECK_CHOICES, "tkdebug.checks"),
            metavar="KIND",
            help="also check for that, as `tkdebug run --check` does; may be repeated",
        )
        parser.add_argument(
            "-o",
            "--output",
            type=Path,
            metavar="FILE",
            help=f"the script to write, {_FILE} by default; tensors that no function makes are in "
            "a .safetensors file beside it",
        )
        add_triton(parser)
        add_format(parser, ANSWER_FORMATS)

    def run(self, options: argparse.Namespace) -> int:
        """Write the script, and print what it is; the result is the exit status."""
        # Torch, the interpreter and the compiler: nothing that help needs.
        from tkdebug.cli.places import check_stdout, check_writable, put_out
        from tkdebug.cli.runs.reproduced_run import reproduced
        from tkdebug.errors import UsageError
        from tkdebug.reproduction.reproducing import reproduction_json, reproduction_text
        from tkdebug.reproduction.script import DATA_SUFFIX

        check_stdout()
        path = options.output or _FILE
        if path.suffix != ".py":
            raise UsageError(
                f"-o {path}: got the ending {path.suffix!r}, expected a file that ends in .py"
            )
        if options.output is None and path.exists():
            raise UsageError(f"{path}: is there already; give another name: -o FILE")
        data = path.with_suffix(DATA_SUFFIX)
        if data.exists() and not _reads(path, DATA_SUFFIX):
            # It may be anything, such as the weights of a model.
            raise UsageError(
                f"-o {path}: its tensors would replace {data}, which is there already; give "
                "another name"
            )
        check_writable("-o", path, {"what is reproduced": options.script.file})
        made, words = reproduced(options)
        files = made.write(path)
        command = shlex.join(["tkdebug", "run", *words, str(path)])
        show = reproduction_json if options.format == "json" else reproduction_text
        put_out([show(made, files, command)])
        return 0


def _reads(script: Path, suffix: str) -> bool:
    """Whether a script exists that reads the tensors beside it, as scripts of this command do."""
    from tkdebug.process.named_files import MAX_SOURCE_BYTES, read_text

    try:
        return f'__file__[:-3] + "{suffix}"' in read_text(script, MAX_SOURCE_BYTES)
    except (OSError, UnicodeDecodeError):
        return False


COMMAND = ReproduceCommand()
