"""Runs a program of `bench/programs.py` in this process, with tkdebug installed.

    program_worker.py install|cupti PROGRAM ARGUMENTS

`install` is `tkdebug.install()` and no more; with `cupti` CUPTI also records kernels, copies and
sets, which nobody reads.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import tkdebug
from tkdebug.instrument.cupti.library import Cupti, find_cupti
from tkdebug.instrument.cupti.recording import Collection
from tkdebug.runtime.cuda.activity_buffers import activity_buffers


def main() -> None:
    way, program = sys.argv[1:3]
    del sys.argv[:2]
    tkdebug.install("native")
    sys.path[0] = str(Path(program).parent)
    with cupti_alone() if way == "cupti" else contextlib.nullcontext():
        runpy.run_path(program, run_name="__main__")


@contextlib.contextmanager
def cupti_alone() -> Iterator[None]:
    """Have CUPTI record what the GPU does, and throw the records away."""
    collection = Collection(Cupti(find_cupti()), activity_buffers())
    collection.start()
    try:
        yield
    finally:
        collection.stop()
        collection.take(forced=True)


if __name__ == "__main__":
    main()
