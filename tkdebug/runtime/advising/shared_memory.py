"""Accesses to shared memory of one launch, and the wavefronts that bank conflicts add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from torch import Tensor

from tkdebug.advice.facts import GATHER, SharedFacts
from tkdebug.compiler.analysis.requests import Integers, held_positions
from tkdebug.compiler.dialects import tt, ttg
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
    gpu: Module,
    executions: Executions,
    warps: int,
    banks: SharedBanks,
    gathers: Mapping[Operation, Tensor],
) -> tuple[SharedFacts, ...]:
    """The ops that access shared memory through registers.

    Args:
        gpu: the module that was lowered.
        executions: the executions of its ops.
        warps: the warps of a program.
        banks: the banks of the target.
        gathers: the indices of each tl.gather of Tile IR in one execution.
    """
    indices = {}
    for op in gpu.walk():
        tile = executions.tile_op(op.id) if tt.Gather.matches(op) else None
        if tile is not None and tile in gathers:
            indices[op.id] = gathers[tile].numpy().astype(np.int64)
    return tuple(_facts(gpu, executions, warps, banks, indices))


def _facts(
    gpu: Module,
    executions: Executions,
    warps: int,
    banks: SharedBanks,
    indices: Mapping[int, Integers],
) -> Iterator[SharedFacts]:
    for op in gpu.walk():
        found = _wavefronts(op, banks)
        if op.id in indices:
            found = _of_gather(op, indices[op.id], warps, banks)
        if found is None:
            continue
        needed, extra, what = found
        runs = executions.of_gpu(op.id) * warps
        frame = op.location.frames[-1]
        yield SharedFacts(op.id, frame, what, (needed + extra) * runs, needed * runs)


def _wavefronts(op: Operation, banks: SharedBanks) -> tuple[float, float, str] | None:
    """Return a warp's needed and added wavefronts, and the kind of access; None for other ops."""
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


def _of_gather(
    op: Operation, indices: Integers, warps: int, banks: SharedBanks
) -> tuple[float, float, str] | None:
    """Return the wavefronts of a gather's reads of a row-major source; None without a layout."""
    layout = encoding_of(op.result.type)
    if layout is None:
        return None
    extents = shape_of(tt.Gather(op).source.type)
    axis, element_bytes = tt.Gather(op).axis, max(1, element_of(op.result.type).bits // 8)
    places = [*np.indices(indices.shape)]
    places = [*places[:axis], indices & (extents[axis] - 1), *places[axis + 1 :]]
    words = np.ravel_multi_index(tuple(places), extents) * element_bytes // banks.word_bytes
    by_access = words.reshape(-1)[held_positions(layout, indices.shape, 1)]
    lanes = min(by_access.shape[1], banks.lanes_per_wavefront(element_bytes))
    together = by_access.reshape(-1, lanes)
    needed = together.shape[0] / warps
    return needed, int(_most_of_a_bank(together, banks).sum()) / warps - needed, GATHER


def _most_of_a_bank(words: Integers, banks: SharedBanks) -> Integers:
    """Maximum number of distinct words in one bank, by row: a bank serves one at a time."""
    ordered = np.sort(words, axis=1)
    is_first = np.ones(ordered.shape, np.bool_)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    counts = np.zeros((ordered.shape[0], banks.count), np.int64)
    rows = np.broadcast_to(np.arange(ordered.shape[0])[:, None], ordered.shape)
    np.add.at(counts, (rows[is_first], ordered[is_first] % banks.count), 1)
    return np.asarray(counts.max(1), np.int64)
