"""Records of events in a run: the vocabulary of runtime, interpreter, recorder and hooks.

Not responsible for storing them, nor for handing them to subscribers (`hook_chain`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, get_args

from tkdebug.errors import Frame
from tkdebug.records.storage import OPEN, REPEATED, SHORT, WIDE, stored

FaultKind = Literal[
    "oob-load",
    "oob-store",
    "oob-atomic",
    "between-elements",
    "race",
    "nan",
    "inf",
    "padding",
    "narrowing",
    "uninitialised-read",
    "unwritten-output",
    "coverage",
    "row-overrun",
    "loop-state",
    "stored-input",
    "thread-order",
    "division-by-zero",
    "shift-range",
    "offset-overflow",
    "negative-remainder",
    "undefined-value",
    "misaligned-descriptor",
    "assumption",
    "plugin-check",
    "assert",
    "mismatch",
    "misaligned",
    # A native kernel crashed, by the GPU's core dump.
    "illegal-address",
    "illegal-instruction",
    "trap",
    "stack-overflow",
    "gpu-exception",
    "cuda-error",
    # A kernel does not end.
    "hang",
    "compile-error",
    # Another compiler was asked: Triton's.
    "triton-refuses",
    "triton-accepts",
]
# The launch itself fails with these kinds, so ignoring them would not help.
ENDING_KINDS: frozenset[FaultKind] = frozenset(
    {
        "misaligned",
        "illegal-address",
        "illegal-instruction",
        "trap",
        "stack-overflow",
        "gpu-exception",
        "cuda-error",
        "hang",
        "compile-error",
    }
)
IGNORABLE_KINDS: tuple[FaultKind, ...] = tuple(
    kind for kind in get_args(FaultKind) if kind not in ENDING_KINDS
)
# Open faults count; ignored ones have a comment in the source, known ones are in the baseline.
FaultState = Literal["open", "ignored", "known"]
Mode = Literal["interpret", "native"]
Verdict = Literal["fixes", "precision", "undecided"]


@dataclass(frozen=True, slots=True)
class ArgumentInfo:
    """One argument of a launch as passed: shape and strides in elements, None for scalars."""

    name: str
    type: str
    value: Annotated[str, SHORT]
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Return the pickled form: the dataclasses' own way takes five times as long."""
        return ArgumentInfo, (self.name, self.type, self.value, self.shape, self.strides)


class LaunchRecord:
    """One launch. Enter hooks see it without times, exit hooks with `duration_ns`.

    Attributes:
        id: unique in the process, counted from 1.
        kernel: the kernel's name.
        grid: programs along x, y, z.
        options: num_warps, num_stages, num_ctas and the other options of the launch.
        kernel_hash: content hash that joins the launch to its `KernelCompiled`.
        start_ns: `time.time_ns()` when the launch began.
        duration_ns: wall time of an interpreted launch, host time of a native one; None at enter.
        stream: the CUDA stream handle; 0 for the default stream and under interpret.
        error: the launch's exception, None if it raised none.
        user_metadata: makes the result of the kernel's `launch_metadata`; None if it has none.
        device_ns: for a native launch that a hook times, a function of `wait: bool = False` that
            gives its nanoseconds on the device, None while it lasts; set at exit. It holds on to no
            argument, and raises if the kernel failed.
    """

    kernel: str
    mode: Mode
    options: Mapping[str, object]
    kernel_hash: str
    # Defaults that fit most launches, so that making a record need not set these fields.
    duration_ns: int | None = None
    stream: int = 0
    error: str | None = None
    user_metadata: Callable[[], dict[str, object]] | None = None
    device_ns: Callable[..., int | None] | None = None
    _arguments: tuple[ArgumentInfo, ...] | None = None

    def __init__(
        self,
        id: int,
        kernel: str,
        grid: tuple[int, int, int],
        mode: Mode,
        options: Mapping[str, object],
        make_arguments: Callable[[], tuple[ArgumentInfo, ...]],
        kernel_hash: str,
        start_ns: int = 0,
    ) -> None:
        self.id = id
        self.kernel = kernel
        self.grid = grid
        self.mode = mode
        self.options = options
        self._make_arguments = make_arguments
        self.kernel_hash = kernel_hash
        self.start_ns = start_ns

    @property
    def arguments(self) -> tuple[ArgumentInfo, ...]:
        """The arguments' names, types, shapes; worked out when first asked for."""
        if self._arguments is None:
            self._arguments = self._make_arguments()
        return self._arguments


class KernelLaunch(LaunchRecord):
    """A launch of one kernel; its type (`launch_type`) has the facts that its launches share.

    Attributes:
        values: the passed value of each parameter.
        describe: makes `arguments` of values.
    """

    describe: Callable[[tuple[Any, ...]], tuple[ArgumentInfo, ...]]

    def __init__(
        self,
        id: int,
        grid: tuple[int, int, int],
        stream: int,
        values: tuple[Any, ...],
        start_ns: int,
    ) -> None:
        # Nothing else, since every hooked launch comes here.
        self.id = id
        self.grid = grid
        self.stream = stream
        self.values = values
        self.start_ns = start_ns

    def _make_arguments(self) -> tuple[ArgumentInfo, ...]:
        return self.describe(self.values)


def launch_type(
    kernel: str,
    mode: Mode,
    options: Mapping[str, object],
    kernel_hash: str,
    describe: Callable[[tuple[Any, ...]], tuple[ArgumentInfo, ...]],
    metadata: Callable[[tuple[int, int, int], tuple[Any, ...]], dict[str, object]] | None = None,
) -> type[KernelLaunch]:
    """The type of the records of a kernel's launches.

    Args:
        kernel: the kernel's name.
        mode: the mode of the launches.
        options: the options of all its launches.
        kernel_hash: the kernel's content hash.
        describe: makes descriptions of a launch's values.
        metadata: gives the result of the kernel's `launch_metadata` for a grid and values.
    """
    shared: dict[str, object] = {
        "kernel": kernel,
        "mode": mode,
        "options": options,
        "kernel_hash": kernel_hash,
        "describe": staticmethod(describe),
    }
    if metadata is not None:
        shared["user_metadata"] = property(
            lambda launch: partial(metadata, launch.grid, launch.values)
        )
    return type(KernelLaunch.__name__, (KernelLaunch,), shared)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewrite of one pass, as plain values.

    Attributes:
        rule: the rule of the pass.
        old_op_ids: ops that were removed, or changed in place (then also in `new_op_ids`).
        new_op_ids: ids of the ops that replace them; empty if they were erased.
        erased: (file, line) of places that no op has any more because of this rewrite.
    """

    rule: str
    old_op_ids: tuple[int, ...]
    new_op_ids: tuple[int, ...] = ()
    erased: tuple[tuple[str, int], ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Return the pickled form, as `ArgumentInfo` does: a kernel has hundreds."""
        return Rewrite, (self.rule, self.old_op_ids, self.new_op_ids, self.erased)


@dataclass(frozen=True, slots=True)
class OpFacts:
    """An op at one time, without its operands.

    Attributes:
        name: the name of the op, such as "tt.load".
        attributes: the attributes by name, as text.
        types: its results' types, as text; layouts by the alias they have in all texts of the
            kernel.
        parent: id of the op whose region it is in; None for the outermost.
        region: the number of the parent's region.
        places: (file, line) of all its places and of the calls that lead to them.
    """

    name: str
    attributes: Mapping[str, str]
    types: tuple[str, ...]
    parent: int | None
    region: int
    places: tuple[tuple[str, int], ...]

    def __reduce__(self) -> tuple[object, ...]:
        """Return the pickled form, as `ArgumentInfo` does: a kernel has hundreds."""
        shape = self.name, self.attributes, self.types, self.parent, self.region, self.places
        return OpFacts, shape


@dataclass(frozen=True, slots=True)
class CompilerPass:
    """The changes that one pass made to one kernel. A kernel's first pass is the front end.

    Attributes:
        before: name of the stage before it; "" for the front end.
        after: name of the stage after it; the same as `before` if the pass changed nothing.
        time_ns: the time of the pass alone.
        rewrites: its rewrites in order.
        op_ids: the ids of the ops after it, in program order; None if nothing changed.
        ops: the present facts of ops that came or changed, by id.
        error: why it failed, "" when it did not.
    """

    name: str
    before: str
    after: str
    time_ns: int
    rewrites: tuple[Rewrite, ...] = ()
    op_ids: tuple[int, ...] | None = None
    ops: Mapping[int, OpFacts] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class KernelCompiled:
    """A kernel was specialised and compiled: its source and its artifacts by stage name.

    `op_lines` maps a stage's text line (1-based) to the source frames of the op printed there,
    outermost first, so that a viewer can highlight both sides without the compiler. `passes` are in
    the order in which they ran. A kernel that failed to compile has an `error` and its results
    until then. `op_ids` gives the id of the op printed on a stage's text line. `line_table` makes
    the data of a native kernel's `linemap.line_table.LineTable`, in some milliseconds: its machine
    code is read by nvdisasm when the data is (`linemap.line_table_data.from_data`). `image` gives a
    native kernel's object file.
    """

    hash: str
    name: str
    file: str
    line: int
    source: str
    signature: str
    options: Mapping[str, object]
    artifacts: Mapping[str, str]
    op_lines: Mapping[str, Mapping[int, tuple[Frame, ...]]]
    compile_ns: int
    cache_hit: bool = False
    passes: tuple[CompilerPass, ...] = ()
    error: str | None = None
    op_ids: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    line_table: Callable[[], Mapping[str, object]] | None = None
    image: Callable[[], bytes] | None = None


@stored("tunings")
@dataclass(frozen=True, slots=True)
class AutotuneChoice:
    """A tuner picked `config` for `kernel` under `key`.

    Attributes:
        timings_ms: the timings by configuration; empty under interpret.
    """

    kernel: str
    key: str
    config: str
    timings_ms: Mapping[str, float]

    @property
    def ranked(self) -> tuple[tuple[str, float], ...]:
        """Return the configurations and their ns, the fastest first; a failed one is infinite."""
        fastest_first = sorted(self.timings_ms.items(), key=lambda item: item[1])
        return tuple((config, time_ms * 1e6) for config, time_ms in fastest_first)


@dataclass(frozen=True, slots=True)
class LaunchProgress:
    """The progress of a long interpreted launch."""

    launch_id: int
    kernel: str
    programs_done: int
    programs: int
    elapsed_ns: int


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """An edit of a kernel's source.

    Attributes:
        line: the first line of the edit in the file.
        before: the lines that go, without their indent.
        after: the lines that come.
        is_in_fp64: whether the launch agrees with it in fp64 alone, so that rounding is left.
    """

    file: str
    line: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    is_in_fp64: bool = False


@dataclass(frozen=True, slots=True)
class LineLoss:
    """The loss of one source line by rounding.

    Attributes:
        share: its share of the sum of all lines' losses, each measured alone, 0 to 1.
        value: the value of the element that is wrong most, if only this line rounds.
        cause: the cause of the line's errors, as `tkdebug numerics` has it; "" if it is not known.
    """

    file: str
    line: int
    share: float
    value: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a wrong tensor, as far as it is known.

    Attributes:
        verdict: "fixes": with each edit alone the launch agrees with the expected tensor;
            "precision": in fp64 it does; "undecided": no edit that was tried does.
        edits: the simplest first.
        losses: for "precision", the lines that lose most, first.
        got: the value of the element that is wrong most.
        expected: the expected value of that element.
        stored: (file, line) of the store that wrote the wrong element; None if unknown.
        tried: the number of edits of the kernel that were tried.
        why: for "undecided", the reason in words.
        lacks_inputs: whether it was not looked for, as the launch's inputs are gone.
        picture: where the tensor is wrong, a line for some rows: "#" wrong, "." right, "+" both.
        facts: for "undecided", the element's dependences, and the expected ones, as sentences.
    """

    verdict: Annotated[Verdict, OPEN]
    edits: tuple[SourceEdit, ...] = ()
    losses: tuple[LineLoss, ...] = ()
    got: str = ""
    expected: str = ""
    stored: tuple[str, int] | None = None
    tried: int = 0
    why: str = ""
    lacks_inputs: bool = False
    picture: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopRound:
    """The iteration of a loop in which something happened.

    Attributes:
        name: the name of the loop's variable, "" if it has none.
        value: the value of that variable.
        number: the number of the iteration, from 0.
        line: the line of the loop.
    """

    name: str
    value: int
    number: int
    line: int


@dataclass(frozen=True, slots=True)
class FaultExtent:
    """The bad elements of an access: in the tensor, in the tile, in the grid.

    The tile, its boxes and the loops' iterations are of the first offender; the rest is of the
    launch.

    Attributes:
        shape: the shape of the tensor as passed.
        strides: the strides of the tensor, in elements.
        element_type: the element type, such as "float16".
        first_elem: the index of the tensor's first element in its allocation.
        allocation_elems: the elements of its allocation.
        low: the lowest bad offset from the tensor's first element.
        high: the highest.
        tile: shape of what is accessed, () for one element.
        tile_start: offset of the tile's first element.
        tile_steps: offsets between its elements by axis; () if they are not the same.
        boxes: the boxes of bad elements in the tile: (first, end) by axis.
        is_exact: whether the boxes hold nothing else.
        bad_elems: the number of bad elements of the tile.
        programs: runs of programs, x fastest: (first, how many, bad elements of each).
        bad_programs: programs that have bad elements, also those for which there are no runs.
        rounds: the iterations of the loops around the access, outermost first.
        mask: the text of the access's mask, None without one.
        mask_axes: axes of the tile along which the mask varies.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element_type: str
    first_elem: int
    allocation_elems: int
    low: int
    high: int
    tile: tuple[int, ...]
    tile_start: int
    tile_steps: tuple[int, ...]
    boxes: tuple[tuple[tuple[int, int], ...], ...]
    is_exact: bool
    bad_elems: int
    programs: tuple[tuple[int, int, int], ...] = ()
    bad_programs: int = 0
    rounds: tuple[LoopRound, ...] = ()
    mask: str | None = None
    mask_axes: tuple[int, ...] = ()


@stored("faults")
@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: the first offender of its (kind, op, tensor) and the number of offenders.

    Attributes:
        severity: a "warning" does not make a run fail; docs/faults.md says which kinds are.
        frames: call chain, outermost first; the last frame is the faulting line.
        launch_id: the launch's number in its process; 0 for compile errors.
        column: 1-based, 0 when unknown.
        op_id: the Tile IR op; None for compile errors.
        program_id: (x, y, z) of the first offender's program; None if it has none.
        lane: position in the tile of the first offender, () for scalars.
        tensor: argument name, None when the pointer belongs to no argument.
        index: element offset of the first bad access from the tensor's first element.
        legal: half-open range of legal offsets.
        count: bad accesses of this (kind, op, tensor) in this launch.
        state: "ignored" by a comment in the source, "known" by the baseline, else "open".
        cause: the cause of a "mismatch", as far as it is known.
        extent: the bad elements; None if the access was not checked element by element.
    """

    kind: Annotated[FaultKind, OPEN]
    kernel: str
    frames: Annotated[tuple[Frame, ...], REPEATED]
    message: str
    launch_id: int = 0
    column: int = 0
    severity: Literal["error", "warning"] = "error"
    op_id: int | None = None
    program_id: tuple[int, int, int] | None = None
    lane: tuple[int, ...] = ()
    tensor: str | None = None
    index: Annotated[int | None, WIDE] = None
    legal: tuple[int, int] | None = None
    count: int = 1
    hint: str | None = None
    state: Annotated[FaultState, OPEN] = "open"
    cause: Annotated[Cause | None, REPEATED] = None
    extent: Annotated[FaultExtent | None, REPEATED] = field(default=None, compare=False)

    @property
    def is_open(self) -> bool:
        """Whether it counts: it is neither ignored nor in the baseline."""
        return self.state == "open"

    @property
    def fails(self) -> bool:
        """Whether a run that has it fails."""
        return self.is_open and self.severity == "error"

    @property
    def file(self) -> str | None:
        """File of the faulting line, None without a call chain."""
        return self.frames[-1].file if self.frames else None

    @property
    def line(self) -> int | None:
        """Faulting line, 1-based, None without a call chain."""
        return self.frames[-1].line if self.frames else None


# A launch id unique in this process, counted from 1.
next_launch_id: Callable[[], int] = itertools.count(1).__next__
