"""`tkdebug lines`: the code that each source line became, and the origin of an instruction.

Responsible for finding line tables: of a script, which is run for it, of a recorded run, or of an
image that a backend loads, a cubin of any compiler. `line_answers` prints them.
"""

from __future__ import annotations

import argparse
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.cli.command import Command, ScriptEndedError, ScriptRule
from tkdebug.cli.options import (
    ANSWER_FORMATS,
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
from tkdebug.errors import UsageError, instead_of
from tkdebug.instrument.renderers.formats import ANSWERS, format_by_name
from tkdebug.process.named_files import open_regular

if TYPE_CHECKING:
    from tkdebug.cli.line_answers.kernel_lines import KernelLines
    from tkdebug.compiler.targets.backend import Backend

_HEAD_BYTES = 64


class LinesCommand(Command):
    """Shows the machine code of each source line, or all that belongs to one place."""

    help = "from source lines to instructions and back"
    usage = f"tkdebug lines [options] ({ASKED} | file.cubin) [arguments]"
    description = (
        "Show what each source line became in machine code, or all that belongs to one line or "
        "instruction: of a recorded run, of a cubin with line information from any compiler, or of "
        "a script, which is run for it. What the script prints goes to stderr."
    )
    epilog = ASKED_EPILOG
    script = ScriptRule(ASKED_EXPECTED, or_recorded=True)

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the kernels, the place that is asked for, and how it is shown."""
        add_program(parser)
        add_kernel(parser, "name or pattern, or that hash")
        place = parser.add_mutually_exclusive_group()
        place.add_argument("--line", metavar="[FILE:]N", help="what that source line became")
        place.add_argument(
            "--ptx", type=int, metavar="N", help="where that line of the PTX comes from"
        )
        place.add_argument(
            "--sass",
            metavar="ADDR",
            help="where the instruction at that hexadecimal address comes from",
        )
        add_format(parser, ANSWER_FORMATS, by_name=True)
        add_output(parser)
        add_architecture(parser, "sm_90a by default")
        add_triton(parser)
        add_compiler(parser)

    def check(self, parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
        """Read the line of `script.py:24`."""
        options.script, options.line = options.script.and_line(options.line)

    def run(self, options: argparse.Namespace) -> int:
        """Print the answer; the result is the exit status."""
        # Sessions and the compiler: nothing that help needs.
        from tkdebug.cli.line_answers.formats import render_json, render_text
        from tkdebug.cli.line_answers.kernel_lines import LinesQuery
        from tkdebug.cli.places import check_answer, put_out, view_of_answer

        target = options.script.target
        check_answer(options.output, options.script.file)
        format_name = options.format or format_by_name(options.output, ANSWERS)
        query = LinesQuery(options.kernel, options.line, options.ptx, options.sass)
        kernels, status = _kernels(options)
        if not kernels and status:
            raise ScriptEndedError(f"{target}: no kernel was compiled natively", status)
        chosen = _chosen(kernels, query.kernel, target)
        if format_name == "json":
            answer = render_json(chosen, query)
        else:
            answer = render_text(chosen, query, view_of_answer(options.output).width)
        put_out((answer,), options.output)
        return status


COMMAND = LinesCommand()


def _kernels(options: argparse.Namespace) -> tuple[list[KernelLines], int]:
    """The kernels, and the exit status."""
    from tkdebug.cli.line_answers.kernel_lines import of_image, of_session
    from tkdebug.cli.runs.compiled_run import AskedRun, compiled_run

    asked = AskedRun.of(options, needs_code=True)
    path = asked.script.file
    # By `os.path`: a name that is too long raises in Path.exists; opening it reports that.
    if path is not None and os.path.exists(path) and not (path.is_file() or path.is_dir()):
        raise UsageError(f"{path}: is a pipe or a device, expected a file")
    backend = None if path is None else _loads(path)
    if path is not None and backend is not None:
        asked.refuse_options_of_scripts(f"a {backend.image_name}")
        return of_image(path, backend), 0
    with compiled_run(asked) as run:
        return of_session(run.session), run.status


def _loads(path: Path) -> Backend | None:
    """Return the backend that loads the kernels of this kind of file; None for a script."""
    from tkdebug.compiler.targets.registered_backends import backends

    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        head = b""  # running it reports what is wrong
    return next((backend for backend in backends() if backend.is_image(path.name, head)), None)


def _chosen(kernels: list[KernelLines], pattern: str | None, target: str) -> list[KernelLines]:
    from tkdebug.cli.runs.compiled_run import is_session

    chosen = [
        kernel
        for kernel in kernels
        if pattern is None
        or fnmatchcase(kernel.name, pattern)
        or (pattern and kernel.hash and kernel.hash.startswith(pattern))
    ]
    if chosen:
        return chosen
    if not kernels:
        if is_session(Path(target)):
            raise UsageError(
                f"{target}: no kernel was compiled natively there; a run that was recorded under "
                "interpret has no native code, `tkdebug lines script.py` makes it, and "
                "`tkdebug run --target sm_90a` records it"
            )
        raise UsageError(f"{target}: no kernel of it compiles natively")
    hint = instead_of(pattern or "", (kernel.name for kernel in kernels))
    raise UsageError(f"--kernel {pattern}: no such kernel{hint}")
