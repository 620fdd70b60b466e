"""The worlds of a batch, in which padding is left out; they run beside the kernel.

In each world one op leaves its padding out. If several ops take some in, there is a joint world in
which all of them leave it out. It counts where one op alone shows nothing: the exponentials of a
row beside the maximum of its padding are all 0, and without that maximum the padding's exponentials
overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.faults.messages import place_of
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, deciding, forwarded
from tkdebug.interpreter.blending import blend
from tkdebug.interpreter.checks.padding.combinations import left_out_by, neutral_text, what_of
from tkdebug.interpreter.checks.padding.facts import MaskedAxes, PaddingFacts, counts_elements
from tkdebug.interpreter.checks.padding.proof import constant_everywhere
from tkdebug.interpreter.checks.shadow_values import at_touched, united
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.numerics.scans import any_true
from tkdebug.interpreter.rules import run_alone
from tkdebug.interpreter.tiles.values import TileValue

_SUMS = (arith.AddF, arith.SubF, arith.AddI, arith.SubI)
# How far rounding may take results apart that are the same otherwise.
_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 1e-2}
_LOOSEST = 5e-2
_OF_LARGEST = 1e-1


class World:
    """The values that differ where `op` leaves padding out; all others are the kernel's own.

    Attributes:
        op: a reduction, a product, or an op that accumulates in a loop.
        load: the load whose masked-off elements it takes in.
        what: its name in messages, such as "max".
        hint: what to do about it.
        values: the values that differ.
        untold: programs (P,) about which it shows nothing; None if there are none.
        lost: programs (P,) or (1,) in which a reduction gets numbers that are not finite, where the
            kernel's own are: it shows nothing about them; None if there are none.
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
        """Return a copy of this world without `lost`, which may then differ from it."""
        copy = World(self.op, self.load, self.what, self.hint)
        copy.values = dict(self.values)
        copy.untold = self.untold
        return copy

    def note_lost(self, ev: Evaluator, op: Operation, tile: TileValue) -> None:
        """Note programs where a reduction gets non-finite numbers in this world alone."""
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
        """Return the operands of `op` in this world; None if none differs, or `op` has effects."""
        if OPS[op.name].effects or not any(value in self.values for value in op.operands):
            return None
        return [
            self.values.get(value, tile) for value, tile in zip(op.operands, operands, strict=True)
        ]

    def set_results(self, op: Operation, results: Sequence[TileValue]) -> None:
        """Keep the results of `op` in this world."""
        for value, result in zip(op.results, results, strict=True):
            self.values[value] = result

    def forget_results(self, op: Operation) -> None:
        """Forget the results of `op` in this world: they count as the kernel's."""
        for value in op.results:
            self.values.pop(value, None)

    def is_corrected_by(self, op: Operation) -> bool:
        """Whether `op` subtracts what the padding has added, as in total - (BLOCK - n)."""
        if not any(view.matches(op) for view in _SUMS):
            return False
        others = [value for value in op.operands if value not in self.values]
        return len(others) == 1 and counts_elements(others[0])

    def forward(self, ev: Evaluator, op: Operation) -> bool:
        """Follow control from `op` on; return False if it would go another way in this world."""
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
    """Whether two tiles differ in some element by more than rounding explains."""
    return any_true(different(real, clean))


def different(real: Tensor, clean: Tensor) -> Tensor:
    """Return where two tiles differ by more than rounding explains.

    Elements that would not be finite without the padding show nothing.
    """
    if not real.is_floating_point():
        return real != clean
    tolerance = _TOLERANCES.get(real.dtype, _LOOSEST)
    a, b = real.double(), clean.double()
    finite = b[b.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    bound = tolerance * (b.abs() + _OF_LARGEST * largest)
    return b.isfinite() & ~((a - b).abs() <= bound)


_MOST_WORLDS = 8


class Worlds:
    """The worlds of one batch, which run beside the kernel from an op up to its stores.

    Attributes:
        is_apart: whether an op runs for a world now, and not for the kernel.
    """

    def __init__(self, ev: Evaluator, faults: FaultLog, facts: PaddingFacts) -> None:
        self._ev = ev
        self._faults = faults
        self._facts = facts
        self._by_op: dict[Operation, World] = {}
        self._dropped: set[Operation] = set()
        # In which all ops leave their padding out, once a second one does; None where none is.
        self._joint: World | None = None
        self._may_join = True
        # For sums that leave elements out: the extent, which are left out, and the load.
        self._counts: dict[Value, tuple[int, Tensor, Operation]] = {}
        self.is_apart = False

    @property
    def are_followed(self) -> bool:
        """Whether there are worlds, or a sum whose division may begin one."""
        return bool(self._by_op or self._counts)

    @property
    def has_joint(self) -> bool:
        """Whether there is a world in which several ops leave their padding out."""
        return self._joint is not None

    def has_begun(self, op: Operation) -> bool:
        """Whether there is a world in which `op` leaves its padding out."""
        return op in self._by_op

    def differ_in(self, value: Value) -> bool:
        """Whether a value differs in one of the worlds."""
        return any(value in world.values for world in self._followed())

    def _followed(self) -> list[World]:
        """Return all worlds, the joint one last."""
        return [*self._by_op.values(), *(() if self._joint is None else (self._joint,))]

    def note_count(self, value: Value, extent: int, left_out: Tensor, load: Operation) -> None:
        """Note that `value` sums `extent` elements, except those that a load masks off."""
        self._counts[value] = (extent, left_out, load)

    def forget_counts(self, op: Operation) -> None:
        """Forget the counts of `op`, which gives other results than before."""
        for value in op.results if self._counts else ():
            self._counts.pop(value, None)

    def forget_results(self, op: Operation) -> None:
        """Forget the results of `op` in all worlds: they count as the kernel's."""
        for world in self._followed():
            world.forget_results(op)

    def forget(self, value: Value) -> None:
        """Forget a value that dies; end worlds in which no value differs."""
        self._counts.pop(value, None)
        for world in self._followed():
            world.values.pop(value, None)
            if world.values:
                continue
            if world is self._joint:
                self._joint = None
            else:
                del self._by_op[world.op]

    def forward(self, op: Operation) -> None:
        """Follow control from `op` on in all worlds; end those in which it goes another way."""
        self._keep(lambda world: world.forward(self._ev, op))

    def _keep(self, is_kept: Callable[[World], bool]) -> None:
        """End for good the worlds that are not kept; with an op's world, the joint one ends too."""
        for world in tuple(self._by_op.values()):
            if not is_kept(world):
                del self._by_op[world.op]
                self._dropped.add(world.op)
                self._joint, self._may_join = None, False
        if self._joint is not None and not is_kept(self._joint):
            self._joint, self._may_join = None, False

    def step(
        self,
        op: Operation,
        operands: Sequence[TileValue],
        cleaned: dict[int, Tensor],
        padding: dict[int, Tensor],
        load: Operation | None,
    ) -> None:
        """Follow `op`, which is about to run.

        Args:
            op: the op.
            operands: its operands.
            cleaned: by operand, the elements that it should not take in.
            padding: the same, with elements that make no difference in the kernel.
            load: the load whose padding these are.
        """
        if not cleaned and not self.are_followed:
            return
        self._keep(lambda world: not world.is_corrected_by(op))
        own = self._by_op.get(op)
        if own is None and cleaned and self._may_begin(op):
            self._begin(op, operands, cleaned, load)
        elif own is None and not cleaned:
            self._divide(op, operands)
        for world in self._followed():
            is_joint = world is self._joint
            if own is None and world.op is op and not is_joint:
                continue  # it has just begun
            if op in self._facts.reached and not is_joint:
                world.note_lost(self._ev, op, operands[0])
            left_out = cleaned if world.op is op or is_joint else {}
            given = world.operands_of(op, operands)
            if is_joint and given is not None:
                # Elements that are neutral in the kernel need not be so here.
                left_out = padding or cleaned
            if given is None and not left_out:
                world.forget_results(op)
                continue
            world.set_results(op, self._run(op, given or operands, left_out))

    def _may_begin(self, op: Operation) -> bool:
        return op not in self._dropped and len(self._by_op) < _MOST_WORLDS

    def _begin(
        self,
        op: Operation,
        operands: Sequence[TileValue],
        cleaned: dict[int, Tensor],
        load: Operation | None,
    ) -> None:
        clean = self._run(op, operands, cleaned)
        real = self._run(op, operands, {})
        types = [value.type for value in op.results]
        if not any(
            differs(self._ev.full(a, type_), self._ev.full(b, type_))
            for a, b, type_ in zip(real, clean, types, strict=True)
        ):
            return
        assert load is not None
        place = min(cleaned)
        load = self._masking(op, place, load)
        neutral = neutral_text(op, self._ev.dtype_of(op.operands[place].type))
        if tt.Histogram.matches(op):
            hint = "pass the load's mask to tl.histogram, too"
        elif load.results[0] in op.operands:
            hint = f"pass other={neutral} there, which is neutral here"
        else:
            hint = f"choose with tl.where(mask, x, {neutral}) before it, which is neutral here"
        if self._joint is None and self._may_join and len(self._by_op) == 1:
            (first,) = self._by_op.values()
            self._joint = first.copied()
        world = World(op, load, what_of(op), hint)
        self._by_op[op] = world
        world.set_results(op, clean)

    def _masking(self, op: Operation, place: int, load: Operation) -> Operation:
        """Return the load that masks what `op` takes in: `load`, unless its axes show another."""
        loads = MaskedAxes.of(self._facts.module).combined_by(op, place)
        return load if load in loads or not loads else min(loads, key=lambda one: one.id)

    def _divide(self, op: Operation, operands: Sequence[TileValue]) -> None:
        """Begin a world if a sum that leaves elements out is divided by the whole tile's extent."""
        if not (arith.DivF.matches(op) or arith.MulF.matches(op)) or not self._may_begin(op):
            return
        for value, tile in zip(op.operands, operands, strict=True):
            known = self._counts.get(value)
            if known is None:
                continue
            extent, left_out, load = known
            other = next((one for one in op.operands if one is not value), value)
            divisor = extent if arith.DivF.matches(op) else 1 / extent
            if arith.Binary(op).lhs is not value or constant_everywhere(other) != divisor:
                continue
            hint = f"divide by the number of elements, not by the extent of the tile, {extent}"
            world = World(op, load, "mean", hint)
            self._by_op[op] = world
            sums = self._ev.dense(tile, value.type)
            count = extent - int(left_out.sum())
            world.set_results(op, [sums / count])

    def _run(
        self, op: Operation, operands: Sequence[TileValue], cleaned: dict[int, Tensor]
    ) -> Sequence[TileValue]:
        """Run `op` on other operands, with some of their elements left out."""
        ev = self._ev
        place = self._facts.accumulations.get(op)
        given = list(operands)
        if place is None or tt.Dot.matches(op):
            for at, shadow in cleaned.items():
                values = ev.full(given[at], op.operands[at].type)
                neutral = left_out_by(op, values.dtype)
                given[at] = torch.where(shadow, torch.tensor(neutral, dtype=values.dtype), values)
        with self._apart():
            results = run_alone(ev, op, given)
        if place is not None and not tt.Dot.matches(op) and place in cleaned:
            carried = ev.dense(given[place], op.result.type)
            return [torch.where(cleaned[place], carried, ev.dense(results[0], op.result.type))]
        return results

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Run ops beside the kernel: over no memory of its values, and without their faults."""
        ev = self._ev
        saved = ev.fusion, ev.faults
        ev.fusion, ev.faults = Fusion(), FaultLog("", 0, ev.grid, is_reported=False)
        self.is_apart = True
        try:
            yield
        finally:
            self.is_apart = False
            ev.fusion, ev.faults = saved

    def compare(
        self,
        access: ObservedAccess,
        value: Value,
        stored: Callable[[], Tensor],
        pad: Tensor | None,
    ) -> None:
        """Report where a world would store something else.

        Args:
            access: the store.
            value: the value that it stores.
            stored: returns the stored elements of a value.
            pad: which of the elements are padding themselves; None for none.
        """
        worlds = [world for world in self._by_op.values() if value in world.values]
        if not worlds:
            return
        values = stored()
        open_ones = torch.zeros(values.shape[0], dtype=torch.bool, device=values.device)
        told = open_ones.clone()
        for world in worlds:
            wrong, is_lost = self._judged(world, access, value, values, pad)
            open_ones, told = open_ones | is_lost, told | wrong
            self._tell_of(world, access, value, values, wrong)
        if self._joint is not None and value in self._joint.values:
            wrong, _ = self._judged(self._joint, access, value, values, pad)
            self._tell_of(self._joint, access, value, values, wrong & open_ones & ~told)

    def _judged(
        self,
        world: World,
        access: ObservedAccess,
        value: Value,
        values: Tensor,
        pad: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return where a world would store something else, and where it shows nothing."""
        touched, first = access.touch(), self._ev.first
        clean = at_touched(self._ev.full(world.values[value], value.type), touched, first)
        wrong = different(values, clean)
        if pad is not None:
            wrong = wrong & ~at_touched(pad, touched, first)
        if world.untold is not None:
            wrong = wrong & ~world.untold[touched.programs - first]
        is_lost = torch.zeros_like(wrong)
        if clean.is_floating_point():
            is_lost = ~clean.isfinite() & values.isfinite()
        if world.lost is not None:
            lost = world.lost.expand(self._ev.programs)
            is_lost = is_lost | lost[touched.programs - first]
        return wrong, is_lost

    def _tell_of(
        self, world: World, access: ObservedAccess, value: Value, values: Tensor, wrong: Tensor
    ) -> None:
        """Report the elements that are wrong, if there are any."""
        places = wrong.nonzero().reshape(-1)
        if places.numel():
            first = int(places[0])
            tile = self._ev.full(world.values[value], value.type)
            clean = at_touched(tile, access.touch(), self._ev.first)
            shown = _shown(values[first]), _shown(clean[first])
            self._tell(world, access, first, places.numel(), shown)

    def _tell(
        self, world: World, access: ObservedAccess, first: int, count: int, shown: tuple[str, str]
    ) -> None:
        stored = self._faults.offender(access.buffer, access.touch(), first)
        place = place_of(world.load, world.op)
        did = f"this {world.what} takes in elements that the load at {place} masks off"
        if world.what == "mean":
            did = f"this mean counts elements that the load at {place} masks off"
        wrong, right = shown
        self._faults.value_fault(
            world.op,
            "padding",
            f"{did}: {wrong} in place of {right} is stored",
            Offender(stored.program_id, (), stored.index),
            count,
            severity="error",
            store=access.op,
            tensor=access.buffer.name,
            hint=world.hint,
        )


def _shown(value: Tensor) -> str:
    return f"{value.item():g}" if value.is_floating_point() else str(value.item())
