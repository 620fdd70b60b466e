"""The oracle: a reference in fp64, and how far from it a result may be.

The tolerance is derived, not chosen: the reference runs again several times in fp64 with the
rounding errors that its ops have in the types of the inputs. Each op's result is off by some units
in the last place, a sum of n terms by about the square root of n of them, relative to the sum of
the terms' absolute values. How far the results then are from the exact ones is what arithmetic
explains, with all cancellation on the way. (N. J. Higham, Accuracy and Stability of Numerical
Algorithms, chapters 3 and 4; D. S. Parker, Monte Carlo Arithmetic, for the way.)
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tkdebug.interpreter.memory.host_views import host_view

MANY_RUNS = 32
_MOST_RESULTS = 1 << 22
_MOST_BY_NUMBER = 1000.0
# Errors of a run are this many units; deviations count twice. Another order of operations, or
# another formula for the same, has errors of that size.
_UNITS = {torch.float16: 1.0, torch.bfloat16: 1.0}
_USUAL_UNITS = 4.0
_MARGIN = 2.0
RUNS = 4
_INDEX_TYPES = (torch.int64, torch.int32)
# Runs that break ties, for each with rounding errors.
_TIES = 2
_NARROW = (torch.float16, torch.bfloat16, torch.float32)
# Ops whose results are exact, or are none of floats.
_EXACT = frozenset(
    "abs amax amin any all arange argmax argmin bernoulli bitwise_and bitwise_not bitwise_or "
    "ceil clamp clamp_min clamp_max clone constant_pad_nd copy copy_ cat cummax cummin detach "
    "diagonal_scatter embedding empty empty_like empty_strided eq expand eye fill fill_ flip "
    "floor full full_like gather ge gt hardtanh index index_select isfinite isinf isnan "
    "isposinf isneginf item le leaky_relu_zero lift_fresh logical_and logical_not logical_or lt "
    "masked_fill masked_fill_ masked_select max max_pool2d_with_indices maximum min minimum "
    "median mode narrow ne neg new_empty new_full new_ones new_zeros nonzero normal_ ones "
    "ones_like permute rand randn randint randperm relu repeat roll round scalar_tensor scatter "
    "select_scatter sgn sign slice_scatter sort stack threshold tile topk tril triu trunc unfold "
    "uniform_ unique_dim where zero_ zeros zeros_like _local_scalar_dense _to_copy _unique2 "
    "reflection_pad2d replication_pad2d upsample_nearest2d constant_pad pixel_shuffle".split()
)
# Linear in each of their tensors, so that the same op of absolute values is their size.
_SUMS = frozenset(
    "sum mean mm addmm bmm baddbmm addmv mv dot vdot convolution cumsum nansum matmul linear "
    "avg_pool2d _adaptive_avg_pool2d avg_pool1d avg_pool3d".split()
)
# These have sums within them.
_COMPOSITES = frozenset(
    "_softmax _log_softmax logsumexp native_layer_norm native_group_norm native_batch_norm "
    "_native_batch_norm_legit _native_batch_norm_legit_no_training var std var_mean std_mean "
    "linalg_vector_norm norm prod cumprod logcumsumexp _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_attention_math scatter_add scatter_add_ index_add index_add_ "
    "scatter_reduce index_put index_put_ _fused_rms_norm cudnn_batch_norm _cdist_forward "
    "nll_loss_forward nll_loss2d_forward mse_loss binary_cross_entropy smooth_l1_loss "
    "huber_loss embedding_bag _embedding_bag".split()
)


# They give their result, the mean and the reciprocal of the deviation.
_NORMS = frozenset(
    "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit".split()
)


# Of equal values these give the index of the first, as torch documents; these of any.
FIRST_OF_TIES = frozenset(("argmax", "argmin", "max", "min"))
ANY_OF_TIES = frozenset(("sort", "argsort", "topk", "kthvalue", "mode", "median"))
PRODUCTS = frozenset("mm addmm bmm baddbmm addmv mv dot vdot convolution matmul linear".split())
# Elementwise ops that one with sums within it stands for.
_COMPOSITE_COST = 5.0
# Those that are much work.
SUMMING = (_SUMS | _COMPOSITES) - {"sum"}


class NotRunnableError(Exception):
    """A reference cannot run on some inputs."""


class DearError(NotRunnableError):
    """A reference takes long, or gives much: for so large inputs there is no time."""


class _OverError(BaseException):
    """The time of a block is over; no `except Exception` of a reference keeps it."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Limit the processor time of a `with` block, in the main thread, which signals reach.

    Raises:
        DearError: the block took longer.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if seconds == math.inf or not is_main or not hasattr(signal, "setitimer"):
        yield
        return

    def over(number: int, frame: object) -> None:
        raise _OverError

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    except _OverError:
        raise DearError(f"it takes more than {seconds:.2g} s of processor time") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass
class Rounding:
    """Errors that are put into a run.

    Attributes:
        unit: of results of ops, relative.
        sum_unit: of each step of a sum.
        units: that an error has.
        sign: 1 or -1, by which all errors of a run are multiplied.
        seed: of their signs.
        breaks_ties: whether equal inputs differ, for results that are indices.
        longest: the longest sum that was seen, and its op.
    """

    unit: float
    sum_unit: float
    units: float
    sign: int
    seed: int
    breaks_ties: bool = False
    longest: tuple[int, str] = (1, "")
    _rng: torch.Generator = field(default_factory=torch.Generator)

    def __post_init__(self) -> None:
        self._rng.manual_seed(self.seed)

    def errors(self, like: Tensor) -> Tensor:
        """Return signs of errors: plus and minus 1, in the tensor's shape."""
        signs = torch.randint(2, tuple(like.shape), generator=self._rng, dtype=torch.int8)
        return (signs * 2 - 1).double() * self.sign

    def uniform(self, like: Tensor) -> Tensor:
        """Return errors of any size from minus 1 to 1, in the tensor's shape."""
        drawn = torch.rand(tuple(like.shape), generator=self._rng, dtype=torch.float64)
        return (2.0 * drawn - 1.0) * self.sign

    def of_sum(self, terms: int, name: str) -> float:
        """Return the relative error of a sum."""
        if terms > self.longest[0]:
            self.longest = terms, name
        return self.units * self.sum_unit * (2.0 * math.sqrt(max(terms, 1)) + 2.0)


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that torch's compiler is not loaded for, which takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Lifted(Mode):  # type: ignore[no-untyped-call]
    """Has ops make fp64 where they would make narrower floats; and rounding errors if asked for.

    Args:
        rounding: the errors; None for none.
    """

    def __init__(self, rounding: Rounding | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rounding = rounding
        self.ops: dict[str, Work] = {}
        # Of floats that became integers: those that are none.
        self.undefined: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run one op."""
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in _NARROW:
            kwargs["dtype"] = torch.float64
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = torch.device("cpu")
        name = func.overloadpacket.__name__
        note_op(self.ops, name, args)
        if name == "_to_copy" and self.rounding is None and _is_wide(args[0]):
            self._note_undefined(args[0], kwargs.get("dtype"))
        rounding = self.rounding
        if rounding is None or func.is_view or name in _EXACT:
            return func(*args, **kwargs)
        if name in _COMPOSITES:
            terms = _terms(name, args)
            relative = rounding.of_sum(terms, name)
            if name.startswith("_scaled_dot_product"):
                # The weights are rounded, too, to the type of what they are multiplied with.
                relative = max(relative, rounding.units * rounding.unit)
            args = [_off(one, relative, rounding) if _is_wide(one) else one for one in args]
            out = func(*args, **kwargs)
            out = _each(out, lambda t: _off(t, relative, rounding))
            return _shifted(name, out, args, relative, rounding)
        out = func(*args, **kwargs)
        if name in _SUMS:
            return self._sum_off(func, name, args, kwargs, out, rounding)
        relative = rounding.units * rounding.unit * _of_numbers(args[1:], kwargs)
        return _each(out, lambda t: _off(t, relative, rounding, in_place=name.endswith("_")))

    def _note_undefined(self, given: Tensor, dtype: torch.dtype | None) -> None:
        """Note floats that are converted to an integer type that has no such number."""
        if dtype is None or dtype.is_floating_point or dtype in (torch.bool, torch.complex64):
            return
        info = torch.iinfo(dtype)
        undefined = ~((given >= info.min) & (given <= info.max))
        if bool(undefined.any()):
            self.undefined.append(undefined)

    def _sum_off(
        self, func: Any, name: str, args: Any, kwargs: Any, out: Any, rounding: Rounding
    ) -> Any:
        sizes = func(*(one.abs() if _is_wide(one) else one for one in args), **kwargs)
        relative = rounding.of_sum(_terms(name, args), name)
        if not isinstance(out, Tensor):
            return out
        own = rounding.units * rounding.unit * out.abs()
        return out + rounding.errors(out) * (relative * sizes.abs() + own)


@dataclass
class Work:
    """Calls of one op.

    Attributes:
        elements: the most that an operand has.
        cost: a rough number of operations, all together.
    """

    elements: int = 0
    cost: float = 0.0


class Largest(Mode):  # type: ignore[no-untyped-call]
    """Notes the most elements that a result of an op has."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run one op."""
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else (out,):
            if isinstance(one, Tensor):
                self.elements = max(self.elements, one.numel())
        return out


def note_op(ops: dict[str, Work], name: str, args: Sequence[Any]) -> None:
    """Count an op on floats, with the elements of its operands and its cost."""
    tensors = [one for one in args if isinstance(one, Tensor) and one.is_floating_point()]
    work = ops.setdefault(name, Work())
    most = max((one.numel() for one in tensors), default=0)
    work.elements = max(work.elements, most)
    if name in PRODUCTS and len(tensors) > 1:
        first, second = tensors[-2:] if name.startswith(("add", "badd")) else tensors[:2]
        each = second.shape[0] if name in ("linear", "convolution") else second.shape[-1]
        work.cost += 2.0 * first.numel() * (each if second.dim() > 1 else 1)
        if name == "convolution":
            work.cost *= math.prod(second.shape[2:])
    else:
        work.cost += most * (_COMPOSITE_COST if name in _COMPOSITES else 1.0)


def _is_wide(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype is torch.float64


def _each(out: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(out, tuple):
        return tuple(change(one) if _is_wide(one) else one for one in out)
    return change(out) if _is_wide(out) else out


def _off(tensor: Tensor, relative: float, rounding: Rounding, in_place: bool = False) -> Tensor:
    factors = 1.0 + relative * rounding.errors(tensor)
    return tensor.mul_(factors) if in_place else tensor * factors


def _shifted(name: str, out: Any, args: Sequence[Any], relative: float, rounding: Rounding) -> Any:
    """Return a norm's result with a rounding error of the mean that it subtracts."""
    if name not in _NORMS or not out[1].numel():
        return out
    result, mean, rstd = out[:3]
    weights = [one for one in args[1:3] if isinstance(one, Tensor)]
    weight = float(weights[0].abs().max()) if weights and weights[0].numel() else 1.0
    shift = rounding.errors(mean) * relative * mean.abs() * rstd * weight
    if name == "native_group_norm":
        parts = result.reshape(*mean.shape, -1) + shift.unsqueeze(-1)
        result = parts.reshape(result.shape)
    elif name == "native_layer_norm":
        result = result + shift
    else:
        result = result + shift.reshape(1, -1, *[1] * (result.dim() - 2))
    return (result, *out[1:])


def _of_numbers(args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """Return how much larger errors are by numbers such as 0.001, computed as 1 - 0.999."""
    numbers = [abs(n) for n in (*args, *kwargs.values()) if isinstance(n, float)]
    return max((min(1.0 / n, _MOST_BY_NUMBER) for n in numbers if 0.0 < n < 1.0), default=1.0)


def _terms(name: str, args: Sequence[Any]) -> int:
    """Return the number of terms that each element of a result is a sum of."""
    tensors = [one for one in args if isinstance(one, Tensor)]
    if not tensors:
        return 1
    first = tensors[0]
    if name in ("mm", "bmm", "mv", "dot", "vdot", "matmul", "linear"):
        return int(first.shape[-1]) if first.dim() else 1
    if name in ("addmm", "baddbmm", "addmv"):
        return int(tensors[1].shape[-1])
    if name == "convolution":
        weight = tensors[1]
        return weight.numel() // max(int(weight.shape[0]), 1)
    if name in ("_softmax", "_log_softmax", "cumsum", "cumprod", "logcumsumexp"):
        return int(first.shape[args[1]]) if first.dim() else 1
    if name == "native_layer_norm":
        return math.prod(args[1])
    if name in ("sum", "mean", "nansum", "logsumexp", "var", "std", "linalg_vector_norm"):
        axes = next((one for one in args[1:] if isinstance(one, list | tuple)), None)
        if axes:
            return math.prod(int(first.shape[axis]) for axis in axes)
    return first.numel() // max(int(first.shape[0]), 1) if first.dim() > 1 else first.numel()


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
    """One tensor as a reference has it.

    Attributes:
        exact: in fp64 or integers, on the CPU.
        native: in the types of the inputs; None where it does not run so.
        tolerance: how far a result may be, by element; inf where nothing is said.
        has_ties: elements of which nothing is compared with one value: bool.
        bounds: the least and the largest integers that roundings give; None for floats.
        seen: integers that the reference gives if ties are broken in other ways, one run each.
        free: elements that need not be NaN or Inf, as they do not depend on some inputs that are;
            with what they are where those are numbers.
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
        expected: of each tensor of the result, and of arguments that it changes.
        changed: positions of the tensors among the inputs that it changes.
        ops: of torch that it calls, with their work.
        longest: the longest sum in it, and the op.
        unit: the relative rounding error of the inputs' type.
        dtype: that type.
        has_empty: whether an input has no elements.
        has_inf: whether an input has infinite ones.
        has_special: whether an input has infinite ones or NaNs.
        aliases: whether a result is memory of an input.
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

    def tolerance_text(self) -> str:
        """Return how the tolerance came about, in words."""
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
    """Return what a reference says.

    Args:
        run: called with `is_wide` and `lift` (a `Lifted`, or None for a native run).
        before: the tensors among the inputs.
        seed: of the errors' signs.
        special: runs with other numbers for some NaNs and infinities of the inputs; each is called
            with `is_wide`, `lift` and `draw`, a number.
        lowered: the rounding error of each op and of sums, where it is not that of the types.
        runs: with rounding errors, an even number.
        most_s: processor time that a native run may take.

    Raises:
        NotRunnableError: it does not run, natively or in fp64, on these inputs.
        DearError: it takes longer, or gives too much.
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
        expected.append(_expected(name, tensor, own, others, unit))
    for one in expected:
        if not one.exact.is_floating_point():
            _leave_undefined(one, exact_mode.undefined)
    has_nan = any(bool(t.isnan().any()) for t in before if t.is_floating_point())
    for other in special:
        _free(expected, other, changed, has_nan)
    text = str(dtype).removeprefix("torch.")
    has_empty = any(not t.numel() for t in before)
    has_inf = any(bool(t.isinf().any()) for t in before if t.is_floating_point())
    has = (has_empty, has_inf, has_inf or has_nan, aliases)
    return Oracle(expected, changed, exact_mode.ops, longest, unit, text, *has)


def _native(
    run: Run, before: Sequence[Tensor]
) -> tuple[list[tuple[str, Tensor]] | None, tuple[int, ...]]:
    """Run a reference in the types of the inputs, and see which of these it changes."""
    try:
        result, after = run(is_wide=False, lift=None)
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
    """Return deviations, none of which is far below those of its row: some vanish by chance."""
    if off.dim() == 0:
        return off
    known = torch.where(off.isfinite(), off, 0.0)
    row = known.square().mean(-1, keepdim=True).sqrt()
    if off.shape[-1] < 16:
        row = torch.maximum(row, known.square().mean().sqrt().expand_as(row))
    return torch.maximum(off, 0.5 * row)


def _leave_undefined(one: Expected, undefined: Sequence[Tensor]) -> None:
    """Expect nothing of integers that come of floats for which there is none."""
    for mask in undefined:
        same = mask.shape == one.exact.shape
        one.has_ties |= mask if same else torch.ones_like(one.has_ties)
        one.seen = None


def _free(
    expected: Sequence[Expected], special: Run, changed: Sequence[int], has_nan: bool
) -> None:
    """Find elements that are NaN or Inf though they do not depend on an input that is."""
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
        text: in words.
        place: the number of the tensor.
        index: of the element that is wrong most; None for a wrong shape.
        tolerance: at that element.
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
    """Return what is wrong with a result, or None; and how many elements were compared.

    Args:
        result: the tensors of a call's result by name, on the CPU.
        oracle: what the reference says of it.
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
        wrong = wrong_elements(got, one)
        if oracle.has_inf and got.is_floating_point():
            # inf - inf depends on the formula: what is NaN in one is infinite in another.
            wrong &= ~(one.exact.isnan() & got.isinf())
        said = one.tolerance.isfinite() & ~one.has_ties
        compared += int(said.sum())
        if found is None and bool(wrong.any()):
            found = _wrong(name, place, got, one, wrong)
    return found, compared


def wrong_elements(got: Tensor, one: Expected) -> Tensor:
    """Return which elements of a tensor are wrong: bool."""
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


def _none_of_ties(got: Tensor, one: Expected) -> Tensor:
    """Return which integers no way to break ties gives, where all ways were seen: bool."""
    if one.seen is None:
        return torch.zeros_like(one.has_ties)
    ordered = one.seen.sort(0).values
    different = 1 + (ordered[1:] != ordered[:-1]).sum(0)
    # With so few ways in so many runs it is no chance that one was not seen.
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
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), got.shape))
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
