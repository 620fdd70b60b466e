"""Any stage of a recorded kernel as text, and the source lines behind each of its lines.

IR and PTX lie in the session line by line; for LLVM IR and SASS, and for the places that ops were
fused from, the kernel's line table is asked. Needs neither the compiler nor a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tkdebug.errors import Frame
from tkdebug.instrument.records import RecordedKernel
from tkdebug.linemap.line_table import LineTable, LineTableError
from tkdebug.linemap.line_table_data import from_data

SOURCE_STAGE = "source"
LLVM_STAGE = "llvm-ir"
PTX_STAGE = "ptx"
SASS_STAGE = "sass"
Frames = tuple[Frame, ...]


class StageSource(Protocol):
    """The part of `session.Session` that holds stages."""

    def artifact(self, kernel_hash: str, stage: str) -> str | None:
        """Do as `Session.artifact`."""

    def op_lines(self, kernel_hash: str, stage: str) -> Mapping[int, Frames]:
        """Do as `Session.op_lines`."""

    def op_ids(self, kernel_hash: str, stage: str) -> Mapping[int, int]:
        """Do as `Session.op_ids`."""

    def line_table(self, kernel_hash: str) -> object | None:
        """Do as `Session.line_table`."""


@dataclass(frozen=True, slots=True)
class StageLines:
    """One stage.

    Attributes:
        text: "" when it was not recorded.
        chains: by line (1-based): the call chains, each outermost first, of its places; the first
            is the one to show.
        op_ids: by line, the id of the op that it shows or was made of.
    """

    name: str
    text: str = ""
    chains: Mapping[int, tuple[Frames, ...]] = field(default_factory=dict)
    op_ids: Mapping[int, int] = field(default_factory=dict)

    def lines_of(self, file: str, line: int) -> tuple[int, ...]:
        """The stage's lines that come from a source line, or from a function called on it."""
        return tuple(
            sorted(
                number
                for number, chains in self.chains.items()
                if any(f.line == line and f.file == file for chain in chains for f in chain)
            )
        )


def load_line_table(source: StageSource, kernel_hash: str) -> tuple[LineTable | None, str]:
    """Return the kernel's line table, or None and why an existing one cannot be read.

    Raises:
        SessionError: the session cannot be read.
    """
    data = source.line_table(kernel_hash)
    if data is None:
        return None, ""
    try:
        return from_data(data), ""
    except LineTableError as error:
        return None, str(error)


def stage_names(kernel: RecordedKernel, table: LineTable | None) -> tuple[str, ...]:
    """The stages of a kernel in compile order, SASS last if it was disassembled."""
    has_sass = table is not None and table.has_sass and SASS_STAGE not in kernel.stages
    return (*kernel.stages, SASS_STAGE) if has_sass else kernel.stages


def load_stage(
    source: StageSource, kernel: RecordedKernel, name: str, table: LineTable | None
) -> StageLines:
    """One stage of a kernel.

    Args:
        source: the session.
        kernel: the kernel of the stage.
        name: one of `stage_names`.
        table: the kernel's line table from `load_line_table`, None without one.

    Raises:
        SessionError: the session cannot be read.
    """
    text = source.artifact(kernel.hash, name)
    if table is not None and name == SASS_STAGE and text is None:
        code = enumerate(table.instructions, 1)
        ids = {number: item.op_id for number, item in code if item.op_id is not None}
        return StageLines(name, table.sass_text(), _sass_chains(table), ids)
    if table is not None and table.ops and name in (LLVM_STAGE, PTX_STAGE):
        ops = table.llvm_ops if name == LLVM_STAGE else table.ptx_ops
        chains = {n: table.ops[id_].chains for n, id_ in ops.items() if id_ in table.ops}
        if chains:
            return StageLines(name, text or "", chains, ops)
    frames = source.op_lines(kernel.hash, name)
    chains = {line: (chain,) for line, chain in frames.items()}
    return StageLines(name, text or "", chains, source.op_ids(kernel.hash, name))


def _sass_chains(table: LineTable) -> dict[int, tuple[Frames, ...]]:
    found = {}
    for number, instruction in enumerate(table.instructions, 1):
        op = None if instruction.op_id is None else table.ops.get(instruction.op_id)
        own = (instruction.frames,) if instruction.mapped else ()
        chains = tuple(dict.fromkeys((*own, *(op.chains if op is not None else ()))))
        if chains:
            found[number] = chains
    return found
