"""Wrong passes: the pass and the rewrite that change a kernel's result are named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.dialects import scf
from tkdebug.compiler.passes import cleanup, dots
from tkdebug.compiler.passes import unroll_loops as unrolling
from tkdebug.compiler.passes.gpu import allocate_shared, insert_barriers, loop_registers
from tkdebug.variations.bisect_report import bisect_json, bisect_text
from tkdebug.variations.bisection import Bisected, bisect

SECONDS = 60.0
DOCS = Path(__file__).parents[2] / "docs"


@tkdebug.jit
def choose(x_ptr, y_ptr, n, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for s in tl.range(0, n, B, loop_unroll_factor=2):
        x = tl.load(x_ptr + s + tl.arange(0, B))
        high = tl.where(x > 0.5, x * 3.0, x)
        low = tl.where(x < 0.5, high, -x)
        total += low
    tl.store(y_ptr + tl.arange(0, B), total)


@tkdebug.jit
def product(a_ptr, b_ptr, c_ptr, K, N: tl.constexpr, BK: tl.constexpr):
    rows, deep = tl.arange(0, N), tl.arange(0, BK)
    a = a_ptr + rows[:, None] * K + deep[None, :]
    b = b_ptr + deep[:, None] * N + rows[None, :]
    acc = tl.zeros((N, N), tl.float32)
    for _ in range(0, K, BK):
        acc += tl.dot(tl.load(a), tl.load(b))
        a += BK
        b += BK * N
    tl.store(c_ptr + rows[:, None] * N + rows[None, :], acc)


def launch_choose():
    torch.manual_seed(0)
    choose[(1,)](torch.rand(160), torch.empty(32), 160, B=32)


def launch_product():
    torch.manual_seed(0)
    a, b = torch.randn(32, 128).half(), torch.randn(128, 32).half()
    product[(1,)](a, b, torch.empty(32, 32), 128, N=32, BK=32)


def line_of(kernel, text):
    source = kernel.kernel_source
    lines = source.text.splitlines()
    return source.first_line + next(i for i, line in enumerate(lines) if text in line)


def found(keep, launch, target="sm_80"):
    (kept,) = keep(launch)
    return bisect(kept, target, SECONDS)


@pytest.mark.parametrize("launch", [launch_choose, launch_product])
def test_right_passes_are_not_accused(keep, launch):
    result = found(keep, launch, "sm_90a")
    assert result.culprit is None, result
    assert result.note == ""
    assert result.passes > 30


def test_only_the_first_wrong_rewrite_is_named(keep, monkeypatch):
    real = cleanup._attributes_key

    def without_predicate(attributes):
        return real({name: a for name, a in attributes.items() if name != "predicate"})

    monkeypatch.setattr(cleanup, "_attributes_key", without_predicate)
    rewrite = found(keep, launch_choose).culprit.rewrite
    assert rewrite.at.name == "arith.cmpf"
    assert rewrite.at.frames[-1].line == line_of(choose, "x < 0.5")
    assert 1 <= rewrite.number <= rewrite.of


def test_wrong_unrolling_is_named_at_its_loop(keep, monkeypatch):
    real = unrolling._repeat_body
    monkeypatch.setattr(
        unrolling, "_repeat_body", lambda loop, factor, rewriter: real(loop, factor + 1, rewriter)
    )
    culprit = found(keep, launch_choose).culprit
    assert (culprit.pass_name, culprit.rewrite.rule) == ("unroll-loops", "unroll")
    assert culprit.rewrite.at.name == scf.For.name


def test_op_that_is_hoisted_though_it_varies_is_named(keep, monkeypatch):
    real = cleanup._is_invariant

    def wrong(op, inside):
        return op.name == "arith.extf" or real(op, inside)

    monkeypatch.setattr(cleanup, "_is_invariant", wrong)
    kept = keep(launch_widened)[0]
    culprit = bisect(kept, "sm_80", SECONDS).culprit
    assert (culprit.pass_name, culprit.how) == ("hoist-loop-invariants", "invalid")
    assert (culprit.rewrite.at.name, culprit.rewrite.rule) == ("arith.extf", "hoist")
    assert culprit.rewrite.at.frames[-1].line == line_of(widened, "x.to(")


@tkdebug.jit
def widened(x_ptr, y_ptr, n, B: tl.constexpr):
    total = tl.zeros((B,), tl.float32)
    for s in range(0, n, B):
        x = tl.load(x_ptr + s + tl.arange(0, B))
        total += x.to(tl.float32)
    tl.store(y_ptr + tl.arange(0, B), total)


def launch_widened():
    widened[(1,)](torch.ones(64).half(), torch.empty(32), 64, B=32)


def test_dot_that_loses_its_sum_is_named(keep, monkeypatch):
    def wrong(addition, rewriter):
        for product_, other in dots.arith.Binary(addition).both_orders:
            dot = product_.defining_op
            if dot is not None and other is not product_ and dots._is_part_of(dot, addition):
                rewriter.replace_with_values(addition, "accumulate", dot.results)
                return

    monkeypatch.setattr(dots, "_accumulate", wrong)
    culprit = found(keep, launch_product).culprit
    assert (culprit.stage, culprit.pass_name) == ("gpu-ir", "fold-add-into-accumulator")
    assert culprit.rewrite.at.name == "arith.addf"
    assert culprit.rewrite.at.frames[-1].line == line_of(product, "acc += ")


def test_buffers_at_one_place_are_named(keep, monkeypatch):
    monkeypatch.setattr(allocate_shared, "place", lambda demands: [0] * len(demands))
    culprit = found(keep, launch_product).culprit
    assert culprit.pass_name == "allocate-shared"
    # The whole pass is one: the first value that differs says which buffer.
    assert culprit.rewrite.rule == "place"
    assert culprit.value.at.frames[-1].line == line_of(product, "acc += ")


def test_barrier_that_is_left_out_is_missed_though_no_result_shows_it(keep, monkeypatch):
    real = insert_barriers.InsertBarriers.run

    def without_first(self, module, rewriter):
        real(self, module, rewriter)
        rewriter.commit()
        barrier = next(op for op in module.walk() if op.name == "gpu.barrier")
        barrier.erase()

    monkeypatch.setattr(insert_barriers.InsertBarriers, "run", without_first)
    culprit = found(keep, launch_product).culprit
    assert (culprit.pass_name, culprit.how) == ("insert-barriers", "invalid")
    assert f":{line_of(product, 'acc += ')}: " in culprit.text
    assert "a barrier is missing" in culprit.text


def test_pointer_that_steps_twice_is_a_fault_of_its_pass(keep, monkeypatch):
    real = loop_registers._steps
    monkeypatch.setattr(loop_registers, "_steps", lambda y, a: real(y, a) * 2)
    culprit = found(keep, launch_product).culprit
    assert (culprit.pass_name, culprit.how) == ("carry-base-pointers", "fault")
    assert "oob-load" in culprit.text


def test_pass_that_fails_is_named_with_the_rewrite_it_failed_at(keep, monkeypatch):
    real = cleanup.EliminateDeadCode.run

    def failing(self, module, rewriter):
        real(self, module, rewriter)
        raise RuntimeError("no such op")

    monkeypatch.setattr(cleanup.EliminateDeadCode, "run", failing)
    culprit = found(keep, launch_choose).culprit
    assert (culprit.pass_name, culprit.how) == ("eliminate-dead-code", "error")
    assert "no such op" in culprit.text


def test_second_run_of_a_pass_has_the_debuggers_name(keep, monkeypatch):
    real = cleanup.EliminateCommonSubexpressions.run

    def wrong(self, module, rewriter):
        real(self, module, rewriter)
        if any(value.type.encoding is not None for value in _tiles(module)):
            store = next(op for op in module.walk() if op.name == "tt.store")
            store.operands = (store.operands[0], _other_tile(module, store), *store.operands[2:])
            rewriter.record_change(store, "merge-equal")

    monkeypatch.setattr(cleanup.EliminateCommonSubexpressions, "run", wrong)
    culprit = found(keep, launch_widened).culprit
    assert culprit.stage_name == "gpu-ir:eliminate-common-subexpressions"
    assert culprit.rewrite.rule == "merge-equal"


def _tiles(module):
    for op in module.walk():
        yield from (value for value in op.results if hasattr(value.type, "encoding"))


def _other_tile(module, store):
    """A tile of the stored one's type, other than it."""
    wanted = store.operands[1]
    return next(
        value
        for op in module.function.regions[0].block.operations
        for value in op.results
        if value.type == wanted.type and value is not wanted
    )


def test_time_that_is_over_is_said(keep):
    (kept,) = keep(launch_choose)
    result = bisect(kept, "sm_80", 1e-9)
    assert result.culprit is None
    assert "over after" in result.note


def test_report_names_rewrite_line_and_stage(keep, monkeypatch):
    real = cleanup._is_invariant
    monkeypatch.setattr(
        cleanup, "_is_invariant", lambda op, i: op.name == "arith.extf" or real(op, i)
    )
    result = found(keep, launch_widened)
    text = "".join(bisect_text([result]))
    assert "hoist-loop-invariants leaves IR that is not valid" in text
    assert f":{line_of(widened, 'x.to(')}\n" in text
    assert "| total += x.to(tl.float32)" in text
    data = json.loads("".join(bisect_json([result])))
    schema = json.loads((DOCS / "bisect.schema.json").read_text())
    jsonschema.validate(data, schema)
    (row,) = data["kernels"]
    for name, part in (("Bisected", row), ("Culprit", row["culprit"])):
        assert set(part) == set(schema["$defs"][name]["properties"])
    assert set(row["culprit"]["rewrite"]) == set(schema["$defs"]["Rewrite"]["properties"])
    assert row["culprit"]["pass"] == "hoist-loop-invariants"
    assert row["culprit"]["rewrite"]["op"] == "arith.extf"
    clean = Bisected(result.launch, "sm_80", 37)
    assert "37 passes, each leaves the result as it is" in "".join(bisect_text([clean]))
    assert (
        json.loads("".join(bisect_json([replace(clean, below="x")])))["kernels"][0]["below"] == "x"
    )
