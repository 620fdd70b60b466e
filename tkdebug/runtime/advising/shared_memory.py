"""Accesses to shared memory of one launch, and what bank conflicts add to them."""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.advice.facts import SharedFacts
from tkdebug.compiler.dialects import ttg
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.types import MemDescType, element_of, encoding_of, shape_of
from tkdebug.compiler.layouts import (
    LANE,
    REGISTER,
    LayoutError,
    LinearLayout,
    SharedBanks,
    SharedTrip,
    bank_conflicts,
    classify_conversion,
)
from tkdebug.runtime.advising.executions import Executions


def shared_facts(
    gpu: Module, executions: Executions, warps: int, banks: SharedBanks
) -> tuple[SharedFacts, ...]:
    """The ops that access shared memory through registers."""
    return tuple(_facts(gpu, executions, warps, banks))


def _facts(
    gpu: Module, executions: Executions, warps: int, banks: SharedBanks
) -> Iterator[SharedFacts]:
    for op in gpu.walk():
        found = _wavefronts(op, banks)
        if found is None:
            continue
        needed, extra, what = found
        runs = executions.of_gpu(op.id) * warps
        frame = op.location.frames[-1]
        yield SharedFacts(op.id, frame, what, (needed + extra) * runs, needed * runs)


def _wavefronts(op: Operation, banks: SharedBanks) -> tuple[float, int, str] | None:
    """Wavefronts of one warp that are needed, and those that conflicts add; None for others."""
    try:
        if ttg.ConvertLayout.matches(op):
            return _of_conversion(op, banks)
        if ttg.LocalLoad.matches(op):
            return _of_buffer(op.result, ttg.LocalLoad(op).buffer, "load", banks)
        if ttg.LocalStore.matches(op):
            store = ttg.LocalStore(op)
            return _of_buffer(store.source, store.buffer, "store", banks)
        source = ttg.LocalAlloc(op).source if ttg.LocalAlloc.matches(op) else None
        return None if source is None else _of_buffer(source, op.result, "store", banks)
    except LayoutError:
        return None  # a part of a buffer: how it lies is known to lowering only


def _of_conversion(op: Operation, banks: SharedBanks) -> tuple[float, int, str] | None:
    source, target = encoding_of(ttg.ConvertLayout(op).source.type), encoding_of(op.result.type)
    if source is None or target is None:
        return None
    element_bytes = max(1, element_of(op.result.type).bits // 8)
    plan = classify_conversion(source, target, element_bytes, banks)
    if not isinstance(plan, SharedTrip):
        return None
    trips = len(plan.stores) + len(plan.loads)
    access = source.in_size(LANE) * plan.vector * element_bytes
    needed = trips * max(1.0, access / banks.row_bytes)
    return needed, plan.store_conflicts + plan.load_conflicts, "conversion between layouts"


def _of_buffer(
    tile: Value, buffer: Value, what: str, banks: SharedBanks
) -> tuple[float, int, str] | None:
    layout, type_ = encoding_of(tile.type), buffer.type
    assert isinstance(type_, MemDescType)
    if layout is None or shape_of(tile.type) != type_.layout.shape:
        return None
    aligned: LinearLayout = type_.layout.transpose_outs(layout.out_dims)
    extra = bank_conflicts(layout, aligned, type_.element_bytes, banks)
    size = layout.in_size(REGISTER) * layout.in_size(LANE) * type_.element_bytes
    # A load of operands may be made by ldmatrix, whose rows the buffer's swizzle spreads.
    if what == "load" and type_.element_bytes <= 2:
        extra = 0
    return max(1.0, size / banks.row_bytes), extra, what
