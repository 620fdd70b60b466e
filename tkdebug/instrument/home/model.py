"""The model of a run, made of its session.

Responsible for what goes in and how much of it; what is known of a line, of launches, of texts is
put together beside this. The limits below keep the model of any session small; whatever they leave
out is said.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import PurePath

from tkdebug.advice.records import LaunchCost, LineTime, Remark
from tkdebug.errors import shown_path
from tkdebug.findings.launch_counts import RunChecks
from tkdebug.instrument.analyses.advice import advice_of, launch_costs, line_costs
from tkdebug.instrument.analyses.compiled_models import model_times
from tkdebug.instrument.analyses.kernel_names import activity_name, differing_parts
from tkdebug.instrument.analyses.stalls import recorded_stalls
from tkdebug.instrument.analyses.timelines import recorded_timelines
from tkdebug.instrument.home.code import CodeOfVariant, code_of
from tkdebug.instrument.home.kernel_pictures import occupancy_picture, roofline, warps_picture
from tkdebug.instrument.home.launches import (
    Launches,
    LaunchFields,
    Totals,
    left_out,
    read_launches,
)
from tkdebug.instrument.home.line_facts import LineRecords, line_facts, watch_models
from tkdebug.instrument.home.pictures import (
    TIMES,
    Picture,
    element_text,
    fault_pictures,
    index_of,
    mismatch_picture,
    shape_text,
)
from tkdebug.instrument.home.records import (
    SCHEMA,
    ArgumentModel,
    Basis,
    Code,
    FaultModel,
    KernelModel,
    LaunchModel,
    ModelLine,
    OtherModel,
    Place,
    RemarkModel,
    RunFacts,
    RunModel,
    SourceModel,
    Step,
    StepKind,
    TimeStrip,
    VariantModel,
    Verdict,
)
from tkdebug.instrument.home.variants import Variant, Variants
from tkdebug.instrument.records import (
    FaultGroup,
    FaultKey,
    Launch,
    Output,
    RecordedKernel,
    RunInfo,
    fault_key,
)
from tkdebug.instrument.session import Session
from tkdebug.linemap.line_table import LineTable, LineTableError
from tkdebug.linemap.line_table_data import from_data
from tkdebug.records.events import Fault

MOST_KERNELS = 300
MOST_FAULTS = 500
MOST_REMARKS = 300
# Of the launches of a fault, those by which its specialisations are known.
MOST_FAULT_RECORDS = 10_000
MOST_OTHERS = 200
MOST_SOURCE_CHARS = 6 << 20
MOST_OUTPUT_CHARS = 100_000
# Texts of stages and passes; packed, a tenth of it.
MOST_CODE_CHARS = 24 << 20
MOST_STEPS = 3
LEAST_GAIN = 0.02
_MOST_GRIDS = 8


def model_of(
    session: Session, faults: tuple[FaultGroup, ...] | None = None, code: bool = True
) -> RunModel:
    """Return the model of a run.

    Args:
        session: the run.
        faults: its fault groups, where they have been read already.
        code: whether texts of stages and passes are read: that takes longest.

    Raises:
        SessionError: the session is damaged.
    """
    return _ModelOfRun(session, session.fault_groups() if faults is None else faults, code).made()


class _ModelOfRun:
    """The records of a session while its model is made."""

    def __init__(self, session: Session, faults: tuple[FaultGroup, ...], code: bool) -> None:
        self.session = session
        self.run = session.run()
        self.groups = sorted(faults, key=_urgency)
        self.code = code
        self.recorded = session.kernels()
        self.variants = Variants(self.recorded)
        self.faulty = dict(_launches_of_faults(session))
        wanted = frozenset(launch for found in self.faulty.values() for launch in found)
        self.launches = read_launches(session, self.run.start_ns, wanted)
        self.costs = launch_costs(session)
        self.left_out: list[str] = list(left_out(self.launches))
        self._sources: dict[str, str | None] = {}
        self._launch = cache(session.launch_of)
        self.basis = self._basis()

    def made(self) -> RunModel:
        faults = tuple(self._faults())
        remarks = tuple(self._remarks())
        kernels = self._kernels(faults, remarks)
        numbers = {kernel.name: number for number, kernel in enumerate(kernels)}
        run = self._run_facts(kernels)
        return RunModel(
            schema=SCHEMA,
            run=run,
            verdict=_verdict(run, faults),
            steps=_steps(faults, remarks),
            kernels=kernels,
            faults=faults,
            remarks=remarks,
            launches=tuple(self._listed(numbers, faults)),
            strip=self._strip(numbers),
            others=self._others(),
            model_lines=tuple(_model_lines(self.session)),
            files=tuple(self._files(kernels, faults)),
            output=self._output(),
            left_out=tuple(self.left_out),
        )

    def variant_of(self, process: int, launch_id: int) -> str:
        """The key of a launch's specialisation, "" if the launch is not known."""
        launch = self._launch(process, launch_id)
        return "" if launch is None else self.variants.key_of(launch.kernel_hash)

    # The run

    def _basis(self) -> Basis:
        """Return how kernels are weighed: by GPU times, else predictions, else the CPU's times."""
        if any(one.measured_ns is not None for one in self.launches.by_kernel.values()):
            return "measured"
        return "predicted" if self.costs else "interpreted"

    def _run_facts(self, kernels: Sequence[KernelModel]) -> RunFacts:
        run = self.run
        return RunFacts(
            script=run.script,
            argv=run.argv,
            mode=run.mode,
            state="ended" if run.end_ns is not None else "going on or killed",
            exit_status=run.exit_status,
            start_ns=run.start_ns,
            duration_ns=None if run.end_ns is None else run.end_ns - run.start_ns,
            versions=run.versions,
            launches=self.launches.count,
            total_ns=sum(kernel.total_ns for kernel in kernels),
            basis=self.basis if kernels else "",
            machine=self.costs[0].machine if self.costs else "",
            ceilings=self.costs[0].ceilings if self.costs else "",
            not_looked_for=self._not_looked_for(),
        )

    def _not_looked_for(self) -> tuple[str, ...]:
        found = self.session.records(RunChecks, limit=1)
        return found[0].event.not_looked_for if found and "interpret" in self.run.mode else ()

    def _others(self) -> tuple[OtherModel, ...]:
        _, totals = self.session.other_totals()
        if len(totals) > MOST_OTHERS:
            self.left_out.append(f"{MOST_OTHERS} of {len(totals):,} others' kernels are listed")
        return tuple(
            OtherModel(
                one.kind, activity_name(one.kind, one.name, one.in_graph), one.count, one.total_ns
            )
            for one in totals[:MOST_OTHERS]
        )

    def _output(self) -> str:
        pieces: list[str] = []
        chars, since = 0, 0
        while page := self.session.records(Output, since):
            since = page[-1].seq
            pieces += [one.event.text for one in page]
            chars += sum(len(one.event.text) for one in page)
            while chars - len(pieces[0]) > 2 * MOST_OUTPUT_CHARS:
                chars -= len(pieces.pop(0))
        text = "".join(pieces)
        if len(text) > MOST_OUTPUT_CHARS:
            self.left_out.append(
                f"of the output, the last {MOST_OUTPUT_CHARS:,} characters are shown"
            )
        return text[-MOST_OUTPUT_CHARS:]

    def _files(
        self, kernels: Sequence[KernelModel], faults: Sequence[FaultModel]
    ) -> Iterator[SourceModel]:
        """Yield the sources that anything points to, as far as there is room."""
        wanted: dict[str, None] = dict.fromkeys(k.file for k in kernels if k.file)
        for fault in faults:
            wanted.update(dict.fromkeys(place.file for place in fault.calls))
        for kernel in kernels:
            for variant in kernel.variants:
                wanted.update(dict.fromkeys(line.place.file for line in variant.lines))
        names = short_names(list(wanted))
        chars = 0
        for file in wanted:
            text = self.source(file)
            if text is None:
                continue
            chars += len(text)
            if chars > MOST_SOURCE_CHARS:
                self.left_out.append(f"sources beyond {MOST_SOURCE_CHARS >> 20} MiB")
                return
            yield SourceModel(file, names[file], text)

    def source(self, file: str) -> str | None:
        """The text of a file as it was recorded."""
        if file not in self._sources:
            text = self.session.source_text(file)
            self._sources[file] = self._kernels_text(file) if text is None else text
        return self._sources[file]

    def _kernels_text(self, file: str) -> str | None:
        """Return the kernels of a file at their lines, where it was no file on disk: a cell."""
        lines: dict[int, str] = {}
        for kernel in self.recorded:
            if kernel.file == file:
                lines.update(enumerate(kernel.source.splitlines(), kernel.line))
        return "\n".join(lines.get(n, "") for n in range(1, max(lines) + 1)) if lines else None

    # Faults and remarks

    def _faults(self) -> Iterator[FaultModel]:
        if len(self.groups) > MOST_FAULTS:
            self.left_out.append(f"{MOST_FAULTS} of {len(self.groups):,} faults are shown")
        names = short_names([g.first.event.file or "" for g in self.groups[:MOST_FAULTS]])
        for number, group in enumerate(self.groups[:MOST_FAULTS]):
            launch = self._launch(group.first.process, group.fault.launch_id)
            yield _fault(number, group, launch, self._variants_of(group), self.run, names)

    def _variants_of(self, group: FaultGroup) -> tuple[str, ...]:
        """Return the specialisations that had a fault, that of its first launch first."""
        process, launch_id = group.first.process, group.fault.launch_id
        launches = ((process, launch_id), *self.faulty.get(group.key, ()))
        hashes = (self.launches.hashes.get(launch) for launch in launches)
        found = tuple(dict.fromkeys(self.variants.key_of(one) for one in hashes if one))
        only = self._only_variant(group)
        return found or ((only,) if only else ())

    def _only_variant(self, group: FaultGroup) -> str:
        """Return the specialisation of a fault without a launch, if its kernel has just one."""
        name = group.fault.kernel
        keys = [key for key, one in self.variants.by_key.items() if one.first.name == name]
        return keys[0] if len(keys) == 1 else ""

    def _remarks(self) -> Iterator[RemarkModel]:
        hashes: dict[tuple[str, str, int, str], list[str]] = defaultdict(list)
        for row in self.session.records(Remark):
            one = row.event
            hashes[one.kernel, one.file, one.line, one.kind].append(one.kernel_hash)
        found = advice_of(self.session)
        if len(found) > MOST_REMARKS:
            self.left_out.append(f"{MOST_REMARKS} of {len(found):,} remarks are shown")
        for cost in self.costs:
            hashes[cost.kernel, "", 0, ""].append(cost.kernel_hash)
        for number, advice in enumerate(found[:MOST_REMARKS]):
            key = advice.kernel, advice.file, advice.line, advice.kind
            found_in = hashes[key] or hashes[advice.kernel, "", 0, ""]
            variants = tuple(dict.fromkeys(self.variants.key_of(one) for one in found_in if one))
            yield RemarkModel(
                number,
                advice.kernel,
                variants[0] if variants else "",
                variants,
                Place(advice.file, advice.line),
                advice.kind,
                advice.message,
                advice.predicted_gain,
                advice.speedup,
                advice.times,
            )

    # Kernels

    def _kernels(
        self, faults: Sequence[FaultModel], remarks: Sequence[RemarkModel]
    ) -> tuple[KernelModel, ...]:
        made = _Kernels(self, faults, remarks)
        names = dict.fromkeys((*self.launches.by_kernel, *(one.name for one in self.recorded)))
        totals = {name: made.total_ns(name) for name in names}
        troubled = {fault.kernel for fault in faults}
        ordered = sorted(names, key=lambda name: -totals[name])
        kept = [n for i, n in enumerate(ordered) if i < MOST_KERNELS or n in troubled]
        if len(kept) < len(ordered):
            self.left_out.append(
                f"{len(kept)} of {len(ordered):,} kernels are shown: those with faults, and those "
                "that take most time"
            )
        whole_ns = sum(totals.values())
        found = tuple(made.kernel(name, totals[name], whole_ns) for name in kept)
        if made.without_code:
            self.left_out.append(
                f"stages and passes of {made.without_code} specialisations: there is room for "
                f"those of the kernels that take most time"
            )
        return found

    def _listed(
        self, numbers: Mapping[str, int], faults: Sequence[FaultModel]
    ) -> Iterator[LaunchModel]:
        by_launch: dict[int, list[int]] = defaultdict(list)
        for fault in faults:
            if fault.launch:
                by_launch[fault.launch].append(fault.number)
        for one in self.launches.listed:
            yield self._launch_model(one, numbers, tuple(by_launch.get(one.seq, ())))

    def _launch_model(
        self, one: LaunchFields, numbers: Mapping[str, int], faults: tuple[int, ...]
    ) -> LaunchModel:
        return LaunchModel(
            one.seq,
            one.id,
            one.process,
            one.rank,
            numbers.get(one.kernel, -1),
            self.variants.key_of(one.kernel_hash),
            one.grid,
            (one.device_start_ns or one.start_ns) - self.run.start_ns,
            one.duration_ns,
            one.basis,
            one.device_stream or one.stream,
            one.scopes,
            one.error,
            faults,
        )

    def _strip(self, numbers: Mapping[str, int]) -> TimeStrip:
        """Return the strip with the numbers that kernels have in the model."""
        strip, before = self.launches.strip, self.launches.kernel_numbers
        moved = {number: numbers.get(name, -1) for name, number in before.items()} | {-1: -1}
        tracks = tuple(
            replace(
                track, spans=tuple(s._replace(kernel=moved.get(s.kernel, -1)) for s in track.spans)
            )
            for track in strip.tracks
        )
        return replace(strip, tracks=tracks)


class _Kernels:
    """The facts of all kernels, from which each one's part is taken."""

    def __init__(
        self, run: _ModelOfRun, faults: Sequence[FaultModel], remarks: Sequence[RemarkModel]
    ) -> None:
        self._run = run
        self._session = run.session
        self._launches: Launches = run.launches
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
        """Yield the launches that were looked at, and how many each stands for."""
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
        # A build without launches is of use where it is the only one.
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
        if build is None or not self._run.code or self._chars > MOST_CODE_CHARS:
            return None
        data = self._session.line_table(build.hash)
        try:
            return None if data is None else from_data(data)
        except LineTableError:
            return None  # `code_of` says why

    def _code(self, shown: RecordedKernel, table: LineTable | None) -> CodeOfVariant:
        if not self._run.code:
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


def _launches_of_faults(
    session: Session,
) -> Iterator[tuple[FaultKey, tuple[tuple[int, int], ...]]]:
    """Yield for each fault the launches that had it, by process and id, up to some of them."""
    found: dict[FaultKey, dict[tuple[int, int], None]] = defaultdict(dict)
    for recorded in session.records(Fault, limit=MOST_FAULT_RECORDS):
        if recorded.event.launch_id:
            found[fault_key(recorded.event)][recorded.process, recorded.event.launch_id] = None
    for key, launches in found.items():
        yield key, tuple(launches)


def _urgency(group: FaultGroup) -> tuple[bool, bool, bool]:
    """Return a key that sorts what fails a run first, comparisons before the rest."""
    fault = group.first.event
    return not fault.is_open, fault.severity != "error", fault.kind != "mismatch"


def _fault(
    number: int,
    group: FaultGroup,
    launch: Launch | None,
    variants: tuple[str, ...],
    run: RunInfo,
    names: Mapping[str, str],
) -> FaultModel:
    fault = group.fault
    extent, tensor = fault.extent, fault.tensor or ""
    index = None
    if extent is not None and fault.index is not None:
        index = index_of(fault.index, extent.shape, extent.strides)
    pictures: tuple[Picture, ...] = ()
    if extent is not None:
        grid = None if launch is None else launch.grid
        pictures = fault_pictures(extent, tensor, fault.index, fault.lane, fault.program_id, grid)
    if fault.cause is not None and (picture := mismatch_picture(fault.cause.picture)):
        pictures = (picture, *pictures)
    calls = tuple(Place(frame.file, frame.line) for frame in fault.frames)
    return FaultModel(
        number=number,
        kind=fault.kind,
        severity=fault.severity,
        state=fault.state,
        kernel=fault.kernel,
        variant=variants[0] if variants else "",
        variants=variants,
        place=calls[-1] if calls else None,
        column=fault.column,
        calls=calls,
        message=fault.message,
        hint=fault.hint or "",
        tensor=tensor,
        at=element_text(tensor, index, fault.index) if tensor else "",
        of="" if extent is None else shape_text(extent.shape),
        program=fault.program_id,
        lane=fault.lane,
        count=fault.count,
        launches=group.launches,
        launch=0 if launch is None else launch.seq,
        basis="" if launch is None else "interpreted" if launch.mode == "interpret" else "measured",
        extent=extent,
        cause=fault.cause,
        replay=_replay(fault, run, names),
        pictures=pictures,
    )


def _replay(fault: Fault, run: RunInfo, names: Mapping[str, str]) -> str:
    """Return the command that stops at a fault, "" if none does."""
    if not fault.frames or not run.script.endswith(".py") or fault.kind == "compile-error":
        return ""
    name = names.get(fault.file or "", fault.file)
    if not fault.file or not name or not fault.file.endswith(name):
        return ""  # a cell of a notebook
    place = f"b {name}:{fault.line}"
    rounds = fault.extent.rounds if fault.extent is not None else ()
    if rounds and rounds[-1].name:
        place += f", {rounds[-1].name} == {rounds[-1].value}"
    words = ["tkdebug", "debug", "-c", place, "-c", "c", run.script, *run.argv]
    return shlex.join(words)


def _verdict(run: RunFacts, faults: Sequence[FaultModel]) -> Verdict:
    open_ = [fault for fault in faults if fault.state == "open"]
    errors = [fault for fault in open_ if fault.severity == "error"]
    failed = sum(fault.kind == "mismatch" for fault in errors)
    parts = []
    if failed:
        parts.append(f"{failed} comparison{'s' * (failed > 1)} failed")
    if len(errors) > failed:
        number = len(errors) - failed
        parts.append(f"{number:,} fault{'s' * (number > 1)}")
    if run.state != "ended":
        parts.append("going on, or killed")
    elif run.exit_status and not errors:
        parts.append(f"exit status {run.exit_status}")
    if parts:
        return Verdict("fault", ", ".join(parts))
    if open_:
        return Verdict("warning", f"{len(open_):,} warning{'s' * (len(open_) > 1)}")
    return Verdict("clean", "no findings")


def _steps(faults: Sequence[FaultModel], remarks: Sequence[RemarkModel]) -> tuple[Step, ...]:
    """Return what to look at next: what is wrong, then what would save most."""
    steps: list[Step] = []
    helpful = [remark for remark in remarks if remark.gain >= LEAST_GAIN]
    for fault in faults:
        if fault.state == "open" and len(steps) < MOST_STEPS - bool(helpful):
            kind: StepKind = "fault" if fault.severity == "error" else "warning"
            kind = "mismatch" if fault.kind == "mismatch" else kind
            steps.append(Step(kind, fault.number, fault.variant, fault.place, _fault_step(fault)))
    for remark in helpful:
        if len(steps) < MOST_STEPS:
            text = f"{remark.kind.replace('-', ' ')}: {remark.speedup:.2f}{TIMES} as fast"
            steps.append(
                Step("advice", remark.number, remark.variant, remark.place, text, remark.gain)
            )
    return tuple(steps)


def _fault_step(fault: FaultModel) -> str:
    cause = fault.cause
    if cause is not None and cause.edits:
        return "an edit fixes it: " + " ".join(" ".join(cause.edits[0].after).split())[:80]
    if fault.at and fault.of:
        verb = {"oob-store": "writes", "oob-atomic": "changes"}.get(fault.kind, "reads")
        return f"{verb} {fault.at} of {fault.of}"
    return f"{fault.kind}: {fault.message}"[:120]


def _model_lines(session: Session) -> Iterator[ModelLine]:
    for one in model_times(session)[:MOST_KERNELS]:
        for op, frame in zip(one.lines.ops, one.lines.frames, strict=True):
            yield ModelLine(one.lines.kernel, Place(frame.file, frame.line), op)


def short_names(files: Sequence[str]) -> dict[str, str]:
    """Return for each file the end of its path that tells it from the others."""
    found: dict[str, str] = {}
    for file in dict.fromkeys(files):
        shown = shown_path(file)
        if shown.startswith("Cell "):  # of the notebook that this runs in
            found[file] = shown
            continue
        parts = PurePath(file).parts
        length = 1
        others = [PurePath(other).parts for other in files if other != file]
        while length < len(parts) and any(parts[-length:] == o[-length:] for o in others):
            length += 1
        found[file] = "/".join(parts[-length:]).lstrip("/") or file
    return found
