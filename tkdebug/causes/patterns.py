"""The set of wrong elements of a tensor in words: rows, columns, tiles, a tail, every k-th."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from tkdebug.fault_printing.text import counted

_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_AXES = {1: ("element",), 2: ("row", "column")}


def describe(wrong: Tensor) -> str:
    """Return the wrong elements in words, such as "rows 96 to 127 (4,096 of 16,384 elements)".

    Args:
        wrong: bool, of any shape, at least one element true.
    """
    total, count = wrong.numel(), int(wrong.sum())
    if total == 1:
        return "the only element"
    share = f"{count:,} of {counted(total, 'element')}"
    if count == total:
        return f"all {counted(total, 'element')}"
    named = _product(wrong) or _triangle(wrong)
    return f"{named} ({share})" if named else share


def _product(wrong: Tensor) -> str | None:
    """Describe wrong elements that are all combinations of some indices along each axis."""
    sets = []
    for axis in range(wrong.dim()):
        others = [other for other in range(wrong.dim()) if other != axis]
        sets.append(wrong.any(dim=others) if others else wrong)
    whole = torch.ones_like(wrong)
    for axis, chosen in enumerate(sets):
        shape = [1] * wrong.dim()
        shape[axis] = -1
        whole = whole & chosen.reshape(shape)
    if not torch.equal(whole, wrong):
        return None
    names = _AXES.get(wrong.dim())
    parts = []
    for axis, chosen in enumerate(sets):
        if bool(chosen.all()):
            continue
        name = names[axis] if names else "index"
        text = _indices(chosen, name)
        if text is None:
            return None
        parts.append(text if names else f"{text} of axis {axis}")
    return ", ".join(parts) or None


def _indices(chosen: Tensor, name: str) -> str | None:
    """Positions of one axis in words; None if they have no simple form."""
    places = chosen.nonzero().reshape(-1).tolist()
    first, last = places[0], places[-1]
    if len(places) == 1:
        return f"{name} {first}"
    several = "indices" if name == "index" else f"{name}s"
    steps = {b - a for a, b in pairwise(places)}
    if steps == {1}:
        return f"{several} {first} to {last}"
    if len(steps) == 1 and len(places) > 2:
        return f"every {_ordinal(steps.pop())} {name} from {first} to {last}"
    if len(places) <= 4:
        return f"{several} {', '.join(map(str, places))}"
    left_out = (~chosen).nonzero().reshape(-1).tolist()
    if len(left_out) <= 2:
        return f"all {several} but {' and '.join(map(str, left_out))}"
    # Runs of one length at one distance: a part of each block.
    starts = [b for a, b in zip([places[0] - 2, *places], places, strict=False) if b - a > 1]
    ends = [a for a, b in zip(places, [*places[1:], places[-1] + 2], strict=True) if b - a > 1]
    lengths = {end - start + 1 for start, end in zip(starts, ends, strict=True)}
    distances = {b - a for a, b in pairwise(starts)}
    if len(lengths) == 1 and len(distances) == 1:
        return (
            f"{lengths.pop()} of each {distances.pop()} {several}, from {several[:-1]} {starts[0]}"
        )
    return None


def _triangle(wrong: Tensor) -> str | None:
    """Name a set of a matrix that the diagonal bounds; None for others."""
    if wrong.dim() != 2 or min(wrong.shape) < 2:
        return None
    ones = torch.ones_like(wrong)
    for text, mask in (
        ("all but the diagonal", ~torch.eye(*wrong.shape, dtype=torch.bool)),
        ("all above the diagonal", ones.triu(1)),
        ("all below the diagonal", ones.tril(-1)),
        ("the diagonal and all above it", ones.triu()),
        ("the diagonal and all below it", ones.tril()),
        ("the diagonal", torch.eye(*wrong.shape, dtype=torch.bool)),
    ):
        if torch.equal(mask, wrong):
            return text
    return None


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else _ENDINGS.get(number % 10, "th")
    return f"{number}{ending}"


def picture(wrong: Tensor, rows: int = 12, columns: int = 48) -> tuple[str, ...]:
    """Return where elements are wrong, as lines of "#" wrong, "." right and "+" both.

    Args:
        wrong: bool, of any shape: its first axes are joined to rows.
        rows: the most rows.
        columns: the most columns.
    """
    if wrong.dim() == 0 or not wrong.numel():
        return ()
    flat = wrong.reshape(-1, wrong.shape[-1]) if wrong.dim() > 1 else wrong.reshape(1, -1)
    lines = []
    for band in flat.tensor_split(min(rows, flat.shape[0]), 0):
        parts = band.tensor_split(min(columns, flat.shape[1]), 1)
        lines.append("".join("#" if p.all() else "+" if p.any() else "." for p in parts))
    return tuple(lines)
