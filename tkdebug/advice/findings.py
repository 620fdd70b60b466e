"""What rules look at, what they find, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tkdebug.advice.facts import AccessFacts, KernelFacts
from tkdebug.advice.machines import Machine
from tkdebug.advice.model import Work
from tkdebug.errors import Frame


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause.

    Attributes:
        frame: its line.
        kind: such as "uncoalesced".
        message: what is there, why that costs, and what would help.
        better: the work without the cause; of the same grid.
    """

    frame: Frame
    kind: str
    message: str
    better: Work


@dataclass(frozen=True, slots=True)
class Launch:
    """What rules look at.

    Attributes:
        work: of all of it.
    """

    facts: KernelFacts
    machine: Machine
    work: Work


Rule = Callable[[Launch], Iterator[Finding]]


def accesses_by_line(
    launch: Launch, kind_of: Callable[[AccessFacts], bool]
) -> Mapping[tuple[Frame, str], list[AccessFacts]]:
    """Accesses by line, with what they are: several of one line are one cause."""
    found: dict[Frame, list[AccessFacts]] = {}
    for access in launch.facts.accesses:
        if access.executions and kind_of(access):
            found.setdefault(access.frame, []).append(access)
    verbs = {
        frame: " and ".join(dict.fromkeys(access.kind for access in accesses))
        for frame, accesses in found.items()
    }
    return {(frame, verbs[frame]): accesses for frame, accesses in found.items()}


def of_tensors(*accesses: AccessFacts) -> str:
    """Names of their tensors, as a message has them."""
    tensors = dict.fromkeys(f"`{a.tensor}`" for a in accesses if a.tensor)
    return f" of {' and '.join(tensors)}" if tensors else ""


def without(pipes: Mapping[str, float], removed: Mapping[str, float]) -> dict[str, float]:
    """Instructions by pipe, less what is gone."""
    return {
        pipe: max(0.0, pipes.get(pipe, 0.0) - removed.get(pipe, 0.0))
        for pipe in {**pipes, **removed}
    }
