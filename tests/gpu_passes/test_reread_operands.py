"""`RereadOperands`: what does not fit in registers across a loop is read in it."""

from __future__ import annotations

import pytest
import torch
from block_products import BLOCKS, gpu_module, loop_of, named, pipelined, product, result

from tkdebug.compiler.ir import Module
from tkdebug.compiler.passes.gpu.dot_operands import RereadOperands

LOAD = "    %x = tt.load %pa : tensor<64x32x!tt.ptr<f16>> -> tensor<64x32xf16>\n"
LOOP = "  %product, %last = scf.for"


def lasting(warps: int = 4) -> str:
    """The product with A loaded before the loop."""
    text = product().replace(LOAD, "").replace(LOOP, LOAD.replace("%pa", "%ptrs_a") + LOOP)
    return text.replace("num_warps = 4", f"num_warps = {warps}")


def reads_inside(module: Module) -> list[tuple[int, ...]]:
    inside = set(loop_of(module).walk())
    return [op.result.type.shape for op in named(module, "ttg.local_load") if op in inside]


# Of 64 x 32 sums a thread has 16 registers, and 8 of as many halves.
@pytest.mark.parametrize(("registers", "moves"), [(23, True), (24, False)])
def test_operands_move_into_the_loop_where_registers_are_short(registers: int, moves: bool) -> None:
    before = gpu_module(lasting(), "sm_80")
    after = pipelined(lasting(), "sm_80", RereadOperands(registers))
    assert ((64, 32) in reads_inside(after)) is moves
    assert len(named(after, "ttg.local_load")) == len(named(before, "ttg.local_load"))
    for upper in (0, 1, BLOCKS):
        assert torch.equal(result(after, 0, upper), result(before, 0, upper))


def test_what_the_loop_loads_stays() -> None:
    before, after = gpu_module(product(), "sm_80"), pipelined(product(), "sm_80", RereadOperands(0))
    assert reads_inside(after) == reads_inside(before)
