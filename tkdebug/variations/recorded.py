"""Values that watches record of a launch, beside those of the same launch interpreted.

A native launch shows nothing of its inside but what watches record. So the variables from which a
wrong element was computed, interpreted, are watched in the program that stored it. Values are
compared where both have the same line, calls, variable and number of earlier visits; only those
elements count that the wrong one was computed from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.errors import Frame, UsageError
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import ModeName
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.device.modes import mode
from tkdebug.variations.elements import Node, Slice
from tkdebug.variations.launches import KeptLaunch
from tkdebug.variations.outcomes import Tolerance, number_text
from tkdebug.watches.in_force import WATCHES, ValueWatch
from tkdebug.watches.places import Watch, checked_watch, real_file
from tkdebug.watches.records import WatchedValue

_BUFFER_BYTES = 64 << 20
_Place = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A launch that was watched.

    Attributes:
        values: the values that watches recorded.
        tensors: its tensors after it, by the names of parameters.
    """

    values: Sequence[WatchedValue]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Compared:
    """Comparison of recorded values with those that an element was computed from.

    Attributes:
        count: the number of recorded values that were compared.
        node: the first node of the interpreted run that differs; None if none does.
        got: its recorded number.
        expected: its number in the interpreted run.
    """

    count: int
    node: Node | None = None
    got: str = ""
    expected: str = ""


def watches_on(made: Slice, launch: KeptLaunch, program: int) -> list[Watch]:
    """Return watches of the variables that an element was computed from, in one program.

    Args:
        made: what the element was computed from.
        launch: the launch whose program computes it.
        program: linear number.
    """
    x, y, _ = launch.grid
    place = (program % x, program // x % y, program // (x * y))
    box = tuple((at, at + 1) for at in place)
    found: dict[tuple[str, int, str], Watch] = {}
    for node in _comparable(made):
        frame, name = node.op.location.frames[-1], node.value.name
        assert name is not None
        key = (real_file(frame.file), frame.line, name)
        if key in found:
            continue
        try:
            found[key] = checked_watch(Watch(*key, programs=(box,), whole=True))
        except UsageError:
            continue  # a statement over several lines, or a name that it does not bind
    return list(found.values())


def run_watched(launch: KeptLaunch, watches: Sequence[Watch], mode_name: ModeName) -> Recorded:
    """Launch again on copies of the inputs, with watches.

    Args:
        launch: the launch.
        watches: the watches.
        mode_name: how it runs.

    Raises:
        TkError: it cannot be launched so.
    """
    seen = [ValueWatch(watch, keeps_values=True) for watch in watches]
    before, HOOKS.debugger = HOOKS.debugger, None
    try:
        with KNOBS.scope(checks=("none",), watch_buffer_bytes=_BUFFER_BYTES), mode(mode_name):
            for one in seen:
                WATCHES.add(one)
            tensors = launch.relaunch()
            return Recorded([value for one in seen for value in one.values], tensors)
    finally:
        HOOKS.debugger = before
        for one in seen:
            WATCHES.remove(one)


def first_recorded(made: Slice, values: Iterable[WatchedValue], tolerance: Tolerance) -> Compared:
    """Return the first recorded value that differs, in the order of the interpreted run.

    Args:
        made: what the element was computed from, interpreted.
        values: the values that watches recorded in the other run.
        tolerance: the tolerance for floats.
    """
    known: dict[tuple[_Place, str, int], WatchedValue | None] = {}
    for value in values:
        key = (_place(value.frames), value.name, value.iteration)
        known[key] = None if key in known else value
    count = 0
    for node in _comparable(made):
        name = node.value.name or ""
        recorded = known.get((_place(node.op.location.frames), name, node.visit))
        mask = node.mask
        if recorded is None or mask is None or tuple(recorded.shape) != tuple(mask.shape):
            continue
        numbers = torch.tensor(recorded.values(), dtype=torch.float64).reshape(mask.shape)
        got = numbers[mask].reshape(-1).to(node.numbers.dtype)
        count += 1
        bad = tolerance.differing(got, node.numbers)
        if bool(bad.any()):
            at = int(bad.nonzero()[0])
            shown = (number_text(side[at].item()) for side in (got, node.numbers))
            return Compared(count, node, *shown)
    return Compared(count)


def _comparable(made: Slice) -> list[Node]:
    """The nodes that are variables with a number for each element, each by an op of its own.

    Copies of a line by an unrolled loop are left out: nothing tells their values apart.
    """
    named = [node for node in made.nodes if node.value.name and node.mask is not None]
    named = [
        node
        for node in named
        if node.value.defining_op is node.op and node.op.name not in CONTROL_FLOW
    ]
    ops = {(node.op.id, _place(node.op.location.frames), node.value.name) for node in named}
    copies = Counter((place, name) for _, place, name in ops)
    return [
        node
        for node in named
        if copies[_place(node.op.location.frames), node.value.name] == 1 and _is_defined(node)
    ]


def _is_defined(node: Node) -> bool:
    """Whether a node's elements are defined: masked-off lanes of loads without `other` are not."""
    load = tt.Load.cast(node.op)
    if load is None or load.mask is None or load.other is not None:
        return True
    return node.offsets is not None and node.offsets.numel() == node.numbers.numel()


def _place(frames: Iterable[Frame]) -> _Place:
    return tuple((real_file(frame.file), frame.line) for frame in frames)
