"""Kernels checked three ways without a GPU: interpreted, as GPU IR with checks, and as PTX."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from check_recorder import CheckRecorder, SymptomObserver

import tkdebug
import tkdebug.interpreter.launch
from tkdebug import knobs
from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes.insert_checks import InsertChecks, check_plan
from tkdebug.compiler.passes.pipeline import PassManager
from tkdebug.compiler.sites.checks import CheckOptions, CheckPlan
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.pipeline import gpu_pipeline
from tkdebug.interpreter.closer_looks.closer_look import look_closer, needs_closer_look
from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor, ReportedLaunch
from tkdebug.interpreter.closer_looks.reports import faults_of, host_faults, merged
from tkdebug.interpreter.launch import run_module
from tkdebug.interpreter.memory.address_registry import ADDRESSES
from tkdebug.interpreter.replay import Parameters
from tkdebug.records.events import Fault
from tkdebug.runtime.checked.passed_arguments import PassedArguments

NUM_WARPS = 4
ALWAYS = CheckOptions()


@dataclass(frozen=True)
class Launch:
    """An interpreted launch, as the compiler and the interpreter got it."""

    module: Module
    values: list[Any]
    grid: tuple[int, int, int]
    faults: list[Fault]
    arguments: Mapping[str, object]
    after: list[Any]


def launches(run: Callable[[], object]) -> list[Launch]:
    """Return the launches of `run`, interpreted."""
    seen: list[Launch] = []

    def spy(module: Module, values: Sequence[Any], grid: Any, *rest: Any, **keywords: Any) -> Any:
        before = copy.deepcopy(list(values))
        text = print_module(module, locations=True)
        keywords = {**keywords, "is_reported": False}
        faults = run_module(module, values, grid, *rest, **keywords)
        kept = parse_module(text)
        given = keywords.get("arguments") or {}
        seen.append(Launch(kept, before, grid, faults, given, list(values)))
        return faults

    with (
        mock.patch.object(tkdebug.interpreter.launch, "run_module", spy),
        tkdebug.mode("interpret"),
    ):
        run()
    return seen


def divisibility(value: object) -> int:
    """Return the facts of an argument that native compilation has."""
    number = value.data_ptr() if isinstance(value, torch.Tensor) else value
    return 16 if isinstance(number, int) and number % 16 == 0 else 1


def copy_of(launch: Launch) -> Module:
    """The launch's Tile IR, with what native compilation would know of its arguments."""
    module = parse_module(print_module(launch.module, locations=True))
    module.function.attributes["num_warps"] = NUM_WARPS
    module.function.attributes["arg_divisibility"] = tuple(map(divisibility, launch.values))
    return module


def for_ends(options: CheckOptions, launch: Launch) -> CheckOptions:
    """Return the checks of a launch, with the facts of its tensors that its build has."""
    names = launch.module.function.attributes["arg_names"]
    aligned = PassedArguments(names, launch.values).aligned_ends
    return dataclasses.replace(options, aligned_ends=aligned)


def with_checks(launch: Launch, options: CheckOptions = ALWAYS) -> tuple[Module, CheckPlan]:
    """The launch's Tile IR with sites, and what its reports are read by."""
    module = copy_of(launch)
    PassManager((InsertChecks(options),), verify_each=True, print_after=()).run(module)
    plan = check_plan(module)
    assert plan is not None
    return module, plan


def gpu_ir(module: Module, target: str, stages: int = 3) -> Module:
    """`module` after the GPU passes of a target."""
    module.function.attributes["target"] = target
    passes = gpu_pipeline(TARGETS[target], stages, host_tma_descriptors=False)
    PassManager(passes, verify_each=True, print_after=()).run(module)
    return module


def reported(
    launch: Launch, target: str, options: CheckOptions = ALWAYS, is_all: bool = True
) -> tuple[list[Fault], list[Any]]:
    """The faults that the launch's GPU IR reports by its checks, and what it leaves in memory.

    Args:
        launch: the launch.
        target: whose GPU IR.
        options: what is looked for.
        is_all: whether there are no other faults than those.
    """
    module, plan = with_checks(launch, options)
    module = gpu_ir(module, target)
    arguments = copy.deepcopy(launch.values)
    recorder = CheckRecorder(plan, module.name, launch.grid)
    looking = [SymptomObserver(module, recorder)]
    with knobs.scope(checks=("none",)):
        other = run_module(module, arguments, launch.grid, log=recorder, observers=looking)
    assert not (is_all and other)
    names = module.function.attributes["arg_names"]
    tensors = {
        name: PassedTensor.of(value)
        for name, value in zip(names, arguments, strict=True)
        if isinstance(value, torch.Tensor)
    }
    known = tuple(PassedTensor.of(tensor) for tensor in ADDRESSES.known().tensors)
    checked = ReportedLaunch(module.name, 0, launch.grid, tensors, launch.arguments, known)
    return faults_found(plan, recorder.table(), checked, launch), arguments


def faults_found(
    plan: CheckPlan, table: bytes, checked: ReportedLaunch, launch: Launch
) -> list[Fault]:
    """The faults that are in a table, and those that a closer look adds."""
    faults = merged(faults_of(plan, table, checked), host_faults(plan, checked))
    if not needs_closer_look(plan, table, faults) or Parameters.of(plan.module) is None:
        return faults
    return look_closer(plan, table, checked, copy.deepcopy(launch.values), faults)
