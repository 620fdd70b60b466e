"""Tables of text: a name on the left, figures on the right, no line wider than the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tkdebug.terminal.display import cut

# The least width of the first column, if the others leave it no room.
_LEAST_NAME_CHARS = 12


def table_lines(
    rows: Sequence[tuple[str, ...]], width: int | None = None, indent: str = ""
) -> Iterator[str]:
    """The rows as lines, the first of them the titles.

    Args:
        rows: rows of the same number of cells; the first cell of each is set left.
        width: columns of the terminal, None for as wide as it comes. Long names are cut first.
        indent: before each line.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if width is not None:
        rest = len(indent) + sum(2 + size for size in widths[1:])
        widths[0] = min(widths[0], max(width - rest, _LEAST_NAME_CHARS))
    for name, *cells in rows:
        figures = "".join(
            "  " + cell.rjust(size) for cell, size in zip(cells, widths[1:], strict=True)
        )
        yield cut(f"{indent}{cut(name, widths[0]).ljust(widths[0])}{figures}".rstrip(), width)
