"""Stores of wrong values, held back until the launch ends: what is overwritten by then is no fault.

Kernels store whole tiles and put parts of them right afterwards, as the triangle above a diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.memory.observed_access import ObservedAccess

# Of so many stores of one fault it is known what was stored; of others only where.
_MOST_KNOWN = 8


@dataclass(frozen=True, slots=True)
class _Held:
    """Wrong elements of one store: the whole allocation, and their places in it.

    `tell` reports them, by the first of them that is left, and how many are.
    """

    memory: Tensor
    places: Tensor
    is_wrong: Callable[[Tensor], Tensor]
    tell: Callable[[int, int], None] | None

    def left(self) -> Tensor:
        """Which of them are wrong still."""
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
        """Report a store at the end, if some of it is still there.

        Args:
            origin: what made the values.
            access: the store.
            dtype: of the elements in memory.
            places: (n,) int64, of the wrong elements in their allocation; n > 0.
            is_wrong: which of some values are wrong: (m,) to (m,) bool.
            tell: reports the fault, given the index in `places` of the first element that is left,
                and how many are left of all stores of that kind.
        """
        of_kind = self._held.setdefault((origin, access.op), [])
        known = tell if len(of_kind) < _MOST_KNOWN else None
        of_kind.append(_Held(access.buffer.flat(dtype), places, is_wrong, known))

    def settle(self) -> None:
        """Report what is left; the launch has ended."""
        for of_kind in self._held.values():
            left = [held.left() for held in of_kind]
            count = sum(each.numel() for each in left)
            for held, each in zip(of_kind, left, strict=True):
                if each.numel() and held.tell is not None:
                    held.tell(int(each[0]), count)
                    break
        self._held.clear()
