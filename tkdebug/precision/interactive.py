"""`tkdebug.numerics()`: looks at launches of a part of any Python."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from tkdebug.precision.looking import Looker
from tkdebug.precision.measured import KernelNumerics
from tkdebug.precision.report import numerics_json, numerics_text
from tkdebug.records.hook_chain import HOOKS, LaunchDebugger


class Numerics:
    """Launches that are looked at inside a `with`: what they lose in precision, line by line.

    Args:
        looker: looks at them.
    """

    def __init__(self, looker: Looker) -> None:
        self._looker = looker
        self._before: LaunchDebugger | None = None

    @property
    def kernels(self) -> tuple[KernelNumerics, ...]:
        """The launches that were looked at, in order."""
        return tuple(self._looker.found)

    def text(self) -> str:
        """Return what `tkdebug numerics` prints."""
        return "".join(numerics_text(self.kernels))

    def json(self) -> str:
        """Return what `tkdebug numerics --format json` prints."""
        return numerics_json(self.kernels)

    def __enter__(self) -> Numerics:
        self._before, HOOKS.debugger = HOOKS.debugger, self._looker
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        HOOKS.debugger = self._before


def numerics(
    kernel: str | None = None,
    *,
    launches: int = 1,
    whole: bool = False,
    seconds: float = 10.0,
    reference: Callable[..., Any] | None = None,
) -> Numerics:
    """Look at interpreted launches inside a `with`, each beside itself in fp64.

        with tkdebug.numerics() as found:
            softmax(x)
        print(found.text())

    Args:
        kernel: a pattern of names; None for all kernels.
        launches: how many of each kernel are looked at.
        whole: all programs of a launch, in place of some.
        seconds: the seconds of processor time for each launch.
        reference: a function of the kernel's parameters, by name, that says what outputs should be.

    Returns:
        The context manager, which has the `kernels` that were looked at, and `text()` and `json()`
        of them.
    """
    return Numerics(Looker(kernel, launches, whole, seconds, reference))
