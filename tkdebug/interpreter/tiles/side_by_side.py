"""Float tiles in several versions: the kernel's, fp64, and one for each error hypothesis (world).

Rules of ops never get such a tile: `tkdebug.precision`, which makes them, runs each op once for
every side. Only control flow forwards and blends them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.compiler.ir import Type
from tkdebug.compiler.ir import types as ir

if TYPE_CHECKING:
    from tkdebug.interpreter.tiles.forms import TileForms
    from tkdebug.interpreter.tiles.values import TileValue


class AsActual:
    """Base of worlds in which a tile without an entry is the kernel's, not the fp64 one.

    Such a world has all errors of the kernel but some, and equals the kernel up to the first of
    these.
    """

    __slots__ = ()


class SideBySide:
    """The sides of a float tile.

    Attributes:
        actual: what the kernel has.
        exact: what it would have in fp64; None if that is `actual`, bit for bit.
        worlds: by world, the tile in fp64 with that world's errors. A missing world has `exact`, a
            missing `AsActual` world the kernel's values.
    """

    __slots__ = ("_wide", "actual", "exact", "worlds")

    def __init__(
        self,
        actual: TileValue,
        exact: Tensor | None = None,
        worlds: Mapping[Hashable, Tensor] | None = None,
    ) -> None:
        self.actual = actual
        self.exact = exact
        self.worlds: Mapping[Hashable, Tensor] = worlds or {}
        self._wide: Tensor | None = None

    def widened(self, run: TileForms, type_: Type) -> Tensor:
        """Return the kernel's values as fp64."""
        if self._wide is None:
            self._wide = widened(run, self.actual, type_)
        return self._wide

    def in_fp64(self, run: TileForms, type_: Type) -> Tensor:
        """Return the values that the tile would have in fp64."""
        return self.widened(run, type_) if self.exact is None else self.exact

    def in_world(self, run: TileForms, type_: Type, world: Hashable) -> Tensor:
        """Return the values that the tile would have in a world."""
        found = self.worlds.get(world)
        if found is not None:
            return found
        is_actual = isinstance(world, AsActual)
        return self.widened(run, type_) if is_actual else self.in_fp64(run, type_)


def widened(run: TileForms, value: TileValue, type_: Type) -> Tensor:
    """Return the floats of a plain tile as fp64; axes of extent 1 may represent more."""
    tensor = run.dense(value, type_)
    element = ir.element_of(type_)
    if isinstance(element, ir.ScalarType) and element.bits == 8:
        from tkdebug.interpreter.numerics import fp8

        tensor = fp8.convert(tensor, element.name, "f32", run.dtypes, False)
    return tensor.to(torch.float64)


def sides_of(value: TileValue) -> SideBySide:
    """Return a tile as sides; for a plain tile, fp64 equals what the kernel has."""
    return value if isinstance(value, SideBySide) else SideBySide(value)


def worlds_of(*values: TileValue) -> Iterator[Hashable]:
    """Yield the worlds for which some of the tiles have values of their own, each once."""
    yield from dict.fromkeys(
        world for value in values if isinstance(value, SideBySide) for world in value.worlds
    )
