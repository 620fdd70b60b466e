"""ttg.local_dot: FMA dots that read their operands from shared memory, run by the simulator."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from single_op import Piece

from tkdebug.compiler.ir.types import layout_text
from tkdebug.compiler.layouts import LANE, REGISTER, blocked, fma_operand, transpose
from tkdebug.compiler.layouts.shared import shared
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate
from tkdebug.compiler.targets.nvptx.lowering.dots import dot
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import plan_vectors, widened

ACC_32 = blocked((4, 4), (4, 8), (2, 1), (1, 0), (32, 32))
ACC_16X64 = blocked((2, 4), (4, 8), (1, 2), (1, 0), (16, 64))
BATCH = blocked((1, 2, 2), (1, 4, 8), (2, 1, 1), (2, 1, 0), (2, 8, 16))


def rows(shape, vector, per_phase=1, phases=1):
    """A buffer whose last dimension is contiguous."""
    return shared(shape, vector, per_phase, phases, tuple(reversed(range(len(shape)))))


def columns(shape, vector, per_phase=1, phases=1):
    """A buffer whose next to last dimension is contiguous."""
    rank = len(shape)
    return shared(
        shape, vector, per_phase, phases, (rank - 2, rank - 1, *reversed(range(rank - 2)))
    )


CASES = {
    "both as in memory": (ACC_32, 32, rows((32, 32), 4, 4, 4), rows((32, 32), 4)),
    "b along k": (ACC_32, 32, rows((32, 32), 4, 4, 4), columns((32, 32), 4, 4, 8)),
    "a along m": (ACC_16X64, 32, columns((16, 32), 4), rows((32, 64), 4)),
    "short k": (ACC_32, 4, rows((32, 4), 4), columns((4, 32), 4, 4, 1)),
    "batch": (BATCH, 16, rows((2, 8, 16), 4, 2, 4), rows((2, 16, 16), 4)),
}
ELEMENTS = [
    ("f32", "f32", "f32"),
    ("f64", "f64", "f64"),
    ("f16", "f16", "f32"),
    ("f16", "f16", "f16"),
    ("bf16", "bf16", "f32"),
    ("i8", "i8", "i32"),
]


def text_and_operands(acc, k, a_buffer, b_buffer, elements, transposed=False):
    *batch, m, n = acc.shape
    sizes = [(*batch, m, k), (*batch, k, n), (*batch, m, n)]
    layouts = [
        *(fma_operand(acc, i, s).without_zero_bases(REGISTER) for i, s in enumerate(sizes[:2])),
        acc.without_zero_bases(REGISTER),
    ]
    dims = ["x".join(map(str, size)) for size in sizes]
    tiles = [
        f"tensor<{d}x{e}, {layout_text(ll)}>"
        for d, e, ll in zip(dims, elements, layouts, strict=True)
    ]
    buffers = [
        f"!ttg.memdesc<{d}x{e}, {layout_text(ll)}>"
        for d, e, ll in zip(dims, elements, (a_buffer, b_buffer), strict=False)
    ]
    text = f"""
tt.func @k(%a: {tiles[0]}, %b: {tiles[1]}, %c: {tiles[2]}) {{
  %x = ttg.local_alloc %a : {tiles[0]} -> {buffers[0]}
  %y = ttg.local_alloc %b : {tiles[1]} -> {buffers[1]}
  gpu.barrier
  %d = ttg.local_dot %x, %y, %c : ({buffers[0]}, {buffers[1]}, {tiles[2]}) -> {tiles[2]}
  tt.return
}}
"""
    rng = np.random.default_rng(0)
    return text, [rng.integers(-4, 5, size) for size in sizes]


def check(text, operands):
    a, b, c = operands
    piece = Piece(text, 2)
    (found,) = piece.run(a, b, c)
    if found.dtype == np.uint32:
        found = found.view(np.int32)
    assert (found == a @ b + c).all()
    return piece


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("elements", ELEMENTS)
def test_operands_in_shared_memory_are_multiplied(case, elements):
    check(*text_and_operands(*CASES[case], elements))


@pytest.mark.parametrize("case", CASES)
def test_long_products_are_a_loop(case):
    text, operands = text_and_operands(*CASES[case], ("f32",) * 3)
    with mock.patch.object(dot, "_MOST_PRODUCTS", 1):
        piece = check(text, operands)
    body = piece.ctx.emit.module("test")
    loops = body.count("dot.body")
    # In the others a swizzle, or a single step, takes all of K.
    assert bool(loops) is (case in ("both as in memory", "a along m"))


def test_parts_of_a_transposed_buffer_are_multiplied():
    buffer = rows((32, 64), 4, 4, 8)
    half = "!ttg.memdesc<32x32xf32, {}>"
    whole = layout_text(buffer)
    turned = layout_text(transpose(buffer, (1, 0)))
    text, (a, b, c) = text_and_operands(*CASES["both as in memory"], ("f32",) * 3)
    tile = blocked((1, 4), (2, 16), (2, 1), (1, 0), (32, 64))
    stored = f"tensor<32x64xf32, {layout_text(tile.without_zero_bases(REGISTER))}>"
    type_ = f"!ttg.memdesc<32x64xf32, {whole}>"
    lines = text.splitlines()
    b_tile = lines[3].split(" : ")[1].split(" -> ")[0]
    old = lines[3].split(" -> ")[1]
    lines[3] = f"""
  %w = ttg.local_alloc %b : {stored} -> {type_}
  %p = ttg.memdesc_subslice %w {{offsets = [0, 32]}} : {type_} -> {half.format(whole)}
  %y = ttg.memdesc_trans %p {{order = [1, 0]}} : {half.format(whole)} -> {half.format(turned)}"""
    text = "\n".join(lines).replace(b_tile, stored).replace(old, half.format(turned))
    wide = np.concatenate([np.full((32, 32), 9), b.T], axis=1)
    piece = Piece(text, 2)
    (found,) = piece.run(a, wide, c)
    assert (found == a @ b + c).all()


def test_code_has_vector_reads_and_no_spills():
    text, _ = text_and_operands(*CASES["b along k"], ("f32",) * 3)
    code = generate(Piece(text, 2, "sm_80").llvm_ir(), "k", TARGETS["sm_80"])
    assert code.spill_store_bytes == 0
    assert code.ptx.count("ld.shared.v4") == 32 // 4 * (4 + 4)


def banks_met_twice(acc, index, buffer, element_bytes):
    """Whether eight lanes that read at once want different words of one bank."""
    k_dim = acc.out_dims[-1 if index == 0 else -2]
    size = [acc.out_size(d) if d != k_dim else 16 // element_bytes for d in acc.out_dims]
    if buffer.bases("offset")[0][list(acc.out_dims).index(k_dim)] == 0:
        size[list(acc.out_dims).index(k_dim)] = 1
    layout = fma_operand(acc, index, tuple(size)).without_zero_bases(REGISTER)
    whole = widened(layout, buffer)
    plan = plan_vectors(whole, buffer, element_bytes)
    assert len(plan.groups[0]) * element_bytes == 16
    to_offset = whole.invert_and_compose(buffer)
    for first in range(0, 32, 8):
        places = {to_offset.apply({LANE: first + i})["offset"] * element_bytes for i in range(8)}
        if len({place // 16 % 8 for place in places}) < len(places):
            return True
    return False


@pytest.mark.parametrize("case", ["both as in memory", "b along k"])
def test_no_bank_is_met_twice(case):
    acc, _, a_buffer, b_buffer = CASES[case]
    assert not banks_met_twice(acc, 0, a_buffer, 4)
    assert not banks_met_twice(acc, 1, b_buffer, 4)
