# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""Operators that draw the numbers that a GPU draws of the same seed.

`philox` has the numbers; here is what torch's kernels for CUDA make of them, and the order in which
elements take them: that of memory, where the tensor has no gaps. Operators that are not here
(`poisson`, `randperm`, `cauchy_` and others) draw from a generator of the CPU.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tkdebug.compat.cuda_standin.generators import chosen
from tkdebug.compat.cuda_standin.philox import (
    WORDS_OF_CALL,
    Numbers,
    bits,
    bits_double,
    calls_for,
    calls_of,
    drawn,
    drawn_by_vectors,
    normal,
    normal_double,
    threads_of,
    uniform,
    uniform_double,
    unit,
    unit_double,
)
from tkdebug.compat.cuda_standin.tensors import host, made, no_such_device, place
from tkdebug.compat.cuda_standin.torch_internals import CPU_KEYS

Kernel = Callable[..., Any]
Fill = Callable[..., Tensor]
_ATEN = torch.ops.aten
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
# 2 to this power is the largest of the integers that `random_` takes.
_DIGITS = {
    **{torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53},
    torch.bool: 0,
}
# For ranges of this size and more torch takes 64 bits: a remainder of 32 would prefer some values.
_LEAST_WIDE = 1 << 28
_LEAST_INT64 = -(1 << 63)
_VECTOR_BYTES = 16
# `bernoulli_` with a tensor moves the offset on by 10, rounded up to whole calls.
_CALLS_OF_BERNOULLI = 3
_UNIFORM, _UNIT = (uniform, uniform_double), (unit, unit_double)
_NORMAL, _BITS = (normal, normal_double), (bits, bits_double)
_unused = torch._C.Generator()
_empty = made(_ATEN.empty.memory_format)


def _drawn(kinds: tuple[Numbers, Numbers], is_double: bool, count: int, generator: Any) -> Tensor:
    """Return numbers for `count` elements; the caller must not change them."""
    numbers = kinds[is_double]
    seed, first_call = chosen(generator).taken(calls_for(numbers, count))
    return drawn(numbers, seed, first_call, count)


def _scaled(values: Tensor, scale: float, shift: float) -> Any:
    """Return `values * scale + shift`, which a GPU rounds once, as an array."""
    # Of few elements, numpy takes half of torch's time.
    of_numpy: Any = values.numpy()
    # The dtype is named: numpy 1 would multiply with a number in fp32.
    wide = np.multiply(of_numpy, scale, dtype=np.float64)
    wide += shift
    return wide.astype(of_numpy.dtype, copy=False)


def _uniform(
    dtype: torch.dtype, count: int, generator: Any, low: float = 0.0, high: float = 1.0
) -> Tensor:
    # A number that rounding makes the upper bound becomes the lower bound.
    if (low, high) == (0, 1):
        values = _drawn(_UNIT, dtype is torch.float64, count, generator)
        return values if values.dtype is dtype else values.to(dtype).frac()
    values = _drawn(_UNIFORM, dtype is torch.float64, count, generator)
    first, last, span = _bounds(dtype, low, high)
    scaled = _scaled(values, span, first)
    if dtype in (torch.float16, torch.bfloat16):
        rounded = torch.from_numpy(scaled).to(dtype)
        return rounded.masked_fill_(rounded == last, first)
    scaled[scaled == last] = first
    return torch.from_numpy(scaled)


@functools.lru_cache(maxsize=64)
def _bounds(dtype: torch.dtype, low: float, high: float) -> tuple[float, float, float]:
    """Return two bounds and the distance between them, each rounded to a type."""
    bounds = torch.tensor((low, high), dtype=dtype)
    first, last = bounds.tolist()
    return first, last, float(bounds[1] - bounds[0])


def _normal(
    dtype: torch.dtype, count: int, generator: Any, mean: float = 0.0, std: float = 1.0
) -> Tensor:
    values = _drawn(_NORMAL, dtype is torch.float64, count, generator)
    return values if (mean, std) == (0, 1) else torch.from_numpy(_scaled(values, std, mean))


def _exponential(dtype: torch.dtype, count: int, generator: Any, rate: float = 1.0) -> Tensor:
    values = _drawn(_UNIFORM, dtype is torch.float64, count, generator)
    # The logarithm of 1 is 0, which the distribution does not have.
    least = torch.finfo(values.dtype).eps / 2
    return values.log().clamp_max_(-least).mul_(-1.0 / rate)


def _bernoulli(dtype: torch.dtype, count: int, generator: Any, p: float = 0.5) -> Tensor:
    values = _drawn(_UNIFORM, dtype is torch.float64, count, generator)
    return values < p


def _integers(
    dtype: torch.dtype,
    count: int,
    generator: Any,
    low: int | None = None,
    high: int | None = None,
) -> Tensor:
    """Return integers from `low` on and below `high`; without bounds, those that the type has."""
    most = 1 << _DIGITS[dtype] if dtype in _DIGITS else int(torch.iinfo(dtype).max)
    if low is None:
        values = _drawn(_BITS, most >= 1 << 32, count, generator)
        return _remainders(values, most + 1)
    if low == _LEAST_INT64 and high is None:
        return _drawn(_BITS, True, count, generator)
    span = (most + 1 if high is None else high) - low
    return _remainders(_drawn(_BITS, span >= _LEAST_WIDE, count, generator), span).add_(low)


def _integers_below(dtype: torch.dtype, count: int, generator: Any, high: int) -> Tensor:
    return _integers(dtype, count, generator, 0, high)


def _remainders(values: Tensor, divisor: int) -> Tensor:
    """Return the remainders of unsigned integers: of 32 bits for a small divisor, else of 64."""
    if divisor < _LEAST_WIDE:
        return values.remainder(divisor)
    rest: Any = values.numpy().view(np.uint64) % np.uint64(divisor)
    return torch.from_numpy(rest.view(np.int64))


def _from_outer(tensor: Tensor) -> list[int]:
    """Return the axes of a tensor, the one of the largest stride first."""
    strides = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda axis: -strides[axis])


def _ordered(values: Tensor, like: Tensor) -> Tensor:
    """Return numbers in the shape of a tensor, in the order of its memory."""
    if like.is_contiguous():
        return values if like.dim() == 1 else values.view(like.shape)
    axes = _from_outer(like)
    places = [axes.index(axis) for axis in range(like.dim())]
    return values.view([like.shape[axis] for axis in axes]).permute(places)


@functools.lru_cache(maxsize=64)
def _refuse(op: Any, dtype: torch.dtype, arguments: tuple[Any, ...]) -> None:
    """Raise the error that torch raises for this type or these bounds, if it raises one."""
    sample = torch.empty(1, dtype=dtype)
    op.redispatch(CPU_KEYS, sample, *arguments, generator=_unused)


def _filling(op: Any, fill: Fill) -> Kernel:
    """Return a kernel that fills a tensor with the numbers for its type and for so many elements.

    Args:
        op: the operator, which says what is refused.
        fill: returns numbers, given the type, how many, the generator and further arguments.
    """

    def run(self: Tensor, *arguments: Any, generator: Any = None) -> Tensor:
        with torch._C.DisableTorchFunction():
            if self.is_complex() and fill in (_normal, _uniform):
                if fill is _normal:
                    # Both parts together have the variance.
                    mean, std = arguments or (0.0, 1.0)
                    arguments = mean, std / math.sqrt(2)
                run(torch.view_as_real(self), *arguments, generator=generator)
                return self
            if arguments or self.dtype not in _FLOATS:
                _refuse(op, self.dtype, arguments)
            chosen(generator)
            if self.numel():
                values = fill(self.dtype, self.numel(), generator, *arguments)
                of_cpu = host(self)
                of_cpu.copy_(_ordered(values, of_cpu))
        return self

    return run


def _making(run: Kernel, fill: Fill, bounds: int = 0, default: torch.dtype | None = None) -> Kernel:
    """Return a kernel that makes a tensor as `run` fills one.

    Args:
        run: fills a tensor.
        fill: as that of `_filling`.
        bounds: the number of arguments before the size.
        default: the type, where it is not torch's default.
    """

    def make(*given: Any, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
        limits, size = given[:bounds], given[bounds]
        dtype = dtype or default or torch.get_default_dtype()
        device, count = options.get("device"), math.prod(size)
        is_plain = dtype is (default or torch.float32) and count > 0
        if not is_plain or (limits and limits[-1] <= limits[0] * (bounds - 1)):
            filled: Tensor = run(_empty(size, dtype=dtype, **options), *limits, generator=generator)
            return filled
        if device is not None and device.index not in (None, 0, -1):
            raise no_such_device(device.index)
        with torch._C.DisableTorchFunction():
            values = fill(dtype, count, generator, *limits)
            values = values.clone() if fill in _KEPT else values
            return place(values if len(size) == 1 else values.view(size))

    return make


def _bernoulli_of(self: Tensor, p: Tensor, *, generator: Any = None) -> Tensor:
    """Fill a tensor with 0 and 1, each by its own probability; a thread draws four of them."""
    of_cpu, p = host(self), host(p) if p.is_cuda else p
    with torch._C.DisableTorchFunction():
        if not p.is_floating_point() or not _are_chances(p):
            # Raises what torch raises.
            _bernoulli_of_cpu.redispatch(CPU_KEYS, of_cpu, p, generator=_unused)
        if p.shape != of_cpu.shape or not p.is_contiguous() or not of_cpu.is_contiguous():
            p = p.expand(of_cpu.shape).permute(_from_outer(of_cpu))
        seed, first_call = chosen(generator).taken(_CALLS_OF_BERNOULLI)
        if not self.numel():
            return self
        count = self.numel()
        values = drawn_by_vectors(seed, first_call, count, WORDS_OF_CALL, count)
        chances = p.reshape(-1).to(torch.promote_types(torch.float32, self.dtype))
        of_cpu.copy_(_ordered(values <= chances, of_cpu))
    return self


def _are_chances(p: Tensor) -> bool:
    if not p.numel():
        return True
    low, high = p.aminmax()
    return low.item() >= 0 and high.item() <= 1


def _dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    of_cpu = host(input)
    with torch._C.DisableTorchFunction():
        if train is False or not of_cpu.numel():
            return place(of_cpu.clone()), place(torch.ones_like(of_cpu, dtype=torch.bool))
        if p == 1:
            mask = torch.zeros_like(of_cpu, dtype=torch.bool)
            return place(torch.zeros_like(of_cpu)), place(mask)
        dtype, count, width = of_cpu.dtype, of_cpu.numel(), _vector_width(of_cpu)
        kept = 1.0 - p if dtype is torch.float64 else float(np.float32(1.0 - p))
        seed, first_call = chosen(None).taken(calls_of(count))
        if width == 1:
            # By index, whatever the order of the memory.
            values = drawn(uniform, seed, first_call, count).view(of_cpu.shape)
            mask = torch.empty_like(of_cpu, dtype=torch.bool).copy_(values < kept)
        else:
            values = drawn_by_vectors(seed, first_call, count, width, threads_of(count))
            mask = _ordered(values < kept, of_cpu)
        wide = of_cpu if dtype in (torch.float32, torch.float64) else of_cpu.float()
        # The same product in one call.
        return place(_masked(wide, mask, 1.0 / kept).to(dtype)), place(mask)


def _vector_width(tensor: Tensor) -> int:
    """Return how many elements a thread of dropout loads at once."""
    if not (tensor.is_contiguous() or tensor.permute(_from_outer(tensor)).is_contiguous()):
        return 1
    size_bytes = tensor.element_size()
    width = max(1, _VECTOR_BYTES // size_bytes)
    while tensor.data_ptr() % (width * size_bytes) or tensor.numel() % width:
        width //= 2
    return width


def _multinomial(
    self: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    of_cpu = host(self)
    with torch._C.DisableTorchFunction():
        if replacement and num_samples != 1:
            numbers = chosen(generator).drawn(self.numel())
            arguments = of_cpu, num_samples, replacement
            return place(_multinomial_of_cpu.redispatch(CPU_KEYS, *arguments, generator=numbers))
        if not _are_weights(of_cpu, num_samples):
            # Raises what torch raises.
            _multinomial_of_cpu.redispatch(
                CPU_KEYS, of_cpu, num_samples, replacement, generator=_unused
            )
        rates = _exponential(self.dtype, self.numel(), generator).to(self.dtype)
        chances = of_cpu / _ordered(rates, of_cpu)
        if num_samples == 1:
            return place(chances.argmax(-1, keepdim=True))
        return place(chances.topk(num_samples).indices)


def _are_weights(values: Tensor, num_samples: int) -> bool:
    """Whether torch is certain to accept these weights for sampling without replacement."""
    if values.dim() not in (1, 2) or not values.is_floating_point() or not values.numel():
        return False
    low, high = values.aminmax()
    is_counted = 0 < num_samples <= values.shape[-1]
    return is_counted and 0 < low.item() and high.item() < math.inf


def _normal_around(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Tensor:
    """Return normal numbers of means and standard deviations, tensors or one number each."""
    of_cpu = [
        host(each) if isinstance(each, Tensor) and each.is_cuda else each for each in (mean, std)
    ]
    with torch._C.DisableTorchFunction():
        # Raises what torch raises.
        like = torch.normal(*of_cpu, generator=_unused)
        mean, std = of_cpu
        spread = 1.0 if isinstance(std, Tensor) else std
        if like.numel():
            values = _normal(like.dtype, like.numel(), generator, 0.0, spread)
            like.copy_(_ordered(values, like))
        if isinstance(std, Tensor):
            like.mul_(std)
        return place(like.add_(mean))


_masked = _ATEN.native_dropout_backward.default
# These return numbers that are shared, so that callers have to copy them.
_KEPT: tuple[Fill, ...] = _uniform, _normal
_bernoulli_of_cpu = _ATEN.bernoulli_.Tensor
_multinomial_of_cpu = _ATEN.multinomial.default
_uniform_in_place = _filling(_ATEN.uniform_.default, _uniform)
_normal_in_place = _filling(_ATEN.normal_.default, _normal)
_random_from = getattr(_ATEN.random_, "from")
_between = _filling(_random_from, _integers)
_below = _filling(_ATEN.random_.to, _integers_below)
_rand = _making(_uniform_in_place, _uniform)
_randn = _making(_normal_in_place, _normal)
_randint = _making(_below, _integers_below, 1, torch.int64)
_randint_low = _making(_between, _integers, 2, torch.int64)
# By the operators' names in `aten`.
RANDOM: Mapping[str, Kernel] = {
    "uniform_": _uniform_in_place,
    "normal_": _normal_in_place,
    "exponential_": _filling(_ATEN.exponential_.default, _exponential),
    "bernoulli_.float": _filling(_ATEN.bernoulli_.float, _bernoulli),
    "bernoulli_.Tensor": _bernoulli_of,
    "random_": _filling(_ATEN.random_.default, _integers),
    "random_.to": _below,
    "random_.from": _between,
    "rand": _rand,
    "rand.generator": _rand,
    "randn": _randn,
    "randn.generator": _randn,
    "randint": _randint,
    "randint.generator": _randint,
    "randint.low": _randint_low,
    "randint.low_generator": _randint_low,
    "native_dropout": _dropout,
    "multinomial": _multinomial,
    "normal.Tensor_float": _normal_around,
    "normal.float_Tensor": _normal_around,
    "normal.Tensor_Tensor": _normal_around,
}
