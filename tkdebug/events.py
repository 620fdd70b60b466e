"""What happens in a run, as records, and the hook chain that hands them to subscribers.

Responsible for the vocabulary that runtime, interpreter, recorder and user hooks share, and for
calling hooks in order. Not responsible for storing anything.

Invariants: enter hooks run in the order they were added, exit hooks in reverse; a hook that raises
is reported once on stderr and never breaks the launch; with no subscriber a launch does no event
work (`HOOKS.launch` is an empty tuple and the launcher looks at nothing else).
"""

from __future__ import annotations

import itertools
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, get_args

from tkdebug.errors import Frame
from tkdebug.forks import renew_after_forks
from tkdebug.storage import OPEN, REPEATED, SHORT, WIDE, stored
from tkdebug.terminal_text import tell

if TYPE_CHECKING:
    from tkdebug.fault_teller import FaultTeller

FaultKind = Literal[
    "oob-load",
    "oob-store",
    "oob-atomic",
    "between-elements",
    "race",
    "nan",
    "inf",
    "padding",
    "narrowing",
    "uninitialised-read",
    "unwritten-output",
    "coverage",
    "row-overrun",
    "division-by-zero",
    "shift-range",
    "offset-overflow",
    "negative-remainder",
    "undefined-value",
    "broken-promise",
    "plugin-check",
    "assert",
    "misaligned",
    # Of a native kernel that crashed, by the GPU's core dump.
    "illegal-address",
    "illegal-instruction",
    "trap",
    "stack-overflow",
    "gpu-exception",
    "cuda-error",
    "compile-error",
]
# Of these the launch itself fails, so there is nothing that could be lived with.
ENDING_KINDS: frozenset[FaultKind] = frozenset(
    {
        "misaligned",
        "illegal-address",
        "illegal-instruction",
        "trap",
        "stack-overflow",
        "gpu-exception",
        "cuda-error",
        "compile-error",
    }
)
IGNORABLE_KINDS: tuple[FaultKind, ...] = tuple(
    kind for kind in get_args(FaultKind) if kind not in ENDING_KINDS
)
# Whether a fault counts: not where a comment in the source ignores it, or the baseline has it.
FaultState = Literal["open", "ignored", "known"]
Mode = Literal["interpret", "native"]


@dataclass(frozen=True, slots=True)
class ArgumentInfo:
    """One argument of a launch as passed: shape and strides in elements, None for scalars."""

    name: str
    type: str
    value: Annotated[str, SHORT]
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None


class LaunchRecord:
    """One launch. Enter hooks see it without times; exit hooks see `duration_ns` set.

    Attributes:
        id: unique in the process, counted from 1.
        kernel: the kernel's name.
        grid: programs along x, y, z.
        options: num_warps, num_stages, num_ctas and what else the launch was given.
        kernel_hash: content hash that joins the launch to its `KernelCompiled`.
        start_ns: `time.time_ns()` when the launch began.
        duration_ns: wall time of an interpreted launch, host time of a native one; None at enter.
        stream: the CUDA stream handle; 0 for the default stream and under interpret.
        error: what the launch raised, None where it did not.
        user_metadata: makes what `launch_metadata` of the kernel tells; None where it has none.
        device_ns: for a native launch that a hook times, a function of `wait: bool = False` that
            gives its nanoseconds on the device, None while they last; set at exit. It holds on to
            no argument, and raises when the kernel failed.
    """

    kernel: str
    mode: Mode
    options: Mapping[str, object]
    kernel_hash: str
    # As most launches have them, so that making a record does not set them.
    duration_ns: int | None = None
    stream: int = 0
    error: str | None = None
    user_metadata: Callable[[], dict[str, object]] | None = None
    device_ns: Callable[..., int | None] | None = None
    _arguments: tuple[ArgumentInfo, ...] | None = None

    def __init__(
        self,
        id: int,
        kernel: str,
        grid: tuple[int, int, int],
        mode: Mode,
        options: Mapping[str, object],
        make_arguments: Callable[[], tuple[ArgumentInfo, ...]],
        kernel_hash: str,
        start_ns: int = 0,
    ) -> None:
        self.id = id
        self.kernel = kernel
        self.grid = grid
        self.mode = mode
        self.options = options
        self._make_arguments = make_arguments
        self.kernel_hash = kernel_hash
        self.start_ns = start_ns

    @property
    def arguments(self) -> tuple[ArgumentInfo, ...]:
        """The arguments' names, types, shapes; worked out when first asked for."""
        if self._arguments is None:
            self._arguments = self._make_arguments()
        return self._arguments


class KernelLaunch(LaunchRecord):
    """A launch of one kernel, whose type (`launch_type`) has all that its launches share.

    Attributes:
        values: what was passed for each parameter.
        describe: makes `arguments` of values.
    """

    describe: Callable[[tuple[Any, ...]], tuple[ArgumentInfo, ...]]

    def __init__(
        self,
        id: int,
        grid: tuple[int, int, int],
        stream: int,
        values: tuple[Any, ...],
        start_ns: int,
    ) -> None:
        # Nothing else, since every hooked launch comes here.
        self.id = id
        self.grid = grid
        self.stream = stream
        self.values = values
        self.start_ns = start_ns

    def _make_arguments(self) -> tuple[ArgumentInfo, ...]:
        return self.describe(self.values)


def launch_type(
    kernel: str,
    mode: Mode,
    options: Mapping[str, object],
    kernel_hash: str,
    describe: Callable[[tuple[Any, ...]], tuple[ArgumentInfo, ...]],
    metadata: Callable[[tuple[int, int, int], tuple[Any, ...]], dict[str, object]] | None = None,
) -> type[KernelLaunch]:
    """The type of the records of a kernel's launches.

    Args:
        kernel: its name.
        mode: how it runs.
        options: of all its launches.
        kernel_hash: its content hash.
        describe: what there is to tell of a launch's values.
        metadata: what the kernel's `launch_metadata` tells of a grid and values.
    """
    shared: dict[str, object] = {
        "kernel": kernel,
        "mode": mode,
        "options": options,
        "kernel_hash": kernel_hash,
        "describe": staticmethod(describe),
    }
    if metadata is not None:
        shared["user_metadata"] = property(
            lambda launch: partial(metadata, launch.grid, launch.values)
        )
    return type(KernelLaunch.__name__, (KernelLaunch,), shared)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewrite of one pass, as plain values.

    Attributes:
        rule: which of the pass's rules it was.
        old_op_ids: ops that are gone, or were changed in place (then also in `new_op_ids`).
        new_op_ids: ops that stand for them now; empty when they were erased.
        erased: (file, line) of places that no op stands for any more because of this rewrite.
    """

    rule: str
    old_op_ids: tuple[int, ...]
    new_op_ids: tuple[int, ...] = ()
    erased: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class OpFacts:
    """What an op is at one time, apart from its operands.

    Attributes:
        name: of the op, such as "tt.load".
        attributes: by name, as text.
        types: of its results, as text; layouts by the alias they have in all texts of the kernel.
        parent: id of the op whose region it is in; None for the outermost.
        region: which of the parent's regions.
        places: (file, line) of all places it stands for and of the calls that lead to them.
    """

    name: str
    attributes: Mapping[str, str]
    types: tuple[str, ...]
    parent: int | None
    region: int
    places: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class CompilerPass:
    """What one pass did to one kernel. The first one of a kernel is the front end.

    Attributes:
        before: name of the stage before it; "" for the front end.
        after: name of the stage after it; that before it where it changed nothing.
        time_ns: of the pass alone.
        rewrites: in order.
        op_ids: the ops there are after it, in program order; None as far as nothing changed.
        ops: what ops that came or changed are now, by id.
        error: why it failed, "" when it did not.
    """

    name: str
    before: str
    after: str
    time_ns: int
    rewrites: tuple[Rewrite, ...] = ()
    op_ids: tuple[int, ...] | None = None
    ops: Mapping[int, OpFacts] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class KernelCompiled:
    """A kernel was specialised and compiled: its source and its artifacts by stage name.

    `op_lines` maps a stage's text line (1-based) to the source frames of the op printed there,
    outermost first: what lets a viewer light both sides without the compiler. `passes` are in the
    order in which they ran. A kernel that failed to compile has an `error` and what there was of it
    until then. `op_ids` gives the id of the op printed on a stage's text line. `line_table` makes
    the data of a native kernel's `linemap.LineTable`; it runs nvdisasm, so it takes its time.
    """

    hash: str
    name: str
    file: str
    line: int
    source: str
    signature: str
    options: Mapping[str, object]
    artifacts: Mapping[str, str]
    op_lines: Mapping[str, Mapping[int, tuple[Frame, ...]]]
    compile_ns: int
    cache_hit: bool = False
    passes: tuple[CompilerPass, ...] = ()
    error: str | None = None
    op_ids: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    line_table: Callable[[], Mapping[str, object]] | None = None


@stored("tunings")
@dataclass(frozen=True, slots=True)
class AutotuneChoice:
    """A tuner picked `config` for `kernel` under `key`.

    Attributes:
        timings_ms: by configuration; empty under interpret.
    """

    kernel: str
    key: str
    config: str
    timings_ms: Mapping[str, float]

    @property
    def ranked(self) -> tuple[tuple[str, float], ...]:
        """The configurations and their ns, the fastest first; one that failed took for ever."""
        fastest_first = sorted(self.timings_ms.items(), key=lambda item: item[1])
        return tuple((config, time_ms * 1e6) for config, time_ms in fastest_first)


@dataclass(frozen=True, slots=True)
class LaunchProgress:
    """How far a long interpreted launch has come."""

    launch_id: int
    kernel: str
    programs_done: int
    programs: int
    elapsed_ns: int


@stored("faults")
@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: the first offender of its (kind, op, tensor) and how many there were.

    Attributes:
        severity: a "warning" does not make a run fail; docs/json.md says which kinds are.
        frames: call chain, outermost first; the last frame is the faulting line.
        launch_id: the launch's number in its process; 0 for compile errors.
        column: 1-based, 0 when unknown.
        op_id: the Tile IR op; None for compile errors.
        program_id: (x, y, z) of the first offender.
        lane: position in the tile of the first offender, () for scalars.
        tensor: argument name, None when the pointer belongs to no argument.
        index: element offset of the first bad access from the tensor's first element.
        legal: half-open range of legal offsets.
        count: bad accesses of this (kind, op, tensor) in this launch.
        state: "ignored" by a comment in the source, "known" by the baseline, else "open".
    """

    kind: Annotated[FaultKind, OPEN]
    kernel: str
    frames: Annotated[tuple[Frame, ...], REPEATED]
    message: str
    launch_id: int = 0
    column: int = 0
    severity: Literal["error", "warning"] = "error"
    op_id: int | None = None
    program_id: tuple[int, int, int] | None = None
    lane: tuple[int, ...] = ()
    tensor: str | None = None
    index: Annotated[int | None, WIDE] = None
    legal: tuple[int, int] | None = None
    count: int = 1
    hint: str | None = None
    state: Annotated[FaultState, OPEN] = "open"

    @property
    def is_open(self) -> bool:
        """Whether it counts: it is neither ignored nor in the baseline."""
        return self.state == "open"

    @property
    def fails(self) -> bool:
        """Whether a run that has it fails."""
        return self.is_open and self.severity == "error"

    @property
    def file(self) -> str | None:
        """File of the faulting line."""
        return self.frames[-1].file if self.frames else None

    @property
    def line(self) -> int | None:
        """Faulting line, 1-based."""
        return self.frames[-1].line if self.frames else None


class ActivityBuffers(Protocol):
    """Memory for what CUPTI records, with functions for it that take no GIL.

    Attributes:
        requested: address of a CUpti_BuffersCallbackRequestFunc.
        completed: address of a CUpti_BuffersCallbackCompleteFunc.
    """

    requested: int
    completed: int

    def filled(self) -> list[bytes]:
        """What was filled since, oldest first."""


class PackableKernel(Protocol):
    """A kernel whose launches can be packed into bytes without a record of each.

    Attributes:
        launch_record: what its launches share.
        parameter_kinds: what is passed for each parameter: a "tensor", an "int" of 64 signed bits,
            a "uint", a "float", a scalar to "look" at, something "fixed" with the kernel, or
            "other".
    """

    @property
    def launch_record(self) -> type[KernelLaunch]:
        """As above."""

    @property
    def parameter_kinds(self) -> tuple[str, ...]:
        """As above."""


class LaunchPacker(Protocol):
    """Who takes launches without a record of each.

    Attributes:
        notes: by kernel, what to call after a launch with its number, grid, stream, start in
            nanoseconds since 1970, and a value for each parameter.
    """

    @property
    def notes(self) -> Mapping[object, Callable[..., None]]:
        """As above."""

    def note_of(self, kernel: Any) -> Callable[..., None]:
        """The same of a kernel that is not there yet."""


LaunchHook = Callable[[object, LaunchRecord], None]


@dataclass(frozen=True, slots=True)
class Hook:
    """One subscriber: any of its callbacks may be None.

    `enter` and `exit` get (kernel object, LaunchRecord); the others get their record, and `record`
    those of all further types (`storage.stored`). A hook that is `timed` has the device time of
    native launches measured, which costs two events a launch. Where no hook `shows_faults`, they
    are printed on stderr. `device` is called once CUDA is in use in this process, with a function
    that makes buffers for CUPTI: before the first native launch, and before what torch does on the
    GPU where a script is run under tkdebug. `profiler` is called when torch's profiler is about to
    take CUPTI, and when it has given it back.
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
    shows_faults: bool = True


class LaunchHooks(NamedTuple):
    """What is called around a launch; as a whole, so that a launch ends with what it began with.

    Attributes:
        enters: in order.
        exits: in their order, which is the reverse.
    """

    enters: tuple[LaunchHook, ...]
    exits: tuple[LaunchHook, ...]


class HookChain:
    """The ordered subscribers of this process; changes copy, so that reading needs no lock.

    Attributes:
        launch: what is called around launches; None where nothing is.
        packer: who is all that is called around launches, and needs no record of them.
    """

    def __init__(self) -> None:
        self._hooks: tuple[Hook, ...] = ()
        self.launch: LaunchHooks | None = None
        self.timed = False
        self._untimed: tuple[Hook, ...] = ()
        self.packer: LaunchPacker | None = None
        self._packers: tuple[tuple[Hook, LaunchPacker], ...] = ()
        self._make_buffers: Callable[[], ActivityBuffers] | None = None
        self.recorders: tuple[Hook, ...] = ()
        self.recorder_ids: tuple[int, ...] = ()
        self._reported: set[int] = set()
        self._teller: FaultTeller | None = None
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """As a forked child has to."""
        self._lock = threading.Lock()
        # CUDA is the parent's.
        self._make_buffers = None

    def add(self, hook: Hook) -> None:
        """Append `hook`; the same object twice is a no-op."""
        with self._lock:
            if any(h is hook for h in self._hooks):
                return
            self._set((*self._hooks, hook))
        if self._make_buffers is not None and hook.device is not None:
            self._guarded(hook.device, self._make_buffers)

    def remove(self, hook: Hook) -> None:
        """Take `hook` out; one that is not there is a no-op."""
        with self._lock:
            self._set(tuple(h for h in self._hooks if h is not hook))

    def time_natively(self, hook: Hook, is_timed: bool) -> None:
        """Whether a hook that is `timed` has launches measured from now on: it may have a way."""
        with self._lock:
            self._untimed = tuple(h for h in self._untimed if h is not hook)
            if not is_timed:
                self._untimed = (*self._untimed, hook)
            self._set(self._hooks)

    def pack_natively(self, hook: Hook, packer: LaunchPacker | None) -> None:
        """Have native launches told to `packer` from now on, where `hook` alone asks for them."""
        with self._lock:
            self._packers = tuple(pair for pair in self._packers if pair[0] is not hook)
            if packer is not None:
                self._packers = (*self._packers, (hook, packer))
            self._set(self._hooks)

    def device_used(self, make_buffers: Callable[[], ActivityBuffers]) -> None:
        """Tell that CUDA is in use in this process; only the first time does anything."""
        with self._lock:
            if self._make_buffers is not None:
                return
            self._make_buffers = make_buffers
        for hook in self._hooks:
            if hook.device is not None:
                self._guarded(hook.device, make_buffers)

    def profiler(self, is_taken: bool) -> None:
        """Tell that torch's profiler takes CUPTI now, or has given it back."""
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
        callers = [hook for hook in hooks if hook.enter is not None or hook.exit is not None]
        packers = [
            packer for hook, packer in self._packers if len(callers) == 1 and hook is callers[0]
        ]
        self.packer = packers[0] if packers and not self.timed else None
        self.recorders = tuple(hook for hook in hooks if hook.record is not None)
        self.recorder_ids = tuple(map(id, self.recorders))

    def enter(self, kernel: object, record: LaunchRecord) -> LaunchHooks | None:
        """Call the enter hooks; the result is what `exit` must be given back."""
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
        """Tell of a compiled kernel."""
        for hook in self._hooks:
            if hook.compiled is not None:
                self._guarded(hook.compiled, event)

    def autotuned(self, event: AutotuneChoice) -> None:
        """Tell of a tuner's choice."""
        for hook in self._hooks:
            if hook.autotuned is not None:
                self._guarded(hook.autotuned, event)

    def fault(self, event: Fault) -> None:
        """Tell of a fault: the hooks, or stderr where none of them listens."""
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
            from tkdebug.fault_teller import FaultTeller

            self._teller = FaultTeller()
        self._teller.on_fault(fault)

    def progress(self, event: LaunchProgress) -> None:
        """Tell how far a long launch is."""
        for hook in self._hooks:
            if hook.progress is not None:
                self._guarded(hook.progress, event)

    def record(self, event: object) -> None:
        """Tell of a record of any other type, such as a plugin's: a dataclass that is `stored`."""
        for hook in self.recorders:
            if hook.record is not None:
                self._guarded(hook.record, event)

    def wants_progress(self) -> bool:
        """Whether anybody asked for progress."""
        return any(hook.progress is not None for hook in self._hooks)

    def wants_compiled(self) -> bool:
        """Whether anybody asked for compiled kernels (printing IR is not free)."""
        return any(hook.compiled is not None for hook in self._hooks)

    def _guarded(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception:
            self.report(callback)

    def report(self, callback: Callable[..., None]) -> None:
        """Say that `callback` raised, the first time it does."""
        if id(callback) not in self._reported:
            self._reported.add(id(callback))
            name = getattr(callback, "__qualname__", repr(callback))
            tell(f"hook {name} raised (shown once):")
            traceback.print_exc(file=sys.stderr)


HOOKS = HookChain()
# A launch id unique in this process, counted from 1.
next_launch_id: Callable[[], int] = itertools.count(1).__next__
