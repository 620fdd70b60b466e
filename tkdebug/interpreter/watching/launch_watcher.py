"""Watched values of launches: of interpreted ones, and those that native ones recorded.

Invariant: both give the same values for the same elements, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.sites.watches import (
    WatchSite,
    spaces,
    watch_sites,
)
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.tiles.values import TileValue
from tkdebug.interpreter.watching.records import (
    Captured,
    Seen,
    Summaries,
    WatchedLaunch,
    as_numbers,
    in_order,
    values_of,
)
from tkdebug.watches.conditions import Field, Operator, Predicate, evaluate
from tkdebug.watches.records import WatchedValue

_COMPARE = {
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
}


class LaunchWatcher(Observer):
    """Looks at the watched values of an interpreted launch.

    Attributes:
        launch: the launch.

    Args:
        module: Tile IR with watches.
        launch: the launch.
        budget_bytes: memory for the values that native code would keep, which is the limit here,
            too.
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
        """Ask to be called before ops that show a value."""
        return Moments.BEFORE if tt.Watch.matches(op) else Moments.NEVER

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Summarise a value that is shown."""
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
        """Count `count` more values of a site; return how many of them are to be kept."""
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
            found = values_of(self.launch, site, programs, visit, summaries, values)
            values_kept = [value for value, _ in zip(found, range(kept), strict=False)]
            self._values[site.number] += values_kept

    def seen(self) -> Seen:
        """Return the watched values of the launch."""
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
        return in_order(self.launch, self._sites, self._values, self._seen, captured)


def _programs_in(run: Evaluator, site: WatchSite) -> Tensor:
    """Return the programs of the batch that a site is for, (P,) bool."""
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
        """Return the number of the program's earlier visits."""
        return self._visits.to(torch.float64)

    def summary(self, field: Field) -> Tensor:
        """A field of the summary."""
        summaries = self._summaries
        if field == "elements":
            return self.number(float(summaries.elements))
        found: Tensor = getattr(summaries, "minimum" if field == "value" else field)
        return found.to(torch.float64)

    def binary(self, operator: Operator, left: Tensor, right: Tensor) -> Tensor:
        """Apply an arithmetic operator."""
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
        """Return a number without its sign."""
        return operand.abs()

    def compare(self, predicate: Predicate, left: Tensor, right: Tensor) -> Tensor:
        """Compare two numbers."""
        return _COMPARE[predicate](left, right)

    def combine(self, is_and: bool, left: Tensor, right: Tensor) -> Tensor:
        """Combine two conditions by `and` or by `or`."""
        return left & right if is_and else left | right

    def negate(self, operand: Tensor) -> Tensor:
        """Invert a condition."""
        return ~operand
