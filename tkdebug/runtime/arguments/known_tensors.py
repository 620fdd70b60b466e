"""Tells tensors of known shapes and strides from others, in one call of torch's C++.

`shape` and `stride()` of each tensor make objects, which takes most of what it takes to note a
launch. Torch's compiler asks the same at each call of compiled code. Invariant: what is made here
holds on to no tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def known_tensors(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """A function of as many objects: whether they are tensors of these shapes and strides.

    It says no to some that are, such as those that require a gradient where these do not.

    Args:
        tensors: what launches were passed; other things than tensors may be among them.

    Returns:
        The function; None where torch has none for these.
    """
    import torch

    if not all(isinstance(one, torch.Tensor) for one in tensors):
        return None
    try:
        guards: Any = torch._C._dynamo.guards  # noqa: SLF001  (it has no public name)
        check: Callable[..., bool] = guards.TensorGuards(
            *tensors,
            dynamic_dims_sizes=[list(one.shape) for one in tensors],
            dynamic_dims_strides=[list(one.stride()) for one in tensors],
        ).check
    except (AttributeError, TypeError, RuntimeError):
        return None
    # A kind of tensor that it never recognises would be asked about each time.
    return check if check(*tensors) else None
