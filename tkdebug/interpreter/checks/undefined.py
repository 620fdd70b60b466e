"""Follows undefined values to where they are used.

They are the results of an integer division by zero and of a shift past the width and, if that is
asked for, of a load without `other` where its mask is false. All are harmless if nothing uses them:
in elements that are masked off, or that `tl.where` drops. So each is followed through the ops after
it, and reported when a store writes it, or when an access, a branch or a loop depends on it. Until
one occurs, only divisors, the amounts of shifts, and masks are looked at.

Offsets that wrapped are followed in the same way, and reported if an access uses them. Negative
remainders are reported if an access uses them as they are; those to which the divisor, or a
constant such as a halo's, was added, if they lead before the tensor. `row * stride` in int32 wraps
where a tensor has more than 2**31 elements, and the access goes elsewhere in the same tensor as
often as outside it. A wrapped value is no fault by itself: hashes wrap on purpose, and take a
remainder or some bits before they address anything. So sums, differences and products count only if
such arithmetic, and ops that move elements, are all that lies between them and a pointer. `h - h //
n * n` is a remainder, and so no difference. A remainder is followed by itself: `%` keeps the sign
of its left operand, which a wrap may have made negative.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from tkdebug.compiler.analysis import offset_arithmetic
from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import accessed
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.faults.messages import op_text
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, deciding
from tkdebug.compiler.ir.core import fact_of
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.shadow_values import (
    Origin,
    ShadowValues,
    element_at,
    is_in_kernel,
    shadows_of_results,
    united,
)
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.checked_access import mask_of
from tkdebug.interpreter.numerics.scans import any_true
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.tiles.values import AffineTile, BoxTile, PointerTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator

_MAY_BE_UNDEFINED = names_of(arith.IntegerDivision, arith.Shift, tt.Load)


def may_be_undefined(op: Operation) -> bool:
    """Whether `op` may give undefined elements."""
    if op.name not in _MAY_BE_UNDEFINED or (tt.Load.matches(op) and not _lacks_other(op)):
        return False
    return is_in_kernel(op)


def _lacks_other(op: Operation) -> bool:
    """Whether a load has a mask and no `other`, and is no block access.

    Blocks without padding are not reported: such kernels rely on zeros, and get them.
    """
    return (
        mask_of(op) is not None and len(op.operands) == 2 and "boundary_check" not in op.attributes
    )


@dataclass(frozen=True, slots=True)
class Sources:
    """The ops of a module that may give followed values.

    Attributes:
        ops: divisions, remainders and shifts.
        loads: loads that have a mask and no `other`.
        offsets: the arithmetic that makes offsets of pointers.
    """

    ops: frozenset[Operation]
    loads: frozenset[Operation]
    offsets: offset_arithmetic.OffsetArithmetic

    @classmethod
    def of(cls, module: Module) -> Sources:
        """Return the sources of a module, found when they are first asked for."""
        return fact_of(module, cls, cls._made)

    @classmethod
    def _made(cls, module: Module) -> Sources:
        found = [op for op in module.walk() if may_be_undefined(op)]
        loads = frozenset(op for op in found if tt.Load.matches(op))
        offsets = offset_arithmetic.offset_arithmetic(module)
        return cls(frozenset(found) - loads, loads, offsets)


def may_wrap(op: Operation, operands: Sequence[TileValue], result: TileValue) -> bool:
    """Whether `result`, which `op` gave, may have wrapped."""
    if isinstance(result, AffineTile):
        return False  # which never wraps
    (low, high), (low2, high2) = map(_bounds, operands)
    symbol = arith.WrappingBinary(op).sign
    if symbol == "*":
        corners = [low * low2, low * high2, high * low2, high * high2]
    elif symbol == "+":
        corners = [low + low2, high + high2]
    else:
        corners = [low - high2, high - low2]
    limit = 1 << (ir.element_of(op.result.type).bits - 1)
    return min(corners) < -limit or max(corners) >= limit


def may_be_negative(result: TileValue) -> bool:
    """Whether `result`, of a remainder, may be below 0."""
    return _bounds(result)[0] < 0


def wraps(op: Operation, left: Tensor, right: Tensor) -> Tensor:
    """Return which results of `op` would not fit its type."""
    a, b = left.to(torch.int64), right.to(torch.int64)
    symbol = arith.WrappingBinary(op).sign
    if symbol == "*":
        exact = a * b
    else:
        exact = a + b if symbol == "+" else a - b
    limit = 1 << (ir.element_of(op.result.type).bits - 1)
    return (exact < -limit) | (exact >= limit)


def _bounds(tile: TileValue) -> tuple[int, int]:
    if isinstance(tile, int):
        return tile, tile
    if isinstance(tile, AffineTile):
        return tile.bounds()
    if isinstance(tile, BoxTile):
        low, high = _bounds(tile.data)
        low2, high2 = _bounds(tile.fill)
        return min(low, low2), max(high, high2)
    assert isinstance(tile, Tensor)
    if not tile.numel():
        return 0, 0
    least, most = tile.aminmax()
    return int(least), int(most)


_NEGATIVE = ("remainder", "corrected")
# What hands a remainder on as it is.
_KEEPING = names_of(arith.ExtSI, arith.Select, tt.Rearrangement)
_OFFSET_CARRIERS = offset_arithmetic.CARRIERS | tt.AddPtr.names


def _is_constant(value: Value) -> bool:
    return constant_value(traced(value, tt.Rearrangement.names)) is not None


_LEAVING = names_of(scf.Yield, scf.Condition)
_DECISIONS = {
    scf.If.name: "decides a branch",
    scf.For.name: "bounds a loop",
    scf.Condition.name: "decides a loop",
}
# The use of each operand of an access, without the pointer, the first one.
_STORING = names_of(tt.Store, tt.Atomic)
_ACCESSES = _STORING | tt.Load.names


@dataclass(frozen=True, slots=True)
class UndefinedOrigin(Origin):
    """One run of an op that gave undefined elements.

    Attributes:
        kind: "undefined", or for offsets: "wrapped"; "hashed", wrapped, but only used for
            remainders; "remainder", a negative remainder, by `op` itself or because `op` wrapped;
            "corrected", a remainder to which the divisor or a constant was added.
    """

    kind: Literal["undefined", "wrapped", "hashed", "remainder", "corrected"] = "undefined"

    @property
    def is_wrapped(self) -> bool:
        """Whether the elements themselves, and not remainders of them, have wrapped."""
        return self.kind in ("wrapped", "hashed")

    @property
    def is_plain_remainder(self) -> bool:
        """Whether `op` is a remainder, its result is negative, and nothing was added to it."""
        return self.kind == "remainder" and self.op.name == offset_arithmetic.REMAINDER

    def shown(self, at: tuple[int, ...]) -> str:
        """Return the text of the op at an element, such as "7 // 0"; "" for a load."""
        if not self.operands:
            return ""
        left, right = (int(element_at(values, at)) for values in self.operands)
        return op_text(self.op, (str(left), str(right)))


# The shadows of one value, by the op that they come from.
Shadow = dict[Operation, tuple[UndefinedOrigin, Tensor]]


class UndefinedElements(ShadowValues[UndefinedOrigin]):
    """The undefined elements of one batch of programs."""

    def __init__(self, ev: Evaluator, faults: FaultLog, sources: Sources, of_loads: bool) -> None:
        super().__init__(ev)
        self._faults = faults
        self._sources = sources
        self._of_loads = of_loads

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Find undefined results of `op`, about to run, and its uses of undefined values."""
        self._look_at(op, operands)
        run.attend(self, bool(self.shadows))

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """Follow elements of an offset that have wrapped or are negative remainders."""
        if op in self._sources.offsets.remainders:
            if may_be_negative(results[0]):
                self._negative_remainder(op, operands, results[0])
        elif may_wrap(op, operands, results[0]):
            self._wrapped(op, operands)
        run.attend(self, bool(self.shadows))
        return results

    def _look_at(self, op: Operation, operands: Sequence[TileValue]) -> None:
        if op.name in CONTROL_FLOW:
            self.enter(op)
            return
        if op.name in _LEAVING:
            self.leave(op)
            return
        if op.name in _ACCESSES and self.shadows:
            self._accessed(op, operands)
        found = self._flow(op, operands)
        if op in self._sources.ops or op in self._sources.loads:
            self._add_origin(op, operands, found)
        for value, shadows in zip(op.results, found, strict=True):
            self.set_shadow(value, shadows)

    def _wrapped(self, op: Operation, operands: Sequence[TileValue]) -> None:
        """Look at `op`, which moves pointers, has run and may have wrapped."""
        ev = self._ev
        types = [value.type for value in op.operands]
        values = [ev.dense(tile, type_) for tile, type_ in zip(operands, types, strict=True)]
        bad = self.of_active(wraps(op, *values))
        lost = self._cancelled(op)
        if lost is not None:
            bad = bad & ~lost
        known = self.shadows.get(op.result, {})
        if not arith.MulI.matches(op):
            # A value that wraps twice in a sum has come back.
            for key, (origin, shadow) in list(known.items()):
                if origin.is_wrapped:
                    known[key] = (origin, shadow & ~bad)
                    bad = bad & ~shadow
        if any_true(bad):
            bad = ev.full(bad, types[0])
            shadow = bad | known[op][1] if op in known else bad
            hashed = op in self._sources.offsets.hashed
            origin = UndefinedOrigin(op, bad, tuple(values), "hashed" if hashed else "wrapped")
            self.shadows[op.result] = {**known, op: (origin, shadow)}

    def _negative_remainder(
        self, op: Operation, operands: Sequence[TileValue], result: TileValue
    ) -> None:
        """Look at `op`, a remainder that moves pointers and may have given negative numbers."""
        ev = self._ev
        bad = self.of_active(ev.dense(result, op.result.type) < 0)
        known = dict(self.shadows.get(op.result, {}))
        for origin, shadow in self.shadows.get(arith.RemSI(op).lhs, {}).values():
            if origin.is_wrapped and any_true(bad & shadow):
                known[origin.op] = (replace(origin, kind="remainder"), bad & shadow)
                bad = bad & ~shadow
        if op not in known and any_true(bad):
            types = [value.type for value in op.operands]
            values = tuple(map(ev.dense, operands, types))
            bad = ev.full(bad, types[0])
            known[op] = (UndefinedOrigin(op, bad, values, "remainder"), bad)
        if known:
            self.shadows[op.result] = known

    # Origins

    def _add_origin(
        self, op: Operation, operands: Sequence[TileValue], found: list[Shadow]
    ) -> None:
        is_load = tt.Load.matches(op)
        bad = self._masked_off(op, operands[1]) if is_load else self._bad(op, operands[1])
        if bad is None:
            return
        ev = self._ev
        types = [value.type for value in op.operands]
        values = () if is_load else tuple(map(ev.dense, operands, types))
        bad = ev.full(bad, types[0])
        old = found[0].get(op)
        shadow = bad if old is None else bad | old[1]
        found[0][op] = (UndefinedOrigin(op, bad, values), shadow)

    def _masked_off(self, op: Operation, mask: TileValue) -> Tensor | None:
        """Return where a load without `other` is masked off; None for nowhere, or if unwanted."""
        given = mask_of(op)
        if not self._of_loads or given is None or (isinstance(mask, int) and mask):
            return None
        bad = self.of_active(~self._ev.dense(mask, given.type).bool())
        return bad if any_true(bad) else None

    def _bad(self, op: Operation, right: TileValue) -> Tensor | None:
        """Return where the op is not defined for its second operand; None for nowhere."""
        bits = ir.element_of(op.result.type).bits
        shifts = arith.Shift.matches(op)
        low, high = (0, bits - 1) if shifts else (None, None)
        if isinstance(right, int):
            if right != 0 if low is None or high is None else low <= right <= high:
                return None
        elif isinstance(right, AffineTile):
            least, most = right.bounds()
            if low is None or high is None:
                if least > 0 or most < 0:
                    return None
            elif low <= least and most <= high:
                return None
        values = self._ev.dense(right, arith.Binary(op).rhs.type)
        bad = (values < 0) | (values >= bits) if shifts else values == 0
        bad = self.of_active(bad)
        return bad if any_true(bad) else None

    # Flow

    def _flow(self, op: Operation, operands: Sequence[TileValue]) -> list[Shadow]:
        results: list[Shadow] = [{} for _ in op.results]
        each = [self.shadows.get(value) for value in op.operands]
        if not results or not any(each):
            return results
        merged = [self._merged(shadows) for shadows in each]
        origins: dict[Operation, UndefinedOrigin] = {}
        for key, (origin, _) in (item for shadows in each if shadows for item in shadows.items()):
            if key not in origins or origin.kind == "corrected":
                origins[key] = origin
        lost = self._cancelled(op)
        for key, origin in origins.items():
            if origin.kind != "undefined" and op.name not in _OFFSET_CARRIERS:
                continue  # bits or a limit: it was meant
            if origin.is_plain_remainder and self._corrects(op, operands, origin):
                origin = replace(origin, kind="corrected")
            shadows = [found[key][1] if found and key in found else None for found in each]
            flowed = shadows_of_results(self._ev, op, operands, shadows, merged)
            for result, shadow in zip(results, flowed, strict=True):
                if shadow is not None and lost is not None and origin.is_wrapped:
                    shadow = shadow & ~lost
                if shadow is not None and any_true(shadow):
                    result[key] = (origin, shadow)
        return results

    def _corrects(
        self, op: Operation, operands: Sequence[TileValue], origin: UndefinedOrigin
    ) -> bool:
        """Whether `op` corrects a negative remainder: adds the divisor, or any constant.

        Ops that neither add, multiply nor keep the number count as corrections, too.
        """
        if tt.AddPtr.matches(op):
            before = tt.AddPtr.cast(
                traced(tt.AddPtr(op).pointer, tt.Rearrangement.names).defining_op
            )
            if before is not None and _is_constant(before.offset):
                return True
        elif not arith.AddI.matches(op):
            return not (arith.MulI.matches(op) or op.name in _KEEPING)
        divisor = traced(arith.RemSI(origin.op).rhs, tt.Rearrangement.names)
        for value, tile in zip(op.operands, operands, strict=True):
            if origin.op in self.shadows.get(value, {}) or isinstance(tile, PointerTile):
                continue
            added = traced(value, tt.Rearrangement.names)
            choice = arith.Select.cast(added.defining_op)
            choices = [added]
            if choice is not None:
                choices += [choice.true_value, choice.false_value]
            if _is_constant(added) or divisor in (
                traced(one, tt.Rearrangement.names) for one in choices
            ):
                return True
            if added.defining_op is None:  # an argument, as a rule, of the divisor's value
                values = self._ev.dense(tile, value.type)
                return bool((values == origin.operands[1].reshape(-1)[0]).all())
        return False

    def _cancelled(self, op: Operation) -> Tensor | None:
        """Return where both operands of a difference wrapped, so that it may be right, or None."""
        if not arith.SubI.matches(op):
            return None
        left, right = (self._wrapped_of(value) for value in op.operands)
        return None if left is None or right is None else left & right

    def _wrapped_of(self, value: Value) -> Tensor | None:
        total = None
        for origin, shadow in self.shadows.get(value, {}).values():
            if origin.is_wrapped:
                total = united(total, shadow)
        return total

    def _merged(self, shadows: Shadow | None) -> Tensor | None:
        total = None
        for _, shadow in (shadows or {}).values():
            total = united(total, shadow)
        return total

    def decided(self, op: Operation) -> None:
        """Report undefined values that decide a branch or a loop."""
        for value in deciding(op):
            self._used(op, value, _DECISIONS[op.name])

    # Uses

    def _accessed(self, op: Operation, operands: Sequence[TileValue]) -> None:
        """Report undefined elements that an access stores, or uses as offset or mask."""
        mask = mask_of(op)
        allowed = self._allowed(op, operands, mask)
        for place, value in enumerate(op.operands):
            shadows = self.shadows.get(value)
            if not shadows or (tt.Load.matches(op) and place > 0 and value is not mask):
                continue
            use = "is stored"
            if place == 0:
                use = "is the address accessed"
            elif value is mask:
                use = "masks the access"
            for origin, shadow in shadows.values():
                if origin.kind == "hashed" or (origin.kind != "undefined" and place > 0):
                    continue
                used = shadow if value is mask else shadow & allowed
                if origin.kind in _NEGATIVE and not origin.is_plain_remainder:
                    used = used & self._before_tensor(op, operands[0])
                how = use
                if origin.kind != "undefined" and isinstance(operands[0], PointerTile):
                    how = "leads"
                self._tell(op, origin, self.of_active(used), how, operands[0])

    def _before_tensor(self, op: Operation, pointer: TileValue) -> Tensor | bool:
        """Return where an access has an offset below 0; False if it has no offsets."""
        if not isinstance(pointer, PointerTile):
            return False
        shape = ir.shape_of(accessed(op).type)
        return self._ev.dense(pointer.offset, ir.tile(shape, ir.I64)) < 0

    def _allowed(
        self, op: Operation, operands: Sequence[TileValue], mask: Value | None
    ) -> Tensor | bool:
        if mask is None:
            return True
        place = next(at for at, value in enumerate(op.operands) if value is mask)
        return self._ev.dense(operands[place], mask.type).bool()

    def _used(self, op: Operation, value: Value, use: str) -> None:
        for origin, shadow in self.shadows.get(value, {}).values():
            if origin.kind != "undefined":
                continue
            self._tell(op, origin, self.of_active(shadow), use, None)

    def _tell(
        self,
        op: Operation,
        origin: UndefinedOrigin,
        used: Tensor,
        use: str,
        pointer: TileValue | None,
    ) -> None:
        if not any_true(used):
            return
        active = self._ev.active
        if used.shape[0] == 1:  # the same in all programs
            used = used.expand(self._ev.programs, *used.shape[1:])
            if active is not None:
                used = used & active.reshape(-1, *(1,) * (used.dim() - 1))
        used = used.expand(used.shape[0], *ir.shape_of(op.operands[0].type))
        place = used.nonzero()[0].tolist()
        program, lane = place[0], tuple(place[1:])
        at = origin.place_of(program, lane)
        offender = Offender(self._ev.program_at(program), at[1:], None)
        tensor, index = None, None
        if isinstance(pointer, PointerTile) and use in ("is stored", "leads"):
            tensor = pointer.buffer.name
            index = self._offset(op, pointer, program, lane)
        count = int(used.sum())
        is_negative = origin.op.name == offset_arithmetic.REMAINDER and origin.kind in _NEGATIVE
        self._faults.undefined(
            origin.op, offender, origin.shown(at), op, use, tensor, index, count, is_negative
        )

    def _offset(
        self, op: Operation, pointer: PointerTile, program: int, lane: tuple[int, ...]
    ) -> int:
        shape = ir.shape_of(accessed(op).type)
        offsets = self._ev.full(pointer.offset, ir.tile(shape, ir.I64))
        return int(element_at(offsets, (program, *lane)))


class UndefinedValues(Observer):
    """Reports where undefined values, and offsets that wrapped, are used.

    Args:
        module: the module that is launched.
        faults: the log that it reports to.
        of_loads: whether masked-off elements of loads without `other` are undefined, too.
    """

    is_passive = True

    def __init__(self, module: Module, faults: FaultLog, of_loads: bool) -> None:
        self._sources = Sources.of(module)
        self._faults = faults
        self._of_loads = of_loads

    @property
    def key(self) -> Hashable:
        """Key that differs by whether loads are looked at, which is optional."""
        return type(self), self._of_loads

    def moments(self, op: Operation) -> Moments:
        """Ask for ops that may be undefined or wrap; for others only while such values exist."""
        sources = self._sources
        moments = Moments.NEVER
        if op in sources.ops or (self._of_loads and op in sources.loads):
            moments |= Moments.BEFORE
        if any(op in ops for ops in (sources.offsets.sums, sources.offsets.hashed)):
            moments |= Moments.AFTER
        if op in sources.offsets.remainders:
            moments |= Moments.AFTER
        return moments

    def of_batch(self, run: Evaluator) -> Observer:
        """Return the tracker of the undefined elements of one batch."""
        return UndefinedElements(run, self._faults, self._sources, self._of_loads)
