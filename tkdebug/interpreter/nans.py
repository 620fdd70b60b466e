"""Follows each NaN that a kernel stores back to the op that made it.

After every op its result is looked at. A NaN whose operands have none is born there; else it has
the origin of the operand that has one. NaNs that a kernel loads are its input's, and those that
`tl.where` drops end there, so that rows that are masked off later are of no concern. Only what is
stored is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, forwarded
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.faults import FaultLog, Offender
from tkdebug.interpreter.observed_access import ObservedAccess
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.values import BoxTile, TileValue

_SYMBOLS = {"arith.addf": "+", "arith.subf": "-", "arith.mulf": "*", "arith.divf": "/"}
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class Birth:
    """The op that made a NaN, where first, and of what, such as "0.0 / 0.0" ("" when unknown)."""

    op: Operation
    offender: Offender
    cause: str


class NanCheck(Observer):
    """`--check nan`."""

    needs_intermediates = True
    follows_accesses = True
    memory_factor = 4  # index vectors of each access

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults

    def moments(self, op: Operation) -> Moments:
        """At every op."""
        return Moments.BEFORE | Moments.AFTER

    def of_batch(self, run: Evaluator) -> Observer:
        """Origins of one batch."""
        return NanTracker(self._faults)


class NanTracker(Observer):
    """The origins of the NaNs in one batch; an origin is a birth, or None for the input."""

    def __init__(self, faults: FaultLog) -> None:
        self._faults = faults
        self._origins: dict[Value, Birth | None] = {}

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """`op` is about to run: at a branch, what it forwards keeps its origin."""
        # Without a NaN what was there stays: it may be of programs that went another way.
        self._origins |= {
            target: self._origins[source]
            for source, target in forwarded(op)
            if source in self._origins
        }

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """An op gave `results`."""
        if not op.results or op.name in CONTROL_FLOW:
            return results  # what regions give came through their terminators
        for value, result in zip(op.results, results, strict=True):
            if not _has_nan(result, run.active):
                self._origins.pop(value, None)
                continue
            carriers = [
                given
                for given, tile in zip(op.operands, operands, strict=True)
                if _has_nan(tile, run.active)
            ]
            if carriers:
                self._origins[value] = self._origins.get(carriers[0])
            elif "load" in op.name or "atomic" in op.name or "gather" in op.name:
                self._origins[value] = None
            else:
                self._origins[value] = self._birth(run, op, operands, result)
        return results

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before a store: tell of the NaNs among what it stores."""
        op, buffer = access.op, access.buffer
        birth = self._origins.get(op.operands[1])
        if birth is None or access.stored_tile().dtype not in _FLOATS:
            return
        bad = access.stored().isnan().nonzero().reshape(-1)
        if bad.numel():
            at = int(access.touch().places[bad[0]]) - buffer.storage_offset
            count = int(bad.numel())
            self._faults.nan(birth.op, birth.offender, birth.cause, op, buffer.name, at, count)

    def _birth(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        result: TileValue,
    ) -> Birth:
        dense = run.full(result, op.result.type)
        bad = dense.isnan()
        if run.active is not None and bad.shape[0] == run.active.shape[0]:
            bad = bad & run.active.reshape(-1, *(1,) * (bad.dim() - 1))
        flat = int(bad.reshape(-1).to(torch.uint8).argmax())
        place = []
        for extent in reversed(bad.shape):
            place.append(flat % extent)
            flat //= extent
        program, *lane = reversed(place)
        if run.active is not None and bad.shape[0] == 1:
            program = int(run.active.nonzero()[0])
        offender = Offender(run.program_at(program), tuple(lane), None)
        return Birth(op, offender, _cause(run, op, operands, (program, *lane)))


def _has_nan(tile: TileValue, active: Tensor | None) -> bool:
    if isinstance(tile, BoxTile):
        return _has_nan(tile.data, active) or _has_nan(tile.fill, active)
    if not isinstance(tile, Tensor) or tile.dtype not in _FLOATS:
        return False
    if active is not None and tile.shape[0] == active.shape[0]:
        tile = tile[active]
    return bool(tile.isnan().any())


def _cause(
    run: Evaluator, op: Operation, operands: Sequence[TileValue], place: tuple[int, ...]
) -> str:
    """What an elementwise op was given at `place`."""
    shown = []
    for tile, value in zip(operands, op.operands, strict=True):
        if not isinstance(tile, Tensor | BoxTile):
            return ""
        dense = run.full(tile, value.type)
        if dense.dim() != len(place) or dense.dtype not in _FLOATS:
            return ""
        if any(n != 1 and at >= n for at, n in zip(place, dense.shape, strict=True)):
            return ""
        at = tuple(0 if n == 1 else p for p, n in zip(place, dense.shape, strict=True))
        shown.append(f"{float(dense[at]):g}")
    if op.name in _SYMBOLS and len(shown) == 2:
        return f"{shown[0]} {_SYMBOLS[op.name]} {shown[1]}"
    if op.name.startswith("math."):
        return f"{op.name.removeprefix('math.')}({', '.join(shown)})"
    return ""
