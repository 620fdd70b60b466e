"""`triton.profiler.language`: scopes inside of kernels, which mean nothing as yet.

Upstream times them under `backend="instrumentation"` alone and ignores them else. tkdebug refuses
that backend, so that to ignore them is right.
"""

from __future__ import annotations

from tkdebug.compiler.tensor import constexpr
from tkdebug.instrument.profiling.errors import ProfileError
from tkdebug.runtime.jit.function import jit

_SEMANTICS = ("triton", "gluon")


@jit
def enter_scope(name: constexpr):  # type: ignore[no-untyped-def]
    """Mark the begin of a scope."""
    pass


@jit
def exit_scope(name: constexpr):  # type: ignore[no-untyped-def]
    """Mark the end of a scope."""
    pass


def enable_semantic(semantic_name: str) -> None:
    """Let kernels of a language have scopes; they all may."""
    _check(semantic_name)


def disable_semantic(semantic_name: str) -> None:
    """Let them have none; they are ignored in any case."""
    _check(semantic_name)


def _check(name: str) -> None:
    if name not in _SEMANTICS:
        raise ProfileError(f"semantic: got {name!r}, expected one of {', '.join(_SEMANTICS)}")
