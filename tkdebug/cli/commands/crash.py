"""`tkdebug crash FILE`: the crash in a GPU core dump of any process and any compiler.

The driver writes such a dump with CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1. Nothing of the process is
known but the dump: the line comes from the line table in the code that was loaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.cli.command import Command
from tkdebug.cli.options import ANSWER_FORMATS, add_format
from tkdebug.errors import UnsupportedError, shown_path
from tkdebug.process.named_files import source_line

if TYPE_CHECKING:
    from tkdebug.runtime.device.platform import CrashReport

FOUND_STATUS = 0
NOTHING_STATUS = 1


class CrashCommand(Command):
    """Prints the contents of a GPU core dump; exits with 1 if it names nothing that crashed."""

    help = "which line crashed, from the GPU core dump of any process"
    description = (
        "Show which line crashed, from a GPU core dump that the driver writes under "
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_COREDUMP_FILE=FILE. The exit status is 1 when "
        "nothing in it says what crashed."
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the dump."""
        parser.add_argument("dump", type=Path, metavar="FILE", help="the core dump")
        add_format(parser, ANSWER_FORMATS)

    def run(self, options: argparse.Namespace) -> int:
        """Print the dump's contents; the result is the exit status."""
        from tkdebug.cli.places import put_out
        from tkdebug.instrument.text_forms import json_text
        from tkdebug.runtime.device.platform import platform_in_force

        dumps = platform_in_force().crash_dumps
        if dumps is None:
            raise UnsupportedError("crash: this kind of device writes no core dumps")
        report = dumps.read(options.dump, None)
        if options.format == "json":
            put_out((json_text(_as_json(report), indent=2), "\n"))
        else:
            put_out(f"{line}\n" for line in _as_text(report))
        return FOUND_STATUS if report.faults else NOTHING_STATUS


COMMAND = CrashCommand()


def _as_text(dump: CrashReport) -> Iterator[str]:
    driver = f", driver {dump.driver}" if dump.driver else ""
    yield f"GPU core dump of {dump.device} ({dump.architecture}{driver})"
    if not dump.faults:
        yield "nothing in it says what crashed"
    for fault in dump.faults:
        where = f"{shown_path(fault.file or '')}:{fault.line}: " if fault.frames else ""
        yield f"{where}{fault.kind} in {fault.kernel}: {fault.message}"
        # A dump may name any file there is.
        if fault.file is not None and fault.line is not None and fault.file.endswith(".py"):
            source = source_line(fault.file, fault.line).strip()
            if source:
                yield f"    {source}"
        for frame in reversed(fault.frames[:-1]):
            yield f"  called from {shown_path(frame.file)}:{frame.line} in {frame.function}"
        if fault.program_id is not None:
            yield f"  first in program {fault.program_id}, in {fault.count:,} threads"


def _as_json(dump: CrashReport) -> dict[str, object]:
    return {
        "schema": 1,
        "device": dump.device,
        "architecture": dump.architecture,
        "driver": dump.driver or None,
        "faults": [
            {
                "kind": fault.kind,
                "kernel": fault.kernel,
                "file": fault.file,
                "line": fault.line,
                "call_chain": [
                    {"file": f.file, "line": f.line, "function": f.function} for f in fault.frames
                ],
                "message": fault.message,
                "program_id": fault.program_id,
                "count": fault.count,
            }
            for fault in dump.faults
        ],
    }
