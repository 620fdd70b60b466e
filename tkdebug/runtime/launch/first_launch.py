"""What a first launch imports, and plugins' hooks, where no signal handler can come in between.

A handler runs in the main thread, wherever that is. One that launches while the main thread is in
the middle of an import would find modules half made. So another thread imports them.
"""

from __future__ import annotations

import importlib
import threading
from functools import cache

from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.launch.plugin_hooks import add_plugin_hooks

# What `runtime` imports inside of functions, since torch or the compiler come with it.
_MODULES = (
    "tkdebug.compiler.artifacts",
    "tkdebug.compiler.frontend",
    "tkdebug.compiler.ir.printer",
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
    thread = threading.Thread(target=_load, name="tkdebug-imports", daemon=True)
    thread.start()
    thread.join()


def _load() -> None:
    for name in (*_MODULES, *platform_in_force().modules):
        try:
            importlib.import_module(name)
        except ImportError:
            return
    add_plugin_hooks()
