"""`tkdebug lines`: what each source line of a kernel became, and where an instruction comes from.

Responsible for finding line tables: of a script, which is run for it, of a recorded run, or of an
image that a backend loads, a cubin of any compiler. `line_answers` prints them.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.cli.line_answers.kernel_lines import KernelLines, of_image, of_session
from tkdebug.cli.line_answers.query import LinesQuery
from tkdebug.cli.places import put_out, view_of_answer
from tkdebug.cli.runs.compiled_run import (
    check_output,
    compiled_run,
    is_session,
    refuse_options_of_scripts,
)
from tkdebug.cli.statuses import ScriptEndedError
from tkdebug.compiler.targets.backend import Backend
from tkdebug.compiler.targets.registered_backends import backends
from tkdebug.errors import UsageError, instead_of
from tkdebug.instrument.renderers.formats import ANSWERS, format_by_name
from tkdebug.named_files import open_regular

_HEAD_BYTES = 64


def lines_command(arguments: Arguments) -> int:
    """Print what was asked on stdout, or into a file; the result is the exit status.

    Raises:
        TkError: there is nothing to show, or no such kernel, line or address.
    """
    from tkdebug.cli.line_answers.json_format import render_json
    from tkdebug.cli.line_answers.text_format import render_text

    check_output(arguments)
    format_name = arguments.format or format_by_name(arguments.output, ANSWERS)
    query = arguments.lines or LinesQuery()
    kernels, status = _kernels(arguments)
    if not kernels and status:
        raise ScriptEndedError(f"{arguments.target}: no kernel was compiled natively", status)
    chosen = _chosen(kernels, query.kernel, arguments.target)
    if format_name == "json":
        answer = render_json(chosen, query)
    else:
        answer = render_text(chosen, query, view_of_answer(arguments.output).width)
    put_out((answer,), arguments.output)
    return status


def _kernels(arguments: Arguments) -> tuple[list[KernelLines], int]:
    """The kernels there are, and what to end with."""
    path = arguments.target_file
    # Of `os.path`: a name that is too long raises in Path.exists; opening it reports that.
    if path is not None and os.path.exists(path) and not (path.is_file() or path.is_dir()):
        raise UsageError(f"{path}: is a pipe or a device, expected a file")
    backend = None if path is None else _loads(path)
    if path is not None and backend is not None:
        refuse_options_of_scripts(arguments, f"a {backend.image_name}")
        return of_image(path, backend), 0
    with compiled_run(arguments, needs_code=True) as run:
        return of_session(run.session), run.status


def _loads(path: Path) -> Backend | None:
    """The backend whose kernels such a file has; None for a script."""
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        head = b""  # running it reports what is wrong
    return next((backend for backend in backends() if backend.is_image(path.name, head)), None)


def _chosen(kernels: list[KernelLines], pattern: str | None, target: str) -> list[KernelLines]:
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
