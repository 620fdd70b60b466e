"""Imports of modules that launches need now and then, in a thread without signal handlers.

A handler runs in the main thread, wherever that is. A handler that launches while the main thread
is in the middle of an import would find a module half made; if another thread imports it, it waits.
"""

from __future__ import annotations

import _thread
import importlib
import sys

# The wait is bounded: if a handler interrupts an ordinary import of the module, the thread waits
# for that import. After the wait the handler finds the module as an ordinary import would find it.
LONGEST_WAIT_S = 5.0


def import_apart(*names: str) -> None:
    """Import modules, so that ordinary imports of them find them whole.

    An import that fails here fails again, and is reported, where the module is imported.
    """
    missing = [name for name in names if not _is_whole(name)]
    if not missing:
        return
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            for name in missing:
                importlib.import_module(name)
        except Exception:  # the module's own, of any kind
            pass
        finally:
            done.release()

    try:
        # Not `Thread.start`, which waits for the thread: a handler may interrupt it and wait, too.
        _thread.start_new_thread(run, ())
    except RuntimeError:  # no more threads
        return
    done.acquire(timeout=LONGEST_WAIT_S)


def _is_whole(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)
