"""`PipelineLoops`: copies run ahead, results stay, for any trip count."""

from __future__ import annotations

import pytest
import torch
from block_products import (
    BLOCKS,
    OPERANDS,
    K,
    M,
    N,
    gpu_module,
    loop_of,
    named,
    pipelined,
    product,
    result,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.types import MemDescType
from tkdebug.compiler.passes.gpu.allocate_shared import AllocateShared
from tkdebug.compiler.passes.gpu.insert_barriers import InsertBarriers
from tkdebug.compiler.passes.gpu.pipeline_loops import PipelineLoops
from tkdebug.compiler.passes.gpu.pipeline_wgmma import PipelineWgmma
from tkdebug.compiler.passes.pass_run import PassRemark, run_pass
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes
from tkdebug.interpreter.launch import run_module

ALL = (PipelineWgmma(), AllocateShared(scratch_bytes), InsertBarriers(scratch_bytes))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("u", "v"), [("plain", "plain"), ("scaled", "plain"), ("plain", "transposed")]
)
def test_results_stay_for_every_trip_count(target: str, u: str, v: str) -> None:
    text = product(u, v)
    before = gpu_module(text, target)
    for stages in (2, 3, 4):
        after = pipelined(text, target, PipelineLoops(stages), *ALL)
        assert not [op for op in loop_of(after).walk() if op.name == "tt.load"]
        for upper in (0, 1, 2, 3, BLOCKS):
            assert torch.equal(result(after, 0, upper), result(before, 0, upper)), (stages, upper)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 3), st.integers(0, BLOCKS), st.integers(2, 5), st.sampled_from(["1", "2", "3"]),
    st.sampled_from(sorted(OPERANDS)), st.sampled_from(["sm_80", "sm_90a"]),
)  # fmt: skip
def test_results_stay_for_any_bounds_and_steps(lower, upper, stages, step, v, target) -> None:
    text = product("plain", v).replace("constant 1 : i32", f"constant {step} : i32")
    before = gpu_module(text, target)
    after = pipelined(text, target, PipelineLoops(stages), *ALL)
    # Rows of `a` are counted by iterations, those of `b` by the loop's counter.
    assert torch.equal(result(after, lower, upper), result(before, lower, upper))


def test_one_group_an_iteration_and_all_but_one_in_flight() -> None:
    module = pipelined(product(), "sm_90a", PipelineLoops(4))
    loop = loop_of(module)
    inside = [op.name for op in loop.walk()]
    assert inside.count("ttg.async_commit_group") == 1
    assert inside.count("ttg.async_copy_global_to_local") == 2
    waits = [op for op in named(module, "ttg.async_wait")]
    assert [wait.attributes["num"] for wait in waits] == [2, 0]
    assert len(named(module, "ttg.async_commit_group")) == 4
    rings = [op.result.type for op in named(module, "ttg.local_alloc")]
    assert [ring.buffers for ring in rings if isinstance(ring, MemDescType)] == [4, 4]


def test_copies_follow_a_dot_that_runs_on_and_precede_any_other() -> None:
    for target, after_dot in (("sm_90a", True), ("sm_80", False)):
        body = loop_of(pipelined(product(), target, PipelineLoops(3))).regions[0].block.operations
        names = [op.name for op in body]
        copy = names.index("ttg.async_copy_global_to_local")
        dot = next(i for i, name in enumerate(names) if name in ("tt.dot", "ttng.warp_group_dot"))
        assert (copy > dot) is after_dot


def test_one_barrier_an_iteration_suffices_for_dots_that_do_not_run_on() -> None:
    module = pipelined(
        product(),
        "sm_80",
        PipelineLoops(3),
        AllocateShared(scratch_bytes),
        InsertBarriers(scratch_bytes),
    )
    barriers = [op for op in loop_of(module).walk() if op.name == "gpu.barrier"]
    assert len(barriers) == 1


def test_pointers_that_only_the_loads_needed_are_carried_once() -> None:
    module = pipelined(product(), "sm_90a", PipelineLoops(3))
    types = [str(value.type) for value in loop_of(module).regions[0].block.arguments]
    assert sum("ptr" in type_ for type_ in types) == 1


def test_rings_that_do_not_fit_get_fewer_buffers() -> None:
    bytes_ = (M * K + K * N) * 2
    module = pipelined(product(), "sm_90a", PipelineLoops(5, shared_bytes=3 * bytes_))
    assert loop_of(module).attributes["pipelined"] == 3
    module = pipelined(product(), "sm_90a", PipelineLoops(5, shared_bytes=bytes_))
    assert "pipelined" not in loop_of(module).attributes


# The sums are stored in another layout, through shared memory.
EPILOGUE_BYTES = M * N * 4


def refilled(text: str, stages: int) -> Module:
    """The kernel for sm_80 with room for one buffer less than there are stages."""
    limit = max((stages - 1) * (M * K + K * N) * 2, EPILOGUE_BYTES)
    return pipelined(text, "sm_80", PipelineLoops(stages, limit, scratch_bytes), *ALL)


@pytest.mark.parametrize("v", ["plain", "transposed"])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_without_room_for_a_spare_buffer_copies_fill_what_was_read(v: str, stages: int) -> None:
    after = refilled(product("plain", v), stages)
    loop = loop_of(after)
    assert loop.attributes["pipelined"] == stages
    rings = [op.result.type for op in named(after, "ttg.local_alloc")]
    assert [ring.buffers for ring in rings if isinstance(ring, MemDescType)] == [stages - 1] * 2
    names = [op.name for op in loop.regions[0].block.operations]
    copy, read = "ttg.async_copy_global_to_local", "ttg.local_load"
    assert max(i for i, name in enumerate(names) if name == read) < names.index(copy)
    assert names.count("gpu.barrier") == 2
    before = gpu_module(product("plain", v), "sm_80")
    for upper in (0, 1, 2, 3, BLOCKS):
        assert torch.equal(result(after, 0, upper), result(before, 0, upper)), upper


def test_loads_have_a_remark_only_where_no_buffer_is_refilled() -> None:
    def remarks(buffers: int) -> tuple[PassRemark, ...]:
        module = gpu_module(product(), "sm_80")
        found = run_pass(PipelineLoops(2, buffers * (M * K + K * N) * 2), module, None)
        assert loop_of(module).attributes.get("pipelined", 0) == 2 * buffers
        return found.remarks

    assert remarks(1) == ()
    assert [one.reason for one in remarks(0)] == [
        "two buffers of what it copies do not fit into shared memory"
    ] * 2


def test_dots_that_run_on_keep_a_spare_buffer() -> None:
    bytes_ = (M * K + K * N) * 2
    module = pipelined(product(), "sm_90a", PipelineLoops(4, 3 * bytes_), *ALL)
    assert loop_of(module).attributes["pipelined"] == 3


@pytest.mark.parametrize("u", ["plain", "scaled"])
def test_rings_take_all_the_memory_that_nothing_else_needs(u: str) -> None:
    ring = (M * K + K * N) * 2
    for limit in range(2 * ring, 6 * ring, ring // 4):
        module = pipelined(product(u), "sm_80", PipelineLoops(5, limit, scratch_bytes), *ALL)
        used = module.function.attributes["shared_bytes"]
        stages = loop_of(module).attributes.get("pipelined", 1)
        assert isinstance(used, int)
        assert isinstance(stages, int)
        assert used <= limit
        # `scaled` stores what it made to a buffer of its own in each iteration.
        left = limit - (M * K * 2 if u == "scaled" else 0)
        assert stages == min(5, 1 + left // ring)


def _untouched(text: str) -> bool:
    return "pipelined" not in loop_of(pipelined(text, "sm_80", PipelineLoops(3))).attributes


def test_loop_that_writes_what_it_loads_is_left() -> None:
    store = "    tt.store %pb, %y : tensor<32x32x!tt.ptr<f16>>, tensor<32x32xf16>\n"
    module = pipelined(product(extra=store), "sm_80", PipelineLoops(3))
    copies = [op for op in loop_of(module).walk() if op.name == "ttg.async_copy_global_to_local"]
    # Only `a` is copied ahead: `b` is written.
    assert len(copies) == 1


def test_loop_with_a_barrier_is_left() -> None:
    assert _untouched(product(extra="    tt.barrier\n"))


INLINE_ASM = """
    %place = tt.elementwise_inline_asm %page {{asm = "mov.b32 $0, $1;", constraints = "=r,r",
        pack = 1, pure = {pure}}} : i32 -> i32
    %15 = arith.muli %place, %block : i32
"""


@pytest.mark.parametrize("pure", ["true", "false"])
def test_only_assembly_that_is_said_to_be_pure_runs_ahead(pure: str) -> None:
    text = looked_up("scalar").replace(
        "    %15 = arith.muli %page, %block : i32\n", INLINE_ASM.format(pure=pure)
    )
    assert "inline_asm" in text
    assert _untouched(text) is (pure == "false")
    after = pipelined(text, "sm_80", PipelineLoops(3))
    assembly = named(after, "tt.elementwise_inline_asm")
    assert len(assembly) == (1 if pure == "false" else 3)


def test_loop_of_one_stage_is_left() -> None:
    text = product().replace(
        "    scf.yield %sum, %next : tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>\n  }",
        "    scf.yield %sum, %next : tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>\n"
        "  } {num_stages = 1}",
    )
    assert "num_stages" in text
    assert _untouched(text)


LOOKUP = """
    %pi = tt.addptr %i, %t : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
    %page = tt.load %pi : !tt.ptr<i32> -> i32
    %15 = arith.muli %page, %block : i32
"""
TILE_LOOKUP = """
    %pages = tt.splat %i : !tt.ptr<i32> -> tensor<32x1x!tt.ptr<i32>>
    %16x = tt.splat %t : i32 -> tensor<32x1xi32>
    %pi = tt.addptr %pages, %16x : (tensor<32x1x!tt.ptr<i32>>, tensor<32x1xi32>)
        -> tensor<32x1x!tt.ptr<i32>>
    %page = tt.load %pi : tensor<32x1x!tt.ptr<i32>> -> tensor<32x1xi32>
    %17x = arith.muli %page, %c32 : tensor<32x1xi32>
    %18x = tt.broadcast %17x : tensor<32x1xi32> -> tensor<32x32xi32>
"""


def looked_up(kind: str) -> str:
    """The product with the blocks of `b` looked up in a table."""
    text = product()
    if kind == "scalar":
        return text.replace("    %15 = arith.muli %11, %block : i32\n", LOOKUP)
    text = text.replace("    %15 = arith.muli %11, %block : i32\n", TILE_LOOKUP)
    text = text.replace("    %16 = tt.splat %15 : i32 -> tensor<32x32xi32>\n", "")
    return text.replace("%ptrs_b, %16 :", "%ptrs_b, %18x :")


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("kind", ["scalar", "tile"])
def test_what_addresses_depend_on_is_looked_up_one_iteration_earlier(kind, target) -> None:
    before = gpu_module(looked_up(kind), target)
    for stages in (2, 3, 4):
        after = pipelined(looked_up(kind), target, PipelineLoops(stages), *ALL)
        inside = [op.name for op in loop_of(after).walk()]
        assert inside.count("ttg.async_copy_global_to_local") == 2
        assert inside.count("tt.load") == 1
        for upper in (0, 1, 2, 3, BLOCKS):
            assert torch.equal(result(after, 0, upper), result(before, 0, upper)), (stages, upper)


def test_lookup_that_steps_through_a_carried_pointer_runs_further_ahead_than_copies() -> None:
    text = looked_up("scalar").replace("%pi = tt.addptr %i, %t", "%pi = tt.addptr %pt, %zeroth")
    text = text.replace("%acc = %zero, %pa = %ptrs_a)", "%acc = %zero, %pa = %ptrs_a, %pt = %i)")
    text = text.replace(
        "-> (tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>) : i32 {",
        "-> (tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>, !tt.ptr<i32>) : i32 {\n"
        "    %zeroth = arith.constant 0 : i32\n"
        "    %pn = tt.addptr %pt, %step : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>",
    )
    text = text.replace("%product, %last =", "%product, %last, %lasting =")
    text = text.replace(
        "scf.yield %sum, %next : tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>",
        "scf.yield %sum, %next, %pn : tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>, !tt.ptr<i32>",
    )
    before = gpu_module(text, "sm_90a")
    after = pipelined(text, "sm_90a", PipelineLoops(3), *ALL)
    assert [op.name for op in loop_of(after).walk()].count("ttg.async_copy_global_to_local") == 2
    for upper in (0, 1, 2, BLOCKS):
        assert torch.equal(result(after, 0, upper), result(before, 0, upper)), upper


def carried_lookup(index: str) -> str:
    """The block of `b` is what the iteration before looked up at `index`, as in flex attention."""
    text = looked_up("scalar").replace(
        "%15 = arith.muli %page, %block", "%15 = arith.muli %at, %block"
    )
    text = text.replace("%pi = tt.addptr %i, %t", f"%pi = tt.addptr %i, {index}")
    text = text.replace(
        "%acc = %zero, %pa = %ptrs_a)", "%acc = %zero, %pa = %ptrs_a, %at = %first)"
    )
    text = text.replace(
        "-> (tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>) : i32 {",
        "-> (tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>, i32) : i32 {",
    )
    text = text.replace(
        "%product, %last =",
        "%first = tt.load %i : !tt.ptr<i32> -> i32\n  %product, %last, %lasting =",
    )
    return text.replace(
        "scf.yield %sum, %next : tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>",
        "scf.yield %sum, %next, %page : tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>, i32",
    )


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_place_that_an_earlier_iteration_looked_up_is_copied_from_ahead(target) -> None:
    before = gpu_module(carried_lookup("%t"), target)
    for stages in (2, 3, 4):
        after = pipelined(carried_lookup("%t"), target, PipelineLoops(stages), *ALL)
        inside = [op.name for op in loop_of(after).walk()]
        assert inside.count("ttg.async_copy_global_to_local") == 2
        for upper in (0, 1, 2, 3, BLOCKS):
            assert torch.equal(result(after, 0, upper), result(before, 0, upper)), (stages, upper)


def test_place_at_the_end_of_a_chain_of_lookups_is_left() -> None:
    module = pipelined(carried_lookup("%at"), "sm_80", PipelineLoops(3))
    copies = [op for op in loop_of(module).walk() if op.name == "ttg.async_copy_global_to_local"]
    assert len(copies) == 1
    before = gpu_module(carried_lookup("%at"), "sm_80")
    assert torch.equal(result(module, 0, 4), result(before, 0, 4))


def test_dot_of_what_the_body_writes_keeps_its_fence_when_another_s_operand_comes_between() -> None:
    # The buffer of %v is filled right before the first dot, after that dot's fence.
    second = """    %sum = tt.dot %u, %v, %place {input_precision = "tf32"}
        : (tensor<64x32xf16>, tensor<32x32xf16>, tensor<64x32xf32>) -> tensor<64x32xf32>
    %next ="""
    text = product("scaled", "scaled").replace("%sum = tt.dot %u, %v,", "%place = tt.dot %u, %y,")
    text = text.replace("    %next =", second, 1)
    before = gpu_module(text, "sm_90a")
    after = pipelined(text, "sm_90a", PipelineLoops(3), *ALL)
    body = loop_of(after).regions[0].block.operations
    for dot in (op for op in body if op.name == "ttng.warp_group_dot"):
        written = [v.defining_op for v in dot.operands if v.defining_op in body]
        allocs = [body.index(op) for op in written if op.name == "ttg.local_alloc"]
        if allocs:
            between = body[max(allocs) : body.index(dot)]
            assert any(op.name == "ttng.fence_async_shared" for op in between)
    for upper in (0, 1, BLOCKS):
        assert torch.equal(result(after, 0, upper), result(before, 0, upper)), upper


def test_lookup_that_also_reaches_the_dot_is_not_copied() -> None:
    weighted = """
    %w = tt.broadcast %page : tensor<32x1xi32> -> tensor<32x32xi32>
    %wf = arith.sitofp %w : tensor<32x32xi32> -> tensor<32x32xf16>
    %v = arith.mulf %y, %wf : tensor<32x32xf16>
"""
    text = looked_up("tile").replace(
        "    %sum = tt.dot %x, %y,", f"{weighted}    %sum = tt.dot %x, %v,"
    )
    assert weighted in text
    before = gpu_module(text, "sm_90a")
    for stages in (2, 3):
        after = pipelined(text, "sm_90a", PipelineLoops(stages), *ALL)
        names = [op.name for op in loop_of(after).walk()]
        assert names.count("ttg.async_copy_global_to_local") == 2
        # One for the addresses of a later iteration, one for this one's product.
        assert names.count("tt.load") == 2
        for upper in (0, 1, 2, BLOCKS):
            assert torch.equal(result(after, 0, upper), result(before, 0, upper)), (stages, upper)


def test_address_behind_two_loads_is_left() -> None:
    text = looked_up("scalar").replace(
        "    %page = tt.load %pi : !tt.ptr<i32> -> i32\n",
        "    %first = tt.load %pi : !tt.ptr<i32> -> i32\n"
        "    %pj = tt.addptr %i, %first : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>\n"
        "    %page = tt.load %pj : !tt.ptr<i32> -> i32\n",
    )
    module = pipelined(text, "sm_80", PipelineLoops(3))
    copies = [op for op in loop_of(module).walk() if op.name == "ttg.async_copy_global_to_local"]
    # Only `a` is copied ahead.
    assert len(copies) == 1
    assert torch.equal(result(module, 0, 4), result(gpu_module(text, "sm_80"), 0, 4))


def test_loads_that_feed_no_dot_are_copied_where_the_loop_asks() -> None:
    body = """
tt.func @k(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %n: i32)
    attributes {arg_names = ["p", "q", "n"], num_warps = 1, arg_divisibility = [16, 16, 1]} {
  %r = tt.make_range {start = 0, end = 128} : tensor<128xi32>
  %b = tt.splat %p : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
  %first = tt.addptr %b, %r : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>)
      -> tensor<128x!tt.ptr<f32>>
  %zero = arith.constant dense<0.0> : tensor<128xf32>
  %block = arith.constant dense<128> : tensor<128xi32>
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %sum, %end = scf.for %t = %c0 to %n step %c1 iter_args(%s = %zero, %ptrs = %first)
      -> (tensor<128xf32>, tensor<128x!tt.ptr<f32>>) : i32 {
    %x = tt.load %ptrs : tensor<128x!tt.ptr<f32>> -> tensor<128xf32>
    %more = arith.addf %s, %x : tensor<128xf32>
    %next = tt.addptr %ptrs, %block : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>)
        -> tensor<128x!tt.ptr<f32>>
    scf.yield %more, %next : tensor<128xf32>, tensor<128x!tt.ptr<f32>>
  } ATTRIBUTES
  %o = tt.splat %q : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
  %out = tt.addptr %o, %r : (tensor<128x!tt.ptr<f32>>, tensor<128xi32>)
      -> tensor<128x!tt.ptr<f32>>
  tt.store %out, %sum : tensor<128x!tt.ptr<f32>>, tensor<128xf32>
  tt.return
}
"""
    assert _untouched(body.replace("ATTRIBUTES", ""))
    module = pipelined(
        body.replace("ATTRIBUTES", "{num_stages = 3}"), "sm_80", PipelineLoops(2), *ALL
    )
    assert loop_of(module).attributes["pipelined"] == 3
    x = torch.arange(128 * 5).float()
    for trips in (0, 1, 5):
        out = torch.zeros(128)
        assert not run_module(module, (x, out, trips), (1, 1, 1))
        assert torch.equal(out, x.reshape(5, 128)[:trips].sum(0))


def test_what_threads_stored_is_fenced_for_the_tensor_cores_once_before_the_loop() -> None:
    module = pipelined(product(), "sm_90a", PipelineLoops(3), *ALL)
    loop = loop_of(module)
    assert "ttng.fence_async_shared" not in [op.name for op in loop.walk()]
    assert loop.block is not None
    before = loop.block.operations[: loop.block.operations.index(loop)]
    assert [op.name for op in before].count("ttng.fence_async_shared") == 1


def test_buffer_made_in_the_body_keeps_its_own_fence() -> None:
    module = pipelined(product(u="scaled"), "sm_90a", PipelineLoops(3))
    body = loop_of(module).regions[0].block.operations
    names = [op.name for op in body]
    assert names.index("ttg.local_alloc") < names.index("ttng.fence_async_shared")


# A vector of 32 numbers, of which each thread needs some, in the layout of `x`.
_VECTOR = """
    %i18 = tt.splat %c : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
    %i19 = tt.addptr %i18, %inner : (tensor<32x!tt.ptr<f32>>, tensor<32xi32>)
        -> tensor<32x!tt.ptr<f32>>
    %vector = tt.load %i19 : tensor<32x!tt.ptr<f32>> -> tensor<32xf32>
    %narrow = arith.truncf %vector : tensor<32xf32> -> tensor<32xf16>
    %row = tt.expand_dims %narrow {axis = 0} : tensor<32xf16> -> tensor<1x32xf16>
    %all = tt.broadcast %row : tensor<1x32xf16> -> tensor<64x32xf16>
    %u = arith.addf %x, %all : tensor<64x32xf16>
"""


def _with_vector() -> str:
    head, dot, tail = product(extra=_VECTOR).rpartition("tt.dot %x,")
    assert dot
    return f"{head}tt.dot %u,{tail}"


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_small_vectors_are_copied_in_accesses_of_16_bytes(target: str) -> None:
    before = gpu_module(_with_vector(), target)
    after = pipelined(_with_vector(), target, PipelineLoops(3), *ALL)
    (copy,) = (
        op
        for op in loop_of(after).walk()
        if op.name == "ttg.async_copy_global_to_local" and len(op.operands[0].type.shape) == 1
    )
    layout = copy.operands[0].type.encoding
    assert layout.consecutive_elements(["dim0"]) * 4 == 16
    assert layout.in_size("register") == 4
    for upper in (0, 1, 3, BLOCKS):
        assert torch.equal(result(after, 0, upper), result(before, 0, upper)), upper
