"""An access to memory as observers get it: elements are only listed when asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.dialects.interfaces import stored
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.pointers import offsets_of
from tkdebug.interpreter.memory.touched import (
    Hyperslab,
    Intervals,
    Touched,
    are_injective,
    batch_positions,
    hyperslabs_of,
    intervals_of,
)
from tkdebug.interpreter.numerics.scans import quick_sum_of, sum_of
from tkdebug.interpreter.tiles.values import BoxTile, RepeatedTile, TileValue

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Evaluator
    from tkdebug.interpreter.memory.checked_access import Access

_UNKNOWN = object()
_SMALL_ELEMS = 4096


class ObservedAccess:
    """A load, a store or an atomic of some programs of a batch.

    Its elements are those that are masked on and legal. They have three forms, each made when an
    observer first asks for it, once for all observers:

    - `hyperslabs()`: strided views of the allocation, a few for all programs together. Cheap;
      None if the offsets are not affine, or the mask is no box;
    - `intervals()`: the first and the last element of each program, if each program's elements are
      one run without gaps. Cheap; None otherwise;
    - `touch()`: one entry for each element, in order of programs, then of the tile. There is always
      this form; it costs far more than the access itself.

    A check asks for a compact form first, and for `touch()` if there is none, or once it has found
    something to report:

        slabs = access.hyperslabs()
        if slabs is not None:
            for slab in slabs:
                slab.view(self._seen)[...] = True
        else:
            self._seen[access.touch().places] = True

    Attributes:
        op: the load, store or atomic.
        buffer: the tensor; `buffer.storage_key` names its allocation.
        shape: the shape of the tile.
        loaded: the result of a load: inside the box if it is boxed, once if programs have the same;
            None if that is no plain tensor. For an atomic, the old values. None for stores.
    """

    __slots__ = (
        "_access",
        "_dense",
        "_elements",
        "_intervals",
        "_run",
        "_slabs",
        "_stored",
        "_sum",
        "_touched",
        "_values",
        "buffer",
        "loaded",
        "op",
        "shape",
    )

    def __init__(
        self,
        run: Evaluator,
        op: Operation,
        buffer: Buffer,
        shape: tuple[int, ...],
        elements: Callable[[], Touched],
        access: Access | None = None,
        values: TileValue | None = None,
    ) -> None:
        self.op = op
        self.buffer = buffer
        self.shape = shape
        self.loaded: Tensor | None = None
        self._run = run
        self._access = access
        self._elements = elements
        self._values = values
        self._touched: Touched | None = None
        self._stored: Tensor | None = None
        self._slabs: object = _UNKNOWN
        self._intervals: object = _UNKNOWN
        self._sum: object = _UNKNOWN

    @classmethod
    def of_tile(
        cls, run: Evaluator, access: Access, values: TileValue | None = None
    ) -> ObservedAccess:
        """Make the access of an affine tile and a mask; `values` are the stored ones."""
        elements = lambda: touched_by(run, access)  # noqa: E731
        return cls(run, access.op, access.buffer, access.shape, elements, access, values)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.buffer.itemsize

    def touch(self) -> Touched:
        """Return its elements one by one."""
        if self._touched is None:
            self._touched = self._elements()
        return self._touched

    def hyperslabs(self) -> tuple[Hyperslab, ...] | None:
        """Return the elements as strided views, () for none; None if they have no such form."""
        if self._slabs is _UNKNOWN:
            access = self._access
            self._slabs = None if access is None else hyperslabs_of(self._run, access)
        return self._slabs  # type: ignore[return-value]

    def intervals(self) -> Intervals | None:
        """The elements as one run per program; None if some program has gaps."""
        if self._intervals is _UNKNOWN:
            access = self._access
            self._intervals = None if access is None else intervals_of(self._run, access)
        return self._intervals  # type: ignore[return-value]

    def rows(self) -> int | None:
        """Return the number of the access's programs; None if it is no affine tile."""
        return None if self._access is None else batch_positions(self._run, self._access).shape[0]

    def touch_rows(self, rows: Tensor) -> Touched:
        """Return the elements of some of its programs, given by numbers below `rows()`."""
        from tkdebug.interpreter.memory.checked_access import (
            narrowed,  # which imports what imports this
        )

        assert self._access is not None
        return touched_by(self._run, narrowed(self._run, self._access, rows))

    def touch_programs(self, positions: Tensor) -> Touched:
        """Return the elements of the active programs among some positions in the batch."""
        access, active = self._access, self._run.active
        if access is None:
            touched = self.touch()
            return touched.chosen(torch.isin(touched.programs - self._run.first, positions))
        if access.programs is not None:
            return self.touch_rows(torch.isin(access.programs, positions).nonzero().reshape(-1))
        return self.touch_rows(positions if active is None else positions[active[positions]])

    # Values of a store

    def stored(self) -> Tensor:
        """Return the value that a store has for each element of `touch()`."""
        if self._stored is None:
            self._stored = self._picked()
        return self._stored

    def stored_tile(self) -> Tensor:
        """Return a store's whole tile, masked or not: (P or 1, *shape), 1 if all are equal."""
        value = self._values
        assert value is not None, "only stores have values"
        if not isinstance(value, Tensor):
            value = self._values = self._run.dense(value, stored(self.op).type)
        return value

    def stored_sum(self) -> float | None:
        """Return a sum of the stored floats: NaN if there is one, finite if all are.

        This takes one pass for all observers; None if each element has to be looked at.
        """
        if self._sum is _UNKNOWN:
            self._sum = self._added_up(quick_sum_of)
        return self._sum  # type: ignore[return-value]

    def stored_is_finite(self) -> bool | None:
        """Return whether all stored floats are finite; None as for `stored_sum`.

        It may be False for finite values whose sum overflows.
        """
        total = self.stored_sum()
        if total is not None and math.isinf(total):
            total = self._added_up(sum_of)
        return None if total is None else math.isfinite(total)

    def _added_up(self, add: Callable[[Tensor], float]) -> float | None:
        memory = self.buffer.flat(self._run.dtype_of(stored(self.op).type))
        # To find the elements takes longer than to add up all of a small tensor, or of one that
        # has no more elements than the tiles.
        if memory.numel() <= self._most_added() and math.isfinite(total := add(memory)):
            return total
        slabs = self.hyperslabs()
        if slabs is None or not are_injective(slabs):
            return None
        return sum(add(slab.view(memory)) for slab in slabs)

    def _most_added(self) -> int:
        if self._access is None or self._access.programs is not None:
            return _SMALL_ELEMS
        return max(_SMALL_ELEMS, self._run.programs * math.prod(self.shape))

    @property
    def value(self) -> TileValue:
        """The stored tile, in its present form."""
        assert self._values is not None, "only stores have values"
        return self._values

    def _picked(self) -> Tensor:
        tile, touched = self.stored_tile(), self.touch()
        values = tile.expand(-1, *self.shape).reshape(tile.shape[0], -1)
        if tile.shape[0] == 1:
            return values[0, touched.lanes]
        return values[self.rows_of(touched.programs - self._run.first), touched.lanes]

    def rows_of(self, positions: Tensor) -> Tensor:
        """Return the rows of `stored_tile()` of programs, from their positions in the batch."""
        if self._access is None or self._access.programs is None:
            return positions
        return torch.searchsorted(self._access.programs, positions)


# Observers that follow accesses


def tell_read(run: Evaluator, access: ObservedAccess, loaded: TileValue | None) -> None:
    """Pass a load of `loaded` to the observers, after it."""
    values = loaded.data if isinstance(loaded, BoxTile | RepeatedTile) else loaded
    access.loaded = values if isinstance(values, Tensor) else None
    for observer in run.followers:
        observer.read(run, access)


def tell_store(run: Evaluator, access: ObservedAccess, store: Callable[[TileValue], None]) -> None:
    """Store, with calls of the observers before and after it."""
    for observer in run.followers:
        observer.writing(run, access)
    store(access.value)
    for observer in run.followers:
        observer.written(run, access)


def tell_atomic(run: Evaluator, access: ObservedAccess, apply: Callable[[], Tensor]) -> Tensor:
    """Apply an atomic between calls of the observers; `apply` returns the old values."""
    for observer in run.followers:
        observer.atomic(run, access)
    access.loaded = old = apply()
    for observer in run.followers:
        observer.atomic_done(run, access)
    return old


# Elements


def touched_by(run: Evaluator, access: Access) -> Touched:
    """The legal elements of an access that are not masked off."""
    offsets = offsets_of(run, access.tile, access.buffer.itemsize)
    allowed = ~access.buffer.outside(offsets)
    if not isinstance(access.mask, int):
        allowed = allowed & run.dense(access.mask, ir.tile(access.shape, ir.I1))
    elif not access.mask:
        allowed = torch.zeros_like(allowed)
    return elements_touched(run, access.buffer, offsets, allowed, access.shape, access.programs)


def elements_touched(
    run: Evaluator,
    buffer: Buffer,
    offsets: Tensor,
    allowed: Tensor,
    shape: tuple[int, ...],
    programs: Tensor | None = None,
) -> Touched:
    """The elements of `buffer` at `offsets` where `allowed`, by programs' batch positions."""
    if programs is None:
        programs = torch.arange(run.programs, device=run.device)
        # What is the same in the whole batch has one row for all active programs.
        if run.active is not None and max(offsets.shape[0], allowed.shape[0]) == 1:
            programs = programs[run.active]
    if not shape and programs.shape[0] == 1 and offsets.numel() == 1:
        # A lock, mostly.
        place, on = (offsets + buffer.storage_offset).reshape(1), allowed.reshape(1)
        here, lanes = run.first + programs, torch.zeros_like(programs)
        return Touched(place[on], here[on], lanes[on], shape, buffer.itemsize)
    whole = (programs.shape[0], *shape)
    size = math.prod(shape)
    if bool(allowed.all()):
        return Touched(
            (offsets + buffer.storage_offset).expand(whole).reshape(-1),
            (run.first + programs).repeat_interleave(size),
            torch.arange(size, device=run.device).repeat(programs.shape[0]),
            shape,
            buffer.itemsize,
        )
    keep = allowed.expand(whole).reshape(-1).nonzero().reshape(-1)
    return Touched(
        (offsets + buffer.storage_offset).expand(whole).reshape(-1)[keep],
        run.first + programs[keep // size],
        keep % size,
        shape,
        buffer.itemsize,
    )
