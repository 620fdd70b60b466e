"""Elements of values that an observer follows, through branches and loops, from where they arose.

A shadow is a bool tensor like any tile's (P or 1, then the tile's axes, extent 1 for all
positions). Subclasses of `ShadowValues` define what shadows mean, how ops pass them on and where
they are reported.

The flow of undefined elements from an op's operands to its results is here, too: a shadow is true
where the value is undefined. Shadows end at an op that has no rule here: reports of undefined
values must be right, and may miss some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor

from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import Moving, Writing, stored
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, forwarded
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.memory.touched import Touched
from tkdebug.interpreter.numerics.scans import any_along
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.rules import run_alone
from tkdebug.interpreter.tiles.values import TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.memory.observed_access import ObservedAccess

Shadows = Sequence[Tensor | None]

# Where the other operand is 0 the result is 0, whatever the one is.
ANNIHILATED_BY_ZERO = frozenset(
    name for name, view in OPS.items() if issubclass(view, arith.Binary) and view.absorbing == 0
)
# Kernels mask scores by adding -inf, or -1e4 where that overflows: nothing is left of the score.
_DROWNING = 1e4
_ENDS = names_of(tt.Load, tt.Atomic)


@dataclass(frozen=True, slots=True)
class Origin:
    """One run of an op that gave elements which are followed.

    Attributes:
        bad: where they are, (P or 1, then the tile's axes in full).
        operands: the op's operands, broadcastable to `bad`; () if they show nothing.
    """

    op: Operation
    bad: Tensor
    operands: tuple[Tensor, ...]

    def place_of(self, program: int, lane: tuple[int, ...]) -> tuple[int, ...]:
        """Return a bad element for a used one: in its lane if that one is bad, else the first."""
        bad = self.bad
        row = program if bad.shape[0] > 1 else 0
        if bad.dim() == len(lane) + 1 and element_at(bad, (row, *lane)):
            return (program, *lane)
        inside = bad[row].nonzero() if bool(bad[row].any()) else bad.nonzero()[:, 1:]
        return (program, *inside[0].tolist())


Followed = TypeVar("Followed", bound=Origin)


class ShadowValues(Observer, Generic[Followed]):
    """The elements that are followed in one batch of programs.

    Attributes:
        shadows: the shadows of the values that have such elements, by the op that they come from;
            usually empty.
    """

    def __init__(self, ev: Evaluator) -> None:
        self._ev = ev
        self.shadows: dict[Value, dict[Operation, tuple[Followed, Tensor]]] = {}

    def forget(self, run: Evaluator, values: Iterable[Value]) -> None:
        """Forget values that die; blocks set their arguments' shadows again themselves."""
        for value in values:
            if value.defining_op is not None:
                self.shadows.pop(value, None)
        run.attend(self, bool(self.shadows))

    def decided(self, op: Operation) -> None:
        """Handle that operands of `op` decide where control goes; nothing by default."""

    def enter(self, op: Operation) -> None:
        """Pass shadows to the arguments of a branch or loop that is entered."""
        if not self.shadows:
            return
        for value in op.results:
            self.shadows.pop(value, None)
        self.decided(op)
        self._forward([(target, dict(self.shadows.get(x, {}))) for x, target in forwarded(op)])

    def leave(self, op: Operation) -> None:
        """Pass a region's values on to its parent, or to the next iteration."""
        if not self.shadows:
            return
        self.decided(op)
        # The active programs' shadows of what is forwarded, and the other programs' of what was.
        self._forward(
            [
                (target, self._blended(self.shadows.get(source), self.shadows.get(target)))
                for source, target in forwarded(op)
            ]
        )

    def set_shadow(self, value: Value, shadows: dict[Operation, tuple[Followed, Tensor]]) -> None:
        """Set the shadows that `value` has from now on."""
        if shadows:
            self.shadows[value] = shadows
        else:
            self.shadows.pop(value, None)

    def of_active(self, shadow: Tensor) -> Tensor:
        """Return the part of a shadow that is in active programs."""
        active = self._ev.active
        if active is None:
            return shadow
        return shadow & active.reshape(-1, *(1,) * (shadow.dim() - 1))

    def _forward(
        self, found: Iterable[tuple[Value, dict[Operation, tuple[Followed, Tensor]]]]
    ) -> None:
        for target, shadows in found:
            self.set_shadow(target, shadows)

    def _blended(
        self,
        new: dict[Operation, tuple[Followed, Tensor]] | None,
        old: dict[Operation, tuple[Followed, Tensor]] | None,
    ) -> dict[Operation, tuple[Followed, Tensor]]:
        active = self._ev.active
        if active is None:
            return dict(new or {})
        out: dict[Operation, tuple[Followed, Tensor]] = {}
        for shadows, programs in ((old, ~active), (new, active)):
            for key, (origin, shadow) in (shadows or {}).items():
                kept = shadow & programs.reshape(-1, *(1,) * (shadow.dim() - 1))
                if bool(kept.any()):
                    known = out.get(key)
                    out[key] = (origin, kept if known is None else known[1] | kept)
        return out


def is_in_kernel(op: Operation) -> bool:
    """Whether `op` runs on the programs' axis: False inside a combine region."""
    return all(around.name in CONTROL_FLOW or tt.Func.matches(around) for around in op.ancestors())


def stored_value(op: Operation) -> Value | None:
    """Return the value that a store or an atomic puts into memory; None for any other op."""
    return stored(op) if Writing.matches(op) else None


def at_touched(values: Tensor, touched: Touched, first: int) -> Tensor:
    """The elements of a tile that an access touches, in its order.

    Args:
        values: (P or 1, then the tile's axes, extent 1 for all positions).
        touched: the touched elements, by linear program ids.
        first: the id of the batch's first program.
    """
    whole = values.expand(values.shape[0], *touched.shape).reshape(values.shape[0], -1)
    rows = touched.programs - first if values.shape[0] > 1 else 0
    found: Tensor = whole[rows, touched.lanes]
    return found


def updated_by(ev: Evaluator, access: ObservedAccess) -> Callable[[], Tensor]:
    """Return a function that returns the `stored_value` elements of an atomic access."""

    def elements() -> Tensor:
        value = stored_value(access.op)
        assert value is not None
        return at_touched(ev.full(ev.values[value], value.type), access.touch(), ev.first)

    return elements


def element_at(values: Tensor, place: tuple[int, ...]) -> Tensor:
    """The element at `place`; an axis of extent 1 represents all positions."""
    return values[tuple(min(at, n - 1) for at, n in zip(place, values.shape, strict=True))]


def shadows_of_results(
    ev: Evaluator,
    op: Operation,
    operands: Sequence[TileValue],
    shadows: Shadows,
    all_shadows: Shadows,
) -> Sequence[Tensor | None]:
    """Return the results' shadows.

    Args:
        ev: the evaluator that is about to run `op`.
        op: any op but control flow.
        operands: its operands' values.
        shadows: the operands' shadows of one origin, at least one of which is not None.
        all_shadows: the operands' shadows of any origin.
    """
    if Moving.matches(op):
        return moved_shadows(ev, op, shadows)
    if tt.Reduce.matches(op):
        return _each(op, any_along(all_united(shadows), tt.Reduce(op).axis + 1))
    if tt.Scan.matches(op):
        return _each(op, scanned_shadows(op, all_united(shadows)))
    if tt.Dot.matches(op):
        return [_product(ev, op, operands, shadows, all_shadows)]
    if arith.Select.matches(op):
        return [selected_shadows(ev, op, operands, shadows)]
    if op.regions or op.name in _ENDS or not is_elementwise(op):
        return [None] * len(op.results)
    if op.name in ANNIHILATED_BY_ZERO:
        return [_kept(ev, op, operands, shadows, all_shadows, lambda other: other != 0)]
    if arith.AddF.matches(op) or arith.SubF.matches(op):
        return [
            _kept(ev, op, operands, shadows, all_shadows, lambda other: ~(other.abs() >= _DROWNING))
        ]
    if arith.OrI.matches(op) and ir.element_of(op.result.type).bits == 1:
        return [_kept(ev, op, operands, shadows, all_shadows, lambda other: ~other.bool())]
    return _each(op, all_united(shadows))


def united(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The elements that are in either of two shadows."""
    if a is None or b is None:
        return b if a is None else a
    return a | b


def all_united(shadows: Shadows) -> Tensor:
    """The elements that are in any of the shadows, at least one of which is not None."""
    total = None
    for shadow in shadows:
        total = united(total, shadow)
    assert total is not None
    return total


def _each(op: Operation, shadow: Tensor) -> Sequence[Tensor]:
    return [shadow] * len(op.results)


def is_elementwise(op: Operation) -> bool:
    """Whether each element of the results is computed from the operands' elements in its place."""
    if not op.results:
        return False
    shape = ir.shape_of(op.results[0].type)
    return all(
        not isinstance(value.type, ir.DescriptorType) and ir.shape_of(value.type) == shape
        for value in (*op.operands, *op.results)
    )


def moved_shadows(ev: Evaluator, op: Operation, shadows: Shadows) -> Sequence[Tensor]:
    """Return the results' shadows of an op that moves elements, moved likewise."""
    given = [
        _nothing(ev, operand) if shadow is None else shadow
        for operand, shadow in zip(op.operands, shadows, strict=True)
    ]
    results = run_alone(ev, op, given)
    return [ev.dense(result, ir.I1) for result in results]


def _nothing(ev: Evaluator, operand: Value) -> Tensor:
    rank = len(ir.shape_of(operand.type))
    return torch.zeros((1,) * (rank + 1), dtype=torch.bool, device=ev.device)


def scanned_shadows(op: Operation, shadow: Tensor) -> Tensor:
    """Return the elements of a scan's result that a shadowed element flows into."""
    scan = tt.Scan(op)
    axis = scan.axis
    counts = shadow.to(torch.uint8)
    if scan.reverse:
        return counts.flip(axis + 1).cummax(axis + 1).values.flip(axis + 1).bool()
    return counts.cummax(axis + 1).values.bool()


def selected_shadows(
    ev: Evaluator, op: Operation, operands: Sequence[TileValue], shadows: Shadows
) -> Tensor | None:
    """Return the shadows of the chosen elements, united with the condition's."""
    chooser, first, second = shadows
    condition = ev.dense(operands[0], arith.Select(op).condition.type).bool()
    rank = len(ir.shape_of(op.result.type))
    if condition.dim() != rank + 1:  # a scalar chooses whole tiles
        condition = condition.reshape(-1, *(1,) * rank)
        chooser = None if chooser is None else chooser.reshape(-1, *(1,) * rank)
    if first is not None:
        chooser = united(chooser, first & condition)
    if second is not None:
        chooser = united(chooser, second & ~condition)
    return chooser


def _kept(
    ev: Evaluator,
    op: Operation,
    operands: Sequence[TileValue],
    shadows: Shadows,
    all_shadows: Shadows,
    matters: Callable[[Tensor], Tensor],
) -> Tensor | None:
    """Return the union of the operands' shadows, less elements that the other operand decides."""
    total = None
    for place, shadow in enumerate(shadows):
        if shadow is None:
            continue
        other = 1 - place
        keep = matters(computable(ev.dense(operands[other], op.operands[other].type)))
        total = united(total, shadow & _or_shadowed(keep, all_shadows[other]))
    return total


def computable(values: Tensor) -> Tensor:
    """Return `values`, 8-bit floats as fp32: torch only moves the bits of these."""
    return values.float() if values.is_floating_point() and values.element_size() == 1 else values


def _or_shadowed(keep: Tensor, shadow: Tensor | None) -> Tensor:
    return keep if shadow is None else keep | shadow


def _product(
    ev: Evaluator,
    op: Operation,
    operands: Sequence[TileValue],
    shadows: Shadows,
    all_shadows: Shadows,
) -> Tensor | None:
    """Return a product's shadow: elements in which a shadowed one meets a non-zero number."""
    total = shadows[2]
    for place in (0, 1):
        shadow, other = shadows[place], 1 - place
        if shadow is None:
            continue
        types = [value.type for value in op.operands]
        values = computable(ev.full(operands[other], types[other]))
        keep = _or_shadowed(values != 0, all_shadows[other])
        keep = keep.expand(keep.shape[0], *ir.shape_of(types[other])).float()
        shadowed = shadow.expand(shadow.shape[0], *ir.shape_of(types[place])).float()
        met = torch.matmul(shadowed, keep) if place == 0 else torch.matmul(keep, shadowed)
        total = united(total, met != 0)
    return total


def rows_and_columns(shadows: Shadows) -> Tensor | None:
    """Return a matrix product's shadow: the accumulator's, and rows and columns with shadows."""
    a, b, total = shadows[:3]
    if a is not None:
        total = united(total, any_along(a, -1, keepdim=True))
    if b is not None:
        total = united(total, any_along(b, -2, keepdim=True))
    return total
