"""cp.async with and without masks, copies of registers, and other values; run by the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from single_op import Piece

from tkdebug.compiler.ir.types import layout_text
from tkdebug.compiler.layouts import blocked
from tkdebug.compiler.layouts.shared import shared
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate

SIZE = 1024


def copy_text(layout, element, mask, other):
    size = layout.shape[0]
    encoding = layout_text(layout)
    buffer = layout_text(shared((size,), 1, 1, 1, (0,)))
    memory = f"!ttg.memdesc<{size}x{element}, {buffer}, mutable>"

    def tile(t):
        return f"tensor<{size}x{t}, {encoding}>"

    operands, types = ["%p", "%m"], [tile(f"!tt.ptr<{element}>"), memory]
    if mask:
        operands.append("%c")
        types.append(tile("i1"))
    if other is not None:
        operands.append("%o")
        types.append(tile(element))
    signature = f"({', '.join(types)})"
    return f"""
tt.func @k(%x: !tt.ptr<{element}>, %n: i32) attributes {{arg_divisibility = [16, 8]}} {{
  %i = tt.make_range {{start = 0, end = {size}}} : {tile("i32")}
  %b = tt.splat %x : !tt.ptr<{element}> -> {tile(f"!tt.ptr<{element}>")}
  %p = tt.addptr %b, %i : ({tile(f"!tt.ptr<{element}>")}, {tile("i32")}) -> {types[0]}
  %l = tt.splat %n : i32 -> {tile("i32")}
  %c = arith.cmpi %i, %l {{predicate = "slt"}} : ({tile("i32")}, {tile("i32")}) -> {tile("i1")}
  %o = arith.constant dense<{other or 0.0}> : {tile(element)}
  %m = ttg.local_alloc : () -> {memory}
  %t = ttg.async_copy_global_to_local {", ".join(operands)} : {signature} -> !ttg.async.token
  %g = ttg.async_commit_group %t : !ttg.async.token -> !ttg.async.token
  %w = ttg.async_wait %g {{num = 0}} : !ttg.async.token -> !ttg.async.token
  gpu.barrier
  %r = ttg.local_load %m : {memory} -> {tile(element)}
  tt.return
}}
"""


LAYOUTS = {
    "sixteen bytes": blocked((8,), (32,), (4,), (0,), (SIZE,)),
    "eight bytes": blocked((4,), (32,), (4,), (0,), (SIZE,)),
    "copies": blocked((8,), (32,), (4,), (0,), (256,)),
}


@pytest.mark.parametrize("other", [None, 0.0, 7.0])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_copied_is_there_after_the_wait(name, mask, other):
    if other is not None and not mask:
        return
    layout = LAYOUTS[name]
    size, limit = layout.shape[0], layout.shape[0] - 40
    x = np.random.default_rng(0).integers(0, 100, size).astype(np.float16)
    piece = Piece(copy_text(layout, "f16", mask, other), 4)
    # What lies beyond the limit does not exist.
    found = piece.run(0, limit, memory=x[: limit if mask else size].tobytes())[-1]
    wanted = np.where(np.arange(size) < limit, x, other or 0) if mask else x
    assert (found == wanted).all()


@pytest.mark.parametrize(
    ("name", "instruction"),
    [("sixteen bytes", "cp.async.cg.shared.global"), ("eight bytes", "cp.async.ca.shared.global")],
)
def test_copies_are_as_wide_as_registers_allow(name, instruction):
    piece = Piece(copy_text(LAYOUTS[name], "f16", True, None), 4, "sm_80")
    code = generate(piece.llvm_ir(), "k", TARGETS["sm_80"])
    assert instruction in code.ptx
