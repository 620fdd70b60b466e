"""A kernel argument's memory: exactly the elements that may be touched through it.

The legal elements are those of the tensor *as passed*: a strided view's own elements, not its
allocation's. Offsets inside the view's hull but between its elements are a kind of their own. An
expanded view has no known extent along its strides of 0, and gathers step along them by a stride
that is another argument: there all of the allocation from its first element on is legal.
"""

from __future__ import annotations

import torch
from torch import Tensor, dtype

from tkdebug.interpreter.tiles.values import AffineTile


class Buffer:
    """One tensor argument.

    Attributes:
        name: the argument's name, None for memory that is no argument.
        itemsize: bytes per element as the pointer counts them.
        address: byte address of the tensor's first element.
        hull_elems: elements from the first to the last legal one, inclusive.
        is_dense: whether every offset in [0, hull_elems) is legal.
        storage_key: equal for tensors that share their allocation.
    """

    def __init__(self, tensor: Tensor, name: str | None) -> None:
        self.tensor = tensor
        self.name = name
        self.itemsize: int = tensor.element_size()
        self.storage_offset = int(tensor.storage_offset())
        dims = [
            (stride, size)
            for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
            if size != 1 and stride != 0
        ]
        dims.sort(reverse=True)
        self.dims = dims
        self.shape = tuple(tensor.shape)
        empty = tensor.numel() == 0
        self.hull_elems = 0 if empty else 1 + sum(stride * (size - 1) for stride, size in dims)
        expected = 1
        for stride, size in reversed(dims):
            if stride != expected:
                break
            expected *= size
        else:
            expected = self.hull_elems
        self.is_dense = empty or expected == self.hull_elems
        storage = tensor.untyped_storage()
        if self.is_expanded and not empty:
            self.hull_elems = storage.nbytes() // self.itemsize - self.storage_offset
            self.dims, self.is_dense = [(1, self.hull_elems)], True
        self.storage_key: int = storage.data_ptr()
        self.address: int = self.storage_key + self.storage_offset * self.itemsize
        self._storage = storage
        self._flat: dict[dtype, Tensor] = {}

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of the tensor, in elements."""
        return self.tensor.stride()

    @property
    def element_bytes(self) -> int:
        """Bytes per element as the tensor counts them."""
        return self.tensor.element_size()

    @property
    def element_type(self) -> str:
        """The element type's name, such as "torch.float16"."""
        return str(self.tensor.dtype)

    @property
    def is_expanded(self) -> bool:
        """Whether several positions of the tensor are one element of memory."""
        sizes = zip(self.tensor.stride(), self.tensor.shape, strict=True)
        return any(stride == 0 and size > 1 for stride, size in sizes)

    @property
    def allocation_elems(self) -> int:
        """Elements of its allocation, as the pointer counts them."""
        return self._storage.nbytes() // self.itemsize

    def overlaps(self, other: Buffer) -> bool:
        """Whether the two allocations share bytes."""
        start, start2 = self.storage_key, other.storage_key
        if start < start2:
            return start + self._storage.nbytes() > start2
        return start2 + other._storage.nbytes() > start

    def flat(self, dtype: dtype) -> Tensor:
        """The whole allocation as a 1-D tensor of `dtype` (of this buffer's item size)."""
        flat = self._flat.get(dtype)
        if flat is None:
            count = self._storage.nbytes() // self.itemsize
            flat = torch.empty(0, dtype=dtype, device=self.tensor.device)
            flat.set_(self._storage, 0, (count,), (1,))
            self._flat[dtype] = flat
        return flat

    def reinterpreted(self, itemsize: int) -> Buffer:
        """Return a buffer of this memory, counted in elements of another size."""
        if itemsize == self.itemsize:
            return self
        out = object.__new__(Buffer)
        out.__dict__.update(self.__dict__)
        out.itemsize = itemsize
        first_byte = self.storage_offset * self.itemsize
        out.storage_offset = first_byte // itemsize
        out.hull_elems = self.hull_elems * self.itemsize // itemsize
        dims = None if self.is_dense else self._dims_in(itemsize)
        out.is_dense = dims is None
        out.dims = [(1, out.hull_elems)] if dims is None else dims
        out._flat = {}
        return out

    def _dims_in(self, itemsize: int) -> list[tuple[int, int]] | None:
        """Return strides and sizes in elements of `itemsize` bytes; None if they do not divide."""
        if self.itemsize % itemsize == 0:
            ratio = self.itemsize // itemsize
            return [(stride * ratio, size) for stride, size in self.dims] + [(1, ratio)]
        ratio, run, outer = itemsize // self.itemsize, 1, list(self.dims)
        while outer and outer[-1][0] == run:
            run *= outer.pop()[1]
        if run % ratio or any(stride % ratio for stride, _ in outer):
            return None
        return [(stride // ratio, size) for stride, size in outer] + [(1, run // ratio)]

    def proves_legal(self, tile: AffineTile) -> bool:
        """Whether every value of `tile` is certainly a legal offset."""
        low, high = tile.bounds()
        if low < 0 or high >= self.hull_elems:
            low, high = tile.bounds(exact=True)
            if low < 0 or high >= self.hull_elems:
                return False
        return self.is_dense or self._proves_strided(tile)

    def _proves_strided(self, tile: AffineTile) -> bool:
        """Whether offsets, divided by each stride from the largest on, stay within its size."""
        rest = None if tile.base is None else tile.base.tensor + tile.const
        const = tile.const if tile.base is None else 0
        coefs = [
            (coef, extent)
            for coef, extent in zip(tile.coefs, tile.shape, strict=True)
            if coef and extent > 1
        ]
        for stride, size in self.dims:
            whole = [(coef // stride, n) for coef, n in coefs if coef % stride == 0]
            coefs = [(coef, n) for coef, n in coefs if coef % stride != 0]
            if rest is None:
                quotient, const = divmod(const, stride)
                low = high = quotient
                rest_low = rest_high = const
            else:
                quotients = rest.div(stride, rounding_mode="floor")
                rest = rest - quotients * stride
                low, high = (int(v) for v in quotients.aminmax())
                rest_low, rest_high = (int(v) for v in rest.aminmax())
            low += sum(min(coef * (n - 1), 0) for coef, n in whole)
            high += sum(max(coef * (n - 1), 0) for coef, n in whole)
            rest_low += sum(min(coef * (n - 1), 0) for coef, n in coefs)
            rest_high += sum(max(coef * (n - 1), 0) for coef, n in coefs)
            if low < 0 or high >= size or rest_low < 0 or rest_high >= stride:
                return False
        if rest is None:
            return const == 0 and not coefs
        return not coefs and not bool(rest.any())

    def outside(self, offsets: Tensor) -> Tensor:
        """Return which offsets are before the first or after the last element, bool."""
        return (offsets < 0) | (offsets >= self.hull_elems)

    def between(self, offsets: Tensor) -> Tensor:
        """Return which offsets are inside the hull but no element of the tensor, bool."""
        bad = torch.zeros_like(offsets, dtype=torch.bool)
        if self.is_dense:
            return bad
        if not self.is_nested():
            # Elements overlap or interleave: no division finds them.
            elements = self._elements(offsets.device)
            return ~elements[offsets.clamp(0, self.hull_elems - 1)] & ~self.outside(offsets)
        rest = offsets
        for stride, size in self.dims:
            index = rest.div(stride, rounding_mode="floor")
            bad |= index >= size
            rest = rest - index * stride
        return (bad | (rest != 0)) & ~self.outside(offsets)

    def is_nested(self) -> bool:
        """Whether every stride reaches past all that the smaller ones span."""
        reach = 0
        for stride, size in reversed(self.dims):
            if stride <= reach:
                return False
            reach += stride * (size - 1)
        return True

    def _elements(self, device: torch.device) -> Tensor:
        """Return which offsets are elements, (hull_elems,) bool."""
        out = torch.zeros(self.hull_elems, dtype=torch.bool, device=device)
        strides = [stride for stride, _ in self.dims]
        out.as_strided([size for _, size in self.dims], strides).fill_(True)
        return out
