"""The values that a kernel would compute if some op left its padding out, beside its own values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, deciding, forwarded
from tkdebug.interpreter.blending import blend
from tkdebug.interpreter.checks.padding.facts import counts_elements
from tkdebug.interpreter.checks.shadow_flow import united
from tkdebug.interpreter.numerics.bool_scan import any_true
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

_SUMS = (arith.AddF, arith.SubF, arith.AddI, arith.SubI)
# How far rounding may take results apart that are the same otherwise.
_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 1e-2}
_LOOSEST = 5e-2
_OF_LARGEST = 1e-1


class World:
    """The values that differ where `op` leaves padding out; all others are the kernel's own.

    Attributes:
        op: a reduction, a product, or what accumulates in a loop.
        load: whose masked-off elements it takes in.
        what: how messages call it, such as "max".
        hint: what to do about it.
        values: those that differ.
        untold: programs (P,) that it tells nothing of; None where there are none.
        lost: programs (P,) or (1,) in which a reduction is given what is not finite, where the
            kernel's own is: it tells nothing of them; None where there are none.
    """

    def __init__(self, op: Operation, load: Operation, what: str, hint: str) -> None:
        self.op = op
        self.load = load
        self.what = what
        self.hint = hint
        self.values: dict[Value, TileValue] = {}
        self.untold: Tensor | None = None
        self.lost: Tensor | None = None

    def copied(self) -> World:
        """The same, to go another way."""
        copy = World(self.op, self.load, self.what, self.hint)
        copy.values = dict(self.values)
        copy.untold = self.untold
        return copy

    def note_lost(self, ev: Evaluator, op: Operation, tile: TileValue) -> None:
        """Note where `op`, a reduction, is given what is not finite here alone."""
        value, *_ = op.operands
        if value not in self.values:
            return
        clean, real = ev.full(self.values[value], value.type), ev.full(tile, value.type)
        if clean.is_floating_point() and not bool(clean.isfinite().all()):
            lost = (~clean.isfinite() & real.isfinite()).flatten(1).any(1)
            self.lost = united(self.lost, lost)

    def operands_of(
        self, op: Operation, operands: Sequence[TileValue]
    ) -> Sequence[TileValue] | None:
        """What `op` is given here; None where nothing differs, or it has effects."""
        if OPS[op.name].effects or not any(value in self.values for value in op.operands):
            return None
        return [
            self.values.get(value, tile) for value, tile in zip(op.operands, operands, strict=True)
        ]

    def set_results(self, op: Operation, results: Sequence[TileValue]) -> None:
        """What `op` gives here."""
        for value, result in zip(op.results, results, strict=True):
            self.values[value] = result

    def forget_results(self, op: Operation) -> None:
        """`op` gives what it gives anyway, as far as is known."""
        for value in op.results:
            self.values.pop(value, None)

    def is_corrected_by(self, op: Operation) -> bool:
        """Whether `op` takes away what the padding has added, as in total - (BLOCK - n)."""
        if not any(view.matches(op) for view in _SUMS):
            return False
        others = [value for value in op.operands if value not in self.values]
        return len(others) == 1 and counts_elements(others[0])

    def forward(self, ev: Evaluator, op: Operation) -> bool:
        """Control goes on from `op`; False where it would not go the same way here."""
        if any(value in self.values for value in deciding(op)):
            return False
        forwards: dict[Value, TileValue | None] = {}
        for source, target in forwarded(op):
            if source not in self.values and target not in self.values:
                continue
            forwards[target] = self.values.get(source)
            if op.name in CONTROL_FLOW or ev.active is None:
                continue
            new = self.values.get(source, ev.values.get(source))
            old = self.values.get(target, ev.values.get(target))
            dtype = ev.dtype_of(target.type)
            if old is None and dtype.is_floating_point:
                # Programs that are not in the loop keep what they had, which is gone.
                shape = (1,) * (len(ir.shape_of(target.type)) + 1)
                old = torch.zeros(shape, dtype=dtype, device=ev.device)
                self.untold = united(self.untold, ~ev.active)
            if new is None or old is None:
                return False
            forwards[target] = blend(ev, ev.active, new, old, target.type)
        for target, clean in forwards.items():
            if clean is None:
                self.values.pop(target, None)
            else:
                self.values[target] = clean
        return True


def differs(real: Tensor, clean: Tensor) -> bool:
    """Whether two tiles have a difference at all."""
    return any_true(different(real, clean))


def different(real: Tensor, clean: Tensor) -> Tensor:
    """Where two tiles differ by more than rounding explains.

    What would not be finite without the padding shows nothing.
    """
    if not real.is_floating_point():
        return real != clean
    tolerance = _TOLERANCES.get(real.dtype, _LOOSEST)
    a, b = real.double(), clean.double()
    finite = b[b.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    bound = tolerance * (b.abs() + _OF_LARGEST * largest)
    return b.isfinite() & ~((a - b).abs() <= bound)
