"""The texts of a specialisation: its stages row by row with their source, and its passes.

Responsible for how much of them is kept: a page has room for so many, in the order in which kernels
take time.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tkdebug.instrument.home.kernel_pictures import layout_picture, layouts_of
from tkdebug.instrument.home.pictures import TIMES
from tkdebug.instrument.home.records import (
    Code,
    LayoutModel,
    PassAtLine,
    PassModel,
    Place,
    StageModel,
)
from tkdebug.instrument.passes.diff import PassDiff, StageOps, text_diff
from tkdebug.instrument.passes.kernel_passes import KernelPasses, load_kernel_passes
from tkdebug.instrument.passes.stage_lines import (
    LLVM_STAGE,
    PTX_STAGE,
    SASS_STAGE,
    SOURCE_STAGE,
    StageLines,
    load_stage,
    stage_names,
)
from tkdebug.instrument.passes.summary import ChangeGroup, counts_text, group_changes
from tkdebug.instrument.records import RecordedKernel
from tkdebug.instrument.session import Session
from tkdebug.linemap.line_table import LineTable

_TITLES = {"tile-ir": "Tile IR", "gpu-ir": "GPU IR", LLVM_STAGE: "LLVM IR"}
_MOST_ROWS = 6_000
_MOST_DIFF_LINES = 160
# Longer texts are not compared: that takes as long as all else.
_MOST_COMPARED = 2_500
_MOST_GROUPS = 40
_MOST_LAYOUTS = 8
_LAYOUT_NAME = re.compile(r"#(\w+)")
# Rows of PTX that are of no instruction and of no one's interest.
_PTX_NOISE = (".loc", ".file", ".section", "//", "{", "}", ".b8", ".b16", ".b32", ".b64", ".4byte")


@dataclass(slots=True)
class CodeOfVariant:
    """Texts of a specialisation, and what is known by line from them.

    Attributes:
        rows: how many rows of each stage come from a line.
        passes: changes of passes by line.
        chars: size of the texts.
    """

    code: Code
    rows: dict[Place, dict[str, int]] = field(default_factory=dict)
    passes: dict[Place, list[PassAtLine]] = field(default_factory=dict)
    chars: int = 0


def code_of(session: Session, kernel: RecordedKernel, table: LineTable | None) -> CodeOfVariant:
    """Return the texts of a build.

    Args:
        session: the run.
        kernel: the build.
        table: its line table, where it has one.
    """
    chains: dict[tuple[Place, ...], int] = {}
    rows: dict[Place, Counter[str]] = defaultdict(Counter)
    stages = []
    for name in _chosen(stage_names(kernel, table)):
        lines = load_stage(session, kernel, name, table)
        stage = _stage(lines, table, chains, rows)
        if stage is not None:
            stages.append(stage)
    passes = load_kernel_passes(session, kernel)
    models, by_line = ((), {}) if passes is None else _passes(passes)
    note = "" if passes is None else passes.note
    layouts = tuple(_layouts(session, kernel))
    code = Code(tuple(chains), tuple(stages), models, layouts, note)
    chars = sum(len(row) + 8 for stage in stages for row in stage.text)
    chars += sum(len(row) for one in models for row in (*one.diff, *one.changes))
    return CodeOfVariant(
        code, {place: dict(found) for place, found in rows.items()}, by_line, chars
    )


def _layouts(session: Session, kernel: RecordedKernel) -> Iterator[LayoutModel]:
    """Yield the layouts that GPU IR names most often."""
    stage = next((name for name in reversed(kernel.stages) if name.startswith("gpu-ir")), None)
    text = "" if stage is None else session.artifact(kernel.hash, stage) or ""
    uses = Counter(_LAYOUT_NAME.findall(text))
    found = sorted(layouts_of(text), key=lambda layout: -uses[layout.name])
    for layout in found[:_MOST_LAYOUTS]:
        yield LayoutModel(layout.name, layout_picture(layout))


def _chosen(names: Sequence[str]) -> list[str]:
    """Return the stages to show: each kind as its last pass left it, Tile IR as it began, too."""
    found = []
    for kind in ("tile-ir", "gpu-ir", "ttir", "ttgir"):
        of_kind = [name for name in names if name == kind or name.startswith(f"{kind} ")]
        found += of_kind[:1] if kind == "tile-ir" else of_kind[-1:]
    found += [name for name in names if name in (LLVM_STAGE, PTX_STAGE, SASS_STAGE)]
    return [name for name in dict.fromkeys(found) if name != SOURCE_STAGE]


def _stage(
    lines: StageLines,
    table: LineTable | None,
    chains: dict[tuple[Place, ...], int],
    rows: Mapping[Place, Counter[str]],
) -> StageModel | None:
    texts = lines.text.split("\n")
    kind, _, after = lines.name.partition(" ")
    instructions = table.instructions if table is not None and kind == SASS_STAGE else ()
    kept = [n for n, text in enumerate(texts, 1) if _is_shown(kind, text)]
    if not kept:
        return None
    kept = kept[:_MOST_ROWS]
    numbers = []
    for number in kept:
        places = [
            tuple(Place(frame.file, frame.line) for frame in chain)
            for chain in lines.chains.get(number, ())
        ]
        numbers.append(chains.setdefault(places[0], len(chains)) if places else -1)
        for place in {place for chain in places[:1] for place in chain}:
            rows[place][kind] += 1
    title = _TITLES.get(kind, kind.upper()) + (f", {after}" if after else "")
    if instructions:
        text = tuple(instructions[n - 1].text for n in kept if n <= len(instructions))
        shown = instructions[: len(text)]
        addresses = tuple(one.address for one in shown)
        live = tuple(one.live_registers for one in shown)
        return StageModel(kind, title, text, addresses, tuple(numbers[: len(text)]), live)
    return StageModel(kind, title, tuple(texts[n - 1] for n in kept), tuple(kept), tuple(numbers))


def _is_shown(kind: str, text: str) -> bool:
    stripped = text.strip()
    if not stripped:
        return False
    return kind != PTX_STAGE or not stripped.startswith(_PTX_NOISE)


# Passes


def _passes(
    passes: KernelPasses,
) -> tuple[tuple[PassModel, ...], dict[Place, list[PassAtLine]]]:
    by_line: dict[Place, list[PassAtLine]] = defaultdict(list)
    models = []
    for diff in passes.diffs:
        groups = group_changes(diff.changes)
        for place, one in _at_lines(diff, groups):
            by_line[place].append(one)
        models.append(
            PassModel(
                diff.number,
                diff.name,
                diff.time_ns,
                diff.op_count,
                counts_text(diff),
                diff.changed,
                diff.error,
                tuple(map(_group_text, groups[:_MOST_GROUPS])),
                tuple(_diff_lines(diff, passes.stages)),
            )
        )
    return tuple(models), by_line


def _at_lines(diff: PassDiff, groups: Sequence[ChangeGroup]) -> Iterator[tuple[Place, PassAtLine]]:
    """Yield what a pass did at each line, alike changes together."""
    counts: dict[Place, Counter[tuple[str, str, str, str]]] = defaultdict(Counter)
    for change in diff.changes:
        ops = change.old or change.new
        names = " -> ".join(
            ", ".join(dict.fromkeys(op.name for op in side))
            for side in ((change.old, change.new) if change.kind == "replaced" else (ops,))
        )
        for place in {op.place for op in ops if op.place is not None}:
            counts[Place(*place)][change.kind, names, change.rule, change.detail] += 1
    for place, found in counts.items():
        for (kind, names, rule, detail), count in found.most_common(8):
            yield place, PassAtLine(diff.number, kind, count, names, rule, detail)


def _group_text(group: ChangeGroup) -> str:
    parts = [f"{group.count:,} {TIMES}", group.kind, group.what]
    parts += [group.detail] if group.detail else []
    parts += [f"({group.rule})"] if group.rule else []
    return " ".join(parts)


def _diff_lines(diff: PassDiff, stages: Mapping[str, StageOps]) -> Iterator[str]:
    before, after = stages.get(diff.before), stages.get(diff.after)
    if before is None or after is None or diff.before == diff.after:
        return
    if max(len(before.text_lines), len(after.text_lines)) > _MOST_COMPARED:
        yield f"texts of more than {_MOST_COMPARED:,} lines are not compared here: tkdebug passes"
        return
    lines = text_diff(before, after, context=1)
    found = list(itertools.islice(lines, 2, _MOST_DIFF_LINES + 3))
    yield from found[:_MOST_DIFF_LINES]
    if len(found) > _MOST_DIFF_LINES:
        yield "… cut here: `tkdebug passes --format html` has all"
