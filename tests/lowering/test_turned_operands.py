"""Operands of wgmma that are brought to lie along K, through registers, run by the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from single_op import Piece

from tkdebug.compiler.ir.types import layout_text
from tkdebug.compiler.layouts import LANE, REGISTER, WARP, blocked, nvmma_shared, turning
from tkdebug.compiler.layouts.shared import shared
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import plan_vectors

# element, its bytes, tile (K and the other dimension), bytes of the swizzle
CASES = [("i8", 1, 128, 128, 128), ("i8", 1, 32, 64, 32), ("f32", 4, 32, 128, 128)]
NUM_WARPS = 4


def layouts(k_dim, size_bytes, k, other, swizzle):
    """Return the tile in registers, the first buffer, the turned values, and the second buffer."""
    shape = (k, other) if k_dim == 0 else (other, k)
    together = 16 // size_bytes
    phases = min(4, k // together, other // (2 * together))
    first = shared(shape, 2 * together, together, phases, (1 - k_dim, k_dim))
    second = nvmma_shared(shape, swizzle, 8 * size_bytes, transposed=k_dim == 0)
    tile = blocked((1, 4), (4, 8), (NUM_WARPS, 1), (1, 0), shape).without_zero_bases(REGISTER)
    turned = turning(shape, k_dim, together, NUM_WARPS).without_zero_bases(REGISTER)
    return shape, tile, first, turned, second


@pytest.mark.parametrize("k_dim", [0, 1])
@pytest.mark.parametrize(("element", "size_bytes", "k", "other", "swizzle"), CASES)
def test_tile_is_the_same_afterwards(element, size_bytes, k, other, swizzle, k_dim):
    shape, tile, first, turned, second = layouts(k_dim, size_bytes, k, other, swizzle)
    of = f"{shape[0]}x{shape[1]}x{element}"
    given, moved = (f"tensor<{of}, {layout_text(x)}>" for x in (tile, turned))
    one, two = (f"!ttg.memdesc<{of}, {layout_text(x)}>" for x in (first, second))
    piece = Piece(
        f"""
tt.func @k(%x: {given}) {{
  %1 = ttg.local_alloc %x : {given} -> {one}
  gpu.barrier
  %2 = ttg.local_load %1 : {one} -> {moved}
  %3 = ttg.local_alloc %2 : {moved} -> {two}
  gpu.barrier
  %4 = ttg.local_load %3 : {two} -> {given}
  tt.return
}}
""",
        NUM_WARPS,
    )
    x = np.random.default_rng(0).integers(-128, 128, shape)
    (found,) = piece.run(x)
    assert (found.view(np.int8 if element == "i8" else np.float32) == x).all()
    text = piece.ctx.emit.module("test")
    if element == "i8":
        # Three permutes for each word, of which LLVM makes two: pairs of them are the same.
        words = max(16, k * other // 4 // (32 * NUM_WARPS))
        assert text.count("prmt.b32") == 3 * words
    else:
        assert "prmt" not in text


@pytest.mark.parametrize("k_dim", [0, 1])
@pytest.mark.parametrize(("size_bytes", "k"), [(1, 128), (4, 32)])
def test_no_bank_is_met_twice(size_bytes, k, k_dim):
    _, _, first, turned, second = layouts(k_dim, size_bytes, k, 128, 128)
    for buffer, access_bytes in ((first, 4 * size_bytes), (second, 16)):
        plan = plan_vectors(turned, buffer, size_bytes)
        assert {len(group) * size_bytes for group in plan.groups} == {access_bytes}
        to_offset = turned.invert_and_compose(buffer)
        at_once = 128 // access_bytes
        for start in range(0, 32, at_once):
            for register in (group[0] for group in plan.groups):
                places = {
                    to_offset.apply({REGISTER: register, LANE: start + i, WARP: 0})["offset"]
                    * size_bytes
                    // access_bytes
                    % at_once
                    for i in range(at_once)
                }
                assert len(places) == at_once
