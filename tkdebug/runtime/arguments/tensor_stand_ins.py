"""Objects in the place of a tensor: for warm-ups, and for other element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tkdebug.runtime.errors import ArgumentTypeError


class MockTensor:
    """An argument that has a dtype and no memory: `kernel.warmup(MockTensor(torch.float32), …)`."""

    def __init__(self, dtype: Any, shape: Sequence[int] = (1,)) -> None:
        self.dtype = dtype
        self.shape = tuple(shape) if shape is not None else (1,)

    @staticmethod
    def wrap_dtype(argument: Any) -> Any:
        """A torch dtype as a mock tensor of it; anything else unchanged."""
        kind = type(argument)
        if kind.__name__ == "dtype" and kind.__module__ == "torch":
            return MockTensor(argument)
        return argument

    def stride(self) -> tuple[int, ...]:
        """Contiguous strides, in elements."""
        strides = [1]
        for size in reversed(self.shape[1:]):
            strides.insert(0, strides[0] * size)
        return tuple(strides)

    @staticmethod
    def data_ptr() -> int:
        """0, which every alignment divides."""
        return 0

    @staticmethod
    def ptr_range() -> int:
        """0: offsets fit 32 bits."""
        return 0


class TensorWrapper:
    """The memory of `base` seen as elements of `dtype` (a torch or a language dtype)."""

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base = base
        self.dtype = dtype
        self.data = base.data
        self.device = base.device
        self.shape = base.shape

    def data_ptr(self) -> int:
        """Address of the first byte."""
        return int(self.base.data_ptr())

    def stride(self, *axes: int) -> Any:
        """Strides of the base, in elements."""
        return self.base.stride(*axes)

    def element_size(self) -> int:
        """Size of an element in bytes."""
        return int(self.base.element_size())

    def cpu(self) -> TensorWrapper:
        """A copy on the CPU."""
        return TensorWrapper(self.base.cpu(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        """A copy on `device`."""
        return TensorWrapper(self.base.to(device), self.dtype)

    def clone(self) -> TensorWrapper:
        """A copy."""
        return TensorWrapper(self.base.clone(), self.dtype)

    def copy_(self, other: TensorWrapper) -> None:
        """Overwrite the memory with that of `other`."""
        self.base.copy_(other.base)

    def new_empty(self, sizes: Sequence[int]) -> TensorWrapper:
        """Fresh memory of the same element type."""
        return TensorWrapper(self.base.new_empty(sizes), self.dtype)

    def __str__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """`tensor`'s memory as elements of `dtype`; the bare tensor if that is its own dtype.

    Raises:
        ArgumentTypeError: `tensor` is no tensor.
    """
    if isinstance(tensor, TensorWrapper):
        same = dtype == tensor.base.dtype
        return tensor.base if same else TensorWrapper(tensor.base, dtype)
    if hasattr(tensor, "data_ptr"):
        return TensorWrapper(tensor, dtype)
    raise ArgumentTypeError(f"cannot reinterpret a {type(tensor).__name__}; expected a tensor")
