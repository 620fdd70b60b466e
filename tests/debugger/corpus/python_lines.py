"""Statements of lines, and the locals that are live there, by Python's own code."""

from __future__ import annotations

import ast
import dis
from functools import cache
from pathlib import Path
from types import CodeType

_READS = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLASSDEREF")
_BINDS = ("STORE_FAST", "DELETE_FAST", "STORE_DEREF")
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
_ALWAYS_JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")


@cache
def statement_lines(file: str) -> dict[int, int]:
    """The first line of the innermost statement that each line of a file is in."""
    found: dict[int, tuple[int, int]] = {}

    def walk(node: ast.AST, depth: int) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                for line in range(child.lineno, (child.end_lineno or child.lineno) + 1):
                    found[line] = max(found.get(line, (0, 0)), (depth, child.lineno))
            walk(child, depth + 1)

    walk(ast.parse(Path(file).read_text()), 1)
    return {line: first for line, (_, first) in found.items()}


@cache
def live_names(code: CodeType) -> dict[int, frozenset[str]]:
    """The locals that may be read before they are bound again, by the offset of an instruction."""
    instructions = list(dis.get_instructions(code))
    index = {one.offset: place for place, one in enumerate(instructions)}
    live = [frozenset[str]()] * len(instructions)
    is_changing = True
    while is_changing:
        is_changing = False
        for place in range(len(instructions) - 1, -1, -1):
            one = instructions[place]
            after: frozenset[str] = frozenset()
            if one.opname not in _ENDS + _ALWAYS_JUMPS and place + 1 < len(instructions):
                after = live[place + 1]
            if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
                after |= live[index[one.argval]]
            if one.opname in _READS:
                after |= {one.argval}
            elif one.opname in _BINDS:
                after -= {one.argval}
            is_changing |= live[place] != after
            live[place] = after
    return {one.offset: names for one, names in zip(instructions, live, strict=True)}
