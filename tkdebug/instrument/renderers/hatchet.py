"""The launches as a tree for hatchet: scopes, and under them kernels with their times.

The format is hatchet's literal one (`GraphFrame.from_literal`), which Proton's profiles have, too:
a list of roots, each with `frame`, `metrics` and `children`. `time (ns)` is named as Proton names
it. hatchet's views are of `time` where none is named, which its other readers have in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tkdebug.instrument.json_text import json_text
from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.renderers.json_format import recorded_launches
from tkdebug.instrument.session import Session


@dataclass(slots=True)
class _Node:
    """A scope or a kernel.

    Attributes:
        total_ns: of its own launches that were timed.
    """

    kind: str
    total_ns: int = 0
    count: int = 0
    children: dict[tuple[str, str], _Node] = field(default_factory=dict)

    def child(self, kind: str, name: str) -> _Node:
        return self.children.setdefault((kind, name), _Node(kind))


def render(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    """The tree in one piece; faults are not in it."""
    root = _Node("root")
    for launch in recorded_launches(session):
        node = root
        for scope in launch.scopes:
            node = node.child("scope", scope)
        node = node.child("kernel", launch.kernel)
        node.count += 1
        node.total_ns += launch.duration_ns or 0
    yield json_text([_literal("ROOT", root)], indent=1) + "\n"


def _literal(name: str, node: _Node) -> dict[str, object]:
    children = [_literal(child_name, child) for (_, child_name), child in node.children.items()]
    return {
        "frame": {"name": name, "type": node.kind},
        "metrics": {
            "time": node.total_ns / 1e3,
            "time (ns)": node.total_ns,
            "count": node.count,
        },
        "children": children,
    }
