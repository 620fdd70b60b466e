"""Whether the tensors of an interpreted launch have memory that one kernel could access.

The interpreter could read both host memory and a GPU's; the GPU that the script means cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tkdebug.compiler.targets.machine_parts import first_sentence
from tkdebug.runtime.errors import PointerError


def refuse_unfit_tensors(kernel: str, names: Sequence[str], values: Sequence[Any]) -> None:
    """Refuse tensors without memory, and tensors in host memory beside tensors on a GPU.

    Raises:
        PointerError: a tensor does not fit; the message names the first one.
    """
    if len(_places(kernel, names, values)) > 1:
        _refuse_mixed_places(kernel, names, values)


def _refuse_mixed_places(kernel: str, names: Sequence[str], values: Sequence[Any]) -> None:
    places = [(name, value, value.device.type) for name, value in _tensors(names, values)]
    if not any(place == "cuda" for _, _, place in places):
        return
    # A tensor without elements is nowhere.
    places = [(name, value, place) for name, value, place in places if value.numel()]
    on_gpu = [name for name, _, place in places if place == "cuda"]
    if not on_gpu:
        return
    for name, value, place in places:
        if place == "cpu" and not value.is_pinned():
            raise PointerError(
                f"kernel {kernel}: argument `{name}` is on cpu, `{on_gpu[0]}` on cuda: Pointer "
                "argument cannot be accessed from Triton (cpu tensor?); move it with "
                ".to('cuda'), or pin its memory"
            )


def _places(kernel: str, names: Sequence[str], values: Sequence[Any]) -> set[str]:
    """Return the kinds of device that hold the storages of a launch's tensors.

    Raises:
        PointerError: a tensor has no memory, or none that an address and strides describe; the
            message names the first one.
    """
    import torch  # as below

    places: set[str] = set()
    # Of the tensors themselves: subclasses are not asked.
    with torch._C.DisableTorchFunction():  # noqa: SLF001
        for name, value in _tensors(names, values):
            try:
                storage = _storage(torch, value)
            except (_MemoryProblem, RuntimeError, ValueError) as error:
                problem = error if isinstance(error, _MemoryProblem) else _without(value, error)
                raise PointerError(f"kernel {kernel}: argument `{name}` is {problem}") from None
            places.add(storage.device.type)
    return places


class _MemoryProblem(Exception):
    """Return why a kernel cannot access a tensor, in words that follow "is"."""


def _without(value: Any, error: Exception) -> str:
    kind = type(value).__name__
    named = "tensor" if kind == "Tensor" else f"tensor of class {kind}"
    return f"a {named} without memory ({first_sentence(error)})"


def _storage(torch: Any, value: Any) -> Any:
    """Return a tensor's memory, if all of it is there.

    Raises:
        _MemoryProblem: the tensor has no memory, or none that an address and strides describe.
        RuntimeError, ValueError: torch says that it has none.
    """
    if value.is_nested:
        raise _MemoryProblem(
            "a nested tensor, whose rows differ in length; pass its values() and offsets()"
        )
    if value.layout is not torch.strided:
        raise _MemoryProblem(
            f"a tensor of layout {value.layout}; pass .to_dense(), or its values and indices"
        )
    storage = value.untyped_storage()
    if storage.device.type == "meta":
        kind = "meta tensor" if value.is_meta else type(value).__name__
        raise _MemoryProblem(f"a {kind}, which has no memory; pass one of a device")
    needed_bytes = (value.storage_offset() + _span(torch, value)) * value.element_size()
    if storage.nbytes() < needed_bytes and value.numel():
        raise _MemoryProblem(
            f"a tensor that spans {needed_bytes} bytes of a storage that was resized to "
            f"{storage.nbytes()}: its memory has been freed"
        )
    storage.data_ptr()  # raises for a subclass that only wraps another tensor
    return storage


def _span(torch: Any, value: Any) -> int:
    """Return the distance from a tensor's first element past its last, in elements."""
    # A subclass may answer for its strides alone.
    if value.__class__ is torch.Tensor and value.is_contiguous():
        return int(value.numel())
    span = 1
    for size, stride in zip(value.shape, value.stride(), strict=True):
        span += (size - 1) * stride
    return span


def _tensors(names: Sequence[str], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    import torch  # a kernel is interpreted by it anyway

    for name, value in zip(names, values, strict=False):
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, tuple):
            yield from _tensors([name] * len(value), value)
        elif hasattr(value, "base"):
            yield from _tensors([name], [value.base])
