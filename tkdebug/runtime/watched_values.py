"""Watched values of launches: what kernels are compiled for, and what their launches showed.

Responsible for the way from `watches.in_force` to a compile, and back from a launch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tkdebug.errors import TkError
from tkdebug.knobs import KNOBS
from tkdebug.watches.in_force import WATCHES

if TYPE_CHECKING:
    from tkdebug.compiler.frontend import TileModule
    from tkdebug.compiler.ir import Module
    from tkdebug.compiler.probes.sites import ProbeOptions
    from tkdebug.interpreter.watching import LaunchWatcher

# Those whose compiled kernels are for the watches that there are.
_FUNCTIONS: WeakSet[Any] = WeakSet()


def forget_with_watches(function: Any) -> None:
    """Compile a jit function's kernels anew when there are other watches."""
    _FUNCTIONS.add(function)


@WATCHES.on_change
def _forget_kernels() -> None:
    for function in list(_FUNCTIONS):
        function.kernels.clear()


def watching(function: Any) -> ProbeOptions | None:
    """How a jit function is compiled for what is watched; None where none of it is in its files."""
    from tkdebug.compiler.probes.sites import ProbeOptions
    from tkdebug.runtime.jit.dependencies import files_of

    try:
        files = frozenset(map(os.path.realpath, files_of(function)))
    except TkError:
        return None  # it has no source, which its compile says
    watches = tuple(one for one in WATCHES.watches if one.file in files)
    if not watches:
        return None
    return ProbeOptions(frozenset(), watches, int(KNOBS.watch_buffer_bytes))


def note_compiled(module: TileModule) -> None:
    """A kernel was compiled for watches: say which of its values it does not have."""
    from tkdebug.compiler.probes.watch_sites import watch_sites

    found = [site.watch for site in watch_sites(module.function)]
    WATCHES.compiled(found, module.unwatched)


def launch_watcher(
    module: Module, probes: ProbeOptions | None, kernel: str, launch_id: int, grid: tuple[int, ...]
) -> LaunchWatcher | None:
    """Who looks at the values of an interpreted launch; None where none is watched."""
    from tkdebug.compiler.probes.watch_sites import watch_sites
    from tkdebug.interpreter.watching import LaunchWatcher, WatchedLaunch

    sites = () if probes is None else watch_sites(module.function)
    if not sites or probes is None:
        return None
    x, y, z = grid
    WATCHES.launched([site.watch for site in sites], (x, y, z))
    return LaunchWatcher(module, WatchedLaunch(kernel, launch_id, (x, y, z)), probes.watch_bytes)


def take(watcher: LaunchWatcher) -> None:
    """Hand out what an interpreted launch showed."""
    seen = watcher.seen()
    WATCHES.take(seen.values, seen.counts)
