"""Instrumentations, which entry points of `tkdebug.instrumentation` name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.layouts import WARP, LinearLayout

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class SeenOp:
    """An op as one program ran it.

    Attributes:
        op: the op of the Tile IR.
        values: the values of `Instrumentation.values`, in the shape of their tiles: int64 for
            integers and truth values, byte addresses (int64) for pointers, fp64 for floats.
        program_id: (x, y, z).
        iteration: how often the program ran the op before.
        gpu_op: the op in GPU IR, without anything that instruments it; None if the instrumentation
            is of Tile IR.
        layout: the layout of the op's first tile in GPU IR; None as above, and for ops without
            tiles.
    """

    op: Operation
    values: tuple[Tensor, ...]
    program_id: tuple[int, int, int]
    iteration: int
    gpu_op: Operation | None = None
    layout: LinearLayout | None = None

    def elements_by_warp(self) -> Iterator[Tensor]:
        """Yield, for each warp, the row-major positions of its elements, each once; int64.

        A scalar is element 0 of the first warp.
        """
        import torch

        if self.layout is None:
            yield torch.zeros(1, dtype=torch.int64)
            return
        dims = self.layout.in_dims[::-1]
        places = _row_major(self.layout).reshape([self.layout.in_size(dim) for dim in dims])
        for held in places.movedim(dims.index(WARP), 0):
            yield held.unique()


def _row_major(layout: LinearLayout) -> Tensor:
    """The position in the tile of each input of a layout, whose first dimension is lowest."""
    import torch

    packed = torch.tensor(layout.table, dtype=torch.int64)
    place = torch.zeros_like(packed)
    low = 0
    for _, size in layout.outs:
        bits = size.bit_length() - 1
        place = place * size + ((packed >> low) & (size - 1))
        low += bits
    return place


class Instrumentation:
    """Looks at ops of kernels as they run; subclasses override what they need.

    If kernels run on a GPU, the values that are asked for are recorded there and handed over
    afterwards; if they are interpreted, the values are taken directly. So both give the same.

    Attributes:
        level: the ops that `wants` is asked about: of "tile" IR, or of "gpu" IR.
        programs: the programs whose ops are recorded, as after the @ of a watch; "" for all.
        record: a frozen dataclass of numbers, which `measure` returns.
    """

    level: ClassVar[Literal["tile", "gpu"]] = "tile"
    programs: ClassVar[str] = ""
    record: ClassVar[type]

    def wants(self, op: Operation) -> bool:
        """Whether `op` is looked at; asked when a kernel is compiled."""
        raise NotImplementedError

    def values(self, op: Operation) -> Sequence[Value]:
        """Return the operands of `op`, of the Tile IR, that are recorded each time that it runs."""
        return op.operands

    def measure(self, seen: SeenOp) -> object | None:
        """Return a `record` of the seen values, or None for nothing; a line's records add up."""
        raise NotImplementedError
