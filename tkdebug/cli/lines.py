"""`tkdebug lines`: what each source line of a kernel became, and where an instruction comes from.

Responsible for getting at line tables: of a script, which is run for it, of a recorded run, or of a
cubin, whoever made it. What is printed is `lines_text`'s and `lines_json`'s.
"""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path

from tkdebug.cli.arguments import Arguments
from tkdebug.cli.compiled_run import compiled_run, is_session
from tkdebug.cli.kernel_lines import KernelLines, of_cubin, of_session
from tkdebug.cli.lines_query import LinesQuery
from tkdebug.cli.places import check_writable
from tkdebug.errors import UsageError

_ELF = b"\x7fELF"


def lines_command(arguments: Arguments) -> int:
    """Print what was asked on stdout, or into a file; the result is the exit status.

    Raises:
        TkError: there is nothing to show, or no such kernel, line or address.
    """
    from tkdebug.cli.lines_json import render_json
    from tkdebug.cli.lines_text import render_text

    output = arguments.output
    if output is not None:
        check_writable("-o", output)
    query = arguments.lines or LinesQuery()
    chosen = _chosen(_kernels(arguments), query.kernel, arguments.target)
    render = render_json if arguments.format == "json" else render_text
    text = render(chosen, query)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0


def _kernels(arguments: Arguments) -> list[KernelLines]:
    path = Path(arguments.target)
    if not arguments.is_module and _is_elf(path):
        return of_cubin(path)
    with compiled_run(arguments) as session:
        return of_session(session)


def _is_elf(path: Path) -> bool:
    if path.suffix == ".cubin":
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_ELF)) == _ELF
    except OSError:
        return False  # what is wrong with it is said where it is run


def _chosen(kernels: list[KernelLines], pattern: str | None, target: str) -> list[KernelLines]:
    chosen = [
        kernel
        for kernel in kernels
        if pattern is None
        or fnmatchcase(kernel.name, pattern)
        or (kernel.hash and kernel.hash.startswith(pattern))
    ]
    if chosen:
        return chosen
    if not kernels:
        if is_session(Path(target)):
            raise UsageError(
                f"{target}: no kernel was compiled natively there; a run that was recorded under "
                "interpret has no native code, `tkdebug lines script.py` makes it"
            )
        raise UsageError(f"{target}: no kernel of it compiles natively")
    names = ", ".join(dict.fromkeys(kernel.name for kernel in kernels))
    raise UsageError(f"--kernel {pattern}: no kernel of that name; there are {names}")
