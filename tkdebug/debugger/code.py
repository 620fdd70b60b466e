"""A kernel as a debugger runs it: the front end's Tile IR, its marks, its lines.

No pass has merged, hoisted or unrolled anything, so that each line's ops run when the line does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.frontend.values import flatten
from tkdebug.compiler.frontend.variables import (
    Activation,
    Mark,
    MarkKind,
    VariableRecorder,
    Variables,
)
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.runtime.compile.compilation import compile_for_debugger

if TYPE_CHECKING:
    from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

_CONTROL = names_of(tt.Func, scf.If, scf.For, scf.While)


class DebugCode:
    """A kernel's ops and lines, made once for each compiled kernel.

    Attributes:
        module: the front end's Tile IR.
        variables: its marks.
        context: the mark to which each op belongs. Ops inside of reductions and scans have none:
            they combine elements, and run once for many.
        outside: the globals of the kernel's module.
        needed: the values that names stand for at each op, and in its callers.
        kept: values that names stood for which have none at another line of their function.
    """

    def __init__(
        self, module: Module, variables: Variables, outside: Mapping[str, Any] | None = None
    ) -> None:
        self.module = module
        self.outside = outside or {}
        self.variables = variables
        self.context: dict[Operation, Mark] = {}
        self.needed: dict[Operation, frozenset[Value]] = {}
        self._values: dict[Mark, frozenset[Value]] = {}
        self._walk(module.function.regions[0].block, None)
        self._marks: dict[Activation, list[Mark]] = {}
        for mark in variables.marks:
            self._marks.setdefault(mark.activation, []).append(mark)
        self._recallable = {each: _recallable(marks) for each, marks in self._marks.items()}
        self.kept: frozenset[Value] = frozenset(
            leaf
            for activation, names in self._recallable.items()
            for mark in self._marks[activation]
            for name in names & mark.names.keys()
            for leaf in flatten(mark.names[name])
        )
        self._births: dict[Value, Mark] = {}

    @classmethod
    def of(cls, kernel: InterpretedKernel) -> DebugCode:
        """That of a compiled kernel, made when it is first asked for."""
        found = kernel.module.derived.get(cls)
        if found is None:
            recorder = VariableRecorder()
            module = compile_for_debugger(kernel.src, recorder)
            outside = kernel.src.fn.fn.__globals__
            found = kernel.module.derived[cls] = cls(module, recorder.finished(module), outside)
        assert isinstance(found, cls)
        return found

    def _walk(self, block: Block, mark: Mark | None) -> None:
        for op in block.operations:
            before = self.variables.before.get(op, ())
            values: frozenset[Value] = frozenset()
            for each in before:
                values |= self._values_of(each)
            mark = before[-1] if before else mark
            if mark is not None:
                self.context[op] = mark
                values |= self._values_of(mark)
            self.needed[op] = values
            if op.name in _CONTROL:
                for region in op.regions:
                    self._walk(region.block, mark)

    def _values_of(self, mark: Mark) -> frozenset[Value]:
        found = self._values.get(mark)
        if found is None:
            own = [leaf for value in mark.names.values() for leaf in flatten(value)]
            around = frozenset() if mark.around is None else self._values_of(mark.around)
            found = self._values[mark] = frozenset([*own, *flatten(mark.value)]) | around
        return found

    def recallable(self, activation: Activation) -> frozenset[str]:
        """The names of a function that have a value at some lines, and none at others."""
        return self._recallable[activation]

    def first_mark(self, activation: Activation) -> Mark:
        """Where a call of a function begins; it is passed once in each."""
        return self._marks[activation][0]

    def births(self, value: Any) -> Iterator[Mark]:
        """The marks behind which the IR values of a front end's `value` are computed."""
        for leaf in flatten(value):
            found = self._births.get(leaf)
            if found is None:
                found = self._births[leaf] = self._birth(leaf)
            yield found

    def _birth(self, value: Value) -> Mark:
        op = value.owner
        if isinstance(op, Block):
            op = op.operations[0]
            before = self.variables.before.get(op)
            if before:
                return before[0]
        return self.context[op]

    def lines(self) -> Iterator[tuple[str, int]]:
        """File and line of each statement; one may come several times."""
        for mark in self.variables.marks:
            if mark.kind is MarkKind.LINE:
                yield mark.location.file, mark.location.line

    def functions(self) -> set[str]:
        """The names of the kernel and of all functions that are inlined into it."""
        return {mark.activation.function for mark in self.variables.marks}


def _recallable(marks: Sequence[Mark]) -> frozenset[str]:
    bound = {name for mark in marks for name in mark.names}
    return frozenset(bound.intersection(name for mark in marks for name in mark.missing))
