"""Random integer kernels store the same before and after every pass, and lose no line.

The kernels are scalar, with nested loops, branches and stores; they run on the op table's own
constant folding, which needs no interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Block, Builder, Module, Operation, Region, SourceLocation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.passes import TILE_PIPELINE, Pass, PassManager
from tkdebug.compiler.verifier import verify

BINARY = [
    "arith.addi",
    "arith.subi",
    "arith.muli",
    "arith.divsi",
    "arith.remui",
    "arith.andi",
    "arith.ori",
    "arith.xori",
    "arith.shli",
    "arith.shrui",
    "arith.minsi",
    "arith.maxui",
]


class Machine:
    """Runs a module of scalar integers; a store appends to the trace."""

    def __init__(self) -> None:
        self.values: dict[Value, int] = {}
        self.trace: list[int] = []
        self.fuel = 20_000

    def block(self, block: Block, arguments: Sequence[int]) -> list[int]:
        self.values.update(zip(block.arguments, arguments, strict=True))
        handed_on: list[int] = []
        for op in block.operations:
            handed_on = self.operation(op)
        return handed_on

    def operation(self, op: Operation) -> list[int]:
        self.fuel -= 1
        if self.fuel < 0:
            raise TimeoutError
        operands = [self.values[value] for value in op.operands]
        results = self.results(op, operands)
        self.values.update(zip(op.results, results, strict=False))
        return results

    def results(self, op: Operation, operands: list[int]) -> list[int]:
        match op.name:
            case "arith.constant":
                value = op.attributes["value"]
                assert isinstance(value, int)
                return [int(value)]
            case "tt.store":
                self.trace.append(operands[1])
                return []
            case "scf.yield" | "scf.condition" | "tt.return":
                return operands
            case "arith.select":
                return [operands[1] if operands[0] else operands[2]]
            case "scf.if":
                return self.block(op.regions[0 if operands[0] else 1].block, [])
            case "scf.for":
                low, high, step, *carried = operands
                for index in range(low, high, step):
                    carried = self.block(op.regions[0].block, [index, *carried])
                return carried
            case "scf.while":
                while True:
                    keep, *forwarded = self.block(op.regions[0].block, operands)
                    if not keep:
                        return forwarded
                    operands = self.block(op.regions[1].block, forwarded)
        result = OPS[op.name](op).fold(operands)
        assert result is not None
        return [result]


class Kernel:
    """Draws one kernel."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.module = Module("k")
        self.builder = Builder(self.module)
        self.line = 0
        self.block = Block([ir.PointerType(ir.I32), ir.I32, ir.I32])

    def build(self, name: str, *arguments: object) -> Operation:
        self.line += 1
        self.builder.location = SourceLocation("k.py", self.line, 1, "k")
        return self.builder.build(name, *arguments)  # type: ignore[arg-type]

    def pick(self, values: list[Value]) -> Value:
        # Recent values more often, so that chains form.
        return self.draw(st.sampled_from(values[-6:] + values[:5]))

    def constant(self) -> Value:
        number = self.draw(st.sampled_from([0, 0, 1, 1, -1, 2, 3, 7, 2**31 - 1]))
        return self.build("arith.constant", (), [ir.I32], {"value": number}).result

    def condition(self, values: list[Value]) -> Value:
        if self.draw(st.integers(0, 3)) == 0:
            value = {"value": self.draw(st.integers(0, 1))}
            return self.build("arith.constant", (), [ir.I1], value).result
        predicate = self.draw(st.sampled_from(["eq", "ne", "slt", "uge"]))
        operands = [self.pick(values), self.pick(values)]
        return self.build("arith.cmpi", operands, [ir.I1], {"predicate": predicate}).result

    def body(self, values: list[Value], depth: int, wanted: int) -> list[Value]:
        """Fill the current block; returns `wanted` values to hand on."""
        values = list(values)
        for _ in range(self.draw(st.integers(2, 8))):
            kinds = ["binary"] * 6 + ["repeat"] * 4 + ["constant", "store", "select"]
            kind = self.draw(st.sampled_from(kinds + (["for", "if", "while"] if depth else [])))
            values += self.statement(kind, values, depth)
        return [self.pick(values) for _ in range(wanted)]

    def statement(self, kind: str, values: list[Value], depth: int) -> Sequence[Value]:
        match kind:
            case "constant":
                return [self.constant()]
            case "store":
                self.build("tt.store", [self.block.arguments[0], self.pick(values)])
                return ()
            case "select":
                operands = [self.condition(values), self.pick(values), self.pick(values)]
                return self.build("arith.select", operands, [ir.I32]).results
            case "repeat":
                owner = self.pick(values).owner
                if isinstance(owner, Operation) and owner.name in BINARY:
                    operands = owner.operands[:: self.draw(st.sampled_from([1, -1]))]
                    return self.observed(self.build(owner.name, operands, [ir.I32]))
                return ()
            case "for":
                return self.loop(values, depth)
            case "while":
                return self.while_loop(values, depth)
            case "if":
                return self.branch(values, depth)
        name = self.draw(st.sampled_from(BINARY))
        op = self.build(name, [self.pick(values), self.pick(values)], [ir.I32])
        return self.observed(op) if self.draw(st.booleans()) else op.results

    def observed(self, op: Operation) -> Sequence[Value]:
        self.build("tt.store", [self.block.arguments[0], op.result])
        return op.results

    def small(self, low: int, high: int) -> Value:
        number = {"value": self.draw(st.integers(low, high))}
        return self.build("arith.constant", (), [ir.I32], number).result

    def loop(self, values: list[Value], depth: int) -> Sequence[Value]:
        bounds = [self.small(0, 2), self.small(0, 4), self.small(1, 2)]
        inits = [self.pick(values) for _ in range(self.draw(st.integers(0, 3)))]
        types = [ir.I32] * len(inits)
        block = Block([ir.I32, *types])
        with self.builder.inside(block):
            self.build("scf.yield", self.body([*values, *block.arguments], depth - 1, len(inits)))
        return self.build("scf.for", [*bounds, *inits], types, {}, [Region([block])]).results

    def while_loop(self, values: list[Value], depth: int) -> Sequence[Value]:
        limit, one = self.small(0, 3), self.small(1, 1)
        start = self.small(0, 1)
        inits = [start, *(self.pick(values) for _ in range(self.draw(st.integers(0, 2))))]
        types = [ir.I32] * len(inits)
        before, after = Block(types), Block(types)
        with self.builder.inside(before):
            less = {"predicate": "slt"}
            more = self.build("arith.cmpi", [before.arguments[0], limit], [ir.I1], less).result
            rest = self.body([*values, *before.arguments], depth - 1, len(inits) - 1)
            self.build("scf.condition", [more, before.arguments[0], *rest])
        with self.builder.inside(after):
            counter = self.build("arith.addi", [after.arguments[0], one], [ir.I32]).result
            rest = self.body([*values, *after.arguments], depth - 1, len(inits) - 1)
            self.build("scf.yield", [counter, *rest])
        regions = [Region([before]), Region([after])]
        return self.build("scf.while", inits, types, {}, regions).results

    def branch(self, values: list[Value], depth: int) -> Sequence[Value]:
        condition = self.condition(values)
        count = self.draw(st.integers(0, 2))
        regions = []
        for _ in range(2):
            block = Block()
            with self.builder.inside(block):
                self.build("scf.yield", self.body(values, depth - 1, count))
            regions.append(Region([block]))
        return self.build("scf.if", [condition], [ir.I32] * count, {}, regions).results

    def function(self) -> Module:
        with self.builder.inside(self.block):
            constants = [self.small(number, number) for number in (0, 1, -1)]
            stored = self.body([*self.block.arguments[1:], *constants], 2, 2)
            if self.draw(st.booleans()):
                # Everything computed at the top can be observed, and nothing there is dead.
                stored = [v for op in self.block.operations for v in op.results]
            for value in stored:
                if value.type == ir.I32:
                    self.build("tt.store", [self.block.arguments[0], value])
            self.build("tt.return")
        self.build("tt.func", (), (), {"sym_name": "k"}, [Region([self.block])])
        return self.module


@st.composite
def kernels(draw: st.DrawFn) -> Module:
    return Kernel(draw).function()


def trace(module: Module, *arguments: int) -> list[int] | None:
    machine = Machine()
    try:
        machine.block(module.function.regions[0].block, [0, *arguments])
    except TimeoutError:
        return None
    return machine.trace


def check(module: Module, passes: Sequence[Pass]) -> None:
    verify(module)
    inputs = [(0, 0), (5, -3), (2**31 - 1, 7)]
    before = [trace(module, *values) for values in inputs]
    PassManager(passes, verify_each=True, print_after=()).run(module)
    after = [trace(module, *values) for values in inputs]
    for wanted, got in zip(before, after, strict=True):
        assert wanted is None or got == wanted


@pytest.mark.parametrize("pass_", TILE_PIPELINE, ids=lambda pass_: pass_.name)
@settings(max_examples=60, deadline=None)
@given(module=kernels())
def test_pass_keeps_what_a_kernel_stores(module: Module, pass_: Pass) -> None:
    check(module, [pass_])


@settings(max_examples=120, deadline=None)
@given(module=kernels())
def test_pipeline_keeps_what_a_kernel_stores(module: Module) -> None:
    check(module, [*TILE_PIPELINE, *TILE_PIPELINE])
