"""Reads the text that `printer.print_module` writes, and hand-written text of the same form.

Responsible for structure only: whether operations obey the op table is the verifier's. Input is
untrusted; every failure is an IRError with line and column. Text without `loc(...)` is located in
the text itself (file `<ir>`), text without `id(N)` is numbered in program order. Ops whose text is
not `name operands {attributes} : types` have forms of their own, as in `printer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tkdebug.compiler.ir.attribute_parser import MAX_NESTING, AttributeParser
from tkdebug.compiler.ir.core import Attribute, Block, Module, Operation, Region, Value
from tkdebug.compiler.ir.location import Location, SourceLocation
from tkdebug.compiler.ir.printer import NameTable, constant_hint
from tkdebug.compiler.ir.types import SCALARS, TensorType, Type

TEXT_FILE = "<ir>"


def parse_module(text: str) -> Module:
    """The module that `text` describes.

    Raises:
        IRError: the text is not IR; the message starts with `<ir>:line:column`.
    """
    return ModuleParser(text).module()


@dataclass
class PendingOperation:
    """The parts of an operation that have been read so far."""

    position: int
    id: int
    results: list[str] = field(default_factory=list)
    operands: Sequence[Value] = ()
    types: Sequence[Type] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    regions: Sequence[Region] = ()


class ModuleParser:
    """Reads one module; forms of single ops read through it."""

    def __init__(self, text: str) -> None:
        self.cursor = AttributeParser(text)
        self.result = Module("kernel")
        self.names = NameTable()
        self.variables: dict[str, str | None] = {}
        self.values: dict[str, Value] = {}
        self.scopes: list[list[str]] = [[]]
        self.function = "kernel"
        self.ids: set[int] = set()

    def module(self) -> Module:
        """Read the whole text."""
        cursor = self.cursor
        while cursor.looking_at("#"):
            cursor.layout_alias()
        while not cursor.at_end():
            self.operation(self.result.body)
        if not self.result.body.operations:
            raise cursor.expected("a tt.func")
        functions = [op for op in self.result.body.operations if op.name == "tt.func"]
        if functions:
            name = functions[0].attributes.get("sym_name")
            assert isinstance(name, str) or name is None
            self.result.name = name or self.result.name
        return self.result

    # Values

    def claim(self, position: int) -> str:
        """Read and take the name of a new value."""
        text = self.cursor.value_name()
        try:
            self.variables[text] = self.names.claim(text)
        except KeyError:
            raise self.cursor.error(f"%{text} is defined twice", position) from None
        return text

    def bind(self, text: str, value: Value) -> None:
        """Make `value` usable as `%text` until its scope ends."""
        value.name = self.variables[text]
        self.values[text] = value
        self.scopes[-1].append(text)

    def use(self) -> Value:
        """Read `%x`: a value that is defined."""
        self.cursor.skip()
        position = self.cursor.position
        text = self.cursor.value_name()
        value = self.values.get(text)
        if value is None:
            hint = " before its region or outside it" if text in self.variables else ""
            raise self.cursor.error(f"%{text} is used but not defined{hint}", position)
        return value

    def uses(self) -> list[Value]:
        """Read `%x, %y, …`."""
        values = [self.use()]
        while self.cursor.accept(","):
            values.append(self.use())
        return values

    # Operations

    def operation(self, block: Block) -> None:
        """Read one operation and append it to `block`."""
        cursor = self.cursor
        cursor.skip()
        pending = PendingOperation(cursor.position, self.result.new_id())
        if cursor.looking_at("%"):
            pending.results.append(self.claim(cursor.position))
            while cursor.accept(","):
                pending.results.append(self.claim(cursor.position))
            cursor.expect("=")
        quoted = cursor.string()
        name = quoted if quoted is not None else cursor.word()
        if name is None:
            raise cursor.expected("an operation such as arith.addi")
        custom = PARSED_FORMS.get(name) if quoted is None else None
        if custom is not None:
            custom(self, pending)
        else:
            self._generic(pending)
        if len(pending.types) != len(pending.results):
            raise cursor.error(
                f"{name}: got {len(pending.results)} result names, "
                f"expected one for each of its {len(pending.types)} result types",
                pending.position,
            )
        self._finish(name, pending, block)

    def _finish(self, name: str, pending: PendingOperation, block: Block) -> None:
        location, id_ = self._suffix(pending)
        op = Operation(
            name,
            pending.operands,
            pending.types,
            pending.attributes,
            pending.regions,
            location,
            id_,
        )
        for text, value in zip(pending.results, op.results, strict=True):
            self.bind(text, value)
        hint = constant_hint(op)
        if hint is not None and op.results[0].name == hint:
            op.results[0].name = None
        block.append(op)

    def _suffix(self, pending: PendingOperation) -> tuple[Location, int]:
        cursor = self.cursor
        location: Location | None = None
        id_ = pending.id
        if cursor.accept_word("loc"):
            cursor.expect("(")
            location = cursor.location()
            cursor.expect(")")
        start = cursor.position
        if cursor.accept_word("id"):
            cursor.expect("(")
            id_ = cursor.integer("an operation id")
            cursor.expect(")")
            self.result.reserve_ids(id_)
        if id_ in self.ids:
            raise cursor.error(f"operation id {id_} is given twice", start)
        self.ids.add(id_)
        if location is None:
            line, column = cursor.line_column(pending.position)
            location = SourceLocation(TEXT_FILE, line, column, self.function)
        return location, id_

    def _generic(self, pending: PendingOperation) -> None:
        cursor = self.cursor
        if cursor.operand_follows_in_line():
            pending.operands = self.uses()
        pending.attributes = cursor.attributes()
        regions = []
        if cursor.accept("("):
            regions.append(self.region())
            while cursor.accept(","):
                regions.append(self.region())
            cursor.expect(")")
        pending.regions = regions
        self.signature(pending)

    def signature(self, pending: PendingOperation) -> None:
        """Read ` : types` and check the operands' types against it."""
        cursor = self.cursor
        if not cursor.accept(":"):
            if pending.operands or pending.results:
                raise cursor.expected("':' and types")
            return
        cursor.skip()
        start = cursor.position
        operand_types: Sequence[Type]
        if cursor.looking_at("("):
            operand_types = self.type_list()
            cursor.expect("->")
            pending.types = self.result_types()
        else:
            types = [cursor.type()]
            while cursor.accept(","):
                types.append(cursor.type())
            if cursor.accept("->"):
                operand_types, pending.types = types, self.result_types()
            elif pending.results:
                operand_types = types * len(pending.operands)
                pending.types = types
            else:
                operand_types = types
        self.check_types(pending.operands, operand_types, start)

    def result_types(self) -> Sequence[Type]:
        """Read one type, or several in parentheses."""
        return self.type_list() if self.cursor.looking_at("(") else [self.cursor.type()]

    def type_list(self) -> list[Type]:
        """Read `(type, …)`."""
        cursor = self.cursor
        cursor.expect("(")
        if cursor.accept(")"):
            return []
        types = [cursor.type()]
        while cursor.accept(","):
            types.append(cursor.type())
        cursor.expect(")")
        return types

    def check_types(self, values: Sequence[Value], types: Sequence[Type], position: int) -> None:
        """Refuse types, read at `position`, that differ from those of `values`."""
        if len(values) != len(types):
            raise self.cursor.error(
                f"got {len(types)} operand types, expected {len(values)}", position
            )
        for index, (value, type_) in enumerate(zip(values, types, strict=True)):
            if value.type != type_:
                raise self.cursor.error(
                    f"got type {type_} for operand {index}, expected {value.type} "
                    "as where it is defined",
                    position,
                )

    # Regions

    def region(self, block: Block | None = None, end: str = "}") -> Region:
        """Read `{ … }`; `block` brings arguments already bound in the current scope."""
        self.cursor.expect("{")
        self.open_scope()
        blocks = []
        if block is None:
            block = Block()
            if self.cursor.looking_at("^"):
                self.block_header(block)
        self.body(block)
        blocks.append(block)
        while self.cursor.looking_at("^"):
            block = Block()
            self.block_header(block)
            self.body(block)
            blocks.append(block)
        self.cursor.expect(end)
        self.close_scope()
        return Region(blocks)

    def block_header(self, block: Block) -> None:
        """Read `^name(%x: type, …):`."""
        cursor = self.cursor
        cursor.expect("^")
        cursor.name("a block name")
        cursor.expect("(")
        self.parameters(block)
        cursor.expect(":")

    def parameters(self, block: Block) -> None:
        """Read `%x: type, …)`."""
        cursor = self.cursor
        if cursor.accept(")"):
            return
        while True:
            cursor.skip()
            text = self.claim(cursor.position)
            cursor.expect(":")
            self.bind(text, block.add_argument(cursor.type()))
            if not cursor.accept(","):
                cursor.expect(")")
                return

    def body(self, block: Block) -> None:
        """Read operations up to the end of the block."""
        cursor = self.cursor
        while not (cursor.looking_at("}") or cursor.looking_at("^")):
            if cursor.at_end():
                raise cursor.expected("'}'")
            self.operation(block)

    def open_scope(self) -> None:
        """Begin a scope: values bound from here on can be used until it is closed."""
        if len(self.scopes) > MAX_NESTING:
            raise self.cursor.error(f"regions nested deeper than {MAX_NESTING}")
        self.scopes.append([])

    def close_scope(self) -> None:
        """End the innermost scope."""
        for text in self.scopes.pop():
            del self.values[text]


def _parse_func(parser: ModuleParser, pending: PendingOperation) -> None:
    cursor = parser.cursor
    cursor.expect("@")
    parser.function = cursor.name("the function's name")
    cursor.expect("(")
    block = Block()
    parser.open_scope()
    parser.parameters(block)
    attributes: dict[str, Attribute] = {"sym_name": parser.function}
    if cursor.accept_word("attributes"):
        attributes.update(cursor.attributes())
    pending.regions = [parser.region(block)]
    parser.close_scope()
    pending.attributes = attributes


def _parse_constant(parser: ModuleParser, pending: PendingOperation) -> None:
    cursor = parser.cursor
    cursor.skip()
    start = cursor.position
    is_dense = cursor.accept_word("dense")
    if is_dense:
        cursor.expect("<")
    value = cursor.attribute()
    if not isinstance(value, bool | int | float):
        raise cursor.error(f"got {value!r}, expected a number or a boolean", start)
    if is_dense:
        cursor.expect(">")
    cursor.expect(":")
    type_ = cursor.type()
    if isinstance(type_, TensorType) != is_dense:
        wanted = "dense<…> for a tensor" if not is_dense else "a tensor type for dense<…>"
        raise cursor.error(f"got {type_}, expected {wanted}", start)
    pending.types, pending.attributes = [type_], {"value": value}


def _bindings(parser: ModuleParser) -> tuple[list[str], list[Value]]:
    """`%a = %b, …)`: the new names and the values they start from."""
    cursor = parser.cursor
    names: list[str] = []
    values: list[Value] = []
    if cursor.accept(")"):
        return names, values
    while True:
        cursor.skip()
        names.append(parser.claim(cursor.position))
        cursor.expect("=")
        values.append(parser.use())
        if not cursor.accept(","):
            cursor.expect(")")
            return names, values


def _parse_for(parser: ModuleParser, pending: PendingOperation) -> None:
    cursor = parser.cursor
    cursor.skip()
    variable = parser.claim(cursor.position)
    bounds = []
    for word in ("=", "to", "step"):
        if word == "=":
            cursor.expect(word)
        else:
            cursor.expect_word(word)
        bounds.append(parser.use())
    names: list[str] = []
    inits: list[Value] = []
    start = cursor.position
    if cursor.accept_word("iter_args"):
        cursor.expect("(")
        names, inits = _bindings(parser)
        cursor.expect("->")
        pending.types = parser.type_list()
    parser.check_types(inits, pending.types, start)
    cursor.expect(":")
    start = cursor.position
    type_ = cursor.type()
    parser.check_types(bounds, [type_] * 3, start)
    parser.open_scope()
    block = Block([type_, *pending.types])
    for text, value in zip([variable, *names], block.arguments, strict=True):
        parser.bind(text, value)
    pending.operands = [*bounds, *inits]
    pending.regions = [parser.region(block)]
    parser.close_scope()
    pending.attributes = cursor.attributes()


def _parse_if(parser: ModuleParser, pending: PendingOperation) -> None:
    cursor = parser.cursor
    cursor.skip()
    start = cursor.position
    pending.operands = [parser.use()]
    parser.check_types(pending.operands, [SCALARS["i1"]], start)
    if cursor.accept("->"):
        pending.types = parser.type_list()
    regions = [parser.region(Block())]
    if cursor.accept_word("else"):
        regions.append(parser.region(Block()))
    pending.regions = regions
    pending.attributes = cursor.attributes()


def _parse_while(parser: ModuleParser, pending: PendingOperation) -> None:
    cursor = parser.cursor
    cursor.expect("(")
    names, inits = _bindings(parser)
    cursor.expect(":")
    start = cursor.position
    ins = parser.type_list()
    parser.check_types(inits, ins, start)
    cursor.expect("->")
    outs = parser.type_list()
    parser.open_scope()
    before = Block(ins)
    for text, value in zip(names, before.arguments, strict=True):
        parser.bind(text, value)
    first = parser.region(before)
    parser.close_scope()
    cursor.expect_word("do")
    start = cursor.position
    second = parser.region()
    got = [value.type for value in second.block.arguments]
    if got != outs:
        raise cursor.error(f"got block arguments {_shown(got)}, expected {_shown(outs)}", start)
    pending.operands, pending.types, pending.regions = inits, outs, [first, second]
    pending.attributes = cursor.attributes()


def _shown(types: Sequence[Type]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def _parse_condition(parser: ModuleParser, pending: PendingOperation) -> None:
    cursor = parser.cursor
    cursor.expect("(")
    start = cursor.position
    condition = parser.use()
    parser.check_types([condition], [SCALARS["i1"]], start)
    cursor.expect(")")
    rest: list[Value] = []
    if cursor.operand_follows_in_line():
        rest = parser.uses()
        cursor.expect(":")
        start = cursor.position
        types = [cursor.type()]
        while cursor.accept(","):
            types.append(cursor.type())
        parser.check_types(rest, types, start)
    pending.operands = [condition, *rest]


PARSED_FORMS: dict[str, Callable[[ModuleParser, PendingOperation], None]] = {
    "tt.func": _parse_func,
    "arith.constant": _parse_constant,
    "scf.for": _parse_for,
    "scf.if": _parse_if,
    "scf.while": _parse_while,
    "scf.condition": _parse_condition,
}
