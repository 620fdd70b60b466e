"""Tracks the Infs of one batch from the op that made them of finite values to memory.

Beside the kernel's own values, values that are not finite are computed in fp64. An Inf that is what
the kernel computes, as exp(100) in fp32 or 1 / 0, is right if the stored type has no number for it;
one that comes from the order of ops or from a narrow type, as in log(1 + exp(100)), is followed
from the op that made it to the store. Sums of exponentials are the exception, since a common factor
takes them into range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import nan, prod

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import FloatOp, Moving
from tkdebug.compiler.dialects.libdevice import FUNCTIONS
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, forwarded
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.inf_reports import HeldInf, InfReports, is_exponential
from tkdebug.interpreter.checks.shadow_values import (
    Origin,
    ShadowValues,
    all_united,
    at_touched,
    computable,
    is_elementwise,
    moved_shadows,
    rows_and_columns,
    scanned_shadows,
    selected_shadows,
    stored_value,
    updated_by,
)
from tkdebug.interpreter.checks.stored_values import all_finite, is_float
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.numerics.libdevice import MEANINGS
from tkdebug.interpreter.rules import run_alone
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tile_ops.reductions import combiner_of
from tkdebug.interpreter.tiles.values import TileValue

# Their rules compute in the type of the tensors that they are given.
_OF_ANY_TYPE = names_of(FloatOp, Moving, arith.Select)
_COMBINERS = ("add", "mul", "maxnum", "minnum", "maximum", "minimum")


class WideValues:
    """The values of one batch that an observer follows, in fp64.

    A value that is not known here counts as what the kernel computed.
    """

    def __init__(self, ev: Evaluator) -> None:
        self._ev = ev
        self._values: dict[Value, Tensor] = {}

    def of(self, value: Value, tile: TileValue | None = None) -> Tensor:
        """A value of floats, (P or 1, then the tile's axes, extent 1 for all positions).

        Args:
            value: the IR value.
            tile: the kernel's tile of it; None for its tile now.
        """
        known = self._values.get(value)
        if known is not None:
            return known
        tile = self._ev.values[value] if tile is None else tile
        return computable(self._ev.dense(tile, value.type)).double()

    def drop(self, values: Sequence[Value]) -> None:
        """Forget values, which then count as what the kernel computed."""
        for value in values if self._values else ():
            self._values.pop(value, None)

    def replace(self, value: Value, where: Tensor, number: float) -> None:
        """Replace the elements of a known value that are in `where` by `number`."""
        known = self._values.get(value)
        if known is not None:
            self._values[value] = torch.where(where, number, known)

    def follow(self, op: Operation, operands: Sequence[TileValue]) -> None:
        """Compute the results of `op`, which has run, in fp64; drop those that cannot be."""
        results = self._results(op, operands)
        if results is None:
            self.drop(op.results)
        else:
            self._values |= zip(op.results, results, strict=True)

    def forward(self, op: Operation, *, is_entered: bool) -> None:
        """Follow control that goes on from `op`: entered control flow, or a region's end."""
        given: dict[Value, Tensor | None] = {}
        for source, target in forwarded(op) if self._values else ():
            if is_entered or self._ev.active is None:
                given[target] = self._values.get(source)
            elif source in self._values or target in self._values:
                given[target] = self._blended(source, target, self._ev.active)
        for target, wide in given.items():
            if wide is None:
                self._values.pop(target, None)
            else:
                self._values[target] = wide

    def _blended(self, source: Value, target: Value, active: Tensor) -> Tensor:
        """Return the forwarded values of the active programs, and the old values of the others."""
        new = self.of(source)
        is_known = target in self._values or target in self._ev.values
        old = self.of(target) if is_known else torch.full_like(new[:1], nan)
        return torch.where(active.reshape(-1, *(1,) * (new.dim() - 1)), new, old)

    def _results(self, op: Operation, operands: Sequence[TileValue]) -> Sequence[Tensor] | None:
        if arith.FloatCast.matches(op):
            (source,) = op.operands
            return [self.of(source, *operands)]
        dot = tt.Dot.cast(op)
        if dot is not None:
            a, b, total = map(self._full, (dot.a, dot.b, dot.accumulator), operands)
            return [a @ b + total]
        if tt.ExternElementwise.matches(op):
            view = tt.ExternElementwise(op)
            if view.function not in MEANINGS or not FUNCTIONS[view.function].is_real:
                return None
            given = map(self.of, op.operands, operands)
            return [MEANINGS[view.function](torch, view.unsigned, *given)]
        if not (op.name in _OF_ANY_TYPE or _is_combination(op)):
            return None
        results = run_alone(self._ev, op, self._given(op, operands))
        types = [value.type for value in op.results]
        return [self._ev.dense(x, type_) for x, type_ in zip(results, types, strict=True)]

    def _full(self, value: Value, tile: TileValue) -> Tensor:
        wide = self.of(value, tile)
        return wide.expand(wide.shape[0], *ir.shape_of(value.type))

    def _given(self, op: Operation, operands: Sequence[TileValue]) -> list[TileValue]:
        """Return the operands of an op, floats in fp64."""
        return [
            self.of(value, tile) if self._ev.dtype_of(value.type).is_floating_point else tile
            for value, tile in zip(op.operands, operands, strict=True)
        ]


def _is_combination(op: Operation) -> bool:
    """Whether a reduction or a scan combines in a way that is known."""
    if len(op.operands) != 1:
        return False
    if tt.Scan.matches(op):
        return combiner_of(tt.Scan(op)) in ("add", "mul")
    return tt.Reduce.matches(op) and combiner_of(tt.Reduce(op)) in _COMBINERS


_SUMS = ("addf", "mulf", "add", "mul")
_MAY_OVERFLOW = frozenset(name for name, view in OPS.items() if view.makes_inf)


class InfTracker(ShadowValues[Origin]):
    """The Infs of one batch of programs made of finite values, and what was computed from them."""

    def __init__(self, ev: Evaluator, reports: InfReports) -> None:
        super().__init__(ev)
        self._reports = reports
        self._wide = WideValues(ev)
        self._origins: dict[Operation, Origin] = {}
        # Infs of earlier launches that were loaded, and what the load that runs has of them.
        self._foreign: dict[Operation, HeldInf] = {}
        self._arrived: dict[Operation, dict[Operation, tuple[Origin, Tensor]]] = {}

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Hear that `op` is about to run while there are Infs."""
        if op.name in CONTROL_FLOW:
            self._wide.drop(op.results)
            self._wide.forward(op, is_entered=True)
            self.enter(op)
        else:
            self._wide.forward(op, is_entered=False)
            self.leave(op)
            # The elements that it stores are known when it does.
            run.follow(self, self.sees_reads or stored_value(op) in self.shadows)
        run.attend(self, bool(self.shadows))

    def forget(self, run: Evaluator, values: Iterable[Value]) -> None:
        """Forget values that die, after an op has run."""
        run.follow(self, self.sees_reads)
        values = [value for value in values if value.defining_op is not None]
        self._wide.drop(values)
        super().forget(run, values)

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """Find the Infs and NaNs in `results`, and the op that each came from."""
        if not (self.shadows or self._arrived) and (
            not _may_make_inf(op) or all(map(all_finite, results))
        ):
            return results
        bad = [self._bad(value.type, tile) for value, tile in zip(op.results, results, strict=True)]
        if any(shadow is not None for shadow in bad):
            self._look_at(op, operands, results, bad)
        else:
            self._wide.drop(op.results)
            for value in op.results:
                self.shadows.pop(value, None)
        run.attend(self, bool(self.shadows))
        return results

    def _bad(self, type_: ir.Type, tile: TileValue) -> Tensor | None:
        """Return where a result is Inf or NaN; None for nowhere."""
        if not is_float(type_) or all_finite(tile):
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
        arrived = self._arrived.pop(op, {})
        if bad[0] is not None:
            found[0].update(
                (key, (origin, shadow & bad[0])) for key, (origin, shadow) in arrived.items()
            )
        if bad[0] is not None and _may_make_inf(op):
            self._add_origin(op, operands, results[0], found[0])
        for value, known in zip(op.results, found, strict=True):
            self.set_shadow(value, known)
        if not any(found):
            self._wide.drop(op.results)
            return
        self._wide.follow(op, operands)
        if tt.Combining.matches(op) or tt.Dot.matches(op):
            for origin, shadow in found[0].values():
                if is_exponential(origin.op):
                    # A common factor takes a sum of them into range, and out again.
                    self._wide.replace(op.results[0], shadow, 1.0)

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
        found[op] = (self._noted(op, born, values), born if known is None else born | known[1])

    def _noted(self, op: Operation, born: Tensor, values: tuple[Tensor, ...]) -> Origin:
        """Return the origin of all Infs that `op` has made, those of this run merged in."""
        known = self._origins.get(op)
        if known is not None:
            values = tuple(
                torch.where(born, new, old) for new, old in zip(values, known.operands, strict=True)
            )
            born = born | known.bad
        self._origins[op] = origin = Origin(op, born, values)
        return origin

    def _flow(
        self, op: Operation, operands: Sequence[TileValue], shadows: Sequence[Tensor | None]
    ) -> Sequence[Tensor | None]:
        """Return the results' elements made of shadowed ones, among them some that are finite."""
        if not any(shadow is not None for shadow in shadows):
            return [None] * len(op.results)
        if Moving.matches(op):
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

    # Stores and atomics

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Report or keep the Infs of a store."""
        self._stored(access, access.stored)

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Report or keep the Infs of an atomic."""
        self._stored(access, updated_by(self._ev, access))

    def _stored(self, access: ObservedAccess, stored: Callable[[], Tensor]) -> None:
        value = stored_value(access.op)
        if value is None or value not in self.shadows:
            return
        touched, values = access.touch(), stored()
        wide = at_touched(self._wide.of(value), touched, self._ev.first)
        is_wrong = values.isnan() | values.isinf() & wide.to(values.dtype).isfinite()
        for origin, shadow in self.shadows[value].values():
            bad = at_touched(shadow, touched, self._ev.first) & ~values.isfinite()
            if not bool(bad.any()):
                continue
            dtype, first = values.dtype, self._ev.first
            foreign = self._foreign.get(origin.op)
            if foreign is not None:
                self._reports.of_loaded(foreign, access, dtype, touched.chosen(bad))
                continue
            origin = self._origins[origin.op]  # other rounds of a loop may have made some of them
            wrong = bad & is_wrong
            if bool(wrong.any()):
                self._reports.wrong(origin, access, dtype, touched.chosen(wrong), first)
            if not bool(wrong.all()):
                self._reports.right(origin, access, dtype, touched.chosen(bad & ~wrong), first)


class LoadedInfTracker(InfTracker):
    """An `InfTracker` that also follows Infs of earlier launches; it looks at each load."""

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note which elements of a load are Infs that an earlier launch made."""
        for inf in self._reports.loaded.get(access.buffer.storage_key, ()):
            touched = access.touch()
            if inf.itemsize != touched.itemsize:
                continue
            hit = torch.isin(touched.places, inf.places)
            if not bool(hit.any()):
                continue
            touched = touched.chosen(hit)
            shadow = torch.zeros(
                self._ev.programs, prod(touched.shape), dtype=torch.bool, device=hit.device
            )
            shadow[touched.programs - self._ev.first, touched.lanes] = True
            shadow = shadow.reshape(-1, *touched.shape)
            self._foreign[inf.op] = inf
            self._arrived.setdefault(access.op, {})[inf.op] = (Origin(inf.op, shadow, ()), shadow)


def _may_make_inf(op: Operation) -> bool:
    if tt.Combining.matches(op):
        return len(op.operands) == 1 and tt.Combining(op).combiner in _SUMS
    return op.name in _MAY_OVERFLOW
