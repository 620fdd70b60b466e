"""Watched values of launches: their part in compiled kernels, and the values of launches.

Responsible for the way from `watches.in_force` to a compile, and back from a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tkdebug.errors import TkError
from tkdebug.knobs import KNOBS
from tkdebug.watches.in_force import WATCHES

if TYPE_CHECKING:
    from tkdebug.compiler.frontend import TileModule
    from tkdebug.compiler.ir import Module
    from tkdebug.compiler.sites.checks import CheckOptions
    from tkdebug.compiler.sites.watches import WatchSite
    from tkdebug.interpreter.watching.launch_watcher import LaunchWatcher
    from tkdebug.interpreter.watching.records import Seen, WatchedLaunch
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.instrumentation.measuring import Kernel

# Functions whose compiled kernels are for the present watches.
_FUNCTIONS: WeakSet[Any] = WeakSet()


def forget_with_watches(function: Any) -> None:
    """Compile a jit function's kernels again when watches change."""
    _FUNCTIONS.add(function)


@WATCHES.on_change
def _forget_kernels() -> None:
    for function in list(_FUNCTIONS):
        function.kernels.clear()


def watching(function: Any) -> CheckOptions | None:
    """Return the options that compile a jit function with its watches, or None if it has none."""
    from tkdebug.compiler.sites.checks import CheckOptions
    from tkdebug.runtime.jit.function_source import files_of
    from tkdebug.watches.places import real_file

    try:
        files = frozenset(map(real_file, files_of(function)))
    except TkError:
        return None  # it has no source, which its compile says
    watches = tuple(one for one in WATCHES.watches if one.file in files)
    if not watches and not KNOBS.instrumentations:
        return None
    size_bytes = int(KNOBS.watch_buffer_bytes)
    return CheckOptions(frozenset(), watches, size_bytes, KNOBS.instrumentations)


def is_looked_at() -> bool:
    """Whether values of any kernel are looked at."""
    return bool(KNOBS.instrumentations or WATCHES)


def note_compiled(module: TileModule) -> None:
    """Report values that a kernel compiled for watches does not have."""
    from tkdebug.compiler.sites.watches import watch_sites

    found = [site.watch for site in watch_sites(module.function)]
    WATCHES.compiled(found, module.unwatched)


def record_operands(module: Module, names: tuple[str, ...], target: str, num_warps: int) -> None:
    """Add to a kernel's Tile IR the recording of the values that plugins want."""
    from tkdebug.compiler.passes.pipeline import run_pipeline
    from tkdebug.runtime.instrumentation.measuring import RecordOperands

    run_pipeline(module, (RecordOperands(names, target, num_warps),))


def launched(sites: Sequence[WatchSite], grid: tuple[int, int, int]) -> None:
    """Note that a kernel with these sites is launched."""
    WATCHES.launched([site.watch for site in sites if not site.plugin], grid)


def launch_watcher(
    module: Module, checks: CheckOptions, kernel: str, launch_id: int, grid: tuple[int, int, int]
) -> LaunchWatcher | None:
    """Return the observer of an interpreted launch's watched values, or None if it has none."""
    from tkdebug.compiler.sites.watches import watch_sites
    from tkdebug.interpreter.watching.launch_watcher import LaunchWatcher
    from tkdebug.interpreter.watching.records import WatchedLaunch

    sites = watch_sites(module.function)
    if not sites:
        return None
    launched(sites, grid)
    return LaunchWatcher(module, WatchedLaunch(kernel, launch_id, grid), checks.watch_bytes)


def hand_out(seen: Seen, launch: WatchedLaunch, kernel: Callable[[], Kernel]) -> None:
    """Pass on the values that a launch showed.

    Args:
        seen: the values.
        launch: the launch.
        kernel: gives the compiled kernel, for plugins.
    """
    if seen.counts:
        WATCHES.take(seen.values, seen.counts)
    if seen.captured:
        from tkdebug.runtime.instrumentation.measuring import measure

        measure(seen.captured, kernel(), launch)


def architecture(src: Specialization) -> str:
    """The architecture whose GPU IR plugins look at."""
    from tkdebug.compiler.targets.registered_backends import target_of, unsupported_gpu
    from tkdebug.runtime.device.driver import driver
    from tkdebug.runtime.device.platform import platform_in_force
    from tkdebug.runtime.instrumentation.measuring import DEFAULT_TARGET

    if platform_in_force().obstacle() is None:
        asked = src.options.arch or driver.active.get_current_target().arch
    else:
        asked = KNOBS.cross_compile or src.options.arch or DEFAULT_TARGET
    return DEFAULT_TARGET if unsupported_gpu(asked) is not None else target_of(asked).name
