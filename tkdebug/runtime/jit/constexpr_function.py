"""Plain Python functions that kernels may call on compile-time constants."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any

from tkdebug.compiler.tensor import unwrap


class ConstexprFunction:
    """`fn`, callable on the host and, with constant arguments, inside kernels.

    The front end knows it by `is_constexpr_function`.
    """

    is_constexpr_function = True

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        update_wrapper(self, fn)

    def __get__(self, instance: object, owner: type | None = None) -> ConstexprFunction:
        if instance is None:
            return self
        return ConstexprFunction(self.fn.__get__(instance, owner))

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call `fn` with constexpr wrappers taken off the arguments."""
        return self.fn(
            *[unwrap(argument) for argument in arguments],
            **{name: unwrap(argument) for name, argument in keywords.items()},
        )

    @cached_property
    def cache_key(self) -> str:
        """The text of this function in the content keys of kernels that call it."""
        try:
            return inspect.getsource(self.fn)
        except OSError:
            return f"{self.fn.__module__}.{self.fn.__qualname__}"

    def __repr__(self) -> str:
        return f"ConstexprFunction({self.fn.__module__}:{self.fn.__qualname__})"


def constexpr_function(fn: Callable[..., Any]) -> ConstexprFunction:
    """Decorator: let kernels call `fn` on constants; the result is a constant."""
    return ConstexprFunction(fn)


@constexpr_function
def cdiv(x: int, y: int) -> int:
    """`x / y` rounded up, for positive `y`."""
    return (x + y - 1) // y


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The smallest power of 2 that is at least `n`; 0 for 0, as upstream."""
    return 1 << (n - 1).bit_length() if n > 0 else 0
