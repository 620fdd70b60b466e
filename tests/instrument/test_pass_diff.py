"""Changes of a pass, by op ids and rewrites, on the real passes and on made-up ones."""

from __future__ import annotations

import pytest

from tkdebug.compiler.artifacts import SnapshotRecorder
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.passes import run_pipeline
from tkdebug.compiler.passes.pipeline import PassManager
from tkdebug.errors import IRError
from tkdebug.instrument.passes.diff import StageOps, diff_pass, text_diff
from tkdebug.instrument.passes.summary import counts_text, group_changes
from tkdebug.records.events import CompilerPass, OpFacts, Rewrite

TEXT = """
tt.func @k(%p: !tt.ptr<i32>, %n: i32) {
  %zero = arith.constant 0 : i32 loc("k.py":2:9 in "k")
  %a = arith.addi %n, %zero : i32 loc("k.py":2:9 in "k")
  %b = arith.muli %a, %a : i32 loc("h.py":3:5 in "helper" at "k.py":3:9 in "k")
  %c = arith.muli %a, %a : i32 loc("k.py":4:9 in "k")
  %d = arith.addi %b, %c : i32 loc("k.py":5:9 in "k")
  tt.store %p, %d : !tt.ptr<i32>, i32 loc("k.py":6:5 in "k")
  tt.return loc("k.py":1:1 in "k")
} loc("k.py":1:1 in "k")
"""


def facts(name="tt.load", attributes=None, types=(), parent=None, places=(("k.py", 1),)):
    return OpFacts(name, attributes or {}, tuple(types), parent, 0, tuple(places))


def stage(name, ops, text=""):
    return StageOps(name, text, tuple(ops), ops, {})


def diff(before, after, *rewrites):
    compiler_pass = CompilerPass("p", "old", "new", 1, rewrites)
    function = {99: facts("tt.func")}
    old, new = stage("old", {**function, **before}), stage("new", {**function, **after})
    return diff_pass(1, compiler_pass, old, new)


def shown(changes):
    return [(c.kind, c.rule, [o.id for o in c.old], [o.id for o in c.new]) for c in changes]


def test_op_replaced_by_way_of_others_is_replaced_by_what_is_left():
    before, after = {1: facts()}, {9: facts("tt.store")}
    rewrites = (Rewrite("first", (1,), (5,)), Rewrite("second", (5,), (9,)))
    assert shown(diff(before, after, *rewrites).changes) == [("replaced", "first", [1], [9])]


def test_op_whose_replacement_was_erased_is_removed():
    rewrites = (Rewrite("fold", (1,), (5,)), Rewrite("erase", (5,)))
    assert shown(diff({1: facts()}, {}, *rewrites).changes) == [("removed", "fold", [1], [])]


def test_op_merged_into_one_that_stays_is_replaced_by_it():
    before = {1: facts(), 2: facts()}
    result = diff(before, {1: before[1]}, Rewrite("merge", (2,), (1,)))
    assert shown(result.changes) == [("replaced", "merge", [2], [1])]


def test_alike_texts_do_not_hide_that_it_is_another_op():
    result = diff({1: facts()}, {2: facts()}, Rewrite("again", (1,), (2,)))
    assert shown(result.changes) == [("replaced", "again", [1], [2])]


def test_op_without_a_predecessor_is_added():
    result = diff({}, {3: facts()}, Rewrite("convert", (), (3,)))
    assert shown(result.changes) == [("added", "convert", [], [3])]


def test_attributes_layouts_and_types_are_distinguished():
    before = {1: facts(attributes={"a": "1"}, types=["tensor<4xf32>"]), 2: facts(types=["i32"])}
    after = {
        1: facts(attributes={"a": "2"}, types=["tensor<4xf32, #layout0>"]),
        2: facts(types=["i64"]),
    }
    changes = diff(before, after, Rewrite("r", (1,), (1,))).changes
    assert [(c.kind, c.detail) for c in changes] == [
        ("attribute", "a: 1 -> 2"),
        ("layout", "none -> #layout0"),
        ("type", "i32 -> i64"),
    ]


def test_op_that_left_its_loop_moved_and_its_neighbours_did_not():
    before = {1: facts("scf.for"), 2: facts(parent=1), 3: facts(parent=1)}
    after = {2: facts(), 1: before[1], 3: before[3]}
    changes = diff(before, after, Rewrite("hoist", (2,), (2,))).changes
    assert [(c.kind, c.new[0].id, c.detail) for c in changes] == [("moved", 2, "out of scf.for #1")]


def test_body_of_a_replaced_loop_did_not_move():
    before = {1: facts("scf.for"), 2: facts(parent=1)}
    after = {7: facts("scf.for"), 2: facts(parent=7)}
    changes = diff(before, after, Rewrite("rebuild", (1,), (7,))).changes
    assert [c.kind for c in changes] == ["replaced"]


def test_of_ops_in_another_order_the_fewest_moved():
    before = {id_: facts() for id_ in (1, 2, 3, 4, 5)}
    after = {id_: before[id_] for id_ in (5, 1, 2, 3, 4)}
    assert shown(diff(before, after).changes) == [("moved", "", [5], [5])]


def test_op_that_got_other_operands_only_is_said_to():
    ops = {1: facts(), 2: facts()}
    changes = diff(ops, ops, Rewrite("rewire", (2,), (2,))).changes
    assert shown(changes) == [("operands", "rewire", [2], [2])]


def test_lines_that_no_op_stands_for_any_more_are_named():
    before = {1: facts(places=[("k.py", 4)]), 2: facts(places=[("k.py", 5)])}
    rewrites = (Rewrite("dead", (1,), (), (("k.py", 4), ("k.py", 5))),)
    assert diff(before, {2: before[2]}, *rewrites).gone_lines == (("k.py", 4),)


def test_real_pipeline_is_reported_in_full():
    module, recorder = parse_module(TEXT), SnapshotRecorder()
    recorder.take(module)
    run_pipeline(module, on_run=recorder.after_run)
    names = [p.name for p in recorder.passes]
    assert names[0] == "front-end"
    assert names[1] == "canonicalize"
    by_name = {p.name: p for p in recorder.passes}
    canonicalize, merge = by_name["canonicalize"], by_name["eliminate-common-subexpressions"]
    assert (canonicalize.before, canonicalize.after) == ("tile-ir", "tile-ir after canonicalize")
    assert merge.before == canonicalize.after
    assert any(rewrite.rule == "merge-equal" for rewrite in merge.rewrites)
    # What is merged stands for the lines of both.
    kept = next(op for op in merge.ops.values() if op.name == "arith.muli")
    assert {("h.py", 3), ("k.py", 3), ("k.py", 4)} <= set(kept.places)


def test_pass_that_fails_is_recorded_with_its_reason():
    class Fails:
        name = "fails"

        def run(self, module, rewriter):
            raise IRError("k.py:2: no")

    module, recorder = parse_module(TEXT), SnapshotRecorder()
    recorder.take(module)
    with pytest.raises(IRError):
        PassManager([Fails()]).run(module, on_run=recorder.after_run)
    assert [(p.name, p.after, p.error) for p in recorder.passes] == [
        ("front-end", "tile-ir", ""),
        ("fails", "tile-ir", "k.py:2: no"),
    ]


def test_text_diff_is_unified():
    old, new = stage("old", {}, "a\nb\nc"), stage("new", {}, "a\nx\nc")
    assert list(text_diff(old, new)) == [
        "--- old",
        "+++ new",
        "@@ -1,3 +1,3 @@",
        " a",
        "-b",
        "+x",
        " c",
    ]


def test_summary_counts_replaced_ops_and_groups_alike_changes():
    before = {1: facts(), 2: facts(), 3: facts(), 4: facts()}
    result = diff(before, {4: before[4]}, Rewrite("m", (1, 2), (4,)), Rewrite("dead", (3,)))
    assert counts_text(result) == "1 op removed, 2 ops replaced"
    groups = group_changes(result.changes)
    assert [(g.kind, g.what, g.count) for g in groups] == [
        ("removed", "tt.load", 1),
        ("replaced", "tt.load -> tt.load", 2),
    ]
