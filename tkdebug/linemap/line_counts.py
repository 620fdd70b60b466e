"""The work of a kernel's SASS by source line, and how views write it: COUNTxBITS a thread.

An instruction counts for the innermost line of its call chain, and as `inlined` for the lines of
the calls around it. The line of a spilled value is that of the nearest instruction before the
spill that writes the register: an estimate if code branches between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tkdebug.linemap.line_table import Instruction, LineTable
from tkdebug.linemap.nvidia.sass import (
    Kind,
    kind_of,
    opcode,
    stored_register,
    width_bits,
    written_registers,
)
from tkdebug.linemap.parts import Resources

Place = tuple[str, int]


@dataclass(slots=True)
class LineCounts:
    """Counts of the instructions of one source line.

    Attributes:
        instructions: the number of instructions.
        inlined: instructions of device functions that are called on this line.
        kinds: the number of instructions of each kind.
        widths: the number of memory accesses by (kind, bits that a thread moves).
        max_live_registers: the most 32-bit registers in use at one of them, as nvdisasm's data-flow
            analysis finds them; None if it was not asked.
        spilled_values: values made on this line that spills store, an estimate; 0 if the stores to
            local memory are no spills.
    """

    instructions: int = 0
    inlined: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter)
    widths: Counter[tuple[Kind, int]] = field(default_factory=Counter)
    max_live_registers: int | None = None
    spilled_values: int = 0

    def add(self, instruction: Instruction) -> None:
        """Count `instruction`."""
        self.instructions += 1
        if instruction.text:
            kind = kind_of(instruction.text)
            self.kinds[kind] += 1
            bits = width_bits(instruction.text)
            if bits is not None:
                self.widths[kind, bits] += 1
        if instruction.live_registers is not None:
            self.max_live_registers = max(self.max_live_registers or 0, instruction.live_registers)


def count_lines(table: LineTable) -> dict[Place | None, LineCounts]:
    """Count by (file, line); None has the unmapped instructions."""
    counts: dict[Place | None, LineCounts] = {}
    for instruction in table.instructions:
        counts.setdefault(_place(instruction), LineCounts()).add(instruction)
        for place in _callers(instruction):
            counts.setdefault(place, LineCounts()).inlined += 1
    for instruction in spill_sources(table):
        counts[_place(instruction)].spilled_values += 1
    return counts


def totals(table: LineTable) -> LineCounts:
    """Counts of the whole kernel."""
    whole = LineCounts()
    for instruction in table.instructions:
        whole.add(instruction)
    whole.spilled_values = len(spill_sources(table))
    return whole


def spill_sources(table: LineTable) -> list[Instruction]:
    """Return, for each spill, the instruction that wrote the value before, or the spill itself."""
    if table.resources is not None and not table.resources.may_spill:
        return []  # the stored value lies in a stack frame
    writers: dict[int, Instruction] = {}
    sources = []
    for instruction in table.instructions:
        if opcode(instruction.text) == "STL":
            register = stored_register(instruction.text)
            sources.append(writers.get(-1 if register is None else register, instruction))
        for register in written_registers(instruction.text):
            writers[register] = instruction
    return sources


def _place(instruction: Instruction) -> Place | None:
    if not instruction.mapped:
        return None
    return instruction.frames[-1].file, instruction.frames[-1].line


def _callers(instruction: Instruction) -> Iterable[Place]:
    if not instruction.mapped:
        return ()
    own = _place(instruction)
    places = {(frame.file, frame.line) for frame in instruction.frames[:-1]}
    return (place for place in places if place != own)


def counts_data(counts: LineCounts) -> Mapping[str, object]:
    """Counts as JSON-like data."""
    widths: dict[str, dict[str, int]] = {}
    for (kind, bits), count in sorted(counts.widths.items()):
        widths.setdefault(kind, {})[str(bits)] = count
    return {
        "instructions": counts.instructions,
        "inlined": counts.inlined,
        "kinds": {kind: count for kind, count in sorted(counts.kinds.items()) if count},
        "width_bits": widths,
        "max_live_registers": counts.max_live_registers,
        "spilled_values": counts.spilled_values,
    }


@dataclass(frozen=True, slots=True)
class Column:
    """Instructions of some kinds.

    Attributes:
        widths: whether they are listed by the bits that a thread moves.
    """

    title: str
    kinds: tuple[Kind, ...]
    widths: bool = False


COLUMNS = (
    Column("load", ("global-load",), widths=True),
    Column("store", ("global-store",), widths=True),
    Column("async", ("shared-copy",), widths=True),
    Column("lds", ("shared-load",), widths=True),
    Column("sts", ("shared-store",), widths=True),
    Column("atom", ("atomic",)),
    Column("mma", ("tensor-core",)),
    Column("mufu", ("special",)),
    Column("bar", ("barrier",)),
)


def cell(counts: LineCounts, column: Column) -> str:
    """Return `16x32+2x64`, or the number of instructions in other columns; "" for none."""
    number = sum(counts.kinds[kind] for kind in column.kinds)
    if not column.widths or not number:
        return str(number or "")
    widths = sorted(
        ((bits, n) for (kind, bits), n in counts.widths.items() if kind in column.kinds),
        reverse=True,
    )
    known = sum(n for _, n in widths)
    parts = [f"{n}x{bits}" for bits, n in widths]
    return "+".join([*parts, str(number - known)] if number > known else parts)


def local_title(resources: Resources | None) -> str:
    """The name of local-memory traffic: `spill`, or `stack` in a kernel that spills nothing."""
    return "spill" if resources is None or resources.may_spill else "stack"


def local_cell(counts: LineCounts) -> str:
    """`stores/loads` of local memory; "" for none."""
    both = counts.kinds["local-store"], counts.kinds["local-load"]
    return f"{both[0]}/{both[1]}" if any(both) else ""


def cost_text(counts: LineCounts, resources: Resources | None) -> str:
    """The costs of a line in a kernel of `resources`: `108 SASS, 163 regs, load 16x16`."""
    return ", ".join(_costs(counts, local_title(resources)))


def _costs(counts: LineCounts, title: str) -> Iterator[str]:
    yield f"{counts.instructions:,} SASS"
    if counts.inlined:
        yield f"{counts.inlined:,} in calls"
    if counts.max_live_registers is not None:
        yield f"{counts.max_live_registers} regs"
    for column in COLUMNS:
        text = cell(counts, column)
        if text:
            yield f"{column.title} {text}"
    local = local_cell(counts)
    if local:
        yield f"{title} {local}"


def resources_short(resources: Resources) -> str:
    """The resources in a few words: `167 registers, 8,192 bytes shared, occupancy 19 %`."""
    parts = [f"{resources.registers} registers"]
    if resources.shared_bytes:
        parts.append(f"{resources.shared_bytes:,} bytes shared")
    if resources.occupancy is not None:
        parts.append(f"occupancy {resources.occupancy.percent:.0f} %")
    return ", ".join(parts)
