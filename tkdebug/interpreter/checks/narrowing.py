"""Follows losses of conversions to a narrower type to where they are stored, or lead an access.

That is a float that is outside the integers of its target, an integer whose upper bits are cut off,
a finite number that becomes Inf, and a sum, difference or product of 8 or 16 bits that wraps before
it is made wider. Until one happens this looks at nothing but these. Lost elements that no unmasked
lane stores are of no concern.

Integers are cut on purpose in hashes, random numbers and packed words. So conversions of results of
bit operations or large factors are left alone, and so are conversions that only bit operations use;
a word whose upper half is shifted out elsewhere is taken apart. `tl.sum` and `tl.cumsum` widen
narrow integers by themselves: where their result is stored as the type that was summed, it wraps as
x + y of that type does. A function such as exp(x) of the input that is too large for the tensor it
is stored to is Inf there by right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import Cast, accessed
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.faults.messages import FaultText, op_text, place_of
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.constants import constant_value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, forwarded, incoming
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.shadow_values import (
    Origin,
    ShadowValues,
    all_united,
    at_touched,
    computable,
    element_at,
    is_in_kernel,
    rows_and_columns,
    shadows_of_results,
    stored_value,
    updated_by,
)
from tkdebug.interpreter.checks.stored_values import all_finite, gives_function_of_input
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.checked_access import mask_of
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.state import EvaluatorState
from tkdebug.interpreter.tiles.values import AffineTile, BoxTile, TileValue

TO_INTEGER = arith.FloatToInteger.names
TO_FLOAT = names_of(arith.TruncF, tt.FpToFp, arith.IntegerToFloat)
BIT_OPS = names_of(
    *(arith.Bitwise, arith.Shift, arith.MulHiUI),
    *(tt.Bitcast, tt.PtrToInt, tt.ElementwiseInlineAsm, tt.ExternElementwise),
)
# Factors of hashes; those of offsets are smaller as a rule.
_HASH_FACTOR = 1 << 15
# Of these a kernel may mean what becomes of the lost value.
_WARNINGS = TO_FLOAT | names_of(arith.WrappingBinary)
_HANDING_ON = names_of(tt.Rearrangement, arith.Select)
_RESHAPING = names_of(tt.ExpandDims, tt.Reshape, tt.Broadcast, tt.Splat, tt.Trans)


def may_lose(op: Operation) -> bool:
    """Whether a run of `op` may lose a value that is not meant to be lost."""
    if arith.WrappingBinary.matches(op):
        is_narrow = bits_of(op.result) in (8, 16) and is_in_kernel(op)
        return is_narrow and not _is_of_bits(op.result) and widened_by(op.result) is not None
    if arith.IntegerToFloat.matches(op) and str(ir.element_of(op.result.type)) != "f16":
        return False  # any other float takes all integers
    if op.name in TO_INTEGER or op.name in TO_FLOAT:
        return is_in_kernel(op) and bits_of(Cast(op).source) > 8 and not _is_too_large_itself(op)
    if not arith.TruncI.matches(op) or bits_of(op.result) == 1 or not is_in_kernel(op):
        return False
    source = arith.TruncI(op).source
    if any(user.name in BIT_OPS for user in source.uses):
        return False  # a word that is taken apart
    return not (_is_of_bits(source) or _is_widened_sum(source, bits_of(op.result)))


_WIDENING = names_of(arith.ExtSI, arith.ExtUI, arith.SIToFP, arith.UIToFP)
_SIGNED_WIDENING = names_of(arith.ExtSI, arith.SIToFP)


def widened_by(value: Value) -> Operation | None:
    """Return the op that widens a narrow integer, perhaps after narrow arithmetic or a loop.

    Return None if there is none, or if a bit operation uses the integer before.
    """
    seen, left = {value}, [value]
    while left:
        for user in left.pop().uses:
            if user.name in BIT_OPS:
                return None  # a word that is taken apart
            if user.name in _WIDENING:
                return user
            passed: Iterable[Value] = ()
            if user.name in CONTROL_FLOW or not user.results:
                passed = [target for source, target in forwarded(user) if source in seen]
            elif arith.WrappingBinary.matches(user) or user.name in _HANDING_ON:
                passed = user.results
            for one in passed:
                if one not in seen:
                    seen.add(one)
                    left.append(one)
    return None


def _is_too_large_itself(op: Operation) -> bool:
    """Whether `op` narrows a function of the input, such as pow(x), only to store it."""
    is_stored = all(stored_value(user) is op.result for user in op.result.uses)
    return op.name in TO_FLOAT and is_stored and gives_function_of_input(Cast(op).source)


def bits_of(value: Value) -> int:
    """Return the number of bits of an element."""
    return ir.element_of(value.type).bits


def _is_of_bits(value: Value) -> bool:
    """Whether bit operations, or a factor as hashes have, went into an integer."""
    seen, left = set[Value](), [value]
    while left:
        value = left.pop()
        if value in seen:
            continue
        seen.add(value)
        op = value.defining_op
        if bits_of(value) == 1:
            continue  # what chooses between numbers goes into none
        if op is None or op.name in CONTROL_FLOW:
            left += incoming(value)
        elif op.name in BIT_OPS or (arith.MulI.matches(op) and any(map(_is_large, op.operands))):
            return True
        elif not (tt.Load.matches(op) or op.name in TO_INTEGER):
            left += op.operands
    return False


def _is_widened_sum(value: Value, bits: int) -> bool:
    """Whether `value` is a reduction or scan that itself widened integers of `bits` bits."""
    combining = traced(value, _RESHAPING).defining_op
    while combining is not None and (tt.Reduce.matches(combining) or tt.Scan.matches(combining)):
        widening = traced(tt.Combining(combining).sources[0], _RESHAPING).defining_op
        if widening is not None and arith.IntegerExtension.matches(widening):
            # `x.to(tl.int32)` has a place of its own.
            is_its_own = not set(widening.location.sources).isdisjoint(combining.location.sources)
            return is_its_own and bits_of(Cast(widening).source) == bits
        combining = widening
    return False


def _is_large(value: Value) -> bool:
    number = constant_value(traced(value, names_of(tt.Splat, tt.Broadcast, arith.ExtSI)))
    return isinstance(number, int) and abs(number) >= _HASH_FACTOR


# Through these nothing is followed: the bits that are left are wanted, or a decision is made.
_ENDS = BIT_OPS | names_of(arith.IntegerRemainder, arith.Compare)
_SIGNED_USERS = (arith.ExtSI, arith.SIToFP, arith.DivSI)
_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool)


@dataclass(frozen=True, slots=True)
class Narrowed(Origin):
    """One run of a conversion that lost elements.

    Attributes:
        lost: for integers, where the value is outside both the signed and the unsigned range.
    """

    lost: Tensor | None = None


class NarrowingCheck(Observer):
    """`--check narrowing`."""

    is_passive = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults

    def moments(self, op: Operation) -> Moments:
        """Ask to be called after conversions that may lose a value by mistake."""
        return Moments.AFTER if may_lose(op) else Moments.NEVER

    def of_batch(self, run: Evaluator) -> Observer:
        """Return the tracker of the lost elements of one batch."""
        return NarrowingTracker(run, self._faults)


class NarrowingTracker(ShadowValues[Narrowed]):
    """The elements of one batch that a conversion lost."""

    def __init__(self, ev: Evaluator, faults: FaultLog) -> None:
        super().__init__(ev)
        self._faults = faults

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Hear that `op` is about to run while there are lost elements."""
        if op.name in CONTROL_FLOW:
            self.enter(op)
        elif op.results or stored_value(op) is not None:
            self._flow(run, op, operands)
        else:
            self.leave(op)
        run.attend(self, bool(self.shadows))

    def forget(self, run: Evaluator, values: Iterable[Value]) -> None:
        """Stop following accesses, and forget values that die."""
        run.follow(self, False)
        super().forget(run, values)

    def _flow(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        each = [self.shadows.get(value) for value in op.operands]
        if not any(each):
            for value in op.results:
                self.shadows.pop(value, None)
            return
        stored = stored_value(op)
        if stored in self.shadows:
            run.follow(self, True)  # the lanes that it stores are known when it does
        if _is_access(op):
            self._led(op, operands)
        found: list[dict[Operation, tuple[Narrowed, Tensor]]] = [{} for _ in op.results]
        if op.name not in _ENDS:
            total = [all_united([shadow for _, shadow in m.values()]) if m else None for m in each]
            origins = {key: of for shadows in each if shadows for key, (of, _) in shadows.items()}
            for key, origin in origins.items():
                shadows = [known[key][1] if known and key in known else None for known in each]
                if tt.Dot.matches(op) and origin.op.name in TO_FLOAT:
                    # An Inf times 0 is a NaN, as of attention over what is masked.
                    flowed: Sequence[Tensor | None] = [rows_and_columns(shadows)]
                else:
                    flowed = shadows_of_results(run, op, operands, shadows, total)
                for result, shadow in zip(found, flowed, strict=True):
                    if shadow is not None and bool(shadow.any()):
                        result[key] = (origin, shadow)
        for result_value, known in zip(op.results, found, strict=True):
            self.set_shadow(result_value, known)

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        """Follow the elements that a conversion, or narrow arithmetic, has lost."""
        if arith.WrappingBinary.matches(op):
            self._wrapped(op, operands, results[0])
            return results
        if op.name in TO_FLOAT:
            bad = lost = self._infinite(op, operands[0], results[0])
        elif op.name in TO_INTEGER:
            bad = lost = self._outside_of_integers(op, operands[0])
        else:
            bad, lost = self._cut_off(op, operands[0])
        if bad is not None:
            bad = self.of_active(bad)
        if bad is not None and bool(bad.any()):
            known = dict(self.shadows.get(op.result, {}))
            value = run.dense(operands[0], Cast(op).source.type)
            shadow = bad | known[op][1] if op in known else bad
            known[op] = (Narrowed(op, run.full(bad, op.result.type), (value,), lost), shadow)
            self.set_shadow(op.result, known)
        run.attend(self, bool(self.shadows))
        return results

    def _wrapped(self, op: Operation, operands: Sequence[TileValue], result: TileValue) -> None:
        """Follow what a narrow sum, difference or product has lost.

        A sum that leaves the type a second time has come back to its value.
        """
        ev, type_ = self._ev, op.result.type
        low, high = _range(bits_of(op.result), _is_wrapping_unsigned(op))
        left, right = (_as_integers(ev.dense(tile, type_), low, high) for tile in operands)
        sign = arith.WrappingBinary(op).sign
        exact = left * right if sign == "*" else left + right if sign == "+" else left - right
        bad = self.of_active((exact < low) | (exact > high))
        known = dict(self.shadows.get(op.result, {}))
        for key, (origin, shadow) in list(known.items()):
            if arith.WrappingBinary.matches(key) and sign != "*":
                known[key] = (origin, shadow & ~bad)
                bad = bad & ~shadow
        if bool(bad.any()):
            place = ev.full(bad, type_)
            known[op] = (Narrowed(op, place, (left, right), place), bad)
        self.set_shadow(op.result, known)
        self._ev.attend(self, bool(self.shadows))

    def _infinite(self, op: Operation, value: TileValue, result: TileValue) -> Tensor | None:
        if _is_finite(result):
            return None
        wide = computable(self._ev.full(value, Cast(op).source.type))
        narrow = computable(self._ev.full(result, op.result.type))
        return narrow.isinf() & wide.isfinite()

    def _outside_of_integers(self, op: Operation, value: TileValue) -> Tensor | None:
        bits = bits_of(op.result)
        is_signed = arith.FPToSI.matches(op)
        low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if is_signed else (0.0, 2.0**bits)
        if _is_within(value, low, high):
            return None
        whole = self._ev.full(value, Cast(op).source.type).double().trunc()
        return ~((whole >= low) & (whole < high))

    def _cut_off(self, op: Operation, value: TileValue) -> tuple[Tensor | None, Tensor | None]:
        """Return where a value does not fit, and where not even as an unsigned one."""
        bits = bits_of(op.result)
        half = 1 << (bits - 1)
        is_unsigned = _is_unsigned(op)
        least, end = (0, 2 * half) if is_unsigned else (-half, half)
        if isinstance(value, int):
            value = self._ev.dense(value, Cast(op).source.type)
        if isinstance(value, AffineTile):
            low, high = value.bounds(exact=True)
            if least <= low and high < end:
                return None, None
        elif _is_within(value, least, end):
            return None, None
        wide = self._ev.full(value, Cast(op).source.type).to(torch.int64)
        lost = wide < (0 if is_unsigned else -half)
        if bits < 64:
            lost = lost | (wide >= 2 * half)
        if not (_is_signed(op) or any(stored_value(user) is op.result for user in op.result.uses)):
            return lost, lost
        return (wide < -half) | (wide >= half), lost

    # Uses

    def _led(self, op: Operation, operands: Sequence[TileValue]) -> None:
        """Report lost elements that an access uses as addresses."""
        mask = mask_of(op)
        for origin, shadow in self.shadows.get(accessed(op), {}).values():
            used = self.of_active(shadow)
            if mask is not None:
                place = next(at for at, value in enumerate(op.operands) if value is mask)
                used = used & self._ev.dense(operands[place], mask.type).bool()
            if not bool(used.any()):
                continue
            used = self._ev.full(used, accessed(op).type)
            program, *lane = used.nonzero()[0].tolist()
            at = origin.place_of(program, tuple(lane))
            offender = Offender(self._ev.program_at(program), at[1:], None)
            message = (
                f"{_narrowing_text(origin, at)}; the result is the address accessed at "
                f"{place_of(op, origin.op)}"
            )
            text = FaultText("narrowing", message, hint=_hint(origin.op))
            self._faults.record(origin.op, text, offender, int(used.sum()))

    def writing(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Report the lost elements that a store is about to store."""
        self._stored(access, access.stored)

    def atomic(self, run: EvaluatorState, access: ObservedAccess) -> None:
        """Report the lost elements that an atomic is about to use."""
        self._stored(access, updated_by(self._ev, access))

    def _stored(self, access: ObservedAccess, stored: Callable[[], Tensor]) -> None:
        value = stored_value(access.op)
        shadows = {} if value is None else self.shadows.get(value, {})
        for origin, shadow in shadows.values():
            if arith.TruncI.matches(origin.op) and not _is_signed(origin.op):
                is_direct = value is origin.op.result
                if not is_direct or access.buffer.tensor.dtype in _UNSIGNED:
                    if origin.lost is None or origin.lost.dim() != shadow.dim():
                        continue
                    shadow = shadow & origin.lost
            values = stored()
            bad = at_touched(shadow, access.touch(), self._ev.first)
            if origin.op.name in TO_FLOAT and values.is_floating_point():
                bad = bad & ~computable(values).isfinite()
            places = bad.nonzero().reshape(-1)
            if places.numel():
                self._tell(origin, access, int(places[0]), places.numel())

    def _tell(self, origin: Narrowed, access: ObservedAccess, first: int, count: int) -> None:
        buffer, touched = access.buffer, access.touch()
        stored = self._faults.offender(buffer, touched, first)
        at = origin.place_of(int(touched.programs[first]) - self._ev.first, stored.lane)
        is_unsigned = buffer.tensor.dtype in _UNSIGNED
        self._faults.value_fault(
            origin.op,
            "narrowing",
            f"{_narrowing_text(origin, at, is_unsigned)}; the result is stored",
            Offender(stored.program_id, at[1:], stored.index),
            count,
            severity="warning" if origin.op.name in _WARNINGS else "error",
            store=access.op,
            tensor=buffer.name,
            hint=_hint(origin.op),
        )


def _is_access(op: Operation) -> bool:
    return any(view.matches(op) for view in (tt.Load, tt.Store, tt.Atomic))


def _is_signed(op: Operation) -> bool:
    """Whether the result of a conversion has a user that takes it as signed."""
    return any(view.matches(user) for user in op.result.uses for view in _SIGNED_USERS)


def _is_unsigned(op: Operation) -> bool:
    """Whether the result of a conversion becomes a float as unsigned, and no user is signed."""
    return any(arith.UIToFP.matches(user) for user in op.result.uses) and not _is_signed(op)


def _is_wrapping_unsigned(op: Operation) -> bool:
    """Whether a narrow integer is made wider as an unsigned one."""
    widening = widened_by(op.result)
    return widening is not None and widening.name not in _SIGNED_WIDENING


def _as_integers(values: Tensor, low: int, high: int) -> Tensor:
    """Return the numbers of a narrow type in int64, wrapped into `low` to `high`."""
    return (values.to(torch.int64) - low) % (high - low + 1) + low


def _is_finite(tile: TileValue) -> bool:
    if isinstance(tile, BoxTile):
        return _is_finite(tile.data) and _is_finite(tile.fill)
    return isinstance(tile, Tensor) and all_finite(computable(tile))


def _is_within(tile: TileValue, low: float, high: float) -> bool:
    """Whether low <= v < high for all elements; False if one is NaN."""
    if isinstance(tile, BoxTile):
        return _is_within(tile.data, low, high) and _is_within(tile.fill, low, high)
    if not isinstance(tile, Tensor):
        return False
    if not tile.numel():
        return True
    least, most = tile.aminmax()
    return bool(least >= low) and bool(most < high)


def _narrowing_text(origin: Narrowed, at: tuple[int, ...], is_unsigned: bool = False) -> str:
    """Say what was lost at an element, such as "300 does not fit int8 (-128 to 127)"."""
    op = origin.op
    first, *_ = origin.operands
    value = element_at(first, at).item()
    bits = bits_of(op.result)
    if arith.WrappingBinary.matches(op):
        is_unsigned = _is_wrapping_unsigned(op)
        low, high = _range(bits, is_unsigned)
        shown = op_text(op, tuple(str(int(element_at(side, at))) for side in origin.operands))
        name = f"{'u' if is_unsigned else ''}int{bits}"
        return f"`{shown}` does not fit {name} ({low} to {high}) and wraps before it is made wider"
    if op.name in TO_FLOAT:
        if arith.UIToFP.matches(op) and value < 0:
            value += 1 << bits_of(Cast(op).source)
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        name = str(ir.element_of(op.result.type))
        name = f"fp{bits}" if name == f"f{bits}" else name
        return f"{shown} is too large for {name}, and becomes inf"
    is_unsigned = is_unsigned or arith.FPToUI.matches(op) or _is_unsigned(op)
    low, high = _range(bits, is_unsigned)
    target = f"{'u' if is_unsigned else ''}int{bits} ({low} to {high})"
    if op.name in TO_INTEGER:
        return f"{value:g} does not fit {target}"
    return f"{value} does not fit {target}, and loses its upper bits"


def _range(bits: int, is_unsigned: bool) -> tuple[int, int]:
    """Return the minimum and the maximum integer."""
    half = 1 << (bits - 1)
    return (0, 2 * half - 1) if is_unsigned else (-half, half - 1)


def _hint(op: Operation) -> str:
    if arith.WrappingBinary.matches(op):
        return (
            "convert an operand first, as in x.to(tl.int32); a Python int, and an operand of the "
            "same type, keep the narrow type"
        )
    if op.name in TO_FLOAT:
        return "scale or clamp before the conversion, or keep the wider type"
    if op.name in TO_INTEGER:
        bits = bits_of(op.result)
        low, high = _range(bits, arith.FPToUI.matches(op))
        # A float has no number for the ends of wider types.
        example = f", as in tl.clamp(x, {low}.0, {high}.0)" if bits <= 16 else ""
        return f"clamp before the conversion{example}; a NaN needs tl.where"
    return "keep the wider type, or mask with & where only the lower bits are meant"
