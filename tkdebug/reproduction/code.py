"""The functions of a kernel for another script: with their callees, imports and constants."""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch

from tkdebug.compiler.dtypes import LanguageType
from tkdebug.compiler.frontend.source import KernelSource
from tkdebug.compiler.tensor import constexpr, unwrap
from tkdebug.errors import UnsupportedError
from tkdebug.reproduction.script import Argument, Text, argument_text
from tkdebug.runtime.jit.function_source import references

_CONSTANTS = (bool, int, float, str, type(None))
_USUAL = {"triton": "triton", "tl": "triton.language", "torch": "torch"}


class Functions:
    """Functions of kernels under names of a common script.

    Attributes:
        nodes: callees before their callers.
        imports: statements by the name that each binds.
        constants: texts of globals by their names.
        decorators: the decorators of functions other than `triton.jit`, by function.
    """

    def __init__(self) -> None:
        self.nodes: list[ast.FunctionDef] = []
        self.imports: dict[str, str] = {}
        self.constants: dict[str, str] = {}
        self.decorators: dict[str, str] = {}
        self._names: dict[int, str] = {}
        # The object of each name, which is kept alive so that no other object gets its id.
        self._bound: dict[str, object] = {}

    def add(self, function: Any) -> str:
        """Add a jit function and those that it calls; return its name in the script.

        Raises:
            UnsupportedError: it reads what no short script can have.
        """
        if id(function) in self._names:
            return self._names[id(function)]
        name = self._free_name(function.__name__, function)
        self._names[id(function)] = name
        source = function.kernel_source
        node = _plain(source.definition)
        self._set_defaults(node, function.fn)
        renamed = dict(self._referred(function, source))
        node = _Renamed(renamed).visit(node)
        node.name = name
        if name != function.__name__:
            node = _Renamed({function.__name__: name}).visit(node)
        self.nodes.append(node)
        return name

    def argument(self, value: Any) -> Argument:
        """Return a constant argument as a script has it.

        Raises:
            UnsupportedError: it cannot be written.
        """
        value = unwrap(value)
        if isinstance(value, _CONSTANTS):
            return value
        if isinstance(value, tuple | list):
            return tuple(self.argument(one) for one in value)
        if isinstance(value, torch.dtype):
            return Text(str(value))
        if hasattr(value, "kernel_source"):
            return Text(self.add(value))
        if isinstance(value, LanguageType):
            return Text(_of_triton(value))
        raise UnsupportedError(f"an argument of type {type(value).__name__} cannot be written")

    def _set_defaults(self, node: ast.FunctionDef, fn: FunctionType) -> None:
        """Replace defaults by literals of their values: their expressions may read other names."""
        values = fn.__defaults__ or ()
        node.args.defaults = [self._literal(value) for value in values]
        by_name = fn.__kwdefaults__ or {}
        node.args.kw_defaults = [
            self._literal(by_name[one.arg]) if one.arg in by_name else None
            for one in node.args.kwonlyargs
        ]

    def _literal(self, value: Any) -> ast.expr:
        return ast.parse(argument_text(self.argument(value)), mode="eval").body

    def _referred(self, function: Any, source: KernelSource) -> Iterator[tuple[str, str]]:
        """Yield names that a function reads, with the texts that replace them."""
        for dotted, value in references(function.fn, source):
            root = dotted.partition(".")[0]
            if hasattr(value, "kernel_source") and not _is_of_triton(value.__module__):
                name = self.add(value)
                if name != dotted:
                    yield dotted, name
            elif getattr(value, "is_constexpr_function", False) and not _module_of(value):
                yield dotted, self._constexpr_function(value)
            elif isinstance(unwrap(value), _CONSTANTS) and not _module_name(function, root):
                text = repr(unwrap(value))
                if root != dotted:
                    yield dotted, text
                else:
                    yield dotted, self._constant(dotted, value, text)
            else:
                self._import(function, root, dotted, value)

    def _constant(self, name: str, value: Any, text: str) -> str:
        text = f"tl.constexpr({text})" if isinstance(value, constexpr | int | float | str) else text
        if self.constants.get(name, text) != text:
            name = self._free_name(name, value)
        self._bound[name] = value
        self.constants[name] = text
        return name

    def _constexpr_function(self, function: Any) -> str:
        if id(function) in self._names:
            return self._names[id(function)]
        name = self._free_name(function.__name__, function)
        self._names[id(function)] = name
        node = _plain(KernelSource.of(function.fn).definition)
        node.name = name
        self.nodes.append(node)
        self.decorators[name] = "@triton.constexpr_function"
        return name

    def _import(self, function: Any, root: str, dotted: str, value: Any) -> None:
        namespace = _namespace(function)
        bound = namespace.get(root)
        if isinstance(bound, ModuleType):
            module = _module_name(function, root)
            if _USUAL.get(root) == module:
                return
            if module:
                alias = "" if module == root else f" as {root}"
                self._bind(root, f"import {module}{alias}")
                return
        elif found := _module_of(bound, root):
            module, name = found
            ending = "" if name == root else f" as {root}"
            self._bind(root, f"from {module} import {name}{ending}")
            return
        kind = type(value).__name__
        raise UnsupportedError(
            f"{function.__name__} reads `{dotted}`, a {kind}, which a script of its own has not"
        )

    def _bind(self, name: str, text: str) -> None:
        if self.imports.setdefault(name, text) != text:
            raise UnsupportedError(f"`{name}` is bound by `{self.imports[name]}` and by `{text}`")

    def _free_name(self, name: str, value: object) -> str:
        base, number = name, 2
        while name in self._bound and self._bound[name] is not value:
            name, number = f"{base}_{number}", number + 1
        self._bound[name] = value
        return name


def host_functions(function: FunctionType) -> tuple[str, ...]:
    """Return the texts of a function of torch and of those that it calls, callees first.

    Raises:
        UnsupportedError: it reads what no short script can have.
    """
    source = KernelSource.of(function)
    renamed: dict[str, str] = {}
    texts: tuple[str, ...] = ()
    for dotted, value in references(function, source):
        root, _, rest = dotted.partition(".")
        bound = _namespace_of(function).get(root)
        if isinstance(bound, ModuleType) and bound.__name__.partition(".")[0] == "torch":
            renamed[dotted] = f"{bound.__name__}.{rest}" if rest else bound.__name__
        elif isinstance(bound, ModuleType) and bound.__name__ == "math":
            renamed[dotted] = repr(value)
        elif isinstance(value, bool | int | float):
            renamed[dotted] = repr(value)
        elif isinstance(value, FunctionType) and value.__name__ == dotted and value is not function:
            texts += host_functions(value)
        elif value is not function:
            raise UnsupportedError(f"{function.__name__} reads `{dotted}`")
    node = _Renamed(renamed).visit(_plain(source.definition))
    return (*dict.fromkeys(texts), ast.unparse(node))


class _Renamed(ast.NodeTransformer):
    """Replaces names, dotted ones too, by expressions.

    Args:
        renamed: the texts of expressions by name.
    """

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._renamed = renamed

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a name."""
        text = self._renamed.get(node.id)
        return node if text is None or text == node.id else _expression(text, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace a dotted name."""
        text = self._renamed.get(ast.unparse(node))
        if text is not None:
            return _expression(text, node)
        self.generic_visit(node)
        return node


def _expression(text: str, node: ast.expr) -> ast.expr:
    made = ast.parse(text, mode="eval").body
    if isinstance(made, ast.Name):
        made.ctx = getattr(node, "ctx", ast.Load())
    return made


def _plain(definition: ast.FunctionDef) -> ast.FunctionDef:
    """Return a copy without decorators, docstring, and annotations other than constexpr."""
    node = copy.deepcopy(definition)
    node.decorator_list, node.returns = [], None
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and node.body[1:]:
        del node.body[0]
    arguments = node.args
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if one.annotation is not None:
            is_constant = ast.unparse(one.annotation).endswith("constexpr")
            one.annotation = ast.parse("tl.constexpr", mode="eval").body if is_constant else None
    return node


def _namespace(function: Any) -> dict[str, Any]:
    return _namespace_of(function.fn)


def _namespace_of(fn: FunctionType) -> dict[str, Any]:
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    held = {name: cell.cell_contents for name, cell in cells.items() if _holds(cell)}
    return {**fn.__globals__, **held}


def _holds(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_of_triton(module: str) -> bool:
    return module.partition(".")[0] in ("triton", "tkdebug")


def _module_name(function: Any, root: str) -> str:
    """Return the name by which a script imports the module that `root` is bound to; "" if none."""
    bound = _namespace(function).get(root)
    if not isinstance(bound, ModuleType):
        return ""
    if bound is torch or bound.__name__ == "math":
        return bound.__name__
    names = (name for name, module in list(sys.modules.items()) if module is bound)
    return next((name for name in sorted(names) if name.partition(".")[0] == "triton"), "")


def _module_of(value: Any, hint: str = "") -> tuple[str, str] | None:
    """Return the module of triton that has an object, and its name there; None if none has it.

    Args:
        value: the object.
        hint: a name that it may have, for modules that make names when they are asked.
    """
    for module in sorted(name for name in list(sys.modules) if name.partition(".")[0] == "triton"):
        if hint and getattr(sys.modules[module], hint, None) is value:
            return module, hint
        for name, held in list(vars(sys.modules[module]).items()):
            if held is value and not name.startswith("_"):
                return module, name
    return None


def _of_triton(value: Any) -> str:
    from tkdebug import language

    for name in dir(language):
        held = getattr(language, name)
        if held is value or (type(held) is type(value) and held == value):
            return f"tl.{name}"
    raise UnsupportedError(f"the type {value} cannot be written")


def expression_with(node: ast.expr, renamed: Mapping[str, str]) -> ast.expr:
    """Return an expression with names replaced by expressions."""
    made: ast.expr = _Renamed(renamed).visit(copy.deepcopy(node))
    return made
