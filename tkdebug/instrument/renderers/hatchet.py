"""The launches as a tree for hatchet and proton-viewer: scopes, and under them kernels with times.

The format is that of Proton's profiles: a list of the tree's root and of devices. A node has
`frame`, `metrics` and `children`, as in hatchet's literal format (`GraphFrame.from_literal`). The
root's metrics name those that add up. `time (ns)` is named as Proton names it. hatchet's views use
`time` by default, which its other readers have in microseconds; the root has none, as proton-viewer
would take it for a time of another unit. Devices are for metrics of their peak rates, which a
recorded run does not have. Others' work has a type that begins with "other", and is under the
scopes of the line that launched it, if that was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tkdebug.instrument.activities import recorded_activities
from tkdebug.instrument.analyses.kernel_names import activity_name
from tkdebug.instrument.analyses.origin_totals import recorded_origins
from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.renderers.json_format import recorded_launches
from tkdebug.instrument.session import Session
from tkdebug.instrument.text_forms import json_text

_TIME, _COUNT = "time (ns)", "count"
_DEVICES: dict[str, object] = {}


@dataclass(slots=True)
class _Node:
    """A scope, a kernel, or others' work such as a copy.

    Attributes:
        total_ns: the time of its own launches that were timed.
    """

    kind: str
    total_ns: int = 0
    count: int = 0
    children: dict[tuple[str, str], _Node] = field(default_factory=dict)

    def child(self, kind: str, name: str) -> _Node:
        return self.children.setdefault((kind, name), _Node(kind))

    def below(self, scopes: Sequence[str]) -> _Node:
        """Return the node of the innermost of these nested scopes, made if there is none."""
        node = self
        for scope in scopes:
            node = node.child("scope", scope)
        return node

    def add(self, duration_ns: int) -> None:
        """Count a launch."""
        self.count += 1
        self.total_ns += duration_ns


def render(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    """The tree in one piece; faults are not in it."""
    root = _Node("root")
    for launch in recorded_launches(session):
        root.below(launch.scopes).child("kernel", launch.kernel).add(launch.duration_ns or 0)
    _add_others(session, root)
    tree = _literal("ROOT", root)
    tree["metrics"] = {_TIME: 0, _COUNT: 0}
    yield json_text([tree, _DEVICES], indent=1) + "\n"


def _add_others(session: Session, root: _Node) -> None:
    origins = recorded_origins(session)
    for activity in recorded_activities(session):
        if not activity.launch:
            origin = origins.get((activity.process, activity.origin))
            node = root if origin is None else root.below(origin.scopes)
            name = activity_name(activity.kind, activity.name, activity.graph > 0)
            node.child(f"other {activity.kind}", name).add(activity.duration_ns)


def _literal(name: str, node: _Node) -> dict[str, object]:
    children = [_literal(child_name, child) for (_, child_name), child in node.children.items()]
    return {
        "frame": {"name": name, "type": node.kind},
        "metrics": {
            "time": node.total_ns / 1e3,
            _TIME: node.total_ns,
            _COUNT: node.count,
        },
        "children": children,
    }
