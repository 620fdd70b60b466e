"""The formats of reports: a new one is a module beside this one, and a line here.

Invariant: a renderer is imported when its format is asked for; the command line reads this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True, slots=True)
class Format:
    """A format.

    Attributes:
        name: on the command line.
        module: in this package; its `render` yields the report in pieces.
        suffix: of files that are written in it unless another is asked for; "" for none.
    """

    name: str
    module: str
    suffix: str = ""

    def renderer(self) -> Callable[..., Iterator[str]]:
        """`render` of the module, imported when it is first called."""

        def render(*arguments: object) -> Iterator[str]:
            pieces: Iterator[str] = import_module(f"{__package__}.{self.module}").render(*arguments)
            return pieces

        return render


# Of `tkdebug report`. A Chrome trace ends in .json, too, and has to be asked for.
REPORTS = (
    Format("text", "text_format", ".txt"),
    Format("json", "json_format", ".json"),
    Format("chrome-trace", "chrome_trace"),
    Format("sarif", "sarif", ".sarif"),
    Format("junit", "junit", ".xml"),
    Format("speedscope", "speedscope"),
    Format("hatchet", "hatchet"),
    Format("csv", "csv_format", ".csv"),
)
# Of `tkdebug passes`.
PASSES = (
    Format("text", "passes_text"),
    Format("json", "passes_json"),
    Format("html", "passes_html"),
)
