"""The texts of one compilation by stage, the source line of each text line, and facts of its ops.

A viewer needs these to show source and IR side by side without the compiler. Stages are "source",
"tile-ir", and "tile-ir after <pass>" for each pass that changed something.

Facts of a module's ops at one time are plain values that outlive the module. Diffs between passes
are made of them: an op is known by its id, never by its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir.core import Module, Operation
from tkdebug.compiler.ir.printer import attribute_text, print_with_lines
from tkdebug.compiler.ir.types import LayoutAliases, type_text
from tkdebug.compiler.passes.pass_run import PassRun
from tkdebug.errors import Frame
from tkdebug.records.events import CompilerPass, OpFacts, Rewrite

if TYPE_CHECKING:
    from tkdebug.linemap.parts import OpPlace

SOURCE_STAGE = "source"
TILE_STAGE = "tile-ir"
GPU_STAGE = "gpu-ir"
FRONT_END = "front-end"

Frames = tuple[Frame, ...]
# Attributes of the function that are options of the compile, and no change by a pass.
_COMPILE_OPTIONS = frozenset(
    ("num_warps", "target", "fp_fusion", "flush_subnormals", "threads_per_warp")
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A module's text at one time.

    Attributes:
        op_frames: call chain (outermost first) of the op that starts on a text line (1-based).
        op_ids: the id of that op.
    """

    stage: str
    text: str
    op_frames: Mapping[int, Frames]
    op_ids: Mapping[int, int]


class SnapshotRecorder:
    """Takes snapshots; `after_run` is what `PassManager.run` takes as its `on_run`.

    Args:
        stage: the first stage.
        each_pass: whether a snapshot is taken after each pass, and its facts are kept; otherwise
            `finish` takes one of each stage, as printing takes longer than the passes do.

    Attributes:
        stage: the name of further snapshots, before " after <pass>".
        passes: the records of each pass so far, the front end first.
    """

    def __init__(self, stage: str = TILE_STAGE, *, each_pass: bool = True) -> None:
        self.stage = stage
        self._each_pass = each_pass
        self._last_pass = ""
        self.snapshots: list[Snapshot] = []
        self.passes: list[CompilerPass] = []
        self._aliases = LayoutAliases()
        self._facts: dict[int, OpFacts] = {}

    def take(self, module: Module, time_ns: int = 0) -> None:
        """Record the module as the front end left it, which took `time_ns`."""
        self._record(self.stage, module)
        if self._each_pass:
            self._note_pass(PassRun(FRONT_END, time_ns, ()), module)

    def finish(self, module: Module) -> None:
        """Record the module after the last pass that changed it, unless each pass is recorded."""
        if self._last_pass:
            self.after_pass(self._last_pass, module)
            self._last_pass = ""

    def after_run(self, run: PassRun, module: Module) -> None:
        """Record what a pass did, and the module after it."""
        if not self._each_pass:
            self._last_pass = run.name if run.changed else self._last_pass
            return
        if run.changed and not run.error:
            self.after_pass(run.name, module)
        self._note_pass(run, None if run.error or not run.changed else module)

    def after_pass(self, pass_name: str, module: Module) -> None:
        """Record the module as a pass left it."""
        self._record(f"{self.stage} after {pass_name}", module)

    @property
    def state(self) -> str:
        """Return a key of the records so far: equal compiles add equal records after equal keys."""
        stages = [snapshot.stage for snapshot in self.snapshots]
        last = self.passes[-1].after if self.passes else ""
        return repr((self.stage, self._each_pass, stages, last))

    @property
    def is_finished(self) -> bool:
        """Whether `finish` would record nothing."""
        return not self._last_pass

    def add(self, snapshots: Iterable[Snapshot], passes: Iterable[CompilerPass]) -> None:
        """Add the records of an equal compile, from this state on to its end."""
        self.snapshots += snapshots
        self.passes += passes
        self._last_pass = ""

    def _record(self, stage: str, module: Module) -> None:
        taken = {snapshot.stage for snapshot in self.snapshots}
        name, count = stage, 1
        while name in taken:
            count += 1
            name = f"{stage} ({count})"
        text, op_lines = print_with_lines(module, aliases=self._aliases)
        frames = {line: op.location.frames for line, op in op_lines.items()}
        ids = {line: op.id for line, op in op_lines.items()}
        self.snapshots.append(Snapshot(name, text, frames, ids))

    def _note_pass(self, run: PassRun, module: Module | None) -> None:
        """Note one pass; `module` is None if the pass failed or changed nothing."""
        facts = self._facts if module is None else module_facts(module, self._aliases)
        known = self._facts
        changed = {id_: op for id_, op in facts.items() if known.get(id_) != op}
        after = self.snapshots[-1].stage
        self.passes.append(
            CompilerPass(
                name=run.name,
                before=self.passes[-1].after if self.passes else "",
                after=after,
                time_ns=run.time_ns,
                rewrites=plain_rewrites(run),
                op_ids=None if module is None else tuple(facts),
                ops=changed,
                error=run.error,
            )
        )
        self._facts = facts


def kernel_artifacts(
    source_text: str, snapshots: Sequence[Snapshot], *, file: str, first_line: int
) -> tuple[dict[str, str], dict[str, dict[int, Frames]]]:
    """The artifacts and line tables of one kernel, as `events.KernelCompiled` holds them.

    Args:
        source_text: the kernel's source, decorators included.
        snapshots: in the order in which they were taken.
        file: the file that `source_text` is from.
        first_line: line of `file` (1-based) at which it starts.

    Returns:
        Stage name -> text, and stage name -> text line (1-based) -> source frames. Source lines
        from which no op comes have no entry.
    """
    artifacts = {SOURCE_STAGE: source_text}
    op_lines: dict[str, dict[int, Frames]] = {
        SOURCE_STAGE: _source_lines(source_text, snapshots, file, first_line)
    }
    for snapshot in snapshots:
        artifacts[snapshot.stage] = snapshot.text
        op_lines[snapshot.stage] = dict(snapshot.op_frames)
    return artifacts, op_lines


def _source_lines(
    source_text: str, snapshots: Sequence[Snapshot], file: str, first_line: int
) -> dict[int, Frames]:
    last_line = first_line + len(source_text.splitlines()) - 1
    lines: dict[int, Frames] = {}
    for snapshot in snapshots:
        for frames in snapshot.op_frames.values():
            for frame in frames:
                if frame.file == file and first_line <= frame.line <= last_line:
                    lines.setdefault(frame.line - first_line + 1, (frame,))
    return dict(sorted(lines.items()))


def module_facts(module: Module, aliases: LayoutAliases) -> dict[int, OpFacts]:
    """The facts of every op, by id, in program order.

    Args:
        module: read only.
        aliases: the names of layouts, as in the texts printed of the same kernel.
    """
    facts: dict[int, OpFacts] = {}
    for op in module.body.operations:
        _add(op, None, 0, aliases, facts)
    return facts


def _add(
    op: Operation,
    parent: int | None,
    region_index: int,
    aliases: LayoutAliases,
    facts: dict[int, OpFacts],
) -> None:
    facts[op.id] = OpFacts(
        name=op.name,
        attributes=_attributes(op, aliases),
        types=tuple(type_text(result.type, aliases) for result in op.results),
        parent=parent,
        region=region_index,
        places=tuple(
            dict.fromkeys(
                (frame.file, frame.line)
                for place in op.location.sources
                for frame in reversed(place.frames)
            )
        ),
    )
    for index, region in enumerate(op.regions):
        for block in region.blocks:
            for inner in block.operations:
                _add(inner, op.id, index, aliases, facts)


def _attributes(op: Operation, aliases: LayoutAliases) -> dict[str, str]:
    return {
        name: attribute_text(value, aliases)
        for name, value in op.attributes.items()
        if not (tt.Func.matches(op) and name in _COMPILE_OPTIONS)
    }


def plain_rewrites(run: PassRun) -> tuple[Rewrite, ...]:
    """The records of a pass, without the compiler's own types."""
    return tuple(
        Rewrite(
            record.rule,
            record.old_op_ids,
            record.new_op_ids,
            tuple(
                dict.fromkeys(
                    (place.file, place.line)
                    for location in record.erased_locations
                    for place in location.sources
                )
            ),
        )
        for record in run.records
    )


def op_places(module: Module) -> dict[int, OpPlace]:
    """The ops of Tile IR as they are now, by id; to be taken before GPU passes change it."""
    from tkdebug.linemap.parts import OpPlace  # interpreted kernels have no line table

    return {
        op.id: OpPlace(
            id=op.id,
            tile_name=op.name,
            gpu_name=None,
            chains=tuple(dict.fromkeys(place.frames for place in op.location.sources)),
            column=op.location.primary.column,
        )
        for op in module.walk()
    }
