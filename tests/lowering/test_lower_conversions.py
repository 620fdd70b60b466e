"""Conversions between layouts: accumulators to rows and columns, run by the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from single_op import Piece

from tkdebug.compiler.ir.types import layout_text
from tkdebug.compiler.layouts import blocked, dot_operand, mma_v2, wgmma
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate
from tkdebug.compiler.targets.nvptx.lowering.conversions import plan_matrix_trip

SHAPE = (64, 64)
FRAGMENTS = {
    "accumulators": mma_v2(SHAPE, (2, 2)),
    "warp group": wgmma(SHAPE, (4, 1), 64),
    "narrow warp group": wgmma(SHAPE, (4, 1), 16),
    "operand a": dot_operand(mma_v2(SHAPE, (4, 1)), 0, 2, SHAPE),
}
TARGETS_OF_CONVERSIONS = {
    "rows": blocked((1, 8), (4, 8), (4, 1), (1, 0), SHAPE),
    "short rows": blocked((1, 4), (4, 8), (4, 1), (1, 0), SHAPE),
    "columns": blocked((8, 1), (8, 4), (1, 4), (0, 1), SHAPE),
    "squares": blocked((8, 8), (8, 4), (1, 4), (1, 0), SHAPE),
}


def conversion(source, target, element):
    x, y = (f"tensor<64x64x{element}, {layout_text(ll)}>" for ll in (source, target))
    return f"""
tt.func @k(%x: {x}) {{
  %r = ttg.convert_layout %x : {x} -> {y}
  tt.return
}}
"""


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("target", TARGETS_OF_CONVERSIONS)
@pytest.mark.parametrize("source", FRAGMENTS)
@pytest.mark.parametrize("element", ["i8", "i16", "f16", "i32"])
def test_fragments_become_rows_and_columns(element, source, target, architecture):
    x = np.random.default_rng(0).integers(0, 100, SHAPE)
    text = conversion(FRAGMENTS[source], TARGETS_OF_CONVERSIONS[target], element)
    (found,) = Piece(text, 4, architecture).run(x)
    assert (found == x).all()


@pytest.mark.parametrize(
    ("source", "target", "stored"),
    [
        ("warp group", "rows", "stmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("accumulators", "rows", "stmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("warp group", "columns", "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
    ],
)
def test_halves_are_stored_by_matrix(source, target, stored):
    text = conversion(FRAGMENTS[source], TARGETS_OF_CONVERSIONS[target], "f16")
    ptx = generate(Piece(text, 4).llvm_ir(), "k", TARGETS["sm_90a"]).ptx
    # 64 x 64 halves: of each thread 32, in 4 stores of 8 and 4 loads of 8.
    assert ptx.count(stored) == 4
    assert ptx.count("ld.shared.v4.b32") == 4
    assert "st.shared" not in ptx


@pytest.mark.parametrize("source", ["warp group", "accumulators"])
@pytest.mark.parametrize("target", ["rows", "columns"])
def test_matrices_meet_no_bank_twice(source, target):
    trip = plan_matrix_trip(FRAGMENTS[source], TARGETS_OF_CONVERSIONS[target])
    assert trip is not None
    assert (trip.vector, trip.store_conflicts, trip.load_conflicts) == (8, 0, 0)
