"""The hook chain, which hands the records of a run to subscribers.

Invariants: enter hooks run in the order they were added, exit hooks in reverse; a hook that raises
is reported once on stderr and never breaks the launch; with no subscriber a launch does no event
work (`HOOKS.launch` is None and the launcher looks at nothing else).

Launches are packed into bytes without a record of each. A recorder has a `LaunchPacker`, which is
`HOOKS.packer`; kernels are `PackableKernel`s. Only these interfaces are here.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tkdebug.process.forks import renew_after_forks
from tkdebug.records.events import (
    AutotuneChoice,
    Fault,
    KernelCompiled,
    LaunchProgress,
    LaunchRecord,
)
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.fault_printing.printer import FaultPrinter
    from tkdebug.records.events import KernelLaunch


class NoteParts(NamedTuple):
    """Parts of the function that packs launches of a kernel.

    Attributes:
        kinds: the kinds of the kernel's parameters, as in `PackableKernel`.
        packed: the parameters that are scalars in a slot.
        variant: the number of the facts that all launches share.
        kept: the numbers of facts by a launch's key; None for a new key.
        describe: sends new facts by key and values, and returns their number.
        infos: describes a launch's values in full.
        pack: packs the fields of a slot.
        put: takes the packed fields.
        here: has the calling thread's native id.
        flags: one byte, the flags that launches get from now on.
        scopes_now: gives the number of the scopes in force, if there are some.
        odd: called with a launch that no slot can hold.
    """

    kinds: tuple[str, ...]
    packed: tuple[int, ...]
    variant: int
    kept: Callable[[Hashable], int | None]
    describe: Callable[[Hashable, tuple[Any, ...]], int]
    infos: Callable[[tuple[Any, ...]], Hashable]
    pack: Callable[..., bytes]
    put: Callable[[bytes], None]
    here: Any
    flags: bytearray
    scopes_now: Callable[[], int]
    odd: Callable[..., None]


class PackableKernel(Protocol):
    """A kernel whose launches can be packed into bytes without a record of each.

    Attributes:
        launch_record: the record type with the facts that its launches share.
        parameter_kinds: the kind of each parameter's value: a "tensor", an "int" of 64 signed bits,
            a "uint", a "float", a scalar to "look" at, something "fixed" with the kernel, or
            "other".
        write_note: writes the function that packs launches; it is called after each with its
            number, grid, stream, start in nanoseconds since 1970, and a value for each parameter.
    """

    @property
    def launch_record(self) -> type[KernelLaunch]:
        """The record type with the facts that its launches share."""

    @property
    def parameter_kinds(self) -> tuple[str, ...]:
        """The kind of each parameter's value."""

    @property
    def write_note(self) -> Callable[[NoteParts], Callable[..., None]]:
        """The function that writes the packing function of its launches."""


class LaunchPacker(Protocol):
    """A recorder that takes launches without a record of each.

    Attributes:
        notes: by kernel, the function to call after a launch with its number, grid, stream, start
            in nanoseconds since 1970, and a value for each parameter.
    """

    @property
    def notes(self) -> Mapping[object, Callable[..., None]]:
        """The functions to call after launches, by kernel."""

    def note_of(self, kernel: Any) -> Callable[..., None]:
        """Make and keep the function for a kernel that is not in `notes` yet."""

    def time_of(self, launch: int) -> Callable[..., int | None]:
        """Return a function that acts as `LaunchRecord.device_ns` of the launch."""


class LentBuffer(NamedTuple):
    """A buffer that another process is to read.

    Attributes:
        word_at: the place in memory to which that process writes a 0 once it has read it.
        at: its place in that memory.
        size_bytes: the size of its contents.
    """

    word_at: int
    at: int
    size_bytes: int


# The fields that `ActivityBuffers.calls` packs for each call, with numpy's names of types: when it
# returned, in ns since 1970, its thread's native id, its number, and 1 if its kernel did not run
# but became a node of a CUDA graph.
CALL_FIELDS = (
    ("time_ns", "<i8"),
    ("thread", "<u4"),
    ("correlation", "<u4"),
    ("is_captured", "<i8"),
)


class ActivityBuffers(Protocol):
    """Memory for CUPTI's records, with functions for it that take no GIL.

    Attributes:
        requested: address of a CUpti_BuffersCallbackRequestFunc.
        completed: address of a CUpti_BuffersCallbackCompleteFunc.
        called: address of a CUpti_CallbackFunc, which notes calls of the driver.
        descriptor: the descriptor of the memory, for another process.
    """

    requested: int
    completed: int
    called: int
    descriptor: int

    def filled(self) -> list[bytes]:
        """Return the buffers filled since the last time, oldest first."""

    def lend(self) -> list[LentBuffer]:
        """Lend the filled buffers to another process, as places in the memory."""

    def calls(self) -> bytes:
        """The calls that succeeded since the last time, in their order, packed by `CALL_FIELDS`."""

    def lent_count(self) -> int:
        """Return the number of buffers that the process has not given back."""

    def take_back(self) -> None:
        """Take back buffers that were lent to a process that is gone."""


LaunchHook = Callable[[object, LaunchRecord], None]


@dataclass(frozen=True, slots=True)
class Hook:
    """One subscriber: any of its callbacks may be None.

    `enter` and `exit` get (kernel object, LaunchRecord); the others get their record, and `record`
    those of all further types (`storage.stored`). A hook that is `timed` has the device time of
    native launches measured, which costs two events a launch. If no hook `shows_faults`, faults are
    printed on stderr. `device` is called once CUDA is in use in this process, with a function that
    makes buffers for CUPTI: before the first native launch, and before torch's work on the GPU if a
    script is run under tkdebug. `profiler` is called when torch's profiler is about to take CUPTI,
    and when it has given it back. A hook that is not `native` has no use for native launches, which
    it may not get.
    """

    enter: LaunchHook | None = None
    exit: LaunchHook | None = None
    compiled: Callable[[KernelCompiled], None] | None = None
    autotuned: Callable[[AutotuneChoice], None] | None = None
    fault: Callable[[Fault], None] | None = None
    progress: Callable[[LaunchProgress], None] | None = None
    record: Callable[[object], None] | None = None
    device: Callable[[Callable[[], ActivityBuffers]], None] | None = None
    profiler: Callable[[bool], None] | None = None
    timed: bool = False
    native: bool = True
    shows_faults: bool = True


class LaunchHooks(NamedTuple):
    """Hooks around a launch; one value, so that a launch ends with the hooks it began with.

    Attributes:
        enters: the enter hooks in order.
        exits: the exit hooks in their order, which is the reverse.
    """

    enters: tuple[LaunchHook, ...]
    exits: tuple[LaunchHook, ...]


class LaunchDebugger(Protocol):
    """A debugger of interpreted launches."""

    def launch(
        self,
        kernel: object,
        grid: tuple[int, int, int],
        values: tuple[object, ...],
        record: LaunchRecord | None,
    ) -> bool:
        """Run a launch; return False if it is not to be debugged, and has not run.

        Args:
            kernel: the runtime's interpreted kernel.
            grid: programs along x, y, z.
            values: one for each parameter of the kernel's function.
            record: the record of the launch; None if it is not recorded.
        """
        ...


class LaunchFollower(Protocol):
    """A hook that follows interpreted launches and needs no records of them."""

    def begins(self, values: tuple[object, ...]) -> object:
        """Note a launch's begin, with a value for each parameter; return `ended`'s `before`."""
        ...

    def ended(
        self,
        kernel: object,
        grid: tuple[int, int, int],
        values: tuple[object, ...],
        launch_id: int,
        before: object,
    ) -> None:
        """Remember a launch, which ended well.

        Args:
            kernel: the runtime's interpreted kernel.
            grid: programs along x, y, z.
            values: a value for each parameter, as for `begins`.
            launch_id: the id of its record, 0 without one.
            before: the result of `begins`.
        """
        ...


class HookChain:
    """The ordered subscribers of this process; changes copy, so that reading needs no lock.

    Attributes:
        launch: the hooks around launches; None if there are none.
        packer: the packer, if it is called around launches alone, and needs no record of them.
        profiler_has_cupti: whether torch's profiler has CUPTI now; None if it was never used.
        recorders: hooks that take `record`s.
        recorders_version: a number that no other set of recorders has had.
    """

    def __init__(self) -> None:
        self._hooks: tuple[Hook, ...] = ()
        self.launch: LaunchHooks | None = None
        self.timed = False
        self._untimed: tuple[Hook, ...] = ()
        self.packer: LaunchPacker | None = None
        self._packers: tuple[tuple[Hook, LaunchPacker], ...] = ()
        self._make_buffers: Callable[[], ActivityBuffers] | None = None
        self.profiler_has_cupti: bool | None = None
        self.recorders: tuple[Hook, ...] = ()
        self.recorders_version = 0
        # By id; kept, so that no other callback gets the id of one that is gone.
        self._reported: dict[int, Callable[..., None]] = {}
        self._teller: FaultPrinter | None = None
        # Takes over the launches of interpreted kernels.
        self.debugger: LaunchDebugger | None = None
        # Remembers interpreted launches.
        self.follower: LaunchFollower | None = None
        # Makes the debugger of a kernel that calls `breakpoint()`; None without a front end for it.
        self.break_into: Callable[[], LaunchDebugger | None] | None = None
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Replace the locks, as a forked child has to."""
        self._lock = threading.Lock()
        # Held while hooks hear that CUDA is in use. Reentrant: a hook may launch a kernel then.
        self._starting = threading.RLock()
        # After a fork CUDA belongs to the parent, so it is not in use here.
        self._make_buffers = None

    def add(self, hook: Hook) -> None:
        """Append `hook`; the same object twice is a no-op."""
        with self._starting:
            with self._lock:
                if any(h is hook for h in self._hooks):
                    return
                self._set((*self._hooks, hook))
            if self._make_buffers is not None and hook.device is not None:
                self._guarded(hook.device, self._make_buffers)

    def remove(self, hook: Hook) -> None:
        """Take out `hook`; one that is not there is a no-op."""
        with self._lock:
            self._set(tuple(h for h in self._hooks if h is not hook))

    @contextmanager
    def alone(self, hook: Hook) -> Iterator[None]:
        """Replace all hooks by `hook` for the length of a `with` block."""
        with self._lock:
            before = self._hooks
            self._set((hook,))
        try:
            yield
        finally:
            with self._lock:
                self._set(before)

    def time_natively(self, hook: Hook, is_timed: bool) -> None:
        """Set whether native launches are timed for a `timed` hook: it may time them by itself."""
        with self._lock:
            self._untimed = tuple(h for h in self._untimed if h is not hook)
            if not is_timed:
                self._untimed = (*self._untimed, hook)
            self._set(self._hooks)

    def pack_natively(self, hook: Hook, packer: LaunchPacker | None) -> None:
        """Give native launches to `packer` in place of `hook`, if no other hook wants them."""
        with self._lock:
            self._packers = tuple(pair for pair in self._packers if pair[0] is not hook)
            if packer is not None:
                self._packers = (*self._packers, (hook, packer))
            self._set(self._hooks)

    def device_used(self, make_buffers: Callable[[], ActivityBuffers]) -> None:
        """Report that CUDA is in use in this process; only the first time does anything.

        Other threads wait until all hooks know, so that their launches are recorded alike.
        """
        with self._starting:
            if self._make_buffers is not None:
                return
            self._make_buffers = make_buffers
            for hook in self._hooks:
                if hook.device is not None:
                    self._guarded(hook.device, make_buffers)

    def profiler(self, is_taken: bool) -> None:
        """Report that torch's profiler takes CUPTI now, or has returned it."""
        self.profiler_has_cupti = is_taken
        for hook in self._hooks:
            if hook.profiler is not None:
                self._guarded(hook.profiler, is_taken)

    def _set(self, hooks: tuple[Hook, ...]) -> None:
        self._hooks = hooks
        enters = tuple(h.enter for h in hooks if h.enter is not None)
        exits = tuple(h.exit for h in reversed(hooks) if h.exit is not None)
        self.launch = LaunchHooks(enters, exits) if enters or exits else None
        self._untimed = tuple(hook for hook in self._untimed if any(h is hook for h in hooks))
        self.timed = any(hook.timed and not any(h is hook for h in self._untimed) for hook in hooks)
        callers = [h for h in hooks if h.native and not (h.enter is None and h.exit is None)]
        packers = [
            packer for hook, packer in self._packers if len(callers) == 1 and hook is callers[0]
        ]
        self.packer = packers[0] if packers and not self.timed else None
        recorders = tuple(hook for hook in hooks if hook.record is not None)
        if not _are_same(recorders, self.recorders):
            self.recorders = recorders
            self.recorders_version += 1

    def enter(self, kernel: object, record: LaunchRecord) -> LaunchHooks | None:
        """Call the enter hooks; return the hooks to pass to `exit`, None if there are none."""
        hooks = self.launch
        if hooks is not None:
            for hook in hooks.enters:
                try:
                    hook(kernel, record)
                except Exception:
                    self.report(hook)
        return hooks

    def exit(self, hooks: LaunchHooks | None, kernel: object, record: LaunchRecord) -> None:
        """Call the exit hooks of those that entered, last first."""
        if hooks is not None:
            for hook in hooks.exits:
                try:
                    hook(kernel, record)
                except Exception:
                    self.report(hook)

    def compiled(self, event: KernelCompiled) -> None:
        """Report a compiled kernel."""
        for hook in self._hooks:
            if hook.compiled is not None:
                self._guarded(hook.compiled, event)

    def autotuned(self, event: AutotuneChoice) -> None:
        """Report a tuner's choice."""
        for hook in self._hooks:
            if hook.autotuned is not None:
                self._guarded(hook.autotuned, event)

    def fault(self, event: Fault) -> None:
        """Give a fault to the hooks, or to stderr if none of them listens."""
        heard = False
        for hook in self._hooks:
            if hook.fault is not None:
                heard = heard or hook.shows_faults
                self._guarded(hook.fault, event)
        if not heard:
            self._tell_unheard(event)

    def _tell_unheard(self, fault: Fault) -> None:
        """Print `fault` the first time that it comes up at its place."""
        if self._teller is None:
            # Printing needs the source text and styles, which a silent run does not load.
            from tkdebug.fault_printing.printer import FaultPrinter

            self._teller = FaultPrinter()
        self._teller.on_fault(fault)

    def progress(self, event: LaunchProgress) -> None:
        """Report the progress of a long launch."""
        for hook in self._hooks:
            if hook.progress is not None:
                self._guarded(hook.progress, event)

    def record(self, event: object) -> None:
        """Report a record of any other type, such as a plugin's: a dataclass that is `stored`."""
        for hook in self.recorders:
            if hook.record is not None:
                self._guarded(hook.record, event)

    def wants_progress(self) -> bool:
        """Whether any hook asks for progress."""
        return any(hook.progress is not None for hook in self._hooks)

    def wants_compiled(self) -> bool:
        """Whether any hook asks for compiled kernels (printing IR is not free)."""
        return any(hook.compiled is not None for hook in self._hooks)

    def _guarded(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception:
            self.report(callback)

    def report(self, callback: Callable[..., None]) -> None:
        """Report that `callback` raised, the first time that it does."""
        if id(callback) not in self._reported:
            self._reported[id(callback)] = callback
            name = getattr(callback, "__qualname__", repr(callback))
            tell(f"hook {name} raised (shown once):")
            traceback.print_exc(file=sys.stderr)


def _are_same(some: tuple[Hook, ...], others: tuple[Hook, ...]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


HOOKS = HookChain()
