"""Elements of values that an observer follows, through branches and loops, from where they arose.

A shadow is a bool tensor like any tile's (P or 1, then the tile's axes, extent 1 for all
positions). Subclasses define what shadows mean, how ops pass them on and where they are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import Tensor

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import Writing, stored
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, forwarded
from tkdebug.interpreter.memory.touched import Touched
from tkdebug.interpreter.observers import Observer

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.memory.observed_access import ObservedAccess


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
        """The element that the op gave, for one that was used: in the same lane if it may be."""
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
        """Hear that control goes on by the operands of `op`."""

    def enter(self, op: Operation) -> None:
        """Hear that a branch is taken, or a loop begins with its operands."""
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
        """A shadow of the active programs only."""
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
    """Whether the program axis is the programs' where `op` runs: not so in a combine region."""
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
    """Return a function for the elements that an atomic with a `stored_value` brings."""

    def elements() -> Tensor:
        value = stored_value(access.op)
        assert value is not None
        return at_touched(ev.full(ev.values[value], value.type), access.touch(), ev.first)

    return elements


def element_at(values: Tensor, place: tuple[int, ...]) -> Tensor:
    """The element at `place`; an axis of extent 1 represents all positions."""
    return values[tuple(min(at, n - 1) for at, n in zip(place, values.shape, strict=True))]
