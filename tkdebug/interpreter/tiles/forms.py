"""Tile values as tensors, and elementwise functions of them, for the programs of one batch.

The algebras of tiles are made over this: it knows their forms, and neither them nor an evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isinf
from typing import Any

import torch
from torch import Tensor

from tkdebug.compiler.ir import Operation, Type
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.tiles.values import (
    AffineTile,
    Bound,
    BoxMask,
    BoxTile,
    DeferredTile,
    RepeatedTile,
    TileValue,
)

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


class TileForms:
    """Dense forms of the tiles of some programs.

    Attributes:
        programs: the number of entries on the program axis.
        device: the device of its tensors.
        fusion: ops that may write over an operand or straight into memory.
    """

    def __init__(self, programs: int, device: torch.device, fusion: Fusion) -> None:
        self.programs = programs
        self.device = device
        self.fusion = fusion
        self.int_dtypes = _INT_DTYPES
        self.dtypes = ELEMENT_DTYPES
        self._positions: dict[tuple[int, int, int], Tensor] = {}

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
        """Return the torch dtype of a type's elements; for pointers, that of addresses."""
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
        """`value` as a tensor of its type's dtype; axes of extent 1 may represent more."""
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
            return self.dense_mask(value)
        if isinstance(value, BoxTile):
            return self.unbox(value)
        if isinstance(value, DeferredTile):
            return value.compute() if value.box is None else self.unbox(value.boxed())
        if isinstance(value, RepeatedTile):
            return value.spread()
        raise AssertionError(f"no dense form of {type(value).__name__} as {type_}")

    def dense_mask(self, mask: BoxMask) -> Tensor:
        """The mask as a bool tensor with extent 1 where it does not vary."""
        rank = len(mask.shape)
        out: Tensor | None = None
        for axis, ((low, high), extent) in enumerate(zip(mask.bounds, mask.shape, strict=True)):
            if isinstance(low, int) and isinstance(high, int) and (low, high) == (0, extent):
                continue
            position = self.positions(axis, extent, rank)
            inside = (position >= _column(low, rank)) & (position < _column(high, rank))
            out = inside if out is None else out & inside
        if out is None:
            return torch.ones((1,) * (rank + 1), dtype=torch.bool, device=self.device)
        return out

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
        """Map arithmetic as `map` does; fp8 is computed in fp32 and rounded, as on the GPU."""
        element = ir.element_of(op.operands[0].type)
        if isinstance(element, ir.ScalarType) and element.bits == 8:
            from tkdebug.interpreter.numerics import fp8

            fn = fp8.in_float32(fn, element.name, str(ir.element_of(op.result.type)), self.dtypes)
        return self.map(op, fn, *operands)

    def _apply(self, op: Operation, fn: Callable[..., Tensor], tensors: Sequence[Tensor]) -> Tensor:
        """Apply `fn` to tensors, writing over an operand that dies here if it fits."""
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


def _column(bound: Bound, rank: int) -> Any:
    return bound if isinstance(bound, int) else bound.reshape(-1, *(1,) * rank)
