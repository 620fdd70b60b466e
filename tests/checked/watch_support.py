"""Watched kernels without a GPU: what interpreted Tile IR shows, and what GPU IR records."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from check_support import Launch, copy_of, gpu_ir, launches

from tkdebug.compiler.ir import Module
from tkdebug.compiler.passes.expand_watches import ExpandWatches
from tkdebug.compiler.passes.insert_checks import check_plan
from tkdebug.compiler.passes.pipeline import PassManager
from tkdebug.compiler.sites.checks import CheckPlan
from tkdebug.compiler.sites.watches import records_words
from tkdebug.interpreter.launch import run_module
from tkdebug.interpreter.watching.records import Seen, WatchedLaunch, seen_natively
from tkdebug.watches.in_force import ValueWatch, watch

BUDGET = 1 << 20


def line_of(kernel: object, text: str) -> int:
    """The file's line at which a kernel has `text`."""
    source = kernel.kernel_source
    (place,) = [n for n, line in enumerate(source.lines) if text in line]
    return source.first_line + place


def spot(kernel: object, text: str, name: str, **options: object) -> ValueWatch:
    """A watch of `name` at the line with `text`."""
    return watch(kernel, line_of(kernel, text), name, **options)


@contextmanager
def watched(*watches: Callable[[], ValueWatch]) -> Iterator[list[ValueWatch]]:
    """The watches, in force inside."""
    with ExitStack() as stack:
        yield [stack.enter_context(make()) for make in watches]


def expanded(launch: Launch, budget: int = BUDGET) -> tuple[Module, CheckPlan]:
    """The launch's Tile IR with its watches expanded, and what its records are read by."""
    module = copy_of(launch)
    plan = check_plan(module, budget)
    assert plan is not None
    PassManager((ExpandWatches(budget),), verify_each=True, print_after=()).run(module)
    return module, plan


def recorded(launch: Launch, target: str | None, budget: int = BUDGET) -> Seen:
    """Return the records of the launch's GPU IR, or of its Tile IR if no target is named."""
    module, plan = expanded(launch, budget)
    if target is not None:
        module = gpu_ir(module, target)
    counters = torch.zeros(len(plan.watches), dtype=torch.int64)
    records = torch.full((records_words(plan.watches, budget),), -7, dtype=torch.int64)
    arguments = [*copy.deepcopy(launch.values), counters, records]
    assert run_module(module, arguments, launch.grid) == []
    launched = WatchedLaunch(launch.module.name, 0, launch.grid)
    data = records.numpy().tobytes()
    return seen_natively(plan, launched, counters.tolist(), lambda first, size: data[first:][:size])


def last_launch(run: Callable[[], object]) -> Launch:
    """The last interpreted launch of `run`."""
    return launches(run)[-1]
