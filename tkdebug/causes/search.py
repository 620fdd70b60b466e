"""Edits that fix a launch: each is tried on a program that was wrong, then on the whole launch.

An edit counts where the whole launch, run again with it in the source, agrees with what was
expected. Nothing else is said to be a cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType

from torch import Tensor

from tkdebug.causes.edits import Edit, Kind, edits_of
from tkdebug.causes.rerun import OutOfTimeError, Rerun, Sources, Store
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.frontend.source import KernelSource
from tkdebug.compiler.ir import DescriptorType, Module, PointerType
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.tensor import is_jit_function
from tkdebug.errors import TkError
from tkdebug.runtime.compile.compilation import compile_with_sources

# Edits that are shown.
_MOST = 5
# Part of the time after which no more are looked for, where there is one.
_ENOUGH = 0.2
# What the interpreter raises for code that no one would write.
_NONSENSE = (RuntimeError, ValueError, IndexError, TypeError, ArithmeticError, AssertionError)


@dataclass(frozen=True, slots=True)
class Fix:
    """An edit with which the launch agrees."""

    function: str
    file: str
    edit: Edit
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a search.

    Attributes:
        fixes: the simplest first.
        tried: how many edits were tried.
        is_whole: whether all that there are were tried, or one was found.
    """

    fixes: tuple[Fix, ...]
    tried: int
    is_whole: bool


NOTHING_TRIED = Tried((), 0, True)


class Search:
    """The search for edits that fix launches.

    Args:
        rerun: the launches.
        store: in the last one, of a wrong element; None where no program stores it.
        wrong: gives where a tensor like the rerun's is wrong, a bool tensor.
        worst: position in the flat tensor of the wrong element.
    """

    def __init__(
        self,
        rerun: Rerun,
        store: Store | None,
        wrong: Callable[[Tensor], Tensor],
        worst: int,
    ) -> None:
        self._rerun = rerun
        self._store = store
        self._wrong = wrong
        self._worst = worst

    def run(self) -> Tried:
        """Try edits, the simplest first, until enough fix the launch or time is over."""
        fixes: list[Fix] = []
        tried = 0
        for function, source, edit in self._candidates():
            used = self._rerun.budget.used()
            if len(fixes) >= _MOST or used >= (_ENOUGH if fixes else 1):
                return Tried(tuple(fixes), tried, bool(fixes))
            tried += 1
            if self._fixes(function, source, edit):
                plain = edit.plain(source)
                before, after = plain.diff(source)
                if all(after != fix.after for fix in fixes):
                    fixes.append(Fix(source.name, source.file, plain, before, after))
        return Tried(tuple(fixes), tried, True)

    def _candidates(self) -> Iterator[tuple[FunctionType, KernelSource, Edit]]:
        found = []
        # As the front end makes them: passes drop variables that nothing uses.
        kernels = {launched.kernel.hash: launched.kernel for launched in self._rerun.launches}
        kinds = _kinds(compile_with_sources(kernel.src, {}) for kernel in kernels.values())
        for function, source in self._functions().items():
            globals_ = function.__globals__
            line = self._line_in(source)
            found += [(function, source, edit) for edit in edits_of(source, globals_, kinds, line)]
        return iter(sorted(found, key=lambda candidate: candidate[2].order))

    def _line_in(self, source: KernelSource) -> int | None:
        """The store's line, where it is one of a source."""
        if self._store is None:
            return None
        place = self._store.op.location.primary
        is_here = source.file == place.file and source.line(place.line) is not None
        return place.line if is_here else None

    def _functions(self) -> dict[FunctionType, KernelSource]:
        """The kernels, the last one first, and the functions that they call."""
        functions = {}
        for launched in reversed(self._rerun.launches):
            kernel = launched.kernel
            functions[kernel.src.fn.fn] = kernel.src.fn.kernel_source
            for used in kernel.used_globals:
                if is_jit_function(used.value):
                    functions[used.value.fn] = used.value.kernel_source
        return functions

    def _fixes(self, function: FunctionType, source: KernelSource, edit: Edit) -> bool:
        try:
            sources = {function: edit.apply(source)}
        except SyntaxError:
            return False
        store = self._store
        # What an atomic leaves is the work of several programs.
        is_of_one = store is not None and tt.Store.matches(store.op)
        if store is not None and is_of_one and self._rerun.marks_written:
            program = store.program
            part = self._ran(sources, [range(program, program + 1)])
            if part is None or not self._agrees_where_written(part):
                return False
        whole = self._ran(sources)
        return whole is not None and not bool(self._wrong(whole).any())

    def _ran(self, sources: Sources, programs: Sequence[range] | None = None) -> Tensor | None:
        """Return the tensor after edited launches, or None if they cannot be run."""
        try:
            return self._rerun.run(sources, programs)
        except (TkError, OutOfTimeError, *_NONSENSE):
            return None

    def _agrees_where_written(self, part: Tensor) -> bool:
        written = self._rerun.is_written(part)
        if not bool(written.reshape(-1)[self._worst]):
            return False
        return not bool((self._wrong(part) & written).any())


def _kinds(modules: Iterable[Module]) -> dict[str, Kind]:
    """Return the kinds of the named values of kernels."""
    found: dict[str, Kind] = {}
    for module in modules:
        block = module.function.regions[0].block
        names = tt.Func(module.function).arg_names
        named = [*zip(names, block.arguments, strict=True)]
        named += [(r.name, r) for op in module.walk() for r in op.results if r.name]
        for name, value in named:
            element = ir.element_of(value.type)
            if isinstance(element, PointerType) or isinstance(value.type, DescriptorType):
                kind = "pointer"
            elif not element.is_integer:
                kind = "float"
            else:
                kind = "bool" if element.bits == 1 else "int"
            found.setdefault(name, Kind(kind, len(ir.shape_of(value.type))))
    return found
