"""Uncaught exceptions of a script, shown as Python shows them, without tkdebug's own frames."""

from __future__ import annotations

import os
import sys
import traceback
from types import FrameType, TracebackType

from tkdebug.errors import CompileError, TkError
from tkdebug.terminal.text import visible

# The function that covers `sys.stdout.write`: its exceptions are those of the stream.
_TRANSPARENT = (os.path.join("instrument", "recorder.py"), "write_and_record")
# The package, with a separator at the end. It is not imported for that: it names all modules.
OWN_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_LIBRARY_FOLDER = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")


def show_exception(error: BaseException) -> None:
    """Print `error` through `sys.excepthook`, which a script may have replaced."""
    prune_chain(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception:
        print("Error in sys.excepthook:", file=sys.stderr)
        traceback.print_exc()
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)


def show_interrupt(innermost: FrameType) -> None:
    """Print the script's place as if Ctrl-C had been raised there.

    Args:
        innermost: the innermost frame of the script's thread.
    """
    frames = [(frame, line) for frame, line in traceback.walk_stack(innermost)][::-1]
    files = [frame.f_code.co_filename for frame, _ in frames]
    own = [file.startswith(OWN_FOLDER) for file in files]
    begins = own.index(True) if True in own else 0
    shown = [at for at in range(begins, len(frames)) if not own[at]]
    steps = traceback.StackSummary.extract(iter([frames[at] for at in shown]))
    text = "".join(steps.format())
    print(f"Traceback (most recent call last):\n{text}KeyboardInterrupt", file=sys.stderr)


def prune_chain(error: BaseException) -> None:
    """Take tkdebug's frames out of the tracebacks of `error` and of its causes."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _pruned(current)
        cause = current.__cause__
        if isinstance(current, CompileError) and str(cause) in (
            current.message,
            visible(current.message),
        ):
            # The front end's own error, which says the same without the place.
            current.__cause__ = cause.__cause__ if cause is not None else None
        pending += [current.__cause__, current.__context__]
        pending += getattr(current, "exceptions", ())  # an exception group's


def _pruned(error: BaseException) -> TracebackType | None:
    steps: list[TracebackType] = []
    step = error.__traceback__
    while step is not None:
        steps.append(step)
        step = step.tb_next
    if not steps:
        return None
    own = _own_steps(steps)
    on_purpose = isinstance(error, (TkError, KeyboardInterrupt, SyntaxError))
    last = steps[-1].tb_frame.f_code
    is_transparent = last.co_filename.endswith(_TRANSPARENT[0]) and last.co_name == _TRANSPARENT[1]
    # Raised inside tkdebug and not on purpose: a bug of ours, whose frames a report needs.
    keep_all = own[-1] and not on_purpose and not is_transparent
    first_foreign = own.index(False) if False in own else 0 if keep_all else len(own)
    result: TracebackType | None = None
    for index in range(len(steps) - 1, first_foreign - 1, -1):
        if keep_all or not own[index]:
            at = steps[index]
            result = TracebackType(result, at.tb_frame, at.tb_lasti, at.tb_lineno)
    return result


def _own_steps(steps: list[TracebackType]) -> list[bool]:
    """Mark the steps of tkdebug, and the calls into Python's own library between them."""
    own: list[bool] = []
    for step in steps:
        own.append(_is_own(step) or (own[-1:] == [True] and _is_library(step)))
    # Frames from the user's line into tkdebug, such as the enter of a context manager.
    index = len(steps) - 1
    while own[-1] and index >= 0 and (own[index] or _is_library(steps[index])):
        own[index] = True
        index -= 1
    return own


def is_own_file(file: str) -> bool:
    """Whether a file is of tkdebug's own code."""
    return file.startswith(OWN_FOLDER)


def _is_own(step: TracebackType) -> bool:
    return is_own_file(step.tb_frame.f_code.co_filename)


def _is_library(step: TracebackType) -> bool:
    """Whether this is Python's own code (a context manager's exit), not a script run by `-m`."""
    file = step.tb_frame.f_code.co_filename
    if step.tb_frame.f_globals.get("__name__") == "__main__" or "site-packages" in file:
        return False
    return file.startswith((_LIBRARY_FOLDER, "<frozen "))
