"""The builds of a watched kernel: compiled once each, in part beside what else goes on."""

from __future__ import annotations

import threading
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING

from tkdebug.compiler.ops.debug import STATIC_PRINTS
from tkdebug.compiler.probes.sites import BOUNDS_KINDS, KINDS
from tkdebug.compiler.targets import backend_of
from tkdebug.forks import renew_after_forks
from tkdebug.runtime.compile.native_compilation import NativeCompilation, target_for
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.launch.native_kernel import NativeKernel

if TYPE_CHECKING:
    from tkdebug.compiler.probes.sites import ProbeOptions

# As many as code generation looks for one more beside (`ptx_stage`).
_FEW_BLOCKS = 3


class StaticPrints:
    """Whether a build of a source has printed what `static_print` says, as only one does."""

    are_made = False


class Build:
    """One compile, begun when it is first wanted or before.

    Args:
        src: what to compile for.
        device: index of the device.
        begun: the compile, where it was begun.
        is_quiet: whether hooks do not hear of a failure.
        prints: those of its source; None of the first build of one.
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
        """A forked child generates its code itself."""
        # Reentrant, as a hook that gets the compile may launch the kernel.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def begin(self, wait_s: float = 0.0) -> bool:
        """Lower in this thread, and have code generated in another; whether that is done.

        Args:
            wait_s: how long to wait for it.
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
        """The kernel, compiled if it was not.

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

    def checked(self, probes: ProbeOptions) -> Build:
        """The build of the same source with these probes; hooks do not hear of its failure."""
        src = replace(self.src, probes=probes)
        return Build(src, self._device, is_quiet=True, prints=self._prints)

    @property
    def further_kinds(self) -> tuple[str, ...]:
        """The kinds of faults that it looks for beside the usual ones."""
        return () if self.src.probes is None else tuple(sorted(self.src.probes.kinds - set(KINDS)))

    def usual(self) -> Build | None:
        """The build of the same source that looks for the usual kinds; None where it is this."""
        probes = self.src.probes
        if probes is None or not self.further_kinds:
            return None
        return self.checked(replace(probes, kinds=probes.kinds.intersection(KINDS)))

    def for_ends(self, aligned: frozenset[str]) -> Build:
        """The build of the same source for tensors some of which have aligned ends.

        Ends matter only to a build that tests bounds.
        """
        probes = self.src.probes
        if probes is None or probes.aligned_ends == aligned:
            return self
        if probes.kinds.isdisjoint(BOUNDS_KINDS):
            return self
        return self.checked(replace(probes, aligned_ends=aligned))

    def lasting(self, kernel: NativeKernel) -> Build | None:
        """The build of the same source that takes longer to compile, and whose kernel is faster.

        Only a kernel can gain that has few resident blocks, of which registers alone limit the
        number, and that does not spill.

        Args:
            kernel: what this build gave.

        Returns:
            The build; None where there is nothing to gain.
        """
        binary, target = kernel.binary, target_for(self.src.options)
        fitting = backend_of(target).occupancy(
            target, binary.threads, binary.registers, binary.shared_bytes
        )
        has_room = fitting.limited_by == ("registers",) and 0 < fitting.blocks <= _FEW_BLOCKS
        if self.src.probes is None or not has_room or binary.spill_bytes:
            return None
        return self.checked(replace(self.src.probes, is_lasting=True))
