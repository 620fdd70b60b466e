"""tt.dot on FMA units and by mma.sync, run by the simulator and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from single_op import Piece

from tkdebug.compiler.ir.types import layout_text
from tkdebug.compiler.layouts import REGISTER, blocked, dot_operand, fma_operand, mma_v2
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate
from tkdebug.compiler.targets.nvptx.lowering.types import LoweringError


def dot_text(shape, layouts, elements, attributes):
    *batch, m, n, k = shape
    shapes = [(*batch, m, k), (*batch, k, n), (*batch, m, n)]
    types = [
        f"tensor<{'x'.join(map(str, s))}x{e}, {layout_text(ll.without_zero_bases(REGISTER))}>"
        for s, e, ll in zip(shapes, elements, layouts, strict=True)
    ]
    return f"""
tt.func @k(%a: {types[0]}, %b: {types[1]}, %c: {types[2]}) {{
  %d = tt.dot %a, %b, %c {{{attributes}}} : ({", ".join(types)}) -> {types[2]}
  tt.return
}}
"""


def mma_text(shape, warps, elements, k_width, precision="tf32"):
    *batch, m, n, k = shape
    acc = mma_v2((*batch, m, n), warps)
    a = dot_operand(acc, 0, k_width, (*batch, m, k))
    b = dot_operand(acc, 1, k_width, (*batch, k, n))
    attributes = f'unit = "mma", k_width = {k_width}, input_precision = "{precision}"'
    return dot_text(shape, (a, b, acc), elements, attributes)


def operands(shape, low=-4, high=5):
    *batch, m, n, k = shape
    rng = np.random.default_rng(0)
    sizes = [(*batch, m, k), (*batch, k, n), (*batch, m, n)]
    return [rng.integers(low, high, size) for size in sizes]


MMA_CASES = [
    ((32, 32, 32), (2, 2), ("f16", "f16", "f32"), 2),
    ((64, 16, 16), (4, 1), ("f16", "f16", "f16"), 2),
    ((16, 64, 64), (1, 4), ("bf16", "bf16", "f32"), 2),
    ((32, 32, 64), (2, 2), ("f16", "f16", "f32"), 8),
    ((32, 32, 32), (2, 2), ("f32", "f32", "f32"), 1),
    ((32, 32, 32), (2, 2), ("f32", "f32", "f32"), 4),
    ((32, 32, 64), (2, 2), ("i8", "i8", "i32"), 4),
    ((2, 16, 16, 32), (2, 1, 2), ("f16", "f16", "f32"), 2),
    ((32, 32, 8), (2, 2), ("f32", "f32", "f32"), 1),
    # Smaller than an instruction.
    ((8, 32, 32), (1, 4), ("f16", "f16", "f32"), 2),
    ((4, 16, 16), (1, 4), ("bf16", "bf16", "f32"), 2),
    ((1, 64, 64), (1, 4), ("f16", "f16", "f16"), 8),
    ((2, 4, 32), (1, 4), ("f16", "f16", "f32"), 2),
    ((1, 1, 32), (1, 4), ("i8", "i8", "i32"), 4),
    ((64, 2, 16), (4, 1), ("f32", "f32", "f32"), 1),
    ((2, 4, 16, 32), (2, 1, 2), ("f16", "f16", "f32"), 2),
]


@pytest.mark.parametrize(("shape", "warps", "elements", "k_width"), MMA_CASES)
def test_mma_multiplies(shape, warps, elements, k_width):
    a, b, c = operands(shape)
    (found,) = Piece(mma_text(shape, warps, elements, k_width), 4).run(a, b, c)
    if elements[2] == "i32":
        found = found.view(np.int32)
    assert (found == a @ b + c).all()


@pytest.mark.parametrize(("shape", "warps", "elements", "k_width"), MMA_CASES)
def test_mma_compiles(shape, warps, elements, k_width):
    piece = Piece(mma_text(shape, warps, elements, k_width), 4, "sm_80")
    code = generate(piece.llvm_ir(), "k", TARGETS["sm_80"])
    assert "mma.sync.aligned.m16n8k" in code.ptx
    assert code.spill_store_bytes == 0


HALVES = [case for case in MMA_CASES if case[2][0] == "f16"]


@pytest.mark.parametrize(("shape", "warps", "elements", "k_width"), HALVES)
def test_turing_multiplies_each_half_of_k(shape, warps, elements, k_width):
    a, b, c = operands(shape)
    piece = Piece(mma_text(shape, warps, elements, k_width), 4, "sm_75")
    (found,) = piece.run(a, b, c)
    assert (found == a @ b + c).all()
    assert "m16n8k8" in piece.llvm_ir()


def test_bf16_on_tensor_cores_of_turing_is_refused_at_its_op():
    with pytest.raises(LoweringError, match="of sm_75 does not multiply bf16"):
        Piece(mma_text((16, 64, 64), (1, 4), ("bf16", "bf16", "f32"), 2), 4, "sm_75")


@pytest.mark.parametrize("elements", [("f8E4M3FN", "f8E4M3FN"), ("f8E5M2", "f8E4M3FN")])
def test_mma_of_fp8_compiles(elements):
    text = mma_text((32, 32, 64), (2, 2), (*elements, "f32"), 4)
    code = generate(Piece(text, 4, "sm_90a").llvm_ir(), "k", TARGETS["sm_90a"])
    assert "mma.sync.aligned.m16n8k32.row.col.f32.e" in code.ptx


def test_three_tf32_products_keep_single_precision():
    shape = (32, 32, 32)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape[1:]).astype(np.float32) for _ in range(2))
    c = np.zeros((32, 32), np.float32)
    wanted = a.astype(np.float64) @ b
    errors = {}
    for precision in ("tf32", "tf32x3"):
        text = mma_text(shape, (2, 2), ("f32",) * 3, 1, precision)
        (found,) = Piece(text, 4).run(a, b, c)
        errors[precision] = np.abs(found - wanted).max()
    assert errors["tf32x3"] < 1e-5 < errors["tf32"]


def test_infinity_times_three_tf32_products_is_infinite():
    a, b, c = (np.ones((32, 32), np.float32) for _ in range(3))
    a[3, 4] = np.inf
    text = mma_text((32, 32, 32), (2, 2), ("f32",) * 3, 1, "tf32x3")
    (found,) = Piece(text, 4).run(a, b, c)
    assert np.isinf(found[3]).all()
    assert np.isfinite(np.delete(found, 3, 0)).all()


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((16, 16, 8), blocked((2, 2), (8, 4), (1, 2), (1, 0), (16, 16))),
        ((1, 32, 16), blocked((1, 1), (1, 32), (1, 2), (1, 0), (1, 32))),
        ((2, 8, 8, 16), blocked((1, 2, 1), (1, 4, 8), (2, 1, 1), (2, 1, 0), (2, 8, 8))),
    ],
)
@pytest.mark.parametrize(
    "elements",
    [
        ("f32", "f32", "f32"),
        ("f64", "f64", "f64"),
        ("f16", "f16", "f32"),
        ("f16", "f16", "f16"),
        ("bf16", "bf16", "f32"),
        ("i8", "i8", "i32"),
    ],
)
def test_fma_units_multiply(shape, layout, elements):
    *batch, m, n, k = shape
    a = fma_operand(layout, 0, (*batch, m, k))
    b = fma_operand(layout, 1, (*batch, k, n))
    text = dot_text(shape, (a, b, layout), elements, 'unit = "fma"')
    x, y, z = operands(shape)
    (found,) = Piece(text, 2).run(x, y, z)
    if elements[2] == "i32":
        found = found.view(np.int32)
    assert (found == x @ y + z).all()
