"""The launches as CSV (RFC 4180): a head line, then a line for each launch.

Cells that a spreadsheet would take for a formula begin with an apostrophe.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from tkdebug.instrument.records import FaultGroup, Launch
from tkdebug.instrument.renderers.json_format import recorded_launches
from tkdebug.instrument.session import Session

COLUMNS = (
    "launch",
    "process",
    "rank",
    "kernel",
    "kernel_hash",
    "mode",
    "grid_x",
    "grid_y",
    "grid_z",
    "num_warps",
    "num_stages",
    "stream",
    "device",
    "start_ns",
    "device_start_ns",
    "duration_ns",
    "time_source",
    "scopes",
    "error",
)
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def render(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    """The table in pieces of text; faults are not in it."""
    yield _line(COLUMNS)
    for launch in recorded_launches(session):
        yield _line(_cells(launch))


def _cells(launch: Launch) -> tuple[object, ...]:
    options = launch.options
    return (
        launch.id,
        launch.process,
        launch.rank,
        _text(launch.kernel),
        launch.kernel_hash,
        launch.mode,
        *launch.grid,
        options.get("num_warps"),
        options.get("num_stages"),
        launch.stream,
        launch.device,
        launch.start_ns,
        launch.device_start_ns,
        launch.duration_ns,
        launch.time_source,
        _text(" > ".join(launch.scopes)),
        _text(launch.error or ""),
    )


def _text(text: str) -> str:
    """Return text on one line that no spreadsheet takes for a formula."""
    flat = " ".join(text.split("\n"))
    return f"'{flat}" if flat.startswith(_FORMULAS) else flat


def _line(cells: tuple[object, ...]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()
