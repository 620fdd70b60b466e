"""Launches of checked kernels by a machine that runs their PTX: as on a GPU, but for its time."""

from __future__ import annotations

import copy
import ctypes
import itertools
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from check_support import ALWAYS, Launch, copy_of, faults_found, for_ends
from native_launches import NotByHandError, packed_scalar
from ptx_machine import Block
from ptx_memory import Memory
from ptx_program import Program

from tkdebug.compiler.ir import PointerType
from tkdebug.compiler.ir.types import ScalarType
from tkdebug.compiler.sites.checks import CheckOptions, CheckPlan
from tkdebug.compiler.sites.live_memory import MEMORY, MemoryMap
from tkdebug.compiler.sites.table import (
    HEADER_BYTES,
    SLOT_BYTES,
    SYMPTOMS,
    VERSION,
    elements_behind,
    reports,
    table_bytes,
)
from tkdebug.compiler.sites.watches import records_words
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen import ptx_stage
from tkdebug.compiler.targets.nvptx.codegen.llvm_stage import LlvmStage
from tkdebug.compiler.targets.nvptx.compile import lower_to_llvm
from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor, ReportedLaunch
from tkdebug.records.events import Fault


def by_ptx(
    launch: Launch,
    options: CheckOptions = ALWAYS,
    target: str = "sm_80",
    knows_ends: bool = True,
) -> tuple[list[Fault], list[Any]]:
    """The faults that the PTX of a checked kernel reports, and what it leaves in memory.

    Args:
        launch: the launch.
        options: what is looked for.
        target: whose code.
        knows_ends: whether it is compiled for where the launch's tensors end.

    Raises:
        NotByHandError: it takes what is not passed here.
    """
    options = for_ends(options, launch) if knows_ends else options
    native = NativeOptions(host_tma_descriptors=False, checks=options)
    module = copy_of(launch)
    lowered = lower_to_llvm(module, native, TARGETS[target])
    plan = lowered.checks
    if plan is None:
        return [], launch.values
    version = ptx_stage.newest_ptx(80, 70, target)
    program = Program(LlvmStage().emit_ptx(lowered.llvm_ir, target, version, lambda _: None)[0])
    values = copy.deepcopy(launch.values)
    tables, shown = tables_of(plan)
    table = tables[HEADER_BYTES:]
    memory_map = np.frombuffer(bytearray(MemoryMap(()).packed(8)), np.uint8)
    packed = []
    for argument, value in zip(
        plan.module.function.regions[0].block.arguments, values, strict=True
    ):
        if isinstance(argument.type, PointerType):
            packed.append(struct.pack("=Q", value.data_ptr()))
        elif isinstance(argument.type, ScalarType):
            packed.append(packed_scalar(argument.type, value))
        else:
            raise NotByHandError("a descriptor")
    words = records_words(plan.watches, plan.watch_bytes)
    counters, records = (np.zeros(8 * max(1, n), np.uint8) for n in (len(plan.watches), words))
    watched = (counters, records) if plan.watches else ()
    for one in (*watched, table, shown[HEADER_BYTES:]):
        packed.append(struct.pack("=Q", one.ctypes.data))
    names = plan.module.function.attributes["arg_names"]
    passed = {n: PassedTensor.of(v) for n, v in zip(names, values, strict=True) if _is_tensor(v)}
    for name in plan.bounds:
        first, size = memory_map.ctypes.data, 1
        end = first + memory_map.size
        if name != MEMORY:
            (first, end), size = passed[name].byte_bounds(), passed[name].dtype.itemsize
        packed += [struct.pack("=Q", place) for place in (first, end)]
        packed.append(struct.pack("=i", elements_behind(first, end, size)))
    packed += [struct.pack("=Q", 0)] * (len(program.parameters) - len(packed))
    own = [tables, shown, memory_map, counters, records]
    memory = Memory([*own, *(_bytes_of(v) for v in values if _is_tensor(v))])
    x, y, z = launch.grid
    for place in itertools.product(range(z), range(y), range(x)):
        where = (tuple(reversed(place)), launch.grid)
        Block(program, packed, memory, where, 32 * lowered.num_warps, lowered.shared_bytes).run()
    expect_shown(plan, table.tobytes(), shown[HEADER_BYTES:].tobytes())
    checked = ReportedLaunch(module.name, 0, launch.grid, passed, launch.arguments)
    return faults_found(plan, with_flags(plan, table, shown), checked, launch), values


def tables_of(plan: CheckPlan) -> tuple[Any, Any]:
    """A launch's table behind its header, and the one that the host sees while it runs."""
    tables, shown = (np.zeros(HEADER_BYTES + table_bytes(len(plan.sites)), np.uint8) for _ in "12")
    tables[:8] = np.frombuffer(struct.pack("=q", shown.ctypes.data - tables.ctypes.data), np.uint8)
    return tables, shown


def with_flags(plan: CheckPlan, table: Any, shown: Any) -> bytes:
    """The table as the host reads it: flags are in what it saw alone."""
    for site in plan.sites:
        if site.is_recomputed:
            at = site.number * SLOT_BYTES
            assert not table[at : at + SLOT_BYTES].any()
            table[at : at + SLOT_BYTES] = shown[HEADER_BYTES + at :][:SLOT_BYTES]
    return bytes(table)


def expect_shown(plan: CheckPlan, table: bytes, shown: bytes) -> None:
    """Assert that the host's last view has all that was found, but for elements only counted."""
    for at in range(0, len(table), SLOT_BYTES):
        # Else the host would not copy the table.
        assert any(shown[at : at + SLOT_BYTES]) or not any(table[at : at + SLOT_BYTES])
    latest = {one.site: one for one in reports(shown)}
    for one in reports(table):
        if plan.sites[one.site].kind != SYMPTOMS:
            seen = latest[one.site]
            assert 0 < seen.count <= one.count
            assert replace(seen, count=one.count) == one
            at = one.site * SLOT_BYTES + VERSION
            assert shown[at : at + 4] == table[at : at + 4]
            assert shown[at] % 2 == 0


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _bytes_of(tensor: torch.Tensor) -> Any:
    """A tensor's allocation, and what a vector that crosses its end takes of its last 16 bytes."""
    storage = tensor.untyped_storage()
    kind = ctypes.c_uint8 * max(1, -(-storage.nbytes() // 16) * 16)
    return np.ctypeslib.as_array(kind.from_address(storage.data_ptr()))
