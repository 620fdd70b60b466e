"""The artifacts of a compilation and their line tables."""

from __future__ import annotations

from tkdebug.compiler.artifacts import SnapshotRecorder, kernel_artifacts
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes import run_pipeline

SOURCE = """\
@triton.jit
def k(p, n):
    a = n + 0
    b = helper(a)
    tl.store(p, b)
"""
TEXT = """
tt.func @k(%p: !tt.ptr<i32>, %n: i32) {
  %zero = arith.constant 0 : i32 loc("k.py":12:9 in "k")
  %a = arith.addi %n, %zero : i32 loc("k.py":12:9 in "k")
  %b = arith.muli %a, %a : i32 loc("h.py":3:5 in "helper" at "k.py":13:9 in "k")
  tt.store %p, %b : !tt.ptr<i32>, i32 loc("k.py":14:5 in "k")
  tt.return loc("k.py":11:1 in "k")
} loc("k.py":11:1 in "k")
"""


def test_artifacts_hold_source_ir_and_each_pass_that_changed_it() -> None:
    module = parse_module(TEXT)
    recorder = SnapshotRecorder()
    recorder.take(module)
    runs = run_pipeline(module, on_run=recorder.after_run)
    changed = [run.name for run in runs if run.changed]
    assert "canonicalize" in changed
    assert len(changed) < len(runs)
    artifacts, op_lines = kernel_artifacts(SOURCE, recorder.snapshots, file="k.py", first_line=10)
    assert list(artifacts) == [
        "source",
        "tile-ir",
        *(f"tile-ir after {name}" for name in changed),
    ]
    assert list(op_lines) == list(artifacts)
    assert artifacts["source"] == SOURCE
    assert {line: [f.line for f in frames] for line, frames in op_lines["source"].items()} == {
        2: [11],
        3: [12],
        4: [13],
        5: [14],
    }


def test_stages_alone_are_recorded_where_passes_are_not_asked_for() -> None:
    module = parse_module(TEXT)
    recorder = SnapshotRecorder(each_pass=False)
    recorder.take(module)
    runs = run_pipeline(module, on_run=recorder.after_run)
    recorder.finish(module)
    recorder.finish(module)
    last = [run.name for run in runs if run.changed][-1]
    assert [s.stage for s in recorder.snapshots] == ["tile-ir", f"tile-ir after {last}"]
    assert recorder.snapshots[-1].text == print_module(module)
    assert recorder.passes == []


def test_ir_lines_lead_to_the_call_chain_of_their_op() -> None:
    recorder = SnapshotRecorder()
    recorder.take(parse_module(TEXT))
    artifacts, op_lines = kernel_artifacts(SOURCE, recorder.snapshots, file="k.py", first_line=10)
    lines = artifacts["tile-ir"].splitlines()
    number = next(i for i, line in enumerate(lines, 1) if "arith.muli" in line)
    frames = op_lines["tile-ir"][number]
    assert [(f.file, f.line, f.function) for f in frames] == [
        ("k.py", 13, "k"),
        ("h.py", 3, "helper"),
    ]


def test_pass_that_runs_twice_has_two_stages() -> None:
    module = parse_module(TEXT)
    recorder = SnapshotRecorder()
    recorder.after_pass("canonicalize", module)
    recorder.after_pass("canonicalize", module)
    assert [s.stage for s in recorder.snapshots] == [
        "tile-ir after canonicalize",
        "tile-ir after canonicalize (2)",
    ]
