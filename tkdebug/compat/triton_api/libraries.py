"""The parts of upstream's API that libraries and benchmarks use around their kernels.

cuBLAS, placeholders for Gluon kernels, paths into nested arguments, and types by their names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import reduce, update_wrapper
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from tkdebug.compiler.dtypes import LanguageType, dtype
from tkdebug.compiler.tensor import constexpr, constexpr_type
from tkdebug.errors import UnsupportedError, UsageError
from tkdebug.runtime.errors import ArgumentTypeError
from tkdebug.runtime.jit.constexpr_function import constexpr_function
from tkdebug.runtime.jit.parameters import type_named

if TYPE_CHECKING:
    import torch

# Positions to follow into nested tuples and lists, outermost first.
Path = tuple[int, ...]
# Kernels that were copied from upstream's sort have it as a default.
CONSTEXPR_0 = constexpr(0)


class CublasLt:
    """Products of matrices as cuBLAS has them, by torch, which calls it on a GPU.

    Args:
        workspace: memory that cuBLAS may use; torch brings its own.
    """

    def __init__(self, workspace: torch.Tensor) -> None:
        self._workspace = workspace

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Write the product of `a` and the transposed `b` to `c`.

        Args:
            a: (M, K).
            b: (N, K), of the dtype of `a`.
            c: (M, N), of the same.

        Raises:
            UsageError: the shapes or dtypes do not fit each other.
        """
        wanted = (a.shape[0], b.shape[0])
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or tuple(c.shape) != wanted:
            raise UsageError(
                f"CublasLt.matmul: got a {tuple(a.shape)}, b {tuple(b.shape)}, c {tuple(c.shape)}, "
                "expected (M, K), (N, K), (M, N)"
            )
        if not a.dtype == b.dtype == c.dtype:
            raise UsageError(
                f"CublasLt.matmul: got {a.dtype}, {b.dtype} and {c.dtype}, expected one dtype"
            )
        if a.element_size() == 1:
            # torch has no plain product of 8-bit floats; it is exact in 16 bits but for its sums.
            c.copy_((a.half() @ b.half().T).to(c.dtype))
        else:
            c.copy_(a @ b.T)


nvidia = SimpleNamespace(cublas=SimpleNamespace(CublasLt=CublasLt))


def get_cache_invalidating_env_vars() -> dict[str, str]:
    """Return the variables that upstream's generated code depends on: here none does."""
    return {}


class GluonKernel:
    """A placeholder for a function that was decorated with `gluon.jit`.

    It can be imported, and decorated with heuristics and autotuning; a launch is refused with the
    kernel's name.

    Attributes:
        fn: the function.
        arg_names: the names of its parameters, which decorators look at.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.arg_names = list(inspect.signature(fn).parameters)
        update_wrapper(self, fn)

    def __getitem__(self, grid: object) -> NoReturn:
        self._refuse()

    def __call__(self, *arguments: object, **keywords: object) -> NoReturn:
        """Refuse, as for a launch."""
        self._refuse()

    def run(self, *arguments: object, **keywords: object) -> NoReturn:
        """Refuse, as for a launch."""
        self._refuse()

    def warmup(self, *arguments: object, **keywords: object) -> NoReturn:
        """Refuse, as for a launch."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsupportedError(
            f"{self.fn.__qualname__} is a Gluon kernel: Gluon is not in this version of tkdebug; "
            "choose the library's Triton kernel, or run this one without tkdebug"
        )


def gluon_jit(
    fn: Callable[..., Any] | None = None, **options: object
) -> GluonKernel | Callable[[Callable[..., Any]], GluonKernel]:
    """Decorate a Gluon kernel, with or without options."""
    return GluonKernel if fn is None else GluonKernel(fn)


def get_iterable_path(iterable: Any, path: Path) -> Any:
    """Return the item of `iterable` at `path`."""
    return reduce(lambda value, position: value[position], path, iterable)


def find_paths_if(iterable: Any, pred: Callable[[Path, Any], bool]) -> list[Path]:
    """Return the paths of the innermost items for which `pred(path, item)` holds."""
    if not isinstance(iterable, (tuple, list)):
        return [()] if pred((), iterable) else []

    def search(prefix: Path, items: Any) -> list[Path]:
        found: list[Path] = []
        for position, item in enumerate(items):
            path = (*prefix, position)
            if isinstance(item, (tuple, list)):
                found.extend(search(path, item))
            elif pred(path, item):
                found.append(path)
        return found

    return search((), iterable)


def is_power_of_two(value: int) -> bool:
    """Whether `value` is a power of 2; 0 counts as one, as upstream has it."""
    return (value & (value - 1)) == 0


def str_to_ty(name: str, c: Any = None) -> LanguageType | constexpr_type:
    """Return the type that upstream calls `name`, such as `i32`, `*kfp16` or `constexpr`.

    Args:
        name: the name as launch signatures write it.
        c: the value of a `constexpr`.

    Raises:
        ArgumentTypeError: no type has that name.
    """
    if name.startswith("constexpr"):
        return constexpr_type(c)
    named = type_named(name)
    if named is None:
        raise ArgumentTypeError(f"{name!r} names no type; expected one such as i32, fp16, *fp32")
    return named


@constexpr_function
def get_int_dtype(bitwidth: int, signed: bool) -> dtype:
    """Return the integer type of that width."""
    sizes = (1, 8, 16, 32, 64)
    if bitwidth not in sizes:
        raise ValueError(f"no integer type has {bitwidth} bits; {sizes} are the widths")
    return dtype(f"int{bitwidth}" if signed or bitwidth == 1 else f"uint{bitwidth}")
