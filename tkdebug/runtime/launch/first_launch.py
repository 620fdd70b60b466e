"""Imports for a first launch, and plugins' hooks, in a thread that no signal handler interrupts.

A handler runs in the main thread, wherever that is. One that launches while the main thread is in
the middle of an import would find modules half made. So another thread imports them.
"""

from __future__ import annotations

import _thread
import importlib
import threading
from functools import cache

from tkdebug.checks import modules_of
from tkdebug.process.forks import renew_after_forks
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.launch.plugin_hooks import add_plugin_hooks

# What `runtime` imports inside of functions, since torch or the compiler come with it.
_MODULES = (
    "tkdebug.compiler.frontend",
    "tkdebug.compiler.ops.descriptors",
    "tkdebug.compiler.passes",
    "tkdebug.interpreter",
    "tkdebug.runtime.compile.cross_compilation",
    "tkdebug.runtime.device.driver",
    "tkdebug.runtime.arguments.tensor_places",
)


@cache
def load_what_launches_import() -> None:
    """Import it; what fails fails again, and is heard of, where it is wanted."""
    _IMPORTS.wait()


class _Imports:
    """One thread that imports, for which all first launches wait.

    Until it is done, signal handlers that launch interrupt each other's wait. So waiting takes few
    stack frames and starts no further thread, which would slow the imports down.
    """

    def __init__(self) -> None:
        self._is_done = False
        self._thread = 0
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """In a forked child nobody goes on with what the parent's thread began."""
        self._first = threading.Lock()
        self._running = threading.Lock()
        if not self._is_done:
            self._running.acquire()

    def wait(self) -> None:
        """Start the thread, if that was not done, and wait for its end."""
        if self._first.acquire(blocking=False) and not self._is_done:
            try:
                # Not `Thread.start`, which waits, and a handler may come in and wait for it.
                _thread.start_new_thread(self._run, ())
            except RuntimeError:  # no more threads
                self._run()
        # A plugin may launch when it is imported, and must not wait for itself.
        if self._thread != threading.get_ident():
            with self._running:
                pass

    def _run(self) -> None:
        self._thread = threading.get_ident()
        try:
            _load()
        finally:
            self._is_done = True
            self._thread = 0
            self._running.release()


def _load() -> None:
    platform = platform_in_force()
    for name in (*_MODULES, *(platform.modules if platform.is_there() else ())):
        try:
            importlib.import_module(name)
        except ImportError:
            return
    _load_checks()
    add_plugin_hooks()


def _load_checks() -> None:
    from tkdebug.findings.reporting import checks_in_force

    for name in modules_of(checks_in_force()):
        importlib.import_module(name)


_IMPORTS = _Imports()
