"""Runs passes in order, and records the changes and the time of each.

In debug runs (knobs `verify_each`, `print_after`) each pass is followed by the verifier and the
provenance check, or by a print on stderr. Without them, and without a snapshot callback, nothing
is printed, copied or checked, but a plugin's pass always is.

Passes of plugins (entry points `tkdebug.passes`) are inserted where they ask to be in a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tkdebug.compiler.ir.core import Module
from tkdebug.compiler.passes.canonicalize import Canonicalize
from tkdebug.compiler.passes.cleanup import (
    EliminateCommonSubexpressions,
    EliminateDeadCode,
    HoistLoopInvariants,
)
from tkdebug.compiler.passes.dots import RaiseToDot
from tkdebug.compiler.passes.pass_run import ForeignPass, Pass, PassRun, RunCallback, run_pass
from tkdebug.compiler.passes.unroll_loops import UnrollLoops
from tkdebug.knobs import KNOBS
from tkdebug.plugins import loaded, names
from tkdebug.process.apart_imports import import_apart

if TYPE_CHECKING:
    from tkdebug.compiler.passes.checked_runs import Verified

Pipeline = Literal["tile", "gpu"]
_CHECKS = "tkdebug.compiler.passes.checked_runs"


@dataclass(frozen=True, slots=True)
class PassPlugin:
    """The value of an entry point of `tkdebug.passes`.

    Attributes:
        pass_: the pass.
        before: name of the pass before whose first run it runs; "" if `after` is given.
        after: name of the pass after whose last run it runs; "" if `before` is given.
        pipeline: "tile" for passes on Tile IR, which is interpreted or compiled further; "gpu" for
            the passes between Tile IR and lowering.
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


def other_rounds(pass_: Pass) -> frozenset[str]:
    """Names of the pass's rules whose ops belong to other loop iterations than the ops around."""
    if isinstance(pass_, ForeignPass):
        return other_rounds(pass_.pass_)
    found: frozenset[str] = getattr(pass_, "other_rounds", frozenset())
    return found


# Called with the name of the pass and the module as the pass left it, if it changed anything.
SnapshotCallback = Callable[[str, Module], None]

TILE_PIPELINE: tuple[Pass, ...] = (
    Canonicalize(),
    RaiseToDot(),
    UnrollLoops(),
    EliminateCommonSubexpressions(),
    HoistLoopInvariants(),
    EliminateDeadCode(),
)


class PassManager:
    """Runs `passes` over a module.

    Args:
        passes: in the order in which they run.
        verify_each: verify before the first and after each pass; None means the knob.
        print_after: names of passes after which the IR is printed on stderr, "all" for each;
            None means the knob.
    """

    def __init__(
        self,
        passes: Sequence[Pass],
        *,
        verify_each: bool | None = None,
        print_after: Collection[str] | None = None,
    ) -> None:
        self.passes = tuple(passes)
        self._verify_each = verify_each
        self._print_after = print_after

    def run(
        self,
        module: Module,
        *,
        snapshot: SnapshotCallback | None = None,
        on_run: RunCallback | None = None,
    ) -> tuple[PassRun, ...]:
        """Run every pass on `module`, and return the record of each run.

        Args:
            module: the changed module.
            snapshot: called after each pass that changed something.
            on_run: called after each pass, also one that failed.

        Raises:
            IRError: with `verify_each`, the module was broken, or a pass left it broken.
            Exception: a pass raised it; `on_run` is called first. Plugins' passes raise none.
        """
        checking = KNOBS.verify_each if self._verify_each is None else self._verify_each
        shown = KNOBS.print_after if self._print_after is None else self._print_after
        before: Verified | None = None
        is_foreign = any(isinstance(pass_, ForeignPass) for pass_ in self.passes)
        if checking or shown or is_foreign:
            import_apart(_CHECKS)
        if checking:
            from tkdebug.compiler.passes.checked_runs import verified

            before = verified(module)
        runs = []
        for pass_ in self.passes:
            run = _run(pass_, module, on_run)
            runs.append(run)
            if before is not None:
                from tkdebug.compiler.passes.checked_runs import check_run

                before = check_run(run, module, before, on_run)
            if shown and ("all" in shown or run.name in shown):
                from tkdebug.compiler.passes.checked_runs import show

                show(run, module)
            if snapshot is not None and run.changed:
                snapshot(run.name, module)
            if on_run is not None:
                on_run(run, module)
        return tuple(runs)


def run_pipeline(
    module: Module,
    passes: Sequence[Pass] = TILE_PIPELINE,
    *,
    snapshot: SnapshotCallback | None = None,
    on_run: RunCallback | None = None,
) -> tuple[PassRun, ...]:
    """Run `passes` on `module` under the knobs of this process."""
    return PassManager(passes).run(module, snapshot=snapshot, on_run=on_run)


def _run(pass_: Pass, module: Module, on_run: RunCallback | None) -> PassRun:
    if not isinstance(pass_, ForeignPass):
        return run_pass(pass_, module, on_run)
    from tkdebug.compiler.passes.checked_runs import run_foreign

    return run_foreign(pass_, module)


def with_plugins(passes: Sequence[Pass], pipeline: Pipeline) -> tuple[Pass, ...]:
    """`passes` with the passes of plugins for `pipeline` inserted where they ask to be."""
    if not names("tkdebug.passes"):
        return tuple(passes)
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
