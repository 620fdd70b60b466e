"""Which way a kernel runs now: interpreted or native.

Three things decide, the first that speaks: a pattern of the `interpret_kernels` knob that matches
the kernel's name; the innermost `with mode(…)` around the launch; the `mode` knob. A thread that
entered no `mode` itself follows the main thread, since autograd runs backward kernels in threads
of its own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import lru_cache

from tkdebug.errors import UnsupportedError, UsageError
from tkdebug.events import Mode
from tkdebug.knobs import KNOBS, MODE_NAMES, ModeName

_own: ContextVar[ModeName | None] = ContextVar("tkdebug_mode", default=None)


class _MainThread:
    """What the main thread's innermost `mode` says, for threads that say nothing themselves."""

    mode: ModeName | None = None


@contextmanager
def mode(name: ModeName) -> Iterator[None]:
    """Run the kernels launched inside as `name` says.

    Args:
        name: "interpret", "native", or "auto" (native where it can be, interpret otherwise).

    Raises:
        UsageError: no such mode.
    """
    if name not in MODE_NAMES:
        raise UsageError(f"mode: got {name!r}, expected one of {', '.join(MODE_NAMES)}")
    token = _own.set(name)
    in_main = threading.current_thread() is threading.main_thread()
    before = _MainThread.mode
    if in_main:
        _MainThread.mode = name
    try:
        yield
    finally:
        _own.reset(token)
        if in_main:
            _MainThread.mode = before


def requested_mode() -> ModeName:
    """The mode asked for, "auto" not yet decided."""
    return _own.get() or _MainThread.mode or KNOBS.mode


def current_mode(kernel: str | None = None) -> Mode:
    """The mode a launch made here and now runs in.

    Args:
        kernel: the kernel's name, for the `interpret_kernels` patterns; None asks without one.
    """
    patterns = KNOBS.interpret_kernels
    if patterns and kernel is not None and _matches(kernel, patterns):
        return "interpret"
    wanted = _own.get() or _MainThread.mode or KNOBS.mode
    if wanted != "auto":
        return wanted
    _tell_that_auto_interprets()
    return "interpret"


@lru_cache(maxsize=4096)
def _matches(kernel: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(kernel, pattern) for pattern in patterns)


@lru_cache(maxsize=1)
def _tell_that_auto_interprets() -> None:
    # Once a process, and only where a GPU stands by that the user may expect to be used natively.
    from tkdebug.runtime.driver import has_real_gpu

    if has_real_gpu():
        print(
            "tkdebug: this version has no native code generation yet; kernels are interpreted "
            "although a CUDA device is usable",
            file=sys.stderr,
        )


def refuse_native(kernel: str) -> None:
    """Say that `kernel` cannot run natively.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(
        f"kernel {kernel}: native code generation is not in this version of tkdebug; "
        "run it interpreted (mode interpret or auto)"
    )
