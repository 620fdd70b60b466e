"""Arguments and outputs of each kernel's first launches, kept for a comparison of two runs.

Responsible for taking and comparing; `tkdebug compare --compilers` runs a script twice for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tkdebug.records.events import LaunchRecord
from tkdebug.records.hook_chain import HOOKS, Hook

if TYPE_CHECKING:
    from torch import Tensor

VARIABLE = "TKDEBUG_KEEP_OUTPUTS"
LAUNCHES_KEPT = 2
_MOST_BYTES = 256 << 20
Kept = dict[str, list[dict[str, "tuple[Tensor, Tensor]"]]]


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """An argument that a kernel wrote, in two runs.

    Attributes:
        relative: the largest difference, over the value if that is above 1; None if shapes differ,
            or the launch's inputs did already.
        different: how many elements differ at all.
        elements: the number of elements.
        reason: why there is no comparison, "" if there is one.
    """

    kernel: str
    launch: int
    argument: str
    relative: float | None
    different: int
    elements: int
    reason: str = ""


@contextmanager
def kept_outputs(path: Path) -> Iterator[None]:
    """Keep the arguments and outputs of launches inside of the `with` block in a file."""
    import torch

    keeper = _Keeper()
    hook = Hook(enter=keeper.before, exit=keeper.after)
    HOOKS.add(hook)
    try:
        yield
    finally:
        HOOKS.remove(hook)
        torch.save(keeper.kept, path)


class _Keeper:
    def __init__(self) -> None:
        self.kept: Kept = {}
        self._seen: Counter[str] = Counter()
        self._got: dict[int, dict[str, Tensor]] = {}

    def before(self, kernel: object, record: LaunchRecord) -> None:
        self._seen[record.kernel] += 1
        tensors = _tensors(record)
        size_bytes = sum(t.numel() * t.element_size() for t in tensors.values())
        if self._seen[record.kernel] <= LAUNCHES_KEPT and size_bytes <= _MOST_BYTES:
            self._got[record.id] = {name: tensor.clone() for name, tensor in tensors.items()}

    def after(self, kernel: object, record: LaunchRecord) -> None:
        got = self._got.pop(record.id, None)
        if got is None:
            return
        wrote = _tensors(record)
        launch = {name: (got[name].cpu(), wrote[name].cpu()) for name in got}
        self.kept.setdefault(record.kernel, []).append(launch)


def _tensors(record: LaunchRecord) -> dict[str, Tensor]:
    import torch

    values: Sequence[Any] = getattr(record, "values", ())
    named = zip((info.name for info in record.arguments), values, strict=False)
    return {name: value.detach() for name, value in named if isinstance(value, torch.Tensor)}


def output_differences(before: Path, after: Path) -> list[OutputDifference]:
    """Return the differences of arguments that kernels wrote in two runs, by kernel and launch."""
    import torch

    olds: Kept = torch.load(before, weights_only=True)
    news: Kept = torch.load(after, weights_only=True)
    found: list[OutputDifference] = []
    for kernel in news:
        launches = zip(olds.get(kernel, ()), news[kernel], strict=False)
        for number, (old, new) in enumerate(launches, 1):
            found += _differences(kernel, number, old, new)
    return found


def _differences(
    kernel: str,
    number: int,
    old: Mapping[str, tuple[Tensor, Tensor]],
    new: Mapping[str, tuple[Tensor, Tensor]],
) -> Iterator[OutputDifference]:
    for name in new:
        if name not in old:
            continue
        (old_got, old_wrote), (new_got, new_wrote) = old[name], new[name]
        if _same(new_got, new_wrote) and _same(old_got, old_wrote):
            continue  # only read
        count = new_wrote.numel()
        if old_wrote.shape != new_wrote.shape or old_wrote.dtype != new_wrote.dtype:
            yield OutputDifference(kernel, number, name, None, 0, count, "shapes or types differ")
        elif not all(_same(old[n][0], new[n][0]) for n in new if n in old and _is_read(new[n])):
            reason = "what the launch reads differs already: seed the script's random numbers"
            yield OutputDifference(kernel, number, name, None, 0, count, reason)
        else:
            relative, different = _distance(old_wrote, new_wrote)
            yield OutputDifference(kernel, number, name, relative, different, count)


def _is_read(launch: tuple[Tensor, Tensor]) -> bool:
    """Whether a launch left an argument as it was; a written one may begin with any values."""
    return _same(*launch)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and _distance(a, b)[1] == 0


def _distance(a: Tensor, b: Tensor) -> tuple[float, int]:
    """Return the largest relative difference, and how many elements differ; NaNs are equal."""
    import torch

    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.to(wide), b.to(wide)
    differ = (x != y) & ~(x.isnan() & y.isnan())
    count = int(differ.sum())
    if not count:
        return 0.0, 0
    gap = ((x - y).abs() / x.abs().clamp(min=1))[differ]
    return float(gap.nan_to_num(nan=float("inf")).max()), count
