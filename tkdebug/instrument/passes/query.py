"""Questions about the passes of a recorded run, and the answer for one kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Parsing a command line into a query must not import the modules that answer it.
    from tkdebug.instrument.passes.diff import PassDiff
    from tkdebug.instrument.passes.kernel_passes import KernelPasses, LineLife, Place


@dataclass(frozen=True, slots=True)
class PassQuery:
    """A question about passes.

    Attributes:
        kernel: pattern of kernel names, or the beginning of a hash; None for all.
        pass_name: pattern of pass names; None for all.
        only_changed: leave out passes that changed nothing.
        text_diff: whether the unified diff of the texts is shown, too.
        line: "33" (of the kernel's own file) or "file.py:33": follow that line; None for none.
    """

    kernel: str | None = None
    pass_name: str | None = None
    only_changed: bool = False
    text_diff: bool = False
    line: str | None = None


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel with the requested passes.

    Attributes:
        diffs: the diffs of the passes asked for.
        life: the life of the line asked for, None if none was.
        source_line: the text of a source line, "" if it was not recorded.
    """

    passes: KernelPasses
    diffs: tuple[PassDiff, ...]
    life: LineLife | None
    query: PassQuery
    source_line: Callable[[Place], str]
