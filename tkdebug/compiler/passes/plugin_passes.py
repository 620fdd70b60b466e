"""Passes of plugins (entry points `tkdebug.passes`), put where they ask to be in a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tkdebug.compiler.ir.core import Module
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.plugins import Plugin, loaded

if TYPE_CHECKING:
    from tkdebug.compiler.passes.pipeline import Pass

Pipeline = Literal["tile", "gpu"]


@dataclass(frozen=True, slots=True)
class PassPlugin:
    """What an entry point of `tkdebug.passes` names.

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


@dataclass(frozen=True, slots=True)
class ForeignPass:
    """A pass of a plugin in a pipeline; `PassManager` checks and undoes what it does."""

    plugin: Plugin
    pass_: Pass

    @property
    def name(self) -> str:
        """The pass's own."""
        return self.pass_.name

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Run it, unguarded."""
        self.pass_.run(module, rewriter)


def with_plugins(passes: Sequence[Pass], pipeline: Pipeline) -> tuple[Pass, ...]:
    """`passes` with those of plugins at their places."""
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
