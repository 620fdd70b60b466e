"""Proton's command, `python -m triton.profiler.proton`: a script or pytest under one session."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback

from tkdebug.compat.proton.profile import finalize, flags, start
from tkdebug.errors import TkError


def main() -> None:
    """Run the command with the arguments of this process."""
    parser = argparse.ArgumentParser(
        prog="triton.profiler.proton", description="Profiles a script, or pytest, as one session."
    )
    parser.add_argument("-n", "--name", help="name of the session, and of its file")
    parser.add_argument("-b", "--backend", choices=["cupti", "roctracer", "instrumentation"])
    parser.add_argument("-c", "--context", default="shadow", choices=["shadow", "python"])
    parser.add_argument("-m", "--mode")
    parser.add_argument("-d", "--data", default="tree", choices=["tree", "trace"])
    parser.add_argument("-k", "--hook", choices=["triton"])
    parser.add_argument("target", nargs=argparse.REMAINDER, help="script or pytest, its arguments")
    options = parser.parse_args()
    if not options.target:
        parser.error("name a script, or pytest, to run")
    try:
        start(
            options.name,
            context=options.context,
            data=options.data,
            backend=options.backend,
            mode=options.mode,
            hook=options.hook,
        )
    except TkError as error:
        parser.error(str(error))
    # From now on the script's own sessions are not begun.
    flags.command_line = True
    try:
        status = _run(options.target[0], options.target[1:])
    finally:
        flags.command_line = False
        finalize()
    sys.exit(status)


def _run(script: str, arguments: list[str]) -> str | int | None:
    """Run a script or pytest; the result is its exit status."""
    if os.path.basename(script) == "pytest":
        import pytest

        return int(pytest.main(arguments))
    before = sys.argv
    sys.argv = [script, *arguments]
    sys.path.append(os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return end.code
    except KeyboardInterrupt:
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.argv = before
    return 0
