"""The pass manager: checks, snapshots, prints; and planted passes that break the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from tkdebug import knobs
from tkdebug.compiler.ir import Module, Operation, SourceLocation
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.ir.types import I32
from tkdebug.compiler.passes import TILE_PIPELINE, Pass, PassManager, run_pipeline
from tkdebug.compiler.passes.checked_runs import Inventory, lost_places
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.errors import IRError

TEXT = """
tt.func @k(%p: !tt.ptr<i32>, %n: i32) {
  %zero = arith.constant 0 : i32
  %a = arith.addi %n, %zero : i32
  %b = arith.muli %a, %n : i32
  %b2 = arith.muli %a, %n : i32
  %d = arith.addi %b, %b2 : i32
  tt.store %p, %d : !tt.ptr<i32>, i32
  tt.return
}
"""
# Passes that have something to do there, in this order; others may have, too.
CHANGING = ["canonicalize", "eliminate-common-subexpressions", "eliminate-dead-code"]


def is_among(names: list[str], others: list[str]) -> bool:
    """Whether `names` are among `others` in the same order."""
    left = iter(others)
    return all(name in left for name in names)


def op_named(module: Module, name: str) -> Operation:
    return next(op for op in module.walk() if op.name == name)


@dataclass(frozen=True)
class DropLocation:
    """Breaks the rule: a rewrite that forgets where its op came from."""

    name: ClassVar[str] = "drop-location"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        op = op_named(module, "arith.muli")
        op.location = SourceLocation("<ir>", 1, 1, "k")
        rewriter.record_change(op, "planted")


@dataclass(frozen=True)
class SwapLocations:
    """Breaks the rule: two ops stand for each other's places; every line is still there."""

    name: ClassVar[str] = "swap-locations"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        one, other = op_named(module, "arith.muli"), op_named(module, "tt.store")
        one.location, other.location = other.location, one.location
        rewriter.record_change(one, "planted")
        rewriter.record_change(other, "planted")


@dataclass(frozen=True)
class ReplaceElsewhere:
    """Breaks the rule: what comes in an op's stead stands for another op's place."""

    name: ClassVar[str] = "replace-elsewhere"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        op = op_named(module, "arith.muli")
        elsewhere = op_named(module, "tt.store").location
        types = [op.result.type]
        new = rewriter.build_before(op, op.name, op.operands, types, location=elsewhere)
        rewriter.replace_with_values(op, "planted", [new.result], [new])
        rewriter.commit()


@dataclass(frozen=True)
class InventLocation:
    """Breaks the rule: a new op stands for a place that none had."""

    name: ClassVar[str] = "invent-location"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        op, nowhere = op_named(module, "tt.store"), SourceLocation("<ir>", 99, 1, "k")
        number = {"value": 0}
        new = rewriter.build_before(op, "arith.constant", (), [I32], number, location=nowhere)
        rewriter.record_new(new, "planted")
        rewriter.commit()


@dataclass(frozen=True)
class EraseSilently:
    """Breaks the rule: erases an op without the rewriter; its line is still another op's."""

    name: ClassVar[str] = "erase-silently"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        addition = op_named(module, "arith.addi")
        addition.location = op_named(module, "arith.constant").location
        rewriter.commit()
        addition.result.replace_all_uses_with(addition.operands[0])
        op_named(module, "arith.constant").location = op_named(module, "arith.muli").location
        addition.erase()


@dataclass(frozen=True)
class BreakTypes:
    """Breaks the rule: leaves an op that the verifier refuses."""

    name: ClassVar[str] = "break-types"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        op = op_named(module, "arith.muli")
        op.operands = op.operands[:1]
        rewriter.record_change(op, "planted")


@dataclass(frozen=True)
class EraseStore:
    """Breaks the rule: asks for the erasure of an op with effects."""

    name: ClassVar[str] = "erase-store"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        rewriter.erase(op_named(module, "tt.store"), "planted")


def test_planted_pass_that_drops_a_location_fails() -> None:
    with pytest.raises(IRError, match=r"^<ir>:5: pass drop-location lost this source line: op #4"):
        PassManager([DropLocation()], verify_each=True).run(parse_module(TEXT))


@pytest.mark.parametrize("planted", [SwapLocations(), ReplaceElsewhere()])
def test_planted_pass_that_moves_a_location_to_another_op_fails(planted: Pass) -> None:
    message = f"^<ir>:5: pass {planted.name} lost this source line"
    with pytest.raises(IRError, match=message):
        PassManager([planted], verify_each=True).run(parse_module(TEXT))


def test_planted_pass_that_invents_a_location_fails() -> None:
    message = "^<ir>:99: pass invent-location gave this place to op #9, and no op had it before"
    with pytest.raises(IRError, match=message):
        PassManager([InventLocation()], verify_each=True).run(parse_module(TEXT))


def test_planted_pass_that_erases_unrecorded_fails() -> None:
    with pytest.raises(IRError, match="erase-silently changed ops without a record"):
        PassManager([EraseSilently()], verify_each=True).run(parse_module(TEXT))


def test_planted_pass_that_breaks_the_ir_is_named() -> None:
    with pytest.raises(IRError, match=r"got 1 operands.*\(after pass break-types\)") as caught:
        PassManager([BreakTypes()], verify_each=True).run(parse_module(TEXT))
    assert "arith.muli" in caught.value.__notes__[0]


def test_planted_pass_that_erases_a_store_fails_without_any_knob() -> None:
    with pytest.raises(IRError, match=r"erase-store .*tt.store #7 has effects"):
        PassManager([EraseStore()], verify_each=False).run(parse_module(TEXT))


def test_nothing_is_checked_unless_asked() -> None:
    PassManager([DropLocation()], verify_each=False).run(parse_module(TEXT))


def test_verify_each_is_a_knob() -> None:
    with knobs.scope(verify_each=True), pytest.raises(IRError, match="lost this source line"):
        run_pipeline(parse_module(TEXT), [DropLocation()])


def test_broken_input_is_reported_before_any_pass() -> None:
    module = parse_module(TEXT)
    op_named(module, "arith.muli").operands = ()
    with pytest.raises(IRError, match=r"got 0 operands, expected 2") as caught:
        PassManager(TILE_PIPELINE, verify_each=True).run(module)
    assert "after pass" not in str(caught.value)


def test_pipeline_times_and_records_each_pass() -> None:
    module = parse_module(TEXT)
    runs = PassManager(TILE_PIPELINE, verify_each=True).run(module)
    assert [run.name for run in runs] == [pass_.name for pass_ in TILE_PIPELINE]
    assert all(run.time_ns > 0 for run in runs)
    assert is_among(CHANGING, [run.name for run in runs if run.changed])
    assert all(record.pass_name == run.name for run in runs for record in run.records)
    assert print_module(module) == (
        "tt.func @k(%p: !tt.ptr<i32>, %n: i32) {\n"
        "  %b = arith.muli %n, %n : i32\n"
        "  %d = arith.addi %b, %b : i32\n"
        "  tt.store %p, %d : !tt.ptr<i32>, i32\n"
        "  tt.return\n"
        "}\n"
    )


def test_second_run_changes_nothing() -> None:
    module = parse_module(TEXT)
    run_pipeline(module)
    text = print_module(module, locations=True)
    runs = run_pipeline(module)
    assert not any(run.changed for run in runs)
    assert print_module(module, locations=True) == text


def test_snapshots_are_taken_of_passes_that_changed_something() -> None:
    taken: list[tuple[str, str]] = []
    run_pipeline(
        parse_module(TEXT), snapshot=lambda name, module: taken.append((name, print_module(module)))
    )
    assert is_among(CHANGING, [name for name, _ in taken])
    assert len(taken) < len(TILE_PIPELINE)
    texts = dict(taken)
    assert "%b2" in texts["canonicalize"]
    assert "%b2" not in texts["eliminate-common-subexpressions"]


def test_print_after_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    PassManager(TILE_PIPELINE, print_after=("canonicalize",)).run(parse_module(TEXT))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("tkdebug: IR of k after") == 1
    assert "tkdebug: IR of k after canonicalize:\ntt.func @k(" in err


def test_lost_places_counts_call_sites_and_every_fused_place() -> None:
    module = parse_module(
        'tt.func @k() {\n tt.return loc(fused["h.py":3:1 in "h" at "k.py":8:1 in "k", '
        '"k.py":9:1 in "k"])\n} loc("k.py":1:1 in "k")'
    )
    before = Inventory.of(module)
    op = op_named(module, "tt.return")
    inlined, own = op.location.sources
    assert before.places[op.id] == {inlined, own}
    op.location = own
    assert lost_places(before, Inventory.of(module), ()) == [(op.id, inlined)]
