"""Runs of a reference for the oracle: in fp64, with rounding errors, and within limits.

Each op's result is off by some units in the last place, a sum of n terms by about the square root
of n of them, relative to the sum of the terms' absolute values. (N. J. Higham, Accuracy and
Stability of Numerical Algorithms, chapters 3 and 4; D. S. Parker, Monte Carlo Arithmetic, for the
way.)
"""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_MOST_BY_NUMBER = 1000.0
_MOST_EPSILON = 1e-4
# Elements of a result of one of the reference's ops.
_MOST_WITHIN = 1 << 24
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
# Arithmetic that no other formula computes by way of larger numbers, as log(1 + x) does.
_ARITHMETIC = _EXACT | _SUMS | frozenset("add sub rsub mul div neg reciprocal square sqrt".split())
# Functions that formulas compute by way of numbers of size 1, as tanh by 1 - 2 / (exp(2x) + 1),
# whose error stays where results are small; that of the second ones grows with the input.
_BY_ONE = frozenset(
    "tanh sigmoid erf erfc erfinv expm1 log1p softplus log_sigmoid_forward elu sinh cosh asinh "
    "atanh acosh log log2 log10 sin cos tan special_expm1 special_erf logit xlogy".split()
)
_BY_ONE_TIMES = frozenset("gelu silu mish hardswish".split())
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


PRODUCTS = frozenset("mm addmm bmm baddbmm addmv mv dot vdot convolution matmul linear".split())
# Ops whose results may overflow on the way, in one formula and not in another.
_MULTIPLYING = frozenset(
    "mul square pow var std var_mean std_mean linalg_vector_norm norm prod cumprod mse_loss "
    "_fused_rms_norm _cdist_forward".split()
)
MULTIPLYING = _MULTIPLYING | PRODUCTS | _NORMS
# Ops that take integers as places.
INDEXING = frozenset(
    "index embedding embedding_bag _embedding_bag gather take take_along_dim nll_loss_forward "
    "nll_loss2d_forward index_select index_add index_add_ index_put index_put_ scatter scatter_ "
    "scatter_add scatter_add_ scatter_reduce index_copy index_fill".split()
)
# The cost of an op with sums within it, in elementwise ops.
_COMPOSITE_COST = 5.0
# Ops that are much work.
SUMMING = (_SUMS | _COMPOSITES) - {"sum"}


class NotRunnableError(Exception):
    """A reference cannot run on some inputs."""


class DearError(NotRunnableError):
    """A reference takes too long, or gives too much, for inputs that are so large."""


class _OverError(BaseException):
    """The time of a block is over; no `except Exception` in a reference catches it."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Limit the processor time of a `with` block; outside of the main thread, do nothing.

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
    # It is raised again in case Python ignored it, as in a finaliser; not while cleaning up.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, max(seconds, 1.0))
    try:
        yield
    except _OverError:
        raise DearError(f"it takes more than {seconds:.2g} s of processor time") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass
class Rounding:
    """Rounding errors that are added in one run of a reference.

    Attributes:
        unit: the relative error of an op's result.
        sum_unit: the relative error of each step of a sum.
        units: the number of these that an error has.
        sign: 1 or -1, by which all errors of a run are multiplied.
        seed: the seed of the errors' signs.
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
        """Return the relative error of a sum of so many terms, and note the longest sum."""
        if terms > self.longest[0]:
            self.longest = terms, name
        return self.units * self.sum_unit * (2.0 * math.sqrt(max(terms, 1)) + 2.0)


class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode for which torch does not load its compiler, which takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Lifted(Mode):  # type: ignore[no-untyped-call]
    """Dispatch mode: ops make fp64 in place of narrower floats, with rounding errors if given.

    Args:
        rounding: the errors; None for none.
    """

    def __init__(self, rounding: Rounding | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rounding = rounding
        self.ops: dict[str, Work] = {}
        # Masks of floats outside of the range of the integer type that they are converted to.
        self.undefined: list[Tensor] = []
        # Whether an op computes with integers of tensors, rather than Python with numbers of them.
        self.takes_integers = False
        # Whether an op may be computed by way of numbers of size 1, however small its result is.
        self.has_functions = False
        # Whether `chunk` or `split` leaves a last part of one, which broadcasts.
        self.leaves_one = False
        # Whether a number such as 1e-8 keeps something from 0.
        self.has_epsilon = False

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
        numbers = [n for n in (*args, *kwargs.values()) if isinstance(n, float)]
        self.has_epsilon |= any(0.0 < n <= _MOST_EPSILON for n in numbers)
        if name == "split" and isinstance(args[1], int):
            axis = args[2] if len(args) > 2 else 0
            self.leaves_one |= args[0].shape[axis] % max(args[1], 1) == 1 < args[1]
        if not func.is_view:
            self.has_functions |= name.removesuffix("_") not in _ARITHMETIC
        if not (func.is_view or name == "_local_scalar_dense"):
            self.takes_integers |= any(_is_integer(one) for one in args)
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
        on_the_way = _on_the_way(name.removesuffix("_"), args, rounding)
        out = func(*args, **kwargs)
        if name in _SUMS:
            return self._sum_off(func, name, args, kwargs, out, rounding)
        relative = rounding.units * rounding.unit * _of_numbers(args[1:], kwargs)
        out = _each(out, lambda t: _off(t, relative, rounding, in_place=name.endswith("_")))
        if on_the_way is None:
            return out
        return _each(out, lambda t: t.add_(on_the_way * rounding.errors(t)))

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
        elements: the number of elements of the largest operand.
        cost: a rough number of operations, all together.
    """

    elements: int = 0
    cost: float = 0.0


class Bounded(Mode):  # type: ignore[no-untyped-call]
    """Dispatch mode that refuses ops whose results are too large, although their inputs fit."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run one op.

        Raises:
            DearError: its result would be too large.
        """
        if _elements_of(func.overloadpacket.__name__, args) > _MOST_WITHIN:
            raise DearError("it needs much memory on these inputs")
        return func(*args, **(kwargs or {}))


def _elements_of(name: str, args: Sequence[Any]) -> int:
    """Return how many elements the result of a product, or of operands that broadcast, has."""
    shapes = [one.shape for one in args if isinstance(one, Tensor)]
    if name in ("mm", "bmm", "addmm", "baddbmm") and len(shapes) > 1:
        first, second = shapes[-2:]
        return math.prod(first[:-1]) * int(second[-1])
    whole = 1
    for sizes in itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        whole *= max(sizes)
    return whole


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


def _is_integer(value: Any) -> bool:
    if isinstance(value, list | tuple):  # as `index` takes them
        return any(_is_integer(one) for one in value)
    is_tensor = isinstance(value, Tensor) and not value.is_floating_point()
    return is_tensor and value.dtype is not torch.bool


def _is_wide(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype is torch.float64


def _each(out: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(out, tuple):
        return tuple(change(one) if _is_wide(one) else one for one in out)
    return change(out) if _is_wide(out) else out


def _off(tensor: Tensor, relative: float, rounding: Rounding, in_place: bool = False) -> Tensor:
    factors = 1.0 + relative * rounding.errors(tensor)
    return tensor.mul_(factors) if in_place else tensor * factors


def _on_the_way(name: str, args: Sequence[Any], rounding: Rounding) -> Any:
    """Return the absolute error of an op that computes with numbers near 1 on the way, or None."""
    if name not in _BY_ONE and name not in _BY_ONE_TIMES:
        return None
    # Halves are computed in fp32, whose error is a step of a sum's.
    error = rounding.units * min(rounding.unit, rounding.sum_unit)
    return error * args[0].abs() if name in _BY_ONE_TIMES else error


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
    """Return the factor by which a number such as 0.001, computed as 1 - 0.999, raises errors."""
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
