"""Benchmark sweeps: run a function over x values and lines, print a table, save CSV and plots.

Needs neither pandas nor matplotlib: the table is printed as pandas prints it, CSV written by hand.
pandas is used only to return a DataFrame, matplotlib only to plot. Under the `quick` knob each
benchmark takes its first x value only.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tkdebug.errors import UsageError
from tkdebug.knobs import KNOBS
from tkdebug.terminal.text import tell


@dataclass
class Benchmark:
    """One sweep.

    Attributes:
        x_names: arguments that vary along x.
        x_vals: the values: a scalar for all arguments, or a sequence with one for each.
        line_arg: the argument that differs from line to line.
        line_vals: the values of the lines.
        line_names: labels of the lines.
        plot_name: title, and name of the files written.
        args: further arguments, the same throughout.
        xlabel: label of x; the first x name by default.
        ylabel: label of y.
        x_log: logarithmic x axis.
        y_log: logarithmic y axis.
        styles: (colour, line style) per line.
    """

    x_names: Sequence[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: Mapping[str, Any]
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] | None = None


@dataclass(frozen=True)
class SweepTable:
    """The results of one sweep.

    Attributes:
        columns: headings.
        rows: a value per column; None if there is none.
        lows: smallest y of each line and row, None if the function gave none.
        highs: largest y of each line and row.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    lows: tuple[tuple[float | None, ...], ...] = ()
    highs: tuple[tuple[float | None, ...], ...] = ()

    def to_string(self) -> str:
        """The table as text, in the form of pandas' `DataFrame.to_string`."""
        columns = [
            _right_aligned([heading, *_cells([row[index] for row in self.rows])])
            for index, heading in enumerate(self.columns)
        ]
        count = len(self.rows)
        indices = [str(row) for row in range(count)]
        width = max((len(index) for index in indices), default=0)
        labels = ["".ljust(width), *(index.ljust(width) for index in indices)]
        return "\n".join("  ".join(cells) for cells in zip(labels, *columns, strict=True))

    def to_csv(self, path: Path, precision: int) -> None:
        """Write the table as CSV; floats get `precision` decimals."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            for row in self.rows:
                writer.writerow([_csv_cell(value, precision) for value in row])

    def to_dataframe(self) -> Any:
        """The table as a pandas DataFrame.

        Raises:
            UsageError: pandas is not installed.
        """
        if find_spec("pandas") is None:
            raise UsageError("perf_report: return_df=True needs pandas; pip install pandas")
        import pandas

        return pandas.DataFrame(list(self.rows), columns=list(self.columns))


def _cells(values: Sequence[Any]) -> list[str]:
    """Return a column's cells with the decimals that its values need, six at most, as pandas."""
    numbers = [v for v in values if isinstance(v, float | int) and not isinstance(v, bool)]
    if len(numbers) != len([v for v in values if v is not None]):
        return ["None" if value is None else str(value) for value in values]
    texts = ["NaN" if value is None else f"{float(value):.6f}" for value in values]
    decimals = [text.rpartition(".")[2] for text in texts if "." in text]
    needed = max((len(part.rstrip("0")) for part in decimals), default=0)
    cut = 6 - max(1, needed)
    return [text[:-cut] if cut and "." in text else text for text in texts]


def _right_aligned(cells: Sequence[str]) -> list[str]:
    width = max(len(cell) for cell in cells)
    return [cell.rjust(width) for cell in cells]


def _csv_cell(value: Any, precision: int) -> str:
    if value is None:
        return ""
    return f"{value:.{precision}f}" if isinstance(value, float) else str(value)


class Mark:
    """A benchmark function with its sweeps; `run` runs them."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str | Path = "",
        return_df: bool = False,
        diff_col: bool = False,
        save_precision: int = 6,
        **kwargs: Any,
    ) -> Any:
        """Run the sweeps.

        Args:
            show_plots: open a window per sweep; needs matplotlib.
            print_data: print each table on stdout.
            save_path: directory for `<plot_name>.csv`, and `.png` where matplotlib is installed.
            return_df: return a DataFrame, or a list of them for several sweeps; needs pandas.
            diff_col: add the difference of the two columns of a table that has two.
            save_precision: decimals in the CSV.
            kwargs: further arguments of the benchmark function.

        Returns:
            None, unless `return_df`.
        """
        given = self.benchmarks
        benchmarks = [given] if isinstance(given, Benchmark) else given
        directory = Path(save_path) if save_path else None
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        tables = []
        try:
            for benchmark in benchmarks:
                table = self._sweep(benchmark, kwargs)
                shown = _with_difference(table) if diff_col else table
                tables.append(shown)
                if print_data:
                    print(f"{benchmark.plot_name}:")
                    print(shown.to_string())
                if directory is not None:
                    shown.to_csv(directory / f"{benchmark.plot_name}.csv", save_precision)
                if benchmark.plot_name and (show_plots or directory is not None):
                    _plot(benchmark, table, show_plots, directory)
        finally:
            if directory is not None:
                _write_index(directory, [b.plot_name for b in benchmarks[: len(tables)]])
        if not return_df:
            return None
        frames = [table.to_dataframe() for table in tables]
        return frames[0] if isinstance(given, Benchmark) else frames

    def _sweep(self, benchmark: Benchmark, kwargs: Mapping[str, Any]) -> SweepTable:
        names = list(benchmark.x_names)
        rows, lows, highs = [], [], []
        x_vals = list(benchmark.x_vals)
        for x in x_vals[:1] if KNOBS.quick else x_vals:
            values = list(x) if isinstance(x, list | tuple) else [x] * len(names)
            if len(values) != len(names):
                raise UsageError(
                    f"benchmark {benchmark.plot_name}: got x value {x!r}, "
                    f"expected {len(names)} values for {', '.join(names)}"
                )
            fixed = {**dict(zip(names, values, strict=True)), **benchmark.args, **kwargs}
            spreads = [
                _spread(self.fn(**fixed, **{benchmark.line_arg: y})) for y in benchmark.line_vals
            ]
            rows.append((*values, *(middle for middle, _, _ in spreads)))
            lows.append(tuple(low for _, low, _ in spreads))
            highs.append(tuple(high for _, _, high in spreads))
        labels = [f"{name} ({benchmark.ylabel})" for name in benchmark.line_names]
        return SweepTable((*names, *labels), tuple(rows), tuple(lows), tuple(highs))


def _spread(result: Any) -> tuple[Any, float | None, float | None]:
    """Return (y, smallest, largest) from a benchmark function's result: one number or three."""
    try:
        middle, low, high = result
    except TypeError:
        return result, None, None
    return middle, low, high


def _with_difference(table: SweepTable) -> SweepTable:
    if len(table.columns) != 2:
        return table
    rows = tuple((*row, row[1] - row[0]) for row in table.rows)
    return SweepTable((*table.columns, "Diff"), rows, table.lows, table.highs)


def _plot(benchmark: Benchmark, table: SweepTable, show: bool, directory: Path | None) -> None:
    if find_spec("matplotlib") is None:
        if show:
            tell("no plot: matplotlib is not installed")
        return
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    x = [row[0] for row in table.rows]
    first_line = len(benchmark.x_names)
    for line in range(len(benchmark.line_names)):
        colour, style = benchmark.styles[line] if benchmark.styles else (None, None)
        y = [row[first_line + line] for row in table.rows]
        label = table.columns[first_line + line]
        axes.plot(x, y, label=label, color=colour, linestyle=style)
        low: list[Any] = [values[line] for values in table.lows]
        high: list[Any] = [values[line] for values in table.highs]
        if None not in low and None not in high:
            axes.fill_between(x, low, high, alpha=0.15, color=colour)
    axes.legend()
    axes.set_xlabel(benchmark.xlabel or benchmark.x_names[0])
    axes.set_ylabel(benchmark.ylabel)
    axes.set_xscale("log" if benchmark.x_log else "linear")
    axes.set_yscale("log" if benchmark.y_log else "linear")
    if directory is not None:
        figure.savefig(directory / f"{benchmark.plot_name}.png")
    if show:
        plt.show()
    plt.close(figure)


def _write_index(directory: Path, plot_names: Sequence[str]) -> None:
    images = "".join(f'<image src="{name}.png"/>\n' for name in plot_names)
    (directory / "results.html").write_text(f"<html><body>\n{images}</body></html>\n")


def perf_report(
    benchmarks: Benchmark | Sequence[Benchmark],
) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator: make a function a sweep, or several; call `.run(…)` on the result.

    Args:
        benchmarks: the sweeps.
    """

    def decorate(fn: Callable[..., Any]) -> Mark:
        return Mark(fn, benchmarks)

    return decorate
