"""All that is known of one line, as text for the panel beside the source.

Each section says how its numbers were obtained. What is missing says which option fills it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from tkdebug.instrument.analyses.advice import saved_share
from tkdebug.instrument.home.pictures import TIMES, shape_text
from tkdebug.instrument.home.records import (
    Basis,
    FaultModel,
    LineFacts,
    MemoryCost,
    PassAtLine,
    Place,
    RemarkModel,
    VariantModel,
    WatchModel,
)
from tkdebug.records.events import Cause
from tkdebug.tui.drawing import palette
from tkdebug.tui.drawing.display import count, duration, shown
from tkdebug.tui.home.pictures import MOST_ROWS, beside, picture_rows
from tkdebug.tui.home.sheet import HEATS, RunIndex, Sheet

_VERBS = {"oob-load": "is read", "oob-store": "is written", "oob-atomic": "is changed"}
_LEAST_PICTURE = 10
_LOW_PANEL = 24
_MOST_EDITS = 4
_MOST_FAULTS = 8
_MOST_PASSES = 40
_MOST_REASONS = 6
_MOST_ROUNDS = 12
_SPARKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Panel:
    """The panel to fill.

    Attributes:
        width: its width in cells.
        height: its height in rows; 0 for as many as there are.
        is_plain: whether it has no colours.
        has_source: whether the whole line is in sight beside it.
    """

    width: int
    height: int = 0
    is_plain: bool = False
    has_source: bool = False

    @property
    def is_flat(self) -> bool:
        """Whether pictures are better beside words than below them."""
        return self.width >= 100 or (self.width >= 72 and 0 < self.height <= 12)


def line_head(sheet: Sheet, place: Place, width: int) -> Text:
    """Return the place of a line and the sums of what is known of it, in one row."""
    index, facts = sheet.index, sheet.lines.get(place)
    head = Text(no_wrap=True, overflow="ellipsis")
    name = index.place_name(place)
    head.append(shown(name if len(name) < width // 2 else f":{place.line}", 60), palette.STRONG)
    faults = sheet.faults_at(place)
    open_ = [fault for fault in faults if fault.state == "open"]
    if open_:
        kinds = dict.fromkeys(fault.kind for fault in open_)
        mark, style = palette.MARKS["fault" if _is_error(open_) else "warning"]
        head.append(f"  {mark} {shown(', '.join(kinds), 40)}", style=style)
    remarks = sheet.remarks_at(place)
    if remarks:
        head.append(f"  ◆ {len(remarks)}", style=palette.ADVICE)
    if facts is None:
        return head
    if facts.watches:
        head.append(f"  ◉ {len(facts.watches)}", style=palette.VALUE)
    share = sheet.heat(place)
    if share >= 0.005:
        head.append(f"  {100 * share:.0f} % of {HEATS[sheet.heat_by][0]}", style=palette.STRONG)
    if facts.code is not None and facts.code.instructions:
        head.append(f"  {count(facts.code.instructions)} SASS")
    moved = sum(one.moved_bytes for one in facts.memory if one.what != "shared")
    if moved:
        head.append(f"  {size(moved)} moved")
    return head


def _is_error(faults: Iterable[FaultModel]) -> bool:
    return any(fault.severity == "error" for fault in faults)


def line_facts(sheet: Sheet, place: Place, panel: Panel) -> list[Text]:
    """Return all that is known of a line, in rows that may be longer than the panel is wide.

    Args:
        sheet: the specialisation that is shown.
        place: the line.
        panel: where it is shown.
    """
    return _Facts(sheet, place, panel).made()


class _Facts:
    """The sections of one line, written one after another."""

    def __init__(self, sheet: Sheet, place: Place, panel: Panel) -> None:
        self._sheet, self._place, self._panel = sheet, place, panel
        self._index: RunIndex = sheet.index
        self._rows: list[Text] = []

    def made(self) -> list[Text]:
        sheet, place = self._sheet, self._place
        facts = sheet.lines.get(place)
        source = self._index.text(place).strip()
        if source and not self._panel.has_source:
            self._say(shown(source, 400), palette.GOOD)
        faults = sheet.faults_at(place)
        for fault in faults[:_MOST_FAULTS]:
            self._fault(fault)
        if len(faults) > _MOST_FAULTS:
            more = count(len(faults) - _MOST_FAULTS)
            self._say(f"and {more} more faults of this line: 2 lists them", palette.MUTED)
        if sheet.is_def(place):
            self._definition()
        if facts is not None:
            self._line(facts)
        elif not sheet.faults_at(place) and not sheet.is_def(place):
            self._nothing()
        return self._rows

    def _line(self, facts: LineFacts) -> None:
        for watch in facts.watches:
            self._watch(watch)
        for remark in self._sheet.remarks_at(self._place):
            self._remark(remark)
        self._cost(facts)
        if facts.memory:
            self._memory(facts.memory)
        self._instructions(facts)
        self._inlined()
        if facts.passes:
            self._passes(facts.passes)

    # Writing

    def _head(self, title: str, how: str, style: str = palette.STRONG) -> None:
        if self._rows:
            self._rows.append(Text(""))
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(shown(title, 80), style=style)
        room = self._panel.width - line.cell_len - cell_len(how)
        if how and room > 0:
            line.append(" " * room + how, style=palette.MUTED)
        self._rows.append(line)

    def _say(self, text: str, style: str = "") -> None:
        self._rows.append(Text(text, style=style))

    def _bars(self, items: Sequence[tuple[str, float, str]], most: float, style: str) -> None:
        """Rows of a name, a bar and a text."""
        names = min(16, max((cell_len(name) for name, _, _ in items), default=0))
        for name, amount, said in items:
            room = max(4, self._panel.width - names - len(said) - 2)
            cells = amount / (most or 1) * room
            whole = min(room, int(cells))
            bar = "█" * whole + ("▌" if cells - whole >= 0.5 and whole < room else "")
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"{shown(name, names):<{names}} ", style=palette.LABEL)
            line.append(f"{bar:<{room}}", style=style)
            line.append(f" {said}")
            self._rows.append(line)

    # Faults

    def _fault(self, fault: FaultModel) -> None:
        level = "fault" if fault.severity == "error" else "warning"
        mark, style = palette.MARKS[level if fault.state == "open" else "known"]
        how: str = "on a GPU" if fault.basis == "measured" else fault.basis
        if fault.state != "open":
            how = fault.state
        self._head(f"{mark} {fault.kind}", how, style)
        if fault.cause is not None:
            # What fixes it comes before where it is wrong.
            self._cause(fault.cause)
        words = [(_what(fault), ""), (_captions(fault), "")]
        if fault.hint:
            words.append((shown(fault.hint, 600), palette.WARNING))
        words.append((_first_offender(fault), palette.MUTED))
        if self._panel.is_flat and fault.pictures:
            left = max(30, self._panel.width * 45 // 100)
            pictures = self._pictures(fault, self._panel.width - left - 2)
            self._rows += _columns(words, left, pictures)
        else:
            self._say(words[0][0])
            self._rows += self._pictures(fault, self._panel.width)
            for text, said_style in words[1:]:
                if text:
                    self._say(text, said_style)
        if len(fault.calls) > 1:
            names = " ← ".join(self._index.place_name(one) for one in reversed(fault.calls))
            self._say(shown(f"called: {names}", 300), palette.MUTED)
        if fault.replay:
            self._say(shown(fault.replay, 300), palette.LABEL)

    def _pictures(self, fault: FaultModel, width: int) -> list[Text]:
        """Return the pictures beside each other, as far as there is room."""
        gap, number = 2, len(fault.pictures)
        if not number:
            return []
        columns = (width - gap * (number - 1)) // number
        if columns < _LEAST_PICTURE:
            number = max(1, (width + gap) // (_LEAST_PICTURE + gap))
            columns = (width - gap * (number - 1)) // number
        columns = min(columns, 30)
        is_low = 0 < self._panel.height <= _LOW_PANEL
        rows: list[Text] = []
        for begin in range(0, len(fault.pictures), number):
            drawn = []
            for picture in fault.pictures[begin : begin + number]:
                title = Text(picture.kind.ljust(columns)[:columns], style=palette.LABEL)
                most = MOST_ROWS // 2 if is_low else MOST_ROWS
                found = picture_rows(picture, columns, self._panel.is_plain, most)
                drawn.append([title, *found])
            rows += beside(drawn, gap)
        return [*rows, self._legend(fault)]

    def _legend(self, fault: FaultModel) -> Text:
        """Return what the shades of a fault's pictures mean."""
        if fault.kind == "mismatch":
            marks = [("░", palette.GOOD, "right"), ("█", palette.BAD, "wrong")]
        else:
            marks = [("░", palette.FRAME, "within"), ("█", palette.BAD, "outside")]
            marks.append(("◆", palette.INK, "first"))
        line = Text(no_wrap=True, overflow="ellipsis")
        for shade, style, name in marks:
            line.append(shade if self._panel.is_plain else "■", style=style)
            line.append(f" {name}  ", style=palette.MUTED)
        return line

    def _cause(self, cause: Cause) -> None:
        if cause.got:
            self._say(shown(f"got {cause.got}, expected {cause.expected}", 200))
        if cause.edits:
            one = len(cause.edits) == 1
            self._say("With this edit" if one else "With each of these edits")
            self._rows[-1].append(" the launch agrees:")
        for edit in cause.edits[:_MOST_EDITS]:
            place = self._index.place_name(Place(edit.file, edit.line))
            note = "  agrees in fp64; what is left is rounding" if edit.is_in_fp64 else ""
            self._say(shown(place + note, 120), palette.MUTED)
            for text in edit.before:
                self._say(f"- {shown(text, 300)}", palette.REMOVED)
            for text in edit.after:
                self._say(f"+ {shown(text, 300)}", palette.ADDED)
        if cause.losses:
            self._say("In fp64 the launch agrees; these lines lose most precision:")
            bars = [
                (
                    self._index.place_name(Place(loss.file, loss.line)),
                    loss.share,
                    f"{100 * loss.share:.0f} %",
                )
                for loss in cause.losses
            ]
            self._bars(bars, 1.0, palette.FAULT)
        if cause.why:
            self._say(shown(f"undecided: {cause.why}", 300), palette.MUTED)
        for text in cause.facts:
            self._say(shown(text, 300), palette.MUTED)

    # Costs

    def _cost(self, facts: LineFacts) -> None:
        sheet = self._sheet
        if facts.stalls:
            total = sum(facts.stalls.values())
            self._head("where warps wait", "sampled")
            reasons = list(facts.stalls.items())[:_MOST_REASONS]
            bars = [(name.replace("_", " "), n, _percent(n / total)) for name, n in reasons]
            self._bars(bars, total, palette.HEAT[3])
        elif facts.heat:
            by = sheet.heat_by
            self._head("share of the kernel", HEATS[by][1] if by in HEATS else "")
            shares = [
                (HEATS[name][0], facts.heat.get(name, 0.0), _percent(facts.heat.get(name, 0.0)))
                for name in sheet.heats
            ]
            self._bars(shares, 1.0, palette.HEAT[3])
            variant = sheet.variant
            if by == "predicted" and variant is not None and variant.predicted_ns:
                part = facts.heat.get(by, 0.0) * variant.predicted_ns
                whole = duration(variant.predicted_ns)
                self._say(f"{duration(part)} of {whole} a launch", palette.MUTED)

    def _memory(self, accesses: Sequence[MemoryCost]) -> None:
        self._head("memory, a launch", "interpreted")
        for one in accesses:
            if one.what == "shared":
                waves = 1 + one.conflicts / max(1.0, one.requests)
                said = f"{waves:.1f} wavefronts each" if one.conflicts > 0.5 else "no conflicts"
                self._say(f"shared: {one.requests:,.0f} requests, {said}")
                continue
            name = shown(f"{one.what} {one.tensor}".strip(), 40)
            sectors = f"{one.requests:,.0f} {TIMES} {one.sectors:.2f} sectors"
            self._say(f"{name}: {sectors} ({one.needed:.2f} needed), {size(one.moved_bytes)}")
            if 0 < one.width_bytes < 8:
                note = f"{one.width_bytes} bytes a thread; 16 are possible at most"
                self._say(note, palette.ADVICE)

    def _instructions(self, facts: LineFacts) -> None:
        code = facts.code
        if code is None:
            return
        self._head("instructions", "compiled")
        kinds = [f"{count(n)} {kind.replace('-', ' ')}" for kind, n in code.kinds.items()]
        if code.inlined:
            kinds.append(f"{count(code.inlined)} in calls")
        if kinds:
            self._say(shown(", ".join(kinds), 400))
        widths = []
        for name, number in code.widths.items():
            kind, _, bits = name.partition(", ")
            widths.append(f"{count(number)} {TIMES} {kind.replace('-', ' ')} of {bits} bit")
        if widths:
            self._say(shown(", ".join(widths), 400))
        more = []
        if code.live_registers:
            more.append(f"{code.live_registers} registers live at most")
        if code.spilled_values:
            more.append(f"{count(code.spilled_values)} values spilled")
        if code.executed:
            more.append(f"{code.executed:,.0f} executed by warps in a launch")
        if more:
            self._say(", ".join(more), palette.MUTED)

    def _watch(self, watch: WatchModel) -> None:
        self._head(f"◉ values of {watch.name}", _run_basis(self._index), palette.VALUE)
        lost = f", {count(watch.lost)} were lost" if watch.lost else ""
        self._say(shown(f"{watch.type}, {count(watch.values)} values{lost}", 120), palette.MUTED)
        if watch.first_nan is not None:
            launch, program, number = watch.first_nan
            said = f"first NaN or Inf in launch {launch}, program {program}, round {number}"
            self._say(said, palette.FAULT)
        else:
            self._say("no NaN, no Inf", palette.MUTED)
        rounds = watch.rounds
        if len(rounds) > 1:
            self._say(_sparks([one.mean for one in rounds], self._panel.width - 12))
            self._rows[-1].append("  mean")
        step = max(1, math.ceil(len(rounds) / _MOST_ROUNDS))
        for one in rounds[::step]:
            bad = f"  {count(one.nan)} NaN" * bool(one.nan)
            bad += f"  {count(one.inf)} Inf" * bool(one.inf)
            line = Text(f"round {one.iteration:>4}  ", style=palette.LABEL)
            line.append(f"{one.minimum:.4g} … {one.mean:.4g} … {one.maximum:.4g}", style="")
            line.append(bad, style=palette.FAULT)
            self._rows.append(line)

    def _remark(self, remark: RemarkModel) -> None:
        self._head(f"◆ {remark.kind.replace('-', ' ')}", "predicted", palette.ADVICE)
        self._say(shown(remark.message, 800))
        if remark.gain > 0:
            saved = saved_share(remark.gain, remark.judged)
            self._say(f"{remark.speedup:.2f}{TIMES} as fast; saves {saved}", palette.MUTED)

    def _inlined(self) -> None:
        inner = self._sheet.calls.get(self._place, ())
        if inner:
            name = self._index.function_at(inner[0])
            lines = f"{len(inner)} line{'s' * (len(inner) > 1)}"
            self._head("inlined here", "")
            self._say(shown(f"{name}, {lines}: u unfolds", 120))

    def _passes(self, passes: Sequence[PassAtLine]) -> None:
        code = self._sheet.code
        names = {} if code is None else {one.number: one.name for one in code.passes}
        self._head("what passes did", "compiled")
        for one in passes[:_MOST_PASSES]:
            line = Text()
            line.append(f"{one.number:>2} ", style=palette.MUTED)
            line.append(f"{shown(names.get(one.number, ''), 40)}  ", style=palette.STRONG)
            times = f"{one.count} {TIMES} " if one.count > 1 else ""
            line.append(f"{times}{one.kind} ", style=_change_style(one.kind))
            line.append(shown(one.what, 120))
            if one.detail:
                line.append(f"  {shown(one.detail, 200)}", style=palette.MUTED)
            self._rows.append(line)
        if len(passes) > _MOST_PASSES:
            self._say(f"and {len(passes) - _MOST_PASSES} more: l follows the line", palette.MUTED)

    # The kernel

    def _definition(self) -> None:
        variant = self._sheet.variant
        if variant is None:
            return
        if variant.error:
            self._head("did not compile", "", palette.FAULT)
            self._say(shown(variant.error, 500))
        self._bound(variant)
        for picture in variant.pictures:
            self._head(picture.kind, "")
            self._rows += picture_rows(picture, self._panel.width, self._panel.is_plain)
            self._say(shown(picture.caption, 300), palette.MUTED)
        if variant.arguments:
            self._head("arguments of the first launch", "")
        for one in variant.arguments:
            value = one.value
            if one.shape is not None and len(one.shape):
                value = f"{shape_text(one.shape)}, strides {one.strides}"
            line = Text(f"{shown(one.name, 30)} ", style=palette.LABEL)
            line.append(f"{shown(one.type, 40)} ", style=palette.MUTED)
            line.append(shown(value, 80))
            self._rows.append(line)
        lines = [m for m in self._index.model.model_lines if m.kernel == self._sheet.name]
        if lines:
            self._head("lines of the model that it computes", "")
        for line_ in lines[:20]:
            self._say(shown(f"{self._index.place_name(line_.place)}  {line_.op}", 120))

    def _bound(self, variant: VariantModel) -> None:
        if not variant.costs:
            if variant.basis != "measured":
                self._head("bound", "")
                self._say("not predicted: tkdebug run --advise does that", palette.MUTED)
            return
        cost = variant.costs[0]
        self._head("bound", "predicted")
        if variant.predicted_ns is not None:
            by = cost.launched_bound or cost.bound
            self._say(shown(f"{duration(variant.predicted_ns)} a launch, by {by}", 100))
        found = sorted(cost.resources_ns.items(), key=lambda item: -item[1])[:6]
        bars = [(name, ns, duration(ns)) for name, ns in found if ns > 0]
        self._bars(bars, max((ns for _, ns, _ in bars), default=1.0), palette.HEAT[2])

    def _nothing(self) -> None:
        self._head("nothing runs at this line", "")
        is_compiled = self._sheet.code is not None and bool(self._sheet.variant.target)  # type: ignore[union-attr]
        said = "it is no part of the kernel, or was folded at compile time"
        if not is_compiled:
            said += "; tkdebug run --target sm_90a compiles kernels, too"
        self._say(said, palette.MUTED)


def _columns(words: Sequence[tuple[str, str]], width: int, right: Sequence[Text]) -> list[Text]:
    """Put words, wrapped, to the left of rows."""
    left = [Text(row, style) for text, style in words for row in textwrap.wrap(text, width)]
    found = []
    for number in range(max(len(left), len(right))):
        line = left[number] if number < len(left) else Text("")
        line = Text("", no_wrap=True).append_text(line)
        if number < len(right):
            line.append(" " * (width - line.cell_len + 2))
            line.append_text(right[number])
        found.append(line)
    return found


def _captions(fault: FaultModel) -> str:
    captions = (picture.caption for picture in fault.pictures)
    return shown(" ".join(filter(None, captions)), 600)


def _what(fault: FaultModel) -> str:
    verb = _VERBS.get(fault.kind)
    if fault.at and fault.of and verb:
        is_ = "has" if "element" in fault.of else "is"
        return shown(f"{fault.at} {verb}; {fault.tensor} {is_} {fault.of}", 300)
    return shown(fault.message, 600)


def _first_offender(fault: FaultModel) -> str:
    said = []
    if fault.program is not None:
        x, y, z = fault.program
        program = str(x) if y == z == 0 else str(fault.program)
        said.append(f"first in program {program}")
    if fault.lane:
        said.append(f"element [{', '.join(map(str, fault.lane))}] of the tile")
    if fault.count > 1 or fault.launches > 1:
        launches = f"{count(fault.launches)} launch{'es' * (fault.launches != 1)}"
        said.append(f"{count(fault.count)} times in {launches}")
    return ", ".join(said)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0995 or share == 0 else f"{100 * share:.1f} %"


def _run_basis(index: RunIndex) -> Basis:
    return "measured" if "native" in index.model.run.mode else "interpreted"


def _change_style(kind: str) -> str:
    if kind in ("erased", "removed"):
        return palette.REMOVED
    return palette.ADDED if kind in ("created", "added", "replaced") else ""


def _sparks(values: Sequence[float], most: int) -> str:
    """Return a line of bars, one for each value or for some next to each other."""
    step = max(1, math.ceil(len(values) / max(1, most)))
    kept = [value for value in values[::step]]
    finite = [value for value in kept if math.isfinite(value)]
    if not finite:
        return "✖" * len(kept)
    low, high = min(finite), max(finite)

    def bar(value: float) -> str:
        if not math.isfinite(value):
            return "✖"
        part = (value - low) / (high - low) if high > low else 0.0
        return _SPARKS[min(7, int(8 * part))]

    return "".join(map(bar, kept))


def size(size_bytes: float) -> str:
    """Bytes in three digits and a unit."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.3g} {unit}"
    return f"{size_bytes:.0f} bytes"
