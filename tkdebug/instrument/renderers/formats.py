"""The formats of reports: a new one is a module beside this one, and a line here.

Invariant: a renderer is imported when its format is asked for; the command line reads this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tkdebug.errors import UsageError


@dataclass(frozen=True, slots=True)
class Format:
    """A format.

    Attributes:
        name: the name on the command line.
        module: the module in this package; its `render` yields the report in pieces.
        suffix: the suffix of files that are written in it by default; "" for none.
    """

    name: str
    module: str
    suffix: str = ""

    def renderer(self) -> Callable[..., Iterator[str]]:
        """Return the module's `render`, imported when it is first called."""

        def render(*arguments: object) -> Iterator[str]:
            pieces: Iterator[str] = import_module(f"{__package__}.{self.module}").render(*arguments)
            return pieces

        return render


# Formats of `tkdebug report`. A Chrome trace ends in .json, too, and has to be asked for.
REPORTS = (
    Format("text", "text_format", ".txt"),
    Format("json", "json_format", ".json"),
    Format("chrome-trace", "chrome_trace"),
    Format("sarif", "sarif", ".sarif"),
    Format("junit", "junit", ".xml"),
    Format("speedscope", "speedscope"),
    Format("hatchet", "hatchet"),
    Format("csv", "csv_format", ".csv"),
    Format("html", "page", ".html"),
    Format("model", "model_json"),
)
# Formats of `tkdebug passes`; other commands have them except HTML.
PASSES = (
    Format("text", "passes_text", ".txt"),
    Format("json", "passes_json", ".json"),
    Format("html", "passes_html", ".html"),
)


ANSWERS = tuple(one for one in PASSES if one.name != "html")


def format_by_name(path: Path | None, formats: Sequence[Format]) -> str:
    """Return the format by an answer's file name; text without a suffix, or a file.

    Raises:
        UsageError: the name says none of `formats`.
    """
    if path is None:
        return "text"
    suffix = path.suffix.lower()
    found = next((one.name for one in formats if one.suffix == suffix), None)
    if suffix and found is None:
        suffixes = ", ".join(one.suffix for one in formats)
        names = "|".join(one.name for one in formats)
        raise UsageError(
            f"{path}: its name says no format; expected one of {suffixes}, or --format {names}"
        )
    return found or "text"
