"""Hooks on launches and compiles, the session recorder, and reports of recorded runs.

`add_hook` is the way in for tools; the recorder itself is just one subscriber.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from tkdebug.events import AutotuneChoice, Fault, KernelCompiled, LaunchProgress
from tkdebug.hook_chain import HOOKS, Hook, LaunchHook

__all__ = ["HookHandle", "add_hook"]


class HookHandle:
    """An added hook: `remove()` takes it out, and so does the end of a `with` block."""

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
    """Call functions on what happens in this process.

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
