"""The model of a run as the home pane looks things up in it, and a kernel's source as rows.

Headless. Responsible for what is shown first, for the order of findings, for what is folded.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from tkdebug.instrument.home.records import (
    Code,
    FaultModel,
    KernelModel,
    LineFacts,
    Place,
    RemarkModel,
    RunModel,
    VariantModel,
)
from tkdebug.tui.drawing.highlight import Spans, highlight_python
from tkdebug.tui.drawing.lines import lines_of

FindingKind = Literal["fault", "warning", "advice"]
# The quantity that each measure of heat shows, and how it was obtained.
HEATS: Mapping[str, tuple[str, str]] = {
    "stalls": ("stalls", "sampled"),
    "timeline": ("cycles of warps", "timeline"),
    "predicted": ("time", "predicted"),
    "instructions": ("instructions", "compiled"),
    "sectors": ("sectors moved", "interpreted"),
}
STAGES: Mapping[str, str] = {
    "tile-ir": "Tile IR",
    "gpu-ir": "GPU IR",
    "llvm-ir": "LLVM",
    "ptx": "PTX",
    "sass": "SASS",
    "ttir": "TTIR",
    "ttgir": "TTGIR",
}
_DEF = re.compile(r"\s*(?:async\s+)?def\s+(\w+)")
_DEF_END = re.compile(r":\s*(?:#.*)?$")
# Parameters on fewer lines than these are not folded.
_LEAST_FOLDED = 5
_NO_FACTS: Mapping[str, float] = {}
_MOST_INLINED = 400


class Finding(NamedTuple):
    """A fault or a remark, and where it is."""

    kind: FindingKind
    number: int
    kernel: str
    variant: str
    place: Place


class Row(NamedTuple):
    """A row of the annotated source.

    Attributes:
        kind: "line"; "caret", which belongs to the line above it; "fold", which stands for lines.
        text: without the indent that it shares with all lines of its function.
        column: for a caret, the column of `text` that it points to, from 0.
        depth: how many calls a line is inside of.
        calls: how many lines of inlined functions are folded at this line.
        faults: numbers of the faults of this line.
        level: the severity of the worst of these, "" without any.
    """

    kind: Literal["line", "caret", "fold"]
    place: Place
    text: str
    spans: Spans = ()
    column: int = 0
    depth: int = 0
    calls: int = 0
    heat: float | None = None
    faults: tuple[int, ...] = ()
    level: str = ""
    has_advice: bool = False
    has_values: bool = False


class RunIndex:
    """A run's model with its texts by file and its kernels by specialisation."""

    def __init__(self, model: RunModel) -> None:
        self.model = model
        self.files = {one.file: lines_of(one.text) for one in model.files}
        self.names = {one.file: one.name for one in model.files}
        self._spans: dict[tuple[str, int, int], tuple[Spans, ...]] = {}
        self._sheets: dict[tuple[int, int], Sheet] = {}
        self._at = {
            variant.key: (number, place)
            for number, kernel in enumerate(model.kernels)
            for place, variant in enumerate(kernel.variants)
        }
        self._by_name = {kernel.name: number for number, kernel in enumerate(model.kernels)}

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """All findings with a place: what is wrong first, then what would save most."""
        return tuple(self._findings())

    def _findings(self) -> Iterator[Finding]:
        for fault in self.model.faults:
            if fault.place is not None and fault.state == "open":
                kind: FindingKind = "fault" if fault.severity == "error" else "warning"
                yield Finding(kind, fault.number, fault.kernel, fault.variant, fault.place)
        for remark in self.model.remarks:
            if remark.gain > 0:
                place = remark.place
                yield Finding("advice", remark.number, remark.kernel, remark.variant, place)

    @cached_property
    def counts(self) -> Mapping[tuple[str, FindingKind], int]:
        """The number of findings by kernel and kind."""
        return Counter((one.kernel, one.kind) for one in self.findings)

    def sheet_of(self, variant: str, kernel: str) -> tuple[int, int]:
        """Return the numbers of a kernel and of its specialisation, -1 for one not recorded."""
        return self._at.get(variant) or (self._by_name.get(kernel, -1), 0)

    def sheet(self, kernel: int, variant: int) -> Sheet:
        """One specialisation's annotated source."""
        key = kernel, variant
        if key not in self._sheets:
            self._sheets[key] = Sheet(self, kernel, variant)
        return self._sheets[key]

    def place_name(self, place: Place) -> str:
        """A place as people write it."""
        return f"{self.names.get(place.file, place.file.rpartition('/')[2])}:{place.line}"

    def text(self, place: Place) -> str:
        """The text of a line, "" where it was not recorded."""
        lines = self.files.get(place.file, ())
        return lines[place.line - 1] if 0 < place.line <= len(lines) else ""

    def spans(self, file: str, first: int, last: int) -> tuple[Spans, ...]:
        """The colours of lines of a file."""
        key = file, first, last
        if key not in self._spans:
            self._spans[key] = highlight_python(self.files.get(file, ())[first - 1 : last])
        return self._spans[key]

    def function_at(self, place: Place) -> str:
        """Name of the nearest `def` at or above a line; "a function" if there is none."""
        for line in range(min(place.line, len(self.files.get(place.file, ()))), 0, -1):
            if found := _DEF.match(self.files[place.file][line - 1]):
                return found[1]
        return "a function"

    def first_place(self) -> Finding | None:
        """The finding that a run opens at: what is wrong, else what is advised, else None."""
        return next(iter(self.findings), None)


@dataclass(frozen=True, slots=True)
class _Extent:
    """Lines of a file, from the first to the last."""

    file: str
    first: int
    last: int


class Sheet:
    """One specialisation's source with what is known of each line.

    Attributes:
        kernel: None where faults are of a kernel that was not recorded.
        variant: None for a kernel without a specialisation.
        heat_by: the measure that the gutter shows, "" without any.
    """

    def __init__(self, index: RunIndex, kernel: int, variant: int) -> None:
        model = index.model
        self.index = index
        self.kernel: KernelModel | None = model.kernels[kernel] if kernel >= 0 else None
        variants = () if self.kernel is None else self.kernel.variants
        self.variant: VariantModel | None = variants[variant] if variants else None
        lines = () if self.variant is None else self.variant.lines
        self.lines: Mapping[Place, LineFacts] = {one.place: one for one in lines}
        self.heats = () if self.variant is None else self.variant.heats
        self.heat_by = self.heats[0] if self.heats else ""
        self.calls = self._calls()
        self._callers = Counter(inner for found in self.calls.values() for inner in found)
        self._faults = self._faults_by_place()

    @property
    def name(self) -> str:
        """The kernel's name."""
        return "" if self.kernel is None else self.kernel.name

    @property
    def code(self) -> Code | None:
        """The texts of its stages, or None."""
        return None if self.variant is None else self.variant.code

    def _calls(self) -> Mapping[Place, tuple[Place, ...]]:
        """Return by line the lines of functions that are inlined there, as all records say."""
        found: dict[Place, set[Place]] = defaultdict(set)
        chains = list(self.code.chains) if self.code is not None else []
        name = self.name
        chains += [fault.calls for fault in self.index.model.faults if fault.kernel == name]
        for chain in chains:
            for number, caller in enumerate(chain[:-1]):
                found[caller].update(chain[number + 1 :])
        for place, facts in self.lines.items():
            found[place].update(facts.calls)
        return {place: tuple(sorted(inner - {place})) for place, inner in found.items() if inner}

    def _faults_by_place(self) -> Mapping[Place, tuple[FaultModel, ...]]:
        found: dict[Place, list[FaultModel]] = defaultdict(list)
        for fault in self.index.model.faults:
            is_ours = self.variant is None or not fault.variants
            is_ours = is_ours or (self.variant is not None and self.variant.key in fault.variants)
            if fault.place is not None and fault.kernel == self.name and is_ours:
                found[fault.place].append(fault)
        return {place: tuple(faults) for place, faults in found.items()}

    def faults_at(self, place: Place) -> tuple[FaultModel, ...]:
        """The faults of a line, those that are open first."""
        return self._faults.get(place, ())

    def remarks_at(self, place: Place) -> tuple[RemarkModel, ...]:
        """The remarks about a line."""
        facts = self.lines.get(place)
        numbers = () if facts is None else facts.remarks
        return tuple(self.index.model.remarks[number] for number in numbers)

    def heat(self, place: Place, unfolded: frozenset[Place] = frozenset()) -> float:
        """The share of a line, with what is inlined there while that is folded."""
        shares = [self._own_heat(place)]
        if place not in unfolded:
            # A line that several call would count at each.
            inner = (one for one in self.calls.get(place, ()) if self._callers[one] == 1)
            shares += [self._own_heat(one) for one in inner]
        return sum(shares)

    def _own_heat(self, place: Place) -> float:
        facts = self.lines.get(place)
        return (_NO_FACTS if facts is None else facts.heat).get(self.heat_by, 0.0)

    def opening(self) -> Place | None:
        """The line to open at: the first fault, best advice or hottest line; None without any."""
        for finding in self.index.findings:
            if finding.kernel != self.name:
                continue
            is_of_place = finding.place in self._faults or self.remarks_at(finding.place)
            if is_of_place:
                return finding.place
        kernel = self.kernel
        if kernel is None or not kernel.file:
            return None
        own = [place for place in self.lines if place.file == kernel.file]
        hottest = max(own, key=lambda place: self.heat(place), default=None)
        if hottest is not None and self.heat(hottest) > 0:
            return hottest
        return Place(kernel.file, self._first_statement(kernel))

    def _first_statement(self, kernel: KernelModel) -> int:
        found = sorted(p.line for p in self.lines if p.file == kernel.file)
        return next((line for line in found if line > kernel.line), kernel.line)

    def is_def(self, place: Place) -> bool:
        """Whether a line begins the kernel."""
        kernel = self.kernel
        if kernel is None or place.file != kernel.file:
            return False
        is_inside = kernel.line <= place.line <= kernel.end_line
        return is_inside and _DEF.match(self.index.text(place)) is not None

    # Rows

    def way_to(self, place: Place) -> frozenset[Place]:
        """The lines to unfold for a line of an inlined function to be in sight."""
        if self.kernel is not None and self._is_in_kernel(place):
            return frozenset()
        return frozenset(caller for caller, inner in self.calls.items() if place in inner)

    def _is_in_kernel(self, place: Place) -> bool:
        kernel = self.kernel
        if kernel is None or place.file != kernel.file:
            return False
        return kernel.line <= place.line <= kernel.end_line

    def rows(self, unfolded: frozenset[Place], file: str = "") -> list[Row]:
        """Return the rows of the source.

        Args:
            unfolded: the lines whose inlined functions are shown.
            file: what to show where the kernel has no source.
        """
        extent = self._extent(file)
        if extent is None:
            return []
        rows: list[Row] = []
        if extent.first > 1:
            above = extent.first - 1
            place = Place(extent.file, extent.first)
            rows.append(Row("fold", place, f"{above:,} line{'s' * (above > 1)} above"))
        rows += self._rows_of(extent, unfolded, 0, frozenset())
        below = len(self.index.files.get(extent.file, ())) - extent.last
        if below > 0:
            place = Place(extent.file, extent.last)
            rows.append(Row("fold", place, f"{below:,} line{'s' * (below > 1)} below"))
        return rows

    def _extent(self, file: str) -> _Extent | None:
        kernel = self.kernel
        if kernel is not None and kernel.file in self.index.files:
            last = min(kernel.end_line, len(self.index.files[kernel.file]))
            return _Extent(kernel.file, kernel.line, last) if last >= kernel.line else None
        if file in self.index.files:
            return _Extent(file, 1, len(self.index.files[file]))
        return None

    def _rows_of(
        self, extent: _Extent, unfolded: frozenset[Place], depth: int, seen: frozenset[Place]
    ) -> Iterator[Row]:
        spans = self.index.spans(extent.file, extent.first, extent.last)
        body = self._body(extent)
        indent = self._indent(extent.file, body, extent.last)
        for line in range(extent.first, extent.last + 1):
            place = Place(extent.file, line)
            number = line - extent.first
            colours = spans[number] if number < len(spans) else ()
            if depth == 0 and self.is_def(place) and body - line > _LEAST_FOLDED:
                # What is called within is not to be confused with it: parameters call nothing.
                if place not in unfolded:
                    yield from self._line(place, colours, unfolded, depth, 0)
                    folded = body - line - 2
                    yield Row("fold", place, f"{folded} parameters: u unfolds")
                    continue
            elif depth == 0 and self._is_folded(line, body, extent, unfolded):
                continue
            cut = indent if line >= body else 0
            yield from self._line(place, colours, unfolded, depth, cut)
            if place in unfolded and place not in seen:
                for inner in self._inlined(place):
                    yield from self._rows_of(inner, unfolded, depth + 1, seen | {place})

    def _body(self, extent: _Extent) -> int:
        """Return the first line after the parameters; that of the extent without a `def`."""
        lines = self.index.files[extent.file]
        for line in range(extent.first, extent.last + 1):
            if _DEF.match(lines[line - 1]):
                end = line
                while end < extent.last and not _DEF_END.search(lines[end - 1]):
                    end += 1
                return end + 1
        return extent.first

    def _indent(self, file: str, first: int, last: int) -> int:
        """Return the spaces that all lines begin with."""
        lines = [line for line in self.index.files[file][first - 1 : last] if line.strip()]
        return min((len(line) - len(line.lstrip(" ")) for line in lines), default=0)

    def _is_folded(self, line: int, body: int, extent: _Extent, unfolded: frozenset[Place]) -> bool:
        """Whether a line is one of parameters that are folded."""
        if line >= body:
            return False
        before = (Place(extent.file, one) for one in range(extent.first, line))
        begin = next((place for place in before if self.is_def(place)), None)
        return begin is not None and body - begin.line > _LEAST_FOLDED and begin not in unfolded

    def _line(
        self, place: Place, spans: Spans, unfolded: frozenset[Place], depth: int, cut: int
    ) -> Iterator[Row]:
        facts, faults = self.lines.get(place), self.faults_at(place)
        open_ = [fault for fault in faults if fault.state == "open"]
        level = ""
        if open_:
            level = "fault" if any(one.severity == "error" for one in open_) else "warning"
        calls = 0 if place in unfolded else len(self.calls.get(place, ()))
        yield Row(
            "line",
            place,
            self.index.text(place)[cut:],
            tuple((max(0, a - cut), b - cut, what) for a, b, what in spans if b > cut),
            depth=depth,
            calls=calls,
            heat=self.heat(place, unfolded),
            faults=tuple(fault.number for fault in faults),
            level=level,
            has_advice=bool(facts is not None and facts.remarks),
            has_values=bool(facts is not None and facts.watches),
        )
        for fault in open_[:1]:
            column = max(0, fault.column - 1 - cut)
            yield Row("caret", place, caret_text(fault), column=column, depth=depth, level=level)

    def _inlined(self, place: Place) -> Iterator[_Extent]:
        """Yield the lines of functions that are called at a line, a function after the other."""
        runs: dict[tuple[str, str], list[int]] = {}
        for inner in self.calls.get(place, ()):
            if self.index.text(inner):
                key = inner.file, self.index.function_at(inner)
                runs.setdefault(key, []).append(inner.line)
        for (file, _), lines in runs.items():
            first, last = min(lines), max(lines)
            yield _Extent(file, first, min(last, first + _MOST_INLINED))


def caret_text(fault: FaultModel) -> str:
    """Say in a few words what is wrong at a line."""
    cause = fault.cause
    if cause is not None and cause.edits:
        edit = cause.edits[0]
        changed = [line for line in edit.after if line not in edit.before] or list(edit.after)
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"an edit fixes it{more}: " + " ".join("".join(changed[:1]).split())
    if fault.at and fault.of:
        return f"{fault.at} is outside of {fault.of}"
    return fault.message
