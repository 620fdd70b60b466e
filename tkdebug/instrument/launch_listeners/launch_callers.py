"""The lines of the script that a launch comes from, as profilers with calling contexts ask for."""

from __future__ import annotations

import os
import sys
from types import FrameType

import tkdebug
from tkdebug.errors import Frame
from tkdebug.records import hook_chain

_OWN = os.path.dirname(tkdebug.__file__) + os.sep
_COMMANDS = os.path.join(_OWN, "cli") + os.sep
_HOOKS = hook_chain.__file__


def launch_callers() -> tuple[Frame, ...]:
    """The calls that led to the launch whose hook is running, outermost first.

    To be asked in a hook, in the thread that launches: frames of the hook itself, of tkdebug and
    of what started `tkdebug run` are left out. Elsewhere it is the calls that led here.
    """
    found = []
    for frame in _outward(_launch(sys._getframe(1))):  # noqa: SLF001
        code = frame.f_code
        if code.co_filename.startswith(_COMMANDS):
            break
        if not code.co_filename.startswith(_OWN):
            found.append(Frame(code.co_filename, frame.f_lineno, code.co_name))
    return tuple(reversed(found))


def _launch(innermost: FrameType) -> FrameType:
    """The frame that calls hooks; `innermost` itself where none does."""
    hooks = (frame for frame in _outward(innermost) if frame.f_code.co_filename == _HOOKS)
    return next(hooks, innermost)


def _outward(innermost: FrameType) -> list[FrameType]:
    frames, frame = [], innermost
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return frames
