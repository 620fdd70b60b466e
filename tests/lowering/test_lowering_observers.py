"""Calls that observers of a lowering get, and what they may do."""

from __future__ import annotations

from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.emitter import Emitter
from tkdebug.compiler.targets.nvptx.lowering.context import Lowering
from tkdebug.compiler.targets.nvptx.lowering.driver import LOWERINGS
from tkdebug.compiler.targets.nvptx.lowering.observers import LoweringObserver
from tkdebug.compiler.targets.nvptx.lowering.types import Registers

TEXT = """
tt.func @f(%n: i32) attributes {num_warps = 4} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %sum = scf.for %i = %zero to %n step %one iter_args(%total = %zero) -> (i32) : i32 {
    %next = arith.addi %total, %i : i32
    scf.yield %next : i32
  }
  %twice = arith.addi %sum, %sum : i32
  %positive = arith.cmpi %twice, %zero {predicate = "sge"} : (i32, i32) -> i1
  tt.assert %positive {message = "no"} : (i1) -> ()
  tt.return
}
"""


class Notes(LoweringObserver):
    """Writes down what it is called with."""

    def __init__(self, ctx: Lowering) -> None:
        self._ctx = ctx
        self.seen: list[str] = []

    def before(self, op: Operation) -> None:
        assert not any(result in self._ctx.values for result in op.results)
        self.seen.append(f"before {op.name}")

    def after(self, op: Operation) -> None:
        assert all(result in self._ctx.values for result in op.results)
        self.seen.append(f"after {op.name}")

    def fails(self, op: Operation, condition: Value, failures: Registers) -> bool:
        self.seen.append(f"{op.name} fails by {len(failures)} register")
        return True

    def loop_begins(self, loop: Operation) -> None:
        self.seen.append("loop")

    def loop_head(self, loop: Operation, before: str) -> None:
        self.seen.append(f"head after {before}")

    def loop_round_ends(self, loop: Operation) -> None:
        self.seen.append("round ends")


def lowering() -> Lowering:
    module = parse_module(TEXT)
    emit = Emitter("f", ["i32"], 128)
    ctx = Lowering(module, TARGETS["sm_90a"], emit, LOWERINGS)
    emit.set_op(module.function.id)
    (argument,) = module.function.regions[0].block.arguments
    ctx.values[argument] = [emit.parameter(0)]
    return ctx


def test_observer_sees_ops_loops_and_assertions() -> None:
    ctx = lowering()
    notes = Notes(ctx)
    ctx.observers = [notes]
    ctx.lower_block(ctx.module.function.regions[0].block)
    around = lambda name, *inside: [f"before {name}", *inside, f"after {name}"]  # noqa: E731
    assert notes.seen == [
        *around("arith.constant"),
        *around("arith.constant"),
        *around("scf.for", "loop", "head after start", *around("arith.addi"), "round ends"),
        *around("arith.addi"),
        *around("arith.cmpi"),
        *around("tt.assert", "tt.assert fails by 1 register"),
    ]
    assert "__assertfail" not in ctx.emit.module(file="f")


def test_op_that_is_lowered_early_is_not_lowered_again() -> None:
    class Early(Notes):
        def before(self, op: Operation) -> None:
            super().before(op)
            if len(self.seen) == 1:
                self._ctx.lower_early(op.block.operations[1])

    ctx = lowering()
    early = Early(ctx)
    ctx.observers = [early]
    block = ctx.module.function.regions[0].block
    ctx.lower_block(block)
    assert early.seen[:4] == [
        "before arith.constant",
        "before arith.constant",
        "after arith.constant",
        "after arith.constant",
    ]
    assert early.seen[4] == "before scf.for"


def test_bare_kernel_reports_assertions_itself() -> None:
    ctx = lowering()
    ctx.lower_block(ctx.module.function.regions[0].block)
    assert "__assertfail" in ctx.emit.module(file="f")
