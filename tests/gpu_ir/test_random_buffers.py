"""Random kernels keep their meaning under AllocateShared, and race nowhere after InsertBarriers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gpu_ir_support import may_alias
from hypothesis import HealthCheck, given, settings
from random_buffers import kernels, races

from tkdebug.compiler.analysis.aliasing import buffer_aliases
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes import PassManager
from tkdebug.compiler.passes.gpu.allocate_shared import AllocateShared, collect_demands, place
from tkdebug.compiler.passes.gpu.insert_barriers import InsertBarriers
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.launch import run_module
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.tiles.values import TileValue

RANDOM = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Recorder(Observer):
    """Keeps what every load of a buffer gave."""

    def __init__(self) -> None:
        self.loaded: list[torch.Tensor] = []

    def moments(self, op: Operation) -> Moments:
        return Moments.AFTER if op.name == "ttg.local_load" else Moments.NEVER

    def after(
        self,
        run: Evaluator,
        op: Operation,
        operands: Sequence[TileValue],
        results: Sequence[TileValue],
    ) -> Sequence[TileValue]:
        (value,) = results
        assert isinstance(value, torch.Tensor)
        self.loaded.append(value)
        return results


def loads(module: Module) -> list[torch.Tensor]:
    recorder = Recorder()
    run_module(module, [torch.full((1,), 7.0)], (2, 1, 1), observers=[recorder])
    straight = module.function.regions[0].block.operations
    assert len(recorder.loaded) >= sum(op.name == "ttg.local_load" for op in straight)
    return recorder.loaded


def allocated(module: Module, *more: InsertBarriers) -> Module:
    passes = (AllocateShared(scratch_bytes), *more)
    PassManager(passes, verify_each=True, print_after=()).run(module)
    return module


@RANDOM
@given(kernels())
def test_allocation_keeps_what_loads_give(module: Module) -> None:
    before = loads(module)
    after = loads(allocated(module, InsertBarriers(scratch_bytes)))
    assert len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@RANDOM
@given(kernels())
def test_what_is_live_together_lies_apart(module: Module) -> None:
    demands = collect_demands(module.function, scratch_bytes)
    offsets = place(demands)
    for i, (a, start) in enumerate(zip(demands, offsets, strict=True)):
        assert start % a.alignment_bytes == 0
        for b, other in zip(demands[:i], offsets[:i], strict=True):
            if a.live.overlaps(b.live):
                assert start + a.size_bytes <= other or other + b.size_bytes <= start


@RANDOM
@given(kernels())
def test_no_race_is_left(module: Module) -> None:
    assert races(allocated(module, InsertBarriers(scratch_bytes))) == []


@RANDOM
@given(kernels())
def test_straight_line_has_no_barrier_too_many(module: Module) -> None:
    block = module.function.regions[0].block
    if any(op.regions for op in block.operations):
        return
    allocated(module, InsertBarriers(scratch_bytes))
    for op in module.walk():
        if op.name == "gpu.barrier":
            assert races(module, skipped=op)


@RANDOM
@given(kernels())
def test_aliases_hold_what_values_are(module: Module) -> None:
    """Views of one allocation count as different only when they do not overlap."""
    aliases = buffer_aliases(module.function)
    views = [op for op in module.walk() if op.name == "ttg.memdesc_index"]
    for a in views:
        for b in views:
            same = a.operands == b.operands
            assert may_alias(aliases, a.result, b.result) or not same


@RANDOM
@given(kernels())
def test_text_round_trips(module: Module) -> None:
    allocated(module, InsertBarriers(scratch_bytes))
    text = print_module(module)
    assert print_module(parse_module(text)) == text
