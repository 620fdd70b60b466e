"""Compile hooks get the passes; without a hook nothing of them is kept."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler import artifacts
from tkdebug.compiler.passes import TILE_PIPELINE
from tkdebug.errors import IRError
from tkdebug.instrument import add_hook
from tkdebug.instrument.passes.diff import StageOps, diff_pass
from tkdebug.instrument.passes.summary import counts_text
from tkdebug.instrument.records import RecordedPass
from tkdebug.instrument.session_file import store
from tkdebug.instrument.session_file.tables import table_of
from tkdebug.knobs import KNOBS


def fresh_kernel():
    """A kernel that nothing has compiled yet."""

    @tkdebug.jit
    def scaled(x_ptr, out_ptr, BLOCK: tl.constexpr):
        offs = tl.arange(0, BLOCK)
        unused = offs + 1  # noqa: F841
        tl.store(out_ptr + offs, tl.load(x_ptr + offs) * 2.0)

    return scaled


def launch(kernel, **options):
    with tkdebug.mode("interpret"):
        kernel[(1,)](torch.ones(64), torch.zeros(64), BLOCK=64, **options)


def test_hook_gets_each_pass_with_time_stages_and_rewrites():
    events = []
    with add_hook(compiled=events.append):
        launch(fresh_kernel())
    (event,) = events
    names = [p.name for p in event.passes]
    assert names == ["front-end", *(pass_.name for pass_ in TILE_PIPELINE)]
    assert all(p.time_ns > 0 for p in event.passes)
    assert {p.after for p in event.passes} <= set(event.artifacts)
    dead = next(p for p in event.passes if p.name == "eliminate-dead-code")
    assert any(rewrite.rule == "erase-dead" and rewrite.erased for rewrite in dead.rewrites)


def test_without_a_hook_no_snapshot_is_taken():
    with mock.patch.object(artifacts, "module_facts", side_effect=AssertionError):
        launch(fresh_kernel())


def stored_and_read(compiled):
    row = store.pass_row("hash", 0, compiled)
    return table_of(RecordedPass).record(row).compiler_pass


def test_passes_come_back_from_their_rows():
    events = []
    with add_hook(compiled=events.append), KNOBS.scope(cross_compile="sm_80"):
        launch(fresh_kernel())
    passes = [p for event in events for p in event.passes]
    assert len(passes) > 20
    assert [stored_and_read(p) for p in passes] == passes


def test_options_of_the_compile_are_no_pass_change():
    events = []
    with add_hook(compiled=events.append), KNOBS.scope(cross_compile="sm_80"):
        launch(fresh_kernel(), enable_fp_fusion=False, enable_reflect_ftz=False)
    passes = [p for event in events for p in event.passes]
    functions = [op for p in passes for op in p.ops.values() if op.name == "tt.func"]
    assert functions
    for name in ("num_warps", "target", "fp_fusion", "flush_subnormals"):
        assert not any(name in op.attributes for op in functions), name


def test_pass_too_large_to_be_kept_says_so():
    events = []
    with add_hook(compiled=events.append):
        launch(fresh_kernel())
    with mock.patch.object(store, "MAX_PASS_CHARS", 100):
        kept = stored_and_read(events[0].passes[0])
    assert (kept.name, kept.after) == ("front-end", "tile-ir")
    assert (kept.ops, kept.op_ids) == ({}, None)
    before = StageOps("tile-ir", "", (1,), {}, {})
    diff = diff_pass(1, replace(kept, before="x"), before, StageOps("tile-ir", "", (), {}, {}))
    assert not diff.changes
    assert counts_text(diff) == "too large a kernel for its changes to be recorded"


def test_kernel_that_fails_in_a_pass_tells_the_passes_until_then():
    events = []
    target = "tkdebug.compiler.passes.cleanup.HoistLoopInvariants.run"
    failing = mock.patch(target, side_effect=IRError("k.py:3: no"))
    with add_hook(compiled=events.append), failing, pytest.raises(IRError, match="no"):
        launch(fresh_kernel())
    (event,) = events
    assert event.error == "k.py:3: no"
    names = [pass_.name for pass_ in TILE_PIPELINE]
    until = names[: names.index("hoist-loop-invariants") + 1]
    assert [p.name for p in event.passes] == ["front-end", *until]
    assert event.passes[-1].error == "k.py:3: no"
