"""Prints a module as MLIR-like text that `parser.parse_module` reads back exactly.

Responsible for names (the Python variable where there is one, made unique), types, attributes,
locations, and which text line shows which operation. Invariant: the text depends only on the
module, and `print(parse(print(m))) == print(m)`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tkdebug.compiler.ir.attribute_text import attributes_text, is_bare_name, location_text
from tkdebug.compiler.ir.core import Attribute, Block, Module, Operation, Value
from tkdebug.compiler.ir.layout_text import LayoutAliases
from tkdebug.compiler.ir.naming import NameTable, constant_hint
from tkdebug.compiler.ir.printed_forms import PRINTED_FORMS
from tkdebug.compiler.ir.types import Type, type_text
from tkdebug.compiler.layouts.linear import LinearLayout


def print_module(module: Module, locations: bool = False, ids: bool | None = None) -> str:
    """The module as text.

    Args:
        module: what to print.
        locations: whether each op carries `loc(...)`.
        ids: whether each op carries `id(N)`; None means: where locations are printed.
    """
    return _print(module, locations, ids).text()


def print_with_lines(
    module: Module,
    locations: bool = False,
    ids: bool | None = None,
    aliases: LayoutAliases | None = None,
) -> tuple[str, dict[int, Operation]]:
    """The module as text, and which operation starts on each text line (1-based).

    Texts that are printed with the same `aliases` call a layout the same.
    """
    printer = _print(module, locations, ids, aliases)
    above = len(printer.used_layouts)
    return printer.text(), {line + above: op for line, op in printer.op_lines.items()}


@dataclass(frozen=True, slots=True)
class NamedText:
    """A module's text, to find one's way in.

    Attributes:
        lines: without their ends.
        places: the index of the line on which each op begins.
        names: of all values, without `%`.
    """

    lines: tuple[str, ...]
    places: Mapping[Operation, int]
    names: Mapping[Value, str]


def print_with_names(module: Module) -> NamedText:
    """The module as text, where its ops are in it, and how its values are called."""
    printer = _print(module, False, False)
    above = len(printer.used_layouts)
    places = {op: line - 1 + above for line, op in printer.op_lines.items()}
    return NamedText(tuple(printer.text().splitlines()), places, printer.names)


def print_operation(op: Operation, locations: bool = False) -> str:
    """One operation with its regions, its values named as in the whole function."""
    top = op
    while top.block is not None and top.block.parent_op is not None:
        top = top.block.parent_op
    printer = ModulePrinter("", locations, locations)
    printer.operation(top, "")
    shown = ModulePrinter("", locations, locations)
    shown.names = printer.names
    shown.aliases = printer.aliases
    shown.fixed_names = True
    shown.operation(op, "")
    return shown.text().rstrip("\n")


def _print(
    module: Module, locations: bool, ids: bool | None, aliases: LayoutAliases | None = None
) -> ModulePrinter:
    printer = ModulePrinter(module.name, locations, locations if ids is None else ids)
    if aliases is not None:
        printer.aliases = aliases
    for op in module.body.operations:
        printer.operation(op, "")
    return printer


class ModulePrinter:
    """State of one printing: the lines so far and the names given."""

    def __init__(self, function: str, locations: bool, ids: bool) -> None:
        self.function = function
        self.locations = locations
        self.ids = ids
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
        """Name `values`; gives `%x, %y, …`."""
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
        """Name a block's arguments; gives `%x: type, …`."""
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
            self.lines[-1] += f" loc({location_text(op.location)})"
        if self.ids:
            self.lines[-1] += f" id({op.id})"

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
