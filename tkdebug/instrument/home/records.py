"""The model of a run: frozen records that the page, notebooks and programs read.

Invariants: it is made of a session alone, and its size is bounded: `left_out` names what was left
out. Totals say how they were obtained, by one of the words of `Basis`. A specialisation has one
key in all records (`variants.variant_key`), whichever of its builds a record is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tkdebug.advice.records import LaunchCost
from tkdebug.instrument.home.pictures import Picture
from tkdebug.linemap.parts import Resources
from tkdebug.records.events import Cause, FaultExtent

SCHEMA = 1
# measured: on a GPU; predicted: by the cost model; interpreted: counted or timed on the CPU.
Basis = Literal["measured", "predicted", "interpreted", ""]
State = Literal["ended", "running", "killed", "running or killed"]
Level = Literal["fault", "warning", "clean"]
StepKind = Literal["mismatch", "fault", "warning", "advice"]


class Place(NamedTuple):
    """A source line."""

    file: str
    line: int


class Span(NamedTuple):
    """A bar of the time strip: a launch or an activity, or several that were put together.

    Attributes:
        start_ns: its start, since the strip's begin.
        duration_ns: the time from the first begin to the last end.
        kernel: the kernel's number in `RunModel.kernels`, -1 for others' kernels and copies.
        name: the number of its name in `TimeStrip.names`; 0 for none, and for several.
        launch: `seq` of the launch; 0 for none, and for several.
        launches: the number of launches or activities that were put together.
        busy_ns: the sum of their times, at most `duration_ns`.
    """

    start_ns: int
    duration_ns: int
    kernel: int
    name: int
    launch: int
    launches: int
    busy_ns: int


class Bucket(NamedTuple):
    """Totals of consecutive launches of a kernel."""

    launches: int
    total_ns: int
    max_ns: int


class WatchedRound(NamedTuple):
    """A watched variable in one iteration or more, from `iteration` on, of all programs."""

    iteration: int
    minimum: float
    maximum: float
    mean: float
    nan: int
    inf: int
    values: int


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The run as a whole.

    Attributes:
        duration_ns: None while it goes on, or when it was killed.
        launches: the number of all launches.
        total_ns: the time of all kernels, obtained as `basis` says.
        machine: the GPU that predictions are for, "" without any.
        ceilings: the source of that GPU's figures.
        not_looked_for: kinds of faults that interpreted launches were not checked for.
    """

    script: str
    argv: tuple[str, ...]
    mode: str
    state: State
    exit_status: int | None
    start_ns: int
    duration_ns: int | None
    versions: Mapping[str, str]
    launches: int
    total_ns: float
    basis: Basis
    machine: str
    ceilings: str
    not_looked_for: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the run, in a few words."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A place to look at next.

    Attributes:
        number: the number of the fault or remark in the model.
        gain: share of the run's time that a remark saves, 0 to 1.
    """

    kind: StepKind
    number: int
    variant: str
    place: Place | None
    text: str
    gain: float = 0.0


@dataclass(frozen=True, slots=True)
class ArgumentModel:
    """An argument as it was passed first; shape and strides in elements, None for scalars."""

    name: str
    type: str
    value: str
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class MemoryCost:
    """An access to memory at a line.

    Attributes:
        what: "load", "store", "atomic", or "shared".
        requests: the number of warp instructions in one launch.
        sectors: sectors of 32 bytes that a request touches on average; 0 for shared memory.
        needed: sectors that the bytes of a request would fill; 0 for shared memory.
        width_bytes: the size of a thread's access; 0 for shared memory.
        conflicts: wavefronts of shared memory beyond the needed ones, in one launch.
    """

    what: str
    tensor: str
    requests: float
    sectors: float
    needed: float
    width_bytes: int
    conflicts: float

    @property
    def moved_bytes(self) -> float:
        """Bytes of all sectors that its requests touch in one launch."""
        return 32 * self.requests * self.sectors


@dataclass(frozen=True, slots=True)
class CodeCounts:
    """Machine instructions of a line.

    Attributes:
        instructions: the number of the line's own instructions.
        inlined: the number of instructions of functions that are inlined there.
        kinds: the number of instructions of each kind.
        widths: the number of memory accesses by "kind, bits".
        live_registers: the most live registers at one of them; None if unknown.
        spilled_values: the number of values made there that are spilled, an estimate.
        executed: warp instructions that a launch executes there; None if they were not counted.
    """

    instructions: int
    inlined: int
    kinds: Mapping[str, int]
    widths: Mapping[str, int]
    live_registers: int | None
    spilled_values: int
    executed: float | None = None


@dataclass(frozen=True, slots=True)
class WatchModel:
    """A watched variable of a line, its values added up.

    Attributes:
        values: the number of recorded values.
        lost: the number of values that the watch did not keep, in all specialisations.
        rounds: the values by iteration; neighbouring iterations share an entry if there are many.
        histogram: (e, how many) of magnitudes from 2**e to 2**(e + 1), in the last of `rounds`.
        first_nan: launch, program and iteration of the first NaN or Inf; None if there is none.
    """

    watch: str
    name: str
    type: str
    values: int
    lost: int
    rounds: tuple[WatchedRound, ...]
    histogram: tuple[tuple[int, int], ...]
    first_nan: tuple[int, tuple[int, int, int], int] | None


@dataclass(frozen=True, slots=True)
class PassAtLine:
    """Changes that one pass made to the ops of a line.

    Attributes:
        number: the number of the pass.
        kind: the kind of the changes.
        count: the number of changes.
        what: names of the ops; "old -> new" if ops were replaced.
        rule: the rule of the pass that made the changes, "" if none was recorded.
        detail: facts that the ops do not show, as in `OpChange.detail`.
    """

    number: int
    kind: str
    count: int
    what: str
    rule: str
    detail: str


@dataclass(frozen=True, slots=True)
class LineFacts:
    """All that is known of one source line of a kernel's specialisation.

    Attributes:
        heat: the line's share of the kernel, 0 to 1, by measure: "stalls", "timeline",
            "predicted", "instructions", "sectors".
        stalls: samples by stall reason; None without samples.
        faults: numbers of the faults at this line.
        remarks: numbers of the remarks on this line.
        calls: lines of the functions that are inlined at this line.
        rows: the number of rows of each stage that come from this line; None without any.
    """

    place: Place
    heat: Mapping[str, float]
    code: CodeCounts | None = None
    memory: tuple[MemoryCost, ...] = ()
    stalls: Mapping[str, int] | None = None
    watches: tuple[WatchModel, ...] = ()
    passes: tuple[PassAtLine, ...] = ()
    faults: tuple[int, ...] = ()
    remarks: tuple[int, ...] = ()
    calls: tuple[Place, ...] = ()
    rows: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class StageModel:
    """One form of a kernel, a row for each of its lines.

    Attributes:
        name: "tile-ir", "gpu-ir", "llvm-ir", "ptx" or "sass".
        title: the name for people, with the pass after which the text was taken.
        text: the rows.
        numbers: by row, its line in the whole text, or for SASS its address.
        chains: by row, the index of its call chain in `Code.chains`; -1 if it has no source line.
        registers: by row of SASS, the live registers, None if unknown; () for other stages.
    """

    name: str
    title: str
    text: tuple[str, ...]
    numbers: tuple[int, ...]
    chains: tuple[int, ...]
    registers: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class PassModel:
    """One pass, and what it changed.

    Attributes:
        ops: the number of ops after it.
        summary: the counts of its changes, in words.
        changes: groups of similar changes, a line each.
        diff: lines of the unified diff of the texts, cut if it is long; () if nothing changed.
    """

    number: int
    name: str
    time_ns: int
    ops: int
    summary: str
    is_changed: bool
    error: str
    changes: tuple[str, ...]
    diff: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LayoutModel:
    """A layout of a kernel's tiles, by its name in GPU IR."""

    name: str
    picture: Picture


@dataclass(frozen=True, slots=True)
class Code:
    """Texts of one specialisation: stages and passes.

    Attributes:
        chains: call chains of rows, each from the kernel inwards.
        layouts: the layouts that the rows of GPU IR name most often.
        note: why something is missing, "" if nothing is.
    """

    chains: tuple[tuple[Place, ...], ...]
    stages: tuple[StageModel, ...]
    passes: tuple[PassModel, ...]
    layouts: tuple[LayoutModel, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class VariantModel:
    """One specialisation of a kernel, with all of its builds.

    Attributes:
        key: the same in all reports.
        hashes: hashes of its builds: as interpreted, as compiled.
        differs: the parameters and options in which it differs from the kernel's others.
        compile_ns: the compile time of its compiled build; None without one.
        error: why it did not compile; None if it did.
        launches: the number of its launches.
        grids: grids with their numbers of launches, the most frequent first.
        total_ns: the time of all its launches, obtained as `basis` says.
        predicted_ns: the mean predicted time of a launch on its own grid: the only prediction that
            is shown; None without one.
        costs: costs of the launches that were looked at.
        heats: measures that its lines have, the one to show first at the front.
    """

    key: str
    hashes: tuple[str, ...]
    signature: str
    differs: str
    options: Mapping[str, object]
    target: str
    compile_ns: int | None
    error: str | None
    launches: int
    grids: tuple[tuple[tuple[int, int, int], int], ...]
    arguments: tuple[ArgumentModel, ...]
    total_ns: float
    basis: Basis
    predicted_ns: float | None
    costs: tuple[LaunchCost, ...]
    resources: Resources | None
    heats: tuple[str, ...]
    lines: tuple[LineFacts, ...]
    pictures: tuple[Picture, ...]
    code: Code | None


@dataclass(frozen=True, slots=True)
class KernelModel:
    """A kernel: its specialisations, and times of all its launches.

    Attributes:
        file: its source file, "" if that is not known.
        line: its first line, decorators included.
        end_line: its last line.
        share: its share of the time of all kernels, 0 to 1.
        sparkline: times of its launches, in order.
    """

    name: str
    file: str
    line: int
    end_line: int
    launches: int
    errors: int
    total_ns: float
    basis: Basis
    share: float
    sparkline: tuple[Bucket, ...]
    sparkline_basis: Basis
    variants: tuple[VariantModel, ...]


@dataclass(frozen=True, slots=True)
class FaultModel:
    """A fault over all launches that had it.

    Attributes:
        variant: key of the specialisation that had it first, "" if that is not known.
        variants: keys of all specialisations that had it.
        at: the element as people write it, `b_ptr[260, 0]`; "" where there is none.
        of: the tensor's shape in words.
        calls: the lines that lead to it, outermost first.
        launch: `seq` of the first launch that had it; 0 for none.
        replay: a command that shows it again, "" for none.
    """

    number: int
    kind: str
    severity: str
    state: str
    kernel: str
    variant: str
    variants: tuple[str, ...]
    place: Place | None
    column: int
    calls: tuple[Place, ...]
    message: str
    hint: str
    tensor: str
    at: str
    of: str
    program: tuple[int, int, int] | None
    lane: tuple[int, ...]
    count: int
    launches: int
    launch: int
    basis: Basis
    extent: FaultExtent | None
    cause: Cause | None
    replay: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class RemarkModel:
    """A remark of `advise`, ranked.

    Attributes:
        variants: keys of all specialisations that the remark is about.
        gain: share of the run's time that is saved, 0 to 1; 0 where nothing is predicted.
        speedup: the kernel's speedup without the cause of the remark.
        weighed: the times that kernels are weighed by, as `Advice.times`.
        judged: "launch" if gain and speedup are of the launches as they are, "filled" if of grids
            that fill the GPU; "" if nothing is predicted.
    """

    number: int
    kernel: str
    variant: str
    variants: tuple[str, ...]
    place: Place
    kind: str
    message: str
    gain: float
    speedup: float
    weighed: str
    judged: str


@dataclass(frozen=True, slots=True)
class LaunchModel:
    """One launch.

    Attributes:
        seq: unique in the session.
        id: unique in its process.
        basis: how its time was obtained, "" without one.
    """

    seq: int
    id: int
    process: int
    rank: int
    kernel: int
    variant: str
    grid: tuple[int, int, int]
    start_ns: int
    duration_ns: int | None
    basis: Basis
    stream: int
    scopes: tuple[str, ...]
    error: str | None
    faults: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Track:
    """A row of the time strip: a stream of a GPU, or launches on the CPU."""

    name: str
    basis: Basis
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class TimeStrip:
    """Launches and others' activities in time.

    Attributes:
        names: names of others' kernels and copies, "" the first.
        step_ns: the time within which short spans of a kernel were put together; 0 if none were.
    """

    end_ns: int
    tracks: tuple[Track, ...]
    names: tuple[str, ...]
    step_ns: int


@dataclass(frozen=True, slots=True)
class OtherModel:
    """Times of others' kernels and copies of one name on the GPU."""

    kind: str
    name: str
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class ModelLine:
    """A line of a model that kernels of torch.compile compute."""

    kernel: str
    place: Place
    op: str


@dataclass(frozen=True, slots=True)
class SourceModel:
    """A source file as it was.

    Attributes:
        name: the end of its path that distinguishes it from the other files.
    """

    file: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RunModel:
    """All that a session says of a run.

    Attributes:
        schema: the version of this record as JSON; within a version keys are only added.
        launches: the launches, if there are many only the first and the slowest.
        left_out: what was left out or put together to keep the size, a sentence each.
    """

    schema: int
    run: RunFacts
    verdict: Verdict
    steps: tuple[Step, ...]
    kernels: tuple[KernelModel, ...]
    faults: tuple[FaultModel, ...]
    remarks: tuple[RemarkModel, ...]
    launches: tuple[LaunchModel, ...]
    strip: TimeStrip
    others: tuple[OtherModel, ...]
    model_lines: tuple[ModelLine, ...]
    files: tuple[SourceModel, ...]
    output: str
    left_out: tuple[str, ...]
