"""Kernels and their specialisations, with all that is known of each of their lines.

Responsible for sorting a run's records by specialisation, and for what a specialisation costs.

The texts of a specialisation are its stages, row by row with their source, and its passes.
Only so much of them is kept: a page has room for so many, in the order in which kernels take time.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tkdebug.advice.records import LaunchCost, LineTime
from tkdebug.instrument.analyses.advice import line_costs
from tkdebug.instrument.analyses.kernel_names import differing_parts
from tkdebug.instrument.analyses.stalls import recorded_stalls
from tkdebug.instrument.analyses.timelines import recorded_timelines
from tkdebug.instrument.home.kernel_pictures import (
    layout_picture,
    layouts_of,
    occupancy_picture,
    roofline,
    warps_picture,
)
from tkdebug.instrument.home.launches import Launches, Totals
from tkdebug.instrument.home.line_facts import LineRecords, line_facts, watch_models
from tkdebug.instrument.home.pictures import TIMES, Picture
from tkdebug.instrument.home.records import (
    ArgumentModel,
    Basis,
    Code,
    FaultModel,
    KernelModel,
    LayoutModel,
    PassAtLine,
    PassModel,
    Place,
    RemarkModel,
    StageModel,
    VariantModel,
)
from tkdebug.instrument.home.variants import Variant, Variants
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
from tkdebug.linemap.line_table import LineTable, LineTableError
from tkdebug.linemap.line_table_data import from_data

_TITLES = {"tile-ir": "Tile IR", "gpu-ir": "GPU IR", LLVM_STAGE: "LLVM IR"}
_MOST_ROWS = 6_000
_MOST_DIFF_LINES = 160
# The most lines of texts that are compared: longer ones take as long as all the rest.
_MOST_COMPARED = 2_500
_MOST_GROUPS = 40
_MOST_LAYOUTS = 8
_LAYOUT_NAME = re.compile(r"#(\w+)")
# Beginnings of rows of PTX that are no instructions and are left out.
_PTX_NOISE = (".loc", ".file", ".section", "//", "{", "}", ".b8", ".b16", ".b32", ".b64", ".4byte")
# The most characters of texts of stages and passes; they are packed to a tenth.
MOST_CODE_CHARS = 24 << 20
_MOST_GRIDS = 8


@dataclass(slots=True)
class CodeOfVariant:
    """Texts of a specialisation, and what is known by line from them.

    Attributes:
        rows: by line, the number of rows of each stage that come from it.
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
        table: its line table; None without one.
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
    """Return the stages to show: each kind after its last pass, Tile IR before its first, too."""
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
    """Yield the changes of a pass by source line, equal ones counted together, at most 8 a line."""
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


@dataclass(frozen=True, slots=True)
class RunRecords:
    """Inputs of the models of kernels.

    Attributes:
        basis: the kind of times by which kernels are weighed.
        reads_code: whether texts of stages and passes are read.
        variant_of: the key of a launch's specialisation, by its process and id.
    """

    session: Session
    launches: Launches
    variants: Variants
    costs: Sequence[LaunchCost]
    basis: Basis
    reads_code: bool
    variant_of: Callable[[int, int], str]


class Kernels:
    """The facts of all kernels, from which each one's part is taken."""

    def __init__(
        self, run: RunRecords, faults: Sequence[FaultModel], remarks: Sequence[RemarkModel]
    ) -> None:
        self._run = run
        self._session = run.session
        self._launches = run.launches
        self._variants = run.variants
        self._chars = 0
        self.without_code = 0
        self._differs = differing_parts([v.shown for v in run.variants.by_key.values()])
        self._faults = _by_variant(faults)
        self._remarks = _by_variant(remarks)
        self._watches = watch_models(run.session, run.variant_of)
        self._records: dict[str, LineRecords] = defaultdict(LineRecords)
        self._collect()

    def _collect(self) -> None:
        """Sort the records of lines by specialisation."""
        key_of = self._variants.key_of
        for line in line_costs(self._session):
            self._records[key_of(line.kernel_hash)].costs.append(line)
        since = 0
        while page := self._session.records(LineTime, since):
            since = page[-1].seq
            for row in page:
                self._records[key_of(row.event.kernel_hash)].times.append(row.event)
        for cost, weight in self._weights():
            self._records[key_of(cost.kernel_hash)].weights[cost.launch_id] = weight
        stalls = recorded_stalls(self._session)
        for kernel in () if stalls is None else stalls.kernels:
            if kernel.kernel_hash is not None:
                self._records[key_of(kernel.kernel_hash)].stalls.append(kernel)
        for timeline in recorded_timelines(self._session):
            variant = self._run.variant_of(timeline.process, timeline.launch_id)
            self._records[variant].timelines.append(timeline)

    def _weights(self) -> Iterator[tuple[LaunchCost, float]]:
        """Yield each launch that was looked at, with the number of launches that it represents."""
        alike = Counter((cost.kernel_hash, cost.grid) for cost in self._run.costs)
        for cost in self._run.costs:
            totals = self._launches.by_hash.get(cost.kernel_hash)
            count = 1 if totals is None else totals.grids.get(cost.grid, 1)
            yield cost, count / alike[cost.kernel_hash, cost.grid]

    def total_ns(self, name: str) -> float:
        """The time of a kernel's launches, by the basis of the run."""
        totals = self._launches.by_kernel.get(name)
        if totals is None:
            return 0.0
        match self._run.basis:
            case "measured":
                return float(totals.measured_ns or 0)
            case "predicted":
                return sum(c.grid_ns * weight for c, weight in self._weights() if c.kernel == name)
        return float(totals.interpreted_ns)

    def kernel(self, name: str, total_ns: float, whole_ns: float) -> KernelModel:
        """One kernel with its specialisations, the one of most time first."""
        totals = self._launches.by_kernel.get(name) or Totals()
        of_name = [v for v in self._variants.by_key.values() if v.first.name == name]
        made = [self._variant(variant) for variant in of_name]
        variants = sorted(made, key=lambda one: (-one.total_ns, -one.launches))
        # Specialisations without launches are shown only if there are no others.
        variants = [one for one in variants if one.launches or one.error] or variants
        source = of_name[0].first if of_name else None
        lines = source.source.rstrip("\n").count("\n") if source is not None else 0
        return KernelModel(
            name=name,
            file="" if source is None else source.file,
            line=0 if source is None else source.line,
            end_line=0 if source is None else source.line + lines,
            launches=totals.launches,
            errors=totals.errors,
            total_ns=total_ns,
            basis=self._run.basis if totals.launches else "",
            share=total_ns / whole_ns if whole_ns else 0.0,
            sparkline=totals.sparkline.buckets,
            sparkline_basis=totals.sparkline_basis,
            variants=tuple(variants),
        )

    def _variant(self, variant: Variant) -> VariantModel:
        key, shown = variant.key, variant.shown
        totals = [
            self._launches.by_hash[hash_]
            for hash_ in dict.fromkeys(one.hash for one in variant.builds)
            if hash_ in self._launches.by_hash
        ]
        hashes = tuple(dict.fromkeys(one.hash for one in variant.builds))
        costs = tuple(one for one in self._run.costs if one.kernel_hash in hashes)
        table = self._table(variant.native)
        texts = self._code(shown, table)
        records = self._records[key]
        records.table = table
        records.faults, records.remarks = self._faults[key], self._remarks[key]
        records.watches = self._watches.get(key, {})
        records.rows, records.passes = texts.rows, texts.passes
        lines, heats = line_facts(records)
        grids: Counter[tuple[int, int, int]] = Counter()
        for one in totals:
            grids.update(one.grids)
        arguments = next((one.arguments for one in totals if one.arguments), ())
        resources = None if table is None else table.resources
        predicted_ns = self._predicted_ns(costs)
        return VariantModel(
            key=key,
            hashes=hashes,
            signature=variant.first.signature,
            differs=self._differs.get(shown.hash, ""),
            options=variant.first.options,
            target=str(shown.options.get("arch") or ""),
            compile_ns=None if variant.native is None else variant.native.compile_ns,
            error=next((one.error for one in variant.builds if one.error), None),
            launches=sum(one.launches for one in totals),
            grids=tuple(grids.most_common(_MOST_GRIDS)),
            arguments=tuple(
                ArgumentModel(a.name, a.type, a.value, a.shape, a.strides) for a in arguments
            ),
            total_ns=self._variant_ns(totals, costs),
            basis=self._run.basis if totals else "",
            predicted_ns=predicted_ns,
            costs=costs,
            resources=resources,
            heats=heats,
            lines=lines,
            pictures=tuple(self._pictures(variant, costs, totals, table)),
            code=texts.code if texts.chars else None,
        )

    def _predicted_ns(self, costs: Sequence[LaunchCost]) -> float | None:
        weights = [self._records[self._variants.key_of(c.kernel_hash)].weights for c in costs]
        each = [w.get(c.launch_id, 1.0) for w, c in zip(weights, costs, strict=True)]
        if not sum(each):
            return None
        return sum(c.grid_ns * w for c, w in zip(costs, each, strict=True)) / sum(each)

    def _variant_ns(self, totals: Sequence[Totals], costs: Sequence[LaunchCost]) -> float:
        match self._run.basis:
            case "measured":
                return float(sum(one.measured_ns or 0 for one in totals))
            case "predicted":
                launches = sum(one.launches for one in totals)
                return (self._predicted_ns(costs) or 0.0) * launches
        return float(sum(one.interpreted_ns for one in totals))

    def _pictures(
        self,
        variant: Variant,
        costs: Sequence[LaunchCost],
        totals: Sequence[Totals],
        table: LineTable | None,
    ) -> Iterator[Picture]:
        if costs:
            measured = [one.measured.get(costs[0].grid) for one in totals]
            times = [total_ns / count for one in measured if one for total_ns, count in (one,)]
            picture = roofline(costs[0], variant.first.name, times[0] if times else None)
            if picture is not None:
                yield picture
        if table is not None and table.resources is not None and table.resources.occupancy:
            occupancy = occupancy_picture(table.resources.occupancy)
            if occupancy is not None:
                yield occupancy
        for timeline in self._records[variant.key].timelines[:1]:
            yield warps_picture(timeline)

    def _table(self, build: RecordedKernel | None) -> LineTable | None:
        if build is None or not self._run.reads_code or self._chars > MOST_CODE_CHARS:
            return None
        data = self._session.line_table(build.hash)
        try:
            return None if data is None else from_data(data)
        except LineTableError:
            return None  # `code_of` says why

    def _code(self, shown: RecordedKernel, table: LineTable | None) -> CodeOfVariant:
        if not self._run.reads_code:
            return CodeOfVariant(Code((), (), ()))
        if self._chars > MOST_CODE_CHARS:
            self.without_code += 1
            return CodeOfVariant(Code((), (), ()))
        found = code_of(self._session, shown, table)
        self._chars += found.chars
        return found


def _by_variant(
    found: Sequence[FaultModel] | Sequence[RemarkModel],
) -> dict[str, dict[Place, list[int]]]:
    """Return the numbers of faults or remarks by specialisation and line."""
    by_variant: dict[str, dict[Place, list[int]]] = defaultdict(lambda: defaultdict(list))
    for one in found:
        if one.place is None:
            continue
        for key in one.variants:
            by_variant[key][one.place].append(one.number)
    return by_variant
