"""The races of a launch, from the log that its checked GPU IR fills."""

from __future__ import annotations

import copy

import torch
from check_support import Launch, copy_of, gpu_ir

from tkdebug import knobs
from tkdebug.checks import RACE
from tkdebug.compiler.ir import Module
from tkdebug.compiler.passes.expand_watches import ExpandWatches
from tkdebug.compiler.passes.insert_checks import InsertChecks, LogAccesses, check_plan
from tkdebug.compiler.passes.pipeline import PassManager
from tkdebug.compiler.sites.checks import CheckOptions, CheckPlan
from tkdebug.compiler.sites.watches import LOG_BYTES, records_words
from tkdebug.interpreter.closer_looks.logged_races import Judged, logged_races
from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor, ReportedLaunch
from tkdebug.interpreter.launch import run_module
from tkdebug.records.events import Fault


def with_log(launch: Launch, log_bytes: int = LOG_BYTES) -> tuple[Module, CheckPlan | None]:
    """The launch's Tile IR with what fills the log; None where it has none."""
    module = copy_of(launch)
    options = CheckOptions(frozenset([RACE]))
    passes = (InsertChecks(options), LogAccesses())
    PassManager(passes, verify_each=True, print_after=()).run(module)
    plan = check_plan(module, log_bytes)
    if plan is not None:
        PassManager((ExpandWatches(log_bytes),), verify_each=True, print_after=()).run(module)
    return module, plan


def raced(launch: Launch, target: str = "sm_80", log_bytes: int = LOG_BYTES) -> Judged | None:
    """Return the races that the launch's GPU IR logs; None if it keeps no log."""
    module, plan = with_log(launch, log_bytes)
    if plan is None:
        return None
    module = gpu_ir(module, target)
    values = copy.deepcopy(launch.values)
    counters = torch.zeros(len(plan.watches), dtype=torch.int64)
    records = torch.zeros(records_words(plan.watches, log_bytes), dtype=torch.int64)
    with knobs.scope(checks=("none",)):
        run_module(module, [*values, counters, records], launch.grid, is_reported=False)
    names = module.function.attributes["arg_names"]
    tensors = {
        name: PassedTensor.of(value)
        for name, value in zip(names, values, strict=False)
        if isinstance(value, torch.Tensor)
    }
    checked = ReportedLaunch(module.name, 0, launch.grid, tensors, launch.arguments)
    content = records.numpy().view("uint8")
    return logged_races(
        plan,
        checked,
        counters.tolist(),
        lambda first, size: content[first : first + size].tobytes(),
    )


def races(faults: list[Fault]) -> list[Fault]:
    """Return the logged pairs that are races."""
    return [fault for fault in faults if fault.kind == "race"]
