"""`TensorDescriptor`: a tensor and a block shape as one kernel argument, made on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tkdebug.runtime.errors import DescriptorError

MAX_RANK = 5
# Largest tile the language allows, in elements (upstream's TRITON_MAX_TENSOR_NUMEL).
MAX_TILE_ELEMS = 1 << 20
# Addresses and strides of a tensor map (PTX ISA, cp.async.bulk.tensor).
ALIGNMENT_BYTES = 16
# Tensors that tensor maps cannot describe are accessed by pointers.
_MAX_STRIDE_BYTES = 1 << 40
_MAX_EXTENT = 1 << 32
# Made by torch.compile while it traces: they have no address.
_ADDRESSLESS = ("FakeTensor", "FunctionalTensor")


@dataclass
class TensorDescriptor:
    """A tensor seen through blocks.

    Attributes:
        base: the tensor; its first byte is aligned to 16 bytes.
        shape: extents, in elements.
        strides: in elements; the last is 1, the others multiples of 16 bytes.
        block_shape: the tile each access moves; powers of 2.
        padding: the value of reads outside: "zero" or "nan".
        round_f32_to_tf32: whether loads round fp32 to the nearest tf32.

    Raises:
        DescriptorError: a rule above is broken.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self) -> None:
        self._check_ranks()
        self._check_block_shape()
        self._check_memory()
        if self.padding not in ("zero", "nan"):
            raise DescriptorError(f"padding: got {self.padding!r}, expected 'zero' or 'nan'")
        if self.padding == "nan" and not self.base.dtype.is_floating_point:
            raise DescriptorError(
                f"padding 'nan' needs a floating-point tensor, got {self.base.dtype}"
            )

        if self.round_f32_to_tf32 and str(self.base.dtype).removeprefix("torch.") != "float32":
            raise DescriptorError(
                f"round_f32_to_tf32 needs a float32 tensor, got {self.base.dtype}; leave it out"
            )

    def _check_ranks(self) -> None:
        rank = len(self.shape)
        if not 0 < rank <= MAX_RANK:
            raise DescriptorError(f"rank: got {rank}, expected 1 to {MAX_RANK}")
        for name in ("strides", "block_shape"):
            got = len(getattr(self, name))
            if got != rank:
                raise DescriptorError(
                    f"{name} has {got} entries, expected {rank}, as many as shape has"
                )

    def _check_block_shape(self) -> None:
        for axis, size in enumerate(self.block_shape):
            if isinstance(size, bool) or not isinstance(size, int):
                raise DescriptorError(f"block_shape[{axis}]: got {size!r}, expected an int")
            if size <= 0 or size & (size - 1):
                raise DescriptorError(f"block_shape[{axis}]: got {size}, expected a power of 2")
        elems = math.prod(self.block_shape)
        if elems > MAX_TILE_ELEMS:
            raise DescriptorError(
                f"block_shape: {elems} elements, expected at most {MAX_TILE_ELEMS}"
            )

    def _check_memory(self) -> None:
        if type(self.base).__name__ not in _ADDRESSLESS and self.base.data_ptr() % ALIGNMENT_BYTES:
            raise DescriptorError(
                f"base: its address is not a multiple of {ALIGNMENT_BYTES} bytes; "
                "describe the whole allocation, or copy the view"
            )
        item_bytes = self.base.dtype.itemsize
        for axis, stride in enumerate(self.strides[:-1]):
            if stride * item_bytes % ALIGNMENT_BYTES:
                raise DescriptorError(
                    f"strides[{axis}]: got {stride} elements, {stride * item_bytes} bytes, "
                    f"expected a multiple of {ALIGNMENT_BYTES} bytes"
                )
        if self.strides[-1] != 1:
            raise DescriptorError(
                f"strides[-1]: got {self.strides[-1]}, expected 1 (the last axis is contiguous)"
            )
        for axis, size in enumerate(self.shape):
            if size <= 0:
                raise DescriptorError(f"shape[{axis}]: got {size}, expected a positive size")

    @staticmethod
    def from_tensor(
        tensor: Any,
        block_shape: Sequence[int],
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> TensorDescriptor:
        """A descriptor of the whole of `tensor`."""
        shape, strides = tensor.shape, tensor.stride()
        return TensorDescriptor(tensor, shape, strides, block_shape, padding, round_f32_to_tf32)


def is_mappable(shape: Sequence[int], strides: Sequence[int], item_bytes: int) -> bool:
    """Whether a tensor map can describe the descriptor's tensor.

    The limits are cuTensorMapEncodeTiled's. Beside them, rows must be whole units of 16 bytes: bulk
    stores write such units, and so overwrite memory after other rows (seen on an H200).
    """
    steps_fit = all(0 < stride * item_bytes < _MAX_STRIDE_BYTES for stride in strides[:-1])
    rows_fit = shape[-1] * item_bytes % ALIGNMENT_BYTES == 0
    return steps_fit and rows_fit and all(size <= _MAX_EXTENT for size in shape)
