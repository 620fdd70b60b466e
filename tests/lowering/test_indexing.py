"""tt.gather, tt.histogram and tt.flip in many layouts, run by the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from layout_cases import CASES, LAYOUTS, tile_text
from single_op import Piece

from tkdebug.compiler.layouts import blocked
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate


@pytest.mark.parametrize("element", ["i8", "f32"])
@pytest.mark.parametrize(("name", "axis"), CASES)
def test_flip_reverses_an_axis(name, axis, element):
    num_warps, layout = LAYOUTS[name]
    type_ = tile_text(layout, element)
    text = f"""
tt.func @k(%x: {type_}) {{
  %r = tt.flip %x {{axis = {axis}}} : {type_}
  tt.return
}}
"""
    x = np.random.default_rng(0).integers(0, 127, layout.shape)
    (found,) = Piece(text, num_warps).run(x)
    assert (found == np.flip(x, axis)).all()


GATHER = """
tt.func @k(%x: {x}, %i: {i}) {{
  %r = tt.gather %x, %i {{axis = {axis}}} : ({x}, {i}) -> {r}
  tt.return
}}
"""


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("element", "index"), [("f32", "i32"), ("f16", "i64"), ("i8", "i8")])
def test_gather_takes_elements_at_indices(axis, element, index):
    source = blocked((1, 4), (8, 4), (2, 2), (1, 0), (32, 32))
    shape = (32, 8) if axis else (8, 32)
    target = blocked((2, 1), (4, 8), (1, 4), (0, 1), shape)
    text = GATHER.format(
        x=tile_text(source, element),
        i=tile_text(target, index),
        r=tile_text(target, element),
        axis=axis,
    )
    rng = np.random.default_rng(0)
    x, places = rng.integers(0, 100, (32, 32)), rng.integers(0, 32, shape)
    (found,) = Piece(text, 4).run(x, places)
    assert (found == np.take_along_axis(x, places, axis)).all()


@pytest.mark.parametrize("bins", [2, 32, 512])
@pytest.mark.parametrize("element", ["i8", "i32", "i64"])
def test_histogram_counts_what_has_a_bin(element, bins):
    source = blocked((4,), (32,), (4,), (0,), (256,))
    target = blocked((1,), (32,), (4,), (0,), (bins,))
    x_type, m_type = tile_text(source, element), tile_text(source, "i1")
    text = f"""
tt.func @k(%x: {x_type}, %m: {m_type}) {{
  %r = tt.histogram %x, %m {{bins = {bins}}} : ({x_type}, {m_type}) -> {tile_text(target, "i32")}
  tt.return
}}
"""
    rng = np.random.default_rng(0)
    x, mask = rng.integers(-20, 100, 256), rng.integers(0, 2, 256).astype(bool)
    (found,) = Piece(text, 4).run(x, mask)
    kept = x[mask & (x >= 0) & (x < bins)]
    assert (found == np.bincount(kept, minlength=bins)).all()
    code = generate(Piece(text, 4, "sm_80").llvm_ir(), "k", TARGETS["sm_80"])
    assert "red.shared.add.u32" in code.ptx
