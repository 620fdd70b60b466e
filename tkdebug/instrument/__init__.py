"""Hooks on launches and compiles, the session recorder, and reports of recorded runs.

`add_hook` is the way in for tools; the recorder itself is just one subscriber.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType

from tkdebug.instrument.launch_listeners.kernel_objects import KernelObject
from tkdebug.records.events import (
    AutotuneChoice,
    Fault,
    KernelCompiled,
    LaunchProgress,
    LaunchRecord,
)
from tkdebug.records.hook_chain import HOOKS, Hook, LaunchHook

__all__ = [
    "HookHandle",
    "KernelObject",
    "add_hook",
    "kernel_launch_enter",
    "kernel_launch_exit",
]

ToolCallback = Callable[[KernelObject], None]


class HookHandle:
    """An added hook; `remove()` takes it out, and so does the end of a `with` block."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def remove(self) -> None:
        """Take the hook out of the chain; a second call is a no-op."""
        HOOKS.remove(self._hook)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


def add_hook(
    enter: LaunchHook | None = None,
    exit: LaunchHook | None = None,
    *,
    compiled: Callable[[KernelCompiled], None] | None = None,
    autotuned: Callable[[AutotuneChoice], None] | None = None,
    fault: Callable[[Fault], None] | None = None,
    progress: Callable[[LaunchProgress], None] | None = None,
) -> HookHandle:
    """Call functions at events of this process.

    Args:
        enter: gets (kernel object, `LaunchRecord`) before each launch, in the order of adding.
        exit: gets the same after it, with `duration_ns` set, in reverse order.
        compiled: gets each `KernelCompiled`.
        autotuned: gets each `AutotuneChoice`.
        fault: gets each `Fault`.
        progress: gets `LaunchProgress` now and then during long interpreted launches.

    Returns:
        A handle whose `remove()` undoes this; also usable as a context manager.

    A hook that raises is reported once on stderr and never breaks the launch.
    """
    hook = Hook(
        enter=enter,
        exit=exit,
        compiled=compiled,
        autotuned=autotuned,
        fault=fault,
        progress=progress,
    )
    HOOKS.add(hook)
    return HookHandle(hook)


def kernel_launch_enter(tool_callback: ToolCallback, kernel_object: object = None) -> HookHandle:
    """Call a profiler's function before each launch.

    Args:
        tool_callback: gets a `KernelObject`: name, source, line table, registers, shared memory,
            grid, correlation id, cubin.
        kernel_object: only launches of this kernel: the `@jit` function, its name, or the
            `KernelObject` of another launch; None for all.

    Returns:
        A handle whose `remove()` undoes this; also usable as a context manager.

    Raises:
        TypeError: `tool_callback` cannot be called, or `kernel_object` is no kernel.
    """
    return add_hook(enter=_calling(tool_callback, kernel_object))


def kernel_launch_exit(tool_callback: ToolCallback, kernel_object: object = None) -> HookHandle:
    """Call a profiler's function after each launch; its `KernelObject` has `duration_ns` then.

    Arguments and result are those of `kernel_launch_enter`.
    """
    return add_hook(exit=_calling(tool_callback, kernel_object))


def _calling(tool_callback: ToolCallback, kernel_object: object) -> LaunchHook:
    if not callable(tool_callback):
        raise TypeError(f"tool_callback: got {tool_callback!r}, expected a function")
    only = _name_of(kernel_object)

    # Errors in it are reported with its name.
    @functools.wraps(tool_callback)
    def call(kernel: object, launch: LaunchRecord) -> None:
        if only is None or launch.kernel == only:
            tool_callback(KernelObject(kernel, launch))

    return call


def _name_of(kernel_object: object) -> str | None:
    if kernel_object is None or isinstance(kernel_object, str):
        return kernel_object
    name = getattr(kernel_object, "__name__", None) or getattr(kernel_object, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"kernel_object: got {kernel_object!r}, expected a kernel or its name")
    return name
