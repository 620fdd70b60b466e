"""Launches of a candidate while it is called: what they do, and other ways to run them.

Responsible for what is seen of kernels: how many are launched, their faults, on which stream and
thread; and for orders of programs, padding, configurations of tuners, launches that are skipped.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import inspect
import math
import re
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from tkdebug.causes.launches import RememberedLaunches
from tkdebug.checks import CHECK_NAMES, THREAD_ORDER
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.launch import run_programs
from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.plan import Prepared
from tkdebug.knobs import KNOBS
from tkdebug.records.events import Fault, LaunchRecord
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.arguments.specialize import runtime_values
from tkdebug.runtime.jit.function import KernelInterface
from tkdebug.runtime.launch.compiled_kernel import CompiledKernel
from tkdebug.runtime.launch.graph_capture import capture_in_force
from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel
from tkdebug.runtime.tune.autotune import Autotuner
from tkdebug.variations.ways import PoisonedPadding
from tkdebug.verification.source import Branch, Condition, Ran, Spot

# In Tile IR: a product whose first operand is fp32.
_TF32_DOT = re.compile(r'tt\.dot [^\n]*"tf32"[^\n:]* : \(?tensor<[^>]*xf32>')
_MOST_PARTS = 64
_MOST_BLOCK = 1 << 16
# A seed that nobody chooses: another one after a call is the call's.
_NO_SEED = 0x5EED_0FF_7C0DE
# Faults by which a kernel is wrong, whatever its result is. Others are about values: the comparison
# with the reference says whether these are right.
WRONG_FAULTS = frozenset(
    (
        *("oob-load", "oob-store", "oob-atomic", "race", "uninitialised-read", "offset-overflow"),
        *("assert", "compile-error", "illegal-address", "misaligned", "trap"),
    )
)
# Faults after which it is not known what a GPU gives.
_DOUBTFUL_FAULTS = (THREAD_ORDER, "assumption")


@dataclass
class Seen:
    """Launches and faults of one call.

    Attributes:
        launches: how many kernels were launched.
        kernels: their names.
        faults: the faults that were reported.
        other_threads: kernels that were launched from another thread than the call's.
        threads: threads that the candidate started, by their places.
        processes: processes that it started, likewise.
        callers: places at which it looks at the frames of its callers.
        unjoined: kernels that were launched on a stream for which the caller's did not wait.
        computes: how many launches wrote something else than copies of other arguments.
        programs: the number of programs of the largest grid.
        ran: the places of the candidate's source that ran.
        is_seeded: whether it seeded torch's random numbers.
        leaves_stream: whether the current stream is another after the call.
        has_tf32: whether a `tl.dot` of a launch rounds fp32 to tf32.
    """

    launches: int = 0
    kernels: dict[str, None] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    other_threads: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    callers: list[str] = field(default_factory=list)
    unjoined: list[str] = field(default_factory=list)
    computes: int = 0
    programs: int = 0
    ran: Ran = field(default_factory=Ran)
    is_seeded: bool = False
    leaves_stream: bool = False
    has_tf32: bool = False

    @property
    def wrong_fault(self) -> Fault | None:
        """The first fault that makes the kernel wrong, or None."""
        return next(
            (f for f in self.faults if f.kind in WRONG_FAULTS and f.fails and f.is_open), None
        )

    @property
    def doubtful_fault(self) -> Fault | None:
        """The first fault that leaves it open whether the kernel is right, or None."""
        return next((f for f in self.faults if f.kind in _DOUBTFUL_FAULTS and f.is_open), None)


# Events of Python by which processes start.
_PROCESS_EVENTS = frozenset(
    "subprocess.Popen os.fork os.forkpty os.posix_spawn os.system os.exec os.spawn".split()
)
_FRAME_EVENTS = frozenset(
    "sys._getframe sys._current_frames gc.get_objects gc.get_referrers gc.get_referents".split()
)
_STDLIB = sysconfig.get_path("stdlib")
_hearing: list[Watcher] = []


def _calling_frame(depth: int, between: tuple[str, ...]) -> FrameType | None:
    """Return the first frame, from a depth outwards, whose file begins with none of `between`.

    None if a frame that is skipped is an installed package's, or if all frames are skipped.
    """
    frame: FrameType | None = sys._getframe(depth)  # noqa: SLF001
    while frame is not None and frame.f_code.co_filename.startswith(between):
        if "-packages" in frame.f_code.co_filename:
            return None
        frame = frame.f_back
    return frame


@functools.cache
def _hear_events() -> None:
    """Add a hook that passes audit events to the watcher; Python cannot remove it again."""

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if _hearing and (event in _PROCESS_EVENTS or event in _FRAME_EVENTS):
            watcher = _hearing.pop()  # what it does itself is heard, too
            watcher.hear(event)
            _hearing.append(watcher)

    sys.addaudithook(hear)


class Watcher:
    """Watches the launches and the host code of a candidate.

    Args:
        file: the candidate's file.
        remembered: the launches of this process, for the search for causes.
        is_native: whether kernels run on a GPU, so that launches are only counted.
        branches: the branches of the candidate's host code, which are to run.
        conditions: the conditions of its kernels, by kernel, whose outcomes are to be seen.

    Attributes:
        blocks: compile-time integers of the launches that were seen.
    """

    def __init__(
        self,
        file: str,
        remembered: RememberedLaunches | None,
        is_native: bool = False,
        branches: Sequence[Branch] = (),
        conditions: Mapping[str, Sequence[Condition]] | None = None,
    ) -> None:
        self._file = file
        self._is_native = is_native
        self.remembered = remembered
        self.blocks: list[int] = []
        self._branches = branches
        self._conditions = conditions or {}
        self._ran = Ran()
        # Functions of the host code with the spots of their instructions, where these are needed.
        self._spots: dict[CodeType, list[Spot]] = {}
        # Kernels that were launched, with whether they round fp32 to tf32.
        self._tf32: dict[CompiledKernel, bool] = {}
        self._seen = Seen()
        self._given: frozenset[int] = frozenset()
        self._thread = 0
        self._stream: Any = None
        self._trace: Any = None
        _hear_events()

    def hear(self, event: str) -> None:
        """Note a process start, or a look at callers' frames, if the candidate's file did it."""
        is_frame = event in _FRAME_EVENTS
        between = (inspect.__file__, traceback.__file__) if is_frame else (_STDLIB,)
        frame = _calling_frame(3, between)
        if frame is not None and frame.f_code.co_filename == self._file:
            noted = self._seen.callers if is_frame else self._seen.processes
            noted.append(f"line {frame.f_lineno}")

    # Branches of the host code.

    def reached(self, ran: Ran) -> None:
        """Add the places that ran in a call whose result was right."""
        self._ran.add(ran)

    @property
    def unreached(self) -> list[Branch]:
        """Branches that ran in no call with a right result, where their condition was asked."""
        ran = self._ran
        of_kernels = [b for some in self._conditions.values() for one in some for b in one.outcomes]
        branches = (*self._branches, *of_kernels)
        return [one for one in branches if one.is_asked(ran) and not one.has_run(ran)]

    def _spots_of(self, code: CodeType) -> list[Spot]:
        """Return the spot of each instruction; none if no branch is on its condition's line."""
        if code not in self._spots:
            places = [(line or 0, column or 0) for line, _, column, _ in code.co_positions()]
            lines = {line for line, _ in places}
            spans = [one.span for one in self._branches if one.span is not None]
            self._spots[code] = places if any(span[0][0] in lines for span in spans) else []
        return self._spots[code]

    @contextlib.contextmanager
    def _tracing(self) -> Iterator[None]:
        """Note the lines that the candidate's host code runs, if branches of it never ran."""
        has_all = all(one.has_run(self._ran) for one in self._branches)
        if has_all or sys.gettrace() is not None:  # another tool's
            yield
            return
        ran, file = self._seen.ran, self._file

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            if frame.f_code.co_filename != file:
                return None
            if event == "opcode":
                ran.spots.add(self._spots[frame.f_code][frame.f_lasti // 2])
                return trace
            if event == "call" and self._spots_of(frame.f_code):
                frame.f_trace_opcodes = True
            ran.lines.add(frame.f_lineno)
            return trace

        self._trace = trace
        sys.settrace(trace)
        try:
            yield
        finally:
            self._trace = None
            sys.settrace(None)

    # As a follower of launches.

    def begins(self, values: tuple[object, ...]) -> object:
        """Suspend tracing for a launch; return what `remembered` keeps of it, or None."""
        if self._trace is not None:
            sys.settrace(None)  # it slows all of Python, not only what it looks at
        before = None if self.remembered is None else self.remembered.begins(values)
        return before

    def ended(
        self,
        kernel: object,
        grid: tuple[int, int, int],
        values: tuple[object, ...],
        launch_id: int,
        before: Any,
    ) -> None:
        """Note an interpreted launch that has ended, and resume tracing."""
        assert isinstance(kernel, InterpretedKernel)
        self._seen.programs = max(self._seen.programs, math.prod(grid))
        if self.remembered is not None:
            self.remembered.ended(kernel, grid, values, launch_id, before)
        for condition in self._conditions.get(kernel.src.fn.__name__, ()):
            arguments = dict(zip(kernel.src.fn.arg_names, values, strict=True))
            outcome = condition.outcome(arguments)
            self._seen.ran.outcomes |= set() if outcome is None else {outcome}
        self._note(kernel)
        if not _is_copy(kernel, values, self._given):
            self._seen.computes += 1
        if self._trace is not None:
            sys.settrace(self._trace)

    def _ended_natively(self, kernel: object, record: LaunchRecord) -> None:
        """Note a native launch as one that computes: whether it only copies is not known."""
        assert isinstance(kernel, CompiledKernel)
        self._note(kernel)
        self._seen.computes += 1

    def _note(self, kernel: CompiledKernel) -> None:
        seen, name = self._seen, kernel.name
        seen.launches += 1
        seen.kernels[name] = None
        if kernel not in self._tf32:
            self._tf32[kernel] = bool(_TF32_DOT.search(kernel.tile_ir))
        seen.has_tf32 |= self._tf32[kernel]
        for value in kernel.src.constants.values():
            if type(value) is int and 4 <= value <= _MOST_BLOCK and value not in self.blocks:
                self.blocks.append(value)
        if threading.get_ident() != self._thread:
            seen.other_threads.append(name)
        elif capture_in_force() is not None:
            pass  # it runs where the graph is replayed
        elif self._stream is not None and torch.cuda.current_stream() != self._stream:
            seen.unjoined.append(name)

    @contextlib.contextmanager
    def watching(
        self, way: str, kernels: Sequence[Autotuner], seed: int, given: Sequence[Tensor] = ()
    ) -> Iterator[Seen]:
        """Yield the record of launches and faults, which is filled during a `with` block.

        Args:
            way: how they run: "checked", a name of `WAYS`, "config N" or "tuned".
            kernels: the tuners of the candidate.
            seed: the seed of shuffled orders.
            given: the call's own tensors, which a kernel may copy.
        """
        self._seen = seen = Seen()
        self._given = frozenset(host_view(t).untyped_storage().data_ptr() for t in given)
        self._thread = threading.get_ident()
        ended = self._ended_natively if self._is_native else None
        with contextlib.ExitStack() as stack:
            stack.enter_context(KNOBS.scope(checks=CHECK_NAMES, ignored_kinds=()))
            stack.enter_context(HOOKS.alone(Hook(fault=seen.faults.append, exit=ended)))
            if not self._is_native:
                stack.enter_context(self._following(WAYS.get(way), seed))
            if kernels and (way == "tuned" or way.startswith("config")):
                chosen = None if way == "tuned" else int(way.split()[1])
                stack.enter_context(_configured(kernels, chosen))
            stack.enter_context(self._streams())
            stack.enter_context(self._threads())
            stack.callback(torch.set_rng_state, torch.get_rng_state())
            torch.default_generator.manual_seed(_NO_SEED)
            _hearing.append(self)
            stack.callback(_hearing.clear)
            with self._tracing():
                yield seen
            if self._is_native:
                unjoined = list(seen.unjoined)
                torch.cuda.synchronize()  # reports the faults of checked launches
                seen.unjoined[:] = unjoined
            seen.is_seeded = torch.initial_seed() != _NO_SEED

    @contextlib.contextmanager
    def _following(self, way: Callable[[int], Any] | None, seed: int) -> Iterator[None]:
        """Follow interpreted launches, and run them in another way if there is one."""
        before, debugger = HOOKS.follower, HOOKS.debugger
        HOOKS.follower = self
        if way is not None:
            HOOKS.debugger = way(seed)
        try:
            yield
        finally:
            HOOKS.follower, HOOKS.debugger = before, debugger

    @contextlib.contextmanager
    def _streams(self) -> Iterator[None]:
        """Remove launches from `unjoined` once the caller's stream, or the host, waits for them.

        At the end, note whether the current stream is another, and restore the caller's.
        """
        self._stream = caller = torch.cuda.current_stream()
        seen = self._seen
        recorded: dict[int, int] = {}
        undo = contextlib.ExitStack()

        def wrapping(owner: Any, name: str, joined: Callable[..., int]) -> None:
            original = getattr(owner, name)

            def wrapped(*args: Any, **kwargs: Any) -> Any:
                del seen.unjoined[: joined(*args)]
                made = original(*args, **kwargs)
                if name == "record_event":
                    recorded[id(made)] = len(seen.unjoined)
                return made

            setattr(owner, name, wrapped)
            undo.callback(setattr, owner, name, original)

        def every(*args: Any) -> int:
            return len(seen.unjoined)

        def by_caller(waiting: Any, *args: Any) -> int:
            return len(seen.unjoined) if waiting == caller else 0

        def note(event: Any, *args: Any) -> int:
            recorded[id(event)] = len(seen.unjoined)
            return 0

        def until(event: Any) -> int:
            """Return how many `unjoined` launches an event covers; 0 for an unknown event."""
            return recorded.get(id(event), 0)

        def by_event(event: Any, stream: Any = None) -> int:
            waiting = torch.cuda.current_stream() if stream is None else stream
            return until(event) if waiting == caller else 0

        wrapping(torch.cuda.Stream, "wait_stream", by_caller)
        wrapping(torch.cuda.Stream, "wait_event", lambda s, e: until(e) if s == caller else 0)
        wrapping(torch.cuda.Stream, "record_event", lambda *args: 0)
        wrapping(torch.cuda.Stream, "synchronize", every)
        wrapping(torch.cuda.Event, "record", note)
        wrapping(torch.cuda.Event, "synchronize", lambda event: until(event))
        wrapping(torch.cuda.Event, "wait", by_event)
        wrapping(torch.cuda, "synchronize", every)
        try:
            yield
        finally:
            undo.close()
            seen.leaves_stream = torch.cuda.current_stream() != caller
            torch.cuda.set_stream(caller)

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        """Note threads that the candidate's file starts."""
        original, seen, file = threading.Thread.start, self._seen, self._file

        def start(thread: threading.Thread) -> None:
            frame = _calling_frame(2, (_STDLIB,))  # a library's own threads are not its work
            if frame is not None and frame.f_code.co_filename == file:
                seen.threads.append(f"line {frame.f_lineno}")
            original(thread)

        def start_bare(*args: Any, **kwargs: Any) -> int:
            caller = sys._getframe(1)  # noqa: SLF001
            if caller.f_code.co_filename == file:
                seen.threads.append(f"line {caller.f_lineno}")
            return bare(*args, **kwargs)

        bare = _thread.start_new_thread
        threading.Thread.start = start  # type: ignore[assignment, method-assign]
        # `threading` has its own name for it.
        _thread.start_new_thread = start_bare
        try:
            yield
        finally:
            threading.Thread.start = original  # type: ignore[method-assign]
            _thread.start_new_thread = bare


def _is_copy(kernel: InterpretedKernel, values: tuple[Any, ...], given: frozenset[int]) -> bool:
    """Whether each tensor that a launch may write equals an argument that is no input of the call.

    That argument is one that the launch itself does not write.
    """
    stored = kernel.stored_to(values)
    tensors = [host_view(v) for v in values if isinstance(v, Tensor)]
    others = {t.untyped_storage().data_ptr() for t in stored} | given
    sources = [t for t in tensors if t.untyped_storage().data_ptr() not in others]
    return bool(stored) and all(
        any(t.numel() == s.numel() and _equal(t, s) for s in sources) for t in stored
    )


def _equal(a: Tensor, b: Tensor) -> bool:
    with torch._C.DisableTorchFunction():  # noqa: SLF001
        return bool(torch.equal(a.reshape(-1).to(b.dtype), b.reshape(-1)))


# Ways to run launches.


class _Ordered:
    """Runs programs in another order, or with other observers; a `LaunchDebugger`."""

    def __init__(
        self,
        ranges: Callable[[int], Sequence[range]],
        observers: Callable[[], Sequence[Observer]] = tuple,
    ) -> None:
        self._ranges = ranges
        self._observers = observers

    def launch(
        self, kernel: object, grid: tuple[int, int, int], values: tuple[Any, ...], record: Any
    ) -> bool:
        """Run a launch; return False, without running it, if its programs wait for each other."""
        assert isinstance(kernel, InterpretedKernel)
        if Prepared.of(kernel.module).spin_loops:
            return False
        log = FaultLog(kernel.name, 0 if record is None else record.id, grid)
        given = runtime_values(kernel.src.specs, values)
        total = grid[0] * grid[1] * grid[2]
        observers = self._observers()
        run_programs(kernel.module, given, grid, self._ranges(total), log, (), observers)
        log.publish()
        return True


class _Skipped:
    """Writes random numbers in place of running a launch; a `LaunchDebugger`."""

    def __init__(self, seed: int) -> None:
        self._rng = torch.Generator().manual_seed(seed)

    def launch(
        self, kernel: object, grid: tuple[int, int, int], values: tuple[Any, ...], record: Any
    ) -> bool:
        """Fill the tensors that the launch may write; return True."""
        assert isinstance(kernel, InterpretedKernel)
        for tensor in kernel.stored_to(values):
            with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
                if tensor.is_floating_point():
                    drawn = torch.randn(tuple(tensor.shape), generator=self._rng)
                    tensor.copy_(drawn.to(tensor.dtype))
                else:
                    most = 2 if tensor.dtype is torch.bool else 100
                    drawn = torch.randint(most, tuple(tensor.shape), generator=self._rng)
                    tensor.copy_(drawn.to(tensor.dtype))
        return True


def _parts(total: int) -> list[range]:
    step = max(1, -(-total // _MOST_PARTS))
    return [range(first, min(first + step, total)) for first in range(0, total, step)]


def _shuffled(seed: int) -> Callable[[int], Sequence[range]]:
    def ranges(total: int) -> Sequence[range]:
        parts = _parts(total)
        order = torch.randperm(len(parts), generator=torch.Generator().manual_seed(seed))
        return [parts[int(place)] for place in order]

    return ranges


PADDING = "padding poisoned"
WAYS: Mapping[str, Callable[[int], Any]] = {
    "one by one": lambda seed: _Ordered(_parts),
    "reversed": lambda seed: _Ordered(lambda total: _parts(total)[::-1]),
    "shuffled": lambda seed: _Ordered(_shuffled(seed)),
    PADDING: lambda seed: _Ordered(lambda total: [range(total)], lambda: [PoisonedPadding()]),
    "skipped": _Skipped,
}


# Tuners.


def tuners_in(namespace: Mapping[str, Any]) -> list[Autotuner]:
    """Return a module's autotuned kernels with several configurations, under heuristics too."""
    found: dict[int, Autotuner] = {}
    for value in namespace.values():
        at, depth = value, 0
        while isinstance(at, KernelInterface) and depth < 8:
            if isinstance(at, Autotuner):
                found[id(at)] = at
            at, depth = getattr(at, "fn", None), depth + 1
    return [one for one in found.values() if len(one.configs) > 1]


@contextlib.contextmanager
def _configured(tuners: Sequence[Autotuner], chosen: int | None) -> Iterator[None]:
    """Have tuners take one configuration, or for None run all first, as tuning on a GPU does."""
    undo = contextlib.ExitStack()
    for tuner in tuners:
        original = tuner.prune_configs
        undo.callback(setattr, tuner, "cache", tuner.cache)
        tuner.cache = {}
        tuner.prune_configs = _pruning(tuner, original, chosen)  # type: ignore[method-assign]
        undo.callback(delattr, tuner, "prune_configs")
    with undo:
        yield


def _pruning(
    tuner: Autotuner, original: Callable[..., Any], chosen: int | None
) -> Callable[..., list[Any]]:
    def prune(kwargs: dict[str, Any]) -> list[Any]:
        configs = list(original(kwargs))
        if chosen is not None:
            return [configs[chosen % len(configs)]]
        positional = dict(tuner.nargs or {})
        for config in configs:
            current = {**kwargs, **config.all_kwargs()}
            named = {**positional, **current}
            if config.pre_hook is not None:
                config.pre_hook(named)
            tuner.pre_hook(named)
            tuner.fn.run(*positional.values(), **current)
            tuner.post_hook(named, exception=None)
        named = {**positional, **kwargs, **configs[0].all_kwargs()}
        tuner.pre_hook(named, reset_only=True)
        return [configs[0]]

    return prune
