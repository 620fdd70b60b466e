"""A native kernel some of whose launches are checked: two builds, and the choice between them.

It stands among a jit function's kernels in the place of the bare build, until nothing new is to be
expected of its launches. What scripts read off it is the bare build's. The generated launch
function looks at `watched` of every kernel, which is how this one gets to see arguments; a bare
kernel pays nothing for that.

Invariants: a script never fails because of a check: where there is no checked build, launches are
bare; a launch that is timed or captured is bare.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.probes.access_logs import is_logged
from tkdebug.forks import renew_after_forks
from tkdebug.hook_chain import HOOKS
from tkdebug.knobs import KNOBS
from tkdebug.runtime.launch.compiled_kernel import CompiledKernel, KernelMetadata
from tkdebug.runtime.launch.timed_launches import TIMED
from tkdebug.runtime.probes.checked_launch import CheckedLaunch
from tkdebug.runtime.probes.checked_launches import CHECKED
from tkdebug.runtime.probes.data_dependence import depends_on_data
from tkdebug.runtime.probes.launch_kinds import LaunchKinds
from tkdebug.runtime.probes.native_races import tell_of_races
from tkdebug.runtime.probes.passed_arguments import PassedArguments, kind_of
from tkdebug.runtime.probes.timelines import MOST_LAUNCHES
from tkdebug.runtime.watched_values import is_looked_at, launched
from tkdebug.terminal_text import tell

if TYPE_CHECKING:
    from tkdebug.compiler.probes.watch_sites import WatchSite
    from tkdebug.runtime.device.platform import ProbeMemory
    from tkdebug.runtime.launch.grid import Grid
    from tkdebug.runtime.launch.native_kernel import NativeKernel
    from tkdebug.runtime.probes.builds import Build

# Code that is on the disk is there before the bare build could be lowered meanwhile.
_ON_DISK_S = 0.05
# So many checked launches later a kernel is compiled again, for those that follow.
_LASTING_AFTER = 4
# What scripts read off a kernel, besides what every `CompiledKernel` has.
_OF_LOADED = frozenset(("function", "module", "n_max_threads", "n_regs", "n_spills"))
_OF_BARE = _OF_LOADED.union(("asm", "binary", "gpu_ir", "gpu_module", "kernel"))
# What launches that nobody looks at need of it where there are hooks.
_OF_RECORDED = frozenset(
    ("launch_hooked", "parameter_kinds", "passes_plain", "tell_failed", "write_note")
)


class WatchedKernel(CompiledKernel):
    """A kernel with a checked build.

    Attributes:
        submit: launches the bare kernel without hooks, as its own does.

    Args:
        bare: the build that has no checks.
        checked: the one that has.
        memory: for checked launches on the kernel's device.
        retire: called with the bare kernel when no more launches are to be looked at.
        admits: asked before the checked build is compiled whether it may be.
        values: of the launch that the checked build is for, one for each parameter; None where the
            bare build is wanted first, as nothing is launched, or it is timed.

    Raises:
        TkError: the kernel does not compile.
    """

    mode = "native"
    is_watched = True

    def __init__(
        self,
        bare: Build,
        checked: Build,
        memory: ProbeMemory,
        retire: Callable[[NativeKernel], None],
        admits: Callable[[], bool],
        values: Sequence[object] | None,
    ) -> None:
        self._bare_build = bare
        self._checked_build: Build | None = checked
        self._checked: NativeKernel | None = None
        self._memory = memory
        self._retire = retire
        self._admits = admits
        self._is_admitted = False
        self._kinds = LaunchKinds()
        self._was_launched = False
        # Of the checked build, once it is there: which watched values it has.
        self._shows_values: tuple[WatchSite, ...] = ()
        # The checked build for many launches, and how many come before it is begun; None where
        # there is none, or it is the one that is used.
        self._lasting_build: Build | None = None
        self._before_lasting: int | None = _LASTING_AFTER
        # Launches that are to have timelines; None where the checked build has none.
        self._timelines_left: int | None = None
        self.submit: Callable[..., Any] = self._submit_bare
        self.renew_locks()
        renew_after_forks(self)
        first = bare.kernel() if values is None else self._first_builds(checked, values)
        super().__init__(bare.src, first.used_globals)
        # Looked up in the bare kernel.
        del self.function, self.kernel
        self._globals = self.watched
        self._look_at_all()

    def renew_locks(self) -> None:
        """A forked child compiles by itself what another thread of the parent's was compiling."""
        # Reentrant, as a hook that gets the compile may launch the kernel.
        self._fitting = threading.RLock()

    def _first_builds(self, checked: Build, values: Sequence[object]) -> NativeKernel:
        """Compile the checked build, and begin the bare one where there is time for it."""
        failure = None
        try:
            arguments = PassedArguments(checked.src.fn.arg_names, values)
            checked = self._checked_build = checked.for_ends(arguments.aligned_ends)
            if not checked.begin(_ON_DISK_S):
                self._bare_build.begin()
        except Exception as error:
            failure = error
        self._give_up(failure)
        return self._checked_kernel() or self.bare

    def _checked_kernel(self) -> NativeKernel | None:
        """The checked build; None where there is nothing to check, or it does not compile."""
        if self._checked is not None or self._checked_build is None:
            return self._checked
        self._is_admitted = self._is_admitted or self._admits()
        if not self._is_admitted:
            self._checked_build = None
            return None
        kernel, failure = None, None
        try:
            kernel = self._checked_build.kernel()
        except Exception as error:
            failure = error
        self._give_up(failure)
        if kernel is None:
            # Another build, where there is one.
            return self._checked_kernel()
        plan = kernel.binary.probes
        if plan is None or not (plan.sites or plan.watches or plan.timeline):
            self._checked_build = None
            return None
        self._timelines_left = MOST_LAUNCHES if plan.timeline is not None else None
        # What programs access is logged in the launches that are checked.
        self._shows_values = tuple(site for site in plan.watches if not is_logged(site))
        if self._checked_build.src.probes is not None:
            tell_of_races(plan, self._checked_build.src.probes, kernel.name)
        self._kinds.depends_on_data = depends_on_data(plan.module)
        self._checked = kernel
        return kernel

    def _fitting_kernel(
        self, kernel: NativeKernel, arguments: PassedArguments
    ) -> NativeKernel | None:
        """The checked kernel, or where it expects other ends of tensors, one for any ends.

        There are two at most. Another thread may have put either in the other's place meanwhile, so
        a kernel is asked itself what it expects.

        Returns:
            None where another thread has given checks up meanwhile.

        Raises:
            TkError: it does not compile.
        """
        if kernel.src.probes is None or arguments.has_aligned_ends(kernel.src.probes.aligned_ends):
            return kernel
        with self._fitting:
            build = self._checked_build
            if build is None:
                return None
            anywhere = build.for_ends(frozenset())
            if anywhere is not build:
                self._checked_build, self._lasting_build = anywhere, None
                self._before_lasting = _LASTING_AFTER
            self._checked = kernel = anywhere.kernel()
            if kernel.binary.probes is not None:
                CHECKED.replaced(kernel.binary.probes)
        return kernel

    def _lasting_kernel(self, kernel: NativeKernel) -> NativeKernel:
        """The checked kernel for many launches, once it is there; until then the one that is."""
        is_for_many = KNOBS.check_launches == "all" and self._timelines_left is None
        if self._before_lasting is None or not is_for_many or self._checked_build is None:
            return kernel
        self._before_lasting -= 1
        if self._before_lasting > 0:
            return kernel
        try:
            if self._lasting_build is None:
                self._lasting_build = self._checked_build.lasting(kernel)
            if self._lasting_build is not None:
                if not self._lasting_build.begin():
                    return kernel
                self._checked = kernel = self._lasting_build.kernel()
                if kernel.binary.probes is not None:
                    CHECKED.replaced(kernel.binary.probes)
        except Exception as error:
            # The other one goes on.
            tell(f"kernel {kernel.name}: its faster build fails: {type(error).__name__}: {error}")
        self._lasting_build = self._before_lasting = None
        return kernel

    def _give_up(self, error: Exception | None) -> None:
        """After an error look for the usual kinds of faults alone, or where these fail for none.

        The bare build says what is wrong with the kernel itself. Called after the handler of the
        error, so that what is wrong does not come as its sequel.
        """
        if error is None:
            return
        build, self._checked = self._checked_build, None
        self._checked_build = None if build is None else build.usual()
        self._lasting_build, self._before_lasting = None, _LASTING_AFTER
        name = self._bare_build.kernel().name
        what = "its values are not watched" if is_looked_at() else "its launches are not checked"
        if self._checked_build is not None:
            assert build is not None
            what = f"its launches are not checked for {' and '.join(build.further_kinds)}"
        tell(f"kernel {name}: {what}: {type(error).__name__}: {error}")

    @property
    def bare(self) -> NativeKernel:
        """The kernel without checks, compiled if it was not."""
        return self._bare_build.kernel()

    def __getattr__(self, name: str) -> Any:
        """What scripts read off the kernel is that of the bare build."""
        if name in _OF_RECORDED:
            return getattr(self.bare, name)
        if name in _OF_BARE:
            if self._was_launched and name in _OF_LOADED:
                self._init_handles()
            return getattr(self.bare, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def metadata(self) -> KernelMetadata:
        """The bare kernel's."""
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
        """Make the launch if it is to be looked at, as `launch_seen`; whether it was made."""
        for get, name, value in self.watched:
            if get(name) is not value:
                self.launch_seen(grid, stream, values, passed)
                return True
        return False

    def launch_seen(
        self, grid: Grid, stream: int, values: tuple[Any, ...], passed: tuple[Any, ...]
    ) -> None:
        """Launch, checked where that is the launch's turn.

        Args:
            grid: programs along x, y and z, none of them 0.
            stream: handle of the stream.
            values: a value for each parameter.
            passed: what `submit` takes.
        """
        self._was_launched = True
        CHECKED.collect()
        checks = self._checks_of(grid, stream, values)
        if checks is not None:
            checks.launch(values, passed)
        elif HOOKS.launch:
            self.bare.launch_recorded(grid, stream, values, passed)
        else:
            self.bare.submit(*grid, stream, *passed)

    def _checks_of(self, grid: Grid, stream: int, values: tuple[Any, ...]) -> CheckedLaunch | None:
        """How the launch is checked; None where it is bare."""
        if self._checked_build is None:
            self._retire(self.bare)
            return None
        is_looked_into = is_looked_at() or KNOBS.timelines
        if TIMED.get() or (KNOBS.check_launches == "none" and not is_looked_into):
            return None
        if self._memory.is_capturing(stream):
            CHECKED.add_captured()
            return None
        kernel = self._checked_kernel()
        if kernel is None:
            return None
        if self._shows_values:
            # Values may differ in each launch.
            launched(self._shows_values, grid)
        elif self._timelines_left is not None:
            if not self._timelines_left:
                self._retire(self.bare)
                return None
            self._timelines_left -= 1
        elif KNOBS.check_launches == "first" and not self._is_wanted(grid, values):
            return None
        return self._prepared(kernel, grid, stream, values)

    def _prepared(
        self, kernel: NativeKernel, grid: Grid, stream: int, values: tuple[Any, ...]
    ) -> CheckedLaunch | None:
        """The launch with its table; None where there can be none."""
        failure = None
        try:
            arguments = PassedArguments(self.src.fn.arg_names, values)
            fitting = self._fitting_kernel(self._lasting_kernel(kernel), arguments)
            if fitting is None:
                return None
            return CheckedLaunch.prepare(fitting, self._memory, grid, stream, arguments)
        except Exception as error:
            failure = error
        self._give_up(failure)
        other = self._checked_kernel()
        return None if other is None else self._prepared(other, grid, stream, values)

    def _is_wanted(self, grid: Grid, values: tuple[Any, ...]) -> bool:
        if self._kinds.wants(kind_of(grid, values)):
            self._look_at_all()
            return True
        rest = self._kinds.rest
        if rest is None:
            self._retire(self.bare)
        elif rest:
            # Loaded by now, so that nothing stands between.
            self.submit = self.bare.submit
            # Counts launches down without a Python function, and then is no longer None.
            self.watched = (*self._globals, (next, chain(repeat(None, rest), repeat(True)), None))
        else:
            self._look_at_all()
        return False

    def _look_at_all(self) -> None:
        """Have the generated function show launches from the next one on, but for timed ones."""
        self.watched = (*self._globals, (TIMED.get, False, True))
