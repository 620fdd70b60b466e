"""The figures of a source line that views show, and how they are written: COUNTxBITS a thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tkdebug.linemap.line_counts import LineCounts
from tkdebug.linemap.nvidia.sass import Kind
from tkdebug.linemap.resources import Resources


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
    """`16x32+2x64`, or how many; "" for none."""
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
    """What traffic of local memory is: `spill`, or `stack` of a kernel that spills nothing."""
    return "spill" if resources is None or resources.may_spill else "stack"


def local_cell(counts: LineCounts) -> str:
    """`stores/loads` of local memory; "" for none."""
    both = counts.kinds["local-store"], counts.kinds["local-load"]
    return f"{both[0]}/{both[1]}" if any(both) else ""


def cost_text(counts: LineCounts, resources: Resources | None) -> str:
    """What a line of a kernel that takes `resources` costs: `108 SASS, 163 regs, load 16x16`."""
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
    """What a kernel takes, in a few words: `167 registers, 8,192 bytes shared, occupancy 19 %`."""
    parts = [f"{resources.registers} registers"]
    if resources.shared_bytes:
        parts.append(f"{resources.shared_bytes:,} bytes shared")
    if resources.occupancy is not None:
        parts.append(f"occupancy {resources.occupancy.percent:.0f} %")
    return ", ".join(parts)
