"""The model of a run: frozen records that the page, notebooks and programs read.

Invariants: it is made of a session alone, and its size is bounded: what was left out is said in
`left_out`. Every number says how it was obtained, by one of the words of `Basis`. A kernel has one
key in all of them (`variants.variant_key`), whichever of its builds a record is of.
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
        start_ns: since the strip's begin.
        duration_ns: from the first begin to the last end.
        kernel: its number in `kernels`, -1 for others' kernels and copies.
        name: its number in `names`.
        launch: `seq` of the launch; 0 for none, and for several.
        launches: how many were put together.
        busy_ns: of `duration_ns`, the time that something of these ran.
    """

    start_ns: int
    duration_ns: int
    kernel: int
    name: int
    launch: int
    launches: int
    busy_ns: int


class Bucket(NamedTuple):
    """Launches of a kernel that follow each other."""

    launches: int
    total_ns: int
    max_ns: int


class WatchedRound(NamedTuple):
    """A watched variable in one round of its loop, over programs and launches."""

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
        launches: how many in all.
        total_ns: of all kernels, as `basis` says.
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
        number: of the fault or the remark.
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
        requests: instructions of warps, in a launch.
        sectors: of 32 bytes, that each touches.
        needed: that its bytes would fill.
        width_bytes: of a thread's access.
        conflicts: of shared memory, wavefronts beyond those that are needed.
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
        """Bytes of all sectors that it touches."""
        return 32 * self.requests * self.sectors


@dataclass(frozen=True, slots=True)
class CodeCounts:
    """Machine instructions of a line.

    Attributes:
        instructions: of its own.
        inlined: of functions that it calls.
        kinds: how many of each kind.
        widths: "kind, bits" -> how many.
        live_registers: most at one of them.
        spilled_values: values made there that are spilled.
        executed: instructions of warps that a launch executes; None where it was not counted.
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
        values: how many there are.
        lost: of those that there were, how many were not kept.
        rounds: by round; several next to each other are one where there are many.
        histogram: (e, how many) of magnitudes from 2**e to 2**(e + 1), in the last round.
        first_nan: launch, program and round of the first NaN or Inf.
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
        number: of the pass.
        kind: of the change.
        count: how many.
        what: names of the ops.
        rule: of the pass.
        detail: what else is said of them.
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
        heat: share of the kernel by measure, 0 to 1: "stalls", "timeline", "predicted",
            "instructions", "sectors".
        stalls: samples by reason.
        calls: places of functions that are inlined at this line.
        rows: how many rows of each stage come from it.
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
        title: with the pass that it is after.
        text: the rows.
        numbers: of the rows: lines of the whole text, or addresses.
        chains: of the rows, numbers in `Code.chains`; -1 where a row is of no line.
        registers: live at each row, of SASS.
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
        ops: after it.
        summary: its changes, counted.
        changes: the same in groups, a line each.
        diff: of the texts, cut where it is long; () where nothing changed.
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
        layouts: those that most of GPU IR's rows name.
        note: why something is missing, "" where nothing is.
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
        hashes: of its builds: as interpreted, as compiled.
        differs: the parameters and options in which it differs from the kernel's others.
        compile_ns: of its compiled build; None without one.
        error: why it did not compile.
        launches: how many.
        grids: the most frequent first, with their numbers.
        total_ns: of all its launches, by `basis`.
        predicted_ns: for one launch as its grid is: the only prediction that is shown.
        costs: of the launches that were looked at.
        heats: measures that its lines have, the one to show first.
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
        file: "" where its source is not known.
        line: of its first line, with decorators.
        end_line: its last line.
        share: of the time of all kernels, 0 to 1.
        sparkline: of its launches in order.
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
        variant: key of the specialisation that had it first, "" where there was no launch.
        variants: keys of all that had it.
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
        variants: keys of all specialisations that it is of.
        gain: share of the run's time that is saved, 0 to 1; 0 where nothing is predicted.
        speedup: of the kernel.
        weighed: whose times it is weighed by.
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
        basis: of its time.
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
        names: of others' kernels and copies.
        step_ns: spans that are nearer than this were put together; 0 where none were.
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
        name: the end of its path, as much as tells it from the others.
    """

    file: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RunModel:
    """All that a session says of a run.

    Attributes:
        schema: of this record as JSON; keys are added within one.
        launches: the first and the slowest, where there are many.
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
