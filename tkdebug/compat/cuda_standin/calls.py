# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""The general rule for a torch function: run it on the CPU, mark what comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tkdebug.compat.cuda_standin import operator_libraries, placement
from tkdebug.compat.cuda_standin.device_memory import is_out_of_memory, out_of_memory

Arguments = tuple[Any, ...]
Function = Callable[..., Any]
Rule = Callable[[Function, Arguments, dict[str, Any]], Any]


def call(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """`func` on the CPU; its results are CUDA tensors if it was asked so or got one."""
    if kwargs:
        pinned = kwargs.pop("pin_memory", None)
        device = kwargs.get("device")
        if device is not None or pinned:
            return _call_on_device(func, args, kwargs, device, bool(pinned))
    if not placement.any_on_cuda():
        return func(*args, **kwargs) if kwargs else func(*args)
    with torch._C.DisableTorchFunction():
        others: list[Tensor] = []
        on_cuda = placement.split_inputs(args, others)
        if kwargs and placement.split_inputs(kwargs.values(), others):
            on_cuda = True
    try:
        if on_cuda:
            with operator_libraries.found():
                result = func(*args, **kwargs)
        else:
            result = func(*args, **kwargs) if kwargs else func(*args)
    except RuntimeError as error:
        if on_cuda and is_out_of_memory(error):
            raise out_of_memory(error) from None
        raise
    # In-place functions hand back their first argument: it stays where it is.
    if on_cuda and not (args and result is args[0]):
        with torch._C.DisableTorchFunction():
            placement.place_results(result, others)
    return result


def _call_on_device(
    func: Function, args: Arguments, kwargs: dict[str, Any], device: object, pinned: bool
) -> Any:
    on_cuda = device is not None and placement.is_cuda_device(device)
    if on_cuda:
        kwargs["device"] = placement.CPU
    try:
        if on_cuda:
            with operator_libraries.found(makes_tensors=True):
                result = func(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
    except RuntimeError as error:
        if on_cuda and is_out_of_memory(error):
            raise out_of_memory(error) from None
        raise
    if on_cuda:
        placement.announce()
        with torch._C.DisableTorchFunction():
            placement.place_results(result, [])
    elif pinned and isinstance(result, Tensor):
        placement.pin(result)
    return result
