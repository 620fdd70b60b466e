"""Launches as rules see them, findings, and functions that rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tkdebug.advice.facts import AccessFacts, KernelFacts
from tkdebug.advice.machines import Machine
from tkdebug.advice.model import Work, dram_bytes, program_time, work_of
from tkdebug.errors import Frame


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause.

    Attributes:
        frame: its line.
        kind: the kind of cause, such as "uncoalesced".
        message: the finding, why it costs, and what would help.
        better: the work without the cause, with the same grid.
        share: the share of a program's time, for causes that are named even if other programs hide
            them.
        symptoms: the kinds of other causes that are gone without this one, each with the lines
            where they are; None for all lines.
    """

    frame: Frame
    kind: str
    message: str
    better: Work
    share: float = 0.0
    symptoms: Mapping[str, frozenset[Frame] | None] = field(default_factory=dict)

    def explains(self, other: Finding) -> bool:
        """Whether another finding is a symptom of this cause."""
        if other is self or other.kind not in self.symptoms:
            return False
        lines = self.symptoms[other.kind]
        return lines is None or other.frame in lines


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch as rules see it.

    Attributes:
        work: the work of the whole launch.
    """

    facts: KernelFacts
    machine: Machine
    work: Work

    def with_accesses(self, changed: Iterable[AccessFacts]) -> Work:
        """The work if some accesses had the facts in `changed`, which have the same op ids."""
        by_id = {access.op_id: access for access in changed}
        facts = self.facts
        accesses = tuple(by_id.get(access.op_id, access) for access in facts.accesses)
        saved = {"load": 0.0, "store": 0.0, "atomic": 0.0}
        for before, after in zip(facts.accesses, accesses, strict=True):
            saved[before.kind] += dram_bytes(before) - dram_bytes(after)
        better = replace(
            facts,
            accesses=accesses,
            read_bytes=max(0, facts.read_bytes - round(saved["load"])),
            written_bytes=max(0, facts.written_bytes - round(saved["store"])),
        )
        return work_of(better, self.machine)


Rule = Callable[[Launch], Iterator[Finding]]


def without_symptoms(launch: Launch, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings; the better work of each also lacks what its symptoms add."""
    found = list(findings)
    return [
        replace(
            cause,
            better=least(
                launch.work, cause.better, [one.better for one in found if cause.explains(one)]
            ),
        )
        for cause in found
    ]


# What is added up in `Work`.
_AMOUNTS = (
    *("dram_bytes", "l2_bytes", "l1_wavefronts", "tensor_s", "atomic_s"),
    *("awaited_dram_bytes", "awaited_l2_bytes", "request_s"),
)


def least(work: Work, better: Work, others: Iterable[Work]) -> Work:
    """Return better work with each amount at the minimum of it and the others: gains overlap.

    Args:
        work: the work as it is.
        better: the work without a cause.
        others: the work without each of the cause's symptoms.
    """
    for other in others:
        amounts = {
            name: min(getattr(better, name), getattr(other, name))
            for name in _AMOUNTS
            if getattr(other, name) < getattr(work, name)
        }
        pipes = {
            pipe: min(count, other.pipes.get(pipe, 0.0)) for pipe, count in better.pipes.items()
        }
        left = {(w.cause, w.frame, w.op_id): w.cycles for w in other.waits}
        waits = (
            replace(w, cycles=min(w.cycles, left.get((w.cause, w.frame, w.op_id), 0.0)))
            for w in better.waits
        )
        better = replace(
            better,
            **amounts,
            pipes=pipes,
            waits=tuple(wait for wait in waits if wait.cycles),
            blocks=max(better.blocks, other.blocks),
            warps=max(better.warps, other.warps),
        )
    return better


def accesses_by_line(
    launch: Launch, kind_of: Callable[[AccessFacts], bool]
) -> Mapping[tuple[Frame, str], list[AccessFacts]]:
    """Executed accesses for which `kind_of` holds, by line and kinds ("load and store")."""
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
    """Text of a message with the names of the accesses' tensors; "" if they have none."""
    tensors = dict.fromkeys(f"`{a.tensor}`" for a in accesses if a.tensor)
    return f" of {' and '.join(tensors)}" if tensors else ""


# Lines that a message lists.
_MOST_LINES = 4


def also_in(frames: Iterable[Frame], named: Frame) -> str:
    """The text of other lines that have the same cause; "" if there are none."""
    numbers = sorted({frame.line for frame in frames} - {named.line})
    if not numbers:
        return ""
    shown = ", ".join(map(str, numbers[:_MOST_LINES]))
    more = f" and {len(numbers) - _MOST_LINES} more" if len(numbers) > _MOST_LINES else ""
    return f" (also in line{'s' if len(numbers) > 1 else ''} {shown}{more})"


def share_of_program(launch: Launch, better: Work) -> float:
    """The share of a program's time that better work saves."""
    now_s = program_time(launch.work, launch.machine).total
    return 1 - program_time(better, launch.machine).total / now_s


def of_program(share: float) -> str:
    """The text of a share of a program's time; "" if it is negligible."""
    return f" ({100 * share:.2g} % of a program's time)" if share >= 0.01 else ""


def without(pipes: Mapping[str, float], removed: Mapping[str, float]) -> dict[str, float]:
    """Count instructions by pipe, without the removed ones."""
    return {
        pipe: max(0.0, pipes.get(pipe, 0.0) - removed.get(pipe, 0.0))
        for pipe in {**pipes, **removed}
    }
