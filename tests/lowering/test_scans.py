"""tt.scan in every kind of layout, run by the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from layout_cases import CASES, LAYOUTS
from single_op import Piece

from tkdebug.compiler.ir.types import layout_text
from tkdebug.compiler.layouts import LANE, REGISTER, WARP, LinearLayout, blocked
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate
from tkdebug.compiler.targets.nvptx.lowering.types import LoweringError

SCANNED = {
    **LAYOUTS,
    "wrapped": (4, blocked((2,), (32,), (4,), (0,), (2048,))),
    "backwards": (
        4,
        LinearLayout.of(
            {
                REGISTER: [(128,), (8,)],
                LANE: [(4,), (2,), (64,), (1,), (32,)],
                WARP: [(16,), (256,)],
            },
            {"dim0": 512},
        ),
    ),
}
MIXED = [case for case in CASES if case[0] == "mixed"]
ALL = [*(case for case in CASES if case not in MIXED), ("wrapped", 0), ("backwards", 0)]


def scan_text(layout, axis, element, body, reverse):
    shape = "x".join(map(str, layout.shape))
    type_ = f"tensor<{shape}x{element}, {layout_text(layout)}>"
    flag = ", reverse = true" if reverse else ""
    return f"""
tt.func @k(%x: {type_}) {{
  %r = tt.scan %x {{axis = {axis}{flag}}} ({{
  ^bb0(%a: {element}, %b: {element}):
    {body.format(t=element)}
    tt.reduce.return %c : {element}
  }}) : {type_}
  tt.return
}}
"""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("name", "axis"), ALL)
def test_scan_adds_up_to_each_element(name, axis, reverse):
    num_warps, layout = SCANNED[name]
    x = np.random.default_rng(0).integers(-1000, 1000, layout.shape)
    text = scan_text(layout, axis, "i64", "%c = arith.addi %a, %b : {t}", reverse)
    (found,) = Piece(text, num_warps).run(x)
    wanted = np.flip(np.flip(x, axis).cumsum(axis), axis) if reverse else x.cumsum(axis)
    assert (found.view(np.int64) == wanted).all()


# Composition of x -> p x + q, packed as p * 2**16 + q modulo 2**16: associative, not commutative.
AFFINE = """
    %s = arith.constant 16 : i32
    %m = arith.constant 65535 : i32
    %p = arith.shrui %a, %s : i32
    %u = arith.shrui %b, %s : i32
    %q = arith.andi %a, %m : i32
    %v = arith.andi %b, %m : i32
    %pu = arith.muli %p, %u : i32
    %qu = arith.muli %q, %u : i32
    %w = arith.addi %qu, %v : i32
    %z = arith.andi %w, %m : i32
    %h = arith.shli %pu, %s : i32
    %c = arith.ori %h, %z : i32
"""


def affine(a, b):
    p, u, q, v = (n.astype(np.uint64) for n in (a >> 16, b >> 16, a & 0xFFFF, b & 0xFFFF))
    return ((p * u & 0xFFFF) << 16 | (q * u + v) & 0xFFFF).astype(np.uint32)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("name", "axis"), ALL)
def test_scan_keeps_the_order_of_what_it_combines(name, axis, reverse):
    num_warps, layout = SCANNED[name]
    x = np.random.default_rng(0).integers(0, 1 << 31, layout.shape).astype(np.uint32)
    (found,) = Piece(scan_text(layout, axis, "i32", AFFINE, reverse), num_warps).run(x)
    rows = np.moveaxis(x, axis, 0)
    rows = rows[::-1] if reverse else rows
    wanted = [rows[0]]
    for row in rows[1:]:
        wanted.append(affine(wanted[-1], row))
    wanted = np.stack(wanted[::-1] if reverse else wanted)
    assert (found == np.moveaxis(wanted, 0, axis)).all()


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["four warps", "square", "wrapped"])
def test_scan_compiles(name, target):
    num_warps, layout = SCANNED[name]
    text = scan_text(layout, 0, "f32", "%c = arith.addf %a, %b : {t}", False)
    code = generate(Piece(text, num_warps, target).llvm_ir(), "k", TARGETS[target])
    assert code.spill_store_bytes == 0


@pytest.mark.parametrize(("name", "axis"), MIXED)
def test_scan_of_registers_in_two_orders_is_refused(name, axis):
    num_warps, layout = SCANNED[name]
    text = scan_text(layout, axis, "i32", "%c = arith.addi %a, %b : {t}", False)
    with pytest.raises(LoweringError, match="order of registers"):
        Piece(text, num_warps)
