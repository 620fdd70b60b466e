"""Shared-memory buffers: tiles of any layout stored, loaded, viewed; run by the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from single_op import Piece

from tkdebug.compiler.ir.types import layout_text
from tkdebug.compiler.layouts import REGISTER, blocked, dot_operand, mma_v2, nvmma_shared, wgmma
from tkdebug.compiler.layouts.shared import shared
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate

SHAPE = (64, 64)
REGISTERS = {
    "rows": blocked((1, 8), (4, 8), (4, 1), (1, 0), SHAPE),
    "columns": blocked((4, 1), (16, 2), (1, 4), (0, 1), SHAPE),
    "accumulators": mma_v2(SHAPE, (2, 2)),
    "warp group": wgmma(SHAPE, (4, 1), 64),
    "operand a": dot_operand(mma_v2(SHAPE, (2, 2)), 0, 2, SHAPE),
    "operand b": dot_operand(mma_v2(SHAPE, (2, 2)), 1, 2, SHAPE),
    "tf32 operand": dot_operand(mma_v2(SHAPE, (2, 2)), 0, 1, SHAPE),
}
BUFFERS = {
    "plain": shared(SHAPE, 1, 1, 1, (1, 0)),
    "swizzled": shared(SHAPE, 8, 1, 8, (1, 0)),
    "columns": shared(SHAPE, 8, 1, 8, (0, 1)),
    "wgmma": nvmma_shared(SHAPE, 128, 16),
}


def trip_text(source, buffer, target, element):
    tile = f"64x64x{element}"
    memory = f"!ttg.memdesc<{tile}, {layout_text(buffer)}, mutable>"
    x, y = (f"tensor<{tile}, {layout_text(ll)}>" for ll in (source, target))
    return f"""
tt.func @k(%x: {x}) {{
  %m = ttg.local_alloc : () -> {memory}
  ttg.local_store %x, %m : {x}, {memory}
  gpu.barrier
  %r = ttg.local_load %m : {memory} -> {y}
  tt.return
}}
"""


@pytest.mark.parametrize("target", REGISTERS)
@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("element", ["i16", "i32", "i8"])
def test_load_gives_what_store_put(buffer, target, element):
    x = np.random.default_rng(0).integers(0, 100, SHAPE)
    text = trip_text(REGISTERS["rows"], BUFFERS[buffer], REGISTERS[target], element)
    (found,) = Piece(text, 4).run(x)
    assert (found == x).all()


@pytest.mark.parametrize("source", REGISTERS)
@pytest.mark.parametrize("element", ["i1", "f32", "f64", "bf16"])
def test_store_from_any_layout(source, element):
    x = np.random.default_rng(0).integers(0, 2, SHAPE)
    text = trip_text(REGISTERS[source], BUFFERS["swizzled"], REGISTERS["columns"], element)
    (found,) = Piece(text, 4).run(x)
    assert (found == x).all()


@pytest.mark.parametrize(
    ("target", "buffer", "element", "expected"),
    [
        ("operand a", "swizzled", "f16", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("operand a", "columns", "f16", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
        ("operand b", "swizzled", "bf16", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
        ("operand b", "columns", "f16", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("operand a", "wgmma", "f16", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("tf32 operand", "swizzled", "f32", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("rows", "swizzled", "f16", "ld.shared.v4.b32"),
    ],
)
def test_operands_are_read_in_the_widest_way(target, buffer, element, expected):
    text = trip_text(REGISTERS["rows"], BUFFERS[buffer], REGISTERS[target], element)
    code = generate(Piece(text, 4, "sm_80").llvm_ir(), "k", TARGETS["sm_80"])
    assert expected in code.ptx


@pytest.mark.parametrize(
    ("source", "buffer", "expected"),
    [
        ("warp group", "wgmma", "stmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("warp group", "columns", "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
        ("accumulators", "swizzled", "stmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("rows", "swizzled", "st.shared.v4.b32"),
    ],
)
def test_fragments_are_written_by_matrix(source, buffer, expected):
    text = trip_text(REGISTERS[source], BUFFERS[buffer], REGISTERS["rows"], "f16")
    x = np.random.default_rng(0).integers(0, 100, SHAPE)
    (found,) = Piece(text, 4).run(x)
    assert (found == x).all()
    code = generate(Piece(text, 4).llvm_ir(), "k", TARGETS["sm_90a"])
    assert code.ptx.count(expected) == 4
    assert ("st.shared" in code.ptx) is (source == "rows")


PARTS = """
tt.func @k(%x: tensor<64x64xi16, {x}>) {{
  %m = ttg.local_alloc : () -> {both}
  %i = arith.constant 1 : i32
  %n = ttg.memdesc_index %m, %i : ({both}, i32) -> {one}
  ttg.local_store %x, %n : tensor<64x64xi16, {x}>, {one}
  gpu.barrier
  %t = ttg.memdesc_trans %n {{order = [1, 0]}} : {one} -> {flipped}
  %p = ttg.memdesc_subslice %t {{offsets = [{at}, 16]}} : {flipped} -> {part}
  %r = ttg.local_load %p : {part} -> tensor<32x16xi16, {y}>
  tt.return
}}
"""


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("kind", ["rows", "operand"])
def test_a_part_of_a_transposed_buffer(buffer, kind):
    target = blocked((2, 2), (8, 4), (2, 2), (1, 0), (32, 16))
    if kind == "operand":
        target = dot_operand(mma_v2((32, 32), (2, 2)), 0, 2, (32, 16)).without_zero_bases(REGISTER)
    memory = BUFFERS[buffer]
    flipped = memory.transpose_outs(("dim1", "dim0")).rename_outs({"dim1": "dim0", "dim0": "dim1"})
    text = PARTS.format(
        x=layout_text(REGISTERS["rows"]),
        y=layout_text(target),
        at=32,
        both=f"!ttg.memdesc<2x64x64xi16, {layout_text(memory)}, mutable>",
        one=f"!ttg.memdesc<64x64xi16, {layout_text(memory)}, mutable>",
        flipped=f"!ttg.memdesc<64x64xi16, {layout_text(flipped)}, mutable>",
        part=f"!ttg.memdesc<32x16xi16, {layout_text(flipped)}, mutable>",
    )
    x = np.random.default_rng(0).integers(0, 1000, SHAPE)
    (found,) = Piece(text, 4).run(x)
    assert (found == x.T[32:64, 16:32]).all()
