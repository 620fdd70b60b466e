"""Proton's hooks: the functions that sessions have called around launches.

`LaunchHook`, which `hook="triton"` asks for, needs no calls of its own: while it is active the
profiler reads the metadata of launches. Hooks of others are put on upstream's launch chains.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any, ClassVar

from tkdebug.compat.triton_api.knobs import LAUNCH_ENTER, LAUNCH_EXIT, RuntimeKnobs
from tkdebug.compat.triton_api.launch_hooks import HookChain
from tkdebug.errors import UnsupportedError
from tkdebug.instrument.profiling.profiler import METADATA_STATE, PROFILER

COMPUTE_METADATA_SCOPE_NAME = METADATA_STATE


class Hook:
    """A function that is called around launches while a session that wants it is active.

    Attributes:
        priority: hooks with a higher one are called first.
    """

    priority: int = 0

    def init_handle(
        self, module: Any, function: Any, name: str, metadata_group: Any, hash: str
    ) -> None:
        """Callback after a kernel was loaded."""

    def enter(self, metadata: Any) -> None:
        """Callback before a launch is made; `metadata.get()` returns its metadata."""

    def exit(self, metadata: Any) -> None:
        """Callback after a launch was made."""

    def activate(self) -> None:
        """Begin: the first session that wants the hook has become active."""

    def deactivate(self) -> None:
        """End: the last session that wants the hook is no longer active."""


class LaunchHook(Hook):
    """Names and metrics that kernels give by their `launch_metadata`; one for all sessions."""

    priority = 100
    flops_width: ClassVar[list[int]] = [8, 16, 32, 64]
    metrics: ClassVar[list[str]] = [*(f"flops{width}" for width in flops_width), "bytes", "flops"]
    _instance: ClassVar[LaunchHook | None] = None
    _include: re.Pattern[str] | None = None
    _exclude: re.Pattern[str] | None = None

    def __new__(cls) -> LaunchHook:
        """Return the only instance."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def configure(self, *, include: str | None = None, exclude: str | None = None) -> None:
        """Read the metadata of some kernels only.

        Args:
            include: regular expression that their names match from the beginning.
            exclude: a regular expression that they do not match.
        """
        self._include = None if include is None else re.compile(include)
        self._exclude = None if exclude is None else re.compile(exclude)

    def matches(self, kernel: str) -> bool:
        """Whether metadata of that kernel is read."""
        if self._include is not None and self._include.match(kernel) is None:
            return False
        return self._exclude is None or self._exclude.match(kernel) is None

    def activate(self) -> None:
        """Have the profiler read metadata."""
        PROFILER.metadata_wanted = self.matches

    def deactivate(self) -> None:
        """Have the profiler read no metadata."""
        PROFILER.metadata_wanted = None


class InstrumentationHook(Hook):
    """Upstream's clocks inside of kernels, which tkdebug does not have."""

    def __init__(self, mode: object = None) -> None:
        raise UnsupportedError(
            "proton's InstrumentationHook compiles clocks into kernels, which tkdebug does not; "
            "`tkdebug lines` shows what a line costs"
        )


class HookManager:
    """The hooks of each session, kept on the class itself, as scripts use it."""

    active_hooks: ClassVar[list[Hook]] = []
    session_hooks: ClassVar[dict[int, dict[Hook, bool]]] = defaultdict(dict)

    @staticmethod
    def enter(metadata: Any) -> None:
        """Call the hooks before a launch."""
        for hook in list(HookManager.active_hooks):
            hook.enter(metadata)

    @staticmethod
    def exit(metadata: Any) -> None:
        """Call the hooks after a launch, in reverse."""
        for hook in reversed(HookManager.active_hooks):
            hook.exit(metadata)

    @staticmethod
    def register(hook: Hook, session: int) -> None:
        """Have `hook` called while `session` is active, which it is."""
        HookManager.session_hooks[session][hook] = True
        HookManager._update()

    @staticmethod
    def activate(session: int | None = None) -> None:
        """Have the hooks of a session, or of all, called."""
        HookManager._set_active(session, True)

    @staticmethod
    def deactivate(session: int | None = None) -> None:
        """Stop the calls of the hooks of a session, or of all, that no other session wants."""
        HookManager._set_active(session, False)

    @staticmethod
    def unregister(session: int | None = None) -> None:
        """Forget the hooks of a session, or of all."""
        if session is None:
            HookManager.session_hooks.clear()
        else:
            HookManager.session_hooks.pop(session, None)
        HookManager._update()

    @staticmethod
    def _set_active(session: int | None, active: bool) -> None:
        sessions = list(HookManager.session_hooks) if session is None else [session]
        for number in sessions:
            hooks = HookManager.session_hooks.get(number, {})
            hooks.update(dict.fromkeys(hooks, active))
        HookManager._update()

    @staticmethod
    def _update() -> None:
        """Bring the active hooks in line with the sessions' wishes."""
        wanted = {
            hook: None
            for hooks in HookManager.session_hooks.values()
            for hook, active in hooks.items()
            if active
        }
        current = HookManager.active_hooks
        for hook in [hook for hook in current if hook not in wanted]:
            hook.deactivate()
            current.remove(hook)
        for hook in [hook for hook in wanted if hook not in current]:
            hook.activate()
            current.append(hook)
        current.sort(key=lambda hook: hook.priority, reverse=True)
        _call_around_launches(any(not isinstance(hook, LaunchHook) for hook in current))


def _call_around_launches(wanted: bool) -> None:
    chains: tuple[tuple[HookChain, Callable[..., None]], ...] = (
        (LAUNCH_ENTER, HookManager.enter),
        (LAUNCH_EXIT, HookManager.exit),
        (RuntimeKnobs().kernel_load_end_hook, _kernel_loaded),
    )
    for chain, function in chains:
        if wanted:
            chain.add(function)
        else:
            chain.remove(function)


def _kernel_loaded(module: Any, function: Any, name: str, group: Any, hash: str) -> None:
    for hook in list(HookManager.active_hooks):
        hook.init_handle(module, function, name, group, hash)
