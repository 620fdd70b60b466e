"""Follows each Inf that a kernel makes of finite values, and stores, back to the op that made it.

Batches run unobserved, and only what they store is looked at; one that stores what is
not finite is run again, op by op. Where batches cannot be run again, ops are looked at from the
start.

Only what is in memory when the launch ends is reported, as an Inf or as the NaN that it became:
what a mask, a `tl.where`, an `exp` or a division by it drops is of no concern. An Inf that is
loaded, or written in the kernel (`float("-inf")`), has no origin here; nor has one of a cast, which
is `narrowing`.
The logarithm of 0 is reported only where it turns into +Inf or NaN: stored as -inf it is what
logarithms of an empty sum are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, math, tt
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.interpreter.checks.shadow_flow import (
    MOVES,
    all_united,
    is_elementwise,
    moved_shadows,
    rows_and_columns,
    scanned_shadows,
    selected_shadows,
)
from tkdebug.interpreter.checks.shadow_values import (
    Origin,
    ShadowValues,
    at_touched,
    element_at,
    is_in_kernel,
    stored_value,
)
from tkdebug.interpreter.checks.stored_value_check import StoredValueCheck
from tkdebug.interpreter.checks.stored_values import HeldStores
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.memory.touched import Touched
from tkdebug.interpreter.numerics.nan_scan import sum_of
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tiles.values import BoxTile, TileValue

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SUMS = ("addf", "mulf", "add", "mul")
_SYMBOLS = {
    arith.AddF.name: "+",
    arith.SubF.name: "-",
    arith.MulF.name: "*",
    arith.DivF.name: "/",
    tt.PreciseDivF.name: "/",
}
_DIVISIONS = (arith.DivF.name, tt.PreciseDivF.name, math.Rsqrt.name)
_EXPONENTIALS = (math.Exp.name, math.Exp2.name)
_LOGARITHMS = (math.Log.name, math.Log2.name)
_MAY_OVERFLOW = frozenset(
    (*_SYMBOLS, *_DIVISIONS, *_EXPONENTIALS, *_LOGARITHMS, math.Fma.name, tt.ExternElementwise.name)
)
_COMBINATIONS = (tt.Reduce.name, tt.Scan.name)
_WIDER = "compute it in a wider type, or scale the operands down first"


class InfCheck(StoredValueCheck):
    """`--check inf`."""

    def _moments_of(self, op: Operation) -> Moments:
        return _moments(op)

    def of_batch(self, run: Evaluator) -> Observer:
        """One that looks at stores alone, or the Infs of one batch."""
        on_batches = InfsOfBatch(self._faults, self._held)
        return StoredInfs(run, on_batches) if self._can_replay else on_batches.of_batch(run)


class StoredInfs(Observer):
    """Looks at what a batch stores; where that is not finite, it wants to see the batch again."""

    def __init__(self, ev: Evaluator, on_batches: InfsOfBatch) -> None:
        self._ev = ev
        self._on_batches = on_batches
        self._is_found = False

    def replay(self) -> Observer | None:
        """The Infs that the batch made."""
        return self._on_batches if self._is_found else None

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After a store."""
        value = stored_value(access.op)
        if self._is_found or value is None or not _is_float(value.type):
            return
        is_finite = access.stored_is_finite()
        if is_finite is None:
            is_finite = all_finite(access.stored_tile()) or bool(access.stored().isfinite().all())
        self._is_found = not is_finite

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before an atomic."""
        value = stored_value(access.op)
        if not self._is_found and value is not None and _is_float(value.type):
            self._is_found = not all_finite(self._ev.values[value])


class InfsOfBatch(Observer):
    """Looks at a batch that is run again."""

    needs_intermediates = True
    follows_accesses = True

    def __init__(self, faults: FaultLog, held: HeldStores) -> None:
        self._faults = faults
        self._held = held

    def moments(self, op: Operation) -> Moments:
        """After what gives floats."""
        return _moments(op)

    def of_batch(self, run: Evaluator) -> Observer:
        """The Infs of the batch."""
        return InfTracker(run, self._faults, self._held)


def _moments(op: Operation) -> Moments:
    """When the Infs of an op are looked at."""
    if not is_in_kernel(op) or op.name in CONTROL_FLOW:
        return Moments.NEVER
    return Moments.AFTER if any(_is_float(value.type) for value in op.results) else Moments.NEVER


class InfTracker(ShadowValues[Origin]):
    """The Infs of one batch of programs made of finite values, and what was computed from them."""

    def __init__(self, ev: Evaluator, faults: FaultLog, held: HeldStores) -> None:
        super().__init__(ev)
        self._faults = faults
        self._held = held

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """`op` is about to run, and there are Infs."""
        if op.name in CONTROL_FLOW:
            self.enter(op)
        else:
            self.leave(op)
        run.attend(self, bool(self.shadows))

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """An op gave `results`."""
        bad = [self._bad(value.type, tile) for value, tile in zip(op.results, results, strict=True)]
        if any(shadow is not None for shadow in bad):
            self._look_at(op, operands, results, bad)
        else:
            for value in op.results:
                self.shadows.pop(value, None)
        run.attend(self, bool(self.shadows))
        return results

    def _bad(self, type_: ir.Type, tile: TileValue) -> Tensor | None:
        """Where a result is Inf or NaN; None for nowhere."""
        if not _is_float(type_) or all_finite(tile):
            return None
        bad = self.of_active(~self._ev.full(tile, type_).isfinite())
        return bad if bool(bad.any()) else None

    def _look_at(
        self,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
        bad: Sequence[Tensor | None],
    ) -> None:
        each = [self.shadows.get(value, {}) for value in op.operands]
        origins = {key: of for shadows in each for key, (of, _) in shadows.items()}
        found: list[dict[Operation, tuple[Origin, Tensor]]] = [{} for _ in op.results]
        for key, origin in origins.items():
            shadows = [known[key][1] if key in known else None for known in each]
            flowed = self._flow(op, operands, shadows)
            for result, shadow, where in zip(found, flowed, bad, strict=True):
                if shadow is not None and where is not None and bool((shadow & where).any()):
                    result[key] = (origin, shadow & where)
        if bad[0] is not None and _may_make_inf(op):
            self._add_origin(op, operands, results[0], found[0])
        for value, known in zip(op.results, found, strict=True):
            self.set_shadow(value, known)

    def _add_origin(
        self,
        op: Operation,
        operands: Sequence[TileValue],
        result: TileValue,
        found: dict[Operation, tuple[Origin, Tensor]],
    ) -> None:
        ev = self._ev
        given = [
            self._bad(value.type, tile) for value, tile in zip(op.operands, operands, strict=True)
        ]
        type_ = op.results[0].type
        born = self.of_active(ev.full(result, type_).isinf())
        if any(shadow is not None for shadow in given):
            (tainted,) = self._flow(op, operands, given)
            if tainted is not None:
                born = born & ~tainted
        if not bool(born.any()):
            return
        values: tuple[Tensor, ...] = ()
        # The operands of a product of square tiles only look as if they were element by element.
        if is_elementwise(op) and not tt.Dot.matches(op):
            values = tuple(
                ev.dense(tile, value.type)
                for tile, value in zip(operands, op.operands, strict=True)
            )
        known = found.get(op)
        found[op] = (Origin(op, born, values), born if known is None else born | known[1])

    def _flow(
        self, op: Operation, operands: Sequence[TileValue], shadows: Sequence[Tensor | None]
    ) -> Sequence[Tensor | None]:
        """Which elements of the results are of shadowed ones; too many, but they are not finite."""
        if not any(shadow is not None for shadow in shadows):
            return [None] * len(op.results)
        if op.name in MOVES:
            return moved_shadows(self._ev, op, shadows)
        if arith.Select.matches(op):
            return [selected_shadows(self._ev, op, operands, shadows)]
        if tt.Reduce.matches(op):
            shadow = all_united(shadows).any(tt.Reduce(op).axis + 1)
        elif tt.Scan.matches(op):
            shadow = scanned_shadows(op, all_united(shadows))
        elif tt.Dot.matches(op):
            return [rows_and_columns(shadows)]
        elif is_elementwise(op):
            shadow = all_united(shadows)
        else:
            return [None] * len(op.results)
        return [shadow] * len(op.results)

    # What reaches memory

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before a store."""
        self._stored(access, access.stored)

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before an atomic."""
        value = stored_value(access.op)
        if value is not None and value in self.shadows:
            tile = self._ev.full(self._ev.values[value], value.type)
            self._stored(access, lambda: at_touched(tile, access.touch(), self._ev.first))

    def _stored(self, access: ObservedAccess, stored: Callable[[], Tensor]) -> None:
        value = stored_value(access.op)
        shadows = {} if value is None else self.shadows.get(value, {})
        for origin, shadow in shadows.values():
            values = stored()
            bad = at_touched(shadow, access.touch(), self._ev.first) & ~values.isfinite()
            if _is_logarithm(origin.op):
                bad = bad & (values != float("-inf"))
            places = bad.nonzero().reshape(-1)
            if places.numel():
                are_inf = values[places].isinf()
                self._hold(origin, access, values.dtype, access.touch().chosen(places), are_inf)

    def _hold(
        self,
        origin: Origin,
        access: ObservedAccess,
        dtype: torch.dtype,
        touched: Touched,
        are_inf: Tensor,
    ) -> None:
        """Report stored values, if they stay."""
        first_program, op, buffer = self._ev.first, access.op, access.buffer

        def tell(first: int, count: int) -> None:
            stored = self._faults.offender(buffer, touched, first)
            at = origin.place_of(int(touched.programs[first]) - first_program, stored.lane)
            offender = Offender(stored.program_id, at[1:], stored.index)
            self._tell(origin, op, buffer.name, offender, count, bool(are_inf[first]), at)

        self._held.hold(origin.op, access, dtype, touched.places, _not_finite, tell)

    def _tell(
        self,
        origin: Origin,
        store: Operation,
        tensor: str | None,
        offender: Offender,
        count: int,
        is_inf: bool,
        at: tuple[int, ...],
    ) -> None:
        cause = _cause(origin, at)
        of = f", of {cause}," if cause else ""
        became = "" if is_inf else " as a NaN"
        self._faults.value_fault(
            origin.op,
            "inf",
            f"an Inf is made here{of} and stored{became}",
            offender,
            count,
            severity="warning" if is_inf else "error",
            store=store,
            tensor=tensor,
            hint=_hint(origin.op),
        )


def all_finite(tile: TileValue) -> bool:
    """Whether a float tile has neither Inf nor NaN; False where that takes a closer look."""
    if isinstance(tile, BoxTile):
        return all_finite(tile.data) and all_finite(tile.fill)
    if not isinstance(tile, Tensor):
        return True
    # A sum that overflows only costs the closer look.
    return isfinite(sum_of(tile))


def _not_finite(values: Tensor) -> Tensor:
    return ~values.isfinite()


def _is_float(type_: ir.Type) -> bool:
    if not isinstance(type_, ir.ScalarType | ir.TensorType):
        return False
    element = ir.element_of(type_)
    return isinstance(element, ir.ScalarType) and element.is_float and element.bits > 8


def _may_make_inf(op: Operation) -> bool:
    if op.name in _COMBINATIONS:
        return len(op.operands) == 1 and tt.Combining(op).combiner in _SUMS
    return op.name in _MAY_OVERFLOW or tt.Dot.matches(op)


def _is_logarithm(op: Operation) -> bool:
    if tt.ExternElementwise.matches(op):
        return "log" in tt.ExternElementwise(op).function
    return op.name in _LOGARITHMS


def _cause(origin: Origin, at: tuple[int, ...]) -> str:
    """What an elementwise op was given at `at`; "" of others."""
    op = origin.op
    shown = [f"{float(element_at(values, at)):g}" for values in origin.operands]
    if op.name in _SYMBOLS and len(shown) == 2:
        return f"{shown[0]} {_SYMBOLS[op.name]} {shown[1]}"
    if tt.ExternElementwise.matches(op):
        return f"{tt.ExternElementwise(op).function}({', '.join(shown)})"
    return f"{op.name.removeprefix('math.')}({', '.join(shown)})" if shown else ""


def _hint(op: Operation) -> str:
    if op.name in _EXPONENTIALS:
        return "subtract the maximum first, as in exp(x - max), or bound the operand"
    if op.name in _DIVISIONS:
        return "guard the divisor: add an epsilon, or tl.where(d == 0, 1, d)"
    if _is_logarithm(op):
        return "keep 0 out: log(x + eps), or the logarithm before the exponential (x - logsumexp)"
    if tt.Dot.matches(op) or op.name in _COMBINATIONS:
        return "accumulate in fp32, and scale before the result is narrowed"
    return _WIDER
