"""Ranks side by side, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.instrument.analyses.ranks import KernelSpread, Ranks
from tkdebug.instrument.text_forms import format_ns, json_text, table_lines
from tkdebug.terminal.text import visible_line

SCHEMA = 1


def ranks_text(ranks: Ranks, width: int | None = None) -> Iterator[str]:
    """Two tables: ranks, and kernels with their slowest rank."""
    longest = max((total.total_ns for total in ranks.totals), default=0)
    rows: list[tuple[str, ...]] = [("rank", "host", "launches", "kernel time", "")]
    for total in ranks.totals:
        notes = ["slowest"] if total.total_ns == longest and len(ranks.totals) > 1 else []
        notes += [] if total.ended else ["did not end: killed, or still running"]
        rows.append(
            (
                str(total.rank),
                visible_line(total.host),
                f"{total.launches:,}",
                format_ns(total.total_ns),
                ", ".join(notes),
            )
        )
    yield from (f"{line}\n" for line in table_lines(rows, width))
    yield "\n"
    titles = ("kernel", "fastest mean", "slowest mean", "slowest", "spread", "skew of starts")
    lines = [titles, *(_cells(spread) for spread in ranks.kernels)]
    yield from (f"{line}\n" for line in table_lines(lines, width))


def _cells(spread: KernelSpread) -> tuple[str, ...]:
    name = visible_line(spread.kernel)
    skew = "-" if spread.skew_ns is None else format_ns(spread.skew_ns)
    if not spread.means_ns:
        return name, "-", "-", "-", "-", skew
    means = spread.means_ns
    return (
        name,
        format_ns(min(means.values())),
        format_ns(means[spread.slowest]),
        f"rank {spread.slowest}",
        f"{100 * (spread.spread - 1):+.1f} %",
        skew,
    )


def ranks_json(ranks: Ranks) -> str:
    """A document of its own."""
    data = {
        "schema": SCHEMA,
        "ranks": [
            {
                "rank": total.rank,
                "host": total.host,
                "launches": total.launches,
                "total_ns": total.total_ns,
                "ended": total.ended,
            }
            for total in ranks.totals
        ],
        "kernels": [
            {
                "kernel": spread.kernel,
                "mean_ns": {str(rank): mean for rank, mean in spread.means_ns.items()},
                "launches": {str(rank): count for rank, count in spread.launches.items()},
                "slowest_rank": spread.slowest if spread.means_ns else None,
                "spread": spread.spread if spread.means_ns else None,
                "skew_ns": spread.skew_ns,
            }
            for spread in ranks.kernels
        ],
    }
    return json_text(data, indent=1) + "\n"
