"""What a kernel promises the compiler, checked: `tl.assume`, `tl.multiple_of` and its kin.

Native code is generated as if each promise held, so one that does not makes it read and write
elsewhere, though the same kernel is right under interpret. Only what would mislead is told: a row
of offsets that begins again at 0, as `% M` and `tl.where(offs < M, offs, 0)` give, is what kernels
mean by a contiguous row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.values import AddressTile, AffineTile, PointerTile, TileValue

_CALLS = {
    "divisibility": "tl.multiple_of",
    "contiguity": "tl.max_contiguous",
    "constancy": "tl.max_constancy",
}


class PromiseOps(EvaluatorState):
    """tt.assume and tt.hint."""

    def assume(self, op: Operation, condition: TileValue) -> Sequence[TileValue]:
        """tt.assume: a fault where the condition is false."""
        if isinstance(condition, int) and condition:
            return ()
        shape = ir.shape_of(op.operands[0].type)
        held = self.dense(condition, op.operands[0].type).bool()
        self._tell_broken(op, ~held, shape, None)
        return ()

    def hint(self, op: Operation, value: TileValue) -> Sequence[TileValue]:
        """tt.hint: its operand; a fault where it is not what was promised."""
        if isinstance(value, PointerTile | AddressTile):
            return (value,)  # of addresses, which are the stand-in's and no GPU's
        promised = op.attributes["values"]
        assert isinstance(promised, tuple)
        type_ = op.operands[0].type
        shape = ir.shape_of(type_)
        kind = str(op.attributes["kind"])
        if isinstance(value, int) and (kind != "divisibility" or value % _largest(promised) == 0):
            return (value,)
        if kind == "contiguity" and _counts_up(value, promised):
            return (value,)
        values = self.full(value, type_)
        for axis, number in enumerate(promised):
            assert isinstance(number, int)
            if number > 1:
                bad = _broken(values, axis + 1 if shape else None, kind, number)
                self._tell_broken(op, bad, shape, values)
        return (value,)

    def _tell_broken(
        self, op: Operation, bad: Tensor, shape: tuple[int, ...], values: Tensor | None
    ) -> None:
        bad = bad.expand(self.programs, *shape)
        if self.active is not None:
            bad = bad & self.active.reshape(-1, *(1,) * len(shape))
        if not bool(bad.any()):
            return
        found = self.offender(bad, values, None)
        count = int(bad.sum())
        if values is None:
            self.faults.broken_promise(op, found, "tl.assume", "is false here", count)
            return
        call = _CALLS[str(op.attributes["kind"])]
        numbers = op.attributes["values"]
        assert isinstance(numbers, tuple)
        given = str(numbers[0]) if len(numbers) == 1 else str(list(numbers))
        what = f"{given} does not hold: the value is {found.index} here"
        self.faults.broken_promise(op, found, call, what, count)


def _largest(promised: tuple[object, ...]) -> int:
    return max(number for number in promised if isinstance(number, int))


def _counts_up(value: TileValue, promised: tuple[object, ...]) -> bool:
    """Whether a tile is seen to be contiguous without looking at its elements."""
    if not isinstance(value, AffineTile):
        return False
    base = value.base
    return all(
        number == 1 or (coef == 1 and (base is None or base.tensor.shape[axis + 1] == 1))
        for axis, (coef, number) in enumerate(zip(value.coefs, promised, strict=True))
    )


def _broken(values: Tensor, axis: int | None, kind: str, number: int) -> Tensor:
    """Where `values` are not what was promised along `axis` (None for scalars)."""
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
    """The first elements of each `number` along `axis`."""
    places = torch.arange(is_first.shape[axis], device=is_first.device) % number == 0
    return places.reshape(-1, *(1,) * (is_first.dim() - axis - 1))
