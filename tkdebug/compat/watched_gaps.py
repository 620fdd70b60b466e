"""Sees torch read the gaps that launches left in fresh tensors (`interpreter.unwritten_gaps`).

A view of a tensor reads nothing, a copy hands the gaps on, and everything else that is given a part
with a gap reads it, unless its results show that it was dropped. Not seen are reads by numpy, C++
extensions and other threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tkdebug.compat.cuda_standin.patches import leave
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS

_COPIES = frozenset(
    "clone contiguous cpu cuda to type float half bfloat16 double reshape flatten ravel pad "
    "__getitem__ index_select narrow_copy cat concat stack hstack vstack detach __deepcopy__ copy_ "
    "__setitem__ repeat expand_as as_tensor asarray tensor".split()
)
# Leave elements out by their places; of integers the result does not show which.
_CHOOSING = frozenset("where masked_fill masked_select tril triu take index_put".split())
# Ask for facts of a tensor, or make another one like it.
_ASKING = frozenset(
    "size stride dim ndimension numel nelement element_size data_ptr storage untyped_storage "
    "storage_offset is_contiguous get_device __len__ __hash__ is_floating_point is_complex "
    "is_signed is_pinned is_same_size is_set_to record_stream register_hook retain_grad "
    "requires_grad_ has_names result_type promote_types can_cast broadcast_shapes is_tensor "
    "numpy __array__ __reduce_ex__ __dlpack__ __dlpack_device__ share_memory_ pin_memory "
    "is_shared resize_ set_ zero_ fill_ normal_ uniform_ random_ exponential_ __get__ __set__ "
    "__delete__ broadcast_tensors register_post_accumulate_grad_hook is_inference".split()
)


class WatchReads(TorchFunctionMode):
    """The mode; inactive it passes every call on."""

    def __init__(self) -> None:
        super().__init__()
        self.active = True

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `func`, and look at what it was given, where any launch left gaps."""
        result = func(*args, **kwargs) if kwargs else func(*args)
        name = getattr(func, "__name__", "")
        if not (self.active and HELD_GAPS) or name in _ASKING or name.startswith("new_"):
            return result
        if not name.endswith("_like"):
            keywords = [value for key, value in (kwargs or {}).items() if key != "out"]
            with torch._C.DisableTorchFunction():  # noqa: SLF001
                _look(name, list(_tensors([*args, *keywords])), list(_tensors([result])), args)
        return result


def watch_gaps() -> Callable[[], None]:
    """Look at this thread's torch functions from now on; the result, called once, stops it."""
    mode = WatchReads()
    mode.__enter__()  # type: ignore[no-untyped-call]

    def stop() -> None:
        HELD_GAPS.end()
        # In another thread than its own it stays; inactive it passes every call on.
        mode.active = False
        leave(mode)

    return stop


def _look(name: str, given: list[Tensor], made: list[Tensor], args: Sequence[Any]) -> None:
    """A function of that name was given tensors, and made others of them."""
    if name == "__setitem__":
        made, given = given[:1], [value for value in given[1:] if value is args[-1]]
    storages = {_storage(tensor) for tensor in made}
    for tensor in given:
        if _storage(tensor) in storages:
            continue  # a view of it, or it was written
        if name in _COPIES:
            for copy in made:
                HELD_GAPS.copied(tensor, copy)
        elif name.rstrip("_") in _CHOOSING and not tensor.dtype.is_floating_point:
            HELD_GAPS.use(tensor)
        else:
            HELD_GAPS.read(tensor, made, f"torch's `{name.strip('_')}`")


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            if value.layout == torch.strided and not value.is_meta:
                yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
