"""What may be asked of the passes of a recorded run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PassQuery:
    """What is asked for.

    Attributes:
        kernel: pattern of kernel names, or the beginning of a hash; None for all.
        pass_name: pattern of pass names; None for all.
        only_changed: leave out passes that changed nothing.
        text_diff: also the unified diff of the texts.
        line: "33" (of the kernel's own file) or "file.py:33": follow that line; None for none.
    """

    kernel: str | None = None
    pass_name: str | None = None
    only_changed: bool = False
    text_diff: bool = False
    line: str | None = None
