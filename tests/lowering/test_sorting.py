"""tt.sort, tt.topk and tt.bitonic_merge in many layouts, run by the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from layout_cases import LAYOUTS, tile_text
from single_op import Piece

from tkdebug.compiler.layouts import blocked
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate

SORTED = ["one warp", "four warps", "copies", "square", "cube", "warp group", "mixed"]


def sort_text(op, layout, element, attributes="", result=None):
    type_, out = tile_text(layout, element), tile_text(result or layout, element)
    signature = type_ if result is None else f"{type_} -> {out}"
    return f"""
tt.func @k(%x: {type_}) {{
  %r = {op} %x {{{attributes}}} : {signature}
  tt.return
}}
"""


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", SORTED)
def test_sort_orders_the_last_axis(name, descending):
    num_warps, layout = LAYOUTS[name]
    x = np.random.default_rng(0).integers(-1000, 1000, layout.shape)
    text = sort_text("tt.sort", layout, "i32", "descending = true" if descending else "")
    (found,) = Piece(text, num_warps).run(x)
    wanted = np.sort(x, -1)
    assert (found.view(np.int32) == (wanted[..., ::-1] if descending else wanted)).all()


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_sort_puts_nan_last(element):
    layout = blocked((2,), (32,), (2,), (0,), (128,))
    x = np.random.default_rng(0).integers(-50, 50, 128).astype(np.float32)
    x[[3, 77]], x[5], x[6] = np.nan, np.inf, -np.inf
    (found,) = Piece(sort_text("tt.sort", layout, element), 2).run(x)
    assert np.array_equal(found, np.sort(x), equal_nan=True)


def test_sort_of_unsigned_numbers_and_flags():
    layout = blocked((2,), (32,), (2,), (0,), (128,))
    x = np.random.default_rng(0).integers(0, 256, 128)
    (found,) = Piece(sort_text("tt.sort", layout, "i8", "unsigned = true"), 2).run(
        x.astype(np.uint8).view(np.int8)
    )
    assert (found == np.sort(x)).all()
    (found,) = Piece(sort_text("tt.sort", layout, "i1"), 2).run(x % 2)
    assert (found == np.sort(x % 2)).all()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", SORTED)
def test_bitonic_merge_sorts_what_rises_and_falls(name, descending):
    num_warps, layout = LAYOUTS[name]
    x = np.sort(np.random.default_rng(0).integers(-1000, 1000, layout.shape), -1)
    half = layout.shape[-1] // 2
    x[..., half:] = x[..., half:][..., ::-1]
    attributes = "descending = true" if descending else ""
    (found,) = Piece(sort_text("tt.bitonic_merge", layout, "f32", attributes), num_warps).run(x)
    wanted = np.sort(x, -1)
    assert (found == (wanted[..., ::-1] if descending else wanted)).all()


@pytest.mark.parametrize("k", [1, 4, 32])
@pytest.mark.parametrize("descending", [False, True])
def test_topk_takes_the_first_in_order(k, descending):
    layout = blocked((1, 2), (2, 16), (2, 2), (1, 0), (8, 64))
    result = blocked((1, 1), (8, 4), (1, 4), (1, 0), (8, k))
    x = np.random.default_rng(0).integers(-1000, 1000, (8, 64))
    attributes = f"k = {k}, descending = true" if descending else f"k = {k}"
    (found,) = Piece(sort_text("tt.topk", layout, "i16", attributes, result), 4).run(x)
    ordered = np.sort(x, -1)[:, ::-1] if descending else np.sort(x, -1)
    assert (found.view(np.int16) == ordered[:, :k]).all()


@pytest.mark.parametrize("element", ["f8E4M3FN", "f8E5M2", "f16", "i64"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_sort_compiles(element, target):
    layout = blocked((2,), (32,), (4,), (0,), (512,))
    piece = Piece(sort_text("tt.sort", layout, element), 4, target)
    assert generate(piece.llvm_ir(), "k", TARGETS[target]).cubin
