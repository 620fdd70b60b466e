"""MLIR's scf dialect: structured control flow, and what ends its regions."""

from __future__ import annotations

from tkdebug.compiler.ir.core import Block, Value
from tkdebug.compiler.ir.op_view import (
    I1,
    INTEGER,
    AttributeDef,
    OpView,
    operand_def,
    optional_attribute_def,
    variadic_operands_def,
    variadic_results_def,
)


class Loop(OpView):
    """A loop that carries values from one iteration to the next."""

    disable_licm = AttributeDef[bool | int]("disable_licm", (bool, int), False)


class For(Loop):
    """Runs its region for iv = lower, lower + step, … while iv < upper, carrying values."""

    name = "scf.for"
    lower = operand_def(INTEGER)
    upper = operand_def(INTEGER)
    step = operand_def(INTEGER)
    inits = variadic_operands_def()
    results = variadic_results_def()
    num_stages = optional_attribute_def("num_stages", int)
    loop_unroll_factor = optional_attribute_def("loop_unroll_factor", int)
    # Iterations in flight, once loads of the loop are pipelined.
    pipelined = optional_attribute_def("pipelined", int)

    @property
    def bounds(self) -> tuple[Value, Value, Value]:
        """Where it starts, where it ends and how far it steps."""
        return self.lower, self.upper, self.step

    @property
    def body(self) -> Block:
        """The block that runs once per iteration."""
        return self.op.regions[0].block

    @property
    def induction_variable(self) -> Value:
        """What counts from `lower` by `step`."""
        return self.body.arguments[0]

    @property
    def iter_args(self) -> list[Value]:
        """The carried values, as the body sees them."""
        return self.body.arguments[1:]

    @property
    def yielded(self) -> tuple[Value, ...]:
        """What the body carries on to the next iteration."""
        return self.body.terminator.operands


class While(Loop):
    """Runs `before`, and while its condition holds `after`, carrying values."""

    name = "scf.while"
    inits = variadic_operands_def()
    results = variadic_results_def()

    @property
    def before(self) -> Block:
        """The block that computes the condition."""
        return self.op.regions[0].block

    @property
    def after(self) -> Block:
        """The block that runs while the condition holds."""
        return self.op.regions[1].block


class If(OpView):
    """Runs one of two regions."""

    name = "scf.if"
    condition = operand_def(I1)
    results = variadic_results_def()

    @property
    def then_block(self) -> Block:
        """The block that runs where the condition holds."""
        return self.op.regions[0].block

    @property
    def else_block(self) -> Block:
        """The block that runs otherwise."""
        return self.op.regions[1].block


class Condition(OpView):
    """Ends the before-region of scf.while: condition, then the values forwarded."""

    name = "scf.condition"
    condition = operand_def(I1)
    forwarded = variadic_operands_def()


class Yield(OpView):
    """Ends a region and hands its values out."""

    name = "scf.yield"
    values = variadic_operands_def()
