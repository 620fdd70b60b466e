"""`tkdebug lines` as text and as JSON, whose schema docs/json.md describes.

The text has sources with the costs of each line, or one place in all stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tkdebug.cli.line_answers.kernel_lines import (
    KernelLines,
    LinesQuery,
    answer,
    not_found,
    place_text,
)
from tkdebug.errors import Frame, UsageError, shown_path
from tkdebug.findings.launch_counts import access_tests
from tkdebug.instrument.text_forms import json_text
from tkdebug.linemap.line_counts import (
    COLUMNS,
    Column,
    LineCounts,
    Place,
    cell,
    count_lines,
    counts_data,
    local_cell,
    local_title,
    totals,
)
from tkdebug.linemap.line_table import AssemblerNote, Trace
from tkdebug.linemap.line_table_data import to_data
from tkdebug.linemap.parts import LocalFunction, Resources, holding
from tkdebug.terminal.display import cut, fitted
from tkdebug.terminal.text import visible_line

SCHEMA = 1
_LEGEND = """\
SASS: instructions of the line; via: of functions it calls, shown at their own lines. regs: most
registers in use. Accesses are counted as COUNTxBITS a thread. spill: stores/loads of spilled
registers; value: spilled values that were made on the line (an estimate where code branches).
stack: stores/loads of a stack frame that ptxas made though it spilled nothing.
"""
_SHOWN_OPTIONS = ("num_warps", "num_stages")


def render_text(kernels: Sequence[KernelLines], query: LinesQuery, width: int | None = None) -> str:
    """All kernels' annotated sources, or if `query` names a place, everything that belongs to it.

    Args:
        kernels: the kernels to show.
        query: the question.
        width: columns that tables must keep to, None for any.

    Raises:
        UsageError: no kernel has the place.
    """
    if query.is_place:
        traces = [(kernel, answer(kernel, query)) for kernel in kernels]
        found = [(kernel, trace) for kernel, trace in traces if trace.found]
        if not found:
            raise UsageError(not_found(kernels, query))
        return "\n".join("\n".join(_traced(k, trace, query, width)) + "\n" for k, trace in found)
    pieces = ["\n".join(_annotated(kernel, width)) + "\n" for kernel in kernels]
    return "\n".join(pieces) + f"\n{_LEGEND}\n" + "".join(_figures(kernels, width))


def _figures(kernels: Sequence[KernelLines], width: int | None) -> Iterator[str]:
    names = [visible_line(kernel.name) for kernel in kernels]
    rest = [f"  {'target':7} {'SASS':>6}  mapped to source lines"]
    for kernel in kernels:
        table = kernel.table
        rest.append(
            f"  {table.target:7} {len(table.instructions):6}  {table.mapped_percent:5.1f} %"
        )
    room = None if width is None else max(width - max(map(len, rest)), 12)
    shown = [cut(name, room) for name in ("kernel", *names)]
    size = max(map(len, shown))
    yield from (f"{name:{size}}{figures}\n" for name, figures in zip(shown, rest, strict=True))


def _heading(kernel: KernelLines, width: int | None) -> Iterator[str]:
    where = f"  {shown_path(kernel.file)}:{kernel.line}" if kernel.file else ""
    digest = f"  [{kernel.hash[:12]}]" if kernel.hash else ""
    build = f"  {kernel.build} build: not what runs by itself" if kernel.build else ""
    yield f"{visible_line(kernel.name)} for {kernel.table.target}{where}{digest}{build}"
    options = ", ".join(
        f"{name}={kernel.options[name]}" for name in _SHOWN_OPTIONS if name in kernel.options
    )
    if kernel.signature:
        yield fitted(f"  {kernel.signature}", f" {options}", width)


def resources_text(resources: Resources) -> list[str]:
    """Registers, spills, shared memory; occupancy and its limits."""
    parts = [f"{resources.registers} registers"]
    if resources.spill_store_bytes is None:
        parts.append(f"{resources.stack_bytes} bytes of local memory")
    elif resources.spill_store_bytes or resources.spill_load_bytes:
        parts.append(
            f"spills {resources.spill_store_bytes} bytes of stores, "
            f"{resources.spill_load_bytes} of loads a thread"
        )
    elif resources.stack_bytes:
        parts.append(f"no spills, a stack frame of {resources.stack_bytes} bytes")
    else:
        parts.append("no spills")
    dynamic = resources.dynamic_shared_bytes
    shared = f"{resources.shared_bytes:,} bytes of shared memory"
    parts.append(shared if dynamic is not None else f"{shared} and what the launch adds")
    if resources.threads is not None:
        parts.append(f"{resources.threads} threads")
    lines = [", ".join(parts)]
    fits = resources.occupancy
    if fits is not None:
        limits = ", ".join(f"{name} {most}" for name, most in fits.limits.items())
        lines.append(
            f"occupancy {fits.percent:.0f} %: {fits.warps} of {fits.max_warps} warps, "
            f"{fits.blocks} blocks a multiprocessor, limited by {' and '.join(fits.limited_by)} "
            f"(blocks by {limits})"
        )
    return lines


def _note_text(note: AssemblerNote) -> str:
    words = f"ptxas {note.code}: {note.message}"
    if not note.frames:
        return words
    frame = note.frames[-1]
    return f"{shown_path(frame.file)}:{frame.line}: {words}"


def _annotated(kernel: KernelLines, width: int | None) -> Iterator[str]:
    table = kernel.table
    yield from _heading(kernel, width)
    if table.resources is not None:
        yield from (f"  {line}" for line in resources_text(table.resources))
    yield from (f"  {_note_text(note)}" for note in table.notes)
    tests = access_tests(table.tests).text
    yield from (f"  checked: {tests}",) if tests else ()
    counts = count_lines(table)
    unmapped = counts[None].instructions if None in counts else 0
    yield (
        f"  {len(table.instructions)} SASS instructions, {table.mapped_percent:.1f} % mapped to "
        f"source lines ({unmapped} are compiler-generated or without a line)"
    )
    rowless = sum(i.opcode.endswith("GMMA") and not i.mapped for i in table.instructions)
    if rowless:
        yield f"  {rowless} of them are wgmma: the cubin has no row for them, as ptxas writes none"
    for function in table.local_functions:
        count = sum(
            function.start <= i.address < function.end and not i.mapped for i in table.instructions
        )
        if count:
            yield f"  {count} of them are of {_called_from(function)}"
    if not table.has_sass:
        yield "  without nvdisasm: padding counts too; pip install nvidia-cuda-nvdisasm"
    whole = totals(table)
    columns = [c for c in COLUMNS if any(whole.kinds[kind] for kind in c.kinds)]
    places = {place: count for place, count in counts.items() if place is not None}
    rows = [_Row(line, places, kernel) for line in _shown_lines(kernel, places)]
    yield from _table(rows, columns, whole, local_title(table.resources), width)


def _called_from(function: LocalFunction) -> str:
    name = visible_line(function.readable_name)
    places = sorted({(c[-1].file, c[-1].line) for c in function.callers if c})
    if not places:
        return f"{name}: its calls have no line"
    where = ", ".join(f"{shown_path(file)}:{line}" for file, line in places)
    return f"{name}, called from {where}"


class _Row:
    """One shown source line."""

    def __init__(
        self, place: Place | None, places: Mapping[Place, LineCounts], kernel: KernelLines
    ) -> None:
        self.place = place
        self.counts = places.get(place) if place is not None else None
        self.text = "" if place is None else kernel.source_line(*place) or ""


def _shown_lines(kernel: KernelLines, places: Mapping[Place, LineCounts]) -> list[Place | None]:
    """The kernel's source throughout, then lines elsewhere; None is a gap or a new file."""
    own = range(kernel.line, kernel.line + len(kernel.source.splitlines()))
    shown: list[Place | None] = [(kernel.file, line) for line in own]
    rest = sorted(p for p in places if not (p[0] == kernel.file and p[1] in own))
    for place in rest:
        before = shown[-1] if shown else None
        if before is None or before[0] != place[0] or place[1] > before[1] + 1:
            shown.append(None)
        shown.append(place)
    return shown


def _table(
    rows: Sequence[_Row],
    columns: Sequence[Column],
    whole: LineCounts,
    local: str,
    width: int | None,
) -> Iterator[str]:
    titles = ["line", "SASS", "via", "regs", *(column.title for column in columns)]
    uses_local = bool(whole.kinds["local-store"] or whole.kinds["local-load"])
    titles += [local, "value"] if uses_local else []
    cells = [titles]
    for row in rows:
        number = "…" if row.place is None else str(row.place[1])
        cells.append([number, *_cells(row.counts, columns, uses_local)])
    cells.append(["all", *_cells(whole, columns, uses_local)])
    shown = {"via": any(row[2] for row in cells[1:]), "value": local == "spill"}
    used = [n for n, title in enumerate(titles) if shown.get(title, True)]
    sizes = {n: max(len(row[n]) for row in cells) for n in used}
    file = ""
    yield "  ".join(f"{cells[0][n]:>{sizes[n]}}" for n in used) + "  source"
    for row, values in zip(rows, cells[1:-1], strict=True):
        if row.place is not None and row.place[0] != file:
            file = row.place[0]
            yield f"-- {shown_path(file)}"
        line = "  ".join(f"{values[n]:>{sizes[n]}}" for n in used)
        # A tab takes more columns than it counts.
        text = row.text if width is None else row.text.expandtabs()
        yield cut(f"{line}  {text}".rstrip(), width)
    yield "  ".join(f"{cells[-1][n]:>{sizes[n]}}" for n in used)


def _cells(counts: LineCounts | None, columns: Sequence[Column], uses_local: bool) -> list[str]:
    if counts is None:
        return [""] * (3 + len(columns) + 2 * uses_local)
    cells = [str(counts.instructions or ""), str(counts.inlined or "")]
    registers = counts.max_live_registers
    cells.append("" if registers is None else str(registers))
    cells += [cell(counts, column) for column in columns]
    if uses_local:
        cells.append(local_cell(counts))
        cells.append(str(counts.spilled_values or ""))
    return cells


def _traced(
    kernel: KernelLines, trace: Trace, query: LinesQuery, width: int | None
) -> Iterator[str]:
    yield from _heading(kernel, width)
    if not trace.chains:
        function = next((holding(kernel.table.local_functions, at) for at in trace.addresses), None)
        why = (
            "compiler-generated, or without a line" if function is None else _called_from(function)
        )
        yield f"{place_text(query)}: of no source line: {why}"
    for chain in trace.chains:
        yield from _chain(kernel, chain, _column(kernel, trace, chain))
    for stage in kernel.stages:
        lines = stage.lines_of(trace)
        if lines:
            yield f"{stage.name}:"
            width = len(str(lines[-1][0]))
            for number, text in lines:
                op_id = stage.op_ids.get(number)
                op = f"#{op_id}" if op_id is not None else ""
                yield f"  {number:>{width}} {op:>6}  {text}"
    yield from _sass(kernel, trace)


def _column(kernel: KernelLines, trace: Trace, chain: Sequence[Frame]) -> int:
    """Column of the only op, 0 if there are several."""
    if len(trace.gpu_ops) != 1:
        return 0
    op = kernel.table.ops[trace.gpu_ops[0]]
    return op.column if op.chains[0] == tuple(chain) else 0


def _chain(kernel: KernelLines, chain: Sequence[Frame], column: int) -> Iterator[str]:
    here = chain[-1]
    place = f"{shown_path(here.file)}:{here.line}" + (f":{column}" if column else "")
    yield f"{place} in {here.function}"
    text = kernel.source_line(here.file, here.line)
    if text:
        yield f"    {text.strip()}"
    for frame in reversed(chain[:-1]):
        yield f"  called from {shown_path(frame.file)}:{frame.line} in {frame.function}"


def _sass(kernel: KernelLines, trace: Trace) -> Iterator[str]:
    wanted = set(trace.addresses)
    code = [i for i in kernel.table.instructions if i.address in wanted]
    if not code:
        yield "sass: none"
        return
    yield "sass:"
    for i in code:
        op = "" if i.op_id is None else f"#{i.op_id}"
        ptx = "" if i.ptx_line is None else f"ptx {i.ptx_line}"
        live = "" if i.live_registers is None else f"{i.live_registers} regs"
        yield f"  0x{i.address:04x} {op:>6}  {i.text:56} {ptx:9} {live}".rstrip()


def render_json(kernels: Sequence[KernelLines], query: LinesQuery) -> str:
    """All kernels, or if `query` names a place, the kernels that have it.

    Raises:
        UsageError: no kernel has the place.
    """
    if not query.is_place:
        data = [_kernel_data(kernel) for kernel in kernels]
    else:
        traces = [(kernel, answer(kernel, query)) for kernel in kernels]
        data = [_traced_data(kernel, trace) for kernel, trace in traces if trace.found]
        if not data:
            raise UsageError(not_found(kernels, query))
    return json_text({"schema": SCHEMA, "kernels": data}, indent=1) + "\n"


def _head_data(kernel: KernelLines) -> dict[str, object]:
    table = kernel.table
    mapped = sum(instruction.mapped for instruction in table.instructions)
    return {
        "name": kernel.name,
        "hash": kernel.hash or None,
        "variant": kernel.variant or None,
        "signature": kernel.signature or None,
        "file": kernel.file or None,
        "line": kernel.line or None,
        "target": table.target,
        "instructions": len(table.instructions),
        "mapped": mapped,
        "mapped_percent": round(table.mapped_percent, 2),
    }


def _kernel_data(kernel: KernelLines) -> dict[str, object]:
    counts = count_lines(kernel.table)
    lines = [
        {
            "file": place[0],
            "line": place[1],
            "source": kernel.source_line(*place),
            **counts_data(counts[place]),
        }
        for place in sorted(place for place in counts if place is not None)
    ]
    return {
        **_head_data(kernel),
        "totals": counts_data(totals(kernel.table)),
        "lines": lines,
        "unmapped": counts_data(counts[None]) if None in counts else None,
        "table": to_data(kernel.table),
    }


def _traced_data(kernel: KernelLines, trace: Trace) -> dict[str, object]:
    table = kernel.table
    code = [i for i in table.instructions if i.address in set(trace.addresses)]
    ops = [table.ops[op_id] for op_id in dict.fromkeys((*trace.tile_ops, *trace.gpu_ops))]
    return {
        **_head_data(kernel),
        "chains": [frames_data(chain) for chain in trace.chains],
        "ops": [
            {
                "id": op.id,
                "tile_name": op.tile_name,
                "gpu_name": op.gpu_name,
                "column": op.column or None,
                "origins": list(op.origins),
                "chains": [frames_data(chain) for chain in op.chains],
            }
            for op in ops
        ],
        "stages": {
            stage.name: [{"line": n, "text": text} for n, text in stage.lines_of(trace)]
            for stage in kernel.stages
        },
        "sass": [
            {
                "address": i.address,
                "text": i.text,
                "kind": i.kind,
                "ptx_line": i.ptx_line,
                "op_id": i.op_id,
                "live_registers": i.live_registers,
            }
            for i in code
        ],
    }


def frames_data(chain: Sequence[Frame]) -> list[dict[str, object]]:
    """Return a call chain as JSON data, outermost first."""
    return [{"file": f.file, "line": f.line, "function": f.function} for f in chain]
