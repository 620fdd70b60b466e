"""The named scopes that a script puts around its launches, and their watchers.

Responsible for the scopes in force in this thread and context, and for notifying watchers (a
profiling session, the recorder) when one begins and ends. The watchers use them.

Invariants: without watchers, and if no balance is asked for, entering a scope is one look at
`SCOPES.tracking`; a scope belongs to the watchers that were there when it was entered, and to no
other; a thread that has entered none of its own is inside those of the main thread, for which
autograd's threads work.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from tkdebug.process.forks import renew_after_forks

Metrics = Mapping[str, object]


class ScopeWatcher(Protocol):
    """A listener that is notified of scopes."""

    def entered(self, scope: Scope, metrics: Metrics) -> None:
        """Note that `scope` was entered, with the script's metrics of it; may refuse by raising."""

    def measured(self, scope: Scope, metrics: Metrics) -> None:
        """Note that the script measured `metrics` of `scope`, which it entered before."""

    def exited(self, scope: Scope) -> None:
        """Note that `scope` was left."""


class Scope:
    """One entered scope.

    Attributes:
        id: unique in the process.
        parent: the scope around it.
        watchers: the watchers that were notified of it.
        start_ns: the time at which it was entered, in nanoseconds since 1970.
        thread: native id of the thread that entered it.
    """

    __slots__ = ("before", "id", "name", "parent", "start_ns", "thread", "watchers")

    def __init__(
        self,
        name: str,
        parent: Scope | None,
        before: Scope | _Unset | None,
        watchers: tuple[ScopeWatcher, ...],
    ) -> None:
        self.id = next(_IDS)
        self.name = name
        self.parent = parent
        # The scope in force in this very context, which may differ from `parent` (see `current`).
        self.before = before
        self.watchers = watchers
        self.start_ns = time.time_ns()
        self.thread = threading.get_native_id()

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


class _Unset:
    """The value of the current scope in a context that has entered none."""


_IDS = itertools.count(1)
_UNSET = _Unset()
_CURRENT: ContextVar[Scope | _Unset | None] = ContextVar("tkdebug_scope", default=_UNSET)
_STATE: ContextVar[str | None] = ContextVar("tkdebug_scope_state", default=None)


class Scopes:
    """The scopes of this process; changes of watchers copy, so that reading needs no lock.

    Attributes:
        tracking: whether scopes are followed at all.
        is_plain: whether nobody has entered a scope or state yet.
    """

    def __init__(self) -> None:
        self._watchers: tuple[ScopeWatcher, ...] = ()
        self._keepers = 0
        self._main: Scope | None = None
        self.tracking = False
        self.is_plain = True
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Replace the lock, as a forked child has to."""
        self._lock = threading.RLock()

    def watch(self, watcher: ScopeWatcher) -> None:
        """Notify `watcher` of scopes entered from now on."""
        with self._lock:
            if watcher not in self._watchers:
                self._watchers = (*self._watchers, watcher)
            self._update()

    def unwatch(self, watcher: ScopeWatcher) -> None:
        """Stop notifying `watcher`."""
        with self._lock:
            self._watchers = tuple(w for w in self._watchers if w is not watcher)
            self._update()

    def keep(self, change: int) -> None:
        """Follow scopes also without watchers: add 1 for a reason to do so, -1 when it ends."""
        with self._lock:
            self._keepers += change
            self._update()

    def _update(self) -> None:
        self.tracking = bool(self._watchers) or self._keepers > 0

    def enter(self, name: str, metrics: Metrics | None = None) -> Scope | None:
        """Enter a scope; None if scopes are not followed.

        Raises:
            TkError: a watcher does not take the metrics; the scope is not entered then.
        """
        if not self.tracking:
            return None
        self.is_plain = False
        scope = Scope(name, self.current(), _CURRENT.get(), self._watchers)
        self._set(scope)
        try:
            for watcher in scope.watchers:
                watcher.entered(scope, metrics or {})
        except BaseException:
            self.exit(scope)
            raise
        return scope

    def measure(self, scope: Scope, metrics: Metrics) -> None:
        """Report `metrics` of an entered scope.

        Raises:
            TkError: a watcher does not take them.
        """
        for watcher in scope.watchers:
            if watcher in self._watchers:
                watcher.measured(scope, metrics)

    def exit(self, scope: Scope) -> tuple[str, ...]:
        """Leave `scope`, and scopes entered in it and not left.

        Returns:
            The names of the latter, innermost first; normally empty.
        """
        here = self.current()
        inner: list[Scope] = []
        for entered in here.chain() if here is not None else ():
            if entered is scope:
                self._set(scope.before)
                break
            inner.append(entered)
        else:
            inner = []  # left in another context than it was entered in
        for left in (*inner, scope):
            for watcher in left.watchers:
                watcher.exited(left)
        return tuple(left.name for left in inner)

    def current(self) -> Scope | None:
        """The innermost scope in force in this thread and context, or None."""
        scope = _CURRENT.get()
        return self._main if isinstance(scope, _Unset) else scope

    def _set(self, scope: Scope | _Unset | None) -> None:
        _CURRENT.set(scope)
        if threading.get_ident() == threading.main_thread().ident:
            self._main = None if isinstance(scope, _Unset) else scope

    def path(self, watcher: ScopeWatcher | None = None) -> tuple[str, ...]:
        """Return the names of the scopes in force, outermost first, then the state if there is one.

        Args:
            watcher: a watcher; scopes that it was not notified of are left out. None for all.
        """
        scope, state = self.current(), _STATE.get()
        if scope is None:
            return () if state is None else (state,)
        names = [s.name for s in scope.chain() if watcher is None or watcher in s.watchers]
        names.reverse()
        if state is not None:
            names.append(state)
        return tuple(names)


SCOPES = Scopes()


def set_state(name: str | None) -> None:
    """Put work measured from now on in this context under `name`; None ends that."""
    SCOPES.is_plain = False
    _STATE.set(name)


@contextmanager
def state(name: str) -> Iterator[None]:
    """Put work measured inside under `name`."""
    SCOPES.is_plain = False
    token = _STATE.set(name)
    try:
        yield
    finally:
        _STATE.reset(token)
