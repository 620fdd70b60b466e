"""tt.reduce in every kind of layout, run by the simulator."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from layout_cases import CASES, LAYOUTS
from single_op import Piece

from tkdebug.compiler.ir.types import layout_text
from tkdebug.compiler.layouts import (
    blocked,
    slice_layout,
)
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate


def reduce_text(layout, axis, element, body, reverse=""):
    result = slice_layout(layout, axis)
    shape = "x".join(map(str, layout.shape))
    kept = "x".join(map(str, result.shape))
    out = f"tensor<{kept}x{element}, {layout_text(result)}>" if kept else element
    return f"""
tt.func @k(%x: tensor<{shape}x{element}, {layout_text(layout)}>) {{
  %r = tt.reduce %x {{axis = {axis}}} ({{
  ^bb0(%a: {element}, %b: {element}):
    {body.format(t=element)}
    tt.reduce.return %c : {element}
  }}) : tensor<{shape}x{element}, {layout_text(layout)}> -> {out}
  tt.return
}}
"""


@pytest.mark.parametrize(("name", "axis"), CASES)
def test_reduce_adds_every_element_once(name, axis):
    num_warps, layout = LAYOUTS[name]
    if not layout.is_surjective:
        pytest.skip("layout does not cover")
    x = np.random.default_rng(0).integers(-1000, 1000, layout.shape)
    (found,) = Piece(
        reduce_text(layout, axis, "i64", "%c = arith.addi %a, %b : {t}"), num_warps
    ).run(x)
    assert (found.view(np.int64) == x.sum(axis)).all()


SMALL = {name: LAYOUTS[name] for name in ("one warp", "four warps", "square", "mixed")}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    ("element", "body", "expected"),
    [
        ("i32", "%c = arith.addi %a, %b : {t}", np.sum),
        ("i32", "%c = arith.minsi %a, %b : {t}", np.min),
        ("i32", "%c = arith.maxsi %a, %b : {t}", np.max),
        ("i16", "%c = arith.xori %a, %b : {t}", np.bitwise_xor.reduce),
        ("i8", "%c = arith.ori %a, %b : {t}", np.bitwise_or.reduce),
        ("f16", "%c = arith.addf %a, %b : {t}", np.sum),
        ("bf16", "%c = arith.addf %a, %b : {t}", np.sum),
        ("f64", "%c = arith.addf %a, %b : {t}", np.sum),
    ],
)
def test_reduce_of_every_width(name, element, body, expected):
    num_warps, layout = SMALL[name]
    x = np.random.default_rng(1).integers(-2, 3, layout.shape)
    (found,) = Piece(reduce_text(layout, 0, element, body), num_warps).run(x)
    if element[0] == "i":
        found = found.view(f"i{found.dtype.itemsize}")
    assert (found == expected(x, axis=0)).all()


@pytest.mark.parametrize("name", LAYOUTS)
def test_reduce_whose_combine_is_not_commutative_gives_equal_copies(name):
    num_warps, layout = LAYOUTS[name]
    body = "%m = arith.muli %a, %b : {t}\n%n = arith.addi %m, %a : {t}\n"
    body += "%c = arith.addi %n, %n : {t}"
    x = np.random.default_rng(2).integers(-99, 99, layout.shape)
    Piece(reduce_text(layout, len(layout.outs) - 1, "i32", body), num_warps).run(x)


ARGMAX = """
tt.func @k(%x: tensor<{s}xf32, {l}>, %i: tensor<{s}xi32, {l}>) {{
  %v, %w = tt.reduce %x, %i {{axis = 1}} ({{
  ^bb0(%a: f32, %m: i32, %b: f32, %n: i32):
    %g = arith.cmpf %a, %b {{predicate = "ogt"}} : (f32, f32) -> i1
    %e = arith.cmpf %a, %b {{predicate = "oeq"}} : (f32, f32) -> i1
    %f = arith.cmpi %m, %n {{predicate = "slt"}} : (i32, i32) -> i1
    %h = arith.andi %e, %f : i1
    %t = arith.ori %g, %h : i1
    %c = arith.select %t, %a, %b : (i1, f32, f32) -> f32
    %d = arith.select %t, %m, %n : (i1, i32, i32) -> i32
    tt.reduce.return %c, %d : f32, i32
  }}) : (tensor<{s}xf32, {l}>, tensor<{s}xi32, {l}>) -> (tensor<{r}xf32, {o}>, tensor<{r}xi32, {o}>)
  tt.return
}}
"""


@pytest.mark.parametrize("name", ["rows", "square", "wide", "mixed", "accumulators"])
def test_argmax_takes_the_first_of_equals(name):
    num_warps, layout = LAYOUTS[name]
    out = slice_layout(layout, 1)
    text = ARGMAX.format(
        s="x".join(map(str, layout.shape)),
        l=layout_text(layout),
        r=layout.shape[0],
        o=layout_text(out),
    )
    x = np.random.default_rng(3).integers(0, 5, layout.shape).astype(np.float32)
    index = np.broadcast_to(np.arange(layout.shape[1]), layout.shape)
    values, places = Piece(text, num_warps).run(x, index)
    assert (values == x.max(1)).all()
    assert (places == x.argmax(1)).all()


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["four warps", "square"])
def test_reduce_compiles(name, target):
    num_warps, layout = LAYOUTS[name]
    for element, op in (("f32", "addf"), ("i32", "addi"), ("f16", "maxnumf"), ("i64", "minsi")):
        text = reduce_text(layout, 0, element, f"%c = arith.{op} %a, %b : {{t}}")
        piece = Piece(text, num_warps, target)
        code = generate(piece.llvm_ir(), "k", TARGETS[target])
        assert code.cubin
        assert code.spill_store_bytes == 0
        if element == "i32" and name == "four warps":
            assert "redux.sync.add" in code.ptx


def test_warps_share_out_what_every_thread_keeps():
    """128 rows of 32 columns: a thread combines 8 parts of one column, not of its 16."""
    num_warps, layout = LAYOUTS["columns"]
    text = reduce_text(layout, 0, "f32", "%c = arith.addf %a, %b : {t}")
    code = generate(Piece(text, num_warps).llvm_ir(), "k", TARGETS["sm_90a"])
    in_lanes = 16 * 4
    assert code.ptx.count("add.rn.f32") + code.ptx.count("add.f32") == in_lanes + 7
    assert code.ptx.count("bar.sync") == 2


AFFINE = """
tt.func @k(%x: tensor<512xi32, {l}>, %y: tensor<512xi32, {l}>) {{
  %v, %w = tt.reduce %x, %y {{axis = 0}} ({{
  ^bb0(%a: i32, %m: i32, %b: i32, %n: i32):
    %c = arith.muli %a, %b : i32
    %k = arith.muli %b, %m : i32
    %d = arith.addi %k, %n : i32
{more}
    tt.reduce.return %c, %{last} : i32, i32
  }}) : (tensor<512xi32, {l}>, tensor<512xi32, {l}>) -> (i32, i32)
  tt.return
}}
"""


@pytest.mark.parametrize("more", [0, 14])
def test_many_warps_combine_in_the_order_of_the_axis(more):
    """Affine functions composed; with 14 ops more the lanes of a warp share out the parts."""
    layout = blocked((1,), (32,), (16,), (0,), (512,))
    names = ["d", *(f"z{i}" for i in range(more))]
    padding = [f"    %{b} = arith.xori %{a}, %c : i32" for a, b in itertools.pairwise(names)]
    text = AFFINE.format(l=layout_text(layout), more="\n".join(padding), last=names[-1])
    random = np.random.default_rng(5)
    factors, terms = 2 * random.integers(-9, 9, 512) + 1, random.integers(-99, 99, 512)
    product, total = 1, 0
    for factor, term in zip(factors.tolist(), terms.tolist(), strict=True):
        product, total = product * factor, total * factor + term
    piece = Piece(text, 16)
    found = [np.int32(value.view(np.int32).item()) for value in piece.run(factors, terms)]
    expected = np.array([product % 2**32, total % 2**32], dtype=np.uint32).view(np.int32)
    assert found == expected.tolist()
    shuffles = piece.llvm_ir().count("call i32 @llvm.nvvm.shfl.sync.bfly")
    assert shuffles == (18 if more else 10)
