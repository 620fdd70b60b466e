"""One profiling session: the scopes and launches that it gets, put where they belong.

Responsible for the place of a launch, by the scopes that were entered while the session was active
or by the Python calls that led there. When it is active is `profiler`'s.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

import tkdebug
from tkdebug.instrument.profiling.metrics import kept
from tkdebug.instrument.profiling.tree import ROOT_NAME, DeviceName, Place
from tkdebug.process.forks import renew_after_forks
from tkdebug.records.scopes import SCOPES, Metrics, Scope

ContextKind = Literal["shadow", "python"]
DataKind = Literal["tree", "trace"]
CONTEXTS: tuple[ContextKind, ...] = ("shadow", "python")
DATA_KINDS: tuple[DataKind, ...] = ("tree", "trace")
# Of a whole trace, so that a forgotten session cannot fill the memory.
MAX_EVENTS = 1_000_000

_OWN_FILES = str(Path(tkdebug.__file__).parent)


@dataclass(frozen=True, slots=True)
class LaunchEvent:
    """A launch in a trace: where it is in the tree, when it was made, how long it took."""

    path: tuple[str, ...]
    stream: int
    start_ns: int
    duration_ns: int


class Profile:
    """A session of that name; `kind` says whether it adds up (tree) or keeps each launch (trace).

    Attributes:
        tree: what was measured.
        events: the launches of a trace, in order.
        lost_events: how many launches the trace has no room for.
        interpreted: whether any launch was interpreted, whose times are wall times.
    """

    def __init__(self, name: str, context: ContextKind, kind: DataKind) -> None:
        self.name = name
        self.context = context
        self.kind = kind
        self.tree = Place(ROOT_NAME)
        self.events: list[LaunchEvent] = []
        self.lost_events = 0
        self.interpreted = False
        self._places: dict[int, Place] = {}
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """As a forked child has to."""
        self._lock = threading.RLock()

    def path(self) -> tuple[str, ...]:
        """Where something that happens here and now belongs."""
        return SCOPES.path(self) if self.context == "shadow" else python_path()

    def depth(self) -> int:
        """How many scopes, or calls, are around."""
        return len(self.path())

    def entered(self, scope: Scope, metrics: Metrics) -> None:
        """Make a place for `scope`.

        Raises:
            ProfileError: one of the metrics cannot be added up.
        """
        path = self.path()
        with self._lock:
            place = self.tree.below(path)
            self._places[scope.id] = place
            place.add_metrics(kept(metrics))

    def measured(self, scope: Scope, metrics: Metrics) -> None:
        """Add to the metrics of `scope`.

        Raises:
            ProfileError: one of them cannot be added up.
        """
        with self._lock:
            place = self._places.get(scope.id)
            if place is not None:
                place.add_metrics(kept(metrics))

    def exited(self, scope: Scope) -> None:
        """Forget which scope it was; its place stays."""
        self._places.pop(scope.id, None)

    def forget_scopes(self) -> None:
        """Take no more metrics of the scopes that were entered so far."""
        with self._lock:
            self._places.clear()

    def add_metrics(self, path: tuple[str, ...], metrics: Metrics) -> None:
        """Add to the metrics of a launch.

        Raises:
            ProfileError: one of them cannot be added up.
        """
        with self._lock:
            self.tree.below(path).add_metrics(metrics)

    def add_launch(self, event: LaunchEvent, device: DeviceName) -> None:
        """Count a launch that has ended."""
        with self._lock:
            self.tree.below(event.path).add_launch(event.duration_ns, device)
            self.interpreted = self.interpreted or device.type == "CPU"
            if self.kind == "trace" and len(self.events) < MAX_EVENTS:
                self.events.append(event)
            elif self.kind == "trace":
                self.lost_events += 1


def python_path() -> tuple[str, ...]:
    """The calls that led here, outermost first, as `file:line@function`; none of tkdebug's."""
    return tuple(reversed(list(_python_frames(inspect.currentframe()))))


def _python_frames(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        file = frame.f_code.co_filename
        # "<launch of …>" is the code that launches a native kernel.
        if not file.startswith((_OWN_FILES, "<frozen ", "<launch of ")):
            yield f"{file}:{frame.f_lineno}@{frame.f_code.co_name}"
        frame = frame.f_back
