"""Whether a wrong tensor is right in fp64, and the lines that lose the difference.

A line's loss is measured: the launch in fp64, with the ops of that line alone in their own types.
"""

from __future__ import annotations

import torch

from tkdebug.causes.comparison import Comparison
from tkdebug.causes.fp64 import NotLiftableError, rounding_lines
from tkdebug.causes.rerun import OutOfTimeError, Rerun
from tkdebug.records.events import LineLoss

# Lines that are named, and the least share of one.
_MOST_LINES = 3
_LEAST_SHARE = 0.05


def losses(comparison: Comparison, rerun: Rerun) -> tuple[LineLoss, ...] | None:
    """Return the lines that lose most, or None if the tensor is wrong in fp64, too.

    Args:
        comparison: the one that failed.
        rerun: the launches that wrote the tensor.
    """
    try:
        exact = rerun.run_in_fp64()
        if bool(comparison.wrong(exact).any()):
            return None
        places = dict.fromkeys(
            place for launched in rerun.launches for place in rounding_lines(launched.kernel.module)
        )
        found = []
        for place in places:
            rounded = rerun.run_in_fp64(place)
            difference = torch.nan_to_num(rounded - exact, nan=float("inf"))
            error = float(difference.square().mean().sqrt())
            found.append((place, error, float(rounded.reshape(-1)[comparison.worst])))
    except (NotLiftableError, OutOfTimeError):
        return None
    total = sum(error for _, error, _ in found) or 1.0
    each = [
        LineLoss(file, line, error / total, f"{value:.9g}") for (file, line), error, value in found
    ]
    each.sort(key=lambda loss: loss.share, reverse=True)
    return tuple(loss for loss in each[:_MOST_LINES] if loss.share >= _LEAST_SHARE)
