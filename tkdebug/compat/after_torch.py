"""Actions that run once torch is imported, without importing it.

Scripts that never import torch do not pay for its preparation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_torch(action: Callable[[], None]) -> None:
    """Call `action` once torch is imported: now, or at the end of its import."""
    after_import("torch", action)


def after_import(module: str, action: Callable[[], None]) -> Callable[[], None]:
    """Call `action` once a module is imported: now, or at the end of its import.

    Returns:
        A function that cancels the action, if the import has not begun.
    """
    if module in sys.modules:
        action()
        return lambda: None
    watcher = _Watcher(module, action)
    sys.meta_path.insert(0, watcher)

    def forget() -> None:
        if watcher in sys.meta_path:
            sys.meta_path.remove(watcher)

    return forget


class _Watcher(MetaPathFinder):
    """Wraps the loader of one module, so that an action is called once it is loaded."""

    def __init__(self, module: str, action: Callable[[], None]) -> None:
        self._module = module
        self._action = action

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the module's spec with our loader around its own; None for other modules."""
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _WatchedLoader(spec.loader, self._action)
        return spec


class _WatchedLoader(Loader):
    def __init__(self, loader: Loader, action: Callable[[], None]) -> None:
        self._loader = loader
        self._action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # torch reads its own loader (resources, pickling of packages): it must find the real one.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._action()
