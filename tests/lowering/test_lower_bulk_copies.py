"""Bulk copies by tensor maps: boxes, swizzles and mbarriers as lowered; run by the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_tma import SimulatedMap
from single_op import Piece

from tkdebug.compiler.analysis.tensor_maps import landing_layout, messages, tensor_map
from tkdebug.compiler.ir.types import SCALARS, TensorType, layout_text
from tkdebug.compiler.layouts import REGISTER, blocked
from tkdebug.compiler.layouts.shared import shared
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate

NUMPY = {"f16": np.float16, "f32": np.float32, "i8": np.uint8, "f64": np.float64}
BLOCKS = [
    ((64, 64), "f16"), ((16, 128), "f16"), ((32, 32), "f16"), ((16, 16), "f16"), ((64, 8), "f16"),
    ((512, 16), "f16"), ((8, 64), "f32"), ((16, 128), "i8"), ((8, 16), "f64"), ((4, 4, 64), "f16"),
    ((2, 2, 8, 128), "i8"),
]  # fmt: skip


def described(shape, element):
    block = TensorType(shape, SCALARS[element])
    buffer = layout_text(landing_layout(block))
    dims = "x".join(map(str, shape))
    rank = len(shape)
    tile = blocked((1,) * rank, (*[1] * (rank - 1), 32), (*[1] * (rank - 2), 4, 1),
                   tuple(reversed(range(rank))), shape)  # fmt: skip
    tile = layout_text(tile.without_zero_bases(REGISTER))
    return (
        block,
        f"!tt.tensordesc<tensor<{dims}x{element}>>",
        f"{dims}x{element}, {buffer}",
        (f"tensor<{dims}x{element}, {tile}>"),
    )


WORD = layout_text(shared((1,), 1, 1, 1, (0,)))
WORDS, ONE = f"!ttg.memdesc<1x1xi64, {WORD}, mutable>", f"!ttg.memdesc<1xi64, {WORD}, mutable>"


def load_text(shape, element):
    """A block from a descriptor to registers; the phases of two rounds are waited for."""
    block, descriptor, buffer, tile = described(shape, element)
    starts = [f"%s{axis}" for axis in range(len(shape))]
    memory = f"!ttg.memdesc<{buffer}, mutable>"
    types = ", ".join([descriptor, memory, ONE, "i1", *["i32"] * len(shape)])
    size = block.size_elems * block.element.bits // 8
    copy = f"""\
  ttng.barrier_expect %b, %true {{size_bytes = {size}}} : {ONE}, i1
  ttng.async_tma_copy_global_to_local %d, %m, %b, %true, {", ".join(starts)} : {types}
  ttng.wait_barrier %b, PHASE : {ONE}, i32
"""
    return f"""
tt.func @k(%d: {descriptor}, {", ".join(f"{s}: i32" for s in starts)}) {{
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %true = arith.constant 1 : i1
  %m = ttg.local_alloc : () -> {memory}
  %w = ttg.local_alloc : () -> {WORDS}
  %b = ttg.memdesc_index %w, %zero : ({WORDS}, i32) -> {ONE}
  ttng.init_barrier %b {{count = 1}} : {ONE}
  ttng.fence_async_shared
  gpu.barrier
{copy.replace("PHASE", "%zero")}{copy.replace("PHASE", "%one")}\
  %r = ttg.local_load %m : {memory} -> {tile}
  gpu.barrier
  ttng.inval_barrier %b : {ONE}
  tt.return
}}
"""


def store_text(shape, element):
    _, descriptor, buffer, tile = described(shape, element)
    starts = [f"%s{axis}" for axis in range(len(shape))]
    memory = f"!ttg.memdesc<{buffer}>"
    types = ", ".join([descriptor, memory, *["i32"] * len(shape)])
    return f"""
tt.func @k(%d: {descriptor}, {", ".join(f"{s}: i32" for s in starts)}, %x: {tile}) {{
  %m = ttg.local_alloc %x : {tile} -> {memory}
  ttng.fence_async_shared
  gpu.barrier
  ttng.async_tma_copy_local_to_global %d, %m, {", ".join(starts)} : {types}
  ttng.async_tma_store_wait {{pendings = 0}}
  tt.return
}}
"""


def tensor_of(shape, element):
    """A tensor some larger than a block, and the start of one that reaches outside."""
    sizes = tuple(size + 3 * (axis + 1) for axis, size in enumerate(shape))
    numbers = np.random.default_rng(0).integers(1, 100, sizes).astype(NUMPY[element])
    return numbers, tuple((5, -2)[axis % 2] for axis in range(len(shape)))


def padded(tensor, start, shape):
    found = np.zeros(shape, tensor.dtype)
    grids = np.meshgrid(*(np.arange(n) + s for n, s in zip(shape, start, strict=True)),
                        indexing="ij")  # fmt: skip
    inside = np.logical_and.reduce(
        [(0 <= g) & (g < n) for g, n in zip(grids, tensor.shape, strict=True)]
    )
    found[inside] = tensor[tuple(g[inside] for g in grids)]
    return found, inside


def simulated(block, tensor):
    map_ = tensor_map(block, "zero")
    return SimulatedMap(tensor, map_.box, map_.swizzle_bytes)


@pytest.mark.parametrize(("shape", "element"), BLOCKS)
def test_loaded_block_lies_as_its_buffer_says(shape, element):
    block = described(shape, element)[0]
    tensor, start = tensor_of(shape, element)
    piece = Piece(load_text(shape, element), 4)
    found = piece.run(0, *start, tensor_maps=[simulated(block, tensor)])[-1]
    assert (found == padded(tensor, start, shape)[0]).all()


@pytest.mark.parametrize(("shape", "element"), BLOCKS)
def test_stored_block_is_cut_where_the_tensor_ends(shape, element):
    block = described(shape, element)[0]
    tensor, start = tensor_of(shape, element)
    before, (_, inside) = tensor.copy(), padded(tensor, start, shape)
    tile = np.random.default_rng(1).integers(1, 100, shape).astype(NUMPY[element])
    piece = Piece(store_text(shape, element), 4)
    piece.run(0, *start, tile, tensor_maps=[simulated(block, tensor)])
    assert piece.simulator.is_committed
    found, _ = padded(tensor, start, shape)
    assert (found[inside] == tile[inside]).all()
    assert (tensor != before).sum() <= inside.sum()


@pytest.mark.parametrize(("shape", "element"), BLOCKS)
def test_ptxas_takes_it(shape, element):
    for text in (load_text(shape, element), store_text(shape, element)):
        code = generate(Piece(text, 4).llvm_ir(), "k", TARGETS["sm_90a"])
        assert f"cp.async.bulk.tensor.{len(shape)}d." in code.ptx
        assert ".param .align 64 .b8 k_param_0[128]" in code.ptx


def test_boxes_are_as_wide_as_the_swizzle_and_no_longer_than_the_hardware_allows():
    block = described((512, 128), "f16")[0]
    assert tensor_map(block, "zero").box == (256, 64)
    assert [(m.start, m.offset_bytes) for m in messages(block)] == [
        ((0, 0), 0), ((0, 64), 512 * 128), ((256, 0), 256 * 128), ((256, 64), 768 * 128),
    ]  # fmt: skip
