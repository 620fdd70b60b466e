"""The kernels' language over torch tensors, for one program: `tl` where a kernel runs as Python.

Only what most kernels use; the rest is missing, and who asks for it gets `MissingError`. Nothing is
checked but that accesses stay inside of their allocation.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

# Iterations that all loops of a program may take together, and elements of a tile.
_MOST_ROUNDS, _MOST_ELEMENTS = 100_000, 1 << 20
# Iterations of an edited program: so many times those of the launched program, and some more.
_TIMES_ROUNDS, _MORE_ROUNDS = 4, 64


class MissingError(Exception):
    """The language has a function that this module lacks."""


class WrongProgramError(Exception):
    """The program does what no right one does: it leaves its memory, or does not end."""


class Pointer:
    """Elements of an allocation: a number or a tensor of them.

    Args:
        flat: the allocation as elements of the pointer's type.
        places: the places of the elements.
    """

    __slots__ = ("flat", "places")

    def __init__(self, flat: Tensor, places: Any) -> None:
        self.flat = flat
        self.places = places

    def __add__(self, other: Any) -> Pointer:
        return Pointer(self.flat, self.places + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Pointer:
        return Pointer(self.flat, self.places - other)

    def __getitem__(self, index: Any) -> Pointer:
        return Pointer(self.flat, self.places[index])

    @property
    def dtype(self) -> Any:
        """The pointer's type, whose element type kernels use."""
        return _PointerType(self.flat.dtype)


class Number(int):
    """An integer of a launch, with the attributes that kernels use."""

    def to(self, dtype: Any, **options: Any) -> Tensor:
        """Return the number as a tensor of a dtype."""
        return torch.tensor(int(self)).to(dtype)


class _PointerType:
    def __init__(self, element_ty: torch.dtype) -> None:
        self.element_ty = element_ty


class Language:
    """The functions of the language for one program; its submodules have them, too.

    Args:
        program: its number along x, y and z.
        grid: programs along x, y and z.

    Attributes:
        stores: its stores so far: the allocation, places in it and values.
        is_lenient: whether accesses may leave their allocation.
        has_left_memory: whether one did.
    """

    def __init__(self, program: tuple[int, int, int], grid: tuple[int, int, int]) -> None:
        self._program, self._grid = program, grid
        self.stores: list[tuple[Tensor, Any, Any]] = []
        self._rounds, self._most_rounds = 0, _MOST_ROUNDS
        self.is_lenient = True
        self.has_left_memory = False

    def __getattr__(self, name: str) -> Any:
        if name in ("math", "extra", "libdevice", "cuda", "standard", "language"):
            return self
        if name in _DTYPES:
            return _DTYPES[name]
        if name in _PLAIN:
            return _PLAIN[name]
        if name in ("range", "static_range"):
            return self.rounds
        raise MissingError(name)

    # Control

    def be_strict(self) -> None:
        """Refuse, from now on, runs that leave memory or take far more iterations than this one."""
        self.is_lenient = False
        self._most_rounds = _TIMES_ROUNDS * self._rounds + _MORE_ROUNDS

    def begin_again(self, stores: list[tuple[Tensor, Any, Any]]) -> None:
        """Restore the stores before a statement, and count iterations from the first."""
        self.stores = list(stores)
        self._rounds = 0

    def tick(self) -> bool:
        """Count an iteration of a loop; return True.

        Raises:
            WrongProgramError: there were too many iterations.
        """
        self._rounds += 1
        if self._rounds > self._most_rounds:
            raise WrongProgramError
        return True

    def rounds(self, *bounds: Any, **options: Any) -> Iterator[int]:
        """Yield the numbers of a range, and count them."""
        for number in builtins.range(*(int(bound) for bound in bounds)):
            self.tick()
            yield number

    def program_id(self, axis: int) -> Tensor:
        """Return the program's number along an axis."""
        return torch.tensor(self._program[axis])

    def num_programs(self, axis: int) -> Tensor:
        """Return the number of programs along an axis."""
        return torch.tensor(self._grid[axis])

    # Memory

    def load(self, pointer: Any, mask: Any = None, other: Any = None, **options: Any) -> Any:
        """Return the values in memory."""
        if not isinstance(pointer, Pointer):
            raise WrongProgramError
        places, kept = self._kept(pointer, mask)
        values = torch.take(self._memory(pointer.flat), places)
        if mask is None:
            return values
        if isinstance(other, Tensor):
            return torch.where(kept, values, other.to(values.dtype))
        return values.masked_fill(~kept, 0 if other is None else other)

    def store(self, pointer: Any, value: Any, mask: Any = None, **options: Any) -> None:
        """Add a store to `stores`; memory stays as it is."""
        if not isinstance(pointer, Pointer):
            raise WrongProgramError
        places, kept = self._kept(pointer, mask)
        if not isinstance(value, Tensor):
            value = torch.full((), value, dtype=torch.float64)
        value = value + torch.zeros(places.shape, dtype=value.dtype)
        places, kept = places.expand(value.shape), kept.expand(value.shape)
        value = value[kept].to(pointer.flat.dtype)
        self.stores.append((pointer.flat, places[kept], value))

    def atomic_add(self, pointer: Any, value: Any, mask: Any = None, **options: Any) -> Any:
        """Add to memory, as if no other program did; return the old values."""
        before = self.load(pointer, mask)
        self.store(pointer, before + value, mask)
        return before

    def _memory(self, flat: Tensor) -> Tensor:
        stores = [store for store in self.stores if store[0] is flat]
        if not stores:
            return flat
        memory = flat.clone()
        for _, places, values in stores:
            memory[places] = values
        return memory

    def _kept(self, pointer: Pointer, mask: Any) -> tuple[Tensor, Tensor]:
        """The places of a pointer and the mask of those that are on, of one shape."""
        places = torch.as_tensor(pointer.places)
        if places.is_floating_point():
            raise WrongProgramError
        if mask is None:
            kept = torch.ones((), dtype=torch.bool).expand(places.shape)
        else:
            kept = torch.as_tensor(mask).to(torch.bool)
            kept = kept | torch.zeros_like(places, dtype=torch.bool)
            places = places.expand(kept.shape)
            places = places.masked_fill(~kept, 0)
        if places.numel():
            low, high = torch.aminmax(places)
            if low < 0 or high >= pointer.flat.numel():
                if not self.is_lenient:
                    raise WrongProgramError
                self.has_left_memory = True
                places = places.clamp(0, pointer.flat.numel() - 1)
        return places.long(), kept

    # Tiles

    def arange(self, start: int, end: int) -> Tensor:
        """Return a tile of numbers."""
        if not 0 < end - start <= _MOST_ELEMENTS:
            raise WrongProgramError
        return torch.arange(start, end)

    def zeros(self, shape: Any, dtype: Any = torch.float32) -> Tensor:
        """Return a tile of zeros."""
        return torch.zeros(_shape(shape), dtype=dtype)

    def full(self, shape: Any, value: Any, dtype: Any = torch.float32) -> Tensor:
        """Return a tile of one value."""
        return torch.full(_shape(shape), float(value), dtype=dtype)

    def dot(self, a: Tensor, b: Tensor, acc: Any = None, *rest: Any, **options: Any) -> Tensor:
        """Return a matrix product, summed in fp32."""
        product = _floating(a).to(torch.float32) @ _floating(b).to(torch.float32)
        out = product if acc is None else acc + product
        dtype = options.get("out_dtype", torch.float32 if acc is None else acc.dtype)
        return out.to(dtype)

    def trans(self, x: Tensor, *order: Any) -> Tensor:
        """Return a tile with its axes in another order."""
        axes = order[0] if order and isinstance(order[0], list | tuple) else order
        return x.permute(tuple(axes)) if axes else x.transpose(-1, -2)

    permute = trans

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        """Return two tiles along a new last axis."""
        return torch.stack((a, b), -1)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two tiles of a last axis."""
        return x[..., 0], x[..., 1]

    def interleave(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the elements of two tiles in turn."""
        return torch.stack((a, b), -1).flatten(-2)

    def flip(self, x: Tensor, dim: int = -1) -> Tensor:
        """Return a tile the other way round along an axis."""
        return x.flip(dim)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """Return `x` where the condition is true, and `y` elsewhere."""
        if not isinstance(condition, Tensor):
            return x if condition else y
        return torch.where(condition.to(torch.bool), x, y)

    def max(self, x: Any, axis: int | None = None, keep_dims: bool = False, **options: Any) -> Any:
        """Return the maximum."""
        return x.amax() if axis is None else x.amax(axis, keep_dims)

    def min(self, x: Any, axis: int | None = None, keep_dims: bool = False, **options: Any) -> Any:
        """Return the minimum."""
        return x.amin() if axis is None else x.amin(axis, keep_dims)

    def sum(self, x: Any, axis: int | None = None, keep_dims: bool = False, **options: Any) -> Any:
        """Return the sum, of the type of its terms."""
        dtype = x.dtype if x.is_floating_point() else torch.int64
        return x.sum(dtype=dtype) if axis is None else x.sum(axis, keep_dims, dtype=dtype)

    def argmax(self, x: Any, axis: int | None = None, **options: Any) -> Any:
        """Return the position of the maximum."""
        return x.argmax(axis)

    def argmin(self, x: Any, axis: int | None = None, **options: Any) -> Any:
        """Return the position of the minimum."""
        return x.argmin(axis)

    def cumsum(self, x: Tensor, axis: int = 0, reverse: bool = False, **options: Any) -> Tensor:
        """Return the running sum."""
        return x.flip(axis).cumsum(axis).flip(axis) if reverse else x.cumsum(axis)

    def cumprod(self, x: Tensor, axis: int = 0, reverse: bool = False, **options: Any) -> Tensor:
        """Return the running product."""
        return x.flip(axis).cumprod(axis).flip(axis) if reverse else x.cumprod(axis)

    def softmax(self, x: Tensor, dim: int = 0, **options: Any) -> Tensor:
        """Return the softmax."""
        return torch.softmax(x, dim)

    def cdiv(self, x: Any, y: Any) -> Any:
        """Return a quotient, rounded up."""
        return -(-x // y)

    def maximum(self, x: Any, y: Any, **options: Any) -> Any:
        """Return the larger one, element by element."""
        return _largest(torch.maximum, x, y)

    def minimum(self, x: Any, y: Any, **options: Any) -> Any:
        """Return the smaller one, element by element."""
        return _largest(torch.minimum, x, y)

    def clamp(self, x: Any, low: Any, high: Any, **options: Any) -> Any:
        """Return the value limited to the bounds."""
        return self.minimum(self.maximum(x, low), high)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """Return `x * y + z`."""
        return x * y + z

    def div_rn(self, x: Any, y: Any, *rest: Any, **options: Any) -> Any:
        """Return a quotient."""
        return x / y

    fdiv = div_rn

    def expand_dims(self, x: Tensor, axis: int) -> Tensor:
        """Return a tile with one more axis."""
        return x.unsqueeze(axis)

    def broadcast_to(self, x: Tensor, *shape: Any) -> Tensor:
        """Return a tile repeated along axes."""
        return x.expand(_shape(shape[0] if len(shape) == 1 else shape))

    def reshape(self, x: Tensor, *shape: Any, **options: Any) -> Tensor:
        """Return a tile of another shape."""
        return x.reshape(_shape(shape[0] if len(shape) == 1 else shape))

    view = reshape

    def zeros_like(self, x: Tensor) -> Tensor:
        """Return zeros of a tile's shape."""
        return torch.zeros_like(x)

    def cast(self, x: Any, dtype: torch.dtype, **options: Any) -> Any:
        """Return a value of another type."""
        return _tensor(x).to(dtype)

    def multiple_of(self, x: Any, *rest: Any) -> Any:
        """Return `x`: the hint is ignored."""
        return x

    max_contiguous = max_constancy = multiple_of

    def assume(self, *arguments: Any, **options: Any) -> None:
        """Do nothing."""

    static_assert = device_assert = static_print = device_print = debug_barrier = assume


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in (shape if isinstance(shape, list | tuple) else (shape,)))
    elements = 1
    for size in sizes:
        elements *= size
    if not 0 < elements <= _MOST_ELEMENTS:
        raise WrongProgramError
    return sizes


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.float32 if isinstance(value, float) else torch.int64)


def _floating(value: Any) -> Tensor:
    tensor = _tensor(value)
    return tensor if tensor.is_floating_point() else tensor.to(torch.float32)


def _largest(function: Callable[[Tensor, Tensor], Tensor], x: Any, y: Any) -> Any:
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        return function(torch.tensor(x), torch.tensor(y)).item()
    return function(*(torch.as_tensor(value) for value in (x, y)))


def _unary(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)
    return lambda x, *rest, **options: function(_floating(x))


_PLAIN: dict[str, Any] = {
    name: _unary(name)
    for name in (
        *("exp", "exp2", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf"),
        *("sigmoid", "floor", "ceil", "expm1"),
    )
}
_PLAIN |= {"rint": _unary("round"), "sqrt_rn": _unary("sqrt"), "nearbyint": _unary("round")}
_PLAIN["abs"] = lambda x: torch.abs(_tensor(x))
_PLAIN["constexpr"] = lambda x: x
_DTYPES = {
    **{f"int{bits}": getattr(torch, f"int{bits}") for bits in (8, 16, 32, 64)},
    **{"uint8": torch.uint8, "int1": torch.bool, "uint32": torch.int64, "uint64": torch.int64},
    **{name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")},
}
