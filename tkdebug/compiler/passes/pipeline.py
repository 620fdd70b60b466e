"""Runs passes in order, and says what each did and how long it took.

In debug runs (knobs `verify_each`, `print_after`) each pass is followed by the verifier and the
provenance check, or by a print on stderr. Without them, and without a snapshot callback, nothing
is printed, copied or checked, but a plugin's pass always is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tkdebug.compiler.ir.core import Module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes.canonicalize import Canonicalize
from tkdebug.compiler.passes.common_subexpressions import EliminateCommonSubexpressions
from tkdebug.compiler.passes.dead_code import EliminateDeadCode
from tkdebug.compiler.passes.invariants import Inventory, check_provenance
from tkdebug.compiler.passes.loop_invariants import HoistLoopInvariants
from tkdebug.compiler.passes.plugin_passes import ForeignPass
from tkdebug.compiler.passes.raise_to_dot import RaiseToDot
from tkdebug.compiler.passes.unroll_loops import UnrollLoops
from tkdebug.compiler.rewriting.rewriter import PassRemark, Rewriter, RewriteRecord
from tkdebug.compiler.rewriting.saved_module import SavedModule
from tkdebug.compiler.verifier import verify
from tkdebug.errors import IRError
from tkdebug.knobs import KNOBS
from tkdebug.terminal_text import tell


class Pass(Protocol):
    """One transformation of a module; its fields are its options."""

    @property
    def name(self) -> str:
        """As on the command line: `eliminate-dead-code`."""
        ...

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Change `module` through `rewriter`, and commit."""
        ...


def other_rounds(pass_: Pass) -> frozenset[str]:
    """The rules of a pass whose ops belong to other rounds of a loop than those around them."""
    if isinstance(pass_, ForeignPass):
        return other_rounds(pass_.pass_)
    found: frozenset[str] = getattr(pass_, "other_rounds", frozenset())
    return found


@dataclass(frozen=True, slots=True)
class PassRun:
    """What one pass did in one run.

    Attributes:
        time_ns: of the pass alone, without checks and snapshots.
        error: why it failed, "" when it did not.
        remarks: why it left ops as they are.
    """

    name: str
    time_ns: int
    records: tuple[RewriteRecord, ...]
    error: str = ""
    remarks: tuple[PassRemark, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the module is another than before."""
        return bool(self.records)


# Called with the name of the pass and the module as the pass left it, if it changed anything.
SnapshotCallback = Callable[[str, Module], None]
# Called with every pass's run, and the module as it left it; also when the pass failed.
RunCallback = Callable[[PassRun, Module], None]

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
        """Run every pass on `module`, which they change.

        Args:
            module: what is changed.
            snapshot: called after each pass that changed something.
            on_run: called after each pass, also one that failed.

        Raises:
            IRError: a pass failed, or (with `verify_each`) left something broken.
        """
        checking = KNOBS.verify_each if self._verify_each is None else self._verify_each
        shown = KNOBS.print_after if self._print_after is None else self._print_after
        before: Inventory | None = None
        if checking:
            verify(module)
            before = Inventory.of(module)
        runs = []
        for pass_ in self.passes:
            if isinstance(pass_, ForeignPass):
                run = _run_foreign(pass_, module)
            else:
                run = _run_pass(pass_, module, on_run)
            runs.append(run)
            if before is not None:
                before = _check(run, module, before, on_run)
            if shown and ("all" in shown or run.name in shown):
                text = print_module(module)
                tell(f"IR of {module.name} after {run.name}:\n{text}")
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


def _run_pass(pass_: Pass, module: Module, on_run: RunCallback | None) -> PassRun:
    rewriter = Rewriter(module, pass_.name)
    start_ns = time.perf_counter_ns()
    try:
        pass_.run(module, rewriter)
        rewriter.commit()
    except Exception as error:
        if on_run is not None:
            time_ns = time.perf_counter_ns() - start_ns
            reason = str(error) or type(error).__name__
            on_run(PassRun(pass_.name, time_ns, tuple(rewriter.records), reason), module)
        raise
    time_ns = time.perf_counter_ns() - start_ns
    remarks = tuple({(one.op_id, one.kind): one for one in rewriter.remarks}.values())
    return PassRun(pass_.name, time_ns, tuple(rewriter.records), remarks=remarks)


def _run_foreign(pass_: ForeignPass, module: Module) -> PassRun:
    """Run a plugin's pass, and check what it made; where it fails, the module is as before."""
    if pass_.plugin.problem:
        return PassRun(pass_.name, 0, (), pass_.plugin.problem)
    saved, before = SavedModule(module), Inventory.of(module)
    start_ns = time.perf_counter_ns()
    try:
        run = _run_pass(pass_, module, None)
        verify(module)
        check_provenance(run.name, before, Inventory.of(module), run.records)
    except Exception as error:  # another distribution's code may raise anything
        time_ns = time.perf_counter_ns() - start_ns
        saved.restore()
        pass_.plugin.fail(error)
        return PassRun(pass_.name, time_ns, (), pass_.plugin.problem)
    return run


def _check(
    run: PassRun, module: Module, before: Inventory, on_run: RunCallback | None
) -> Inventory:
    try:
        verify(module)
        after = Inventory.of(module)
        check_provenance(run.name, before, after, run.records)
    except IRError as error:
        if on_run is not None:
            on_run(replace(run, error=str(error)), module)
        if run.name in str(error):
            raise
        broken = IRError(f"{error} (after pass {run.name})")
        broken.__notes__ = getattr(error, "__notes__", [])
        raise broken from error
    return after
