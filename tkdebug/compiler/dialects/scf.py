"""MLIR's scf dialect: structured control flow, and its terminators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tkdebug.compiler.dialects.interfaces import Effects, StatementRegions, Terminator
from tkdebug.compiler.ir import Type
from tkdebug.compiler.ir.core import Attribute, Block, Operation, Value
from tkdebug.compiler.ir.op_view import (
    I1,
    INTEGER,
    AttributeDef,
    operand_def,
    optional_attribute_def,
    variadic_operands_def,
    variadic_results_def,
)
from tkdebug.errors import IRError


class Condition(Terminator):
    """Ends the before-region of scf.while: condition, then the values forwarded."""

    name = "scf.condition"
    condition = operand_def(I1)
    forwarded = variadic_operands_def()


class Yield(Terminator):
    """Ends a region and hands its values out."""

    name = "scf.yield"
    values = variadic_operands_def()


class Loop(StatementRegions):
    """A loop that carries values from one iteration to the next."""

    effects = Effects.OTHER
    disable_licm = AttributeDef[bool | int]("disable_licm", (bool, int), False)


class For(Loop):
    """Runs its region for iv = lower, lower + step, … while iv < upper, carrying values."""

    name = "scf.for"
    terminators = (Yield,)
    has_effects_of_regions = True
    lower = operand_def(INTEGER)
    upper = operand_def(INTEGER)
    step = operand_def(INTEGER)
    inits = variadic_operands_def()
    results = variadic_results_def()
    num_stages = optional_attribute_def("num_stages", int)
    loop_unroll_factor = optional_attribute_def("loop_unroll_factor", int)
    # Iterations in flight, once loads of the loop are pipelined.
    pipelined = optional_attribute_def("pipelined", int)

    @classmethod
    def infer(
        cls, operands: Sequence[Type], attributes: Mapping[str, Attribute]
    ) -> Sequence[Type] | None:
        """The types of the carried values."""
        return tuple(operands[3:])

    def verify(self) -> None:
        """Check that carried values keep their types."""
        op, arguments = self.op, self.body.arguments
        if len(op.operands) < 3 or not len(arguments) - 1 == len(self.inits) == len(op.results):
            raise IRError("scf.for: operands, region arguments and results do not fit each other")
        for init, argument, result in zip(self.inits, arguments[1:], op.results, strict=True):
            if not init.type == argument.type == result.type:
                raise IRError(f"scf.for: carried value changes type: {init.type}, {argument.type}")

    @property
    def bounds(self) -> tuple[Value, Value, Value]:
        """The lower bound, upper bound and step."""
        return self.lower, self.upper, self.step

    @property
    def body(self) -> Block:
        """The block that runs once per iteration."""
        return self.op.regions[0].block

    @property
    def induction_variable(self) -> Value:
        """The counter, which starts at `lower` and grows by `step`."""
        return self.body.arguments[0]

    @property
    def iter_args(self) -> list[Value]:
        """The carried values, as the body sees them."""
        return self.body.arguments[1:]

    @property
    def yielded(self) -> tuple[Value, ...]:
        """The values that the body hands to the next iteration."""
        return self.body.terminator.operands


class While(Loop):
    """Runs `before`, and while its condition holds `after`, carrying values."""

    name = "scf.while"
    terminators = (Condition, Yield)
    # It may never end, and a kernel that hangs must still hang after every pass.
    has_effects_of_regions = False
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


class If(StatementRegions):
    """Runs one of two regions."""

    name = "scf.if"
    effects = Effects.OTHER
    terminators = (Yield, Yield)
    has_effects_of_regions = True
    condition = operand_def(I1)
    results = variadic_results_def()

    def verify(self) -> None:
        """Check that both branches yield the results' types."""
        if len(self.op.regions) != 2:
            raise IRError("scf.if: expected a then and an else region")
        for block in (self.then_block, self.else_block):
            if [v.type for v in block.terminator.operands] != [v.type for v in self.results]:
                raise IRError("scf.if: a branch yields other types than the results")

    @property
    def then_block(self) -> Block:
        """The block that runs if the condition holds."""
        return self.op.regions[0].block

    @property
    def else_block(self) -> Block:
        """The block that runs otherwise."""
        return self.op.regions[1].block


def loops_around(op: Operation) -> Iterator[Operation]:
    """Yield the loops that an op is in, the innermost first."""
    return filter(Loop.matches, op.ancestors())
