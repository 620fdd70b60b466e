"""`PipelineWgmma`: warpgroup dots run on until something needs what they give."""

from __future__ import annotations

import pytest
import torch
from block_products import BLOCKS, gpu_module, loop_of, pipelined, product, result

from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.passes.gpu.allocate_shared import AllocateShared
from tkdebug.compiler.passes.gpu.insert_barriers import InsertBarriers
from tkdebug.compiler.passes.gpu.pipeline_loops import PipelineLoops
from tkdebug.compiler.passes.gpu.pipeline_wgmma import PipelineWgmma
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes

DOT, WAIT, COPY = (
    "ttng.warp_group_dot",
    "ttng.warp_group_dot_wait",
    "ttg.async_copy_global_to_local",
)
FIRST = """
    %s = tt.dot %x, %y, %zero {input_precision = "tf32"}
        : (tensor<64x32xf16>, tensor<32x32xf16>, tensor<64x32xf32>) -> tensor<64x32xf32>
    %half = arith.constant dense<0.5> : tensor<64x32xf32>
"""
RESCALE = "    %scaled = arith.mulf %acc, %half : tensor<64x32xf32>\n"
NARROW = "    %p = arith.truncf %s : tensor<64x32xf32> -> tensor<64x32xf16>\n"


def loop_text(extra: str, a: str = "%p", acc: str = "%scaled") -> str:
    """A loop whose last dot multiplies `a` and adds to `acc`."""
    head, dot, tail = product(extra=extra).rpartition("tt.dot %x, %y, %acc")
    assert dot
    return f"{head}tt.dot {a}, %y, {acc}{tail}"


ATTENTION = loop_text(FIRST + NARROW + RESCALE)
CARRIED_AS_IT_IS = loop_text(FIRST + NARROW, acc="%acc")
CHAINED = loop_text(
    """
    %s = tt.dot %x, %y, %acc {input_precision = "tf32"}
        : (tensor<64x32xf16>, tensor<32x32xf16>, tensor<64x32xf32>) -> tensor<64x32xf32>
""",
    a="%x",
    acc="%s",
)
USED_AT_THE_TOP = loop_text(RESCALE.replace("%half", "%acc") + FIRST + NARROW)
STORED = loop_text(
    FIRST
    + NARROW
    + """
    %19i = tt.splat %c : !tt.ptr<f32> -> tensor<64x32x!tt.ptr<f32>>
    %20i = tt.addptr %19i, %offs_a : (tensor<64x32x!tt.ptr<f32>>, tensor<64x32xi32>)
        -> tensor<64x32x!tt.ptr<f32>>
    tt.store %20i, %acc : tensor<64x32x!tt.ptr<f32>>, tensor<64x32xf32>
""",
    acc="%acc",
)
LOOPS = {
    "attention": ATTENTION,
    "carried as it is": CARRIED_AS_IT_IS,
    "chained": CHAINED,
    "used at the top": USED_AT_THE_TOP,
}


def overlapped(text: str, stages: int = 3) -> Module:
    return pipelined(text, "sm_90a", PipelineLoops(stages), PipelineWgmma())


def body_of(module: Module) -> list[Operation]:
    return loop_of(module).regions[0].block.operations


def waits_of(module: Module) -> list[Operation]:
    return [op for op in body_of(module) if op.name == WAIT]


@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_results_stay_for_every_trip_count(text: str, stages: int) -> None:
    before = gpu_module(text, "sm_90a")
    after = pipelined(
        text,
        "sm_90a",
        PipelineLoops(stages),
        PipelineWgmma(),
        AllocateShared(scratch_bytes),
        InsertBarriers(scratch_bytes),
    )
    for upper in (0, 1, 2, 3, BLOCKS):
        assert torch.equal(result(after, 0, upper), result(before, 0, upper)), upper


def test_rescaled_accumulator_runs_on_until_the_next_iterations_first_wait() -> None:
    module = overlapped(ATTENTION)
    assert [op.attributes.get("async") for op in body_of(module) if op.name == DOT] == [True, True]
    (first,) = waits_of(module)
    assert first.attributes["pendings"] == 0
    (carried,) = (
        value for value in first.operands if value.owner is loop_of(module).regions[0].block
    )
    (rescaling,) = first.results[first.operands.index(carried)].uses
    assert rescaling.name == "arith.mulf"


def test_rings_are_filled_again_after_the_wait_that_ends_the_last_iterations_dot() -> None:
    body = body_of(overlapped(ATTENTION))
    names = [op.name for op in body]
    assert names.index(WAIT) < names.index(COPY)


def test_accumulator_is_waited_for_after_the_loop() -> None:
    module = overlapped(ATTENTION)
    loop = loop_of(module)
    assert loop.block is not None
    following = loop.block.operations[loop.block.operations.index(loop) + 1 :]
    (wait,) = (op for op in following if op.name == WAIT)
    assert wait.attributes["pendings"] == 0
    assert list(wait.operands[0].uses) == [wait]


def test_dots_that_add_up_need_no_wait_between_them() -> None:
    body = body_of(overlapped(CHAINED))
    first, second = (index for index, op in enumerate(body) if op.name == DOT)
    assert WAIT not in [op.name for op in body[first:second]]
    assert body[second].operands[2] is body[first].result


def test_what_is_used_before_any_wait_does_not_run_on() -> None:
    module = overlapped(USED_AT_THE_TOP)
    terminator = loop_of(module).regions[0].block.terminator
    (last,) = (wait for wait in waits_of(module) if terminator in wait.results[0].uses)
    assert last.attributes["pendings"] == 0


def test_accumulator_that_the_loop_stores_is_waited_for_in_each_iteration() -> None:
    module = overlapped(STORED)
    terminator = loop_of(module).regions[0].block.terminator
    (last,) = (wait for wait in waits_of(module) if terminator in wait.results[0].uses)
    assert last.attributes["pendings"] == 0
