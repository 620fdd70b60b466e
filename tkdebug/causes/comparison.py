"""A comparison that failed: which elements differ, by how much, and which launch wrote them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tkdebug.causes.launches import Launched, RememberedLaunches, address_of
from tkdebug.errors import Frame, UsageError


@dataclass
class Comparison:
    """Two tensors that should agree and do not.

    Attributes:
        function: the function that compared them, such as "torch.testing.assert_close".
        actual: the script's tensor.
        expected: the tensor that it should be.
        rtol: relative tolerance.
        atol: absolute tolerance.
        equal_nan: whether NaNs equal each other.
        frames: the script's call chain of the comparison, outermost first.
        raises: whether it raised an assertion.
        reference: computes the expected tensor again; None if no function is known to.
    """

    function: str
    actual: Tensor
    expected: Tensor
    rtol: float
    atol: float
    equal_nan: bool
    frames: tuple[Frame, ...] = ()
    raises: bool = True
    reference: Callable[[], Tensor] | None = None

    def wrong(self, actual: Tensor) -> Tensor:
        """Return where a tensor of the compared one's shape differs: a bool tensor."""
        with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
            a, b = _plain(actual), _plain(self.expected)
            if a.is_floating_point() or b.is_floating_point() or a.is_complex():
                a, b = _wide(a), _wide(b)
            return ~torch.isclose(
                a, b.to(a.dtype), rtol=self.rtol, atol=self.atol, equal_nan=self.equal_nan
            )

    @cached_property
    def wrong_elements(self) -> Tensor:
        """The wrong elements of the compared tensor: bool, of its shape."""
        return self.wrong(self.actual)

    @cached_property
    def worst(self) -> int:
        """Position in the flat tensor of the most wrong element; a NaN first."""
        with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
            a, b = _wide(_plain(self.actual)), _wide(_plain(self.expected))
            difference = (a - b).abs()
            difference = torch.nan_to_num(difference, nan=float("inf"))
            difference = difference.where(self.wrong_elements, -1)
            return int(difference.reshape(-1).argmax())

    def value(self, tensor: Tensor) -> Any:
        """Return the number that a tensor has at the position of the worst element."""
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            return _plain(tensor).reshape(-1)[self.worst].item()

    def at(self, index: Sequence[int]) -> Comparison:
        """Return the comparison with the element at an index taken as the worst one.

        Raises:
            UsageError: there is no such element, or it is right.
        """
        shape = tuple(self.actual.shape)
        inside = len(index) == len(shape) and all(
            -extent <= i < extent for i, extent in zip(index, shape, strict=True)
        )
        if not inside:
            raise UsageError(f"the tensor that was compared has the shape {list(shape)}")
        place = 0
        for i, extent in zip(index, shape, strict=True):
            place = place * extent + i % extent
        if not bool(self.wrong_elements.reshape(-1)[place]):
            raise UsageError(f"{list(index)} is as it should be; wrong most is {list(self.index)}")
        other = replace(self)
        other.__dict__["worst"] = place
        return other

    @property
    def index(self) -> tuple[int, ...]:
        """The worst element's index."""
        index, rest = [], self.worst
        for extent in reversed(self.actual.shape):
            index.append(rest % extent)
            rest //= extent
        return tuple(reversed(index))


@dataclass(frozen=True, slots=True)
class Written:
    """The memory that a compared tensor shows, and the launch that wrote it.

    Attributes:
        tensor: a tensor of the compared one's shape, in the memory that the launch wrote.
        name: the name of the launch's argument.
    """

    launched: Launched
    tensor: Tensor
    name: str


def written(compared: Tensor, launches: RememberedLaunches) -> Written | None:
    """Return the launch that wrote a compared tensor's memory, or None if none is known.

    The tensor is in the launch's memory, or is taken for a copy of an argument that the launch
    wrote, if that has the same shape and equal elements.
    """
    address = address_of(compared)
    launched = launches.writer_of(address)
    if launched is not None:
        return Written(launched, compared.detach(), _name_at(launched, address))
    seen: set[int] = set()
    for launched in launches.newest_first():
        stored = launched.stored_storages()
        for name, tensor in launched.tensors():
            key = address_of(tensor)
            if key not in stored or key in seen or tensor.shape != compared.shape:
                continue
            if _equal(tensor, compared):
                return Written(launched, tensor, name)
        seen |= stored
    return None


def _name_at(launched: Launched, address: int) -> str:
    names = [name for name, tensor in launched.tensors() if address_of(tensor) == address]
    return names[0] if names else "the output"


def _equal(tensor: Tensor, compared: Tensor) -> bool:
    with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
        a, b = _plain(tensor), _plain(compared)
        same = a.to(b.dtype) == b
        if b.is_floating_point():
            same |= a.isnan() & b.isnan()
        return bool(same.all())


def _plain(tensor: Tensor) -> Tensor:
    """Return a tensor on the CPU, detached from autograd."""
    return tensor.detach().cpu()


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_complex() else tensor.to(torch.float64)


# As torch.testing has them.
_TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
}


def tolerances_of_type(dtype: torch.dtype) -> tuple[float, float]:
    """Return the relative and absolute tolerance that torch.testing takes for a dtype."""
    return _TOLERANCES.get(dtype, (0.0, 0.0))


def tolerances_of(*tensors: Tensor) -> tuple[float, float]:
    """Return the largest relative and absolute tolerance of torch.testing for some tensors."""
    each = [tolerances_of_type(tensor.dtype) for tensor in tensors]
    return max(rtol for rtol, _ in each), max(atol for _, atol in each)
