"""The kernels of a jit function that have a checked build, where launches are checked at all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tkdebug.knobs import KNOBS
from tkdebug.runtime.checked.builds import Build
from tkdebug.runtime.checked.check_options import check_options, timeline_options
from tkdebug.runtime.checked.checked_kernel import CheckedKernel
from tkdebug.runtime.compile.native_compilation import NativeCompilation
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.launch.timed_launches import are_timed
from tkdebug.runtime.watched_values import is_looked_at, watching

if TYPE_CHECKING:
    from tkdebug.compiler.sites.checks import CheckOptions
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.launch.compiled_kernel import CompiledKernel
    from tkdebug.runtime.launch.native_kernel import NativeKernel

Key = tuple[Hashable, ...]
# A script whose shapes are constants of its kernels compiles one for each of them.
MOST_CHECKED_BUILDS = 16


class CheckedKernels:
    """The kernels of one jit function that have a checked build, or had one.

    Args:
        kernels: the compiled kernels of the function by launch key, changed where one retires.
    """

    def __init__(self, kernels: dict[Key, CompiledKernel]) -> None:
        self._kernels = kernels
        self._built = 0

    def make(
        self,
        key: Key,
        src: Specialization,
        device: int,
        begun: NativeCompilation | None,
        values: Sequence[object] | None,
    ) -> NativeKernel | CheckedKernel:
        """The kernel for a launch key, with a checked build unless there are too many.

        Args:
            key: the launch key.
            src: what the bare build is compiled for.
            device: index of the device.
            begun: the compile of the bare build, where it was begun.
            values: of the launch, one for each parameter; None where nothing is launched.

        Raises:
            TkError: it does not compile.
        """
        memory = None
        # Edited stages are those of the bare build.
        is_edited = KNOBS.override_dir is not None
        checks = _checks(src)
        is_bare_first = values is None or begun is not None or are_timed()
        # A configuration that a tuner tries may never be launched again.
        if checks is not None and not is_edited and (is_bare_first or self._admits(checks)):
            platform = platform_in_force()
            memory = platform.check_memory(device) if platform.obstacle() is None else None
        if checks is None or memory is None:
            return (begun or NativeCompilation(src, device)).finish()
        bare = Build(src, device, begun)
        return CheckedKernel(
            bare,
            bare.checked(checks),
            memory,
            partial(self._retire, key),
            partial(self._admits, checks) if is_bare_first else lambda: True,
            None if is_bare_first else values,
        )

    def _admits(self, checks: CheckOptions) -> bool:
        """Count one more checked build, unless there are too many."""
        is_asked_for = bool(checks.watches or checks.instrumentations) or bool(checks.timeline)
        if KNOBS.check_launches == "first" and not is_asked_for:
            if self._built >= MOST_CHECKED_BUILDS:
                return False
            self._built += 1
        return True

    def _retire(self, key: Key, kernel: NativeKernel) -> None:
        """Put the bare build in the place of one whose launches are looked at no more."""
        kernel.checked_by = None
        if isinstance(self._kernels.get(key), CheckedKernel):
            self._kernels[key] = kernel


def _checks(src: Specialization) -> CheckOptions | None:
    """Return what is checked, watched and timed in a kernel; None for nothing."""
    if KNOBS.timelines and (timed := timeline_options(src.fn.__name__)) is not None:
        return timed
    watched = watching(src.fn) if is_looked_at() else None
    checked = check_options(src.fn.__name__)
    if watched is None or checked is None:
        return watched or checked
    size_bytes = max(watched.watch_bytes, checked.watch_bytes)
    return replace(watched, kinds=checked.kinds, watch_bytes=size_bytes)
