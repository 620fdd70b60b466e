"""The rewriter: order of operations, locations, records, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.rewriting.rewriter import Pattern, Rewriter, apply_patterns, by_root
from tkdebug.compiler.verifier import verify
from tkdebug.errors import IRError

TEXT = """
tt.func @k(%p: !tt.ptr<i32>, %n: i32) {
  %a = arith.addi %n, %n : i32
  %b = arith.muli %a, %n : i32
  %v = tt.load %p : !tt.ptr<i32> -> i32
  %c = arith.subi %b, %v : i32
  tt.store %p, %c : !tt.ptr<i32>, i32
  tt.return
}
"""


def parts() -> tuple[Module, Rewriter, dict[str, Operation]]:
    module = parse_module(TEXT)
    return module, Rewriter(module, "test"), {op.name: op for op in module.walk()}


def lines(op: Operation) -> list[int]:
    return [place.line for place in op.location.sources]


def test_a_walk_is_of_the_ops_as_they_were_when_it_began() -> None:
    module, _, ops = parts()
    walked = module.walk()
    ops["tt.store"].erase()
    assert [op.name for op in walked][-2:] == ["tt.store", "tt.return"]
    assert [op.name for op in module.walk()][-2:] == ["arith.subi", "tt.return"]


def test_new_op_takes_place_name_and_locations_of_what_it_replaces() -> None:
    module, rewriter, ops = parts()
    multiplication, addition = ops["arith.muli"], ops["arith.addi"]
    n = addition.operands[0]
    new = rewriter.replace_with_op(
        multiplication, "rule", "arith.shli", (n, n), absorbed=(addition,)
    )
    rewriter.commit()
    verify(module)
    assert "%b = arith.shli %n, %n : i32" in print_module(module).splitlines()[2]
    assert lines(new) == [4, 3]
    (record,) = rewriter.records
    assert (record.pass_name, record.rule) == ("test", "rule")
    assert (record.old_op_ids, record.new_op_ids) == ((multiplication.id,), (new.id,))
    assert record.erased_locations == ()


def test_folding_to_an_existing_value_logs_the_lost_line() -> None:
    module, rewriter, ops = parts()
    multiplication, addition = ops["arith.muli"], ops["arith.addi"]
    location = multiplication.location
    rewriter.replace_with_values(multiplication, "fold", (addition.result,))
    rewriter.commit()
    verify(module)
    (record,) = rewriter.records
    assert record.erased_locations == (location,)
    assert record.new_op_ids == (addition.id,)
    assert ops["arith.subi"].operands[0] is addition.result


def test_merging_fuses_locations_and_erases_none() -> None:
    module, rewriter, ops = parts()
    rewriter.merge(ops["arith.muli"], ops["arith.addi"], "merge-equal")
    rewriter.commit()
    verify(module)
    assert lines(ops["arith.addi"]) == [3, 4]
    assert rewriter.records[0].erased_locations == ()


def test_locations_of_merged_ops_follow_a_later_replacement() -> None:
    _, rewriter, ops = parts()
    addition = ops["arith.addi"]
    rewriter.merge(ops["arith.muli"], addition, "merge-equal")
    new = rewriter.replace_with_op(addition, "rule", "arith.shli", addition.operands)
    rewriter.commit()
    assert lines(new) == [3, 4]


@pytest.mark.parametrize("name", ["tt.load", "tt.store"])
def test_ops_with_effects_are_neither_erased_nor_moved(name: str) -> None:
    _, rewriter, ops = parts()
    for change in (
        lambda: rewriter.erase(ops[name], "rule"),
        lambda: rewriter.move_before(ops[name], ops["arith.addi"], "rule"),
        lambda: rewriter.merge(ops[name], ops["arith.addi"], "rule"),
        lambda: rewriter.replace_with_values(ops[name], "rule", ()),
    ):
        with pytest.raises(IRError, match=r"has effects, so it may be neither erased"):
            change()
    assert rewriter.records == []


def test_used_op_is_not_erased() -> None:
    _, rewriter, ops = parts()
    with pytest.raises(IRError, match=r"<ir>:3: test \(rule\): arith.addi #2 is still used"):
        rewriter.erase(ops["arith.addi"], "rule")


def test_branch_replaces_its_if_and_logs_the_other() -> None:
    module = parse_module("""
    tt.func @k(%p: !tt.ptr<i32>, %n: i32, %c: i1) {
      %r = scf.if %c -> (i32) {
        %a = arith.addi %n, %n : i32
        tt.store %p, %a : !tt.ptr<i32>, i32
        scf.yield %a : i32
      } else {
        tt.store %p, %n : !tt.ptr<i32>, i32
        scf.yield %n : i32
      }
      tt.store %p, %r : !tt.ptr<i32>, i32
      tt.return
    }""")
    rewriter = Rewriter(module, "test")
    branch = next(op for op in module.walk() if op.name == "scf.if")
    rewriter.replace_with_block(branch, "fold-if", branch.regions[0].block)
    rewriter.commit()
    verify(module)
    assert print_module(module) == (
        "tt.func @k(%p: !tt.ptr<i32>, %n: i32, %c: i1) {\n"
        "  %a = arith.addi %n, %n : i32\n"
        "  tt.store %p, %a : !tt.ptr<i32>, i32\n"
        "  tt.store %p, %a : !tt.ptr<i32>, i32\n"
        "  tt.return\n"
        "}\n"
    )
    (record,) = rewriter.records
    assert sorted(loc.primary.line for loc in record.erased_locations) == [3, 6, 8, 9]


def test_patterns_that_do_not_converge_are_an_error() -> None:
    module, rewriter, _ = parts()

    def swap(op: Operation, rewriter: Rewriter) -> bool:
        rewriter.replace_with_op(op, "swap", op.name, op.operands[::-1])
        return True

    with pytest.raises(IRError, match=r"rule swap on arith.addi .*do not converge"):
        apply_patterns(module, rewriter, by_root([Pattern("swap", ("arith.addi",), swap)]))


def test_pattern_sees_ops_that_other_patterns_built() -> None:
    module, rewriter, _ = parts()

    def turn(to: str) -> Pattern:
        def apply(op: Operation, rewriter: Rewriter) -> bool:
            rewriter.replace_with_op(op, to, to, op.operands)
            return True

        root = {"arith.xori": "arith.addi", "arith.ori": "arith.xori"}[to]
        return Pattern(to, (root,), apply)

    apply_patterns(module, rewriter, by_root([turn("arith.ori"), turn("arith.xori")]))
    assert [record.rule for record in rewriter.records] == ["arith.xori", "arith.ori"]
    assert "%a = arith.ori %n, %n : i32" in print_module(module)


class Model:
    """Apply the same edits to plain lists of ids, at once."""

    def __init__(self, blocks: list[list[int]]) -> None:
        self.blocks = blocks

    def block_of(self, id_: int) -> list[int]:
        return next(block for block in self.blocks if id_ in block)

    def insert(self, id_: int, anchor: int) -> None:
        block = self.block_of(anchor)
        block.insert(block.index(anchor), id_)

    def remove(self, id_: int) -> None:
        self.block_of(id_).remove(id_)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_collected_edits_equal_immediate_ones(data: st.DataObject) -> None:
    body = "\n".join(f"%c{i} = arith.constant {i} : i32" for i in range(4))
    other = "\n".join(f"%d{i} = arith.constant {i} : i32" for i in range(3))
    module = parse_module(
        f"tt.func @k(%c: i1) {{\n{body}\nscf.if %c {{\n{other}\nscf.yield\n}} else {{\n"
        "scf.yield\n}\ntt.return\n}"
    )
    rewriter = Rewriter(module, "test")
    blocks = [module.function.regions[0].block]
    branch = next(op for op in module.walk() if op.name == "scf.if")
    blocks += [region.block for region in branch.regions]
    by_id = {op.id: op for op in module.walk()}
    model = Model([[op.id for op in block.operations] for block in blocks])
    for _ in range(data.draw(st.integers(1, 14))):
        alive = [id_ for block in model.blocks for id_ in block]
        movable = [id_ for id_ in alive if by_id[id_].name == "arith.constant"]
        anchor = data.draw(st.sampled_from(alive))
        kind = data.draw(st.sampled_from(["build", "move", "erase", "commit", "replace"]))
        if kind == "commit":
            rewriter.commit()
            continue
        if kind == "build" or not movable:
            new = rewriter.build_before(
                by_id[anchor],
                "arith.constant",
                (),
                [module.function.regions[0].block.arguments[0].type],
                {"value": 1},
                location=by_id[anchor].location,
            )
            by_id[new.id] = new
            model.insert(new.id, anchor)
            continue
        chosen = data.draw(st.sampled_from(movable))
        if kind == "erase":
            rewriter.erase(by_id[chosen], "rule")
            model.remove(chosen)
        elif kind == "replace":
            new = rewriter.replace_with_op(
                by_id[chosen], "rule", "arith.constant", (), {"value": 2}
            )
            by_id[new.id] = new
            model.insert(new.id, chosen)
            model.remove(chosen)
        elif chosen != anchor:
            rewriter.move_before(by_id[chosen], by_id[anchor], "rule")
            model.remove(chosen)
            model.insert(chosen, anchor)
    rewriter.commit()
    assert [[op.id for op in block.operations] for block in blocks] == model.blocks
    for block in blocks:
        assert all(op.block is block for op in block.operations)


def test_values_know_their_users_after_rewrites() -> None:
    module, rewriter, ops = parts()
    n: Value = ops["arith.addi"].operands[0]
    rewriter.replace_with_values(ops["arith.addi"], "fold", (n,))
    rewriter.commit()
    assert n.uses == {ops["arith.muli"]: 2}
    verify(module)
