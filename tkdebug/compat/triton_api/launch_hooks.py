"""`triton.knobs.runtime.launch_enter_hook` and `launch_exit_hook` over tkdebug's one hook chain.

A tool may `.add` and `.remove` functions or assign one; both kinds live side by side, and an
assignment replaces only the function that was assigned before. Every function is a subscriber of
`tkdebug.records.hook_chain.HOOKS`, called with a lazy dict as upstream calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from tkdebug.records.events import LaunchRecord
from tkdebug.records.hook_chain import HOOKS, Hook

LaunchFunction = Callable[..., Any]


class LazyDict:
    """A dict to which functions may still add when somebody reads it."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.extras: list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = []

    def add(self, func: Callable[..., dict[str, Any]], args: tuple[Any, ...]) -> None:
        """Let `func(*args)` add entries at the first read."""
        self.extras.append((func, args))

    def get(self) -> dict[str, Any]:
        """Return the entries, after all functions have added theirs."""
        for func, args in self.extras:
            self.data = self.data | func(*args)
        self.extras.clear()
        return self.data


def launch_dict(kernel: object, record: LaunchRecord) -> LazyDict:
    """Return a launch hook's argument: name, function, stream, and the user's metadata."""
    lazy = LazyDict(
        {
            "name": record.kernel,
            "function": getattr(kernel, "function", None),
            "stream": record.stream,
        }
    )
    if record.user_metadata is not None:
        lazy.add(record.user_metadata, ())
    return lazy


class HookChain:
    """Functions in order; called, it calls them (exits last first)."""

    def __init__(self, reversed: bool = False) -> None:
        self.reversed = reversed
        self._functions: list[LaunchFunction] = []

    @property
    def calls(self) -> list[LaunchFunction]:
        """The functions, in the order they were added."""
        return list(self._functions)

    def add(self, func: LaunchFunction) -> None:
        """Append `func`, unless the chain has it already."""
        if func not in self._functions:
            self._functions.append(func)

    def remove(self, func: LaunchFunction) -> None:
        """Take `func` out, if it is there."""
        if func in self._functions:
            self._functions.remove(func)

    def __bool__(self) -> bool:
        """Whether there are functions: torch's compiler asks by this."""
        return bool(self._functions)

    def __call__(self, *arguments: Any, **keywords: Any) -> None:
        """Call the functions."""
        functions = self.calls
        for function in functions[::-1] if self.reversed else functions:
            function(*arguments, **keywords)


class LaunchHookChain(HookChain):
    """One of the two launch chains, whose functions are called at launches."""

    def __init__(self, side: Literal["enter", "exit"]) -> None:
        super().__init__(reversed=side == "exit")
        self._side = side
        self._hooks: list[tuple[LaunchFunction, Hook]] = []
        self._assigned: LaunchFunction | None = None

    def add(self, func: LaunchFunction) -> None:
        """Call `func` with a lazy dict at each launch; the same function twice is a no-op."""
        if func in self._functions:
            return
        super().add(func)

        def call(kernel: object, record: LaunchRecord) -> None:
            func(launch_dict(kernel, record))

        call.__qualname__ = getattr(func, "__qualname__", repr(func))
        hook = Hook(enter=call) if self._side == "enter" else Hook(exit=call)
        self._hooks.append((func, hook))
        HOOKS.add(hook)

    def remove(self, func: LaunchFunction) -> None:
        """Stop calling `func`; for one that is not there this is a no-op."""
        if func not in self._functions:
            return
        super().remove(func)
        for added, hook in [pair for pair in self._hooks if pair[0] == func]:
            self._hooks.remove((added, hook))
            HOOKS.remove(hook)

    def assign(self, value: LaunchFunction | None) -> None:
        """Replace the function that was assigned before; added functions stay.

        Args:
            value: a function, or None, or this chain itself (a tool putting back what it read).
        """
        if self._assigned is not None:
            self.remove(self._assigned)
            self._assigned = None
        if value is None or value is self:
            return
        if value not in self._functions:
            self.add(value)
            self._assigned = value

    def clear(self) -> None:
        """Take all functions out."""
        for function in self.calls:
            self.remove(function)
        self._assigned = None
