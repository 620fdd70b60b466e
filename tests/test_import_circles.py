"""Files of the package that import each other in a circle.

Imports inside functions count. Those under `TYPE_CHECKING` name types in annotations, and nothing
at run time needs them: circles with them are only kept small.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

# Files in a circle of imports that are for types alone: more cannot be read one after the other.
LARGEST_CIRCLE_OF_TYPES = 8
PACKAGE = Path(__file__).resolve().parents[1] / "tkdebug"


def module_name(file: Path, package: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_for_types(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return True
    return False


def imported(tree: ast.AST, names: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
    """The modules among `names` that a syntax tree imports, and whether only for types."""
    pending = [(tree, False)]
    while pending:
        node, for_types = pending.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, for_types) for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom):
            wholes = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((whole, for_types) for whole in wholes if whole in names)
            if node.module in names and any(whole not in names for whole in wholes):
                yield str(node.module), for_types
        elif isinstance(node, ast.stmt | ast.Module | ast.excepthandler | ast.match_case):
            for_types = for_types or is_for_types(node)
            pending += ((child, for_types) for child in ast.iter_child_nodes(node))


@cache
def imports(package: Path) -> dict[str, set[tuple[str, bool]]]:
    files = {module_name(file, package): file for file in sorted(package.rglob("*.py"))}
    return {
        name: set(imported(ast.parse(file.read_text("utf-8")), files))
        for name, file in files.items()
    }


def import_graph(package: Path, with_types: bool = False) -> dict[str, set[str]]:
    return {
        name: {other for other, for_types in found if with_types or not for_types} - {name}
        for name, found in imports(package).items()
    }


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of files each of which imports, in one step or several, all others of it."""
    reached = {name: reachable(name, graph) for name in graph}
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in graph
        if name in reached[name]
    }
    return [list(group) for group in sorted(groups)]


def reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        for name in graph[pending.pop()] - found:
            found.add(name)
            pending.append(name)
    return found


def test_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from p import b")
    (package / "b.py").write_text("def f():\n    from p.c import x")
    (package / "c.py").write_text("import p.a")
    (package / "d.py").write_text("import typing\nif typing.TYPE_CHECKING:\n    import p.e")
    (package / "e.py").write_text("import p.d")
    assert circles(import_graph(package)) == [["p.a", "p.b", "p.c"]]
    both = circles(import_graph(package, with_types=True))
    assert both == [["p.a", "p.b", "p.c"], ["p.d", "p.e"]]


def test_no_files_import_each_other() -> None:
    assert circles(import_graph(PACKAGE)) == []


def test_files_name_each_others_types_in_small_circles() -> None:
    found = circles(import_graph(PACKAGE, with_types=True))
    assert [circle for circle in found if len(circle) > LARGEST_CIRCLE_OF_TYPES] == []
