"""Gets native compilation ready in the background while a script still imports and sets up.

The compiler's modules and the code generation worker take longer to load than a small kernel takes
to compile. A decorated kernel is the first sign that they will be needed; what is loaded is what
the first compile would load, so nothing changes but when. Errors here are the first compile's to
tell.
"""

from __future__ import annotations

import contextlib
import os
import threading
from functools import lru_cache
from importlib import import_module

from tkdebug.errors import TkError
from tkdebug.knobs import KNOBS
from tkdebug.runtime.device.platform import platform_in_force

_LONGEST_LOAD_S = 30.0
_MODULES = (
    "tkdebug.compiler.frontend",
    "tkdebug.compiler.ir.printer",
    "tkdebug.runtime.compile.native_compilation",
)


@lru_cache(maxsize=1)
def prestart() -> None:
    """Start loading, once a process, where kernels will probably run natively."""
    if KNOBS.mode == "native" or (KNOBS.mode == "auto" and platform_in_force().is_likely()):
        thread = threading.Thread(target=_load, name="tkdebug-prestart", daemon=True)
        # No more threads: the first compile loads then.
        with contextlib.suppress(RuntimeError):
            thread.start()
            if hasattr(os, "register_at_fork"):
                # A child would wait forever for a module whose import was cut in two.
                os.register_at_fork(before=lambda: _await(thread))


def _await(thread: threading.Thread) -> None:
    if thread.is_alive() and thread is not threading.current_thread():
        thread.join(_LONGEST_LOAD_S)


def _load() -> None:
    with contextlib.suppress(ImportError, OSError, TkError):
        from tkdebug.compiler.targets.registered_backends import backend_named

        platform = platform_in_force()
        backend_named(platform.backend).prestart()
        for module in _MODULES:
            import_module(module)
        platform.prestart()
