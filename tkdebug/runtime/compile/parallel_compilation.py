"""Compiles of a jit function: each kernel once, whatever threads want it; several in parallel.

Responsible for who compiles and who waits, and for calling upstream's hooks around a compile.
Threads that want the same kernel wait for one compile; others go on beside it. A forked child waits
for none of its parent's.

Nearly all of a native compile is LLVM's and ptxas's, in processes that work in parallel; the rest
is Python, of which threads do one thing at a time. So arguments are bound and kernels lowered in
the calling thread, in order, while other threads wait for code. Effects of a call on its arguments
are seen by that call alone, the passes' times are their own, and this needs nothing in the compiler
to be safe for threads.

Invariant: only when code is generated changes. Hooks are called and failures raised when a kernel
is wanted, as if it were compiled then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING

from tkdebug.knobs import KNOBS
from tkdebug.process.forks import renew_after_forks
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS

if TYPE_CHECKING:
    from tkdebug.runtime.compile.native_compilation import NativeCompilation
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.jit.function import JITFunction
    from tkdebug.runtime.launch.compiled_kernel import CompiledKernel

Key = tuple[Hashable, ...]
_SIGNAL_SEEN_WITHIN_S = 0.5


class ParallelCompilation:
    """Compiles of one jit function that are begun, until their kernels are wanted."""

    def __init__(self, fn: JITFunction) -> None:
        self._fn = fn
        self._begun: dict[Key, NativeCompilation] = {}
        self._begin: Callable[[NativeCompilation], None] | None = None

    def begins(self, fn: JITFunction, key: Key, src: Specialization, device: int) -> bool:
        """Begin the compile of a kernel that is not needed yet; return False if it is needed now.

        Args:
            fn: the jit function that is launched.
            key: the launch key.
            src: the specialisation to compile.
            device: index of the CUDA device.
        """
        from tkdebug.runtime.compile.native_compilation import NativeCompilation

        if self._begin is None or fn is not self._fn or key in fn.kernels:
            return False
        if key not in self._begun:
            begun = self._begun[key] = NativeCompilation(src, device)
            self._begin(begun)
        return True

    def take(self, fn: JITFunction, key: Key) -> NativeCompilation | None:
        """Take the compile that was begun for a kernel that is wanted now, if any."""
        return self._begun.pop(key, None) if fn is self._fn else None

    def collect(self, calls: Iterable[Callable[[], object]]) -> None:
        """Make the calls, and return when code is generated for all that they want."""
        from concurrent.futures import ThreadPoolExecutor, wait

        from tkdebug.compiler.targets.registered_backends import backend_named

        stop = threading.Event()
        backend = backend_named(platform_in_force().backend)
        size = backend.parallel_compiles
        threads = ThreadPoolExecutor(size, thread_name_prefix="tkdebug-parallel-compilation")
        futures = []
        code_keys = set()

        def begin(begun: NativeCompilation) -> None:
            # The same code a second time is found on disk when it is wanted.
            if begun.code_key is not None and begun.code_key not in code_keys:
                code_keys.add(begun.code_key)
                futures.append(threads.submit(copy_context().run, begun.generate))

        with backend.stopped_by(stop):
            try:
                self._make(calls, begin)
                # A signal that comes as the thread begins to wait is seen when it wakes.
                while wait(futures, timeout=_SIGNAL_SEEN_WITHIN_S).not_done:
                    pass
            except BaseException:  # also Ctrl-C: nobody wants the rest
                stop.set()
                raise
            finally:
                threads.shutdown(cancel_futures=stop.is_set())

    def _make(
        self,
        calls: Iterable[Callable[[], object]],
        begin: Callable[[NativeCompilation], None],
    ) -> None:
        """Make the calls until one fails, which will fail again where its error is reported."""
        with suppress(Exception):
            for call in calls:
                self._begin = begin
                try:
                    call()
                finally:
                    self._begin = None


PARALLEL_COMPILATION: ContextVar[ParallelCompilation | None] = ContextVar(
    "tkdebug_parallel_compilation", default=None
)


@contextmanager
def compile_in_parallel(fn: JITFunction, calls: Iterable[Callable[[], object]]) -> Iterator[None]:
    """Compile the kernels that `calls` want before the body of a `with` block runs.

    If a `jit_cache_hook` may take compiles over, or edited stages are reported as they are read,
    nothing is compiled ahead.

    Args:
        fn: the jit function.
        calls: native warm-ups of it, or launches without programs, made in order; their results are
            ignored. The time to get at the next call is no part of the compile.
    """
    if COMPILE_HOOKS.before is not None or KNOBS.override_dir is not None:
        yield
        return
    ahead = ParallelCompilation(fn)
    token = PARALLEL_COMPILATION.set(ahead)
    try:
        ahead.collect(calls)
        yield
    finally:
        PARALLEL_COMPILATION.reset(token)


class CompileOnce:
    """The compiles of one jit function.

    Args:
        kernels: its compiled kernels by launch key; added to.
    """

    def __init__(self, kernels: dict[Key, CompiledKernel]) -> None:
        self._kernels = kernels
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Forget the compiles that are under way."""
        self._lock = threading.Lock()
        # Reentrant, since a hook may want the kernel of whose compile it hears.
        self._locks: dict[Key, threading.RLock] = {}

    def kernel(
        self,
        key: Key,
        src: Specialization,
        is_warmup: bool,
        compile: Callable[[Specialization], CompiledKernel],
    ) -> CompiledKernel | None:
        """Return the kernel under `key`; compile it if there is none, with the hooks around that.

        Args:
            key: the launch key.
            src: the specialisation to compile.
            is_warmup: whether nothing is launched.
            compile: makes the kernel.

        Returns:
            None when a `jit_cache_hook` takes the compile upon itself.
        """
        with self._lock_of(key):
            kernel = self._kernels.get(key)
            if kernel is not None:
                return kernel
            if COMPILE_HOOKS.skips(src, key, is_warmup):
                return None
            kernel = self._kernels[key] = compile(src)
        COMPILE_HOOKS.compiled(src, key, is_warmup)
        return kernel

    def _lock_of(self, key: Key) -> threading.RLock:
        with self._lock:
            return self._locks.setdefault(key, threading.RLock())
