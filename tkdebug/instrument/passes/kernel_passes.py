"""The recorded passes of one kernel: its stages op by op, each pass's changes, the life of a line.

Reads a session; needs neither the compiler nor a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tkdebug.instrument.passes.diff import OpChange, PassDiff, StageOps, diff_pass
from tkdebug.instrument.passes.stage_lines import (
    SOURCE_STAGE,
    StageLines,
    StageSource,
    load_line_table,
    load_stage,
    stage_names,
)
from tkdebug.instrument.records import RecordedKernel
from tkdebug.records.events import CompilerPass, OpFacts

Place = tuple[str, int]


class PassSource(StageSource, Protocol):
    """The part of `session.Session` that holds passes and stages."""

    def passes(self, kernel_hash: str) -> tuple[CompilerPass, ...]:
        """Do as `Session.passes`."""


@dataclass(frozen=True, slots=True)
class KernelPasses:
    """All passes of one kernel, the front end first.

    Attributes:
        stages: the stages of IR by name.
        diffs: one for each pass.
        later: the stages after the passes: LLVM IR, PTX, SASS.
        note: why lines cannot be followed into all of them; "" if they can.
    """

    kernel: RecordedKernel
    stages: Mapping[str, StageOps]
    diffs: tuple[PassDiff, ...]
    later: tuple[StageLines, ...] = ()
    note: str = ""

    @property
    def time_ns(self) -> int:
        """Time of all passes, the front end too."""
        return sum(diff.time_ns for diff in self.diffs)


@dataclass(frozen=True, slots=True)
class OpLine:
    """A line of a stage's text, with the op that starts there if that is known."""

    line: int
    text: str
    op_id: int | None = None


@dataclass(frozen=True, slots=True)
class LifeStep:
    """A source line's changes in one pass, or its lines at one stage after the passes.

    Attributes:
        name: the name of the pass or stage.
        changes: the pass's changes to an op of the line; () for a stage.
        lines: the lines of the source line's ops afterwards.
    """

    name: str
    stage: str
    changes: tuple[OpChange, ...]
    lines: tuple[OpLine, ...]


@dataclass(frozen=True, slots=True)
class LineLife:
    """A source line through every pass and the stages after them.

    Attributes:
        steps: the front end, the passes that touched the line, the later stages that have it.
    """

    place: Place
    steps: tuple[LifeStep, ...]

    @property
    def note(self) -> str:
        """A remark if no pass ever changed the line, else ""."""
        return "" if any(step.changes for step in self.steps) else "no pass changed this line"


def load_kernel_passes(source: PassSource, kernel: RecordedKernel) -> KernelPasses | None:
    """The passes of `kernel`, None if none were recorded.

    Raises:
        SessionError: the session cannot be read.
    """
    passes = source.passes(kernel.hash)
    if not passes:
        return None
    stages: dict[str, StageOps] = {}
    facts: dict[int, OpFacts] = {}
    diffs = []
    for number, compiler_pass in enumerate(passes):
        if compiler_pass.after not in stages:
            stages[compiler_pass.after] = _stage(source, kernel.hash, compiler_pass, facts)
        after = stages[compiler_pass.after]
        facts = dict(after.facts) if after.op_ids else facts
        diffs.append(diff_pass(number, compiler_pass, stages.get(compiler_pass.before), after))
    table, note = load_line_table(source, kernel.hash)
    later = tuple(
        load_stage(source, kernel, name, table)
        for name in stage_names(kernel, table)
        if name != SOURCE_STAGE and name not in stages
    )
    return KernelPasses(kernel, stages, tuple(diffs), later, note)


def _stage(
    source: PassSource, key: str, compiler_pass: CompilerPass, known: Mapping[int, OpFacts]
) -> StageOps:
    op_ids = compiler_pass.op_ids or ()
    everything = {**known, **compiler_pass.ops}
    text = source.artifact(key, compiler_pass.after) or ""
    known_ids = frozenset(op_ids)
    starts = source.op_ids(key, compiler_pass.after)
    lines = {id_: line for line, id_ in starts.items() if id_ in known_ids}
    return StageOps(
        name=compiler_pass.after,
        text=text,
        op_ids=op_ids,
        facts={id_: everything[id_] for id_ in op_ids if id_ in everything},
        lines=lines,
    )


def line_life(passes: KernelPasses, place: Place) -> LineLife:
    """The life of one source line, or of a call in it, through the passes of a kernel."""
    steps = []
    ops: frozenset[int] = frozenset()
    for diff in passes.diffs:
        stage = passes.stages[diff.after]
        now = frozenset(id_ for id_, op in stage.facts.items() if place in op.places)
        changes = tuple(change for change in diff.changes if change.op_ids & (ops | now))
        if changes or diff.number == 0 or ops != now or (diff.error and now):
            steps.append(LifeStep(diff.name, diff.after, changes, _op_lines(stage, now)))
        ops = now
    steps += _later_steps(passes, place)
    return LineLife(place, tuple(steps))


def _op_lines(stage: StageOps, ops: frozenset[int]) -> tuple[OpLine, ...]:
    texts = stage.text_lines
    lines = []
    for id_ in stage.op_ids:
        if id_ in ops:
            line = stage.lines.get(id_, 0)
            text = texts[line - 1] if 1 <= line <= len(texts) else stage.facts[id_].name
            lines.append(OpLine(line, text, id_))
    return tuple(lines)


def _later_steps(passes: KernelPasses, place: Place) -> list[LifeStep]:
    steps = []
    for stage in passes.later:
        numbers = stage.lines_of(*place)
        texts = stage.text.split("\n") if numbers else []
        lines = tuple(OpLine(n, texts[n - 1]) for n in numbers if 1 <= n <= len(texts))
        if lines:
            steps.append(LifeStep(stage.name, stage.name, (), lines))
    return steps


def lines_with_ops(passes: KernelPasses) -> tuple[Place, ...]:
    """The places of any op of any stage, in order of file and line."""
    places = {
        place
        for stage in passes.stages.values()
        for op in stage.facts.values()
        for place in op.places
    }
    return tuple(sorted(places))
