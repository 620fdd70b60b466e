"""What a gap in what a launch reads is, and what to do about it, in words."""

from __future__ import annotations

from tkdebug.compiler.faults.access_hints import counted
from tkdebug.compiler.faults.messages import FaultText, named
from tkdebug.interpreter.checks.coverage.rules import Gap


def coverage_text(gap: Gap, grid: tuple[int, int, int]) -> FaultText:
    """Elements of an input that the launch left out, or read twice."""
    message, hint = _message_and_hint(gap, grid)
    return FaultText(
        "coverage", message, "warning", gap.buffer.name, gap.first * gap.stride, hint=hint
    )


def _message_and_hint(gap: Gap, grid: tuple[int, int, int]) -> tuple[str, str]:
    name = named(gap.buffer.name, "the tensor")
    elements = f"{gap.count * gap.behind} of the {counted(gap.size * gap.behind)} of {name}"
    if gap.dimension is None or len(gap.buffer.shape) == 1:
        place = f"the first at offset {gap.first * gap.stride}"
    else:
        place = f"the first at index {gap.first} of dimension {gap.dimension}"
    if gap.rule == "overlap":
        message = f"{elements} are added up twice, {place}; most are once"
        return message, (
            "the parts of the programs overlap: mask each part off where the next begins, as in "
            "offs < tl.minimum(start + part, n)"
        )
    message = f"{elements} are never read, {place}"
    if gap.rule == "block":
        return f"a block lies wholly behind the end of {name}, while {message}", (
            "offsets of a block are in elements, program id * BLOCK, and in the order of the shape"
        )
    if gap.rule == "mask":
        return message, f"the mask ends before the last of {gap.size}: compare with n, not n - 1"
    if gap.rule == "part":
        return message, (
            f"the parts of the programs do not add up to {gap.size}: use tl.cdiv for the length "
            f"of a part, and check the loop's bound and the grid, {grid}"
        )
    if gap.walk == "tile":
        return message, (
            f"the tile ends before the last of {gap.size}, and nothing moves it along: is its "
            "extent too small? Use triton.next_power_of_2(n), or a loop"
        )
    if gap.walk == "loop":
        return message, (
            "the loop ends before the last, ragged block: use tl.cdiv(n, BLOCK) rounds and a mask, "
            "or range(0, n, BLOCK)"
        )
    return message, f"is the grid, {grid}, too small? Use triton.cdiv(n, BLOCK) programs"
