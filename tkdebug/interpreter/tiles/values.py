"""Values of tiles while the interpreter runs: many programs at once, symbolic where possible.

A tile of shape S in P programs is one of

- `int`: the same integer (or i1, as 0 or 1) in every element of every program;
- `torch.Tensor` of rank 1 + len(S): axis 0 the programs, then the tile's axes; an axis of extent 1
  represents all its positions;
- `AffineTile`: an integer tile const + base + sum of coefficient x position, never wrapped;
- `BoxMask`: an i1 tile that is true in an interval of positions along each axis;
- `BoxTile`: a tile known densely inside a box and equal to a fill outside;
- `DeferredTile`: a float tile on its way into a store;
- `RepeatedTile`: a tile on its way into a dot, that is the same in several programs;
- `PointerTile`: a buffer and an integer tile of element offsets into it;
- `AddressTile`: pointers without one known buffer, as byte addresses;
- `BufferView`: a buffer in shared memory, or a part of one;
- `SideBySide`: a float tile with what it would be in fp64, where somebody keeps both.

Invariant: an AffineTile's values fit its IR type; a BoxMask is neither everywhere true nor
everywhere false by its constant bounds (those are the ints 1 and 0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Union

from tkdebug.interpreter.tiles.program_bases import Base, Repeats, reach

if TYPE_CHECKING:
    from torch import Tensor

    from tkdebug.interpreter.memory.buffers import Buffer
    from tkdebug.interpreter.tiles.side_by_side import SideBySide


class AffineTile:
    """The integer tile const + base + sum over axes of coefficient x position.

    Attributes:
        const: the constant part.
        base: per-program (or denser) part, None for zero.
        coefs: one per tile axis; 0 if the axis has extent 1.
        shape: the tile's shape, programs not counted.
    """

    __slots__ = ("base", "coefs", "const", "shape")

    def __init__(
        self, const: int, base: Base | None, coefs: tuple[int, ...], shape: tuple[int, ...]
    ) -> None:
        self.const = const
        self.base = base
        self.coefs = coefs
        self.shape = shape

    @property
    def is_scalar_like(self) -> bool:
        """Whether no axis has a coefficient."""
        return not any(self.coefs)

    def spread(self) -> tuple[int, int]:
        """Return the minimum and the maximum of the sum over axes."""
        return reach(self.shape, self.coefs)

    def bounds(self, exact: bool = False) -> tuple[int, int]:
        """Return a range that holds all values; with `exact`, made of the base's true range."""
        low, high = self.spread()
        if self.base is not None:
            base = self.base.exact_bounds if exact else self.base.bounds
            low, high = low + base[0], high + base[1]
        return low + self.const, high + self.const

    def shifted(self, delta: int) -> AffineTile:
        """Every value plus `delta`."""
        return AffineTile(self.const + delta, self.base, self.coefs, self.shape)

    def cropped(self, box: Box) -> AffineTile:
        """The part inside `box`."""
        const = self.const
        base = self.base
        shape = []
        for axis, (low, high) in enumerate(box):
            const += self.coefs[axis] * low
            shape.append(high - low)
            if base is not None and base.shape[axis + 1] > 1:
                base = Base(base.tensor.narrow(axis + 1, low, high - low), base.bounds)
        return AffineTile(const, base, self.coefs, tuple(shape))

    def __repr__(self) -> str:
        return f"AffineTile({self.const}, {self.base and self.base.tensor}, {self.coefs})"


class DeferredTile:
    """An elementwise result that only a store will use: computed straight into the memory.

    Attributes:
        operands: the operands of `fn`, cropped to `box` when that is not None.
        outside: the operands' fills outside the box.
        shape: the shape of the whole tile, with a box.
    """

    __slots__ = ("box", "fn", "operands", "outside", "shape")

    def __init__(
        self,
        fn: Callable[..., Tensor],
        operands: tuple[Tensor, ...],
        box: Box | None = None,
        outside: tuple[Tensor, ...] = (),
        shape: tuple[int, ...] = (),
    ) -> None:
        self.fn = fn
        self.operands = operands
        self.box = box
        self.outside = outside
        self.shape = shape

    def compute(self, out: Tensor | None = None) -> Tensor:
        """The result, in memory of its own or in `out` of exactly its shape and dtype."""
        return self.fn(*self.operands) if out is None else self.fn(*self.operands, out=out)

    def boxed(self) -> BoxTile:
        """The result as a box tile."""
        assert self.box is not None
        return BoxTile(self.compute(), self.box, self.fn(*self.outside), self.shape)


class RepeatedTile:
    """A tile that only a dot will use, and that is the same in several programs.

    Attributes:
        data: (distinct, *shape).
    """

    __slots__ = ("data", "repeats")

    def __init__(self, data: Tensor, repeats: Repeats) -> None:
        self.data = data
        self.repeats = repeats

    def spread(self) -> Tensor:
        """The tile of every program, (P, *shape)."""
        return self.data.index_select(0, self.repeats.places)

    def of_runs(self) -> Tensor:
        """Return the data of each run of programs, (P / run, *shape)."""
        return self.data.index_select(0, self.repeats.run_places)


Box = tuple[tuple[int, int], ...]
Bound = Union[int, "Tensor"]


class BoxMask:
    """True if low <= position < high along every axis; bounds are ints or (P,) int64."""

    __slots__ = ("bounds", "shape")

    def __init__(self, bounds: tuple[tuple[Bound, Bound], ...], shape: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.shape = shape

    @property
    def uniform_box(self) -> Box | None:
        """The box when it is the same in all programs."""
        if all(isinstance(low, int) and isinstance(high, int) for low, high in self.bounds):
            return self.bounds  # type: ignore[return-value]
        return None


class BoxTile:
    """`data` inside `box`, `fill` outside.

    `fill` is a tensor with extent 1 along the axes that the box crops.
    """

    __slots__ = ("box", "data", "fill", "shape")

    def __init__(self, data: Tensor, box: Box, fill: Tensor, shape: tuple[int, ...]) -> None:
        self.data = data
        self.box = box
        self.fill = fill
        self.shape = shape

    @property
    def cropped_axes(self) -> tuple[int, ...]:
        """The tile axes that the box does not cover."""
        return tuple(
            axis
            for axis, ((low, high), extent) in enumerate(zip(self.box, self.shape, strict=True))
            if (low, high) != (0, extent)
        )


class PointerTile:
    """Pointers into one buffer: `offset` counts elements from the buffer's first."""

    __slots__ = ("buffer", "offset")

    def __init__(self, buffer: Buffer, offset: IntTile) -> None:
        self.buffer = buffer
        self.offset = offset

    @property
    def places(self) -> IntTile:
        """The offsets, by which pointers are compared."""
        return self.offset

    def at(self, places: TileValue) -> PointerTile:
        """Pointers into the same buffer at other places, an integer tile."""
        return PointerTile(self.buffer, places)  # type: ignore[arg-type]


class AddressTile:
    """Pointers as byte addresses; `buffers` are those they may point into."""

    __slots__ = ("address", "buffers", "itemsize")

    def __init__(self, address: IntTile, buffers: tuple[Buffer, ...], itemsize: int) -> None:
        self.address = address
        self.buffers = buffers
        self.itemsize = itemsize

    @property
    def places(self) -> IntTile:
        """The addresses, by which pointers are compared."""
        return self.address

    def at(self, places: TileValue) -> AddressTile:
        """Pointers into the same buffers at other places, an integer tile."""
        return AddressTile(places, self.buffers, self.itemsize)  # type: ignore[arg-type]


class DescriptorTile:
    """A tensor descriptor: base pointer, extents and strides in elements, padding."""

    __slots__ = ("base", "padding", "shape", "strides")

    def __init__(
        self,
        base: PointerTile | AddressTile,
        shape: Sequence[IntTile],
        strides: Sequence[IntTile],
        padding: str,
    ) -> None:
        self.base = base
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.padding = padding


class BufferView:
    """A window on buffers in shared memory; with `other`, a view chosen per program.

    Attributes:
        storage: (P, buffers, *shape of a buffer), shared by all views of it; P may be 1 where the
            contents never change.
        index: the buffer's number: an int, or one for each program (P,); None for all buffers.
        window: (start, size) along each dimension of a buffer.
        order: the dimensions of the window in the order in which the view has them.
        chosen: (P,) bool, the programs whose view this is; None for all.
        other: the view of the other programs.
    """

    __slots__ = ("chosen", "index", "order", "other", "storage", "window")

    def __init__(
        self,
        storage: Tensor,
        index: int | Tensor | None,
        window: Box,
        order: tuple[int, ...],
        chosen: Tensor | None = None,
        other: BufferView | None = None,
    ) -> None:
        self.storage = storage
        self.index = index
        self.window = window
        self.order = order
        self.chosen = chosen
        self.other = other


IntTile = Union[int, "Tensor", AffineTile]
TileValue = Union[
    int,
    "Tensor",
    AffineTile,
    BoxMask,
    BoxTile,
    DeferredTile,
    RepeatedTile,
    PointerTile,
    AddressTile,
    DescriptorTile,
    BufferView,
    "SideBySide",
]
