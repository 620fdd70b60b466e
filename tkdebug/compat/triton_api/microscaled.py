"""Tensors of microscaled formats, by which scripts make and check operands of `tl.dot_scaled`.

Elements are four bits (e2m1), scales eight (e8m0). Source of the formats: OCP Microscaling Formats
(MX) Specification 1.0, sections 5.3.3 and 5.4.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tkdebug.errors import UsageError

if TYPE_CHECKING:
    import torch

# By their three bits after the sign: two of exponent, one of mantissa.
_E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_SIGN_BIT = 8
_E8M0_BIAS, _E8M0_NAN, _E8M0_MAX = 127, 255, 254


class MicroscaledError(UsageError, AssertionError):
    """A request that a tensor cannot fulfil; an AssertionError, as upstream's are."""


class _Microscaled:
    """Base of the tensors of elements and of scales.

    Args:
        data: float32 values to convert.
        size: the size of a tensor that has no values yet, which `random` gives it.
        device: the device to make it on; the device of `data` if there is any.

    Raises:
        ValueError: neither `data` nor `size` is given.
    """

    data: torch.Tensor

    def __init__(
        self,
        data: torch.Tensor | None = None,
        size: int | tuple[int, ...] | None = None,
        device: Any = None,
    ) -> None:
        if data is None and size is None:
            raise ValueError("Either parameter data or size must be provided")
        self.device = device if data is None else data.device
        if data is not None:
            self.data = self._from_float(data)
        elif size is not None:
            self.size = size if isinstance(size, tuple) else (size,)

    def _from_float(self, values: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _integers(self, low: int, high: int) -> torch.Tensor:
        import torch

        return torch.randint(low, high, size=self.size, dtype=torch.uint8, device=self.device)

    def _check_float32(self, dtype: torch.dtype) -> None:
        import torch

        if dtype != torch.float32:
            raise MicroscaledError(f"{type(self).__name__}.to: got {dtype}, expected torch.float32")


class MXFP4Tensor(_Microscaled):
    """Elements of four bits (e2m1), one in each byte of `data`."""

    def random(self) -> MXFP4Tensor:
        """Fill the tensor with random elements, and return it."""
        sign, exponent, mantissa = (self._integers(0, end) for end in (2, 4, 2))
        self.data = (sign << 3) | (exponent << 1) | mantissa
        return self

    def to(self, dtype: torch.dtype) -> torch.Tensor:
        """The values in float32; MicroscaledError for another `dtype`."""
        import torch

        self._check_float32(dtype)
        values = torch.tensor(
            [*_E2M1_VALUES, *(-value for value in _E2M1_VALUES)], device=self.data.device
        )
        return values[self.data.long()]

    def _from_float(self, values: torch.Tensor) -> torch.Tensor:
        """The nearest elements, ties to even; too large, infinite and NaN ones are the largest."""
        import torch

        pairs = itertools.pairwise(_E2M1_VALUES)
        middles = torch.tensor([(low + high) / 2 for low, high in pairs], device=values.device)
        size = values.abs().nan_to_num(nan=torch.inf).float().contiguous()
        below = torch.bucketize(size, middles)
        above = torch.bucketize(size, middles, right=True)
        # They differ at a tie, between neighbours of which one has an even mantissa.
        bits = torch.where(below % 2 == 0, below, above).to(torch.uint8)
        return bits | (torch.signbit(values).to(torch.uint8) * _SIGN_BIT)

    def to_packed_tensor(self, dim: int) -> torch.Tensor:
        """Two elements in each byte, neighbours along `dim`, the first in the low bits."""
        import torch

        if not 0 <= dim < self.data.ndim:
            raise MicroscaledError(
                "The dimension to pack along is not within the range of tensor dimensions: "
                f"got {dim}, expected 0 to {self.data.ndim - 1}"
            )
        data = self.data.movedim(dim, -1)
        if data.shape[-1] % 2:
            data = torch.nn.functional.pad(data, (0, 1))
        return (data[..., 0::2] | (data[..., 1::2] << 4)).movedim(-1, dim).contiguous()

    def unpack_packed_tensor(
        self, packed_tensor: torch.Tensor, dim: int, original_shape: Sequence[int]
    ) -> torch.Tensor:
        """Unpack a tensor packed along `dim`: one element in each byte."""
        import torch

        packed = packed_tensor.movedim(dim, -1)
        data = torch.stack((packed & 0xF, (packed >> 4) & 0xF), dim=-1).flatten(-2)
        return data[..., : original_shape[dim]].movedim(-1, dim).to(torch.uint8).contiguous()


class MXScaleTensor(_Microscaled):
    """Scales of eight bits (e8m0): powers of 2, biased by 127; 255 is NaN."""

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Fill the tensor with random scales, `low` to `high` (all but NaN), and return it."""
        least = 0 if low is None else max(0, _biased_exponent(low))
        most = _E8M0_MAX if high is None else min(_E8M0_MAX, max(0, _biased_exponent(high)))
        if least > most:
            raise MicroscaledError(f"MXScaleTensor.random: got low {low} above high {high}")
        self.data = self._integers(least, most + 1)
        return self

    def to(self, dtype: torch.dtype) -> torch.Tensor:
        """The values in float32, NaN for code 255; MicroscaledError for another `dtype`."""
        import torch

        self._check_float32(dtype)
        values = torch.exp2(self.data.float() - _E8M0_BIAS)
        return values.masked_fill(self.data == _E8M0_NAN, torch.nan)

    def _from_float(self, values: torch.Tensor) -> torch.Tensor:
        """The power of 2 at or below each value; NaN for a value that is no positive number."""
        import torch

        exponents = torch.floor(torch.log2(values)) + _E8M0_BIAS
        is_scale = torch.isfinite(values) & (values > 0)
        bits = torch.where(is_scale, exponents.clamp(0, _E8M0_MAX), _E8M0_NAN)
        return bits.to(torch.uint8)


def _biased_exponent(value: float) -> int:
    import torch

    return int(torch.log2(torch.tensor(float(value)))) + _E8M0_BIAS
