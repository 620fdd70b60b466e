"""The ops whose text is not `name operands {attributes} : types`, printed.

A form declines (False) an op that does not have its shape. That op is then printed in the generic
form with its name in quotes, which is how the parser (`parsed_forms`) distinguishes the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tkdebug.compiler.ir.attribute_text import attribute_text, is_bare_name
from tkdebug.compiler.ir.core import Operation, Value
from tkdebug.compiler.ir.types import ScalarType, TensorType, Type

if TYPE_CHECKING:
    from tkdebug.compiler.ir.printer import ModulePrinter


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
