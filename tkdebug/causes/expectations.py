"""`tkdebug.expect`: states the expected tensor, in any script."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# The function that says what the tensor should be, while `expect` compares.
REFERENCE: ContextVar[Callable[[], Any] | None] = ContextVar("REFERENCE", default=None)


def expect(
    actual: Tensor,
    expected: Tensor | Callable[[], Tensor],
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Check that a tensor is what it should be.

    Under tkdebug a tensor that an interpreted launch wrote is reported with the cause, as far as it
    can be found; without tkdebug, this only compares.

    Args:
        actual: a tensor of any shape and dtype.
        expected: a tensor of the same shape, or a function that returns it: if that is a torch
            function of the launch's inputs, the inputs that an element should depend on are known.
        rtol: relative tolerance; None for the dtypes' default.
        atol: absolute tolerance; None for the dtypes' default.

    Raises:
        AssertionError: the tensors differ by more than atol + rtol * abs(expected), or in shape.
    """
    import torch

    from tkdebug.causes.comparison import tolerances_of

    wanted: Any = expected() if callable(expected) else expected
    rtol_of_types, atol_of_types = tolerances_of(actual, wanted)
    before = REFERENCE.set(expected if callable(expected) else None)
    try:
        torch.testing.assert_close(
            actual,
            wanted,
            rtol=rtol_of_types if rtol is None else rtol,
            atol=atol_of_types if atol is None else atol,
            check_dtype=False,
        )
    finally:
        REFERENCE.reset(before)
