"""The oracle: a reference in fp64, and how far from it a result may be.

The tolerance is derived, not chosen: the reference runs again several times in fp64 with the
rounding errors that its ops have in the types of the inputs. How far the results then are from the
exact ones is what arithmetic explains, with all cancellation on the way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor

from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.verification.rounding import (
    Bounded,
    DearError,
    Lifted,
    NotRunnableError,
    Rounding,
    Work,
)

MANY_RUNS = 32
_MOST_RESULTS = 1 << 22
_MARGIN = 2.0
RUNS = 4
_INDEX_TYPES = (torch.int64, torch.int32)
# Errors of a run are this many units; deviations count twice. Another order of operations, or
# another formula for the same, has errors of that size.
_UNITS = {torch.float16: 1.0, torch.bfloat16: 1.0}
_USUAL_UNITS = 4.0
# Runs that break ties, for each with rounding errors.
_TIES = 2
# Ops that give the index of the first of equal values, as torch documents; and those of any.
FIRST_OF_TIES = frozenset(("argmax", "argmin", "max", "min"))
_STEPS = frozenset("round floor ceil trunc sign sgn remainder fmod floor_divide".split())
# The least number of elements that the runs see at a step for each one that crosses it in none.
_SEEN_OF_STEPS = 20
ANY_OF_TIES = frozenset(("sort", "argsort", "topk", "kthvalue", "mode", "median"))


def wide(value: Any) -> Any:
    """Return arguments with their floats in fp64, in memory of their own, on the CPU."""
    if isinstance(value, Tensor):
        value = host_view(value.detach()).cpu()
        is_float = value.is_floating_point()
        return value.to(torch.float64, copy=True) if is_float else value.clone()
    if isinstance(value, list | tuple):
        items = [wide(one) for one in value]
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return {k: wide(v) for k, v in value.items()} if isinstance(value, dict) else value


def tensors_in(value: Any, name: str = "result") -> list[tuple[str, Tensor]]:
    """Return the tensors of a result by names; numbers become tensors."""
    if isinstance(value, Tensor):
        return [(name, value)]
    if isinstance(value, bool | int | float):
        return [(name, torch.tensor(value))]
    if isinstance(value, list | tuple):
        return [
            found
            for place, one in enumerate(value)
            for found in tensors_in(one, f"{name}[{place}]")
        ]
    if isinstance(value, Mapping):
        return [f for key, one in value.items() for f in tensors_in(one, f"{name}[{key!r}]")]
    return []


@dataclass
class Expected:
    """The expected value of one tensor, by its reference.

    Attributes:
        exact: the result in fp64 or integers, on the CPU.
        native: the result in the types of the inputs; None if the reference does not run in them.
        tolerance: the largest permitted error of each element; inf where any value is accepted.
        has_ties: a mask of the elements that are not compared with one expected value.
        bounds: the smallest and the largest integers of all runs; None for floats.
        seen: the integers of all runs, a run each, if some differ by more than 1, as ties are
            broken in other ways; else None.
        free: pairs of a mask and a result: the elements in the mask need not be NaN or Inf, as
            they do not depend on some inputs that are; the result is for numbers in their place.
    """

    name: str
    exact: Tensor
    native: Tensor | None
    tolerance: Tensor
    has_ties: Tensor
    bounds: tuple[Tensor, Tensor] | None = None
    seen: Tensor | None = None
    free: list[tuple[Tensor, Tensor]] = field(default_factory=list)


@dataclass
class Oracle:
    """Expected results of one call.

    Attributes:
        expected: the expected value of each tensor of the result, and of each changed argument.
        changed: positions of the tensors among the inputs that it changes.
        ops: the ops of torch that the reference calls, with their work.
        longest: the longest sum in it, and the op.
        unit: the relative rounding error of the inputs' type.
        dtype: the name of that type.
        has_empty: whether an input has no elements.
        has_inf: whether an input has infinite ones.
        has_special: whether an input has infinite ones or NaNs.
        aliases: whether a result is memory of an input.
        reads_numbers: whether it may take numbers out of tensors of integers: it does, or no op
            computes with such a tensor.
        has_epsilon: whether a number such as 1e-8 keeps something in it from 0.
        leaves_one: whether it splits an axis so that the last part has size 1, which broadcasts.
    """

    expected: list[Expected]
    changed: tuple[int, ...]
    ops: Mapping[str, Work]
    longest: tuple[int, str]
    unit: float
    dtype: str
    has_empty: bool = False
    has_inf: bool = False
    has_special: bool = False
    aliases: bool = False
    reads_numbers: bool = False
    leaves_one: bool = False
    has_epsilon: bool = False

    @property
    def makes_nans(self) -> bool:
        """Whether a result has NaNs although no input has NaNs or infinities."""
        floats = [one.exact for one in self.expected if one.exact.is_floating_point()]
        return not self.has_special and any(bool(exact.isnan().any()) for exact in floats)

    def tolerance_text(self) -> str:
        """Return a text about how the tolerance was derived."""
        terms, name = self.longest
        sums = f", sums of up to {terms:,} terms ({name})" if name else ", no sums"
        bits = -round(math.log2(self.unit))
        return (
            f"from {RUNS} runs of the reference in fp64 with the rounding of {self.dtype} "
            f"(2^-{bits}) at each op{sums}"
        )


# Runs the reference: gets whether in fp64 and what wraps the run; gives the result, and the tensors
# among its inputs afterwards.
Run = Callable[..., tuple[Any, list[Tensor]]]


def ask(
    run: Run,
    before: Sequence[Tensor],
    seed: int,
    *,
    special: Sequence[Run] = (),
    lowered: float | None = None,
    runs: int = RUNS,
    most_s: float = math.inf,
) -> Oracle:
    """Return the expected results of a call, from several runs of its reference.

    Args:
        run: called with `is_wide` and `lift` (a `Lifted`, or None for a native run).
        before: the tensors among the inputs.
        seed: the seed of the errors' signs.
        special: runs with other numbers for some NaNs and infinities of the inputs; each is called
            with `is_wide`, `lift` and `draw`, a number.
        lowered: the rounding error of each op and of sums, where it is not that of the types.
        runs: the number of runs with rounding errors, which is even.
        most_s: processor time that a native run may take.

    Raises:
        NotRunnableError: the reference does not run on these inputs, in fp64 gives another number
            of tensors or another shape, or gives complex numbers.
        DearError: its native run takes longer, or gives too many elements.
    """
    begun = time.process_time()
    native, changed = _native(run, before)
    elements = sum(tensor.numel() for _, tensor in native or ())
    if time.process_time() - begun > most_s or (elements > _MOST_RESULTS and most_s < math.inf):
        raise DearError("it takes too long on these inputs")
    exact_mode = Lifted()
    result, given = run(is_wide=True, lift=exact_mode)
    storages = {t.untyped_storage().data_ptr() for t in given}
    aliases = any(t.untyped_storage().data_ptr() in storages for _, t in tensors_in(result))
    exact = _flat(result, given, changed)
    floats = [t.dtype for t in before if t.is_floating_point()]
    dtype = min(floats, key=lambda d: -torch.finfo(d).eps, default=torch.float32)
    sum_unit = torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps / 2
    unit, units = torch.finfo(dtype).eps / 2, _UNITS.get(dtype, _USUAL_UNITS)
    if lowered is not None:
        unit = sum_unit = lowered
    longest = (1, "")
    has_indices = any(tensor.dtype in _INDEX_TYPES for _, tensor in exact)
    rounded: list[list[tuple[str, Tensor]]] = []
    for number in range(runs):
        sign = 1 if number % 2 == 0 else -1
        rounding = Rounding(unit, sum_unit, units, sign, seed + number // 2)
        rounded.append(_flat(*run(is_wide=True, lift=Lifted(rounding)), changed))
        longest = max(longest, rounding.longest)
    ties: list[list[tuple[str, Tensor]]] = []
    for number in range(_TIES * runs if has_indices else 0):
        rounding = Rounding(unit, sum_unit, units, 1, seed + 100 + number, breaks_ties=True)
        ties.append(_flat(*run(is_wide=True, lift=Lifted(rounding)), changed))
    expected = []
    if native is not None and len(native) != len(exact):
        raise NotRunnableError("in fp64 the reference gives another number of tensors")
    for place, (name, tensor) in enumerate(exact):
        own = None if native is None else native[place][1]
        if own is not None and own.shape != tensor.shape:
            shapes = f"{tuple(tensor.shape)}, natively {tuple(own.shape)}"
            raise NotRunnableError(f"in fp64 the reference gives another shape: {shapes}")
        others = [one[place][1] for one in rounded]
        if not tensor.is_floating_point():
            others += [one[place][1] for one in ties]
        least = unit if exact_mode.has_functions else 0.0
        expected.append(_expected(name, tensor, own, others, least))
    for one in expected:
        if not one.exact.is_floating_point():
            _leave_undefined(one, exact_mode.undefined)
    has_nan = any(bool(t.isnan().any()) for t in before if t.is_floating_point())
    for other in special:
        _free(expected, other, changed, has_nan)
    text = str(dtype).removeprefix("torch.")
    has_empty = any(not t.numel() for t in before)
    has_inf = any(bool(t.isinf().any()) for t in before if t.is_floating_point())
    reads = "_local_scalar_dense" in exact_mode.ops or not exact_mode.takes_integers
    small = exact_mode.leaves_one, exact_mode.has_epsilon
    has = (has_empty, has_inf, has_inf or has_nan, aliases, reads, *small)
    return Oracle(expected, changed, exact_mode.ops, longest, unit, text, *has)


def _native(
    run: Run, before: Sequence[Tensor]
) -> tuple[list[tuple[str, Tensor]] | None, tuple[int, ...]]:
    """Return the tensors of a native run, and the positions of the inputs that it changes.

    If torch lacks an op in the inputs' types, there are no tensors (None): it runs in fp64 instead.
    """
    try:
        result, after = run(is_wide=False, lift=Bounded())
    except NotRunnableError as error:
        if "not implemented for" not in str(error):
            raise
        result, after = run(is_wide=True, lift=Lifted())
        return None, _changed(before, after)
    changed = _changed(before, after)
    return _flat(result, after, changed), changed


def _changed(before: Sequence[Tensor], after: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(
        place
        for place, (a, b) in enumerate(zip(before, after, strict=True))
        if not _same(a.to(b.dtype), b)
    )


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    equal = a == b
    if a.is_floating_point():
        equal |= a.isnan() & b.isnan()
    return bool(equal.all())


def _flat(result: Any, after: Sequence[Tensor], changed: Sequence[int]) -> list[tuple[str, Tensor]]:
    found = tensors_in(result)
    found += [(f"input {place}", after[place]) for place in changed]
    return [(name, host_view(t.detach()).cpu()) for name, t in found]


def _expected(
    name: str, exact: Tensor, native: Tensor | None, runs: Sequence[Tensor], unit: float
) -> Expected:
    """The expected tensor with its tolerance; `unit`: error of an intermediate of magnitude 1."""
    if exact.is_complex():
        raise NotRunnableError("its result is complex, which is not compared")
    if not exact.is_floating_point():
        others = [one for one in (exact, *runs, native) if one is not None]
        given = torch.stack([one.long() for one in others if one.shape == exact.shape])
        low, high = given.amin(0), given.amax(0)
        spread = high - low
        ties = spread > 1
        seen = given if bool(ties.any()) else None
        return Expected(name, exact, native, spread.double(), ties, (low, high), seen)
    off = [(one - exact).abs() for one in runs if one.shape == exact.shape]
    tolerance = torch.zeros_like(exact)
    for one in off:
        tolerance = torch.maximum(tolerance, _smooth(one))
    if native is not None and native.shape == exact.shape and native.is_floating_point():
        apart = (native.double() - exact).abs()
        tolerance = torch.maximum(tolerance, _smooth(apart))
        # It overflows in its own type, too.
        tolerance[~native.isfinite() & exact.isfinite()] = math.inf
    tolerance = _MARGIN * tolerance
    for one in off:
        tolerance[~one.isfinite() & exact.isfinite()] = math.inf
    dtype = exact.dtype if native is None else native.dtype
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        # The result's own rounding; and numbers of size 1 on the way, as in log(1 + x).
        least = min(unit, torch.finfo(torch.float32).eps / 2)
        tolerance = tolerance + exact.abs() * info.eps + 4.0 * least + info.tiny
    tolerance = tolerance.where(exact.isfinite(), 0.0)
    return Expected(name, exact, native, tolerance, torch.zeros_like(exact, dtype=torch.bool))


def _smooth(off: Tensor) -> Tensor:
    """Return deviations raised to half their row's root mean square: some vanish by chance."""
    if off.dim() == 0:
        return off
    known = torch.where(off.isfinite(), off, 0.0)
    row = known.square().mean(-1, keepdim=True).sqrt()
    if off.shape[-1] < 16:
        row = torch.maximum(row, known.square().mean().sqrt().expand_as(row))
    return torch.maximum(off, 0.5 * row)


def _leave_undefined(one: Expected, undefined: Sequence[Tensor]) -> None:
    """Accept any integer where the reference converts a float that its type cannot hold."""
    for mask in undefined:
        same = mask.shape == one.exact.shape
        one.has_ties |= mask if same else torch.ones_like(one.has_ties)
        one.seen = None


def _free(
    expected: Sequence[Expected], special: Run, changed: Sequence[int], has_nan: bool
) -> None:
    """Note elements that are NaN or Inf but do not depend on the inputs that `special` replaces."""
    draws = [_flat(*special(is_wide=True, lift=Lifted(), draw=n), changed) for n in range(2)]
    for place, one in enumerate(expected):
        a, b = (draw[place][1] for draw in draws)
        if a.shape != one.exact.shape:
            continue
        if not one.exact.is_floating_point():
            if has_nan:  # an index or a count that depends on a NaN: nobody says which
                one.has_ties |= (a != one.exact) | (b != one.exact)
                one.seen = None
        else:
            free = ~one.exact.isfinite() & (a == b)
            if bool(free.any()):
                one.free.append((free, a))


@dataclass(frozen=True)
class Wrong:
    """A result that is not as expected.

    Attributes:
        kind: "wrong-value" or "wrong-shape".
        text: the mismatch in words.
        place: the number of the tensor.
        index: the index of the element that is wrong most; None for a wrong shape.
        tolerance: the tolerance of that element.
        elements: how many are wrong.
        apart: how far that element is from what is expected; inf for a NaN.
        is_of_nans: whether all that is wrong are numbers where a NaN is expected.
    """

    kind: str
    text: str
    place: int = 0
    index: tuple[int, ...] | None = None
    tolerance: float = 0.0
    elements: int = 0
    apart: float = math.inf
    is_of_nans: bool = False


def compare(result: Sequence[tuple[str, Tensor]], oracle: Oracle) -> tuple[Wrong | None, int]:
    """Return the mismatch of a result, or None, and the number of elements that were compared.

    Args:
        result: the tensors of a call's result by name, on the CPU.
        oracle: the expected results.
    """
    if len(result) != len(oracle.expected):
        text = f"{len(result)} tensors, expected {len(oracle.expected)}"
        return Wrong("wrong-shape", f"the result has {text}"), 0
    compared = 0
    found: Wrong | None = None
    for place, ((name, got), one) in enumerate(zip(result, oracle.expected, strict=True)):
        if oracle.has_empty and got.shape != one.exact.shape and not one.exact.numel():
            continue  # what a reference makes of nothing is often an accident
        if got.shape != one.exact.shape:
            shapes = f"shape {tuple(got.shape)}, expected {tuple(one.exact.shape)}"
            return Wrong("wrong-shape", f"{name} has {shapes}", place), compared
        if (got.is_floating_point() or got.is_complex()) != (
            one.exact.is_floating_point() or one.exact.is_complex()
        ):
            kind = one.exact.dtype if one.native is None else one.native.dtype
            text = f"{name} is of {got.dtype}, expected {kind}"
            return Wrong("wrong-shape", text, place), compared
        wrong = _without_steps(wrong_elements(got, one), got, one, oracle.ops)
        if oracle.has_inf and got.is_floating_point():
            # inf - inf depends on the formula: what is NaN in one is infinite in another.
            wrong &= ~(one.exact.isnan() & got.isinf())
        said = one.tolerance.isfinite() & ~one.has_ties
        compared += int(said.sum())
        if found is None and bool(wrong.any()):
            found = _wrong(name, place, got, one, wrong)
    return found, compared


def wrong_elements(got: Tensor, one: Expected) -> Tensor:
    """Return a mask of the wrong elements of a tensor."""
    if one.bounds is not None:
        outside = (got.long() < one.bounds[0]) | (got.long() > one.bounds[1])
        return torch.where(one.has_ties, _none_of_ties(got.long(), one), outside)
    a, b = got.double(), one.exact
    right = (a - b).abs() <= one.tolerance
    right |= (a == b) | (a.isnan() & b.isnan()) | one.tolerance.isposinf()
    dtype = got.dtype if one.native is None else one.native.dtype
    if dtype.is_floating_point and not bool(right.all()):
        # Beyond the largest number of its type a result may be infinite.
        most = torch.finfo(dtype).max
        right |= (b.abs() + one.tolerance >= most) & (a.abs() >= most / 2) & (a.sign() == b.sign())
    for free, replaced in one.free:
        near = (a - replaced).abs() <= _MARGIN * _like(one.tolerance, replaced)
        right |= free & (near | (a == replaced))
    return ~right


def _without_steps(wrong: Tensor, got: Tensor, one: Expected, ops: Mapping[str, Work]) -> Tensor:
    """Return the mask of wrong elements without those on the other side of a step, if few are.

    If many elements are near a step, as of `round`, a few cross it in no run of the reference.
    """
    count = int(wrong.sum())
    if not count:
        return wrong
    if one.bounds is not None:
        low, high = one.bounds
        near = wrong & ~one.has_ties & (got.long() >= low - 1) & (got.long() <= high + 1)
        at_steps = high > low
    elif _STEPS & {name.removesuffix("_") for name in ops}:
        tolerance = one.tolerance.where(one.tolerance.isfinite(), 0.0)
        near = wrong & ((got.double() - one.exact).abs() <= tolerance.max())
        at_steps = tolerance > 0.25 * tolerance.max()
    else:
        return wrong
    is_few = _SEEN_OF_STEPS * int(near.sum()) <= int(at_steps.sum())
    return wrong & ~near if is_few else wrong


def _none_of_ties(got: Tensor, one: Expected) -> Tensor:
    """Return a mask of integers that no run gave, where the runs likely gave all that ties permit.

    That is so for elements with few different integers for the number of runs.
    """
    if one.seen is None:
        return torch.zeros_like(one.has_ties)
    ordered = one.seen.sort(0).values
    different = 1 + (ordered[1:] != ordered[:-1]).sum(0)
    # With so few outcomes in so many runs it is unlikely that another one was missed.
    is_known = 2 * different.square() <= len(one.seen)
    return is_known & ~(one.seen == got).any(0)


def _like(tolerance: Tensor, numbers: Tensor) -> Tensor:
    known = tolerance[tolerance.isfinite()]
    most = float(known.max()) if known.numel() else 0.0
    return most + numbers.abs() * 1e-2


def _wrong(name: str, place: int, got: Tensor, one: Expected, wrong: Tensor) -> Wrong:
    apart = (got.double() - one.exact.double()).abs()
    apart = torch.nan_to_num(apart, nan=math.inf).where(wrong, -1.0)
    at = int(apart.reshape(-1).argmax())
    index = tuple(int(place) for place in numpy.unravel_index(at, got.shape))  # torch's loads much
    allowed = float(one.tolerance.reshape(-1)[at])
    shown = f"{name}[{', '.join(map(str, index))}]" if index else name
    values = [_number(t.reshape(-1)[at].item()) for t in (got, one.exact)]
    count = int(wrong.sum())
    text = (
        f"{shown} is {values[0]}, expected {values[1]} within {allowed:.3g}; "
        f"{count:,} of {got.numel():,} elements are wrong"
    )
    off = math.inf if one.bounds is not None else float(apart.reshape(-1)[at])
    of_nans = one.bounds is None and bool((one.exact.isnan() & ~got.isnan())[wrong].all())
    return Wrong("wrong-value", text, place, index, allowed, count, off, of_nans)


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) and math.isfinite(value) else str(value)
