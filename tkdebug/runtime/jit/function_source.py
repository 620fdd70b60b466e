"""The Python of a jit function: name, text, parameters, and a hash of it and its dependencies.

A kernel depends on the functions that it calls and the globals that it reads. They are found by
reading the AST, without compiling: names that the function does not bind itself, looked up in its
closure and its module. Not responsible for noticing that a global changed after a compile: the
front end says which ones it really used. Invariant: the source is looked at when it is asked for,
never before.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import threading
from collections.abc import Callable, Collection, Iterator
from functools import cache, cached_property, lru_cache
from types import FunctionType, ModuleType
from typing import Any

from tkdebug.compiler.dtypes import LanguageType
from tkdebug.compiler.frontend.source import KernelSource
from tkdebug.compiler.tensor import constexpr, unwrap
from tkdebug.errors import UsageError
from tkdebug.process.forks import renew_after_forks
from tkdebug.runtime.arguments.specialize import constant_key
from tkdebug.runtime.jit.parameters import KernelParam, kernel_parameters

_UNDER_WAY = "recursion:"
_UNBOUND = object()
_WITHOUT_NAMES = ("ctx", "op", "ops", "type_comment", "kind", "simple", "is_async", "conversion")
_PLAIN = (bool, int, float, str, tuple, constexpr, LanguageType)


class FunctionSource:
    """The Python function behind a jit function.

    Attributes:
        fn: the Python function.
        source_edits: how often `_unsafe_update_src` replaced its source.
        hash: `cache_key` once it was worked out; set to None to have it worked out again.
    """

    def __init__(self, fn: FunctionType) -> None:
        self.fn = fn
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__module__ = fn.__module__
        self.__doc__ = fn.__doc__
        self.__globals__ = fn.__globals__
        self.source_edits = 0
        self.hash: str | None = None
        self._edited_source: KernelSource | None = None
        self.renew_locks()
        renew_after_forks(self)

    def renew_locks(self) -> None:
        """Replace the lock, and forget a hash that was being worked out."""
        self._lock = threading.RLock()
        if self.hash is not None and self.hash.startswith(_UNDER_WAY):
            self.hash = None

    @property
    def kernel_source(self) -> KernelSource:
        """The function's source.

        Raises:
            CompileError: it is not available.
        """
        return self._edited_source or KernelSource.of(self.fn)

    @property
    def src(self) -> str:
        """The function's text from `def` on."""
        source = self.kernel_source
        skipped = source.definition.lineno - source.first_line
        return "".join(source.text.splitlines(keepends=True)[skipped:])

    @property
    def raw_src(self) -> list[str]:
        """The lines of the function as its file has them, decorators included."""
        return [f"{line}\n" for line in self.kernel_source.lines]

    @property
    def starting_line_number(self) -> int:
        """Line of the first decorator, or of `def`."""
        return self.kernel_source.first_line

    def parse(self) -> ast.Module:
        """The function's text from `def` on, as an AST of its own."""
        return ast.parse(self.src)

    def _unsafe_update_src(self, new_src: str) -> None:
        """Compile `new_src` from now on; callers must forget their own `hash` themselves."""
        original = KernelSource.of(self.fn)
        first_line = original.definition.lineno
        tree = ast.parse(new_src)
        definition = tree.body[0]
        if len(tree.body) != 1 or not isinstance(definition, ast.FunctionDef):
            raise UsageError(f"kernel {self.__name__}: the new source is not a single `def`")
        ast.increment_lineno(definition, first_line - 1)
        lines = tuple(new_src.splitlines())
        self._edited_source = KernelSource(
            self.__name__, original.file, first_line, new_src, definition, lines
        )
        self.source_edits += 1
        self.hash = None

    @property
    def cache_key(self) -> str:
        """Content hash of the source, of the functions it calls and of the constants it reads."""
        with self._lock:
            if self.hash is None:
                # A placeholder while the callees are read, which may call this function again.
                self.hash = f"{_UNDER_WAY}{self.__qualname__}"
                try:
                    self.hash = content_key(self.fn, self.kernel_source)
                except BaseException:
                    self.hash = None
                    raise
            return self.hash


class KernelFunction(FunctionSource):
    """A jit function as the compiler sees it: its source, its parameters, its names.

    Attributes:
        module: the name of the Python function's module.
        noinline: whether kernels call the function rather than contain it.
        launch_metadata: makes metadata of a launch for hooks; None for none.
    """

    def __init__(
        self,
        fn: FunctionType,
        do_not_specialize: Collection[int | str] | None,
        do_not_specialize_on_alignment: Collection[int | str] | None,
        noinline: bool | None,
        repr: Callable[[Any], str] | None,
        launch_metadata: Callable[..., dict[str, object]] | None,
    ) -> None:
        super().__init__(fn)
        self.do_not_specialize = tuple(do_not_specialize or ())
        self.do_not_specialize_on_alignment = tuple(do_not_specialize_on_alignment or ())
        self.noinline = noinline
        self._repr = repr
        self.launch_metadata = launch_metadata
        self.module = fn.__module__

    @cached_property
    def signature(self) -> inspect.Signature:
        """The Python function's signature."""
        return inspect.signature(self.fn)

    @cached_property
    def params(self) -> list[KernelParam]:
        """The parameters, in order."""
        return kernel_parameters(
            self.signature, self.do_not_specialize, self.do_not_specialize_on_alignment
        )

    @cached_property
    def arg_names(self) -> list[str]:
        """The parameters' names."""
        return [parameter.name for parameter in self.params]

    @cached_property
    def constexprs(self) -> list[int]:
        """Positions of the compile-time parameters."""
        return [parameter.num for parameter in self.params if parameter.is_constexpr]

    def repr(self, specialization: object) -> str:
        """Return the kernel's name in one specialisation, by `repr=` or the function's name."""
        return self.__name__ if self._repr is None else str(self._repr(specialization))


def content_key(fn: FunctionType, source: KernelSource) -> str:
    """A hash of the text of `fn`, of the functions it calls, and of the constants it refers to."""
    line = source.definition.lineno
    # From `def` on, as an edited source has no decorators.
    text = "".join(source.text.splitlines(keepends=True)[line - source.first_line :])
    hasher = hashlib.sha256(f"{source.file}:{line}\n{text}".encode(errors="surrogatepass"))
    for name, value in references(fn, source):
        if hasattr(value, "cache_key"):
            hasher.update(f"{name}={value.cache_key}{getattr(value, 'noinline', '')}".encode())
        elif isinstance(value, _PLAIN):
            hasher.update(f"{name}={constant_key(unwrap(value))!r}".encode())
    return hasher.hexdigest()


def files_of(function: Any) -> frozenset[str]:
    """The source files of a jit function and of the functions that it calls."""
    found: dict[int, Any] = {}
    pending = [function]
    while pending:
        one = pending.pop()
        if id(one) not in found:
            found[id(one)] = one
            used = references(one.fn, one.kernel_source)
            pending += (value for _, value in used if hasattr(value, "kernel_source"))
    return frozenset(one.kernel_source.file for one in found.values())


def references(fn: FunctionType, source: KernelSource) -> Iterator[tuple[str, Any]]:
    """Yield the names outside of `fn` that it refers to, dotted, sorted so that keys are stable."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    for dotted in _free_names(source.definition):
        first, *attributes = dotted.split(".")
        if first in cells:
            value = _cell_value(cells[first])
        else:
            value = fn.__globals__.get(first, _UNBOUND)
        for attribute in attributes:
            if not isinstance(value, ModuleType):
                break
            value = getattr(value, attribute, _UNBOUND)
        if value is not _UNBOUND:
            yield dotted, value


def _cell_value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _UNBOUND


# By the AST, which functions of one text share.
@lru_cache(maxsize=64)
def _free_names(definition: ast.FunctionDef) -> tuple[str, ...]:
    """Sorted names, dotted where attributes are read off them, that the body does not bind."""
    parameters = definition.args
    bound = {p.arg for p in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)}
    bound.update(p.arg for p in (parameters.vararg, parameters.kwarg) if p is not None)
    names: list[str] = []
    pending: list[Any] = list(definition.body)
    # `ast.walk` also visits operators and contexts, and takes a third of a small kernel's compile.
    while pending:
        node = pending.pop()
        kind: Any = type(node)
        if kind is ast.Name:
            (bound.add if type(node.ctx) is ast.Store else names.append)(node.id)
        elif kind is ast.Attribute:
            names.append(_dotted(node))
            pending.append(node.value)
        elif kind is ast.arg:
            bound.add(node.arg)
        else:
            for field in _inner_fields(kind):
                value = getattr(node, field, None)
                if type(value) is list:
                    pending += value
                elif value is not None:
                    pending.append(value)
    return tuple(sorted({n for n in names if n and n.partition(".")[0] not in bound}))


@cache
def _inner_fields(kind: type) -> tuple[str, ...]:
    """The fields of a kind of node that can hold names; () for anything that is no node."""
    fields: tuple[str, ...] = getattr(kind, "_fields", ())
    return () if kind is ast.Constant else tuple(f for f in fields if f not in _WITHOUT_NAMES)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""
