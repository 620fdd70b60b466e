"""Count of places that read ops by position or by string instead of by their view classes.

Left out: the declarations (`compiler/dialects`) and the type rules and verifiers beside the op
table (`compiler/ops`). What is left are the text form of the IR and its control flow, which the
dialects are built on, and a few helpers that are for ops of any kind. A text that is a list of
names counts once.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tkdebug.compiler.dialects.table import OPS

PACKAGE = Path(__file__).resolve().parents[1] / "tkdebug"
DECLARATIONS = ("compiler/dialects/", "compiler/ops/")
# Of each kind, in the whole package.
LIMIT = 24


def kind_of(node: ast.AST) -> str | None:
    """Return what `node` reads by position or string, if it does."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr="operands")):
            return "operands"
        case ast.Subscript(value=ast.Attribute(attr="attributes"), slice=ast.Constant(value=str())):
            return "attributes"
        case ast.Call(
            func=ast.Attribute(value=ast.Attribute(attr="attributes"), attr="get" | "pop"),
            args=[ast.Constant(value=str()), *_],
        ):
            return "attributes"
        case ast.Constant(value=str(text)) if (words := set(text.split())) and words <= OPS.keys():
            return "names"
    return None


_KINDS = (ast.Subscript, ast.Call, ast.Constant)


_MAY_COUNT = re.compile(rf"operands|attributes|\b({'|'.join(map(re.escape, OPS))})\b")


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        text = path.read_text("utf-8")
        # Parsing takes a hundred times as long.
        if not place.startswith(DECLARATIONS) and _MAY_COUNT.search(text):
            yield place, text


def counted(text: str) -> Counter[str]:
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, _KINDS))
    return Counter(kind for node in nodes if (kind := kind_of(node)))


@cache
def counted_in_package() -> dict[str, Counter[str]]:
    return {place: counted(text) for place, text in sources()}


def test_each_kind_is_counted() -> None:
    text = """
op.operands[2], op.operands[:2], op.operands
op.attributes["axis"], op.attributes.get("axis"), op.attributes.pop("axis", 0), op.attributes[key]
op.name == "tt.load", "tt.loads", "tt.load tt.store".split(), "no tt.load"
"""
    assert counted(text) == {"operands": 2, "attributes": 3, "names": 2}


@pytest.mark.parametrize("kind", ["operands", "attributes", "names"])
def test_positions_and_strings_are_few(kind: str) -> None:
    places = {place: n for place, found in counted_in_package().items() if (n := found[kind])}
    assert sum(places.values()) <= LIMIT, places
