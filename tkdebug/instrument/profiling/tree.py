"""What a profiling session has measured: a tree of scopes and kernels.

Responsible for adding up; times and counts are of the place itself, and readers of the tree
adds those below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tkdebug.instrument.profiling.metrics import Metric, plain_name

ROOT_NAME = "ROOT"


@dataclass(frozen=True, slots=True)
class DeviceName:
    """Where launches ran: type `CUDA` or, interpreted, `CPU`; index as text."""

    type: str
    index: str


@dataclass(slots=True)
class Place:
    """A scope, or a kernel under one.

    Attributes:
        launches: how many ran here.
        time_ns: of all of them.
        device: where; None for a scope.
    """

    name: str
    children: dict[str, Place] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    launches: int = 0
    time_ns: int = 0
    device: DeviceName | None = None

    def child(self, name: str) -> Place:
        """The place of that name in this one."""
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = Place(name)
        return found

    def below(self, path: tuple[str, ...]) -> Place:
        """The place at the end of `path`."""
        place = self
        for name in path:
            place = place.child(name)
        return place

    def add_metrics(self, metrics: Mapping[str, object]) -> None:
        """Add to the metrics here; nothing where one of them cannot be.

        Raises:
            ProfileError: a value is of another type than before, or of none that can be.
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
