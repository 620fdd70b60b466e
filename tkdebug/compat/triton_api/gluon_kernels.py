"""Placeholders for Gluon kernels, which libraries define beside their Triton ones.

They can be defined, decorated with heuristics and autotuning, and imported; a launch is refused
with the kernel's name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, NoReturn

from tkdebug.errors import UnsupportedError


class GluonKernel:
    """A function that was decorated with `gluon.jit`.

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
        """Refused, as launches are."""
        self._refuse()

    def run(self, *arguments: object, **keywords: object) -> NoReturn:
        """Refused."""
        self._refuse()

    def warmup(self, *arguments: object, **keywords: object) -> NoReturn:
        """Refused."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsupportedError(
            f"{self.fn.__qualname__} is a Gluon kernel: Gluon is not in this version of tkdebug; "
            "choose the library's Triton kernel, or run this one without tkdebug"
        )


def jit(
    fn: Callable[..., Any] | None = None, **options: object
) -> GluonKernel | Callable[[Callable[..., Any]], GluonKernel]:
    """`gluon.jit`, with and without options."""
    return GluonKernel if fn is None else GluonKernel(fn)
