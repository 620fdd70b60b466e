"""Upstream's functions around loading a native kernel: `kernel_load_start_hook` and its like.

Responsible for what they are called with; the knobs that set them are `compat`'s.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

LoadFunction = Callable[..., object]


class Loadable(Protocol):
    """What the hooks get."""

    module: Any
    function: Any
    name: str
    hash: str


@dataclass
class LoadHooks:
    """The functions in force, None for none.

    Attributes:
        before: called before a kernel is loaded on a device, its handles still None.
        after: called with its handles.
        freed: called with the handles of a kernel that nobody can launch any more.
    """

    before: LoadFunction | None = None
    after: LoadFunction | None = None
    freed: LoadFunction | None = None

    def loading(self, kernel: Loadable) -> None:
        """Call `before`."""
        _call(self.before, kernel)

    def loaded(self, kernel: Loadable) -> None:
        """Call `after`, and see to it that `freed` is called when the kernel is no more."""
        _call(self.after, kernel)
        module, function = kernel.module, kernel.function
        freed = weakref.finalize(
            kernel, self._told_freed, module, function, kernel.name, {}, kernel.hash
        )
        # Not when the process ends: the driver takes everything down by itself.
        freed.atexit = False

    def _told_freed(self, *handles: object) -> None:
        if self.freed is not None:
            self.freed(*handles)


LOAD_HOOKS = LoadHooks()


def _call(function: LoadFunction | None, kernel: Loadable) -> None:
    if function is not None:
        # In upstream's order: module, function, name, files by stage, hash. There are no files.
        function(kernel.module, kernel.function, kernel.name, {}, kernel.hash)
