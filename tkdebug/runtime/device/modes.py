"""The way in which a kernel runs now: interpreted or native, and bare where its launch is timed.

Three settings decide, the first one that is set: a pattern of the `interpret_kernels` knob that
matches the kernel's name; the innermost `with mode(…)` around the launch; the `mode` knob. A thread
that entered no `mode` itself follows the main thread, since autograd runs backward kernels in
threads of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum, auto
from fnmatch import fnmatchcase
from functools import lru_cache

from tkdebug.checks import DEFAULT_CHECKS, NO_CHECKS
from tkdebug.errors import UsageError
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import MODE_NAMES, ModeName
from tkdebug.records.events import Mode
from tkdebug.runtime.device.platform import Platform, platform_in_force
from tkdebug.terminal.text import tell

OWN_MODE: ContextVar[ModeName | None] = ContextVar("tkdebug_mode", default=None)


class MAIN_THREAD:
    """The main thread's innermost `mode`, for threads that have none themselves."""

    mode: ModeName | None = None


@contextmanager
def mode(name: ModeName) -> Iterator[None]:
    """Run the kernels launched inside in the mode `name`.

    Args:
        name: "interpret", "native", or "auto" (native where it can be, interpret otherwise).

    Raises:
        UsageError: no such mode.
    """
    if name not in MODE_NAMES:
        raise UsageError(f"mode: got {name!r}, expected one of {', '.join(MODE_NAMES)}")
    token = OWN_MODE.set(name)
    in_main = threading.current_thread() is threading.main_thread()
    before = MAIN_THREAD.mode
    if in_main:
        MAIN_THREAD.mode = name
    try:
        yield
    finally:
        OWN_MODE.reset(token)
        if in_main:
            MAIN_THREAD.mode = before


def current_mode(kernel: str | None = None) -> Mode:
    """Return the mode of a launch made here and now.

    Args:
        kernel: the kernel's name, for the `interpret_kernels` patterns; None asks without one.
    """
    patterns = KNOBS.interpret_kernels
    if patterns and kernel is not None and _matches(kernel, patterns):
        return "interpret"
    wanted = OWN_MODE.get() or MAIN_THREAD.mode or KNOBS.mode
    return _auto(platform_in_force()) if wanted == "auto" else wanted


@lru_cache(maxsize=4096)
def _matches(kernel: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(kernel, pattern) for pattern in patterns)


@lru_cache(maxsize=4)
def _auto(platform: Platform) -> Mode:
    """Return "native" if kernels can run on a device, else "interpret"; report an unusable GPU."""
    reason = platform.obstacle()
    if reason is None:
        return "native"
    # The user may expect a GPU that is there to be used.
    if platform.is_there():
        tell(f"kernels are interpreted although a GPU is there: {reason}")
    return "interpret"


def with_defaults(asked: Sequence[str], mode: ModeName) -> tuple[str, ...]:
    """Return the checks in force: `asked` and, unless it contains `none`, the defaults.

    There are no defaults where kernels probably run on a GPU: those are not checked, and some
    checks fill fresh tensors, which takes time there too.
    """
    names = tuple(dict.fromkeys(name for name in asked if name != NO_CHECKS))
    if NO_CHECKS in asked:
        return names
    if mode == "native" or (mode == "auto" and platform_in_force().is_likely()):
        return names
    return tuple(dict.fromkeys((*DEFAULT_CHECKS, *names)))


class NextAction(Enum):
    """The action at the next launch of a kernel that has checks."""

    # Launch its bare code.
    SUBMIT = auto()
    # Let the kernel look at the launch, and check it where that is the launch's turn.
    LOOK = auto()


# The action of a kernel of which every launch is looked at. The generated launch function calls
# `UNLESS_TIMED.get` at each launch: a Python function would take longer.
UNLESS_TIMED: ContextVar[NextAction] = ContextVar("tkdebug_next_action", default=NextAction.LOOK)


@contextmanager
def timed_launches() -> Iterator[None]:
    """Mark the launches of this thread inside the `with` block as timed."""
    token = UNLESS_TIMED.set(NextAction.SUBMIT)
    try:
        yield
    finally:
        UNLESS_TIMED.reset(token)


def are_timed() -> bool:
    """Whether launches that are made here and now are timed."""
    return UNLESS_TIMED.get() is NextAction.SUBMIT
