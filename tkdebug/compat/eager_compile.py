"""`torch.compile` where a CUDA device is usable: functions run eagerly, which is reported once.

Its default backend, inductor, launches the Triton kernels that it writes in ways that only
upstream's compiler has; other backends are left alone. Without a device,
`cuda_standin.compiling` compiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

from tkdebug.compat.after_torch import after_torch
from tkdebug.terminal_text import tell

_WRITES_KERNELS = "inductor"


def eager_compile(original: Callable[..., Any], backends: Collection[object]) -> Callable[..., Any]:
    """The replacement of `torch.compile`.

    Args:
        original: torch's own.
        backends: those whose functions run eagerly.
    """

    @functools.wraps(original)
    def compile(model: Any = None, *, backend: Any = _WRITES_KERNELS, **options: Any) -> Any:
        if backend not in backends:
            return original(model, backend=backend, **options)
        _say_once()
        return (lambda function: function) if model is None else model

    return compile


class CompileRunsEagerly:
    """Has what inductor would compile run eagerly, from when torch is imported until `restore`."""

    def __init__(self) -> None:
        self._original: Callable[..., Any] | None = None
        self._wanted = True
        after_torch(self._replace)

    def _replace(self) -> None:
        import torch

        if self._wanted:
            self._original = torch.compile
            torch.compile = eager_compile(torch.compile, (_WRITES_KERNELS,))

    def restore(self) -> None:
        """Put torch's own back; a second call does nothing."""
        self._wanted = False
        if self._original is not None:
            import torch

            torch.compile, self._original = self._original, None


@functools.cache
def _say_once() -> None:
    tell(
        "torch.compile runs its functions eagerly: the kernels that it writes need "
        "upstream's compiler"
    )
