"""What all parts of an evaluator share: the batch of programs, devices, and dense forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.compiler.faults.facts import Offender
from tkdebug.compiler.ir import Operation, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.memory.buffers import Buffer
from tkdebug.interpreter.memory.strided_access import StridedAccess
from tkdebug.interpreter.tiles.index import IndexAlgebra
from tkdebug.interpreter.tiles.masks import MaskAlgebra
from tkdebug.interpreter.tiles.program_bases import Base, ProgramPattern
from tkdebug.interpreter.tiles.values import (
    AffineTile,
    BoxMask,
    BoxTile,
    DeferredTile,
    RepeatedTile,
    TileValue,
)

if TYPE_CHECKING:
    from tkdebug.interpreter.observers import Observer
    from tkdebug.interpreter.scheduler import Scheduler

_LARGEST_FLOAT32 = float.fromhex("0x1.fffffep127")
_INT_DTYPES = {
    1: torch.bool,
    8: torch.int8,
    16: torch.int16,
    32: torch.int32,
    64: torch.int64,
}
ELEMENT_DTYPES = {
    **{f"i{bits}": dtype for bits, dtype in _INT_DTYPES.items()},
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
    "f8E4M3FNUZ": torch.float8_e4m3fnuz,
    "f8E5M2FNUZ": torch.float8_e5m2fnuz,
    # torch has no such type; its bits travel as bytes.
    "f8E4M3B11FNUZ": torch.uint8,
}


@dataclass(frozen=True, slots=True)
class Batch:
    """Programs `first … first + programs - 1` (x fastest) of a grid, and what they run with.

    Attributes:
        fusion: which ops may write over an operand or straight into memory.
        written: storages that the kernel may write, None for any.
        buffers: every tensor that the launch knows of.
        observers: who looks on, in the order of the plan's.
        scheduler: what lets other programs go on where this one waits, None where none waits.
    """

    grid: tuple[int, int, int]
    first: int
    programs: int
    device: torch.device
    faults: FaultLog
    fusion: Fusion
    written: frozenset[int] | None = None
    buffers: Sequence[Buffer] = ()
    strict_ieee: bool = False
    observers: Sequence[Observer] = ()
    scheduler: Scheduler | None = None


class EvaluatorState:
    """One batch of programs, whose attributes are this one's too.

    Attributes:
        active: (P,) bool, the programs that take part just now; None for all.
    """

    def __init__(self, batch: Batch) -> None:
        self.fusion = batch.fusion
        self.grid = batch.grid
        self.first = batch.first
        self.programs = batch.programs
        self.device = batch.device
        self.faults = batch.faults
        self.written = batch.written
        self.buffers = batch.buffers
        self.strict_ieee = batch.strict_ieee
        self.scheduler = batch.scheduler
        # Observers that get accesses.
        self.followers: Sequence[Observer] = ()
        self.active: Tensor | None = None
        self.int_dtypes = _INT_DTYPES
        self.dtypes = ELEMENT_DTYPES
        self.index = IndexAlgebra(self)
        self.masks = MaskAlgebra(self)
        self.access = StridedAccess(self)
        self.lanes = 1
        self._positions: dict[tuple[int, int, int], Tensor] = {}

    def release(self) -> None:
        """Let go of everything; the evaluator is of no use any more.

        Its parts refer back to it: without this its tiles and the script's tensors would wait for
        the garbage collector.
        """
        vars(self).clear()

    # Programs

    def program_id(self, axis: int) -> TileValue:
        """Program ids along a grid axis: an int when equal in the batch.

        All lanes of a program have its id.
        """
        x, y, _ = self.grid
        below = (1, x, x * y)[axis]
        extent = self.grid[axis]
        programs = self.programs // self.lanes
        first = self.first // below % extent
        last = (self.first + programs - 1) // below % extent
        if programs == 1 or (first == last and programs <= below):
            return first
        if extent == 1:
            return 0
        if below == 1 and first < last == first + programs - 1 and self.lanes == 1:
            steps = ProgramPattern(first, (programs,), (1,))
            return AffineTile(0, Base.of_pattern(steps, (programs,), self.device), (), ())
        ids = torch.arange(self.first, self.first + programs, dtype=torch.int64, device=self.device)
        if below > 1:
            ids = ids.div(below, rounding_mode="floor")
        if below * extent < x * y * self.grid[2]:
            ids = ids % extent
        if self.lanes > 1:
            ids = ids.repeat_interleave(self.lanes)
        return AffineTile(0, Base(ids, (0, extent - 1)), (), ())

    def num_programs(self, axis: int) -> int:
        """Extent of a grid axis."""
        return self.grid[axis]

    def program_at(self, position: int) -> tuple[int, int, int]:
        """Program id (x, y, z) of the batch's entry at `position` of the program axis."""
        linear = self.first + position // self.lanes
        x, y, _ = self.grid
        return (linear % x, linear // x % y, linear // (x * y))

    def offender(
        self,
        bad: Tensor,
        offsets: Tensor | None,
        programs: Tensor | None,
        allowed: Tensor | None = None,
    ) -> Offender:
        """The first true element of `bad` (P, *shape), with its offset and program.

        Args:
            bad: bool, full along every axis.
            offsets: broadcastable to `bad`.
            programs: batch positions of bad's programs, None when they are all of them.
            allowed: which elements count for `is_whole_tile`, None for all.
        """
        flat = int(bad.reshape(-1).to(torch.uint8).argmax())
        place = []
        for extent in reversed(bad.shape):
            place.append(flat % extent)
            flat //= extent
        place.reverse()
        program = place[0] if programs is None else int(programs[place[0]])
        index = None
        if offsets is not None:
            index = int(offsets.expand(bad.shape)[tuple(place)])
        right = ~bad[place[0]]
        if allowed is not None:
            right = right & allowed.expand(bad.shape)[place[0]]
        return Offender(self.program_at(program), tuple(place[1:]), index, not bool(right.any()))

    # Dense forms

    def positions(self, axis: int, extent: int, rank: int) -> Tensor:
        """0 … extent - 1 along tile axis `axis` of a rank-`rank` tile, int64."""
        key = (axis, extent, rank)
        found = self._positions.get(key)
        if found is None:
            shape = [1] * (rank + 1)
            shape[axis + 1] = extent
            found = torch.arange(extent, device=self.device).reshape(shape)
            self._positions[key] = found
        return found

    def int64_scalar(self, value: int, rank: int) -> Tensor:
        """`value` as an int64 tensor of extent 1 everywhere."""
        return torch.full((1,) * (rank + 1), value, dtype=torch.int64, device=self.device)

    def materialize(self, tile: AffineTile) -> Tensor:
        """An affine tile's values, int64, extent 1 along axes where they do not vary."""
        rank = len(tile.shape)
        out: Tensor | None = None if tile.base is None else tile.base.tensor
        for axis, (coef, extent) in enumerate(zip(tile.coefs, tile.shape, strict=True)):
            if coef and extent > 1:
                part = self.positions(axis, extent, rank)
                if coef != 1:
                    part = part * coef
                out = part if out is None else out + part
        if out is None:
            return self.int64_scalar(tile.const, rank)
        return out + tile.const if tile.const else out

    def dtype_of(self, type_: Type) -> Any:
        """Torch dtype of a type's elements; addresses for pointers."""
        element = ir.element_of(type_)
        if isinstance(element, ir.PointerType):
            return torch.int64
        return self.dtypes[element.name]

    def constant(self, type_: Type, value: Any) -> TileValue:
        """A constant of `type_`: an int for integers, a one-element tensor for floats."""
        element = ir.element_of(type_)
        if isinstance(element, ir.ScalarType) and element.is_integer:
            return int(value)
        shape = (1,) * (len(ir.shape_of(type_)) + 1)
        size = abs(value)
        if element == ir.F64 or (element == ir.F32 and (size <= _LARGEST_FLOAT32 or isinf(size))):
            return torch.full(shape, value, dtype=self.dtype_of(type_), device=self.device)
        # torch.full rounds twice, refuses what overflows fp32 and does not saturate fp8.
        from tkdebug.interpreter.numerics import fp8

        assert isinstance(element, ir.ScalarType), f"a constant of {element}"
        exact = torch.full(shape, value, dtype=torch.float64, device=self.device)
        return fp8.convert(exact, "f64", element.name, self.dtypes, False)

    def dense(self, value: TileValue, type_: Type) -> Tensor:
        """`value` as a tensor of its type's dtype; axes of extent 1 may stand for more."""
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, int):
            rank = len(ir.shape_of(type_))
            return torch.full(
                (1,) * (rank + 1), value, dtype=self.dtype_of(type_), device=self.device
            )
        if isinstance(value, AffineTile):
            return self.materialize(value).to(self.dtype_of(type_))
        if isinstance(value, BoxMask):
            return self.masks.dense(value)
        if isinstance(value, BoxTile):
            return self.unbox(value)
        if isinstance(value, DeferredTile):
            return value.compute() if value.box is None else self.unbox(value.boxed())
        if isinstance(value, RepeatedTile):
            return value.spread()
        raise AssertionError(f"no dense form of {type(value).__name__} as {type_}")

    def full(self, value: TileValue, type_: Type) -> Tensor:
        """`value` as a tensor with every tile axis at its full extent (programs may be 1)."""
        tensor = self.dense(value, type_)
        return tensor.expand(tensor.shape[0], *ir.shape_of(type_))

    def unbox(self, tile: BoxTile) -> Tensor:
        """A box tile as one tensor."""
        programs = max(tile.data.shape[0], tile.fill.shape[0])
        extents = [
            extent
            if axis in tile.cropped_axes
            else max(tile.data.shape[axis + 1], tile.fill.shape[axis + 1])
            for axis, extent in enumerate(tile.shape)
        ]
        out = tile.fill.expand(programs, *extents).clone()
        inside = out
        for axis in tile.cropped_axes:
            low, high = tile.box[axis]
            inside = inside.narrow(axis + 1, low, high - low)
        inside.copy_(tile.data)
        return out

    def crop(self, value: TileValue, type_: Type, box: Any) -> Tensor:
        """The part of `value` inside `box`, as a tensor."""
        if isinstance(value, DeferredTile) and value.box is not None:
            value = value.boxed()
        if isinstance(value, BoxTile):
            if value.box == box:
                return value.data
            value = self.unbox(value)
        if isinstance(value, AffineTile):
            return self.materialize(value.cropped(box)).to(self.dtype_of(type_))
        tensor = self.dense(value, type_)
        for axis, (low, high) in enumerate(box):
            if tensor.shape[axis + 1] > 1:
                tensor = tensor.narrow(axis + 1, low, high - low)
        return tensor

    def map(self, op: Operation, fn: Callable[..., Tensor], *operands: TileValue) -> TileValue:
        """An elementwise torch function on tile values of the op's operand types."""
        types = [value.type for value in op.operands]
        boxed = next((v for v in operands if isinstance(v, BoxTile)), None)
        if boxed is not None:
            result = self._map_boxed(op, fn, operands, types, boxed)
            if result is not None:
                return result
        tensors = tuple(self.dense(v, t) for v, t in zip(operands, types, strict=True))
        if op in self.fusion.deferred:
            return DeferredTile(fn, tensors)
        return self._apply(op, fn, tensors)

    def map_floats(
        self, op: Operation, fn: Callable[..., Tensor], *operands: TileValue
    ) -> TileValue:
        """As `map`, for arithmetic: on fp8 that is done in fp32 and rounded, as on the GPU."""
        element = ir.element_of(op.operands[0].type)
        if isinstance(element, ir.ScalarType) and element.bits == 8:
            from tkdebug.interpreter.numerics import fp8

            fn = fp8.in_float32(fn, element.name, str(ir.element_of(op.result.type)), self.dtypes)
        return self.map(op, fn, *operands)

    def _apply(self, op: Operation, fn: Callable[..., Tensor], tensors: Sequence[Tensor]) -> Tensor:
        """`fn` on tensors, in the memory of an operand that dies here where it fits."""
        place = self.fusion.reused.get(op)
        if place is None:
            return fn(*tensors)
        target = tensors[place]
        for tensor in tensors:
            if tensor.dtype != target.dtype or any(
                have > want for have, want in zip(tensor.shape, target.shape, strict=True)
            ):
                return fn(*tensors)
        return fn(*tensors, out=target)

    def _map_boxed(
        self,
        op: Operation,
        fn: Callable[..., Tensor],
        operands: tuple[TileValue, ...],
        types: list[Type],
        boxed: BoxTile,
    ) -> BoxTile | DeferredTile | None:
        """Apply inside the box and on the fill; None when an operand varies outside the box."""
        cropped = boxed.cropped_axes
        inside, outside = [], []
        for value, type_ in zip(operands, types, strict=True):
            if isinstance(value, BoxTile):
                if value.box != boxed.box:
                    return None
                inside.append(value.data)
                outside.append(value.fill)
                continue
            tensor = self.dense(value, type_)
            if any(tensor.shape[axis + 1] > 1 for axis in cropped):
                return None
            inside.append(tensor)
            outside.append(tensor)
        if op in self.fusion.deferred:
            return DeferredTile(fn, tuple(inside), boxed.box, tuple(outside), boxed.shape)
        # The fill first: the result may take the memory of an operand that is in both.
        fill = fn(*outside)
        return BoxTile(self._apply(op, fn, inside), boxed.box, fill, boxed.shape)
