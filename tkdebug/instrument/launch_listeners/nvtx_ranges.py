"""Ranges of NVTX around launches and scopes, which nsys and ncu show and filter by.

Needs the package nvtx; if no tool of NVIDIA's is attached, its calls cost well under a microsecond
each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, cast

from tkdebug.errors import UsageError
from tkdebug.records.events import LaunchRecord
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.records.scopes import SCOPES, Scope

DOMAIN = "tkdebug"


class _Nvtx(Protocol):
    """The part of the package that is used."""

    def start_range(self, message: str, *, domain: str) -> object: ...
    def end_range(self, range_id: object) -> None: ...


class _Ranges:
    """The open ranges, which may end in another order than a stack's."""

    def __init__(self, nvtx: _Nvtx) -> None:
        self._nvtx = nvtx
        self._open: dict[object, object] = {}

    def begin(self, key: object, message: str) -> None:
        self._open[key] = self._nvtx.start_range(message, domain=DOMAIN)

    def end(self, key: object) -> None:
        range_id = self._open.pop(key, None)
        if range_id is not None:
            self._nvtx.end_range(range_id)

    # Of launches

    def enter(self, kernel: object, launch: LaunchRecord) -> None:
        self.begin(launch.id, launch.kernel)

    def exit(self, kernel: object, launch: LaunchRecord) -> None:
        self.end(launch.id)

    # Of scopes (`scopes.ScopeWatcher`)

    def entered(self, scope: Scope, metrics: Mapping[str, object]) -> None:
        self.begin(scope, scope.name)

    def measured(self, scope: Scope, metrics: Mapping[str, object]) -> None:
        pass

    def exited(self, scope: Scope) -> None:
        self.end(scope)


def check_nvtx() -> None:
    """Check that ranges can be made.

    Raises:
        UsageError: the package is missing.
    """
    try:
        import nvtx  # noqa: F401
    except ImportError:
        raise UsageError("--nvtx: needs the package nvtx; pip install nvtx") from None


@contextmanager
def nvtx_ranges() -> Iterator[None]:
    """Make ranges of the domain "tkdebug" of launches and scopes inside.

    Raises:
        UsageError: the package is missing.
    """
    check_nvtx()
    import nvtx

    ranges = _Ranges(cast(_Nvtx, nvtx))
    hook = Hook(enter=ranges.enter, exit=ranges.exit)
    HOOKS.add(hook)
    SCOPES.watch(ranges)
    try:
        yield
    finally:
        SCOPES.unwatch(ranges)
        HOOKS.remove(hook)
