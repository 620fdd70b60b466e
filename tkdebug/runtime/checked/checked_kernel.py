"""`CheckedKernel`: a native kernel some of whose launches are checked.

It owns two builds, the bare and the checked one, and chooses between them. It is among a jit
function's kernels in the place of the bare build, until its launches can show nothing new. Scripts
see the bare build's attributes. The generated launch function asks `next_action` of every kernel,
which is how this one gets to see arguments; a bare kernel has none.

Invariants: a script never fails because of a check: if there is no checked build, launches are
bare; a launch that is timed is bare.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.checked.builds import (
    MOST_TIMELINES,
    Build,
    CheckedCode,
    check_options,
    timeline_options,
)
from tkdebug.runtime.checked.checked_launch import CheckedLaunch
from tkdebug.runtime.checked.checked_launches import CHECKED
from tkdebug.runtime.checked.launch_kinds import LaunchKinds
from tkdebug.runtime.checked.passed_arguments import PassedArguments, kind_of
from tkdebug.runtime.compile.native_compilation import NativeCompilation
from tkdebug.runtime.device.modes import UNLESS_TIMED, NextAction, are_timed
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.launch.compiled_kernel import CompiledKernel, KernelMetadata
from tkdebug.runtime.watched_values import is_looked_at, launched, watching

if TYPE_CHECKING:
    from tkdebug.compiler.sites.checks import CheckOptions
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.device.platform import CheckMemory
    from tkdebug.runtime.launch.native_kernel import NativeKernel
    from tkdebug.runtime.launch.requests import Grid

# Attributes that scripts read off a kernel, besides those of every `CompiledKernel`.
_OF_LOADED = frozenset(("function", "module", "n_max_threads", "n_regs", "n_spills"))
_OF_BARE = _OF_LOADED.union(("asm", "binary", "gpu_ir", "gpu_module", "kernel"))
# Attributes that hooked launches need which are not looked at.
_OF_RECORDED = frozenset(
    ("launch_hooked", "parameter_kinds", "passes_plain", "tell_failed", "write_note")
)
Key = tuple[Hashable, ...]
# A script whose shapes are constants of its kernels compiles one for each of them.
MOST_CHECKED_BUILDS = 16


class CheckedKernel(CompiledKernel):
    """A kernel with a bare and a checked build.

    Attributes:
        submit: launches the bare kernel without hooks, as its own does.
        passes_plain: the bare kernel's attribute; this kernel's own while launches are counted
            down.

    Args:
        bare: the build that has no checks.
        checked: the checked code.
        memory: the memory for checked launches on the kernel's device.
        retire: called with the bare kernel when no more launches are to be looked at.
        admits: asked before the checked build is compiled whether it may be.
        values: the values of the launch that the checked build is for, one for each parameter; None
            if the bare build is wanted first, as nothing is launched, or it is timed.

    Raises:
        TkError: the kernel does not compile.
    """

    mode = "native"

    def __init__(
        self,
        bare: Build,
        checked: Build,
        memory: CheckMemory,
        retire: Callable[[NativeKernel], None],
        admits: Callable[[], bool],
        values: Sequence[object] | None,
    ) -> None:
        self._bare_build = bare
        self._checked = CheckedCode(bare, checked, admits)
        self._memory = memory
        self._retire = retire
        self._kinds = LaunchKinds()
        self._was_launched = False
        # Launches that are to have timelines, where the checked build has them.
        self._timelines_left = MOST_TIMELINES
        self.submit: Callable[..., Any] = self._submit_bare
        if values is not None:
            self._checked.begin(values)
        first = None if values is None else self._checked.kernel()
        super().__init__(bare.src, (first or self.bare).used_globals)
        # Looked up in the bare kernel.
        del self.function, self.kernel
        self.next_action = UNLESS_TIMED.get

    @property
    def bare(self) -> NativeKernel:
        """The kernel without checks, compiled if it was not."""
        return self._bare_build.kernel()

    def __getattr__(self, name: str) -> Any:
        """Look up in the bare build what scripts read off the kernel."""
        if name in _OF_RECORDED:
            return getattr(self.bare, name)
        if name in _OF_BARE:
            if self._was_launched and name in _OF_LOADED:
                self._init_handles()
            return getattr(self.bare, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def metadata(self) -> KernelMetadata:
        """The facts of the bare kernel."""
        return self.bare.metadata

    @cached_property
    def tile_ir(self) -> str:
        """The Tile IR after its passes, as text."""
        return self.bare.tile_ir

    def _init_handles(self) -> None:
        self.bare._init_handles()  # noqa: SLF001  # as upstream's scripts call it

    def _submit_bare(self, x: int, y: int, z: int, stream: int, *passed: Any) -> Any:
        return self.bare.submit(x, y, z, stream, *passed)

    def launch(self, grid: Grid, values: tuple[Any, ...], stream: int | None = None) -> None:
        """Run on `grid`, none of whose axes is 0, with a value for each parameter."""
        stream, passed = self.bare.launch_arguments(values, stream)
        self.launch_seen(grid, stream, values, passed)

    def takes(
        self, grid: Grid, stream: int, values: tuple[Any, ...], passed: tuple[Any, ...]
    ) -> bool:
        """Make the launch if it is to be looked at, as `launch_seen`; return whether it did."""
        if self.next_action is None or self.next_action() is not NextAction.LOOK:
            return False
        self.launch_seen(grid, stream, values, passed)
        return True

    def launch_seen(
        self, grid: Grid, stream: int, values: tuple[Any, ...], passed: tuple[Any, ...]
    ) -> None:
        """Launch, checked if it is the launch's turn.

        Args:
            grid: programs along x, y and z, none of them 0.
            stream: handle of the stream.
            values: a value for each parameter.
            passed: the arguments of `submit`.
        """
        self._was_launched = True
        CHECKED.collect()
        launch = self._checked_launch(grid, stream, values)
        if launch is not None:
            launch.launch(values, passed)
        elif HOOKS.launch:
            self.bare.launch_recorded(grid, stream, values, passed)
        else:
            self.bare.submit(*grid, stream, *passed)

    def _checked_launch(
        self, grid: Grid, stream: int, values: tuple[Any, ...]
    ) -> CheckedLaunch | None:
        """Return the launch with its table, or None if it is bare."""
        if self._checked.is_given_up:
            self._retire(self.bare)
            return None
        is_looked_into = is_looked_at() or KNOBS.timelines
        if are_timed() or (KNOBS.check_launches == "none" and not is_looked_into):
            return None
        if self._memory.is_capturing(stream):
            return self._captured_launch(grid, stream, values)
        kernel = self._checked.kernel()
        if kernel is None:
            return None
        if self._checked.shows:
            # Values may differ in each launch.
            launched(self._checked.shows, grid)
        elif self._checked.has_timeline:
            if not self._timelines_left:
                self._retire(self.bare)
                return None
            self._timelines_left -= 1
        elif KNOBS.check_launches == "first" and not self._is_wanted(grid, values):
            return None
        return self._prepared(kernel, grid, stream, values)

    def _captured_launch(
        self, grid: Grid, stream: int, values: tuple[Any, ...]
    ) -> CheckedLaunch | None:
        """Return a launch that a graph captures, with its table, or None if it is bare.

        Each replay costs as much as a checked launch, so with `first` it is checked only if replays
        may differ, in the values tested at each access, from launches that were checked.
        """
        kernel = self._checked.kernel()
        is_new = not self._kinds.has_seen(kind_of(grid, values))
        is_wanted = KNOBS.check_launches == "all" or (
            KNOBS.check_launches == "first" and (self._checked.sites_depend_on_data or is_new)
        )
        found = None
        if kernel is not None and is_wanted and not is_looked_at():
            found = self._prepared(kernel, grid, stream, values, is_captured=True)
        if found is None:
            CHECKED.add_bare_captured()
        return found

    def look_again(self) -> None:
        """Look at the next launch, whatever rest there was."""
        self.submit = self._submit_bare
        self.next_action = UNLESS_TIMED.get

    def _prepared(
        self,
        kernel: NativeKernel,
        grid: Grid,
        stream: int,
        values: tuple[Any, ...],
        is_captured: bool = False,
    ) -> CheckedLaunch | None:
        """Return the launch with its table, or None if there can be none."""
        failure = None
        prepare = CheckedLaunch.prepare_captured if is_captured else CheckedLaunch.prepare
        try:
            arguments = PassedArguments(self.src.fn.arg_names, values)
            if KNOBS.check_launches == "all":
                kernel = self._checked.lasting(kernel)
            fitting = self._checked.fitting(kernel, arguments)
            if fitting is None:
                return None
            return prepare(fitting, self._memory, grid, stream, arguments)
        except Exception as error:
            failure = error
        self._checked.give_up(failure)
        other = self._checked.kernel()
        if other is None:
            return None
        return self._prepared(other, grid, stream, values, is_captured)

    def _is_wanted(self, grid: Grid, values: tuple[Any, ...]) -> bool:
        """Whether a launch is checked, by its kind; also set the action at the next launch."""
        self._kinds.depends_on_data = self._checked.depends_on_data
        is_wanted = self._kinds.wants(kind_of(grid, values))
        rest = self._kinds.rest
        if is_wanted or rest == 0:
            self.next_action = UNLESS_TIMED.get
        elif rest is None:
            self._retire(self.bare)
        else:
            # Loaded by now, so that nothing stands between.
            self.submit = self.bare.submit
            self.passes_plain = self.bare.passes_plain
            # Counts launches down without a Python function.
            left = chain(repeat(NextAction.SUBMIT, rest), repeat(NextAction.LOOK))
            self.next_action = left.__next__
            _RESTING.add(self)
        return is_wanted


# Kernels whose launches are counted down.
_RESTING: WeakSet[CheckedKernel] = WeakSet()


def look_at_captures() -> None:
    """Look at the next launches of all kernels: a CUDA graph is about to be captured."""
    while _RESTING:
        _RESTING.pop().look_again()


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
            src: the specialisation of the bare build.
            device: index of the device.
            begun: the compile of the bare build, if it was begun.
            values: the launch's values, one for each parameter; None if nothing is launched.

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
        """Whether one more checked build may be compiled; it is counted where there is a limit."""
        is_asked_for = bool(checks.watches or checks.instrumentations) or bool(checks.timeline)
        if KNOBS.check_launches == "first" and not is_asked_for:
            if self._built >= MOST_CHECKED_BUILDS:
                return False
            self._built += 1
        return True

    def _retire(self, key: Key, kernel: NativeKernel) -> None:
        """Replace a kernel whose launches are no longer looked at by its bare build."""
        kernel.checked_by = None
        if isinstance(self._kernels.get(key), CheckedKernel):
            self._kernels[key] = kernel


def _checks(src: Specialization) -> CheckOptions | None:
    """Return the checks, watches and timelines of a kernel; None for nothing."""
    if KNOBS.timelines and (timed := timeline_options(src.fn.__name__)) is not None:
        return timed
    watched = watching(src.fn) if is_looked_at() else None
    checked = check_options(src.fn.__name__)
    if watched is None or checked is None:
        return watched or checked
    size_bytes = max(watched.watch_bytes, checked.watch_bytes)
    return replace(watched, kinds=checked.kinds, watch_bytes=size_bytes)
