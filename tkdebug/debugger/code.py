"""A kernel as a debugger runs it: its IR at a stage, its marks, its lines.

Unless another stage is asked for it is the front end's Tile IR: no pass has merged, hoisted or
unrolled anything, so that each line's ops run when the line does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.dialects.interfaces import StatementRegions
from tkdebug.compiler.frontend.values import flatten
from tkdebug.compiler.frontend.variables import (
    Activation,
    Mark,
    MarkKind,
    VariableRecorder,
    Variables,
)
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.compiler.ir.printer import NamedText, print_with_names
from tkdebug.compiler.passes.pass_run import PassRun
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.registered_backends import target_of
from tkdebug.debugger.bindings import Bindings
from tkdebug.debugger.stages import FRONT_END, Stage
from tkdebug.errors import TkError, UsageError
from tkdebug.runtime.compile.compilation import compile_for_debugger
from tkdebug.runtime.compile.debugged_stages import (
    gpu_passes,
    run_to_stage,
    source_for_gpu,
    tile_passes,
    usual_target,
)
from tkdebug.runtime.compile.native_compilation import native_options
from tkdebug.runtime.device.driver import driver

if TYPE_CHECKING:
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel


class DebugCode:
    """A kernel's ops and lines, made once for each compiled kernel.

    Attributes:
        module: the front end's Tile IR.
        variables: the marks of its statements.
        context: the mark to which each op belongs. Ops inside of reductions and scans have none:
            they combine elements, and run once for many.
        outside: the globals of the kernel's module.
        needed: the values of names at each op, and in its callers.
        kept: values of names that have no value at another line of their function.
        stage: the IR among the kernel's.
        ahead: ops that passes have made for other iterations of a loop.
        rounds_otherwise: whether sums may be rounded otherwise than in the front end's.
    """

    def __init__(
        self,
        module: Module,
        variables: Variables,
        outside: Mapping[str, Any] | None = None,
        stage: Stage = FRONT_END,
        rounds_otherwise: bool = False,
    ) -> None:
        self.module = module
        self.outside = outside or {}
        self.variables = variables
        self.stage = stage
        self.rounds_otherwise = rounds_otherwise
        self.ahead: frozenset[Operation] = frozenset()
        self.context: dict[Operation, Mark] = {}
        self.needed: dict[Operation, frozenset[Value]] = {}
        self._values: dict[Mark, frozenset[Value]] = {}
        self._walk(module.function.regions[0].block, None)
        self._marks: dict[Activation, list[Mark]] = {}
        for mark in variables.marks:
            self._marks.setdefault(mark.activation, []).append(mark)
        # Passes move ops to other lines, so that the log of lines does not show when they ran.
        self._recallable = {
            activation: _recallable(marks) if stage.is_front_end else frozenset()
            for activation, marks in self._marks.items()
        }
        self.kept: frozenset[Value] = frozenset(
            leaf
            for activation, names in self._recallable.items()
            for mark in self._marks[activation]
            for name in names & mark.names.keys()
            for leaf in flatten(mark.names[name])
        )
        self._births: dict[Value, Mark] = {}
        self._bound: dict[Activation, frozenset[str]] = {}

    @classmethod
    def of(
        cls,
        kernel: InterpretedKernel,
        stage: Stage = FRONT_END,
        target: str | None = None,
        values: Sequence[Any] = (),
    ) -> DebugCode:
        """Return the code of a compiled kernel, made when it is first asked for.

        Args:
            kernel: the compiled kernel.
            stage: the IR among its stages.
            target: the architecture that GPU IR is for; None for the usual one.
            values: the launch's values, whose alignment GPU code knows.

        Raises:
            TkError: the kernel does not compile to that stage.
        """
        src = kernel.src
        if stage.is_gpu:
            src = source_for_gpu(src, target, values)
        key = (cls, stage, src.options.arch, src.alignment)
        found = kernel.module.derived.get(key)
        if found is None:
            found = kernel.module.derived[key] = cls._compiled(src, stage)
        assert isinstance(found, cls)
        return found

    @classmethod
    def _compiled(cls, src: Specialization, stage: Stage) -> DebugCode:
        recorder = VariableRecorder()
        module = compile_for_debugger(src, recorder)
        outside = src.fn.fn.__globals__
        variables = recorder.finished(module)
        code = cls(module, variables, outside)
        if stage.is_front_end:
            return code
        bindings = Bindings(code.context, variables)
        module.follower = bindings
        runs = []
        try:
            for run, rounds in run_to_stage(src, module, stage.ir, stage.pass_name, stage.run):
                bindings.passed(run, rounds)
                runs.append(run)
        except TkError:
            raise
        except Exception as error:
            # A mistake of a pass must not end the script, which is not run by what it makes.
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"mistake in tkdebug: {reason}") from error
        module.follower = None
        variables = bindings.settled(module, str(stage))
        code = cls(module, variables, outside, stage, _sums_anew(runs))
        code.ahead = frozenset(op for op in module.walk() if bindings.is_ahead(op))
        return code

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
            if StatementRegions.matches(op):
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
        """Return the mark where a call of a function begins; it is passed once in each."""
        return self._marks[activation][0]

    def births(self, value: Any) -> Iterator[Mark]:
        """The marks after which the IR values of a front end's `value` are computed."""
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

    @cached_property
    def printed(self) -> NamedText:
        """The text of the IR, and the names that values have in it."""
        return print_with_names(self.module)

    @cached_property
    def values_by_name(self) -> dict[str, Value]:
        """The values of the text, by name without `%`."""
        return {name: value for value, name in self.printed.names.items()}

    def op_subject(self, kernel: str, place: int) -> str:
        """Return the subject of a breakpoint at the op of a line of the text, from 0 on."""
        return f"{kernel} at {self.stage}, line {place + 1} of the IR"

    def op_of(self, kernel: str, subject: str) -> Operation | None:
        """The op that a breakpoint waits for, by its place or as `%value`; None in other code."""
        if subject.startswith("%"):
            value = self.values_by_name.get(subject[1:])
            return None if value is None else value.defining_op
        if not subject.startswith(f"{kernel} at {self.stage}, line "):
            return None
        places = self.printed.places.items()
        return next((op for op, at in places if self.op_subject(kernel, at) == subject), None)

    def variables_of(self, activation: Activation) -> frozenset[str]:
        """The names that a call of a function binds, somewhere in it."""
        found = self._bound.get(activation)
        if found is None:
            marks = self._marks.get(activation, ())
            found = self._bound[activation] = frozenset(n for m in marks for n in m.names)
        return found

    def functions(self) -> set[str]:
        """The names of the kernel and of all functions that are inlined into it."""
        return {mark.activation.function for mark in self.variables.marks}


def _recallable(marks: Sequence[Mark]) -> frozenset[str]:
    bound = {name for mark in marks for name in mark.names}
    return frozenset(bound.intersection(name for mark in marks for name in mark.missing))


def pass_names(kernel: InterpretedKernel | None, target: str | None) -> tuple[list[str], list[str]]:
    """The passes over Tile IR, and those from there to GPU IR, in order.

    Args:
        kernel: the kernel whose options count; None for the usual ones.
        target: the architecture; None for the usual one.
    """
    options = NativeOptions(debug=False) if kernel is None else native_options(kernel.src)
    asked = None if kernel is None else kernel.src.options.arch
    asked = asked or target or usual_target()
    found = target_of(asked or driver.active.get_current_target().arch)
    return (
        [pass_.name for pass_ in tile_passes()],
        [pass_.name for pass_ in gpu_passes(found, options)],
    )


# The rule that makes a sum of products a dot, which adds in another order.
_SUMS_ANEW = frozenset(("form-dot",))


def _sums_anew(runs: Sequence[PassRun]) -> bool:
    """Whether passes changed the order of terms in a sum."""
    return any(record.rule in _SUMS_ANEW for run in runs for record in run.records)
