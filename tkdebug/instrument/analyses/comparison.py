"""Two recorded runs compared: times by kernel, machine code, watched values, and faults.

Kernels are matched by name. Faults are matched by kind, kernel, tensor and the text of their source
lines, so that a fault whose line has moved is the same. A fault that is ignored, or in the later
run's baseline, is neither new nor gone. Watched values are matched by variable, by the number of
the launch among those that show it, program and iteration.

Times are compared for equal launches: on tensors of the same shapes, timed in the same way. The
ratio is that of geometric means; the interval is Welch's, of logarithms, over all kinds of launches
together. Launches of one run share its clocks and its machine, so two runs should be made one after
the other on a quiet machine.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tkdebug.errors import Frame
from tkdebug.instrument.analyses.advice import AT_THE_ROOF, Advice, advice_of, launch_costs
from tkdebug.instrument.analyses.watched_values import WatchedName, watched_names
from tkdebug.instrument.records import FaultGroup, KernelSummary, RunInfo
from tkdebug.instrument.session import Session
from tkdebug.linemap.line_table import LineTableError
from tkdebug.linemap.line_table_data import from_data
from tkdebug.linemap.parts import Resources
from tkdebug.records.events import ArgumentInfo
from tkdebug.watches.records import WatchedValue, difference, same_value

# Fewer launches say nothing of how much times vary.
LEAST_LAUNCHES = 5
_MOST_LAUNCHES = 20_000
_LEAST_OF_KIND = 2
# Two-sided, of a normal distribution: 99 %.
_Z = 2.5758293035489
CONFIDENCE_PERCENT = 99
# How launches are timed; what is only known to be at most so long is not compared.
_TIMED = ("cupti", "events", "host")
Verdict = Literal["slower", "faster", "same", "unknown"]
_Moment = tuple[int, tuple[int, int, int], int]


@dataclass(frozen=True, slots=True)
class TimeChange:
    """One kernel's times in two runs.

    Attributes:
        ratio: later over earlier.
        low: the lower end of the confidence interval of `ratio`.
        high: the upper end.
        launches: the numbers of equal launches in the earlier and the later run.
    """

    ratio: float
    low: float
    high: float
    launches: tuple[int, int]

    @property
    def verdict(self) -> Verdict:
        """The verdict: slower or faster if the interval leaves out 1."""
        if min(self.launches) < LEAST_LAUNCHES:
            return "unknown"
        if self.low > 1:
            return "slower"
        return "faster" if self.high < 1 else "same"


# The key of a kind of launches: how they were timed, and the shapes of their tensors.
_Kind = tuple[str, tuple[tuple[int, ...], ...]]
_Times = dict[_Kind, list[float]]


def time_changes(before: Session, after: Session) -> Mapping[str, TimeChange]:
    """Return the changes by kernel, for kernels with equal launches in both runs."""
    old, new = _logarithms(before), _logarithms(after)
    changes = {kernel: _time_change(old[kernel], new[kernel]) for kernel in new if kernel in old}
    return {kernel: change for kernel, change in changes.items() if change is not None}


def _logarithms(session: Session) -> dict[str, _Times]:
    found: dict[str, _Times] = {}
    counts: dict[str, int] = {}
    shapes = _Shapes()
    names = ("kernel", "duration_ns", "time_source", "arguments")
    for kernel, duration_ns, source, arguments in session.launch_fields(names):
        assert isinstance(kernel, str)
        known = found.setdefault(kernel, {})
        number = counts[kernel] = counts.get(kernel, 0) + 1
        if number <= _MOST_LAUNCHES and source in _TIMED and duration_ns:
            assert isinstance(duration_ns, int)
            assert isinstance(arguments, tuple)
            kind = str(source), shapes.of(arguments)
            known.setdefault(kind, []).append(math.log(duration_ns))
    return found


class _Shapes:
    """The shapes of a launch's tensors, worked out once for those that many launches share."""

    def __init__(self) -> None:
        # By identity, which lasts because the arguments are kept.
        self._known: dict[int, tuple[tuple[ArgumentInfo, ...], tuple[tuple[int, ...], ...]]] = {}

    def of(self, arguments: tuple[ArgumentInfo, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of a launch's tensors, in the order of the arguments."""
        found = self._known.get(id(arguments))
        if found is None:
            shapes = tuple(one.shape for one in arguments if one.shape is not None)
            if len(self._known) >= _MOST_LAUNCHES:
                self._known.clear()
            found = self._known[id(arguments)] = arguments, shapes
        return found[1]


def _time_change(old: _Times, new: _Times) -> TimeChange | None:
    """Return the change over the kinds of launches of both runs; None if too few are alike.

    Kinds are weighed by their numbers of launches.
    """
    kinds = [k for k in new if k in old and min(len(old[k]), len(new[k])) >= _LEAST_OF_KIND]
    if not kinds:
        return None
    pairs = [(old[kind], new[kind]) for kind in kinds]
    launches = sum(len(one) for one, _ in pairs), sum(len(other) for _, other in pairs)
    weights = [len(one) * len(other) / (len(one) + len(other)) for one, other in pairs]
    weights = [weight / sum(weights) for weight in weights]
    difference = math.fsum(
        weight * (_mean(later) - _mean(earlier))
        for weight, (earlier, later) in zip(weights, pairs, strict=True)
    )
    # The square of each mean's error, and how many launches it is from.
    parts = [
        (weight**2 * _variance(times) / len(times), len(times))
        for weight, pair in zip(weights, pairs, strict=True)
        for times in pair
    ]
    squared = math.fsum(part for part, _ in parts)
    reach = 0.0
    if squared:
        freedom = squared**2 / math.fsum(part**2 / (count - 1) for part, count in parts)
        reach = student_quantile(freedom) * math.sqrt(squared)
    ratio, low, high = (math.exp(difference + d) for d in (0.0, -reach, reach))
    return TimeChange(ratio, low, high, launches)


def student_quantile(freedom: float) -> float:
    """The 99.5 % quantile of Student's distribution (Abramowitz and Stegun, 26.7.5)."""
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """A variable that both runs watched.

    Attributes:
        compared: values that both have.
        different: the number of values whose records differ at all.
        largest: the largest difference of minimum, maximum and mean, over the largest magnitude of
            the value; infinite if there are NaNs or infinities in one run alone.
        before: the earlier run's first value with that difference; None if no value differs.
        after: the same in the later run.
    """

    kernel: str
    name: str
    frames: tuple[Frame, ...]
    compared: int
    different: int
    largest: float
    before: WatchedValue | None
    after: WatchedValue | None


def watched_changes(before: Session, after: Session) -> tuple[WatchedChange, ...]:
    """The variables that both runs watched, by line."""
    old = {_key(name): name for name in watched_names(before)}
    return tuple(
        _watched_change(old[_key(name)], name) for name in watched_names(after) if _key(name) in old
    )


def _key(name: WatchedName) -> tuple[object, ...]:
    return name.watch, name.kernel, name.type, tuple(frame.line for frame in name.frames)


def _watched_change(before: WatchedName, after: WatchedName) -> WatchedChange:
    old, new = _by_moment(before), _by_moment(after)
    common = [moment for moment in new if moment in old]
    different = [moment for moment in common if not same_value(old[moment], new[moment])]
    sizes = {moment: difference(old[moment], new[moment]) for moment in different}
    largest = max(sizes.values(), default=0.0)
    first = next((moment for moment in different if sizes[moment] == largest), None)
    return WatchedChange(
        after.kernel,
        after.name,
        after.frames,
        len(common),
        len(different),
        largest,
        None if first is None else old[first],
        None if first is None else new[first],
    )


def _by_moment(name: WatchedName) -> Mapping[_Moment, WatchedValue]:
    launches: dict[object, int] = {}
    found = {}
    for row in name.values:
        value = row.event
        launch = launches.setdefault((row.rank, row.process, value.launch_id), len(launches))
        found[launch, value.program_id, value.iteration] = value
    return found


@dataclass(frozen=True, slots=True)
class CodeFigures:
    """The needs of a kernel; with several specialisations, the most that any of them needs.

    Attributes:
        registers: the registers of a thread.
        spill_bytes: spills of a thread, stored and loaded.
        shared_bytes: shared memory of a block.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int


def code_figures(session: Session) -> dict[str, CodeFigures]:
    """Return the figures of each kernel that was compiled natively, by its name."""
    found: dict[str, CodeFigures] = {}
    for kernel in session.kernels():
        resources = _resources(session, kernel.hash)
        if resources is None:
            continue
        spills = (resources.spill_store_bytes or 0) + (resources.spill_load_bytes or 0)
        figures = CodeFigures(resources.registers, spills, resources.shared_bytes)
        known = found.get(kernel.name, figures)
        found[kernel.name] = CodeFigures(
            max(known.registers, figures.registers),
            max(known.spill_bytes, figures.spill_bytes),
            max(known.shared_bytes, figures.shared_bytes),
        )
    return found


def _resources(session: Session, kernel_hash: str) -> Resources | None:
    data = session.line_table(kernel_hash)
    try:
        return None if data is None else from_data(data).resources
    except LineTableError:
        return None


@dataclass(frozen=True, slots=True)
class KernelChange:
    """A kernel in both runs; None for a run that did not launch it.

    Attributes:
        time: the change of its time, for equal launches; None if there are none.
        code_before: the needs of its machine code; None if it was not compiled natively.
        code_after: the same in the later run.
    """

    kernel: str
    before: KernelSummary | None
    after: KernelSummary | None
    time: TimeChange | None = None
    code_before: CodeFigures | None = None
    code_after: CodeFigures | None = None

    @property
    def unknown_why(self) -> str:
        """The reason why it is unknown whether it is slower or faster; "" if it is known."""
        if self.before is None or self.after is None:
            return "only one run launched it"
        if self.time is None:
            return "no launches on tensors of the same shapes, timed in the same way, in both runs"
        if self.time.verdict == "unknown":
            return f"fewer than {LEAST_LAUNCHES} launches that are alike in a run"
        return ""

    @property
    def mean_ratio(self) -> float | None:
        """Mean time of the later run over that of the earlier one; None if either is unknown."""
        if self.before is None or self.after is None:
            return None
        return self.after.mean_ns / self.before.mean_ns if self.before.mean_ns else None

    @property
    def min_ratio(self) -> float | None:
        """Minimum time of the later run over that of the earlier one; None if either is unknown."""
        if self.before is None or self.after is None or not self.after.finished:
            return None
        return self.after.min_ns / self.before.min_ns if self.before.min_ns else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two runs.

    Attributes:
        kernels: the kernels of either run, by the total time of the later run, then of the earlier.
        new_faults: faults that only the later run has.
        gone_faults: faults that only the earlier run has.
        kept_faults: the number of faults that both have.
        new_remarks: remarks of advice that only the later run has.
        gone_remarks: remarks that only the earlier run has.
        watched: variables that both runs watched.
    """

    before: RunInfo
    after: RunInfo
    kernels: tuple[KernelChange, ...]
    new_faults: tuple[FaultGroup, ...]
    gone_faults: tuple[FaultGroup, ...]
    kept_faults: int
    new_remarks: tuple[Advice, ...] = ()
    gone_remarks: tuple[Advice, ...] = ()
    watched: tuple[WatchedChange, ...] = ()

    @property
    def is_timed(self) -> bool:
        """Whether both runs were on a GPU, so that their times can be compared."""
        return "interpret" not in self.before.mode and "interpret" not in self.after.mode

    def unknown(self) -> dict[str, tuple[str, ...]]:
        """Return the kernels that may or may not be slower, by the reason why it is unknown."""
        found: dict[str, tuple[str, ...]] = {}
        for change in self.kernels:
            if change.before is not None and change.after is not None and change.unknown_why:
                why = change.unknown_why
                found[why] = (*found.get(why, ()), change.kernel)
        return found

    def slower(self, least_percent: float) -> tuple[KernelChange, ...]:
        """Return the kernels that are certainly slower by so much, of runs on a GPU."""
        if not self.is_timed:
            return ()
        least = 1 + least_percent / 100
        return tuple(
            change
            for change in self.kernels
            if change.time is not None
            and change.time.verdict == "slower"
            and change.time.low > least
        )


def compare(before: Session, after: Session) -> Comparison:
    """Compare the run `after` with the run `before`.

    Raises:
        SessionError: one of the sessions is damaged.
    """
    old = {summary.kernel: summary for summary in before.kernel_summaries()}
    new = {summary.kernel: summary for summary in after.kernel_summaries()}
    times = time_changes(before, after)
    old_code, new_code = code_figures(before), code_figures(after)
    old_remarks, new_remarks = _remarks(before), _remarks(after)
    if not (launch_costs(before) and launch_costs(after)):
        old_remarks, new_remarks = {}, {}  # of a run without advice nothing is new or gone
    old_faults = {_identity(before, group): group for group in before.fault_groups()}
    new_faults = {_identity(after, group): group for group in after.fault_groups()}
    came = {key: g for key, g in new_faults.items() if g.fault.is_open and key not in old_faults}
    went = {key: g for key, g in old_faults.items() if g.fault.is_open and key not in new_faults}
    return Comparison(
        before.run(),
        after.run(),
        tuple(
            KernelChange(
                name,
                old.get(name),
                new.get(name),
                times.get(name),
                old_code.get(name),
                new_code.get(name),
            )
            for name in {**new, **old}
        ),
        tuple(came.values()),
        tuple(went.values()),
        sum(key in old_faults for key in new_faults),
        tuple(one for key, one in new_remarks.items() if key not in old_remarks),
        tuple(one for key, one in old_remarks.items() if key not in new_remarks),
        watched_changes(before, after),
    )


def _remarks(session: Session) -> dict[tuple[str, str, str], Advice]:
    """Return the remarks by kernel, kind and text of the line, without kernels at their roof."""
    return {
        (one.kernel, one.kind, _text(session, one.file, one.line)): one
        for one in advice_of(session)
        if one.kind != AT_THE_ROOF
    }


def _identity(session: Session, group: FaultGroup) -> tuple[object, ...]:
    fault = group.fault
    chain = tuple(
        (posixpath.basename(frame.file), frame.function, _text(session, frame.file, frame.line))
        for frame in fault.frames
    )
    said = fault.message if fault.kind == "compile-error" else ""
    return (fault.kind, fault.kernel, fault.tensor, chain, said)


def _text(session: Session, file: str, line: int) -> str:
    """The text of a source line, or its number if the source was not recorded."""
    text = session.source_line(file, line)
    return str(line) if text is None else text.strip()
