"""Launches of a candidate while it is called: what they do, and other ways to run them.

Responsible for what is seen of kernels: how many are launched, their faults, on which stream and
thread; and for orders of programs, padding, configurations of tuners, launches that are skipped.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tkdebug.causes.launches import RememberedLaunches
from tkdebug.checks import CHECK_NAMES
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.launch import run_programs
from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.plan import Prepared
from tkdebug.knobs import KNOBS
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.arguments.specialize import runtime_values
from tkdebug.runtime.jit.function import KernelInterface
from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel
from tkdebug.runtime.tune.autotune import Autotuner
from tkdebug.variations.divergence import PoisonedPadding

_MOST_PARTS = 64
# Faults by which a kernel is wrong, whatever its result is. Others are about values: the comparison
# with the reference says whether these are right.
WRONG_FAULTS = frozenset(
    (
        *("oob-load", "oob-store", "oob-atomic", "race", "uninitialised-read", "offset-overflow"),
        *("assert", "assumption", "compile-error", "illegal-address", "misaligned", "trap"),
    )
)


@dataclass
class Seen:
    """Launches and faults of one call.

    Attributes:
        launches: how many kernels were launched.
        kernels: their names.
        faults: that were reported.
        other_threads: kernels that were launched from another thread than the call's.
        threads: threads that the candidate started, by their places.
        unjoined: kernels that were launched on a stream for which the caller's did not wait.
        computes: launches whose outputs are no copies of their inputs.
        results: addresses of allocations that kernels may have written.
    """

    launches: int = 0
    kernels: dict[str, None] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    other_threads: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    unjoined: list[str] = field(default_factory=list)
    computes: int = 0

    @property
    def wrong_fault(self) -> Fault | None:
        """The first fault that makes the kernel wrong."""
        return next(
            (f for f in self.faults if f.kind in WRONG_FAULTS and f.fails and f.is_open), None
        )


class Watcher:
    """Sees the launches of a candidate.

    Args:
        file: of the candidate.
        remembered: the launches of this process, for the search for causes.
    """

    def __init__(self, file: str, remembered: RememberedLaunches | None) -> None:
        self._file = file
        self.remembered = remembered
        self._seen = Seen()
        self._thread = 0
        self._stream: Any = None

    # As a follower of launches.

    def begins(self, values: tuple[object, ...]) -> object:
        """Hear that a launch begins."""
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
        """Note a launch."""
        assert isinstance(kernel, InterpretedKernel)
        if self.remembered is not None:
            self.remembered.ended(kernel, grid, values, launch_id, before)
        self._note(kernel.name)
        if not _is_copy(kernel, values):
            self._seen.computes += 1

    def _note(self, name: str) -> None:
        seen = self._seen
        seen.launches += 1
        seen.kernels[name] = None
        if threading.get_ident() != self._thread:
            seen.other_threads.append(name)
        elif self._stream is not None and torch.cuda.current_stream() != self._stream:
            seen.unjoined.append(name)

    @contextlib.contextmanager
    def watching(self, way: str, kernels: Sequence[Autotuner], seed: int) -> Iterator[Seen]:
        """Yield what is seen of launches in a `with` block.

        Args:
            way: how they run: "checked", a name of `WAYS`, "config N" or "tuned".
            kernels: the tuners of the candidate.
            seed: of shuffled orders.
        """
        self._seen = seen = Seen()
        self._thread = threading.get_ident()
        hook = Hook(fault=seen.faults.append)
        with contextlib.ExitStack() as stack:
            stack.enter_context(KNOBS.scope(checks=CHECK_NAMES, ignored_kinds=()))
            stack.enter_context(HOOKS.alone(hook))
            before, HOOKS.follower = HOOKS.follower, self
            stack.callback(setattr, HOOKS, "follower", before)
            made = WAYS.get(way)
            debugger = HOOKS.debugger
            stack.callback(setattr, HOOKS, "debugger", debugger)
            if made is not None:
                HOOKS.debugger = made(seed)
            if kernels and (way == "tuned" or way.startswith("config")):
                chosen = None if way == "tuned" else int(way.split()[1])
                stack.enter_context(_configured(kernels, chosen))
            stack.enter_context(self._streams())
            stack.enter_context(self._threads())
            yield seen

    @contextlib.contextmanager
    def _streams(self) -> Iterator[None]:
        """Note where the caller's stream waits for another, or the host does."""
        self._stream = torch.cuda.current_stream()
        seen = self._seen
        undo = contextlib.ExitStack()

        def joining(owner: Any, name: str) -> None:
            original = getattr(owner, name)

            def joined(*args: Any, **kwargs: Any) -> Any:
                seen.unjoined.clear()
                return original(*args, **kwargs)

            setattr(owner, name, joined)
            undo.callback(setattr, owner, name, original)

        for owner, name in (
            (torch.cuda.Stream, "wait_stream"),
            (torch.cuda.Stream, "wait_event"),
            (torch.cuda.Stream, "synchronize"),
            (torch.cuda.Event, "synchronize"),
            (torch.cuda.Event, "wait"),
            (torch.cuda, "synchronize"),
        ):
            joining(owner, name)
        try:
            yield
        finally:
            undo.close()

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        """Note threads that the candidate's file starts."""
        original, seen, file = threading.Thread.start, self._seen, self._file

        def start(thread: threading.Thread) -> None:
            frame = sys._getframe(1)  # noqa: SLF001
            while frame is not None:
                name = frame.f_code.co_filename
                if name == file:
                    seen.threads.append(f"line {frame.f_lineno}")
                if name == file or str(frame.f_globals.get("__name__", "")).startswith("tkdebug"):
                    break
                frame = frame.f_back  # type: ignore[assignment]
            original(thread)

        threading.Thread.start = start  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            threading.Thread.start = original  # type: ignore[method-assign]


def _is_copy(kernel: InterpretedKernel, values: tuple[Any, ...]) -> bool:
    """Whether each tensor that a launch may have written equals another of its tensors."""
    stored = kernel.stored_to(values)
    tensors = [host_view(v) for v in values if isinstance(v, Tensor)]
    addresses = {t.untyped_storage().data_ptr() for t in stored}
    sources = [t for t in tensors if t.untyped_storage().data_ptr() not in addresses]
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
        """Run a launch; false where its programs wait for each other."""
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
        """Fill what the launch may write."""
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


WAYS: Mapping[str, Callable[[int], Any]] = {
    "one by one": lambda seed: _Ordered(_parts),
    "reversed": lambda seed: _Ordered(lambda total: _parts(total)[::-1]),
    "shuffled": lambda seed: _Ordered(_shuffled(seed)),
    "padding poisoned": lambda seed: _Ordered(
        lambda total: [range(total)], lambda: [PoisonedPadding()]
    ),
    "skipped": _Skipped,
}


# Tuners.


def tuners_in(namespace: Mapping[str, Any]) -> list[Autotuner]:
    """Return the autotuned kernels among a module's names, under heuristics too."""
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
    """Have tuners take a configuration, or run each before, as tuning on a GPU does."""
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
