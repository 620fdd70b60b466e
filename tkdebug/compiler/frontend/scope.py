"""Names of one function: its present locals, and the values of its globals and closure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CellType, FunctionType, ModuleType
from typing import Any

from tkdebug.compiler.dtypes import LanguageType
from tkdebug.compiler.frontend.arguments import unwrap_deep
from tkdebug.compiler.frontend.values import closest
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import constexpr, is_jit_function

_ABSENT = object()


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """A local variable's value now, and the line that bound it.

    Attributes:
        is_constexpr: bound by `name: tl.constexpr = …`.
    """

    value: Any
    line: int
    is_constexpr: bool = False


@dataclass
class Scope:
    """The locals of one function at one point of it.

    Attributes:
        names: the binding of each name.
        missing: the reason why a name that the function binds elsewhere has no value here.
        declared: names declared by `name: tl.constexpr`, up to their first assignment.
    """

    names: dict[str, Binding] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()

    def copy(self) -> Scope:
        """An independent scope with the same names."""
        return Scope(dict(self.names), dict(self.missing), self.declared)

    def bind(self, name: str, binding: Binding) -> None:
        """Bind `name`."""
        self.names[name] = binding
        self.missing.pop(name, None)

    def drop(self, name: str, reason: str) -> None:
        """Make `name` undefined; `reason` completes "`name` is not defined here: …"."""
        self.names.pop(name, None)
        self.missing[name] = reason


@dataclass(frozen=True, slots=True)
class UsedGlobal:
    """A name from outside that a kernel read, with the value and the place of the read."""

    name: str
    value: Any
    namespace: Mapping[str, Any]

    @property
    def changed(self) -> bool:
        """Whether the name now has another value, so that the kernel must be compiled again."""
        now = self.namespace.get(self.name, _ABSENT)
        if now is self.value:
            return False
        same_type = type(now) is type(self.value)
        return not same_type or not bool(unwrap_deep(now) == unwrap_deep(self.value))


class ClosureVariables(Mapping[str, Any]):
    """The variables of enclosing functions with the values they have now."""

    def __init__(self, cells: Mapping[str, CellType]) -> None:
        self._cells = cells

    def __getitem__(self, name: str) -> Any:
        try:
            return self._cells[name].cell_contents
        except ValueError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)


UsedGlobals = dict[tuple[str, int], UsedGlobal]


class Surroundings:
    """Names that a function sees beyond its locals: closure, module globals, allowed builtins."""

    def __init__(
        self, fn: FunctionType, used_globals: UsedGlobals, known: Mapping[str, Any]
    ) -> None:
        self._globals = fn.__globals__
        self._cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
        self._closure = ClosureVariables(self._cells)
        self._used_globals = used_globals
        self._builtins = known

    def lookup(self, name: str) -> Any:
        """The constant that `name` has outside the function's locals.

        Raises:
            SemanticError: there is no such name, or a kernel may not read it.
        """
        if name in self._cells:
            return self._closure_value(name)
        if name in self._globals:
            value = self._globals[name]
            if not is_readable(value) and name not in self._builtins:
                raise SemanticError(_not_readable("global variable", name, value))
            self.record(name, value, self._globals)
            return unwrap_deep(value)
        if name in self._builtins:
            return self._builtins[name]
        raise LookupError(name)

    def record(self, name: str, value: Any, namespace: Mapping[str, Any]) -> None:
        """Note that the kernel depends on module-level `name`."""
        if isinstance(value, ModuleType | Builtin):
            return
        self._used_globals[name, id(namespace)] = UsedGlobal(name, value, namespace)

    def _closure_value(self, name: str) -> Any:
        try:
            value = self._cells[name].cell_contents
        except ValueError:
            raise SemanticError(
                f"`{name}` of the enclosing function has no value yet; bind it before the launch"
            ) from None
        if not is_readable(value):
            raise SemanticError(_not_readable("variable of the enclosing function", name, value))
        self.record(name, value, self._closure)
        return unwrap_deep(value)

    def names(self) -> list[str]:
        """Return the readable names, from which messages on unknown names make suggestions."""
        readable = [name for name, value in self._globals.items() if is_readable(value)]
        return [*self._cells, *readable, *self._builtins]


def is_breakpoint(value: object) -> bool:
    """Whether `value` is `breakpoint`, or the `set_trace` of pdb or of a similar debugger."""
    if value is breakpoint:
        return True
    if getattr(value, "__name__", None) != "set_trace":
        return False
    return str(getattr(value, "__module__", "")).partition(".")[0] in ("pdb", "ipdb", "pudb", "bdb")


def is_readable(value: object) -> bool:
    """Whether a kernel may read a module-level name with this value."""
    if is_breakpoint(value):
        return True
    if value is None or isinstance(value, ModuleType | constexpr | LanguageType | Builtin):
        return True
    if is_jit_function(value) or isinstance(value, type):
        return True
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return True
    if callable(value) and not isinstance(value, FunctionType):
        # The call decides which of these a kernel may call: it can say why not.
        return True
    return str(getattr(type(value), "__module__", "")).startswith("tkdebug.language")


def _not_readable(what: str, name: str, value: object) -> str:
    if isinstance(value, FunctionType):
        return (
            f"cannot call `{name}` from a kernel: it is a plain Python function; decorate it with "
            "@triton.jit, or with @triton.constexpr_function when it computes constants"
        )
    shown = repr(value)
    shown = shown if len(shown) <= 40 else shown[:39] + "…"
    return (
        f"cannot access {what} `{name}` (a plain {type(value).__name__}) from a kernel; "
        f"make it `{name} = tl.constexpr({shown})` or pass it as a parameter"
    )


def undefined(name: str, scope: Scope, surroundings: Surroundings) -> str:
    """The message for a name that has no value."""
    if name in scope.missing:
        return f"`{name}` is not defined here: {scope.missing[name]}"
    near = closest(name, [*scope.names, *surroundings.names()])
    return f"`{name}` is not defined{near}"


def stored_names(statements: Iterable[ast.stmt]) -> list[str]:
    """Names that `statements` may bind, in order of appearance."""
    found: dict[str, None] = {}
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id)
    return list(found)
