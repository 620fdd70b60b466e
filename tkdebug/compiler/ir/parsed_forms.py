"""The ops whose text is not `name operands {attributes} : types`, read.

`printed_forms` has the same ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tkdebug.compiler.ir.core import Attribute, Block, Value
from tkdebug.compiler.ir.types import SCALARS, TensorType, Type

if TYPE_CHECKING:
    from tkdebug.compiler.ir.parser import ModuleParser, PendingOperation


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
