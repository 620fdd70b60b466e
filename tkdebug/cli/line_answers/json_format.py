"""`tkdebug lines --format json`: schema 1, described in docs/json.md."""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.cli.line_answers.answer import answer, not_found
from tkdebug.cli.line_answers.kernel_lines import KernelLines
from tkdebug.cli.line_answers.query import LinesQuery
from tkdebug.errors import Frame, UsageError
from tkdebug.instrument.json_text import json_text
from tkdebug.linemap.line_counts import count_lines, counts_data, totals
from tkdebug.linemap.line_table import Trace
from tkdebug.linemap.line_table_data import to_data

SCHEMA = 1


def render_json(kernels: Sequence[KernelLines], query: LinesQuery) -> str:
    """All kernels, or where `query` names a place, those that have it.

    Raises:
        UsageError: no kernel has the place.
    """
    if not query.is_place:
        data = [_kernel(kernel) for kernel in kernels]
    else:
        traces = [(kernel, answer(kernel, query)) for kernel in kernels]
        data = [_traced(kernel, trace) for kernel, trace in traces if trace.found]
        if not data:
            raise UsageError(not_found(kernels, query))
    return json_text({"schema": SCHEMA, "kernels": data}, indent=1) + "\n"


def _head(kernel: KernelLines) -> dict[str, object]:
    table = kernel.table
    mapped = sum(instruction.mapped for instruction in table.instructions)
    return {
        "name": kernel.name,
        "hash": kernel.hash or None,
        "signature": kernel.signature or None,
        "file": kernel.file or None,
        "line": kernel.line or None,
        "target": table.target,
        "instructions": len(table.instructions),
        "mapped": mapped,
        "mapped_percent": round(table.mapped_percent, 2),
    }


def _kernel(kernel: KernelLines) -> dict[str, object]:
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
        **_head(kernel),
        "totals": counts_data(totals(kernel.table)),
        "lines": lines,
        "unmapped": counts_data(counts[None]) if None in counts else None,
        "table": to_data(kernel.table),
    }


def _traced(kernel: KernelLines, trace: Trace) -> dict[str, object]:
    table = kernel.table
    code = [i for i in table.instructions if i.address in set(trace.addresses)]
    ops = [table.ops[op_id] for op_id in dict.fromkeys((*trace.tile_ops, *trace.gpu_ops))]
    return {
        **_head(kernel),
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
    """A call chain, outermost first."""
    return [{"file": f.file, "line": f.line, "function": f.function} for f in chain]
