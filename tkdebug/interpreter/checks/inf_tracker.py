"""Where the Infs of one batch were made of finite values, and which of them reach memory.

An Inf that is right is none of them: from the op that made it to the store, the value is computed
in fp64, too, and where the stored type has no number for it, Inf is what the kernel is to give.
Sums of exponentials are the exception, since a common factor takes them into range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import Moving
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.interpreter.checks.finite_tiles import all_finite, is_float
from tkdebug.interpreter.checks.held_infs import HeldInf
from tkdebug.interpreter.checks.inf_reports import InfReports
from tkdebug.interpreter.checks.inf_text import is_exponential
from tkdebug.interpreter.checks.shadow_flow import (
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
    stored_value,
    updated_by,
)
from tkdebug.interpreter.checks.wide_values import WideValues
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tiles.values import TileValue

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
        """`op` is about to run, and there are Infs."""
        if op.name in CONTROL_FLOW:
            self._wide.drop(op.results)
            self._wide.forward(op, is_entered=True)
            self.enter(op)
        else:
            self._wide.forward(op, is_entered=False)
            self.leave(op)
            # Which elements it stores is known when it does.
            run.follow(self, self.sees_reads or stored_value(op) in self.shadows)
        run.attend(self, bool(self.shadows))

    def forget(self, run: Evaluator, values: Iterable[Value]) -> None:
        """An op has run, and values die."""
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
        """An op gave `results`."""
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
        """Where a result is Inf or NaN; None for nowhere."""
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
        """All Infs that `op` has made, each with what it was made of last."""
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
        """Which elements of the results are of shadowed ones; too many, but they are not finite."""
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

    # What reaches memory

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before a store."""
        self._stored(access, access.stored)

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Before an atomic."""
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
    """The same, and the Infs that earlier launches left in memory; it looks at each load."""

    def read(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """After a load: note which of its elements are Infs that an earlier launch made."""
        for inf in self._reports.loaded.get(access.buffer.storage_key, ()):
            touched = access.touch()
            if inf.itemsize != touched.itemsize:
                continue
            hit = torch.isin(touched.places, inf.places)
            if not bool(hit.any()):
                continue
            touched = touched.chosen(hit)
            shadow = torch.zeros(self._ev.programs, prod(touched.shape), dtype=torch.bool)
            shadow[touched.programs - self._ev.first, touched.lanes] = True
            shadow = shadow.reshape(-1, *touched.shape)
            self._foreign[inf.op] = inf
            self._arrived.setdefault(access.op, {})[inf.op] = (Origin(inf.op, shadow, ()), shadow)


def _may_make_inf(op: Operation) -> bool:
    if tt.Combining.matches(op):
        return len(op.operands) == 1 and tt.Combining(op).combiner in _SUMS
    return op.name in _MAY_OVERFLOW
