"""The figures of a source line, as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from table_support import make_table

from tkdebug.linemap.line_counts import COLUMNS, LineCounts, cell, cost_text


def test_accesses_are_distinguished_by_width_and_the_rest_is_counted() -> None:
    counts = LineCounts(
        instructions=12,
        kinds=Counter({"global-load": 7, "barrier": 1}),
        widths=Counter({("global-load", 32): 4, ("global-load", 128): 2}),
    )
    cells = {column.title: cell(counts, column) for column in COLUMNS}
    assert cells["load"] == "2x128+4x32+1"  # one of a width that is not known
    assert cells["bar"] == "1"
    assert cells["store"] == ""


def test_cost_of_a_line_names_what_there_is() -> None:
    counts = LineCounts(
        instructions=1234,
        inlined=5,
        max_live_registers=40,
        kinds=Counter({"tensor-core": 2, "local-store": 3, "local-load": 4}),
    )
    costs = "1,234 SASS, 5 in calls, 40 regs, mma 2, {} 3/4"
    assert cost_text(counts, None) == costs.format("spill")
    resources = make_table().resources
    assert resources is not None
    assert cost_text(counts, resources) == costs.format("spill")
    unspilled = replace(resources, spill_store_bytes=0, spill_load_bytes=0)
    assert cost_text(counts, unspilled) == costs.format("stack")
    assert cost_text(LineCounts(instructions=1), None) == "1 SASS"
