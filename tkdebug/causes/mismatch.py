"""Reports comparisons that failed: the wrong elements, the launch that wrote them, and the cause.

Nothing is computed before a comparison fails. The launch runs again on the present contents of its
arguments; if that does not give the same tensor, its inputs have changed, and no cause is looked
for.

A wrong tensor may be right in fp64; then the lines that lose the difference are the cause. A line's
loss is measured: the launch in fp64, with the ops of that line alone in their own types.

The consoles' `cause` shows the cause of the last comparison that failed.

The wrong elements of a tensor are described in words: rows, columns, tiles, a tail, every k-th.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from tkdebug.causes.comparison import Comparison, Written, written
from tkdebug.causes.dependence import facts
from tkdebug.causes.fp64 import NotLiftableError, rounding_lines
from tkdebug.causes.launches import GoneError, Launched, RememberedLaunches
from tkdebug.causes.rerun import Budget, OutOfTimeError, Rerun, Store, on_one_thread
from tkdebug.causes.search import NOTHING_TRIED, Search, Tried
from tkdebug.errors import Frame, UsageError
from tkdebug.fault_printing.text import counted, describe
from tkdebug.findings.reporting import is_checked, report
from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.knobs import KNOBS
from tkdebug.records.events import Cause, Fault, LineLoss, SourceEdit, Verdict
from tkdebug.records.hook_chain import HOOKS

# Causes that are looked for in a run; each may take `KNOBS.cause_seconds`.
_MOST_CAUSES = 3
# Launches of one chain: each wrote what the next one reads.
_MOST_LAUNCHES = 8
# Lines that are named, and the least share of one.
_MOST_LINES = 3
_LEAST_SHARE = 0.05
# The part of the time that is left which may be spent on why lines make errors.
_MEASURED_PART = 0.3
CAUSE_HELP = "why the last comparison failed: the edit that fixes the launch, or facts"
_ELEMENT = re.compile(r"(\w+)\[\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\]")
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_AXES = {1: ("element",), 2: ("row", "column")}


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of a search for a cause, and why it ended."""

    store: Store | None = None
    tried: Tried = NOTHING_TRIED
    losses: tuple[LineLoss, ...] = ()
    why: str = ""
    lacks_inputs: bool = False
    facts: tuple[str, ...] = ()


class Mismatches:
    """Reports the comparisons of a script that fail.

    Args:
        launches: the launches of the script.
    """

    def __init__(self, launches: RememberedLaunches) -> None:
        self._launches = launches
        self._explained = 0

    def failed(self, comparison: Comparison) -> None:
        """Report a comparison, if a launch wrote the wrong tensor.

        Args:
            comparison: the one that failed; one that the script only asked about is a warning.
        """
        if not bool(comparison.wrong_elements.any()):
            return  # of other shapes, types or devices
        found = written(comparison.actual, self._launches)
        if found is None or not is_checked(found.launched.kernel.name):
            return
        fault = self._fault(comparison, found)
        self._launches.failed = comparison, fault
        report(fault)

    def fault(self, comparison: Comparison) -> Fault | None:
        """Return the fault of a comparison that failed; None if no launch wrote the tensor."""
        found = written(comparison.actual, self._launches)
        return None if found is None else self._fault(comparison, found)

    def _fault(self, comparison: Comparison, found: Written) -> Fault:
        values = (comparison.value(t) for t in (comparison.actual, comparison.expected))
        got, expected = map(_shown, values)
        element = _element(comparison, found)
        wrong = comparison.wrong_elements
        message = (
            f"{comparison.function}: {element} is {got}, expected {expected}; "
            f"wrong: {elements_in_words(wrong)}"
        )
        cause, store = Cause("undecided", got=got, expected=expected), None
        if comparison.raises:
            cause, store = self._cause(comparison, found, got, expected)
        frames = comparison.frames
        if cause.edits or cause.losses:
            places: list[SourceEdit | LineLoss] = [*cause.edits, *cause.losses]
            first = places[0]
            frames = (Frame(first.file, first.line, found.launched.kernel.name),)
        elif store is not None:
            frames = store.op.location.frames
        grid_x, grid_y, _ = found.launched.grid
        program = None if store is None else store.program
        return Fault(
            kind="mismatch",
            kernel=found.launched.kernel.name,
            frames=frames,
            message=message + _stored_text(store, found.launched),
            launch_id=found.launched.id,
            severity="error" if comparison.raises else "warning",
            op_id=None if store is None else store.op.id,
            program_id=None
            if program is None
            else (program % grid_x, program // grid_x % grid_y, program // (grid_x * grid_y)),
            tensor=found.name,
            index=None if store is None else _offset(found.tensor, comparison.index),
            count=int(wrong.sum()),
            hint=_hint(cause),
            cause=cause,
        )

    def _cause(
        self, comparison: Comparison, found: Written, got: str, expected: str
    ) -> tuple[Cause, Store | None]:
        """Return the cause as far as it is known, and the store of the worst element."""
        drawn = picture(comparison.wrong_elements)
        answer = _Answer()
        if self._explained >= _MOST_CAUSES:
            answer = _Answer(why=f"causes are looked for {_MOST_CAUSES} times in a run")
        else:
            self._explained += 1
            budget = Budget(KNOBS.cause_seconds)
            try:
                with on_one_thread():
                    answer = self._searched(comparison, found, budget)
            except GoneError as error:
                answer = _Answer(why=f"{error}; `--cause` keeps it", lacks_inputs=True)
            except OutOfTimeError:
                answer = _Answer(
                    why=f"the launch alone takes longer than {KNOBS.cause_seconds:g} s"
                )
        place = None
        if answer.store is not None:
            primary = answer.store.op.location.primary
            place = (primary.file, primary.line)
        edits = tuple(
            SourceEdit(fix.file, fix.edit.line, fix.before, fix.after, fix.is_in_fp64)
            for fix in answer.tried.fixes
        )
        verdict: Verdict = "undecided"
        if edits or answer.losses:
            verdict = "fixes" if edits else "precision"
        tried, why = answer.tried.tried, answer.why
        cause = Cause(
            *(verdict, edits, answer.losses, got, expected, place),
            *(tried, why, answer.lacks_inputs, drawn, answer.facts),
        )
        return cause, answer.store

    def _searched(self, comparison: Comparison, found: Written, budget: Budget) -> _Answer:
        rerun = self._reproducing(found, budget)
        if rerun is None:
            return _Answer(
                why="run again, the launch gives another tensor: what it was given has changed "
                "since; `--cause` keeps that",
                lacks_inputs=True,
            )
        if not rerun.can_run:
            return _Answer(
                why="programs wait for each other, or write to memory that is no argument"
            )
        store = rerun.store_of(_byte(found.tensor, comparison.index))

        if comparison.actual.is_floating_point():
            lost = losses(comparison, rerun, found.name)
            if lost is not None:
                wider = Search(rerun, store, comparison).run(rules=("type",))
                return _Answer(store, wider, lost)
        tried = Search(rerun, store, comparison).run()
        if tried.fixes:
            return _Answer(store, tried)
        end = "no edit that was tried fixes it"
        if not tried.is_whole:
            within = f"{KNOBS.cause_seconds:g} s"
            end = f"no edit fixes it of the {tried.tried} that could be tried within {within}"
        if store is None:
            end = f"no program stores the element; {end}"
        reference, unfit = _reference(comparison, found)
        facts_known = _facts(comparison, found, tried, reference)
        return _Answer(store, tried, why=f"{end}; {unfit}" if unfit else end, facts=facts_known)

    def _reproducing(self, found: Written, budget: Budget) -> Rerun | None:
        """The launches to run again: the last one alone, or with those that wrote its inputs."""
        chain = [found.launched]
        while True:
            rerun = Rerun(chain, found.tensor, budget)
            if not rerun.can_run:
                return rerun
            if not rerun.reproduces():
                return None
            before = self._launches.writer_before(chain)
            if before is None or len(chain) >= _MOST_LAUNCHES:
                return rerun
            longer = Rerun([before, *chain], found.tensor, budget)
            if not longer.can_run or not longer.reproduces():
                return rerun
            chain = [before, *chain]


def _reference(comparison: Comparison, found: Written) -> tuple[Callable[[], Tensor] | None, str]:
    """Return the function that computes the expected tensor, or None, and why `--reference` fails.

    The second part is "" unless a reference was named that cannot be used.
    """
    if comparison.reference is not None or not KNOBS.reference:
        return comparison.reference, ""
    # Only where one is named.
    from tkdebug.precision.references import Answers, applied, reference_by_name

    names = found.launched.kernel.src.fn.arg_names
    given = dict(zip(names, found.launched.values(), strict=True))
    try:
        reference = reference_by_name(KNOBS.reference)
        answers = Answers.of(reference, given)
    except UsageError as error:
        return None, str(error)
    expected = answers.fitting(found.name, host_view(comparison.actual), 0)
    if expected is None:
        return None, answers.unfit or f"--reference says nothing of {found.name}"
    return partial(applied, reference, given, found.name), ""


def _facts(
    comparison: Comparison,
    found: Written,
    tried: Tried,
    reference: Callable[[], Tensor] | None,
) -> tuple[str, ...]:
    if tried.screening is None:
        return ()
    tensors = dict(found.launched.tensors())
    element = _element(comparison, found)
    return facts(tried.screening, element, tensors, reference, comparison.worst)


def _element(comparison: Comparison, found: Written) -> str:
    index = list(comparison.index)
    return f"{found.name}{index}" if index else found.name


def _stored_text(store: Store | None, launched: Launched) -> str:
    by = f" by launch {launched.id}" if launched.id else ""
    if store is None:
        return f"; written{by or ' by a launch'}"
    return f"; stored at line {store.op.location.primary.line}{by}"


def _offset(tensor: Tensor, index: Sequence[int]) -> int:
    return sum(i * int(stride) for i, stride in zip(index, tensor.stride(), strict=True))


def _byte(tensor: Tensor, index: Sequence[int]) -> int:
    return (int(tensor.storage_offset()) + _offset(tensor, index)) * tensor.element_size()


def _shown(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.9g}"
    return str(value)


def _hint(cause: Cause) -> str | None:
    if cause.losses:
        each = ", ".join(
            f"line {loss.line} {loss.share:.0%} "
            f"({f'{loss.cause}; ' if loss.cause else ''}alone it gives {loss.value})"
            for loss in cause.losses
        )
        return f"in fp64 the launch agrees: precision is lost, at {each}"
    return f"no cause was found: {cause.why}" if cause.why else None


def losses(comparison: Comparison, rerun: Rerun, name: str) -> tuple[LineLoss, ...] | None:
    """Return the lines that lose most precision, those with cancellation first.

    None if the tensor is wrong in fp64, too, or the launches cannot run in fp64 or take too long.

    Args:
        comparison: the one that failed.
        rerun: the launches that wrote the tensor.
        name: the name of the tensor as the last launch's parameter.
    """
    try:
        exact = rerun.run_in_fp64()
        if bool(comparison.wrong(exact).any()):
            return None
        places = dict.fromkeys(
            place for launched in rerun.launches for place in rounding_lines(launched.kernel.module)
        )
        found = []
        for place in places:
            rounded = rerun.run_in_fp64(place)
            difference = torch.nan_to_num(rounded - exact, nan=float("inf"))
            error = float(difference.square().mean().sqrt())
            found.append((place, error, float(rounded.reshape(-1)[comparison.worst])))
    except (NotLiftableError, OutOfTimeError):
        return None
    total = sum(error for _, error, _ in found) or 1.0
    causes = _causes(rerun, name)
    each = [
        LineLoss(*place, error / total, f"{value:.9g}", causes.get(place, ""))
        for place, error, value in found
    ]
    each.sort(key=lambda loss: (loss.cause == "cancellation", loss.share), reverse=True)
    return tuple(loss for loss in each[:_MOST_LINES] if loss.share >= _LEAST_SHARE)


def _causes(rerun: Rerun, name: str) -> dict[tuple[str, int], str]:
    """Return the main cause of errors of a tensor at each line of the last launch, by place."""
    # Only where precision is lost.
    from tkdebug.precision.looking import look

    last, left = rerun.launches[-1], 1.0 - rerun.budget.used()
    if left <= 0:
        return {}
    seconds = _MEASURED_PART * left * rerun.budget.seconds
    found = look(last.kernel, last.grid, last.values(), last.id, False, seconds)
    outputs = [output for output in found.outputs if output.name == name] or found.outputs
    names = {output.name for output in outputs}
    causes: dict[tuple[str, int], str] = {}
    for finding in found.findings:
        if finding.output in names and finding.cause == "cancellation":
            causes[finding.file, finding.line] = finding.cause
    for output in outputs:
        for share in output.shares:
            causes.setdefault((share.file, share.line), share.cause)
    return causes


def cause_text(text: str) -> str:
    """Return the cause of the last comparison that failed, as `tkdebug run` reports it.

    Args:
        text: an element to look at, such as `out[35, 7]`; empty for the most wrong one.

    Raises:
        UsageError: no comparison failed, or the element is not among its wrong ones.
    """
    launches = HOOKS.follower
    if not isinstance(launches, RememberedLaunches) or launches.failed is None:
        raise UsageError("cause: no comparison of what a launch wrote has failed yet")
    comparison, fault = launches.failed
    if text:
        element = _ELEMENT.fullmatch(text)
        if element is None:
            raise UsageError(f"cause: expected an element, such as out[3, 17], got {text}")
        index = [int(part) for part in element[2].split(",")]
        chosen = replace(comparison.at(index), raises=True)
        chosen.__dict__["worst"] = comparison.at(index).worst
        fault = Mismatches(launches).fault(chosen) or fault
    return describe(fault)


def elements_in_words(wrong: Tensor) -> str:
    """Return the wrong elements in words, such as "rows 96 to 127 (4,096 of 16,384 elements)".

    Args:
        wrong: bool, of any shape, at least one element true.
    """
    total, count = wrong.numel(), int(wrong.sum())
    if total == 1:
        return "the only element"
    share = f"{count:,} of {counted(total, 'element')}"
    if count == total:
        return f"all {counted(total, 'element')}"
    named = _product(wrong) or _triangle(wrong)
    return f"{named} ({share})" if named else share


def _product(wrong: Tensor) -> str | None:
    """Describe wrong elements that are all combinations of some indices along each axis."""
    sets = []
    for axis in range(wrong.dim()):
        others = [other for other in range(wrong.dim()) if other != axis]
        sets.append(wrong.any(dim=others) if others else wrong)
    whole = torch.ones_like(wrong)
    for axis, chosen in enumerate(sets):
        shape = [1] * wrong.dim()
        shape[axis] = -1
        whole = whole & chosen.reshape(shape)
    if not torch.equal(whole, wrong):
        return None
    names = _AXES.get(wrong.dim())
    parts = []
    for axis, chosen in enumerate(sets):
        if bool(chosen.all()):
            continue
        name = names[axis] if names else "index"
        text = _indices(chosen, name)
        if text is None:
            return None
        parts.append(text if names else f"{text} of axis {axis}")
    return ", ".join(parts) or None


def _indices(chosen: Tensor, name: str) -> str | None:
    """Positions of one axis in words; None if they have no simple form."""
    places = chosen.nonzero().reshape(-1).tolist()
    first, last = places[0], places[-1]
    if len(places) == 1:
        return f"{name} {first}"
    several = "indices" if name == "index" else f"{name}s"
    steps = {b - a for a, b in pairwise(places)}
    if steps == {1}:
        return f"{several} {first} to {last}"
    if len(steps) == 1 and len(places) > 2:
        return f"every {_ordinal(steps.pop())} {name} from {first} to {last}"
    if len(places) <= 4:
        return f"{several} {', '.join(map(str, places))}"
    left_out = (~chosen).nonzero().reshape(-1).tolist()
    if len(left_out) <= 2:
        return f"all {several} but {' and '.join(map(str, left_out))}"
    # Runs of one length at one distance: a part of each block.
    starts = [b for a, b in zip([places[0] - 2, *places], places, strict=False) if b - a > 1]
    ends = [a for a, b in zip(places, [*places[1:], places[-1] + 2], strict=True) if b - a > 1]
    lengths = {end - start + 1 for start, end in zip(starts, ends, strict=True)}
    distances = {b - a for a, b in pairwise(starts)}
    if len(lengths) == 1 and len(distances) == 1:
        return (
            f"{lengths.pop()} of each {distances.pop()} {several}, from {several[:-1]} {starts[0]}"
        )
    return None


def _triangle(wrong: Tensor) -> str | None:
    """Name a set of a matrix that the diagonal bounds; None for others."""
    if wrong.dim() != 2 or min(wrong.shape) < 2:
        return None
    ones = torch.ones_like(wrong)
    for text, mask in (
        ("all but the diagonal", ~torch.eye(*wrong.shape, dtype=torch.bool)),
        ("all above the diagonal", ones.triu(1)),
        ("all below the diagonal", ones.tril(-1)),
        ("the diagonal and all above it", ones.triu()),
        ("the diagonal and all below it", ones.tril()),
        ("the diagonal", torch.eye(*wrong.shape, dtype=torch.bool)),
    ):
        if torch.equal(mask, wrong):
            return text
    return None


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else _ENDINGS.get(number % 10, "th")
    return f"{number}{ending}"


def picture(wrong: Tensor, rows: int = 12, columns: int = 48) -> tuple[str, ...]:
    """Return where elements are wrong, as lines of "#" wrong, "." right and "+" both.

    Args:
        wrong: bool, of any shape: its first axes are joined to rows.
        rows: the most rows.
        columns: the most columns.
    """
    if wrong.dim() == 0 or not wrong.numel():
        return ()
    flat = wrong.reshape(-1, wrong.shape[-1]) if wrong.dim() > 1 else wrong.reshape(1, -1)
    lines = []
    for band in flat.tensor_split(min(rows, flat.shape[0]), 0):
        parts = band.tensor_split(min(columns, flat.shape[1]), 1)
        lines.append("".join("#" if p.all() else "+" if p.any() else "." for p in parts))
    return tuple(lines)
