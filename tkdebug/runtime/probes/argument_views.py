"""The arguments of a launch as plain facts: where each tensor begins and ends, as it was passed.

The rules are the interpreter's (`interpreter/buffers.py`): legal are the elements from the first to
the last one of the view, and for an expanded one those of its allocation from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tkdebug.compiler.probes.launch import LAST_BYTE, TensorView
from tkdebug.compiler.tensor import unwrap
from tkdebug.runtime.arguments.specialize import is_tensor_like
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.arguments.tensor_stand_ins import TensorWrapper

_NUMBERS = (bool, int, float)


def argument_views(names: Sequence[str], values: Sequence[Any]) -> Mapping[str, object]:
    """The tensors and numbers of a launch by name, without those tensors.

    Args:
        names: of the parameters.
        values: one for each.
    """
    found: dict[str, object] = {}
    for name, value in zip(names, values, strict=True):
        found.update(_views(name, unwrap(value)))
    return found


def _views(name: str, value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, _NUMBERS):
        yield name, value
    elif isinstance(value, TensorDescriptor):
        yield from _views(name, value.base)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _views(f"{name}.{index}", unwrap(item))
    elif is_tensor_like(value):
        yield name, tensor_view(name, value)


def tensor_view(name: str, value: Any) -> TensorView:
    """Where a tensor's elements are in memory."""
    import torch

    tensor = value.base if isinstance(value, TensorWrapper) else value
    if not isinstance(tensor, torch.Tensor):
        # An address with a type: nobody says how much is behind it.
        return TensorView(name, 0, LAST_BYTE)
    first, itemsize = tensor.data_ptr(), tensor.element_size()
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    storage = tensor.untyped_storage()
    place, size = storage.data_ptr(), storage.nbytes()
    end = first
    if 0 not in shape:
        dims = tuple(zip(shape, strides, strict=True))
        is_expanded = any(stride == 0 and count > 1 for count, stride in dims)
        last = sum(stride * (count - 1) for count, stride in dims)
        end = place + size if is_expanded else first + (last + 1) * itemsize
    return TensorView(name, first, end, itemsize, tensor.dtype, shape, strides, place, size)


def bounds(views: Mapping[str, object], names: Sequence[str]) -> tuple[int, ...]:
    """First and end byte of each of those arguments, one after the other."""
    found: list[int] = []
    for name in names:
        view = views.get(name)
        if isinstance(view, TensorView):
            found += (view.first_byte, view.end_byte)
        else:
            # None, or an address passed as a number: of no known extent.
            found += (0, LAST_BYTE)
    return tuple(found)
