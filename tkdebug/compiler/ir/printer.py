"""Prints a module as MLIR-like text that `parser.parse_module` reads back exactly.

Responsible for names (the Python variable where there is one, made unique), types, attributes,
locations, and which text line shows which operation. Invariant: the text depends only on the
module, and `print(parse(print(m))) == print(m)`.

Some ops have forms of their own instead of `name operands {attributes} : types`. A form declines
(False) an op that does not have its shape. That op is then printed in the generic form with its
name in quotes, which is how the parser distinguishes the two.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tkdebug.compiler.ir.core import Attribute, Block, Module, Operation, Value
from tkdebug.compiler.ir.location import Location, SourceLocation
from tkdebug.compiler.ir.types import (
    LayoutAliases,
    LayoutText,
    ScalarType,
    TensorType,
    Type,
    layout_text,
    type_text,
)
from tkdebug.compiler.layouts.linear import LinearLayout

_BARE_NAME = re.compile(r"[A-Za-z_][\w$]*(?:\.[\w$]+)*", re.ASCII)
_CANONICAL_NAN = struct.pack(">d", math.nan)


def is_bare_name(name: str) -> bool:
    """Whether `name` is printed without quotes."""
    return _BARE_NAME.fullmatch(name) is not None


def attribute_text(value: Attribute | Type, layout: LayoutText = layout_text) -> str:
    """An attribute value as text, layouts as `layout` writes them."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float_text(value)
        case str():
            return json.dumps(value)
        case LinearLayout():
            return layout(value)
        case tuple():
            return "[" + ", ".join(attribute_text(item, layout) for item in value) + "]"
        case _:
            return type_text(value, layout)


def _float_text(value: float) -> str:
    if math.isnan(value):
        bits = struct.pack(">d", value)
        return "nan" if bits == _CANONICAL_NAN else f"nan(0x{bits.hex()})"
    return repr(value)


def attributes_text(attributes: Mapping[str, Attribute], layout: LayoutText = layout_text) -> str:
    """` {name = value, …}`, or nothing when there are none."""
    if not attributes:
        return ""
    items = (
        f"{name if is_bare_name(name) else json.dumps(name)} = {attribute_text(value, layout)}"
        for name, value in attributes.items()
    )
    return " {" + ", ".join(items) + "}"


def location_text(location: Location) -> str:
    """The text inside `loc(...)`."""
    places = [_place_text(place) for place in location.sources]
    if isinstance(location, SourceLocation):
        return places[0]
    return "fused[" + ", ".join(places) + "]"


def _place_text(place: SourceLocation | None) -> str:
    chain = []
    while place is not None:
        file, function = json.dumps(place.file), json.dumps(place.function)
        chain.append(f"{file}:{place.line}:{place.column} in {function}")
        place = place.caller
    return " at ".join(chain)


def print_module(module: Module, locations: bool = False) -> str:
    """The module as text.

    Args:
        module: the module to print.
        locations: whether each op carries `loc(...)` and `id(N)`.
    """
    return _print(module, locations).text()


def print_with_lines(
    module: Module, aliases: LayoutAliases | None = None
) -> tuple[str, dict[int, Operation]]:
    """The module as text, and which operation starts on each text line (1-based).

    Texts that are printed with the same `aliases` call a layout the same.
    """
    printer = _print(module, aliases=aliases)
    above = len(printer.used_layouts)
    return printer.text(), {line + above: op for line, op in printer.op_lines.items()}


@dataclass(frozen=True, slots=True)
class NamedText:
    """A module's text, with the places of its ops and the names of its values.

    Attributes:
        lines: the lines of text, without line ends.
        places: the index of the line on which each op begins.
        names: the names of all values, without `%`.
    """

    lines: tuple[str, ...]
    places: Mapping[Operation, int]
    names: Mapping[Value, str]


def print_with_names(module: Module) -> NamedText:
    """The module as text, with the lines of its ops and the names of its values."""
    printer = _print(module)
    above = len(printer.used_layouts)
    places = {op: line - 1 + above for line, op in printer.op_lines.items()}
    return NamedText(tuple(printer.text().splitlines()), places, printer.names)


def print_operation(op: Operation) -> str:
    """One operation with its regions, its values named as in the whole function."""
    *_, top = (op, *op.ancestors())
    printer = ModulePrinter("")
    printer.operation(top, "")
    shown = ModulePrinter("")
    shown.names = printer.names
    shown.aliases = printer.aliases
    shown.fixed_names = True
    shown.operation(op, "")
    return shown.text().rstrip("\n")


def _print(
    module: Module, locations: bool = False, aliases: LayoutAliases | None = None
) -> ModulePrinter:
    printer = ModulePrinter(module.name, locations)
    if aliases is not None:
        printer.aliases = aliases
    for op in module.body.operations:
        printer.operation(op, "")
    return printer


class ModulePrinter:
    """State of one printing: the lines so far and the names given."""

    def __init__(self, function: str, locations: bool = False) -> None:
        self.function = function
        self.locations = locations
        self.lines: list[str] = []
        self.op_lines: dict[int, Operation] = {}
        self.names: dict[Value, str] = {}
        self.table = NameTable()
        self.fixed_names = False
        self.aliases = LayoutAliases()
        self.used_layouts: dict[LinearLayout, None] = {}

    def text(self) -> str:
        """The whole text."""
        definitions = [self.aliases.definition(layout) for layout in self.used_layouts]
        return "\n".join([*definitions, *self.lines]) + "\n"

    def layout(self, layout: LinearLayout) -> str:
        """A layout by its alias, which the text will define."""
        self.used_layouts[layout] = None
        return self.aliases(layout)

    def type(self, type_: Type) -> str:
        """A type."""
        return type_text(type_, self.layout)

    def types(self, types: Sequence[Type]) -> str:
        """`(type, …)`."""
        return "(" + ", ".join(map(self.type, types)) + ")"

    def attributes(self, attributes: Mapping[str, Attribute]) -> str:
        """` {name = value, …}`, or nothing when there are none."""
        return attributes_text(attributes, self.layout)

    def signature(self, operands: Sequence[Value], results: Sequence[Value]) -> str:
        """` : types`, in the shortest form the parser can expand again."""
        ins = [self.type(value.type) for value in operands]
        outs = [self.type(value.type) for value in results]
        if not outs:
            return " : " + ", ".join(ins) if ins else ""
        if len(outs) == 1 and all(type_ == outs[0] for type_ in ins):
            return f" : {outs[0]}"
        left = ins[0] if len(ins) == 1 else "(" + ", ".join(ins) + ")"
        right = outs[0] if len(outs) == 1 else "(" + ", ".join(outs) + ")"
        return f" : {left} -> {right}"

    def define(self, values: Sequence[Value], hint: str | None = None) -> str:
        """Name `values`, and return `%x, %y, …`."""
        if not self.fixed_names:
            for value in values:
                self.names[value] = self.table.allocate(value.name, hint)
        return ", ".join("%" + self.name(value) for value in values)

    def name(self, value: Value) -> str:
        """The name of a value."""
        # A value that is used but never defined is an error the verifier reports by this name.
        return self.names.get(value, "<undefined>")

    def uses(self, values: Sequence[Value]) -> str:
        """`%x, %y, …`."""
        return ", ".join("%" + self.name(value) for value in values)

    def parameters(self, block: Block) -> str:
        """Name a block's arguments, and return `%x: type, …`."""
        self.define(block.arguments)
        return ", ".join(
            f"%{self.name(value)}: {self.type(value.type)}" for value in block.arguments
        )

    def operation(self, op: Operation, indent: str) -> None:
        """Print one operation and everything inside it."""
        results = self.define(op.results, constant_hint(op)) + " = " if op.results else ""
        self.op_lines[len(self.lines) + 1] = op
        custom = PRINTED_FORMS.get(op.name)
        if custom is None or not custom(self, op, indent, results):
            name = op.name
            if custom is not None or not is_bare_name(name):
                name = json.dumps(name)
            self._generic(op, indent, results + name)
        if self.locations:
            self.lines[-1] += f" loc({location_text(op.location)}) id({op.id})"

    def _generic(self, op: Operation, indent: str, head: str) -> None:
        if op.operands:
            head += " " + self.uses(op.operands)
        head += self.attributes(op.attributes)
        if not op.regions:
            self.lines.append(indent + head + self.signature(op.operands, op.results))
            return
        opening = head + " ("
        for region in op.regions:
            self.lines.append(indent + opening + "{")
            for block in region.blocks:
                if block.arguments or len(region.blocks) > 1:
                    self.lines.append(f"{indent}^bb0({self.parameters(block)}):")
                self.body(block, indent)
            opening = "}, "
        self.lines.append(indent + "})" + self.signature(op.operands, op.results))

    def body(self, block: Block, indent: str) -> None:
        """Print the operations of a block."""
        inner = indent + "  "
        for op in block.operations:
            self.operation(op, inner)


def _is_single_block(op: Operation, regions: int) -> bool:
    return len(op.regions) == regions and all(len(region.blocks) == 1 for region in op.regions)


def _types(values: Sequence[Value]) -> list[Type]:
    return [value.type for value in values]


def _print_func(printer: ModulePrinter, op: Operation, indent: str, results: str) -> bool:
    if results or op.operands or not _is_single_block(op, 1):
        return False
    name = op.attributes.get("sym_name", printer.function)
    if not isinstance(name, str):
        return False
    attributes = {key: value for key, value in op.attributes.items() if key != "sym_name"}
    symbol = name if is_bare_name(name) else json.dumps(name)
    head = f"{indent}tt.func @{symbol}({printer.parameters(op.regions[0].block)})"
    if attributes:
        head += " attributes" + printer.attributes(attributes)
    printer.lines.append(head + " {")
    printer.body(op.regions[0].block, indent)
    printer.lines.append(indent + "}")
    return True


def _print_constant(printer: ModulePrinter, op: Operation, indent: str, results: str) -> bool:
    value = op.attributes.get("value")
    if (
        len(op.results) != 1
        or len(op.attributes) != 1
        or not isinstance(value, bool | int | float)
        or op.operands
        or op.regions
    ):
        return False
    type_ = op.results[0].type
    text = attribute_text(value)
    shown = f"dense<{text}>" if isinstance(type_, TensorType) else text
    printer.lines.append(f"{indent}{results}arith.constant {shown} : {printer.type(type_)}")
    return True


def _print_for(printer: ModulePrinter, op: Operation, indent: str, results: str) -> bool:
    if len(op.operands) < 3 or not _is_single_block(op, 1):
        return False
    block = op.regions[0].block
    bounds, inits = op.operands[:3], op.operands[3:]
    carried = _types(inits)
    if (
        not block.arguments
        or any(value.type != block.arguments[0].type for value in bounds)
        or _types(op.results) != carried
        or _types(block.arguments[1:]) != carried
    ):
        return False
    printer.define(block.arguments)
    variable = block.arguments[0]
    low, high, step = ("%" + printer.name(value) for value in bounds)
    head = f"{results}scf.for %{printer.name(variable)} = {low} to {high} step {step}"
    if inits:
        pairs = _pairs(printer, block.arguments[1:], inits)
        head += f" iter_args({pairs}) -> {printer.types(carried)}"
    printer.lines.append(f"{indent}{head} : {printer.type(variable.type)} {{")
    printer.body(block, indent)
    printer.lines.append(indent + "}" + printer.attributes(op.attributes))
    return True


def _pairs(printer: ModulePrinter, arguments: Sequence[Value], inits: Sequence[Value]) -> str:
    return ", ".join(
        f"%{printer.name(argument)} = %{printer.name(init)}"
        for argument, init in zip(arguments, inits, strict=True)
    )


def _print_if(printer: ModulePrinter, op: Operation, indent: str, results: str) -> bool:
    count = len(op.regions)
    if len(op.operands) != 1 or count not in (1, 2) or not _is_single_block(op, count):
        return False
    if op.operands[0].type != ScalarType("i1") or any(r.block.arguments for r in op.regions):
        return False
    head = f"{results}scf.if {printer.uses(op.operands)}"
    if op.results:
        head += f" -> {printer.types(_types(op.results))}"
    printer.lines.append(f"{indent}{head} {{")
    printer.body(op.regions[0].block, indent)
    if count == 2:
        printer.lines.append(indent + "} else {")
        printer.body(op.regions[1].block, indent)
    printer.lines.append(indent + "}" + printer.attributes(op.attributes))
    return True


def _print_while(printer: ModulePrinter, op: Operation, indent: str, results: str) -> bool:
    if not _is_single_block(op, 2):
        return False
    before, after = (region.block for region in op.regions)
    ins, outs = _types(op.operands), _types(op.results)
    if _types(before.arguments) != ins or _types(after.arguments) != outs:
        return False
    printer.define(before.arguments)
    pairs = _pairs(printer, before.arguments, op.operands)
    printer.lines.append(
        f"{indent}{results}scf.while ({pairs}) : {printer.types(ins)} -> {printer.types(outs)} {{"
    )
    printer.body(before, indent)
    printer.lines.append(indent + "} do {")
    if after.arguments:
        printer.lines.append(f"{indent}^bb0({printer.parameters(after)}):")
    printer.body(after, indent)
    printer.lines.append(indent + "}" + printer.attributes(op.attributes))
    return True


def _print_condition(printer: ModulePrinter, op: Operation, indent: str, results: str) -> bool:
    if results or not op.operands or op.regions or op.attributes:
        return False
    if op.operands[0].type != ScalarType("i1"):
        return False
    condition, *rest = op.operands
    head = f"{indent}scf.condition(%{printer.name(condition)})"
    if rest:
        head += f" {printer.uses(rest)}{printer.signature(rest, ())}"
    printer.lines.append(head)
    return True


PRINTED_FORMS: dict[str, Callable[[ModulePrinter, Operation, str, str], bool]] = {
    "tt.func": _print_func,
    "arith.constant": _print_constant,
    "scf.for": _print_for,
    "scf.if": _print_if,
    "scf.while": _print_while,
    "scf.condition": _print_condition,
}


_UNFIT = re.compile(r"[^\w$.-]")
_SUFFIXED = re.compile(r"(.+)_([1-9]\d*)")


class NameTable:
    """The names taken so far in one text, for printer and parser.

    Invariant: both allocate names in the order in which they appear in the text, so that a name
    read back and printed again comes out the same.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next_suffix: dict[str, int] = {}
        self._next_number = 0

    def allocate(self, name: str | None, hint: str | None = None) -> str:
        """A free name for a value called `name`; unnamed ones get `hint` or a number."""
        wanted = name or hint
        if not wanted:
            return self._allocate_number()
        wanted = _UNFIT.sub("_", wanted)
        if wanted[0].isdigit():
            wanted = "_" + wanted
        free = self._free(wanted)
        self._taken.add(free)
        return free

    def claim(self, text: str) -> str | None:
        """Take the name read as `text`; return the variable that it names, or None if it is new.

        `%x_1` is variable `x` when that is what `allocate("x")` would have answered here.
        Raises KeyError when the name is taken.
        """
        if text in self._taken:
            raise KeyError(text)
        if text.isdigit():
            self._taken.add(text)
            return None
        name = text
        match = _SUFFIXED.fullmatch(text)
        if match is not None and self._free(match[1]) == text:
            name = match[1]
        self._taken.add(text)
        return name

    def _free(self, wanted: str) -> str:
        if wanted not in self._taken:
            return wanted
        suffix = self._next_suffix.get(wanted, 1)
        while f"{wanted}_{suffix}" in self._taken:
            suffix += 1
        self._next_suffix[wanted] = suffix
        return f"{wanted}_{suffix}"

    def _allocate_number(self) -> str:
        while str(self._next_number) in self._taken:
            self._next_number += 1
        number = str(self._next_number)
        self._taken.add(number)
        return number


def constant_hint(op: Operation) -> str | None:
    """MLIR's name of an unnamed constant: `c128_i32`, `true`, `cst`; None for other ops."""
    if op.name != "arith.constant" or len(op.results) != 1:
        return None
    value, type_ = op.attributes.get("value"), op.results[0].type
    if not isinstance(type_, ScalarType) or not type_.is_integer or not isinstance(value, int):
        return "cst"
    if type_.name == "i1":
        return "true" if value else "false"
    return f"c{int(value)}_{type_}"
