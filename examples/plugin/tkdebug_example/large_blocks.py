"""A rule of advice: tells of blocks of more than 16 warps."""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.advice.facts import KernelFacts
from tkdebug.advice.judging import RemarkPlugin
from tkdebug.advice.machines import Machine
from tkdebug.advice.records import Remark

MOST_WARPS = 16


def large_blocks(facts: KernelFacts, machine: Machine) -> Iterator[Remark]:
    """A remark at the kernel's line; nothing is predicted, so it ranks last."""
    if facts.num_warps > MOST_WARPS:
        yield Remark(
            kernel=facts.kernel,
            kernel_hash=facts.kernel_hash,
            launch_id=0,
            file=facts.frame.file,
            line=facts.frame.line,
            kind="large-block",
            message=f"{facts.num_warps} warps a block, of which {machine.name} holds few",
        )


PLUGIN = RemarkPlugin(large_blocks)
