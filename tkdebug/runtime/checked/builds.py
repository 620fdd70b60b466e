"""The builds of a checked kernel: compiled once each, some while the script goes on.

Invariant: a script never fails because of a check: if no checked build compiles, there is none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from tkdebug.checks import NATIVE_CHECKS, NO_CHECKS, RACE
from tkdebug.compiler.ops.debug import STATIC_PRINTS
from tkdebug.compiler.sites.checks import BOUNDS_KINDS, KINDS
from tkdebug.compiler.sites.watches import is_logged
from tkdebug.compiler.targets import backend_of
from tkdebug.findings.reporting import checks_in_force, is_checked
from tkdebug.knobs import KNOBS
from tkdebug.process.forks import renew_after_forks
from tkdebug.runtime.checked.checked_launches import CHECKED, tell_of_races
from tkdebug.runtime.checked.launch_kinds import depends_on_data, sites_depend_on_data
from tkdebug.runtime.checked.passed_arguments import PassedArguments
from tkdebug.runtime.compile.native_compilation import NativeCompilation, target_for
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.launch.native_kernel import NativeKernel
from tkdebug.runtime.watched_values import is_looked_at
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.compiler.sites.checks import CheckOptions
    from tkdebug.compiler.sites.watches import WatchSite

# Launches of a kernel that have timelines, and neither checks nor watches. The first one finds
# caches cold.
MOST_TIMELINES = 3
# Up to so many blocks, code generation tries to fit one more (`ptx_stage`).
_FEW_BLOCKS = 3
# Code that is on the disk is there before the bare build could be lowered meanwhile.
_ON_DISK_S = 0.05
# After so many checked launches a kernel is compiled again, for later launches.
_LASTING_AFTER = 4


def check_options(kernel: str) -> CheckOptions | None:
    """Return what launches of a kernel of that name are checked for; None if they are not."""
    if KNOBS.check_launches == "none" or not is_checked(kernel):
        return None
    from tkdebug.compiler.sites.checks import KINDS, UNWRITTEN, CheckOptions
    from tkdebug.compiler.sites.table import HINT
    from tkdebug.compiler.sites.watches import LOG_BYTES

    ignored = set(KNOBS.ignored_kinds)
    if "assumption" in ignored:
        ignored.add(HINT)
    if NO_CHECKS in KNOBS.checks:
        ignored.update({"nan", "inf"}.difference(KNOBS.checks))
    asked = {UNWRITTEN, RACE}.intersection(checks_in_force())
    options = CheckOptions(frozenset(KINDS).union(asked) - ignored)
    return replace(options, watch_bytes=LOG_BYTES) if RACE in options.kinds else options


def timeline_options(kernel: str) -> CheckOptions | None:
    """Return the options by which a kernel is compiled for timelines, or None if there are none."""
    from tkdebug.timelines import read_request, requested

    request = requested(tuple(map(read_request, KNOBS.timelines)), kernel)
    if request is None:
        return None
    from tkdebug.compiler.sites.checks import CheckOptions
    from tkdebug.compiler.sites.clocks import TimelineOptions

    return CheckOptions(frozenset(), timeline=TimelineOptions(request.programs))


def tell_of_others() -> None:
    """Report the checks in force that native launches of this process do not get."""
    looked_for = () if KNOBS.check_launches == "none" else NATIVE_CHECKS
    others = [name for name in checks_in_force() if name not in (*looked_for, NO_CHECKS)]
    if others:
        _tell_once(", ".join(others))


@cache
def _tell_once(names: str) -> None:
    tell(f"native kernels are not checked for {names}; use `tkdebug run --mode interpret`")


class StaticPrints:
    """A flag: a build of a source has made its static prints, which only one build does."""

    are_made = False


class Build:
    """One compile, which begins at its first use or earlier.

    Args:
        src: the specialisation to compile.
        device: index of the device.
        begun: the compile, if it was begun.
        is_quiet: whether hooks do not hear of a failure.
        prints: the prints of its source; None for the first build of one.
    """

    def __init__(
        self,
        src: Specialization,
        device: int,
        begun: NativeCompilation | None = None,
        is_quiet: bool = False,
        prints: StaticPrints | None = None,
    ) -> None:
        self.src = src
        self._device = device
        self._begun = begun
        self._is_quiet = is_quiet
        self._prints = prints or StaticPrints()
        self._prints.are_made |= begun is not None
        self._kernel: NativeKernel | None = None
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Forget the parent's code generation in a forked child."""
        # Reentrant, as a hook that gets the compile may launch the kernel.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def begin(self, wait_s: float = 0.0) -> bool:
        """Lower in this thread, generate code in another, and return whether that is done.

        Args:
            wait_s: the longest wait for it.
        """
        with self._lock:
            if self._kernel is None and self._thread is None:
                begun = self._lowered()
                # A daemon: the script may end before its code is there.
                self._thread = threading.Thread(
                    target=copy_context().run,
                    args=(begun.generate,),
                    name="tkdebug-build",
                    daemon=True,
                )
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(wait_s)
        return thread is None or not thread.is_alive()

    def kernel(self) -> NativeKernel:
        """Return the kernel; compile it if that was not done.

        Raises:
            TkError: it does not compile.
        """
        with self._lock:
            if self._kernel is None:
                begun = self._lowered()
                if self._thread is not None:
                    self._thread.join()
                    self._thread = None
                begun.generate()
                if self._is_quiet and begun.failure is not None:
                    raise begun.failure
                self._kernel = begun.finish()
                self._begun = None
            return self._kernel

    def _lowered(self) -> NativeCompilation:
        if self._begun is None:
            token = STATIC_PRINTS.set(not self._prints.are_made)
            self._prints.are_made = True
            try:
                self._begun = NativeCompilation(self.src, self._device)
            finally:
                STATIC_PRINTS.reset(token)
        return self._begun

    def checked(self, checks: CheckOptions) -> Build:
        """The build of the same source with these checks; hooks do not hear of its failure."""
        src = replace(self.src, checks=checks)
        return Build(src, self._device, is_quiet=True, prints=self._prints)

    @property
    def further_kinds(self) -> tuple[str, ...]:
        """The kinds of faults that it looks for beside the usual ones."""
        return () if self.src.checks is None else tuple(sorted(self.src.checks.kinds - set(KINDS)))

    def usual(self) -> Build | None:
        """The build of the same source that looks for the usual kinds; None if this is it."""
        checks = self.src.checks
        if checks is None or not self.further_kinds:
            return None
        return self.checked(replace(checks, kinds=checks.kinds.intersection(KINDS)))

    def for_ends(self, aligned: frozenset[str]) -> Build:
        """The build of the same source for tensors some of which have aligned ends.

        Ends matter only to a build that tests bounds.
        """
        checks = self.src.checks
        if checks is None or checks.aligned_ends == aligned:
            return self
        if checks.kinds.isdisjoint(BOUNDS_KINDS):
            return self
        return self.checked(replace(checks, aligned_ends=aligned))

    def lasting(self, kernel: NativeKernel) -> Build | None:
        """Return the build of the same source that compiles longer and runs faster.

        Only a kernel can gain that has few resident blocks, whose number registers alone limit, and
        that does not spill.

        Args:
            kernel: the kernel of this build.

        Returns:
            The build; None if there is nothing to gain.
        """
        binary, target = kernel.binary, target_for(self.src.options)
        fitting = backend_of(target).occupancy(
            target, binary.threads, binary.registers, binary.shared_bytes
        )
        has_room = fitting.limited_by == ("registers",) and 0 < fitting.blocks <= _FEW_BLOCKS
        if self.src.checks is None or not has_room or binary.spill_bytes:
            return None
        return self.checked(replace(self.src.checks, is_lasting=True))


class CheckedCode:
    """The checked code of one kernel: the build that is asked for, or its replacement.

    A build that fails is replaced by one that looks only for the usual kinds of faults. A build for
    tensors with certain ends is replaced by one for any ends, if a launch's tensors end elsewhere.
    Where all launches are checked, the build is replaced after some of them by a faster one.

    Args:
        bare: the build without checks, which says what is wrong with the kernel itself.
        build: the checked build that is asked for.
        admits: asked before it is compiled whether it may be.

    Attributes:
        shows: the watched values that it records.
        has_timeline: whether it records timelines, and checks nothing.
        depends_on_data: whether a launch may go wrong although an equal one was checked.
        sites_depend_on_data: whether that may happen by an address, a mask, or another tested
            value.
    """

    def __init__(self, bare: Build, build: Build, admits: Callable[[], bool]) -> None:
        self._bare = bare
        self._build: Build | None = build
        self._kernel: NativeKernel | None = None
        self._admits = admits
        self._is_admitted = False
        # The build for many launches, and how many launches come before it is begun; None if there
        # is no such build, or it is in use.
        self._lasting: Build | None = None
        self._before_lasting: int | None = _LASTING_AFTER
        self.shows: tuple[WatchSite, ...] = ()
        self.has_timeline = False
        self.depends_on_data = self.sites_depend_on_data = False
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Forget the parent's compiles in a forked child, which compiles by itself."""
        # Reentrant, as a hook that gets the compile may launch the kernel.
        self._fitting = threading.RLock()

    @property
    def is_given_up(self) -> bool:
        """Whether launches are no longer checked."""
        return self._build is None

    def begin(self, values: Sequence[object]) -> None:
        """Begin the checked build for a launch, and the bare one if there is time for it.

        Args:
            values: the launch's values, one for each parameter.
        """
        build, failure = self._build, None
        assert build is not None
        try:
            arguments = PassedArguments(build.src.fn.arg_names, values)
            build = self._build = build.for_ends(arguments.aligned_ends)
            if not build.begin(_ON_DISK_S):
                self._bare.begin()
        except Exception as error:
            failure = error
        self.give_up(failure)

    def kernel(self) -> NativeKernel | None:
        """Return the compiled kernel; None if it checks nothing, does not compile, or may not."""
        while self._kernel is None and self._build is not None:
            self._is_admitted = self._is_admitted or self._admits()
            if not self._is_admitted:
                self._build = None
                return None
            kernel, failure = None, None
            try:
                kernel = self._build.kernel()
            except Exception as error:
                failure = error
            self.give_up(failure)
            if kernel is not None:
                self._take(kernel)
        return self._kernel

    def _take(self, kernel: NativeKernel) -> None:
        """Use a kernel; give checks up if it checks nothing."""
        plan, checks = kernel.binary.checks, kernel.src.checks
        if plan is None or not (plan.sites or plan.watches or plan.timeline):
            self._build = None
            return
        self.has_timeline = plan.timeline is not None
        # Checked launches log the accesses of programs.
        self.shows = tuple(site for site in plan.watches if not is_logged(site))
        if checks is not None:
            tell_of_races(plan, checks, kernel.name)
        self.depends_on_data = depends_on_data(plan.module)
        self.sites_depend_on_data = sites_depend_on_data(plan.module)
        self._kernel = kernel

    def fitting(self, kernel: NativeKernel, arguments: PassedArguments) -> NativeKernel | None:
        """Return the kernel, or one for any ends if it expects other ends of tensors.

        There are two at most. Another thread may have put either in the other's place meanwhile, so
        a kernel is asked itself which ends it expects.

        Returns:
            None if another thread has given checks up meanwhile.

        Raises:
            TkError: it does not compile.
        """
        if kernel.src.checks is None or arguments.has_aligned_ends(kernel.src.checks.aligned_ends):
            return kernel
        with self._fitting:
            build = self._build
            if build is None:
                return None
            anywhere = build.for_ends(frozenset())
            if anywhere is not build:
                self._build, self._lasting = anywhere, None
                self._before_lasting = _LASTING_AFTER
            return self._replace(anywhere)

    def lasting(self, kernel: NativeKernel) -> NativeKernel:
        """Return the faster build's kernel once it is compiled, until then the given one."""
        if self._before_lasting is None or self.has_timeline or self._build is None:
            return kernel
        self._before_lasting -= 1
        if self._before_lasting > 0:
            return kernel
        try:
            if self._lasting is None:
                self._lasting = self._build.lasting(kernel)
            if self._lasting is not None:
                if not self._lasting.begin():
                    return kernel
                kernel = self._replace(self._lasting)
        except Exception as error:
            # The other one goes on.
            tell(f"kernel {kernel.name}: its faster build fails: {type(error).__name__}: {error}")
        self._lasting = self._before_lasting = None
        return kernel

    def _replace(self, build: Build) -> NativeKernel:
        """Use another build's kernel, which tests the same accesses as the one before."""
        self._kernel = kernel = build.kernel()
        if kernel.binary.checks is not None:
            CHECKED.replaced(kernel.binary.checks)
        return kernel

    def give_up(self, error: Exception | None) -> None:
        """Fall back after an error to the usual kinds of faults, or to none if these fail.

        The bare build reports what is wrong with the kernel itself. Call this after the error's
        handler, so that the bare build's error is not chained to it.
        """
        if error is None:
            return
        build, self._kernel = self._build, None
        self._build = None if build is None else build.usual()
        self._lasting, self._before_lasting = None, _LASTING_AFTER
        name = self._bare.kernel().name
        what = "its values are not watched" if is_looked_at() else "its launches are not checked"
        if self._build is not None:
            assert build is not None
            what = f"its launches are not checked for {' and '.join(build.further_kinds)}"
        tell(f"kernel {name}: {what}: {type(error).__name__}: {error}")
