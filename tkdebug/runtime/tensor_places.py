"""Whether the tensors of an interpreted launch are where one kernel could access them all.

The interpreter could read host memory and a GPU's alike; the GPU that the script means cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tkdebug.runtime.errors import PointerError


def refuse_mixed_places(kernel: str, names: Sequence[str], values: Sequence[Any]) -> None:
    """Refuse tensors in host memory beside tensors on a GPU.

    Raises:
        PointerError: naming the first tensor in host memory.
    """
    # Each tensor is asked once: the CUDA stand-in answers, at the cost of several calls.
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


def _tensors(names: Sequence[str], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    import torch  # a kernel is interpreted by it anyway

    for name, value in zip(names, values, strict=False):
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, tuple):
            yield from _tensors([name] * len(value), value)
        elif hasattr(value, "base"):
            yield from _tensors([name], [value.base])
