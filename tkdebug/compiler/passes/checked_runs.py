"""What is checked and printed around passes in debug runs, and always around a plugin's."""

from __future__ import annotations

import time
from dataclasses import replace

from tkdebug.compiler.ir.core import Module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes.invariants import Inventory, check_provenance
from tkdebug.compiler.passes.pass_run import ForeignPass, PassRun, RunCallback, run_pass
from tkdebug.compiler.rewriting.saved_module import SavedModule
from tkdebug.compiler.verifier import verify
from tkdebug.errors import IRError
from tkdebug.terminal.text import tell


def run_foreign(pass_: ForeignPass, module: Module) -> PassRun:
    """Run a plugin's pass, and check what it made; where it fails, the module is as before."""
    if pass_.plugin.problem:
        return PassRun(pass_.name, 0, (), pass_.plugin.problem)
    saved, before = SavedModule(module), Inventory.of(module)
    start_ns = time.perf_counter_ns()
    try:
        run = run_pass(pass_, module, None)
        verify(module)
        check_provenance(run.name, before, Inventory.of(module), run.records)
    except Exception as error:  # another distribution's code may raise anything
        time_ns = time.perf_counter_ns() - start_ns
        saved.restore()
        pass_.plugin.fail(error)
        return PassRun(pass_.name, time_ns, (), pass_.plugin.problem)
    return run


def verified(module: Module) -> Inventory:
    """What is there before the first pass.

    Raises:
        IRError: the module is broken.
    """
    verify(module)
    return Inventory.of(module)


def check_run(
    run: PassRun, module: Module, before: Inventory, on_run: RunCallback | None
) -> Inventory:
    """Check what a pass left, and give what is there then.

    Raises:
        IRError: it left something broken; `on_run` hears of that first.
    """
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


def show(run: PassRun, module: Module) -> None:
    """Print the module on stderr as the pass left it."""
    tell(f"IR of {module.name} after {run.name}:\n{print_module(module)}")
