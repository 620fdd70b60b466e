"""Reports what torch.compile left uncompiled: at once, and to the session."""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any

from tkdebug.errors import Frame
from tkdebug.instrument.analyses.compiled_models import UncompiledGraph
from tkdebug.records.hook_chain import HOOKS
from tkdebug.terminal.text import tell


def report_graph(reason: str, frame: Frame | None) -> None:
    """Report a graph that runs as it was traced.

    Args:
        reason: why it was not compiled.
        frame: the line that it begins at.
    """
    where = "" if frame is None else f" that begins at {frame.file}:{frame.line}"
    tell(f"torch.compile: a graph{where} runs without being compiled: {reason}")
    _record(reason, frame)


def report_unknown_compiler(why: str) -> str:
    """Report that nothing is compiled with this torch; return the reason, for sessions."""
    import torch

    reason = f"the compiler of torch {torch.__version__} is not known to tkdebug ({why})"
    tell(f"torch.compile runs its functions eagerly: {reason}")
    return reason


def as_written(model: Any, reason: str) -> Any:
    """Return the function itself, or a decorator that does, and record why it is uncompiled.

    Args:
        model: a function or module; None if the call is to return a decorator.
        reason: why nothing is compiled.
    """

    def take(function: Any) -> Any:
        written = inspect.unwrap(getattr(function, "forward", function))
        code: CodeType | None = getattr(written, "__code__", None)
        at = code and Frame(code.co_filename, code.co_firstlineno, code.co_name)
        _record(reason, at)
        return function

    return take if model is None else take(model)


def _record(reason: str, frame: Frame | None) -> None:
    if HOOKS.recorders:
        HOOKS.record(UncompiledGraph(reason, () if frame is None else (frame,)))
