"""Checks the assumptions that a kernel states: `tl.assume`, `tl.multiple_of` and its kin.

Native code is generated as if each assumption held, so a false one makes it read and write
elsewhere, though the same kernel is right under interpret. Only assumptions that would mislead the
compiler are reported: a row of offsets that begins again at 0, as `% M` and `tl.where(offs < M,
offs, 0)` give, is what kernels mean by a contiguous row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.tiles.values import AddressTile, AffineTile, PointerTile, TileValue

_CHECKED = names_of(tt.Assume, tt.Hint)
_CALLS = {
    "divisibility": "tl.multiple_of",
    "contiguity": "tl.max_contiguous",
    "constancy": "tl.max_constancy",
}


class AssumptionCheck(Observer):
    """Reports false tt.assume and tt.hint."""

    is_passive = True

    def __init__(self, faults: FaultLog) -> None:
        self._faults = faults

    def moments(self, op: Operation) -> Moments:
        """Ask to be called before tt.assume and tt.hint."""
        return Moments.BEFORE if op.name in _CHECKED else Moments.NEVER

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Check the assumption that a tt.assume or a tt.hint states."""
        (value,) = operands
        if tt.Assume.matches(op):
            self._look_at_assumption(run, tt.Assume(op), value)
        else:
            self._look_at_hint(run, tt.Hint(op), value)

    def _look_at_assumption(self, run: Evaluator, assume: tt.Assume, condition: TileValue) -> None:
        if isinstance(condition, int) and condition:
            return
        type_ = assume.condition.type
        held = run.dense(condition, type_).bool()
        self._tell(run, assume.op, ~held, ir.shape_of(type_), None)

    def _look_at_hint(self, run: Evaluator, hint: tt.Hint, value: TileValue) -> None:
        if hint.kind not in _CALLS:
            return  # of the starts of blocks, which are judged where the blocks are accessed
        if isinstance(value, PointerTile | AddressTile):
            return  # of addresses, which are the stand-in's and no GPU's
        assumed, kind = hint.values, hint.kind
        type_ = hint.source.type
        shape = ir.shape_of(type_)
        if isinstance(value, int) and (kind != "divisibility" or value % max(assumed) == 0):
            return
        if kind == "contiguity" and _counts_up(value, assumed):
            return
        values = run.full(value, type_)
        for axis, number in enumerate(assumed):
            if number > 1:
                bad = _broken(values, axis + 1 if shape else None, kind, number)
                self._tell(run, hint.op, bad, shape, values)

    def _tell(
        self,
        run: Evaluator,
        op: Operation,
        bad: Tensor,
        shape: tuple[int, ...],
        values: Tensor | None,
    ) -> None:
        bad = bad.expand(run.programs, *shape)
        if run.active is not None:
            bad = bad & run.active.reshape(-1, *(1,) * len(shape))
        if not bool(bad.any()):
            return
        found = run.offender(bad, values, None)
        count = int(bad.sum())
        if values is None:
            self._faults.false_assumption(op, found, "tl.assume", "is false here", count)
            return
        hint = tt.Hint(op)
        call, numbers = _CALLS[hint.kind], hint.values
        given = str(numbers[0]) if len(numbers) == 1 else str(list(numbers))
        what = f"{given} does not hold: the value is {found.index} here"
        self._faults.false_assumption(op, found, call, what, count)


def _counts_up(value: TileValue, assumed: tuple[int, ...]) -> bool:
    """Whether a tile is known to be contiguous as assumed, without a look at its elements."""
    if not isinstance(value, AffineTile):
        return False
    base = value.base
    return all(
        number == 1 or (coef == 1 and (base is None or base.shape[axis + 1] == 1))
        for axis, (coef, number) in enumerate(zip(value.coefs, assumed, strict=True))
    )


def _broken(values: Tensor, axis: int | None, kind: str, number: int) -> Tensor:
    """Find the `values` that break the assumption along `axis` (None for scalars)."""
    if axis is None:
        return values % number != 0 if kind == "divisibility" else torch.zeros_like(values).bool()
    before = values.roll(1, axis)
    is_first = torch.zeros_like(values, dtype=torch.bool)
    is_first.narrow(axis, 0, 1).fill_(True)
    if kind == "constancy":
        return (values != before) & ~_starts(is_first, axis, number)
    follows = (values == before + 1) & ~is_first
    if kind == "divisibility":
        return ~follows & (values % number != 0)
    return ~follows & (values != 0) & ~_starts(is_first, axis, number)


def _starts(is_first: Tensor, axis: int, number: int) -> Tensor:
    """Return which positions along `axis` begin a group of `number` elements."""
    places = torch.arange(is_first.shape[axis], device=is_first.device) % number == 0
    return places.reshape(-1, *(1,) * (is_first.dim() - axis - 1))
