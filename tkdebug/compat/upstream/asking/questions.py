"""Questions to another Triton: a kernel with its types and constants, as plain data.

A question has the text of the kernel and of all functions that it calls, the values of their names,
and the signature as upstream writes it. Names from tkdebug's language are sent as upstream's names;
values that mean nothing elsewhere are sent as such, and `Question.unsent` names them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import FunctionType, ModuleType
from typing import Any

from tkdebug.compiler.aggregates import Aggregate
from tkdebug.compiler.dtypes import block_type, dtype, pointer_type
from tkdebug.compiler.frontend.arguments import ArgSpec, Constant
from tkdebug.compiler.frontend.scope import stored_names
from tkdebug.compiler.frontend.source import KernelSource
from tkdebug.compiler.tensor import constexpr, is_jit_function
from tkdebug.runtime.compile.options import LaunchOptions
from tkdebug.runtime.compile.specialization import Specialization

_PACKAGE = "triton"
# Modules that scripts import from tkdebug itself, and their names in upstream.
_OWN_MODULES = {"tkdebug": "triton", "tkdebug.language": "triton.language"}
_PLAIN = (bool, int, float, str, type(None))
# These have a default of upstream's own, or mean something here alone.
_NOT_SENT = frozenset({"arch", "ir_override", "supported_fp8_dtypes", "warp_size"})
_MAX_DEPTH = 8


@dataclass
class Question:
    """One signature of a kernel.

    Attributes:
        data: plain data, less the number and the target.
        unsent: names whose values mean nothing to another process, each with a description of the
            value.
    """

    data: dict[str, Any]
    unsent: list[str] = field(default_factory=list)


def question_of(src: Specialization) -> Question:
    """Return the question whether upstream compiles the specialisation `src`.

    Raises:
        CompileError: the source of one of the functions is not available.
    """
    names = _Names()
    names.number_of(src.fn)
    constants = [[path, names.value(value, "")] for path, value in _constants(src.specs, ())]
    names.describe_functions()
    options = {
        one.name: getattr(src.options, one.name)
        for one in fields(LaunchOptions)
        if one.name not in _NOT_SENT and getattr(src.options, one.name) != one.default
    }
    data = {
        "functions": names.functions,
        "signature": src.signature,
        "constants": constants,
        "attrs": list(src.attrs.items()),
        "options": options,
    }
    return Question(data, names.unsent)


def _constants(
    specs: Sequence[ArgSpec], path: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield the constants among a kernel's arguments, each after its path."""
    for index, spec in enumerate(specs):
        if isinstance(spec, Constant):
            yield (*path, index), spec.value
        elif isinstance(spec, tuple):
            yield from _constants(spec, (*path, index))


class _Names:
    """Describes functions, and the values that their names have.

    Attributes:
        functions: the descriptions by number.
        unsent: as in `Question`.
    """

    def __init__(self) -> None:
        self.functions: list[dict[str, Any]] = []
        self.unsent: list[str] = []
        self._numbers: dict[int, int] = {}
        self._found: list[Any] = []
        self._depth = 0

    def number_of(self, function: Any) -> int:
        """Return the number of a function, which `describe_functions` describes in the end."""
        number = self._numbers.setdefault(id(function), len(self._found))
        if number == len(self._found):
            self._found.append(function)
        return number

    def describe_functions(self) -> None:
        """Describe all functions that were numbered, and the functions that they call."""
        while len(self.functions) < len(self._found):
            self.functions.append(self._described(self._found[len(self.functions)]))

    def _described(self, function: Any) -> dict[str, Any]:
        kind = "jit" if is_jit_function(function) else "plain"
        if getattr(function, "is_constexpr_function", False):
            kind = "constexpr"
        python: FunctionType = function if kind == "plain" else function.fn
        source: KernelSource = function.kernel_source if kind == "jit" else KernelSource.of(python)
        return {
            "kind": kind,
            "name": python.__name__,
            "qualname": python.__qualname__,
            "module": python.__module__,
            "noinline": getattr(function, "noinline", None),
            "do_not_specialize": getattr(function, "do_not_specialize", None),
            "file": source.file,
            "first_line": source.first_line,
            "lines": [f"{line}\n" for line in source.lines],
            "names": dict(self._names_of(python, source, kind == "jit")),
            "defaults": [self.value(value, "a default") for value in python.__defaults__ or ()],
            "keyword_defaults": {
                name: self.value(value, name)
                for name, value in (python.__kwdefaults__ or {}).items()
            },
        }

    def _names_of(
        self, fn: FunctionType, source: KernelSource, is_jit: bool
    ) -> Iterator[tuple[str, Any]]:
        """Yield the names in a function's text that its surroundings bind, with their values."""
        cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
        for name, attributes in _used_names(source.definition).items():
            if name in cells:
                try:
                    value = cells[name].cell_contents
                except ValueError:
                    continue
            elif name in fn.__globals__:
                value = fn.__globals__[name]
            else:
                continue
            if is_jit and _is_plain_class(value):
                # No kernel may read one, so Triton needs its name alone.
                yield name, {"class": value.__name__}
            else:
                yield name, self.value(value, name, attributes)

    def value(self, value: Any, name: str, attributes: Mapping[str, Any] | None = None) -> Any:
        """A value as plain data.

        Args:
            value: a value of any kind.
            name: its name in the kernel.
            attributes: for a module: the attributes that are read off it, and off those, by name.
        """
        if type(value) in _PLAIN:
            return value
        self._depth += 1
        try:
            described = None if self._depth > _MAX_DEPTH else self._value(value, name, attributes)
        finally:
            self._depth -= 1
        if described is None:
            kind = type(value).__name__
            self.unsent.append(f"`{name}` ({kind})" if name else f"a constant ({kind})")
            return {"unsent": kind}
        return described

    def _value(self, value: Any, name: str, attributes: Mapping[str, Any] | None) -> Any:
        public = _public_name(value)
        if public is not None:
            return {"public": public}
        if isinstance(value, ModuleType):
            found = {
                one: self.value(getattr(value, one), f"{name}.{one}", inner)
                for one, inner in (attributes or {}).items()
                if hasattr(value, one)
            }
            return {"module": [value.__name__, found]}
        if is_jit_function(value) or getattr(value, "is_constexpr_function", False):
            return {"function": self.number_of(value)}
        if isinstance(value, constexpr):
            return {"constexpr": self.value(value.value, name)}
        return self._type(value) or self._collection(value, name) or self._python(value)

    def _type(self, value: Any) -> Any:
        if isinstance(value, dtype):
            return {"dtype": value.name}
        if isinstance(value, pointer_type):
            return {"pointer": [self.value(value.element_ty, ""), value.const]}
        if isinstance(value, block_type):
            return {"block": [self.value(value.element_ty, ""), list(value.shape)]}
        return None

    def _collection(self, value: Any, name: str) -> Any:
        if isinstance(value, tuple) and type(value) is not tuple:
            named = tuple(getattr(type(value), "_fields", ()))
            if type(value).__bases__ != (tuple,) or not named:
                return None
            items = [self.value(item, name) for item in value]
            return {"named": [type(value).__name__, named, items]}
        if type(value) in (tuple, list):
            return {type(value).__name__: [self.value(item, name) for item in value]}
        if type(value) is dict:
            return {"dict": [[self.value(k, name), self.value(v, name)] for k, v in value.items()]}
        return None

    def _python(self, value: Any) -> Any:
        """Describe a function or class of Python's by its origin."""
        if isinstance(value, type) and value.__bases__ == (tuple,) and hasattr(value, "_fields"):
            return {"named class": [value.__name__, list(value._fields)]}
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(name, str):
            return None
        if module.partition(".")[0] in sys.stdlib_module_names:
            return {"public": [module, name]}
        if isinstance(value, FunctionType):
            return {"function": self.number_of(value)}
        return None


def _is_plain_class(value: Any) -> bool:
    """Whether a value is a class of a user's that kernels cannot use."""
    if not isinstance(value, type) or issubclass(value, Aggregate | BaseException):
        return False
    return not hasattr(value, "_fields") and _public_name(value) is None


def _used_names(definition: ast.FunctionDef) -> dict[str, dict[str, Any]]:
    """The names that a function's text takes from outside, and the attributes read off each.

    Of `a.b.c` that is `{"a": {"b": {"c": {}}}}`. Defaults and annotations are outside, too.
    """
    arguments = definition.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    parameters += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    inside = _names_read(definition.body)
    stored = [*stored_names(definition.body), *(parameter.arg for parameter in parameters)]
    for name in stored:
        inside.pop(name, None)
    outside: list[ast.AST | None] = [*arguments.defaults, *arguments.kw_defaults]
    outside += [parameter.annotation for parameter in parameters]
    return inside | _names_read([node for node in (*outside, definition.returns) if node])


def _names_read(nodes: Sequence[ast.AST]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    pending = list(nodes)
    while pending:
        node = pending.pop()
        chain: list[str] = []
        inner = node
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            at = found.setdefault(inner.id, {})
            for attribute in reversed(chain):
                at = at.setdefault(attribute, {})
        else:
            pending += ast.iter_child_nodes(node)
    return found


def _public_name(value: Any) -> list[str] | None:
    """The [module, name] that upstream has for an object of tkdebug's language."""
    if isinstance(value, ModuleType):
        return _module_names().get(id(value))
    return _PUBLIC.names().get(id(value))


def _module_names() -> dict[int, list[str]]:
    loaded = {name: one for name, one in list(sys.modules.items()) if _is_public(name)}
    names = {id(one): [name, ""] for name, one in loaded.items()}
    for own, theirs in _OWN_MODULES.items():
        for name, one in list(sys.modules.items()):
            if name == own or (own == "tkdebug.language" and name.startswith(f"{own}.")):
                names.setdefault(id(one), [theirs + name.removeprefix(own), ""])
    return names


def _is_public(module: str) -> bool:
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")


class _PublicNames:
    """Names of the language's objects by identity; read again when other modules are loaded."""

    def __init__(self) -> None:
        self._of: frozenset[int] = frozenset()
        self._names: dict[int, list[str]] = {}
        # Objects that modules make when they are asked, which must not be freed.
        self._kept: list[Any] = []

    def names(self) -> dict[int, list[str]]:
        """Module and name by the object's id."""
        modules = _module_names()
        if frozenset(modules) != self._of:
            self._of, self._names, self._kept = frozenset(modules), {}, []
            by_id = {id(one): one for one in list(sys.modules.values())}
            for number, (name, _) in sorted(modules.items(), key=lambda item: len(item[1][0])):
                self._add(name, by_id[number])
        return self._names

    def _add(self, module_name: str, module: ModuleType) -> None:
        for name in dir(module):
            if name.startswith("_"):
                continue
            try:
                value = getattr(module, name)
            except AttributeError:
                continue
            if isinstance(value, ModuleType) or type(value) in (*_PLAIN, tuple, list, dict):
                continue
            self._kept.append(value)
            self._names.setdefault(id(value), [module_name, name])


_PUBLIC = _PublicNames()
