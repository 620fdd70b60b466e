"""What launches show to who watches: of interpreted ones, and of what native ones recorded.

Invariant: both give the same values for the same elements, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.probes.access_logs import is_logged
from tkdebug.compiler.probes.sites import ProbePlan
from tkdebug.compiler.probes.watch_sites import (
    BINS,
    HEADER_WORDS,
    SUMMARY_WORDS,
    WORD_BYTES,
    Space,
    WatchSite,
    Word,
    spaces,
    watch_sites,
)
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.state import ELEMENT_DTYPES
from tkdebug.interpreter.values import TileValue
from tkdebug.interpreter.watch_summaries import (
    Summaries,
    as_numbers,
    bins_of,
    mean_of,
    packed_tiles,
)
from tkdebug.watches.conditions import Field, Operator, Predicate, evaluate
from tkdebug.watches.records import WatchCount, WatchedValue

_COMPARE = {
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
}


@dataclass(frozen=True, slots=True)
class WatchedLaunch:
    """A launch that is watched.

    Attributes:
        kernel: its name.
        launch_id: its number in the process.
        grid: programs along x, y, z.
    """

    kernel: str
    launch_id: int
    grid: tuple[int, int, int]

    def program_at(self, linear: int) -> tuple[int, int, int]:
        """(x, y, z) of a program."""
        x, y, _ = self.grid
        return linear % x, linear // x % y, linear // (x * y)


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """What a launch recorded of a site for a plugin.

    Attributes:
        programs: (N,) int64, numbers of programs.
        visits: (N,) how often they came by before.
        values: (N, elements) fp64.
        seen: how many there were, those included that did not fit.
    """

    site: WatchSite
    programs: Tensor
    visits: Tensor
    values: Tensor
    seen: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What a launch showed.

    Attributes:
        values: by program and time.
        counts: how many there were of each watch, and how many are here.
        captured: what plugins wanted.
    """

    values: tuple[WatchedValue, ...]
    counts: tuple[WatchCount, ...]
    captured: tuple[Captured, ...] = ()


class LaunchWatcher(Observer):
    """Looks at the watched values of an interpreted launch.

    Attributes:
        launch: the launch.

    Args:
        module: Tile IR with watches.
        launch: the launch.
        budget_bytes: memory for what native code would keep of it, which is the limit here, too.
    """

    is_passive = True

    def __init__(self, module: Module, launch: WatchedLaunch, budget_bytes: int) -> None:
        self._sites = watch_sites(module.function)
        self._spaces = spaces(self._sites, budget_bytes)
        self.launch = launch
        self._values: list[list[WatchedValue]] = [[] for _ in self._sites]
        self._captured: dict[int, list[tuple[Tensor, Tensor, Tensor]]] = {}
        self._kept = [0] * len(self._sites)
        self._seen = [0] * len(self._sites)

    def moments(self, op: Operation) -> Moments:
        """Before what shows a value."""
        return Moments.BEFORE if tt.Watch.matches(op) else Moments.NEVER

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """A value is shown."""
        view = tt.Watch(op)
        site = self._sites[view.watch]
        visit = run.visit(site.number)
        wanted = _programs_in(run, site)
        if run.active is not None:
            wanted = wanted & run.active
        if not bool(wanted.any()):
            return
        full = run.full(operands[0], view.value.type)
        tile = full.expand(run.programs, *ir.shape_of(view.value.type))
        rows = wanted.nonzero().reshape(-1)
        values = as_numbers(tile[rows].reshape(rows.numel(), -1), site.element, site.is_unsigned)
        if site.plugin:
            room = self._room(site, rows.numel())
            part = (rows + run.first)[:room], visit[rows][:room], values[:room]
            self._captured.setdefault(site.number, []).append(part)
        else:
            self._keep(run, site, rows, visit[rows], values)

    def _room(self, site: WatchSite, count: int) -> int:
        """How many of so many more values are kept."""
        number = site.number
        room = max(0, min(count, self._spaces[number].capacity - self._kept[number]))
        self._kept[number] += room
        self._seen[number] += count
        return room

    def _keep(
        self, run: Evaluator, site: WatchSite, rows: Tensor, visit: Tensor, values: Tensor
    ) -> None:
        summaries, programs = Summaries.of(values), rows + run.first
        if site.node is not None:
            algebra = _Algebra(self.launch.grid, programs, visit, summaries)
            chosen = evaluate(site.node, algebra).expand(rows.numel()).nonzero().reshape(-1)
            programs, visit, values = programs[chosen], visit[chosen], values[chosen]
            summaries = Summaries.of(values) if values.shape[0] else summaries
        kept = self._room(site, programs.numel())
        if kept:
            found = _values(self.launch, site, programs, visit, summaries, values)
            values_kept = [value for value, _ in zip(found, range(kept), strict=False)]
            self._values[site.number] += values_kept

    def seen(self) -> Seen:
        """What the launch showed."""
        captured = [
            Captured(
                self._sites[number],
                torch.cat([programs for programs, _, _ in parts]),
                torch.cat([visits for _, visits, _ in parts]),
                torch.cat([values for _, _, values in parts]),
                self._seen[number],
            )
            for number, parts in self._captured.items()
        ]
        return _in_order(self.launch, self._sites, self._values, self._seen, captured)


def seen_natively(
    plan: ProbePlan,
    launch: WatchedLaunch,
    counters: Sequence[int],
    records: Callable[[int, int], bytes],
) -> Seen:
    """What a native launch showed.

    Args:
        plan: of its kernel.
        launch: the launch.
        counters: of each site.
        records: gives bytes of the records, from a first one on so many.
    """
    values: list[list[WatchedValue]] = []
    captured: list[Captured] = []
    for site, space in zip(plan.watches, spaces(plan.watches, plan.watch_bytes), strict=True):
        count = min(counters[site.number], space.capacity)
        values.append([])
        if not count or is_logged(site):
            continue
        rows = _rows(site, space, count, records)
        if site.plugin:
            programs, visits = rows[:, Word.PROGRAM], rows[:, Word.ITERATION]
            elements = _elements(site, rows[:, HEADER_WORDS:].contiguous())
            captured.append(Captured(site, programs, visits, elements, counters[site.number]))
        else:
            values[-1] += _recorded(launch, site, rows)
    return _in_order(launch, plan.watches, values, counters, captured)


def _in_order(
    launch: WatchedLaunch,
    sites: Sequence[WatchSite],
    values: Sequence[Sequence[WatchedValue]],
    seen: Sequence[int],
    captured: Sequence[Captured],
) -> Seen:
    found = sorted((v for each in values for v in each), key=lambda value: value.order)
    counts = (
        WatchCount(site.watch, launch.kernel, launch.launch_id, count, len(kept))
        for site, kept, count in zip(sites, values, seen, strict=True)
        if not site.plugin
    )
    return Seen(tuple(found), tuple(counts), tuple(captured))


def _programs_in(run: Evaluator, site: WatchSite) -> Tensor:
    """(P,) bool: the programs of the batch that a site is for."""
    linear = torch.arange(run.programs, device=run.device) + run.first
    if not site.programs:
        return torch.ones_like(linear, dtype=torch.bool)
    x, y, _ = run.grid
    places = linear % x, linear // x % y, linear // (x * y)
    found = torch.zeros_like(linear, dtype=torch.bool)
    for box in site.programs:
        inside = torch.ones_like(found)
        for place, (first, end) in zip(places, box, strict=False):
            inside &= (place >= first) & (place < end)
        found |= inside
    return found


def _values(
    launch: WatchedLaunch,
    site: WatchSite,
    programs: Tensor,
    visits: Tensor,
    summaries: Summaries,
    values: Tensor | None,
) -> Iterator[WatchedValue]:
    """A record for each program, from (P,) and (P, elements)."""
    tiles = packed_tiles(values) if site.is_whole and values is not None else iter(())
    counts = torch.stack((programs, visits, summaries.nan, summaries.inf, summaries.zeros), 1)
    # No zero is negative: which one is found first depends on the order.
    numbers = torch.stack((summaries.minimum, summaries.maximum, summaries.mean), 1) + 0.0
    for (program, visit, nan, inf, zeros), (minimum, maximum, mean), histogram in zip(
        counts.tolist(), numbers.tolist(), summaries.histogram, strict=True
    ):
        yield WatchedValue(
            site.watch,
            launch.kernel,
            site.name,
            site.type,
            site.frames,
            launch.launch_id,
            launch.program_at(program),
            visit,
            site.shape,
            nan,
            inf,
            zeros,
            minimum,
            maximum,
            mean,
            bins_of(histogram),
            next(tiles, b""),
        )


def _rows(
    site: WatchSite, space: Space, count: int, records: Callable[[int, int], bytes]
) -> Tensor:
    """The words of the first `count` records of a site, int64."""
    size = count * site.record_words * WORD_BYTES
    data = bytearray(records(space.first_word * WORD_BYTES, size))
    return torch.frombuffer(data, dtype=torch.int64).reshape(count, site.record_words)


def _recorded(launch: WatchedLaunch, site: WatchSite, rows: Tensor) -> Iterator[WatchedValue]:
    """The values of a site's records."""
    programs, visits = rows[:, Word.PROGRAM], rows[:, Word.ITERATION]
    if site.is_whole:
        values = _elements(site, rows[:, HEADER_WORDS:].contiguous())
        summaries = Summaries.of(values)
    else:
        values, summaries = None, _summaries(site, rows)
    yield from _values(launch, site, programs, visits, summaries, values)


def _elements(site: WatchSite, words: Tensor) -> Tensor:
    """The elements of whole tiles as fp64."""
    size = site.elements * site.element_bytes
    assert words.shape[1] * WORD_BYTES >= size
    data = words.view(torch.uint8)[:, :size].contiguous()
    dtype = torch.uint8 if site.element == "i1" else ELEMENT_DTYPES[site.element]
    return as_numbers(data.view(dtype), site.element, site.is_unsigned)


def _summaries(site: WatchSite, rows: Tensor) -> Summaries:
    nan, inf = rows[:, Word.NAN], rows[:, Word.INF]
    is_any = nan < site.elements
    least, most = (
        torch.where(is_any, rows[:, word].contiguous().view(torch.float64), float("nan"))
        for word in (Word.MINIMUM, Word.MAXIMUM)
    )
    mean = mean_of(rows[:, Word.SUM], rows[:, Word.SCALE], site.elements - nan - inf)
    histogram = rows[:, SUMMARY_WORDS : SUMMARY_WORDS + BINS]
    zeros = rows[:, Word.ZEROS]
    return Summaries(site.elements, nan, inf, zeros, least, most, mean, histogram)


class _Algebra:
    """Conditions of several programs, as (P,) or (1,) tensors."""

    def __init__(
        self, grid: tuple[int, int, int], programs: Tensor, visits: Tensor, summaries: Summaries
    ) -> None:
        self._grid = grid
        self._programs = programs
        self._visits = visits
        self._summaries = summaries

    def number(self, value: float) -> Tensor:
        """A constant."""
        return torch.tensor([value], dtype=torch.float64)

    def program(self, axis: int | None) -> Tensor:
        """The program's number."""
        x, y, _ = self._grid
        linear = self._programs
        places = {None: linear, 0: linear % x, 1: linear // x % y, 2: linear // (x * y)}
        return places[axis].to(torch.float64)

    def iteration(self) -> Tensor:
        """How often the program came by before."""
        return self._visits.to(torch.float64)

    def summary(self, field: Field) -> Tensor:
        """A field of the summary."""
        summaries = self._summaries
        if field == "elements":
            return self.number(float(summaries.elements))
        found: Tensor = getattr(summaries, "minimum" if field == "value" else field)
        return found.to(torch.float64)

    def binary(self, operator: Operator, left: Tensor, right: Tensor) -> Tensor:
        """Arithmetic."""
        match operator:
            case "add":
                return left + right
            case "sub":
                return left - right
            case "mul":
                return left * right
            case "div":
                return left / right
        return left - (left / right).floor() * right

    def magnitude(self, operand: Tensor) -> Tensor:
        """Without its sign."""
        return operand.abs()

    def compare(self, predicate: Predicate, left: Tensor, right: Tensor) -> Tensor:
        """A comparison."""
        return _COMPARE[predicate](left, right)

    def combine(self, is_and: bool, left: Tensor, right: Tensor) -> Tensor:
        """Both, or either."""
        return left & right if is_and else left | right

    def negate(self, operand: Tensor) -> Tensor:
        """Whether a condition does not hold."""
        return ~operand
