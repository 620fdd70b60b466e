"""`PrefetchOperands`: a dot's first slice is read an iteration ahead, and results stay."""

from __future__ import annotations

import re

import pytest
import torch
from block_products import BLOCKS, gpu_module, loop_of, named, pipelined, product, result
from filecheck.matcher import Matcher
from filecheck.options import Options
from hypothesis import given, settings
from hypothesis import strategies as st

from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes.gpu.allocate_shared import AllocateShared
from tkdebug.compiler.passes.gpu.dot_operands import PrefetchOperands, RereadOperands
from tkdebug.compiler.passes.gpu.insert_barriers import InsertBarriers
from tkdebug.compiler.passes.gpu.pipeline_loops import PipelineLoops
from tkdebug.compiler.passes.gpu.pipeline_wgmma import PipelineWgmma
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.lowering.driver import lower_module
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes
from tkdebug.compiler.targets.nvptx.pipeline import gpu_pipeline

PLACED = (AllocateShared(scratch_bytes), InsertBarriers(scratch_bytes))

# The second dot multiplies the product of the tile at `a`, which is loaded once, and a block of b.
LOAD_Y = "tt.load %pb, %mask, %none"
TYPES_Y = "(tensor<32x32x!tt.ptr<f16>>, tensor<32x32xi1>, tensor<32x32xf16>) -> tensor<32x32xf16>"
DOT = '{input_precision = "tf32"}'
TYPES_DOT = "(tensor<64x32xf16>, tensor<32x32xf16>, tensor<64x32xf32>) -> tensor<64x32xf32>"


def lasting() -> str:
    """The product with A loaded before the loop."""
    load = "    %x = tt.load %pa : tensor<64x32x!tt.ptr<f16>> -> tensor<64x32xf16>\n"
    text = product()
    assert load in text
    loop = "  %product, %last = scf.for"
    return text.replace(load, "").replace(loop, load.replace("%pa", "%ptrs_a") + loop)


def two_dots() -> str:
    """The sum of that product and one of blocks of both, whose B is loaded after the first dot."""
    queries = "    %q = tt.load %ptrs_a : tensor<64x32x!tt.ptr<f16>> -> tensor<64x32xf16>\n"
    loop = "  %product, %last = scf.for"
    first = f"    %half = tt.dot %q, %y, %acc {DOT} : {TYPES_DOT}\n"
    again = f"    %y2 = {LOAD_Y} : {TYPES_Y}\n"
    text = product().replace(loop, queries + loop)
    return text.replace(
        "    %sum = tt.dot %x, %y, %acc", first + again + "    %sum = tt.dot %x, %y2, %half"
    )


def prefetched(text: str, target: str = "sm_80", stages: int = 3) -> Module:
    return pipelined(text, target, PipelineLoops(stages), PrefetchOperands(), *PLACED)


def is_left(text: str, target: str = "sm_80", stages: int = 3) -> bool:
    """Whether the pass does nothing."""
    before = pipelined(text, target, PipelineLoops(stages), PipelineWgmma())
    after = pipelined(text, target, PipelineLoops(stages), PipelineWgmma(), PrefetchOperands())
    return print_module(before) == print_module(after)


def check(text: str, wanted: str, tmp_path) -> None:
    """Match lines of `text` in order."""
    (tmp_path / "wanted").write_text(wanted)
    (tmp_path / "text").write_text(text)
    options = Options(match_filename=str(tmp_path / "wanted"), input_file=str(tmp_path / "text"))
    assert Matcher.from_opts(options).run() == 0


def test_first_slice_is_carried_and_the_next_is_read_before_the_last_dot(tmp_path) -> None:
    wanted = """
// CHECK:      %[[FIRST:.*]] = ttg.async_wait {num = 1}
// CHECK:      ttg.memdesc_subslice {{.*}} {offsets = [0, 0]}
// CHECK:      %[[A:.*]] = ttg.local_load {{.*}} -> tensor<64x16xf16
// CHECK:      %[[B:.*]] = ttg.local_load {{.*}} -> tensor<16x32xf16
// CHECK:      scf.for {{.*}} = %[[A]], %[[ARG:.*]] = %[[B]])
// CHECK:      ttg.async_copy_global_to_local
// CHECK:      ttg.async_commit_group
// CHECK:      %[[HALF:.*]] = tt.dot {{.*}} %[[ARG]], {{.*}} : (tensor<64x16xf16
// CHECK:      ttg.memdesc_subslice {{.*}} {offsets = [0, 16]}
// CHECK:      %[[REST_A:.*]] = ttg.local_load {{.*}} -> tensor<64x16xf16
// CHECK:      ttg.memdesc_subslice {{.*}} {offsets = [16, 0]}
// CHECK:      %[[REST_B:.*]] = ttg.local_load {{.*}} -> tensor<16x32xf16
// CHECK:      ttg.async_wait {num = 1}
// CHECK:      gpu.barrier
// CHECK:      %[[NEXT_A:.*]] = ttg.local_load {{.*}} -> tensor<64x16xf16
// CHECK:      %[[NEXT_B:.*]] = ttg.local_load {{.*}} -> tensor<16x32xf16
// CHECK:      %[[SUM:.*]] = tt.dot %[[REST_A]], %[[REST_B]], %[[HALF]]
// CHECK:      scf.yield %[[SUM]], {{.*}} %[[NEXT_A]], %[[NEXT_B]] :
"""
    check(print_module(prefetched(product())), wanted, tmp_path)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    "text", [product(), product("plain", "transposed"), lasting(), two_dots()],
    ids=["plain", "transposed", "lasting", "two dots"],
)  # fmt: skip
def test_results_stay_for_every_trip_count(text: str, target: str) -> None:
    before = gpu_module(text, target)
    for stages in (2, 3, 4):
        after = prefetched(text, target, stages)
        for upper in (0, 1, 2, 3, BLOCKS):
            assert torch.equal(result(after, 0, upper), result(before, 0, upper)), (stages, upper)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 3), st.integers(0, BLOCKS), st.integers(3, 5), st.sampled_from(["1", "2", "3"]),
    st.sampled_from(["plain", "transposed"]),
)  # fmt: skip
def test_results_stay_for_any_bounds_and_steps(lower, upper, stages, step, v) -> None:
    text = product("plain", v).replace("constant 1 : i32", f"constant {step} : i32")
    before, after = gpu_module(text, "sm_80"), prefetched(text, stages=stages)
    assert torch.equal(result(after, lower, upper), result(before, lower, upper))


@pytest.mark.parametrize("text", [product(), lasting(), two_dots()])
def test_one_barrier_an_iteration_suffices(text: str) -> None:
    for stages in (3, 4):
        loop = loop_of(prefetched(text, stages=stages))
        assert [op.name for op in loop.walk()].count("gpu.barrier") == 1


def test_what_was_read_before_the_loop_is_read_there_in_slices() -> None:
    module = prefetched(lasting())
    inside = set(loop_of(module).walk())
    before = [op for op in named(module, "ttg.local_load") if op not in inside]
    # Both slices of A, and the first of B.
    assert [op.result.type.shape for op in before] == [(64, 16), (64, 16), (16, 32)]


def test_a_loop_that_reads_buffers_after_the_dot_reads_ahead_last() -> None:
    for stages in (2, 3):
        ops = loop_of(prefetched(two_dots(), stages=stages)).regions[0].block.operations
        names = [op.name for op in ops]
        dots = [place for place, name in enumerate(names) if name == "tt.dot"]
        assert len(dots) == 3
        assert names.index("ttg.async_wait") > dots[-1]


def test_what_is_read_from_a_lasting_buffer_in_the_loop_is_read_there_in_slices() -> None:
    passes = (RereadOperands(registers=0), PipelineLoops(3), PrefetchOperands(), *PLACED)
    module = pipelined(lasting(), "sm_80", *passes)
    inside = [op for op in loop_of(module).walk() if op.name == "ttg.local_load"]
    # Both slices of A, the second of B, and the first of the next B.
    assert [op.result.type.shape for op in inside] == [(64, 16), (64, 16), (16, 32), (16, 32)]
    before = gpu_module(lasting(), "sm_80")
    for upper in (0, 1, BLOCKS):
        assert torch.equal(result(module, 0, upper), result(before, 0, upper))


def twice(text: str) -> str:
    """The kernel with its loop a second time, which goes on with the sum."""
    start, end = text.index("  %product, %last = scf.for"), text.index("  %c32_c = ")
    again = text[start:end]
    again = again.replace("(%acc = %zero, ", "(%acc = %product\n, ")
    for name in set(re.findall(r"%(\w+)(?=(?:, %\w+)* =)", again)):
        again = re.sub(rf"%{name}\b(?!\n)", f"%{name}_2", again)
    return text[:end] + again + text[end:].replace("%ptrs_c, %product", "%ptrs_c, %product_2")


def test_loops_share_the_slices_of_what_both_read() -> None:
    before, after = gpu_module(twice(lasting()), "sm_80"), prefetched(twice(lasting()))
    reads = [op.result.type.shape for op in named(after, "ttg.local_load")]
    # A in the beginning; of B the first slice before each loop, and both in it.
    assert reads.count((64, 16)) == 2
    assert reads.count((16, 32)) == 2 * 3
    assert torch.equal(result(after, 0, BLOCKS), result(before, 0, BLOCKS))


def test_dots_of_warp_groups_are_left() -> None:
    assert is_left(product(), "sm_90a")


def test_loops_of_two_stages_with_nothing_after_the_dot_are_left() -> None:
    assert is_left(product(), stages=2)
    assert not is_left(product(), stages=3)


def test_operands_that_are_computed_in_the_loop_are_left() -> None:
    assert is_left(product(u="scaled"))
    assert is_left(product(v="scaled"))


def test_operands_that_threads_gather_are_left() -> None:
    # Rows of B run along N: `ldmatrix` turns 16-bit elements only.
    assert is_left(product().replace("f16", "f32"))
    assert not is_left(product("plain", "transposed").replace("f16", "f32"))


def test_dots_whose_accumulators_fill_the_registers_are_left() -> None:
    wide = product().replace("64x", "256x").replace("end = 64", "end = 256")
    assert not is_left(wide)
    assert is_left(wide.replace("num_warps = 4", "num_warps = 1"))


def test_what_the_loop_carries_counts_as_well() -> None:
    """The first of two dots has sums of its own, and those of the second stay in registers."""
    text = two_dots().replace("%y, %acc", "%y, %zero").replace("%sum = tt.dot", "%own = tt.dot")
    text = text.replace("%y2, %half", "%y2, %acc")
    ends = text.index("    %next = ")
    added = "    %sum = arith.addf %own, %half : tensor<64x32xf32>\n"
    text = (
        (text[:ends] + added + text[ends:]).replace("64x", "128x").replace("end = 64", "end = 128")
    )
    # One warp has 128 registers a thread for either's sums.
    for warps, k in ((2, 16), (1, 32)):
        module = prefetched(text.replace("num_warps = 4", f"num_warps = {warps}"))
        first = next(op for op in loop_of(module).walk() if op.name == "tt.dot")
        assert first.operands[0].type.shape == (128, k)


def test_dots_of_few_rows_are_left() -> None:
    assert is_left(product().replace("64x", "16x").replace("end = 64", "end = 16"))
    assert not is_left(product().replace("64x", "32x").replace("end = 64", "end = 32"), "sm_90a")


def test_the_carried_slice_is_not_taken_apart() -> None:
    module = prefetched(product())
    phis = re.findall(r"= phi (\S+)", lower_module(module, TARGETS["sm_80"], "k"))
    # 4 warps, 2 by 2: of A 32 x 16 and of B 16 x 16, a word for two elements.
    assert phis.count("half") == 0
    assert phis.count("i32") >= 8 + 4


def test_it_is_in_the_pipeline_after_the_copies_are() -> None:
    names = [pass_.name for pass_ in gpu_pipeline(TARGETS["sm_80"], 3)]
    assert names.index("pipeline-loops") < names.index("prefetch-operands")
    assert names.index("prefetch-operands") < names.index("allocate-shared")
