"""Follows each NaN that a kernel stores, or adds by an atomic, back to the op that made it.

Batches run unobserved, and only what they store or add is looked at. A batch that stores a NaN is
run again, op by op: a NaN whose operands have none is born there; any other NaN has the origin of
the operand that has one. NaNs that a kernel loads are its input's, NaNs that it writes down are
meant, and NaNs that `tl.where` drops end there, so that rows that are masked off later do not
matter. Only NaNs that are stored, and still there when the launch ends, are reported. Where batches
cannot be run again (`replay`), ops are looked at from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt, ttg
from tkdebug.compiler.dialects.interfaces import FloatOp, MemoryAccess, stored
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.faults.messages import named, op_text, place_of
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, forwarded
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.masked_weights import (
    MaskedProduct,
    conditions_needed,
    masked_product,
)
from tkdebug.interpreter.checks.shadow_values import at_touched
from tkdebug.interpreter.checks.stored_values import (
    HeldStores,
    StoredValueCheck,
    is_function_of_input,
)
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.memory.touched import are_injective
from tkdebug.interpreter.numerics.scans import has_nan
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tiles.values import BoxTile, TileValue

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Whether a module has atomics of floats.
_ADDS = "atomics of floats"
_FLOAT_NAMES = ("f16", "bf16", "f32", "f64")
# What they give was in memory or in a tile before, as a constant was in the source.
_HANDS_OUT = names_of(arith.Constant, MemoryAccess, ttg.LocalLoad, tt.Gather)
# These make none either: the bits had it, or the 8-bit float, whose NaNs torch knows less of.
_REINTERPRETS = names_of(tt.Bitcast, tt.FpToFp)
_KEEPS = frozenset(name for name, view in OPS.items() if not view.makes_nan)


@dataclass(frozen=True, slots=True)
class Birth:
    """The op that made a NaN, its first element, and the operands, such as "0 / 0" ("": unknown).

    Attributes:
        product: the facts of the product, if a masked weight let the NaN through.
    """

    op: Operation
    offender: Offender
    cause: str
    product: MaskedProduct | None = None


class NanCheck(StoredValueCheck):
    """`--check nan`."""

    def __init__(self, module: Module, faults: FaultLog) -> None:
        super().__init__(module, faults)
        if _ADDS not in module.derived:
            module.derived[_ADDS] = any(_is_float_atomic(op) for op in module.walk())
        self._tracker = AddedNanTracker if module.derived[_ADDS] else NanTracker

    def _moments_of(self, op: Operation) -> Moments:
        return _moments(op)

    def moments(self, op: Operation) -> Moments:
        """Ask for atomics of floats, and for other ops where batches cannot be run again."""
        if self._can_replay:
            return Moments.BEFORE if _is_float_atomic(op) else Moments.NEVER
        return self._moments_of(op)

    def of_batch(self, run: Evaluator) -> Observer:
        """Return an observer of stores alone, or of the origins of one batch."""
        tracker = self._tracker(self._faults, self._held)
        return StoredNans(tracker) if self._can_replay else tracker


class StoredNans(Observer):
    """Looks at what a batch stores or adds; if it has NaNs, asks for the batch again.

    Of an atomic it looks at the operand: asking for the elements would make every atomic slower.
    """

    def __init__(self, tracker: NanTracker) -> None:
        self._tracker = tracker
        self._is_found = False

    def replay(self) -> Observer | None:
        """Return the observer that follows the origins of the stored NaNs, or None."""
        return self._tracker if self._is_found else None

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Note whether an atomic of floats, which is about to run, adds a NaN."""
        self._is_found = self._is_found or _has_nan(operands[1], run.active)

    def written(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Note whether a store has NaNs."""
        if not self._is_found and _is_float(stored(access.op).type):
            self._is_found = _stores_nan(run, access)


def _stores_nan(run: EvaluatorState, access: ObservedAccess) -> bool:
    total = access.stored_sum()
    if total is not None and not isnan(total):
        return False
    slabs = access.hyperslabs()
    if slabs is not None and are_injective(slabs):
        # The stored value is in memory now.
        memory = access.buffer.flat(run.dtype_of(stored(access.op).type))
        return any(has_nan(slab.view(memory)) for slab in slabs)
    return has_nan(access.stored_tile()) and has_nan(access.stored())


class NanTracker(Observer):
    """The origins of the NaNs in one batch; an origin is a birth, or None for the input."""

    needs_intermediates = True
    follows_accesses = True

    def __init__(self, faults: FaultLog, held: HeldStores) -> None:
        self._faults = faults
        self._held = held
        # Origins of the values that have a NaN in an active program, and of some that had one.
        self._origins: dict[Value, Birth | None] = {}
        self._added: TileValue = 0

    def moments(self, op: Operation) -> Moments:
        """Ask for calls after ops that give floats, before atomics and ops that forward values."""
        return _moments(op)

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Hear that `op` is about to run: at a branch, forwarded values keep their origin."""
        if _is_float_atomic(op):
            self._added = operands[1]
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
        """Set the origin of each result that has a NaN."""
        if op.name in CONTROL_FLOW:
            return results  # what regions give came through their terminators
        is_kept = op.name in _KEEPS and not any(value in self._origins for value in op.operands)
        for value, result in zip(op.results, results, strict=True):
            if is_kept or not _has_nan(result, run.active):
                self._origins.pop(value, None)
                continue
            carriers = [
                given
                for given, tile in zip(op.operands, operands, strict=True)
                if _has_nan(tile, run.active)
            ]
            product = masked_product(run, op, operands, result)
            if product is not None:
                self._origins[value] = self._let_through(run, op, operands, product, carriers)
            elif carriers:
                self._origins[value] = self._of_carriers(carriers)
            elif op.name in _HANDS_OUT or op.name in _REINTERPRETS:
                self._origins[value] = None
            else:
                self._origins[value] = self._birth(run, op, operands, result)
        return results

    def needs(self, op: Operation) -> Iterable[Value]:
        """Return the conditions of masks on weights."""
        return conditions_needed(op)

    def _of_carriers(self, carriers: Sequence[Value]) -> Birth | None:
        """Return the origin of a NaN that came from operands; None for the input."""
        origin = self._origins.get(carriers[0])
        if origin is not None and origin.product is not None:
            # With a NaN of the input's own beside it, nothing is known of the result's.
            if not all(map(self._origins.get, carriers)):
                return None
        return origin

    def _let_through(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        product: MaskedProduct,
        carriers: Sequence[Value],
    ) -> Birth | None:
        """Return the birth of NaNs that masked weights let through, or an accumulator's origin."""
        _, _, *rest = op.operands
        accumulator = next(iter(rest), None)
        if accumulator is not None and accumulator in carriers:
            return self._origins.get(accumulator)
        offender, place = _first(run, product.elements)
        return Birth(op, offender, _cause(run, op, operands, place), product)

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Have the NaNs reported that are about to be stored, if they stay in memory."""
        if self._origins.get(stored(access.op)) and access.stored_tile().dtype in _FLOATS:
            self._hold(access, access.stored())

    def _hold(self, access: ObservedAccess, values: Tensor) -> None:
        """Have the NaNs among `values` of `access.touch()` reported at the end, if they stay."""
        op, buffer = access.op, access.buffer
        birth = self._origins[stored(op)]
        places = access.touch().places[values.isnan()]
        if birth is None or not places.numel():
            return

        def tell(first: int, count: int) -> None:
            at = int(places[first]) - buffer.storage_offset
            if birth.product is not None:
                self._tell_let_through(birth, birth.product, access, at, count)
                return
            made = birth.op, birth.offender, birth.cause
            self._faults.nan(*made, op, buffer.name, at, count, is_function_of_input(birth.op))

        dtype = values.dtype
        self._held.hold(birth.op, access, dtype, places, torch.isnan, tell)

    def _birth(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        result: TileValue,
    ) -> Birth:
        bad = run.full(result, op.result.type).isnan()
        if run.active is not None and bad.shape[0] == run.active.shape[0]:
            bad = bad & run.active.reshape(-1, *(1,) * (bad.dim() - 1))
        offender, place = _first(run, bad)
        return Birth(op, offender, _cause(run, op, operands, place))

    def _tell_let_through(
        self, birth: Birth, product: MaskedProduct, access: ObservedAccess, at: int, count: int
    ) -> None:
        """Report a NaN made of a loaded NaN or Inf times a weight that a mask made 0."""
        op, mask = birth.op, place_of(product.mask.op, birth.op)
        offender = replace(birth.offender, index=at)
        self._faults.value_fault(
            op,
            "nan",
            f"{product.loaded} that the load at {place_of(product.load, op)} takes from "
            f"{named(product.tensor)} is multiplied by a weight which the mask at {mask} makes 0, "
            "and NaN is stored",
            offender,
            count,
            store=access.op,
            severity="error",
            tensor=access.buffer.name,
            hint=f"0 * {product.loaded} is NaN: mask that load, too, with other=0, or choose with "
            "tl.where what is multiplied",
        )


def _first(run: Evaluator, bad: Tensor) -> tuple[Offender, tuple[int, ...]]:
    """Return the program and lane of a tile's first bad element, and its place there."""
    flat = int(bad.reshape(-1).to(torch.uint8).argmax())
    place = []
    for extent in reversed(bad.shape):
        place.append(flat % extent)
        flat //= extent
    program, *lane = reversed(place)
    if run.active is not None and bad.shape[0] == 1:
        program = int(run.active.nonzero()[0])
    return Offender(run.program_at(program), tuple(lane), None), (program, *lane)


def _has_nan(tile: TileValue, active: Tensor | None) -> bool:
    if isinstance(tile, BoxTile):
        return _has_nan(tile.data, active) or _has_nan(tile.fill, active)
    if not isinstance(tile, Tensor) or tile.dtype not in _FLOATS or not has_nan(tile):
        return False
    if active is None or tile.shape[0] != active.shape[0]:
        return True
    return bool(tile[active].isnan().any())


class AddedNanTracker(NanTracker):
    """A `NanTracker` for kernels with atomics of floats; others pay for no look at atomics."""

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Hold the NaNs among what an atomic is about to add."""
        if _is_float_atomic(access.op) and self._origins.get(stored(access.op)):
            value = stored(access.op)
            tile = run.full(self._added, value.type)
            self._hold(access, at_touched(tile, access.touch(), run.first))


def _is_float(type_: ir.Type) -> bool:
    element = ir.element_of(type_)
    return isinstance(element, ir.ScalarType) and element.name in _FLOAT_NAMES


def _is_float_atomic(op: Operation) -> bool:
    return tt.AtomicRmw.matches(op) and _is_float(tt.AtomicRmw(op).value.type)


def _moments(op: Operation) -> Moments:
    moments = Moments.NEVER
    if any(_is_float(value.type) for value in op.results):
        moments |= Moments.AFTER
    if next(forwarded(op), None) is not None or _is_float_atomic(op):
        moments |= Moments.BEFORE
    return moments


def _cause(
    run: Evaluator, op: Operation, operands: Sequence[TileValue], place: tuple[int, ...]
) -> str:
    """Return the text of an elementwise op with its operands at `place`; "" if unknown."""
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
    return op_text(op, shown) if FloatOp.matches(op) else ""
