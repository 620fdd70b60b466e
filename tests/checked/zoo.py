"""The interpreter's tests, as a zoo: each launch that has faults is run as a checked kernel, too.

Its faults have to be the interpreted ones, field by field. A kernel is run as instrumented GPU IR,
or as PTX, which take no GPU, or natively. What may differ is in `DIFFERENT`, with its reason.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from check_support import Launch, reported

import tkdebug.interpreter.launch
from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.sites.checks import ALL_KINDS, UNWRITTEN, CheckOptions
from tkdebug.interpreter.launch import run_module
from tkdebug.knobs import KNOBS
from tkdebug.records.events import Fault
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor

# The modules of tests/interpreter whose launches are compared.
MODULES = (
    "test_faults",
    "test_checks",
    "test_offset_overflow",
    "test_undefined_values",
    "test_assumptions",
    "test_check_inf",
    "test_masked_weights",
    "test_misaligned_descriptors",
)
# Those that checked kernels look for.
KINDS = {
    *ALL_KINDS,
    *("between-elements", "misaligned-descriptor", "negative-remainder"),
}
_ATOMIC = "atomics are not tested for marks of unwritten memory"
# By test: why its faults are others.
DIFFERENT = {
    "test_atomic_on_what_nothing_has_written": _ATOMIC,
    "test_lock_that_nothing_has_written": _ATOMIC,
    "test_rows_of_bytes_that_are_read_as_words": "views with gaps are known in their own elements",
}


class SkippedError(Exception):
    """Why a launch is not run again."""


Run = Callable[[Launch, CheckOptions], list[Fault]]


def as_gpu_ir(launch: Launch, options: CheckOptions) -> list[Fault]:
    """Return the reports of the launch's instrumented GPU IR."""
    if any(isinstance(value, TensorDescriptor) for value in launch.values):
        raise SkippedError("a descriptor, whose parts are other parameters of GPU IR")
    return reported(launch, "sm_80", options, is_all=False)[0]


def natively(launch: Launch, options: CheckOptions) -> list[Fault]:
    """Return the reports of the launch's checked kernel on a GPU."""
    import native_launches

    try:
        return native_launches.natively(launch, options)[0]
    except native_launches.NotByHandError as error:
        raise SkippedError(str(error)) from error


def by_ptx(launch: Launch, options: CheckOptions) -> list[Fault]:
    """Return the reports of the PTX of the launch's checked kernel, run without a GPU."""
    import machine_launches
    import native_launches
    import ptx_machine

    try:
        return machine_launches.by_ptx(launch, options)[0]
    except (native_launches.NotByHandError, ptx_machine.UnknownPtxError) as error:
        raise SkippedError(str(error)) from error


RUNS: dict[str, Run] = {"gpu-ir": as_gpu_ir, "native": natively, "ptx": by_ptx}


class Zoo:
    """Compares launches as they come by.

    Attributes:
        compared: how many were.
        differences: what was not the same.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._is_busy = False
        self.compared = 0
        self.differences: list[str] = []

    def interpreted(
        self, module: Module, values: Any, grid: Any, *rest: Any, **keywords: Any
    ) -> Any:
        """In the place of `run_module`."""
        if self._is_busy:
            return run_module(module, values, grid, *rest, **keywords)
        self._is_busy = True
        try:
            text, before = print_module(module, locations=True), copy.deepcopy(list(values))
            faults = run_module(module, values, grid, *rest, **keywords)
            expected = [fault for fault in faults if fault.kind in KINDS]
            if expected:
                kept, given = parse_module(text), keywords.get("arguments") or {}
                self._compare(Launch(kept, before, grid, expected, given, list(values)))
            return faults
        finally:
            self._is_busy = False

    def _compare(self, launch: Launch) -> None:
        left_out = {kind for kind in ("nan", "inf", UNWRITTEN) if kind not in KNOBS.checks}
        options = CheckOptions(frozenset(ALL_KINDS) - left_out)
        try:
            reports = self._run(launch, options)
        except SkippedError:
            return
        found, expected = (
            sorted((replace(fault, launch_id=0, kernel="") for fault in faults), key=str)
            for faults in (reports, launch.faults)
        )
        self.compared += 1
        for missing in expected:
            if missing not in found:
                self.differences.append(f"not reported: {missing}")
        self.differences += [f"reported: {fault}" for fault in found if fault not in expected]


@contextmanager
def zoo(run: Run) -> Iterator[Zoo]:
    """Compare the launches that are interpreted within."""
    found = Zoo(run)
    differential = sys.modules.get("differential")
    with mock.patch.object(tkdebug.interpreter.launch, "run_module", found.interpreted):
        if differential is None:
            yield found
        else:
            with mock.patch.object(differential, "_real_run", found.interpreted):
                yield found
