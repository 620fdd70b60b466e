"""Preparation for a first launch: imports, native compilation in the background, plugins' hooks.

A signal handler runs in the main thread, wherever that is. One that launches while the main thread
is in the middle of an import would find modules half made. So another thread imports them.

The compiler's modules and the code generation worker take longer to load than a small kernel takes
to compile. A decorated kernel is the first sign that they will be needed, so they are loaded while
a script still imports and sets up. Only what the first compile would load is loaded, so nothing
changes but when. Errors here are reported by the first compile.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from tkdebug.checks import modules_of
from tkdebug.errors import TkError
from tkdebug.knobs import KNOBS
from tkdebug.plugins import Plugin, loaded
from tkdebug.process.apart_imports import import_apart
from tkdebug.process.forks import renew_after_forks
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.device.platform import platform_in_force

# Modules that `runtime` imports inside of functions, since they import torch or the compiler.
_MODULES = (
    "tkdebug.compiler.frontend",
    "tkdebug.compiler.ops.descriptors",
    "tkdebug.compiler.passes",
    "tkdebug.runtime.compile.cross_compilation",
    "tkdebug.runtime.device.driver",
)
# Names shared libraries (`instrument.launch_listeners.native_tools`).
TOOL_VARIABLE = "TKDEBUG_TOOL"
_LONGEST_LOAD_S = 30.0
_COMPILER_MODULES = (
    "tkdebug.compiler.frontend",
    "tkdebug.compiler.ir.printer",
    "tkdebug.runtime.compile.native_compilation",
)


@cache
def load_what_launches_import() -> None:
    """Import the modules; a failure is reported when the module is needed."""
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
        """Drop imports begun by the parent: its threads do not exist after a fork."""
        self._first = threading.Lock()
        self._running = threading.Lock()
        if not self._is_done:
            self._running.acquire()

    def wait(self) -> None:
        """Start the thread, unless that was done, and wait for its end."""
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
            import_module(name)
        except ImportError:
            return
    add_plugin_hooks()


@cache
def load_interpreter() -> None:
    """Import what interpreted launches need; native runs do without."""
    from tkdebug.findings.reporting import checks_in_force

    import_apart("tkdebug.interpreter.launch", *modules_of(checks_in_force()))


_IMPORTS = _Imports()


@cache
def add_plugin_hooks() -> None:
    """Add plugins' hooks to the chain, once in a process; forked children have them already."""
    for plugin, hook in loaded("tkdebug.hooks", Hook):
        HOOKS.add(_guarded(plugin, hook))
    if os.environ.get(TOOL_VARIABLE):
        from tkdebug.instrument.launch_listeners.native_tools import load_tools_of_environment

        load_tools_of_environment()


def _guarded(plugin: Plugin, hook: Hook) -> Hook:
    """Return `hook`, made silent once one of its callbacks raises.

    Faults are shown besides: who installed a package must not miss them.
    """
    callbacks: dict[str, Any] = {
        field.name: _guarded_callback(plugin, callback)
        for field in fields(hook)
        if callable(callback := getattr(hook, field.name))
    }
    return replace(hook, **callbacks, shows_faults=False)


def _guarded_callback(plugin: Plugin, callback: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        if plugin.problem:
            return
        try:
            callback(*arguments)
        except Exception as error:  # another distribution's code may raise anything
            plugin.fail(error)

    return call


@lru_cache(maxsize=1)
def prestart() -> None:
    """Start loading, once in a process, if kernels will probably run natively."""
    if KNOBS.mode == "native" or (KNOBS.mode == "auto" and platform_in_force().is_likely()):
        thread = threading.Thread(target=_load_compiler, name="tkdebug-prestart", daemon=True)
        # No more threads: the first compile loads then.
        with contextlib.suppress(RuntimeError):
            thread.start()
            if hasattr(os, "register_at_fork"):
                # A child would wait forever for a module whose import was cut in two.
                os.register_at_fork(before=lambda: _await(thread))


def _await(thread: threading.Thread) -> None:
    if thread.is_alive() and thread is not threading.current_thread():
        thread.join(_LONGEST_LOAD_S)


def _load_compiler() -> None:
    with contextlib.suppress(ImportError, OSError, TkError):
        from tkdebug.compiler.targets.registered_backends import backend_named

        platform = platform_in_force()
        backend_named(platform.backend).prestart()
        for module in _COMPILER_MODULES:
            import_module(module)
        platform.prestart()
