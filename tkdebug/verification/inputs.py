"""Inputs of calls, made from the example inputs of a problem by a case.

Responsible for what can be varied in them: shapes, numbers, dtypes, layouts in memory, values.
Nothing here knows the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.verification.records import Case

NARROW_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
# Elements of a tensor that has a structure, and values of one that has few.
_LEAST_STRUCTURED = 9
_MOST_DISTINCT = 4
# Elements of a call's inputs, all together.
MOST_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a tensor or number in the arguments: indices through lists, tuples and dicts."""

    path: tuple[Any, ...]
    is_tensor: bool


class Example:
    """The arguments of one call that a problem gives.

    Args:
        arguments: positional arguments.

    Attributes:
        tensors: its tensors in host memory, in order.
        numbers: its numbers.
        unsigned: positions of tensors that have no negative numbers.
    """

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.arguments = list(arguments)
        self.places: list[Place] = []
        self.tensors: list[Tensor] = []
        self.numbers: list[Any] = []
        self.others: list[Any] = []
        self._walk(self.arguments, ())
        device = [t.device.type for t in self.tensors]
        self.is_on_gpu = "cuda" in device
        self.tensors = [host_view(t.detach()).cpu().clone() for t in self.tensors]
        self.unsigned = [place for place, t in enumerate(self.tensors) if _is_unsigned(t)]

    def _walk(self, value: Any, path: tuple[Any, ...]) -> None:
        if isinstance(value, Tensor):
            self.places.append(Place(path, True))
            self.tensors.append(value)
        elif isinstance(value, bool | int | float):
            self.places.append(Place(path, False))
            self.numbers.append(value)
        elif isinstance(value, list | tuple):
            for key, one in enumerate(value):
                self._walk(one, (*path, key))
        elif isinstance(value, dict):
            for key, one in value.items():
                self._walk(one, (*path, key))

    def case(self) -> Case:
        """Return the case of the example itself."""
        return Case(
            "the example inputs",
            tuple(tuple(t.shape) for t in self.tensors),
            tuple(self.numbers),
            tuple(str(t.dtype).removeprefix("torch.") for t in self.tensors),
            ("contiguous",) * len(self.tensors),
        )

    def filled(self, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> list[Any]:
        """Return the arguments with other tensors and numbers in their places."""
        left_tensors, left_numbers = list(tensors), list(numbers)

        def made(value: Any) -> Any:
            if isinstance(value, Tensor):
                return left_tensors.pop(0)
            if isinstance(value, bool | int | float):
                return left_numbers.pop(0)
            if isinstance(value, list | tuple):
                items = [made(one) for one in value]
                if isinstance(value, list):
                    return items
                return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
            if isinstance(value, dict):
                return {key: made(one) for key, one in value.items()}
            return value

        return [made(one) for one in self.arguments]


# Values. Each gets random normal numbers, the example's tensor and a generator.


def _equal(normal: Tensor, like: Tensor, rng: torch.Generator) -> Tensor:
    return torch.full_like(normal, 1.7)


def _zeros(normal: Tensor, like: Tensor, rng: torch.Generator) -> Tensor:
    return torch.where(normal > 0.5, 0.0, torch.where(normal < -0.5, -0.0, normal))


def _with(special: Sequence[float], most: int = 2) -> Callable[..., Tensor]:
    def made(normal: Tensor, like: Tensor, rng: torch.Generator) -> Tensor:
        flat = normal.reshape(-1).clone()
        count = min(most, flat.numel() // 2)
        if count:
            where = torch.randperm(flat.numel(), generator=rng)[:count]
            chosen = torch.randint(len(special), (count,), generator=rng)
            flat[where] = torch.tensor(special, dtype=flat.dtype)[chosen]
        return flat.reshape(normal.shape)

    return made


def _negative(normal: Tensor, like: Tensor, rng: torch.Generator) -> Tensor:
    return -normal.abs() if bool(normal.numel()) else normal


def _ascending(normal: Tensor, like: Tensor, rng: torch.Generator) -> Tensor:
    return (normal * 4.0).sort(-1).values if normal.dim() else normal


# Rows of other kinds beside each other: each gets normal numbers of one row.
_ROWS: Sequence[Callable[[Tensor], Tensor]] = (
    torch.zeros_like,
    lambda row: torch.full_like(row, 0.75),
    lambda row: torch.where(torch.arange(row.numel()) == row.numel() // 3, 90.0, row),
    lambda row: row * 40.0,
    lambda row: -row.abs() - 0.5,
    lambda row: row * 1e-3,
    lambda row: (row * 2.0).round(),
)


def _rows(normal: Tensor, like: Tensor, rng: torch.Generator) -> Tensor:
    if normal.dim() < 2 or not normal.numel():
        return normal
    rows = normal.reshape(-1, normal.shape[-1])
    first = int(torch.randint(len(_ROWS), (1,), generator=rng))
    made = [_ROWS[(first + place) % len(_ROWS)](row) for place, row in enumerate(rows)]
    return torch.stack(made).reshape(normal.shape)


def _low(normal: Tensor, like: Tensor, rng: torch.Generator) -> Tensor:
    """Return numbers far below usual initial values of a maximum; their squares fit fp32."""
    most = torch.finfo(like.dtype).max
    largest = 0.9 * most if most < 1e9 else most**0.45
    return -largest * (1.0 - 0.2 * normal.abs().clamp(max=3.0))


def _masked_rows(normal: Tensor, like: Tensor, rng: torch.Generator) -> Tensor:
    """Return numbers with every third row, from the second on, all -inf; below 2-D, all of them."""
    if normal.dim() < 2 or not normal.numel():
        return torch.full_like(normal, -math.inf)
    rows = normal.reshape(-1, normal.shape[-1]).clone()
    rows[min(1, len(rows) - 1) :: 3] = -math.inf
    return rows.reshape(normal.shape)


def _columns(normal: Tensor, like: Tensor, rng: torch.Generator) -> Tensor:
    if normal.dim() < 2:
        return normal
    return _rows(normal.transpose(0, -1).contiguous(), like, rng).transpose(0, -1).contiguous()


def _near(limits: Sequence[float]) -> Callable[..., Tensor]:
    """Return a function that draws numbers at and on both sides of limits and their negatives."""

    def made(normal: Tensor, like: Tensor, rng: torch.Generator) -> Tensor:
        shape = tuple(normal.shape)
        both = torch.tensor([*limits, *(-one for one in limits)], dtype=torch.float32)
        at = both[torch.randint(len(both), shape, generator=rng)]
        spread = torch.tensor((0.0, 1e-3, 0.1, 0.5))[torch.randint(4, shape, generator=rng)]
        return at * (1.0 + spread * normal)

    return made


VALUES: Mapping[str, Callable[..., Tensor]] = {
    "normal": lambda normal, like, rng: normal,
    "large": lambda normal, like, rng: normal * 60.0,
    "small": lambda normal, like, rng: normal * 1e-3,
    "tiny": lambda normal, like, rng: normal * 1e-10,
    "negative": _negative,
    "positive": lambda normal, like, rng: normal.abs() + 0.1,
    "offset": lambda normal, like, rng: normal + 30.0,
    "equal": _equal,
    "zeros": _zeros,
    "zeros alone": lambda normal, like, rng: torch.zeros_like(normal),
    "equal and negative": lambda normal, like, rng: torch.full_like(normal, -1.7),
    "integers": lambda normal, like, rng: (normal * 3).round(),
    "ascending": _ascending,
    "rows": _rows,
    "columns": _columns,
    "huge": lambda normal, like, rng: normal * torch.finfo(like.dtype).max ** 0.25,
    "low": _low,
    "denormal": lambda normal, like, rng: normal * torch.finfo(like.dtype).tiny,
    "nan": _with((math.nan,)),
    "inf": _with((math.inf, -math.inf)),
    "rows of -inf": _masked_rows,
}
# Numbers of both signs where the example has none that are negative; with a number, of one tensor.
# Where the reference makes NaNs of negative numbers, they are no inputs.
SIGNED = "signed"
_NEGATIVE = (SIGNED, "negative", "low", "equal and negative")
LARGEST_VALUES = ("huge", "low")
LEAST_VALUES = ("tiny", "denormal")
SPECIAL_VALUES = ("nan", "inf", "rows of -inf")


def _every_third(drawn: Tensor, value: int) -> Tensor:
    """Return the integers with every third replaced by a value; their sum decides which ones."""
    made = drawn.reshape(-1).clone()
    made[int(drawn.sum()) % min(3, made.numel()) :: 3] = value
    return made.reshape(drawn.shape)


def _negated(drawn: Tensor) -> Tensor:
    """Return the integers with most replaced by `-n - 1`; their sum decides which ones."""
    rng = torch.Generator().manual_seed(int(drawn.sum()) % 997)
    return torch.where(torch.rand(drawn.shape, generator=rng) < 0.7, -drawn - 1, drawn)


def _other_offsets(drawn: Tensor) -> Tensor:
    """Return sorted integers with other values between the same ends, some of them equal.

    Unsorted integers, and fewer than three, are returned unchanged.
    """
    flat = drawn.reshape(-1)
    if flat.numel() < 3 or bool((flat[1:] < flat[:-1]).any()):
        return drawn
    made = flat.clone()
    made[1:-1] = made[1:-1].roll(1).cummax(0).values
    made[1:-1:2] = made[0]
    return made.cummax(0).values.reshape(drawn.shape)


def _half(drawn: Tensor, first: int) -> Tensor:
    """Return a padding mask: the first half of each row is true, or the second if `first` is 0."""
    columns = torch.arange(drawn.shape[-1] if drawn.dim() else 1)
    is_first = columns < (len(columns) + 1) // 2
    return (is_first if first else ~is_first).expand(drawn.shape).clone()


def _at_limits(drawn: Tensor) -> Tensor:
    """Return the integers with four of five replaced by the largest or smallest of their type."""
    info, made = torch.iinfo(drawn.dtype), drawn.reshape(-1).clone()
    for first, value in enumerate((info.max, info.min, info.max - 1, info.min + 1)):
        made[first::5] = value
    return made.roll(int(drawn.sum()) % 5).reshape(drawn.shape)


# Kinds of integers and bools; floats are normal with these. Losses ignore the index -100.
INDEX_VALUES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "negative indices": lambda drawn: _every_third(drawn, -1),
    "ignored indices": lambda drawn: _every_third(drawn, -100),
    "equal indices": lambda drawn: torch.full_like(drawn, int(drawn.reshape(-1)[0])),
    "large integers": lambda drawn: drawn * 0 + 70_000 - drawn,
    "zero integers": torch.zeros_like,
    "other offsets": lambda drawn: _other_offsets(drawn),
    "negated integers": _negated,
    "large negative integers": lambda drawn: drawn - 70_000,
    "all true": torch.ones_like,
    "all false": torch.zeros_like,
    "all of the first half": lambda drawn: _half(drawn, 1),
    "all of the second half": lambda drawn: _half(drawn, 0),
}
# A spread that is small beside the mean: most sums of squares lose it.
FAR = "far from 0"
# Integers whose sums wrap: a kernel may not mean to take them.
LIMITS_OF_INTEGERS = "limits of integers"
# Kinds outside of the example's range. Where a reference takes numbers out of a tensor, Python's
# slices accept any, and nothing is known of them.
OUTSIDE = frozenset(
    (
        *("negative indices", "ignored indices", "large integers", "large negative integers"),
        *("negated integers", LIMITS_OF_INTEGERS),
    )
)
_ALL_INDEX_VALUES = {**INDEX_VALUES, LIMITS_OF_INTEGERS: _at_limits}
_OF_BOOLS = tuple(kind for kind in INDEX_VALUES if kind.startswith("all "))
NEAR = "near "


def near_name(limits: Sequence[float]) -> str:
    """Return the name of values near some limits, for `Case.values`."""
    return NEAR + " ".join(f"{one:g}" for one in limits)


def _made_by(kind: str) -> Callable[..., Tensor]:
    if kind in ("given", SIGNED):
        return VALUES["normal"]
    if kind == FAR:
        return lambda normal, like, rng: normal + 1000.0
    if kind.startswith(NEAR):
        return _near([float(one) for one in kind.removeprefix(NEAR).split()])
    return VALUES[kind]


def values_of(
    example: Tensor, shape: Sequence[int], kind: str, rng: torch.Generator, most: int = -1
) -> Tensor:
    """Return numbers of one kind for a tensor of the example, in its dtype, on the CPU.

    Args:
        example: the problem's tensor, whose mean, spread and sign count.
        shape: the shape of the result.
        kind: a name of `VALUES` or `INDEX_VALUES`, "given", `SIGNED`, `FAR`,
            `LIMITS_OF_INTEGERS`, or a name that `near_name` made.
        rng: the source of random numbers.
        most: the largest integer; -1 for the example's.
    """
    if kind == "given" and tuple(shape) == tuple(example.shape):
        return example.clone()
    change = _ALL_INDEX_VALUES.get(kind)
    if example.dtype is torch.bool:
        drawn = torch.rand(tuple(shape), generator=rng) < 0.5
        return change(drawn) if change is not None and kind in _OF_BOOLS else drawn
    if not example.is_floating_point():
        drawn = _integers(example, shape, rng, most)
        is_plain = change is None or kind in _OF_BOOLS or not drawn.numel()
        is_plain |= kind in OUTSIDE and _is_sorted(example)  # offsets
        return drawn if is_plain or change is None else change(drawn).to(example.dtype)
    kind = "normal" if change is not None else kind
    normal = torch.randn(tuple(shape), generator=rng, dtype=torch.float32)
    wide = example.double()
    finite = wide[wide.isfinite()]
    if kind in ("given", "normal", SIGNED) and finite.numel():
        std = float(finite.std()) if finite.numel() > 1 else 0.0
        mean = 0.0 if kind == SIGNED else float(finite.mean())
        normal = normal * (std or 1.0) + mean
    made = _made_by(kind)(normal, example, rng)
    if kind not in _NEGATIVE and _is_unsigned(example):
        made = made.abs()
    return structured(made, example, rng).to(example.dtype)


def structured(made: Tensor, example: Tensor, rng: torch.Generator) -> Tensor:
    """Return numbers with the example's structure, on which a kernel may rely.

    A structure is few different values, such as 0 and 1, ascending rows, a triangle or symmetry.
    """
    if not made.numel() or example.numel() < _LEAST_STRUCTURED or not made.dim():
        return made
    wide = example.float()
    ordered = wide.reshape(-1).sort().values
    values = torch.cat([ordered[:1], ordered[1:][ordered[1:] != ordered[:-1]]])
    if 1 < len(values) <= _MOST_DISTINCT and bool(values.isfinite().all()):
        return values[torch.randint(len(values), tuple(made.shape), generator=rng)]
    if bool((wide.diff(dim=-1) >= 0).all()) and wide.shape[-1] > _MOST_DISTINCT:
        return made.sort(-1).values
    if example.dim() < 2 or min(example.shape[-2:]) < 3:
        return made
    for triangle in (torch.Tensor.tril, torch.Tensor.triu):
        if torch.equal(wide, triangle(wide)):
            return triangle(made)
    is_square = made.shape[-1] == made.shape[-2]
    if is_square and wide.shape[-1] == wide.shape[-2] and torch.equal(wide, wide.mT):
        return made.tril() + made.tril(-1).mT
    return made


def _are_different(tensor: Tensor) -> bool:
    ordered = tensor.reshape(-1).sort().values
    return bool((ordered[1:] != ordered[:-1]).all())


def has_lost_places(example: Tensor, now: Tensor) -> bool:
    """Whether integers, such as places of writes, are all different in an example and not now."""
    if example.is_floating_point() or example.dtype is torch.bool or example.numel() < 2:
        return False
    return _are_different(example) and not _are_different(now)


def _is_unsigned(example: Tensor) -> bool:
    """Whether a float tensor may be meant to have no negative numbers."""
    if not example.is_floating_point():
        return False
    finite = example[example.isfinite()]
    return finite.numel() > 3 and bool((finite >= 0).all())


def _is_sorted(example: Tensor) -> bool:
    flat = example.reshape(-1)
    return flat.numel() > 2 and bool((flat[1:] >= flat[:-1]).all())


def _integers(example: Tensor, shape: Sequence[int], rng: torch.Generator, most: int) -> Tensor:
    """Return integers within the example's range; sorted ones, such as offsets, stay sorted."""
    if not example.numel():
        return example.new_zeros(tuple(shape))
    flat = example.reshape(-1)
    count = math.prod(shape)
    if _is_sorted(example):
        places = torch.linspace(0, flat.numel() - 1, count).round().long()
        last = int(flat[-1])
        kept = flat[places].reshape(tuple(shape))
        return kept * most // last if 0 <= most != last > 0 else kept
    low, high = int(flat.min()), int(flat.max())
    if most >= 0:
        high = min(high, most)
        low = low if low <= high // 2 else min(low, 0)
    if _are_different(flat) and high + 1 - low >= count:
        drawn = low + torch.randperm(high + 1 - low, generator=rng)[:count]  # places of writes
    else:
        drawn = torch.randint(low, high + 1, (count,), generator=rng)
    return drawn.reshape(tuple(shape)).to(example.dtype)


# Layouts: how a tensor lies in memory. Memory around it holds NaNs, or large integers.


def _spare(values: Tensor, size: int, device: str) -> Tensor:
    fill = torch.nan if values.is_floating_point() else 0
    return torch.full((size,), fill, dtype=values.dtype, device=device)


def _contiguous(values: Tensor, device: str) -> Tensor:
    return values.to(device, copy=True).contiguous()


def _strided_by(
    swap: int = 0, pads: Mapping[int, int] | None = None, step: int = 1, offset: int = 0
) -> Callable[..., Tensor]:
    """Return a function that lays a tensor out with its axes in another order, gaps and an offset.

    Args:
        swap: n to swap the axes n - 1 and n in memory, counted from the innermost one, which is
            0; 0 for no swap.
        pads: the gap after each line along an axis, by its number from the innermost one.
        step: the stride of the innermost axis, in elements.
        offset: the offset of the first element, in elements.
    """
    gaps = pads or {}

    def made(values: Tensor, device: str) -> Tensor:
        rank = values.dim()
        if rank == 0:
            return _contiguous(values, device)
        # From the innermost axis in memory outwards.
        axes = list(range(rank))[::-1]
        if swap and rank > swap:
            axes[swap - 1], axes[swap] = axes[swap], axes[swap - 1]
        strides, reach = [0] * rank, step
        for place, axis in enumerate(axes):
            strides[axis] = reach
            reach = reach * values.shape[axis] + gaps.get(place, 0) * strides[axis]
        spare = _spare(values, offset + max(reach, 1) + 8, device)
        out = spare.as_strided(tuple(values.shape), tuple(strides), offset)
        out.copy_(values.to(device))
        return out

    return made


def _channels_last(values: Tensor, device: str) -> Tensor:
    if values.dim() != 4:
        return _contiguous(values, device)
    return values.to(device, copy=True).contiguous(memory_format=torch.channels_last)


def _expanded(axis: int) -> Callable[..., Tensor]:
    """Return a function that expands a tensor's first slice along an axis: its stride is 0."""

    def made(values: Tensor, device: str) -> Tensor:
        if values.dim() == 0 or not values.shape[axis]:
            return _contiguous(values, device)
        first = values.narrow(axis, 0, 1).to(device, copy=True).contiguous()
        return first.expand(values.shape)

    return made


# Axes along which each element is the first one.
_EXPANDED = {"expanded": 0, "expanded-columns": -1}
LAYOUTS: Mapping[str, Callable[..., Tensor]] = {
    "contiguous": _contiguous,
    "transposed": _strided_by(swap=1),
    "swapped-batches": _strided_by(swap=2),
    "padded-rows": _strided_by(pads={0: 5}),
    "padded-batches": _strided_by(pads={1: 1}),
    "every-other": _strided_by(step=2),
    "offset": _strided_by(offset=3),
    "channels-last": _channels_last,
    **{name: _expanded(axis) for name, axis in _EXPANDED.items()},
}
# The fewest axes with which these are other layouts than one before them.
LEAST_AXES: Mapping[str, int] = {
    "transposed": 2,
    "padded-rows": 2,
    "swapped-batches": 3,
    "padded-batches": 3,
    "channels-last": 4,
    "expanded-columns": 2,
}


def has_other_signs(example: Example, case: Case) -> bool:
    """Whether a case has negative numbers where the example has none."""
    kind = SIGNED if case.values.startswith(SIGNED) else case.values
    return bool(example.unsigned) and kind in _NEGATIVE


def size_elems(case: Case) -> int:
    """Return the number of elements of a case's tensors."""
    return sum(math.prod(shape) for shape in case.shapes)


def dense_values(example: Example, case: Case) -> list[Tensor]:
    """Return a case's tensors on the CPU, contiguous."""
    rng = torch.Generator().manual_seed(case.seed)
    made = []
    parts = zip(example.tensors, case.shapes, case.dtypes, case.layouts, strict=True)
    for place, (given, shape, dtype, layout) in enumerate(parts):
        like = given.to(getattr(torch, dtype))
        kind, _, only = case.values.partition(" ")
        if kind != SIGNED:
            kind = case.values
        elif only and int(only) != place:
            kind = "normal"
        values = values_of(like, shape, kind, rng, case.most)
        axis = _EXPANDED.get(layout)
        if axis is not None and values.dim() and values.shape[axis]:
            values = values.narrow(axis, 0, 1).expand(values.shape).contiguous()
        made.append(values)
    return made


def placed(tensors: Sequence[Tensor], case: Case, device: str) -> list[Tensor]:
    """Return tensors in the layouts of a case, in memory of their own, on a device."""
    return [
        LAYOUTS[layout](values, device)
        for values, layout in zip(tensors, case.layouts, strict=True)
    ]


def whole_memory(tensor: Tensor) -> Tensor:
    """Return a copy of the bytes of a tensor's allocation."""
    with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
        storage = host_view(tensor.detach()).untyped_storage()
        whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
        return whole.set_(storage, 0, (storage.nbytes(),), (1,)).cpu().clone()
