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
# Of the time that is left, what may go into why lines make errors.
_MEASURED_PART = 0.3


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
    causes = _causes(rerun)
    each = [
        LineLoss(*place, error / total, f"{value:.9g}", causes.get(place, ""))
        for place, error, value in found
    ]
    each.sort(key=lambda loss: loss.share, reverse=True)
    return tuple(loss for loss in each[:_MOST_LINES] if loss.share >= _LEAST_SHARE)


def _causes(rerun: Rerun) -> dict[tuple[str, int], str]:
    """Return why the last launch's lines make errors, the largest one of each line."""
    # Only where precision is lost.
    from tkdebug.precision.looking import look

    last, left = rerun.launches[-1], 1.0 - rerun.budget.used()
    if left <= 0:
        return {}
    seconds = _MEASURED_PART * left * rerun.budget.seconds
    found = look(last.kernel, last.grid, last.values(), last.id, False, seconds)
    causes: dict[tuple[str, int], str] = {}
    for output in found.outputs:
        for share in output.shares:
            causes.setdefault((share.file, share.line), share.cause)
    return causes
