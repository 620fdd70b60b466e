"""Mutants of a module: each is one small change to its syntax tree.

A change imitates a slip: a comparison off by one, a sign, a dropped guard, a missing entry of a
table. What only people read is left alone: docstrings, f-strings, messages of errors, annotations.
So are assertions, which state invariants and catch nothing in a correct program.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
# Text for people, and invariants, as is `strict=True` of a zip.
_OPAQUE = (ast.JoinedStr, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom)
_SKIPPED_FIELDS = ("annotation", "returns", "decorator_list", "type_comment")
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to one module.

    Attributes:
        module: its dotted name.
        function: qualified name of the function that the change is in; "" at module level.
        line: of the changed syntax, from 1.
        change: before and after, for people.
        site, variant: what `mutated` finds it by.
    """

    module: str
    function: str
    line: int
    change: str
    site: int
    variant: int


@dataclass(frozen=True, slots=True)
class _Site:
    node: ast.AST
    parent: ast.AST
    function: str


def mutants(module: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its text."""
    found = []
    for index, site in enumerate(_sites(ast.parse(source), "")):
        for variant, new in enumerate(_variants(site)):
            line = getattr(site.node, "lineno", getattr(site.parent, "lineno", 0))
            change = _shown(*_before_and_after(site, new))
            found.append(Mutant(module, site.function, line, change, index, variant))
    return found


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """The module's tree with the change."""
    tree = ast.parse(source)
    site = list(_sites(tree, ""))[mutant.site]
    _replace(site, _variants(site)[mutant.variant])
    return ast.fix_missing_locations(tree)


def function_lines(source: str) -> dict[int, str]:
    """First line of each function, its decorators included -> its qualified name."""
    return {
        min([node.lineno, *(d.lineno for d in node.decorator_list)]): name
        for node, name in _functions(ast.parse(source), "")
    }


def _functions(
    node: ast.AST, scope: str
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    for child in ast.iter_child_nodes(node):
        inner = _scope_of(child, scope)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, inner
        yield from _functions(child, inner)


def _scope_of(node: ast.AST, scope: str) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return f"{scope}.{node.name}" if scope else node.name
    return scope


def _sites(node: ast.AST, function: str, scope: str = "") -> Iterator[_Site]:
    """Every node that may change, parents first."""
    for name, field in ast.iter_fields(node):
        if name in _SKIPPED_FIELDS:
            continue
        for child in field if isinstance(field, list) else [field]:
            if not isinstance(child, ast.AST) or _is_opaque(child):
                continue
            inner = _scope_of(child, scope)
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            within = inner if is_function else function
            yield _Site(child, node, within)
            yield from _sites(child, within, inner)


def _is_opaque(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()):  # A docstring, or `...`.
            return True
        case ast.keyword(arg="strict") | ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case _:
            return isinstance(node, _OPAQUE)


def _replace(site: _Site, new: ast.AST) -> None:
    for name, field in ast.iter_fields(site.parent):
        if field is site.node:
            setattr(site.parent, name, new)
        elif isinstance(field, list):
            field[:] = [new if item is site.node else item for item in field]
    ast.copy_location(new, site.node)


def _before_and_after(site: _Site, new: ast.AST) -> tuple[str, str]:
    if not (isinstance(new, ast.Constant) and isinstance(site.parent, ast.expr | ast.stmt)):
        return ast.unparse(site.node), ast.unparse(new)
    # A number says little without what it is part of.
    before = ast.unparse(site.parent)
    _replace(site, new)
    after = ast.unparse(site.parent)
    _replace(_Site(new, site.parent, site.function), site.node)
    return before, after


def _shown(old: str, new: str) -> str:
    """Before and after, on one line and from shortly before the first difference."""
    old, new = " ".join(old.split()), " ".join(new.split())
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    start = max(0, same - _SHOWN_CHARACTERS // 2)
    parts = []
    for text in (old, new):
        head = "…" if start else ""
        tail = "…" if len(text) > start + _SHOWN_CHARACTERS else ""
        parts.append(head + text[start : start + _SHOWN_CHARACTERS] + tail)
    return " -> ".join(parts)


def _variants(site: _Site) -> list[ast.AST]:
    """Return the replacements of a node."""
    node = site.node
    match node:
        case ast.Compare():
            return list(_compared(node))
        case ast.BinOp() | ast.AugAssign():
            return _computed(node)
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            return [ast.BoolOp(other, node.values)]
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return [node.operand]
        case ast.Constant():
            return _constants(node, site.parent)
        case ast.IfExp():
            return [ast.IfExp(node.test, node.orelse, node.body)]
        case ast.If():
            return _conditions(node)
        case ast.comprehension(ifs=[_, *_]):
            return [ast.comprehension(node.target, node.iter, [], node.is_async)]
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            renamed = ast.copy_location(ast.Name(_CALLS[name], ast.Load()), node)
            return [ast.Call(renamed, node.args, node.keywords)]
        case ast.Expr(value=ast.Call()):
            return [ast.Pass()]
        case ast.Break():
            return [ast.Continue()]
        case ast.Continue():
            return [ast.Break()]
        case ast.Dict():
            return list(_tables(node))
        case ast.Tuple() | ast.List() | ast.Set():
            return list(_shorter(node, site))
        case _:
            return []


def _compared(node: ast.Compare) -> Iterator[ast.AST]:
    for place, op in enumerate(node.ops):
        other = _COMPARISONS[type(op)]()
        yield ast.Compare(node.left, [*node.ops[:place], other, *node.ops[place + 1 :]],
                          node.comparators)  # fmt: skip


def _computed(node: ast.BinOp | ast.AugAssign) -> list[ast.AST]:
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
    if type(node.op) not in _ARITHMETIC or any(_is_string(p) or _is_type(p) for p in parts):
        return []
    changed = copy.copy(node)
    changed.op = _ARITHMETIC[type(node.op)]()
    return [changed]


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_type(node: ast.expr) -> bool:
    """A part of a union of types, such as `isinstance` takes."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("int", "float", "bool", "str") or (
                name[:1].isupper() and not name.isupper()
            )
        case _:
            return False


def _constants(node: ast.Constant, parent: ast.AST) -> list[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        return [ast.Constant(not value)]
    if isinstance(value, int):
        return [ast.Constant(value + 1)]
    if isinstance(value, str) and isinstance(parent, ast.Compare):
        return [ast.Constant(value + "?")]
    return []


def _conditions(node: ast.If) -> list[ast.AST]:
    """The branch always and never taken."""
    if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return []
    changed: list[ast.AST] = []
    for truth in (True, False):
        test = ast.copy_location(ast.Constant(truth), node.test)
        changed.append(ast.If(test, node.body, node.orelse))
    return changed


def _tables(node: ast.Dict) -> Iterator[ast.AST]:
    """A dictionary without one entry, and with the values of two neighbours exchanged."""
    keys, values = node.keys, node.values
    for place in range(len(keys)):
        yield ast.Dict([*keys[:place], *keys[place + 1 :]], [*values[:place], *values[place + 1 :]])
    for place in range(len(keys) - 1):
        is_spread = keys[place] is None or keys[place + 1] is None
        if is_spread or ast.dump(values[place]) == ast.dump(values[place + 1]):
            continue
        swapped = [*values[:place], values[place + 1], values[place], *values[place + 2 :]]
        yield ast.Dict(keys, swapped)


def _shorter(node: ast.Tuple | ast.List | ast.Set, site: _Site) -> Iterator[ast.AST]:
    """Collections that are looked through, without one element; others have a fixed length."""
    is_table = isinstance(site.parent, ast.Compare) or (
        not site.function and isinstance(site.parent, ast.Assign | ast.AnnAssign)
    )
    is_read = isinstance(node, ast.Set) or isinstance(node.ctx, ast.Load)
    if not is_table or not is_read or len(node.elts) < 2:
        return
    for place in range(len(node.elts)):
        changed = copy.copy(node)
        changed.elts = [*node.elts[:place], *node.elts[place + 1 :]]
        yield changed
