"""Watches of a kernel's values: `tt.watch` after the statement that binds them.

A statement that binds the name shows the value; a loop shows its variable as each iteration begins;
any other statement shows the value that the name has as the statement begins. What cannot be shown
is no error of the kernel's: `Watching.finish` returns a line that says why.

Invariant: the kernel computes the same as without watches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dtypes import describe_type, dtype
from tkdebug.compiler.ir import Operation, SourceLocation, Value
from tkdebug.compiler.ir.types import ScalarType, element_of, shape_of
from tkdebug.compiler.sites.texts import site_text
from tkdebug.compiler.sites.watches import WatchSite, watch_ops
from tkdebug.compiler.tensor import tensor
from tkdebug.errors import instead_of, shown_path
from tkdebug.watches.conditions import fields_of
from tkdebug.watches.places import Watch, real_file

if TYPE_CHECKING:
    from tkdebug.compiler.frontend.visitor import Visitor

_Key = tuple[Watch, SourceLocation]
_NO_VALUE = "has no value at the end of the loop's body that every path gives it"


class Watching:
    """The watches of one compile.

    Args:
        watches: the requested watches, of any file.
    """

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._by_line: dict[tuple[str, int], list[Watch]] = {}
        self._files: dict[str, str] = {}
        for watch in watches:
            self._by_line.setdefault((watch.file, watch.line), []).append(watch)
        self._sites: list[WatchSite] = []
        self._numbers: dict[tuple[_Key, str], int] = {}
        # Loops are compiled several times: the last reason counts.
        self._problems: dict[_Key, str] = {}

    def _at(self, visitor: Visitor, node: ast.stmt) -> list[Watch]:
        file = visitor.source.file
        known = self._files.get(file)
        if known is None:
            known = self._files[file] = real_file(file)
        return self._by_line.get((known, node.lineno), [])

    def statement_begins(self, visitor: Visitor, node: ast.stmt) -> None:
        """Show the watched values of a statement's line that the statement itself does not bind."""
        for watch in self._at(visitor, node):
            if watch.name not in bound_names(node):
                self._show(visitor, node, watch)

    def statement_ended(self, visitor: Visitor, node: ast.stmt) -> None:
        """Show the watched values that a statement has bound."""
        if isinstance(node, ast.For):
            return
        for watch in self._at(visitor, node):
            if watch.name in bound_names(node):
                self._show(visitor, node, watch)

    def round_begins(self, visitor: Visitor, node: ast.stmt) -> None:
        """Show the watched variables of a `for` loop as an iteration begins."""
        for watch in self._at(visitor, node):
            if isinstance(node, ast.For) and watch.name in bound_names(node):
                self._show(visitor, node, watch)

    def _show(self, visitor: Visitor, node: ast.stmt, watch: Watch) -> None:
        location = visitor.locate(node)
        key = watch, location
        value = self._value(visitor, watch)
        if isinstance(value, str):
            self._problems[key] = value
            return
        self._problems.pop(key, None)
        number = self._number(key, value, watch, location)
        with visitor.visiting(node):
            visitor.emit.op(tt.Watch, [value], watch=number)

    def _value(self, visitor: Visitor, watch: Watch) -> tensor | str:
        """The value that is shown, or the reason why there is none."""
        scope, name = visitor.scope, watch.name
        binding = scope.names.get(name)
        if binding is None:
            if name in scope.missing:
                return f"`{name}` has no value here: {scope.missing[name]}"
            lines = _lines_of(visitor, name)
            if lines:
                return f"`{name}` has no value here: it is bound at line {lines}"
            return f"`{name}` has no value here{instead_of(name, scope.names)}"
        value: Any = binding.value
        if not isinstance(value, tensor):
            return f"`{name}` is {describe(value)}, no tile or number that a kernel computes"
        if not isinstance(value.type.scalar, dtype):
            return f"`{name}` is {describe(value)}; only numbers can be watched"
        node = watch.node
        if value.shape and node is not None and "value" in fields_of(node):
            return f"`{name}` is {describe(value)}: write {name}.min(), {name}.max() or such"
        return value

    def _number(self, key: _Key, value: tensor, watch: Watch, location: SourceLocation) -> int:
        type_ = describe_type(value.type)
        known = self._numbers.get((key, type_))
        if known is not None:
            return known
        element, scalar = element_of(value.value.type), value.type.scalar
        assert isinstance(element, ScalarType)
        assert isinstance(scalar, dtype)
        number = self._numbers[key, type_] = len(self._sites)
        self._sites.append(
            WatchSite.of(
                watch,
                number,
                location.frames,
                type=type_,
                dtype=scalar.name,
                element=element.name,
                is_unsigned=scalar.is_int_unsigned() or scalar.is_bool(),
                shape=shape_of(value.value.type),
            )
        )
        return number

    def forget(self, argument: Value) -> None:
        """Remove the watches of a loop's argument that turned out to have no value in the loop."""
        for op in list(argument.uses):
            if tt.Watch.matches(op):
                site = self._sites[tt.Watch(op).watch]
                for key, _ in (pair for pair, n in self._numbers.items() if n == site.number):
                    self._problems[key] = f"`{site.name}` {_NO_VALUE}"
                assert op.block is not None
                op.operands = ()
                op.block.operations.remove(op)

    def finish(self, function: Operation) -> tuple[tuple[Watch, str], ...]:
        """Give the kernel the list of the sites that are in it, with new numbers.

        Returns each watch that could not be shown, with a line that says where and why.
        """
        found = list(watch_ops(function))
        used = sorted({number for _, number in found})
        for op, number in found:
            tt.Watch(op).watch = used.index(number)
        tt.Func(function).watch_sites = tuple(self._renumbered(used))
        return tuple(dict.fromkeys(self._lines()))

    def _renumbered(self, used: Sequence[int]) -> Iterator[str]:
        for place, number in enumerate(used):
            yield site_text(replace(self._sites[number], number=place))

    def _lines(self) -> Iterator[tuple[Watch, str]]:
        for (watch, location), problem in self._problems.items():
            place = f"{shown_path(location.file)}:{location.line}"
            yield watch, f"{place}: {problem}; it is not watched"


def _lines_of(visitor: Visitor, name: str) -> str:
    """The lines at which a function binds a name."""
    nodes = ast.walk(visitor.source.definition)
    stores = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return ", ".join(map(str, sorted({n.lineno for n in stores if n.id == name})))


def bound_names(node: ast.stmt) -> list[str]:
    """The names that a statement itself binds."""
    match node:
        case ast.Assign(targets=targets):
            pass
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            targets = [target]
        case _:
            return []
    return [
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    ]
