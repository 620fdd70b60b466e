"""Passes of plugins (entry points `tkdebug.passes`), put where they ask to be in a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tkdebug.compiler.passes.pass_run import ForeignPass, Pass
from tkdebug.plugins import loaded

Pipeline = Literal["tile", "gpu"]


@dataclass(frozen=True, slots=True)
class PassPlugin:
    """The value of an entry point of `tkdebug.passes`.

    Attributes:
        pass_: the pass.
        before: name of the pass that it runs before, where that runs first; "" if `after` says.
        after: name of the pass that it runs after, where that runs last.
        pipeline: "tile" for Tile IR, which is interpreted and compiled on; "gpu" for the passes
            between it and lowering.
    """

    pass_: Pass
    before: str = ""
    after: str = ""
    pipeline: Pipeline = "tile"

    def __post_init__(self) -> None:
        if bool(self.before) == bool(self.after):
            raise ValueError(f"pass {self.pass_.name}: expected one of `before` and `after`")
        if self.pipeline not in ("tile", "gpu"):
            raise ValueError(f"pass {self.pass_.name}: no pipeline {self.pipeline!r}: tile or gpu")


def with_foreign(passes: Sequence[Pass], pipeline: Pipeline) -> tuple[Pass, ...]:
    """`passes` with the passes of plugins at their places."""
    result = list(passes)
    for plugin, added in loaded("tkdebug.passes", PassPlugin):
        if added.pipeline != pipeline:
            continue
        wanted = added.before or added.after
        places = [place for place, pass_ in enumerate(result) if pass_.name == wanted]
        if not places:
            plugin.fail(f"the {pipeline} pipeline has no pass {wanted!r}")
            continue
        place = places[0] if added.before else places[-1] + 1
        result.insert(place, ForeignPass(plugin, added.pass_))
    return tuple(result)
