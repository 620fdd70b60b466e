"""What plugins measured of kernels, by source line, as sessions keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from tkdebug.errors import Frame
from tkdebug.records.storage import REPEATED, SHORT, stored


@stored("instrumentation", indices=("plugin",))
@dataclass(frozen=True, slots=True)
class Instrumented:
    """What a plugin measured of an op in one launch.

    Attributes:
        plugin: the entry point's name.
        op: name of the Tile IR's op.
        frames: call chain of its line, outermost first.
        seen: how often the op ran in the programs that were asked for.
        measured: how often it was measured: the others were not recorded for want of room.
        totals: by the fields of the plugin's record, its numbers added up.
    """

    plugin: Annotated[str, SHORT]
    kernel: str
    op: str
    frames: Annotated[tuple[Frame, ...], REPEATED]
    launch_id: int
    seen: int
    measured: int
    totals: Mapping[str, float]
