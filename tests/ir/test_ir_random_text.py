"""Random modules survive printing and parsing, with every name, attribute, type and location."""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tkdebug.compiler.ir import (
    Block,
    Builder,
    Module,
    Operation,
    Region,
    SourceLocation,
    Value,
    fuse,
)
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.location import Location
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module

NAMES = st.sampled_from(
    [None, None, "x", "x_1", "x_2", "acc", "é", "a b", "0", "7x", "cst", "c1_i32", "true", "_"]
)
ELEMENTS = st.sampled_from([*ir.SCALARS.values(), ir.PointerType(ir.F32)])
TYPES = st.one_of(
    ELEMENTS,
    st.builds(
        ir.TensorType, st.lists(st.sampled_from([1, 2, 16, 128]), max_size=3).map(tuple), ELEMENTS
    ),
)
SCALAR_ATTRIBUTES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(allow_nan=False),
    st.text(max_size=6),
    ELEMENTS,
)
ATTRIBUTES = st.dictionaries(
    st.one_of(st.sampled_from(["axis", "order", "a.b", "none"]), st.text(max_size=4)),
    st.one_of(SCALAR_ATTRIBUTES, st.lists(SCALAR_ATTRIBUTES, max_size=3).map(tuple)),
    max_size=3,
)


@st.composite
def locations(draw: st.DrawFn) -> Location:
    place: SourceLocation | None = None
    places = []
    for _ in range(draw(st.integers(1, 3))):
        file = draw(st.sampled_from(["k.py", 'a "b".py', "/x/ü.py"]))
        line, column = draw(st.integers(1, 999)), draw(st.integers(0, 99))
        caller = place if draw(st.booleans()) else None
        place = SourceLocation(file, line, column, draw(st.sampled_from(["f", "<lambda>"])), caller)
        places.append(place)
    return fuse(*places)


class Random:
    """Builds a module of ops that are well-formed as structure, not as meaning."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.module = Module("kernel")
        self.builder = Builder(self.module)

    def name(self, values: tuple[Value, ...] | list[Value]) -> None:
        for value in values:
            value.name = self.draw(NAMES)

    def build(self, *arguments: object, **keywords: object) -> Operation:
        self.builder.location = self.draw(locations())
        op = self.builder.build(*arguments, **keywords)  # type: ignore[arg-type]
        self.name(op.results)
        return op

    def pick(self, values: list[Value], most: int = 3) -> list[Value]:
        return self.draw(st.lists(st.sampled_from(values), max_size=most)) if values else []

    def generic(self, values: list[Value], depth: int) -> Operation:
        name = self.draw(st.sampled_from(["arith.addi", "tt.load", "test.a_b.c", "odd name", "x"]))
        types = self.draw(st.lists(TYPES, max_size=3))
        regions = []
        if depth and self.draw(st.booleans()):
            for _ in range(self.draw(st.integers(1, 2))):
                block = Block(self.draw(st.lists(TYPES, max_size=2)))
                self.body(block, values, depth - 1)
                regions.append(Region([block]))
        return self.build(name, self.pick(values), types, self.draw(ATTRIBUTES), regions)

    def constant(self, values: list[Value], depth: int) -> Operation:
        number = self.draw(st.one_of(st.integers(-9, 9), st.floats(), st.booleans()))
        if isinstance(number, float) and math.isnan(number):
            number = math.nan
        return self.build("arith.constant", (), [self.draw(TYPES)], {"value": number})

    def loop(self, values: list[Value], depth: int) -> Operation:
        bound = self.constant(values, depth)
        same = [value for value in values if value.type == bound.result.type] or [bound.result]
        bounds = [self.draw(st.sampled_from(same)) for _ in range(3)]
        inits = self.pick(values)
        types = [value.type for value in inits]
        block = Block([bounds[0].type, *types])
        self.body(block, values, depth - 1)
        attributes = self.draw(ATTRIBUTES)
        return self.build("scf.for", [*bounds, *inits], types, attributes, [Region([block])])

    def branch(self, values: list[Value], depth: int) -> Operation:
        conditions = [value for value in values if value.type == ir.I1]
        if not conditions:
            return self.build("arith.constant", (), [ir.I1], {"value": True})
        regions = []
        for _ in range(self.draw(st.integers(1, 2))):
            block = Block()
            self.body(block, values, depth - 1)
            regions.append(Region([block]))
        types = self.draw(st.lists(TYPES, max_size=2))
        condition = self.draw(st.sampled_from(conditions))
        return self.build("scf.if", [condition], types, self.draw(ATTRIBUTES), regions)

    def while_loop(self, values: list[Value], depth: int) -> Operation:
        inits = self.pick(values)
        types = self.draw(st.lists(TYPES, max_size=2))
        before, after = Block([value.type for value in inits]), Block(types)
        self.body(before, values, depth - 1)
        self.body(after, values, depth - 1)
        return self.build("scf.while", inits, types, {}, [Region([before]), Region([after])])

    def body(self, block: Block, outer: list[Value], depth: int) -> None:
        self.name(block.arguments)
        values = [*outer, *block.arguments]
        with self.builder.inside(block):
            for _ in range(self.draw(st.integers(0, 4))):
                kinds: list[Callable[[list[Value], int], Operation]] = [self.generic, self.constant]
                if depth:
                    kinds += [self.loop, self.branch, self.while_loop]
                op = self.draw(st.sampled_from(kinds))(values, depth)
                values += op.results
            self.build("scf.yield", self.pick(values))

    def function(self) -> Module:
        block = Block(self.draw(st.lists(TYPES, max_size=3)))
        self.body(block, [], 2)
        attributes = {"sym_name": self.draw(st.sampled_from(["kernel", "odd name"]))}
        self.module.name = str(attributes["sym_name"])
        self.build("tt.func", (), (), attributes, [Region([block])])
        return self.module


@st.composite
def modules(draw: st.DrawFn) -> Module:
    return Random(draw).function()


def facts(module: Module) -> list[tuple[object, ...]]:
    return [
        (
            op.name,
            op.id,
            op.location,
            [value.type for value in op.operands],
            [value.type for value in op.results],
            [(name, type(value), repr(value)) for name, value in op.attributes.items()],
            [[v.type for v in block.arguments] for r in op.regions for block in r.blocks],
        )
        for op in module.walk()
    ]


@settings(max_examples=120, deadline=None)
@given(modules())
def test_random_module_round_trips(module: Module) -> None:
    text = print_module(module, locations=True)
    again = parse_module(text)
    assert print_module(again, locations=True) == text
    assert facts(again) == facts(module)
    bare = print_module(module)
    assert print_module(parse_module(bare)) == bare


@settings(max_examples=150, deadline=None)
@given(modules(), st.data())
def test_damaged_text_is_read_or_refused_but_never_crashes(
    module: Module, data: st.DataObject
) -> None:
    from tkdebug.errors import IRError

    text = print_module(module, locations=data.draw(st.booleans()))
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 12))
    junk = data.draw(st.text(alphabet='%@^(){}[]<>,:="-!x1 \n', max_size=3))
    try:
        parse_module(text[:start] + junk + text[start + length :])
    except IRError:
        pass
