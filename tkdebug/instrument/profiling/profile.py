"""One profiling session: the scopes and launches that it gets, as a tree of places.

Responsible for the place of a launch, by the scopes that were entered while the session was active
or by the Python calls that led there. `profiler` decides when it is active.

Scripts give metrics of their scopes and launches, which are read and added up here. Kinds of values
are Proton's: numbers, lists of numbers, text. A tensor is copied on its device and read when the
profile is written, so that nothing waits for the device.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import tkdebug
from tkdebug.instrument.profiling import ProfileError
from tkdebug.process.forks import renew_after_forks
from tkdebug.records.scopes import SCOPES, Metrics, Scope

Number = int | float
Value = int | float | str | list[int] | list[float]

_EXCLUSIVE, _PROPERTY = "(exc)", "(pty)"
ROOT_NAME = "ROOT"
ContextKind = Literal["shadow", "python"]
DataKind = Literal["tree", "trace"]
CONTEXTS: tuple[ContextKind, ...] = ("shadow", "python")
DATA_KINDS: tuple[DataKind, ...] = ("tree", "trace")
# For a whole trace, so that a forgotten session cannot fill the memory.
MAX_EVENTS = 1_000_000
_OWN_FILES = str(Path(tkdebug.__file__).parent)


class Metric:
    """One metric of one place.

    Attributes:
        name: the name without its suffix for exclusive metrics or properties.
        inclusive: whether it adds up towards the root.
    """

    def __init__(self, name: str) -> None:
        self.inclusive = not name.endswith(_EXCLUSIVE)
        self._is_property = name.endswith(_PROPERTY)
        self.name = plain_name(name)
        self._value: Value | None = None
        self._tensors: list[Any] = []

    def add(self, value: object) -> None:
        """Add `value`; text and properties replace the earlier value.

        Raises:
            ProfileError: it is of another type than the values before, or of none that can be
                added.
        """
        if hasattr(value, "data_ptr"):
            self._tensors.append(value)
            return
        new = read_value(self.name, value)
        if self._value is not None:
            self._check_type(new)
        if self._value is None or self._is_property or isinstance(new, str):
            self._value = new
        else:
            self._value = _sum(self.name, self._value, new)

    def check(self, value: object) -> None:
        """Check that `add` would take `value`; raise what it would raise."""
        if not hasattr(value, "data_ptr"):
            new = read_value(self.name, value)
            if self._value is not None:
                self._check_type(new)

    def _check_type(self, new: Value) -> None:
        before, now = _type_name(self._value), _type_name(new)
        if before != now and not {before, now} <= {"uint64_t", "int64_t"}:
            raise ProfileError(
                f"Metric value type mismatch for valueId 0 ({self.name}): current={before}, "
                f"new={now}; give it values of one type"
            )

    def value(self) -> Value | None:
        """Return the sum so far, None without a value; reading tensors waits for the device."""
        tensors, self._tensors = self._tensors, []
        for tensor in tensors:
            values = tensor.reshape(-1).tolist()
            self.add(values[0] if len(values) == 1 else values)
        return self._value


def kept(metrics: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of `metrics`: tensors are cloned on their device, other values kept."""
    return {
        name: value.detach().clone() if hasattr(value, "detach") else value
        for name, value in metrics.items()
    }


def plain_name(name: str) -> str:
    """A metric's name without the marks of exclusive metrics and properties."""
    return name.replace(_EXCLUSIVE, "").replace(_PROPERTY, "").strip()


def is_number(value: object) -> bool:
    """Whether `value` can be added up: a number, or a tensor of numbers."""
    return isinstance(value, Real) or hasattr(value, "data_ptr")


def read_value(name: str, value: object) -> Value:
    """`value` as plain Python.

    Raises:
        ProfileError: it is nothing that a metric can be.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, Real) for v in value):
        if all(isinstance(v, Integral) for v in value):
            return [int(v) for v in value]
        return [float(v) for v in value]
    raise ProfileError(
        f"metric {name!r}: got {value!r:.80}, expected a number, a list of numbers, a tensor "
        "or text"
    )


def _sum(name: str, before: Value, new: Value) -> Value:
    if isinstance(before, list) and isinstance(new, list):
        if len(before) != len(new):
            raise ProfileError(
                f"metric {name!r}: got {len(new)} numbers, expected {len(before)} as before"
            )
        return [a + b for a, b in zip(before, new, strict=True)]
    if isinstance(before, (int, float)) and isinstance(new, (int, float)):
        return before + new
    return new


def _type_name(value: object) -> str:
    # The names that Proton has for them, which scripts may look for in the message.
    if isinstance(value, list):
        return f"std::vector<{_type_name(value[0])}>"
    if isinstance(value, str):
        return "std::string"
    if isinstance(value, float):
        return "double"
    return "uint64_t" if isinstance(value, int) and value >= 0 else "int64_t"


@dataclass(frozen=True, slots=True)
class DeviceName:
    """The device of launches: type `CUDA` or, interpreted, `CPU`; index as text."""

    type: str
    index: str


@dataclass(slots=True)
class Place:
    """A scope, or a kernel under one.

    Attributes:
        launches: the number of launches here.
        time_ns: the time of all of them.
        device: the device; None for a scope.
    """

    name: str
    children: dict[str, Place] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    launches: int = 0
    time_ns: int = 0
    device: DeviceName | None = None

    def child(self, name: str) -> Place:
        """Return the child of that name, a new one if there is none."""
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = Place(name)
        return found

    def below(self, path: tuple[str, ...]) -> Place:
        """Return the place at the end of `path`, made if there is none."""
        place = self
        for name in path:
            place = place.child(name)
        return place

    def add_metrics(self, metrics: Mapping[str, object]) -> None:
        """Add to the metrics here; add none if one of them cannot be added.

        Raises:
            ProfileError: a value is of another type than before, or of none that can be added.
        """
        named = [(self.metric(name), value) for name, value in metrics.items()]
        for metric, value in named:
            metric.check(value)
        for metric, value in named:
            metric.add(value)
            self.metrics[metric.name] = metric

    def metric(self, name: str) -> Metric:
        """The metric of that name; a new one is kept only once it has a value."""
        return self.metrics.get(plain_name(name)) or Metric(name)

    def add_launch(self, duration_ns: int, device: DeviceName) -> None:
        """Count one launch."""
        self.launches += 1
        self.time_ns += duration_ns
        self.device = device

    def walk(self) -> Iterator[Place]:
        """This place and all below it."""
        yield self
        for name in sorted(self.children):
            yield from self.children[name].walk()

    def idle_scopes(self) -> list[str]:
        """Names of the innermost scopes in which nothing was launched."""
        return [
            place.name
            for place in self.walk()
            if place is not self and not place.children and place.device is None
        ]


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
        tree: the measurements.
        events: the launches of a trace, in order.
        lost_events: the number of launches that the trace has no room for.
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
        """Replace the lock, as a forked child has to."""
        self._lock = threading.RLock()

    def path(self) -> tuple[str, ...]:
        """Return the place of an event that happens here and now."""
        return SCOPES.path(self) if self.context == "shadow" else python_path()

    def depth(self) -> int:
        """Return the number of scopes, or calls, around."""
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
            ProfileError: one of the metrics cannot be added up.
        """
        with self._lock:
            place = self._places.get(scope.id)
            if place is not None:
                place.add_metrics(kept(metrics))

    def exited(self, scope: Scope) -> None:
        """Forget the scope; its place stays."""
        self._places.pop(scope.id, None)

    def forget_scopes(self) -> None:
        """Take no more metrics of the scopes that were entered so far."""
        with self._lock:
            self._places.clear()

    def add_metrics(self, path: tuple[str, ...], metrics: Metrics) -> None:
        """Add to the metrics of a launch.

        Raises:
            ProfileError: one of the metrics cannot be added up.
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
