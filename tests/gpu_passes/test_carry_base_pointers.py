"""`CarryBasePointers`: loops carry rows of pointers, and results stay."""

from __future__ import annotations

import pytest
import torch
from block_products import BLOCKS, gpu_module, loop_of, named, pipelined, product, result
from hypothesis import given, settings
from hypothesis import strategies as st

from tkdebug.compiler.passes.gpu.loop_registers import CarryBasePointers
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.pipeline import gpu_pipeline

# The sum of both offsets in one tile, as `product` has it, or added one by one.
WHOLE = """  %offs_a = arith.addi %3, %cols : tensor<64x32xi32>
  %5 = tt.splat %a : !tt.ptr<f16> -> tensor<64x32x!tt.ptr<f16>>
  %ptrs_a = tt.addptr %5, %offs_a : (tensor<64x32x!tt.ptr<f16>>, tensor<64x32xi32>)
      -> tensor<64x32x!tt.ptr<f16>>
"""
APART = """  %5 = tt.splat %a : !tt.ptr<f16> -> tensor<64x1x!tt.ptr<f16>>
  %pr = tt.addptr %5, %2 : (tensor<64x1x!tt.ptr<f16>>, tensor<64x1xi32>)
      -> tensor<64x1x!tt.ptr<f16>>
  %pw = tt.broadcast %pr : tensor<64x1x!tt.ptr<f16>> -> tensor<64x32x!tt.ptr<f16>>
SHIFT  %ptrs_a = tt.addptr %ps, %cols : (tensor<64x32x!tt.ptr<f16>>, tensor<64x32xi32>)
      -> tensor<64x32x!tt.ptr<f16>>
"""
SHIFT = """  %none_i = arith.constant 0 : i32
  %shift = tt.splat %none_i : i32 -> tensor<64x32xi32>
  %ps = tt.addptr %pw, %shift : (tensor<64x32x!tt.ptr<f16>>, tensor<64x32xi32>)
      -> tensor<64x32x!tt.ptr<f16>>
"""


def apart(*, shifted: bool = False) -> str:
    text = product()
    assert WHOLE in text
    text = text.replace(WHOLE, APART.replace("SHIFT", SHIFT if shifted else ""))
    return text if shifted else text.replace("%ps,", "%pw,")


def carried_types(text: str, target: str = "sm_90a") -> list[str]:
    module = pipelined(text, target, CarryBasePointers())
    types = [str(value.type) for value in loop_of(module).regions[0].block.arguments]
    return [type_.partition(", #")[0].rstrip(">") for type_ in types if "ptr" in type_]


def test_a_row_of_pointers_is_carried_and_the_rows_offsets_are_added() -> None:
    assert carried_types(apart()) == ["tensor<1x32x!tt.ptr<f16"]


def test_offsets_that_are_the_same_for_all_are_added_to_the_base() -> None:
    assert carried_types(apart(shifted=True)) == ["tensor<1x32x!tt.ptr<f16"]
    module = pipelined(apart(shifted=True), "sm_90a", CarryBasePointers())
    # Rows and step of A; B, which is not carried.
    assert len([op for op in loop_of(module).walk() if op.name == "tt.addptr"]) == 3


def test_only_the_base_is_carried_where_operands_take_registers() -> None:
    assert carried_types(apart(), "sm_80") == ["!tt.ptr<f16"]


def test_one_pointer_is_carried_where_offsets_are_whole_tiles() -> None:
    assert carried_types(product()) == ["!tt.ptr<f16"]


def test_pointers_that_step_unevenly_are_left() -> None:
    text = apart().replace("%next = tt.addptr %pa, %block_a", "%next = tt.addptr %pa, %cols")
    assert carried_types(text) == ["tensor<64x32x!tt.ptr<f16"]


def test_pointers_that_are_used_after_the_loop_are_left() -> None:
    load = "  %after = tt.load %last : tensor<64x32x!tt.ptr<f16>> -> tensor<64x32xf16>\n"
    store = "  tt.store %last, %after : tensor<64x32x!tt.ptr<f16>>, tensor<64x32xf16>\n"
    text = apart().replace("  %c32_c = ", load + store + "  %c32_c = ")
    assert carried_types(text) == ["tensor<64x32x!tt.ptr<f16"]


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 3), st.integers(0, BLOCKS), st.sampled_from(["1", "2", "3"]),
    st.sampled_from([product(), apart(), apart(shifted=True)]),
    st.sampled_from(["sm_80", "sm_90a"]),
)  # fmt: skip
def test_results_stay_for_any_bounds_and_steps(lower, upper, step, text, target) -> None:
    text = text.replace("constant 1 : i32", f"constant {step} : i32")
    before = gpu_module(text, target)
    after = pipelined(text, target, CarryBasePointers())
    assert torch.equal(result(after, lower, upper), result(before, lower, upper))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_results_stay_through_the_whole_pipeline(target: str) -> None:
    before = gpu_module(apart(), target)
    passes = gpu_pipeline(TARGETS[target], 3)
    first = next(i for i, pass_ in enumerate(passes) if pass_.name == "carry-base-pointers")
    after = pipelined(apart(), target, *passes[first:])
    assert not [op for op in loop_of(after).walk() if op.name == "tt.load"]
    assert named(after, "ttg.async_copy_global_to_local")
    for upper in (0, 1, 2, BLOCKS):
        assert torch.equal(result(after, 0, upper), result(before, 0, upper))
