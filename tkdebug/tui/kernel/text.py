"""A kernel's source beside one of its stages, with lines of the two that belong together.

Headless; loaded in a thread, immutable afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tkdebug.errors import Frame
from tkdebug.instrument.passes.stage_lines import (
    SASS_STAGE,
    SOURCE_STAGE,
    load_line_table,
    load_stage,
    stage_names,
)
from tkdebug.instrument.records import RecordedKernel
from tkdebug.instrument.session import Session
from tkdebug.linemap.line_counts import cost_text, count_lines
from tkdebug.linemap.line_table import LineTable
from tkdebug.tui.drawing.highlight import highlight_ir, highlight_python, highlight_sass
from tkdebug.tui.drawing.lines import Code, lines_of
from tkdebug.tui.session.snapshot import FaultGroup, read_source

FIRST_STAGE = "tile-ir"
# What can fault so, as the stages write it: IR, PTX, SASS.
_OPS_OF_KIND = {
    "oob-load": ("load", "ld.global", "LDG", "LD.E"),
    "oob-store": ("store", "st.global", "STG", "ST.E"),
    "oob-atomic": ("atomic", "atom.", "red.", "ATOM", "RED"),
}


def first_to_show(kernels: Sequence[RecordedKernel]) -> RecordedKernel:
    """Return the first kernel compiled natively, which has more stages, else the first."""
    native = (k for k in kernels if any(stage.startswith("gpu-ir") for stage in k.stages))
    return next(native, kernels[0])


def nothing_compiled(has_faults: bool) -> str:
    """Return the message of a pane about compiled kernels after a run without any."""
    if has_faults:
        return "no kernel was compiled; press 2 to see what was wrong"
    return "no kernel was compiled; press 4 to see what the script printed"


@dataclass(frozen=True, slots=True)
class KernelText:
    """The content of the kernel pane.

    Attributes:
        kernel: None if only a file is known (a kernel that did not compile).
        file: the source file shown.
        source: the source text; no lines if it was not recorded.
        stage: the name of the shown stage, None if there is none.
        stage_code: the text of the stage.
        chains: source frames, outermost first, by line of the stage.
        all_chains: the call chains of all places of a line; `chains` has the first.
        op_ids: by line of the stage, the op that it shows or was made of.
        files: the files that the stage's lines come from, the kernel's own first.
        stages: the stages, SASS last.
        table: the kernel's line table; None if it has none.
        note: why it has no line table, "" if there is nothing to say.
        costs: by line of the file shown, its counts in machine code.
        has_read_code: whether the machine code was read, or there is none.
    """

    kernel: RecordedKernel | None
    file: str
    source: Code
    stage: str | None = None
    stage_code: Code = field(default_factory=Code)
    chains: Mapping[int, tuple[Frame, ...]] | None = None
    all_chains: Mapping[int, tuple[tuple[Frame, ...], ...]] | None = None
    op_ids: Mapping[int, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    table: LineTable | None = None
    note: str = ""
    costs: Mapping[int, str] = field(default_factory=dict)
    has_read_code: bool = True

    def stage_lines(self, line: int) -> frozenset[int]:
        """The stage's lines that come from, or through a call in, the source line `line`."""
        return frozenset(
            number
            for number, chains in (self.all_chains or {}).items()
            if any(f.line == line and f.file == self.file for chain in chains for f in chain)
        )

    def line_with_ops(self, line: int) -> int:
        """Return the source line to begin with, if no op is left of `line`, the kernel's first."""
        if self.kernel is None or line != self.kernel.line or self.file != self.kernel.file:
            return line
        lines = {
            frame.line
            for chains in (self.all_chains or {}).values()
            for chain in chains
            for frame in chain
            if frame.file == self.file and frame.line >= line
        }
        return min(lines, default=line)

    def source_lines(self, stage_line: int) -> tuple[int, ...]:
        """The lines of the file shown that the stage's line comes from, innermost first."""
        frames = (self.chains or {}).get(stage_line, ())
        return tuple(frame.line for frame in reversed(frames) if frame.file == self.file)

    def frames(self, stage_line: int) -> tuple[Frame, ...]:
        """The chain of the stage's line, outermost first."""
        return (self.chains or {}).get(stage_line, ())

    def source_marks(self, faults: tuple[FaultGroup, ...]) -> dict[int, str]:
        """Gutter marks by source line: "fault", "warning", or "call" for the way there."""
        marks: dict[int, str] = {}
        for group in faults:
            fault = group.first.event
            if self.kernel is not None and fault.kernel != self.kernel.name:
                continue
            if not fault.is_open:
                continue
            for depth, frame in enumerate(reversed(fault.frames)):
                if frame.file != self.file:
                    continue
                if depth == 0:
                    mark = "fault" if fault.severity == "error" else "warning"
                    if marks.get(frame.line) != "fault":
                        marks[frame.line] = mark
                else:
                    marks.setdefault(frame.line, "call")
        return marks

    def stage_marks(self, faults: tuple[FaultGroup, ...]) -> dict[int, str]:
        """Return gutter marks by line of the stage: ops of a faulting line that can fault so."""
        marks: dict[int, str] = {}
        seen = set()
        for group in faults:
            fault = group.first.event
            if self.kernel is None or fault.kernel != self.kernel.name or not fault.frames:
                continue
            key = fault.frames, fault.kind, fault.op_id, fault.severity
            if not fault.is_open or key in seen:
                continue
            seen.add(key)
            chains = (self.all_chains or {}).items()
            lines = [n for n, of_line in chains if fault.frames in of_line]
            ops = _OPS_OF_KIND.get(fault.kind, ())
            # Only one of several specialisations has that op on that line.
            of_op = [n for n in lines if self.op_ids.get(n, -1) == fault.op_id]
            named = [n for n in of_op or lines if any(op in self._stage_line(n) for op in ops)]
            faulting = named or of_op or lines
            mark = "fault" if fault.severity == "error" else "warning"
            for number in faulting:
                if marks.get(number) != "fault":
                    marks[number] = mark
        return marks

    def _stage_line(self, number: int) -> str:
        index = self.stage_code.index(number)
        return "" if index is None else self.stage_code.lines[index]


def load_kernel_text(
    session: Session,
    kernel: RecordedKernel | None,
    file: str,
    stage: str | None,
    shown: KernelText | None = None,
    reads_code: bool = True,
) -> KernelText:
    """Read the content of `KernelText`.

    Args:
        session: the session to read.
        kernel: the specialisation.
        file: the source file to show.
        stage: the stage to show; the first one that is there if it has no such stage.
        shown: the text shown before; parts that are the same are not read again.
        reads_code: also read the kernel's machine code.
    """
    same_kernel = shown is not None and kernel is not None and shown.kernel == kernel
    if shown is not None and same_kernel and shown.file == file:
        source = shown.source
    else:
        source = read_source(session, kernel, file)
        source = replace(source, spans=highlight_python(source.lines))
    if kernel is None or not kernel.stages:
        return KernelText(kernel, file, source)
    if shown is not None and same_kernel and shown.has_read_code:
        table, note = shown.table, shown.note
    else:
        table, note = load_line_table(session, kernel.hash) if reads_code else (None, "")
    stages = tuple(name for name in stage_names(kernel, table) if name != SOURCE_STAGE)
    if not stages:
        return KernelText(kernel, file, source)
    if stage not in stages:
        stage = FIRST_STAGE if FIRST_STAGE in stages else stages[0]
    loaded = load_stage(session, kernel, stage, table)
    lines = lines_of(loaded.text)
    spans = highlight_sass(lines) if stage == SASS_STAGE else highlight_ir(lines)
    if shown is not None and shown.table is table and shown.file == file:
        costs = shown.costs
    else:
        costs = _costs(table, file)
    chains = {number: chains[0] for number, chains in loaded.chains.items() if chains}
    files = dict.fromkeys([kernel.file, *(f.file for chain in chains.values() for f in chain)])
    return KernelText(
        kernel=kernel,
        file=file,
        source=source,
        stage=stage,
        stage_code=Code(lines, 1, spans),
        chains=chains,
        all_chains=loaded.chains,
        op_ids=loaded.op_ids,
        files=tuple(files),
        stages=stages,
        table=table,
        note=note,
        costs=costs,
        has_read_code=reads_code,
    )


def _costs(table: LineTable | None, file: str) -> dict[int, str]:
    if table is None or not table.has_sass:
        return {}
    return {
        place[1]: cost_text(counts, table.resources)
        for place, counts in count_lines(table).items()
        if place is not None and place[0] == file
    }
