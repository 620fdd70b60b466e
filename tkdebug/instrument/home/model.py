"""The model of a run, made of its session.

Responsible for what goes in and how much of it; modules beside this one collect the facts of lines,
launches and texts. The limits below keep the model of any session small; `left_out` names whatever
they leave out.

Faults have what a picture, a replay and a name of their element need.
"""

from __future__ import annotations

import shlex
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePath

from tkdebug.advice.records import Remark
from tkdebug.errors import shown_path
from tkdebug.findings.launch_counts import RunChecks
from tkdebug.instrument.analyses.advice import advice_of, launch_costs
from tkdebug.instrument.analyses.compiled_models import model_times
from tkdebug.instrument.analyses.kernel_names import activity_name
from tkdebug.instrument.home.kernels import Kernels, RunRecords
from tkdebug.instrument.home.launches import LaunchFields, left_out, read_launches
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
    Basis,
    FaultModel,
    KernelModel,
    LaunchModel,
    Level,
    ModelLine,
    OtherModel,
    Place,
    RemarkModel,
    RunFacts,
    RunModel,
    SourceModel,
    State,
    Step,
    StepKind,
    TimeStrip,
    Verdict,
)
from tkdebug.instrument.home.variants import Variants
from tkdebug.instrument.records import FaultGroup, FaultKey, Launch, Output, RunInfo, fault_key
from tkdebug.instrument.session import Session
from tkdebug.instrument.session_file.lock import is_recorded_into
from tkdebug.records.events import Fault

# The most records of faults that are read to find the specialisations that had a fault.
MOST_FAULT_RECORDS = 10_000
MOST_KERNELS = 300
MOST_FAULTS = 500
MOST_REMARKS = 300
MOST_OTHERS = 200
MOST_SOURCE_CHARS = 6 << 20
MOST_OUTPUT_CHARS = 100_000
MOST_STEPS = 3
LEAST_GAIN = 0.02


def launches_of_faults(
    session: Session,
) -> Iterator[tuple[FaultKey, tuple[tuple[int, int], ...]]]:
    """Yield faults with launches that had them, by the first `MOST_FAULT_RECORDS` records.

    Launches are named by process and id.
    """
    found: dict[FaultKey, dict[tuple[int, int], None]] = defaultdict(dict)
    for recorded in session.records(Fault, limit=MOST_FAULT_RECORDS):
        if recorded.event.launch_id:
            found[fault_key(recorded.event)][recorded.process, recorded.event.launch_id] = None
    for key, launches in found.items():
        yield key, tuple(launches)


def urgency(group: FaultGroup) -> tuple[bool, bool, bool]:
    """Return a key that sorts what fails a run first, comparisons before the rest."""
    fault = group.first.event
    return not fault.is_open, fault.severity != "error", fault.kind != "mismatch"


def fault_model(
    number: int,
    group: FaultGroup,
    launch: Launch | None,
    variants: tuple[str, ...],
    run: RunInfo,
    names: Mapping[str, str],
) -> FaultModel:
    """Return a fault of the model.

    Args:
        number: its number in the model.
        group: the fault over all launches.
        launch: the first launch that had it; None for none.
        variants: keys of the specialisations that had it.
        run: the run that had it.
        names: short names of files.
    """
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


def model_of(
    session: Session, faults: tuple[FaultGroup, ...] | None = None, code: bool = True
) -> RunModel:
    """Return the model of a run.

    Args:
        session: the run.
        faults: its fault groups; None to read them.
        code: whether texts of stages and passes are read: that takes longest.

    Raises:
        SessionError: the session is damaged.
    """
    return _ModelOfRun(session, session.fault_groups() if faults is None else faults, code).made()


def state_of(run: RunInfo, path: Path) -> State:
    """Return the state of a run, by its session and the lock file beside that."""
    if run.end_ns is not None:
        return "ended"
    is_going_on = is_recorded_into(path)
    if is_going_on:
        return "running"
    # Another host may hold the lock of a file that both see.
    is_known = is_going_on is False and run.host == socket.gethostname()
    return "killed" if is_known else "running or killed"


class _ModelOfRun:
    """The records of a session while its model is made."""

    def __init__(self, session: Session, faults: tuple[FaultGroup, ...], code: bool) -> None:
        self.session = session
        self.run = session.run()
        self.groups = sorted(faults, key=urgency)
        self.code = code
        self.recorded = session.kernels()
        self.variants = Variants(self.recorded)
        self.faulty = dict(launches_of_faults(session))
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
            state=state_of(run, self.session.path),
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
        """Return the recorded text of a file, at least its kernels; None if it has neither."""
        if file not in self._sources:
            text = self.session.source_text(file)
            self._sources[file] = self._kernels_text(file) if text is None else text
        return self._sources[file]

    def _kernels_text(self, file: str) -> str | None:
        """Return a text of a file's kernels alone, each at its line; None if it has no kernels."""
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
            yield fault_model(number, group, launch, self._variants_of(group), self.run, names)

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
                advice.judged,
            )

    # Kernels

    def _kernels(
        self, faults: Sequence[FaultModel], remarks: Sequence[RemarkModel]
    ) -> tuple[KernelModel, ...]:
        records = RunRecords(
            session=self.session,
            launches=self.launches,
            variants=self.variants,
            costs=self.costs,
            basis=self.basis,
            reads_code=self.code,
            variant_of=self.variant_of,
        )
        made = Kernels(records, faults, remarks)
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
    if run.exit_status and not errors:
        parts.append(f"exit status {run.exit_status}")
    level: Level = "fault" if parts or "killed" in run.state else "warning" if open_ else "clean"
    if not parts and open_:
        parts.append(f"{len(open_):,} warning{'s' * (len(open_) > 1)}")
    said = ", ".join(parts) or "no findings"
    if run.state == "ended":
        return Verdict(level, said)
    return Verdict(
        level, f"{run.state}: {said} so far" if run.state == "running" else f"{run.state}: {said}"
    )


def _steps(faults: Sequence[FaultModel], remarks: Sequence[RemarkModel]) -> tuple[Step, ...]:
    """Return the steps to take next: open faults, then the remarks that would save most."""
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
    """Return for each file the end of its path that distinguishes it from the others."""
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
