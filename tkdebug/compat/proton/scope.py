"""`proton.scope` and its like: a script's names around its launches, and inside of its kernels.

Scopes are followed while there is a profiling session, active or not, and under a recorder.
Otherwise entering one costs one look at a flag. Scopes inside of kernels are ignored: upstream
times them under `backend="instrumentation"` alone, which tkdebug refuses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from tkdebug.compiler.tensor import constexpr
from tkdebug.instrument.profiling import ProfileError
from tkdebug.instrument.profiling.profiler import METADATA_STATE, PROFILER
from tkdebug.records.scopes import SCOPES, Scope, set_state
from tkdebug.runtime.jit.function import jit

_F = TypeVar("_F", bound=Callable[..., Any])
_CPU_TIME = "cpu_time (ns)(exc)"
_SEMANTICS = ("triton", "gluon")


class scope:
    """A named scope: a context manager and a decorator.

    Args:
        name: the name of the scope.
        metrics: numbers, lists of numbers or tensors by name, which are added up over all times
            that the scope is entered.
    """

    def __init__(self, name: str, metrics: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.metrics = metrics
        self.id: int | None = None
        self._entered: list[Scope | None] = []

    def _enter_scope(self) -> Scope | None:
        entered = SCOPES.enter(self.name, self.metrics) if SCOPES.tracking else None
        self.id = None if entered is None else entered.id
        return entered

    def _exit_scope(self, entered: Scope | None) -> None:
        if entered is not None:
            leave_in_order(entered)

    def __enter__(self) -> scope:
        self._entered.append(self._enter_scope())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._exit_scope(self._take())
        except ProfileError:
            if error is None:
                raise  # else the script's own exception is what went wrong

    def _take(self) -> Scope | None:
        """Remove and return the entry of this thread and context, else the latest entry."""
        here = SCOPES.current()
        if len(self._entered) > 1 and here is not None:
            for entered in here.chain():
                if entered in self._entered:
                    self._entered.remove(entered)
                    return entered
        return self._entered.pop()

    def __call__(self, func: _F) -> _F:
        """Decorate a function, which then runs inside the scope."""

        @wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            entered = self._enter_scope()
            try:
                return func(*args, **kwargs)
            finally:
                self._exit_scope(entered)

        return wrapper  # type: ignore[return-value]


class cpu_timed_scope(scope):
    """A scope with the wall time between its ends as metric `cpu_time (ns)`.

    Raises:
        ValueError: `metrics` has `cpu_time`, which is reserved.
    """

    def __init__(self, name: str, metrics: Mapping[str, Any] | None = None) -> None:
        super().__init__(name, metrics)
        if metrics and "cpu_time" in metrics:
            raise ValueError("The metric name 'cpu_time' is reserved.")

    def _exit_scope(self, entered: Scope | None) -> None:
        if entered is not None:
            SCOPES.measure(entered, {_CPU_TIME: time.time_ns() - entered.start_ns})
            leave_in_order(entered)


def enter_scope(name: str, *, metrics: Mapping[str, Any] | None = None) -> int | None:
    """Enter a scope, which `exit_scope` leaves; return its number, or None if scopes are off."""
    if not SCOPES.tracking:
        return None
    entered = SCOPES.enter(name, metrics)
    return None if entered is None else entered.id


def exit_scope(name: str | None = None, *, metrics: Mapping[str, Any] | None = None) -> int | None:
    """Leave the innermost scope, and return its number; do nothing if scopes are off.

    Args:
        name: the name it must have, None for any.
        metrics: added to the scope's metrics.

    Raises:
        ProfileError: there is no scope.
        ValueError: the scope has another name.
    """
    if not SCOPES.tracking:
        return None
    entered = SCOPES.current()
    if entered is None:
        if not PROFILER.is_on:
            return None
        raise ProfileError(
            "proton.exit_scope: no scope is in force; "
            "those that were entered before proton.start do not count"
        )
    if name and name != entered.name and PROFILER.is_on:
        raise ValueError(f"Scope name mismatch: {name} != {entered.name}")
    if metrics:
        SCOPES.measure(entered, metrics)
    SCOPES.exit(entered)
    return entered.id


def leave_in_order(entered: Scope) -> None:
    """Leave `entered`.

    Raises:
        ProfileError: scopes were entered in it and not left; they are left now.
    """
    inner = SCOPES.exit(entered)
    if inner and PROFILER.is_on:
        raise ProfileError(
            f"scope {entered.name!r} was left before {inner[0]!r}, which was entered in it; "
            "exit scopes in reverse"
        )


class state:
    """A state, the innermost name of work measured inside: a context manager and a decorator."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> state:
        enter_state(self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        exit_state()

    def __call__(self, func: _F) -> _F:
        """Decorate a function, which then runs in the state."""

        @wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return wrapper  # type: ignore[return-value]


class metadata_state(state):
    """The state in which `launch_metadata` functions run, which viewers leave out."""

    def __init__(self) -> None:
        super().__init__(METADATA_STATE)


def enter_state(name: str) -> None:
    """Put work that is measured from now on under `name`; there is one state at a time."""
    set_state(name)


def exit_state() -> None:
    """End the state."""
    set_state(None)


def depth(session: int | None = 0) -> int | None:
    """Return the number of scopes around, as a session sees it, or None without a session.

    Raises:
        ProfileError: there is no session of that number.
    """
    if not PROFILER.is_on:
        return None
    return PROFILER.profile(0 if session is None else session).depth()


@jit
def enter_kernel_scope(name: constexpr):  # type: ignore[no-untyped-def]
    """Mark the begin of a scope in a kernel: no code."""
    pass


@jit
def exit_kernel_scope(name: constexpr):  # type: ignore[no-untyped-def]
    """Mark the end of a scope in a kernel: no code."""
    pass


def enable_semantic(semantic_name: str) -> None:
    """Let kernels of a language have scopes; all may have them."""
    _check_semantic(semantic_name)


def disable_semantic(semantic_name: str) -> None:
    """Let kernels of a language have no scopes, which are ignored in any case."""
    _check_semantic(semantic_name)


def _check_semantic(name: str) -> None:
    if name not in _SEMANTICS:
        raise ProfileError(f"semantic: got {name!r}, expected one of {', '.join(_SEMANTICS)}")
