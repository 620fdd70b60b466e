"""Compiles each kernel of a jit function once, whatever threads want it.

Responsible for who compiles and who waits, and for calling upstream's hooks around a compile.
Invariant: threads that want the same kernel wait for one compile; others go on beside it. A forked
child waits for none of its parent's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from tkdebug.process.forks import renew_after_forks
from tkdebug.runtime.compile.compile_hooks import COMPILE_HOOKS

if TYPE_CHECKING:
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.launch.compiled_kernel import CompiledKernel

Key = tuple[Hashable, ...]


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
        """The kernel under `key`, compiled when there is none, with the hooks called around it.

        Args:
            key: the launch key.
            src: what to compile for.
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
