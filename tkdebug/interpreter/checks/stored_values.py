"""Parts that the checks of stored values share: NaN, Inf and narrowing.

Stores of wrong values are held back until the launch ends: a value that is overwritten by then is
no fault. Kernels store whole tiles and correct parts of them afterwards, as the triangle above a
diagonal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from tkdebug.compiler.analysis.data_flow import traced
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import Cast
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.memory.observed_access import ObservedAccess
from tkdebug.interpreter.numerics.scans import sum_of
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer
from tkdebug.interpreter.tiles.values import BoxTile, TileValue

# Through these, values stay what they were.
_HAND_ON = names_of(Cast, tt.Rearrangement)


def is_function_of_input(op: Operation) -> bool:
    """Whether `op` is a function of values as the kernel was given them, as in sqrt(load(x))."""
    if not (op.name.startswith("math.") or tt.ExternElementwise.matches(op)):
        return False
    return all(_is_given(traced(value, _HAND_ON)) for value in op.operands)


def gives_function_of_input(value: Value) -> bool:
    """Whether `value`, in any type, is given by an op with `is_function_of_input`."""
    source = traced(value, _HAND_ON).defining_op
    return source is not None and is_function_of_input(source)


def _is_given(value: Value) -> bool:
    source = value.defining_op
    if source is None:
        return isinstance(value.owner, Block) and tt.Func.matches(value.owner.parent_op)
    return any(view.matches(source) for view in (tt.Load, tt.DescriptorLoad, arith.Constant))


def all_finite(tile: TileValue) -> bool:
    """Whether a float tile is certainly without Inf and NaN."""
    if isinstance(tile, BoxTile):
        return all_finite(tile.data) and all_finite(tile.fill)
    if not isinstance(tile, Tensor):
        return True
    # A sum that overflows only costs the closer look.
    return isfinite(sum_of(tile))


def is_float(type_: ir.Type) -> bool:
    """Whether a type is a float, or a tile of floats, of more than 8 bits."""
    if not isinstance(type_, ir.ScalarType | ir.TensorType):
        return False
    element = ir.element_of(type_)
    return isinstance(element, ir.ScalarType) and element.is_float and element.bits > 8


# Stores of one fault whose values are kept; for later ones only the places are.
_MOST_KNOWN = 8


@dataclass(frozen=True, slots=True)
class _Held:
    """Wrong elements of one store: their whole allocation, and their places in it.

    `tell` reports them, given the first element that is left, and the number of them.
    """

    memory: Tensor
    places: Tensor
    is_wrong: Callable[[Tensor], Tensor]
    tell: Callable[[int, int], None] | None

    def left(self) -> Tensor:
        """Return the positions of the elements that are still wrong."""
        return self.is_wrong(self.memory.index_select(0, self.places)).nonzero().reshape(-1)


class HeldStores:
    """The wrong values that one launch has stored so far."""

    def __init__(self) -> None:
        self._held: dict[tuple[Operation, Operation], list[_Held]] = {}

    def hold(
        self,
        origin: Operation,
        access: ObservedAccess,
        dtype: torch.dtype,
        places: Tensor,
        is_wrong: Callable[[Tensor], Tensor],
        tell: Callable[[int, int], None],
    ) -> None:
        """Have wrong values of a store reported at the launch's end, if some are still there.

        Args:
            origin: the op that made the values.
            access: the store.
            dtype: the dtype of the elements in memory.
            places: (n,) int64, of the wrong elements in their allocation; n > 0.
            is_wrong: returns which of some values are wrong: (m,) to (m,) bool.
            tell: reports the fault, given the index in `places` of the first element that is left,
                and the number of elements that are left of all stores of that kind.
        """
        of_kind = self._held.setdefault((origin, access.op), [])
        known = tell if len(of_kind) < _MOST_KNOWN else None
        of_kind.append(_Held(access.buffer.flat(dtype), places, is_wrong, known))

    def settle(self) -> None:
        """Report wrong values that are left; the launch has ended."""
        for of_kind in self._held.values():
            left = [held.left() for held in of_kind]
            count = sum(each.numel() for each in left)
            for held, each in zip(of_kind, left, strict=True):
                if each.numel() and held.tell is not None:
                    held.tell(int(each[0]), count)
                    break
        self._held.clear()


class StoredValueCheck(Observer, ABC):
    """Looks at stores alone where batches can be run again, and at ops where they cannot.

    A value that a launch stores and overwrites is no fault, so reports are held until it ends.
    """

    follows_accesses = True
    is_passive = True
    replays = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._faults = faults
        self._held = HeldStores()
        self._can_replay = False

    @property
    def key(self) -> Hashable:
        """Key that differs by whether batches can be run again: only if not, ops are looked at."""
        return type(self), self._can_replay

    def launch_begins(self, launch: LaunchContext) -> None:
        """Note whether ops need to be looked at from the start."""
        self._can_replay = launch.can_replay
        self.needs_intermediates = not launch.can_replay

    def moments(self, op: Operation) -> Moments:
        """Return the moments of a batch whose ops are looked at; never if batches can run again."""
        return Moments.NEVER if self._can_replay else self._moments_of(op)

    @abstractmethod
    def _moments_of(self, op: Operation) -> Moments:
        """Return the moments at `op` of a batch whose ops are looked at."""

    def launch_ends(self) -> None:
        """Report wrong values that are left in memory."""
        self._held.settle()
