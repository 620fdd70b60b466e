"""Visits one function: dispatches AST nodes, keeps locations, turns wrong uses into errors.

Responsible for the part that statements and expressions share; the meaning of each is in the
modules that register handlers (`statements`, `expressions`…). Invariant: while a node is visited,
the builder's location is that node's, with the chain of inlined calls that led there.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from types import FunctionType
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.frontend.arguments import JitCallable
from tkdebug.compiler.frontend.scope import Binding, Scope, Surroundings, UsedGlobals, undefined
from tkdebug.compiler.frontend.source import KernelSource
from tkdebug.compiler.frontend.values import has_number, is_number, map_numbers
from tkdebug.compiler.ir import Block, Builder, SourceLocation
from tkdebug.compiler.ops import conversion
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import SemanticError
from tkdebug.compiler.tensor import block_pointer, tensor, tensor_descriptor
from tkdebug.errors import CompileError, IRError, TkError

if TYPE_CHECKING:
    from tkdebug.compiler.frontend.variables import VariableRecorder
    from tkdebug.compiler.frontend.watching import Watching


class Flow(Enum):
    """The way that control goes at the end of some statements."""

    FALLS = auto()
    RETURNS = auto()
    # Some paths returned and some fell through: the ops emitted so far are of no use, the caller
    # compiles the statements again with those after them.
    MIXED = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a statement list.

    Attributes:
        value: the returned value, None for nothing.
        node: the `return` statement, or None when the function's end was reached.
    """

    flow: Flow
    value: Any = None
    node: ast.Return | None = None


FALLS = Outcome(Flow.FALLS)
MIXED = Outcome(Flow.MIXED)


@dataclass(frozen=True, slots=True)
class Rest:
    """Statements from `index` on, then `after`; if `after` is None, control falls through."""

    statements: Sequence[ast.stmt]
    index: int
    after: Rest | None


# The rest after a function's body: its end, which returns nothing.
END_OF_FUNCTION = Rest((), 0, None)


ADVICE: dict[type[ast.AST], str] = {
    ast.Break: "`break` is not supported in kernels; use a `while` loop whose condition ends it, "
    "or mask the work of the remaining iterations",
    ast.Continue: "`continue` is not supported in kernels; put the rest of the body under an `if`",
    ast.Lambda: "`lambda` is not supported in kernels; define a function with @triton.jit",
    ast.NamedExpr: "`:=` is not supported in kernels; assign on a line of its own",
    ast.Dict: "dicts are not supported in kernels; use a tuple or a named tuple",
    ast.DictComp: "dict comprehensions are not supported in kernels; use a tuple",
    ast.Set: "sets are not supported in kernels; use a tuple",
    ast.SetComp: "set comprehensions are not supported in kernels; use a tuple",
    ast.Try: "`try` is not supported in kernels; test the condition with `if` or tl.device_assert",
    ast.FunctionDef: "a function cannot be defined inside a kernel; "
    "move it to the module and decorate it with @triton.jit",
    ast.AsyncFunctionDef: "`async def` is not supported in kernels",
    ast.ClassDef: "a class cannot be defined inside a kernel; move it to the module",
    ast.Delete: "`del` is not supported in kernels; leave the line out, unused values cost nothing",
    ast.Global: "`global` is not supported in kernels; return the value or store it to memory",
    ast.Nonlocal: "`nonlocal` is not supported in kernels; return the value instead",
    ast.Import: "`import` is not supported inside a kernel; move it to the top of the file",
    ast.ImportFrom: "`import` is not supported inside a kernel; move it to the top of the file",
    ast.Yield: "`yield` is not supported in kernels; return a tuple",
    ast.YieldFrom: "`yield from` is not supported in kernels; return a tuple",
    ast.Await: "`await` is not supported in kernels",
    ast.AsyncFor: "`async for` is not supported in kernels",
    ast.AsyncWith: "`async with` is not supported in kernels",
    ast.With: "`with` is not supported in kernels; call the function on a line of its own",
    ast.Match: "`match` is not supported in kernels; use if/elif on constants",
    ast.Starred: "`*` unpacking is not supported here; name each element",
}


_BUILTIN_NAMES = (
    "range min max len abs sum print float int bool str tuple list isinstance issubclass getattr "
    "hasattr type round pow divmod any all zip enumerate reversed sorted slice NotImplementedError "
    "ValueError TypeError RuntimeError AssertionError Exception Ellipsis breakpoint"
).split()
PYTHON_BUILTINS = {name: getattr(builtins, name) for name in _BUILTIN_NAMES}

_TOO_DEEP = (
    "this statement nests its expressions or calls too deeply to be compiled; split it into several"
)
# Half of a kernel's nodes: they emit no op, and so need no location.
_LEAVES = frozenset((ast.Name, ast.Constant))
ExpressionHandler = Callable[["Visitor", Any], Any]
# Takes the rest after the statement; returns None if control goes on with the rest, otherwise the
# outcome of the whole list.
StatementHandler = Callable[["Visitor", Any, Rest], "Outcome | None"]


@dataclass
class Program:
    """One compilation: the state that all functions inlined into a kernel share.

    Attributes:
        chain: the functions being inlined, outermost first, with the constants they got.
        unrolled: the number of unrolled iterations of all loops.
        breakpoints: where `breakpoint()` was met.
        recorder: notes the variables' values at each line; None unless they are asked for.
        watching: records watched values; None without watches.
        sources: other sources of some Python functions.
    """

    emit: Emitter
    kernel_name: str
    expressions: dict[type[ast.expr], ExpressionHandler]
    statements: dict[type[ast.stmt], StatementHandler]
    used_globals: UsedGlobals = field(default_factory=dict)
    chain: list[tuple[JitCallable, object]] = field(default_factory=list)
    unrolled: int = 0
    breakpoints: list[SourceLocation] = field(default_factory=list)
    recorder: VariableRecorder | None = None
    watching: Watching | None = None
    sources: Mapping[FunctionType, KernelSource] = field(default_factory=dict)


class Visitor:
    """Compiles one function's statements at the builder's insertion point."""

    def __init__(
        self,
        program: Program,
        fn: FunctionType,
        source: KernelSource,
        caller: SourceLocation | None,
        is_kernel: bool,
    ) -> None:
        self.program = program
        self.emit = program.emit
        self.source = source
        self.caller = caller
        self.is_kernel = is_kernel
        self.scope = Scope()
        self.surroundings = Surroundings(fn, program.used_globals, PYTHON_BUILTINS)
        # The parameters' bindings; their constants are noted when a branch re-binds them.
        self.passed: dict[str, Binding] = {}
        # Run-time loops around the statement being visited: a `return` may not leave them.
        self.loops: list[ast.For | ast.While] = []

    @property
    def builder(self) -> Builder:
        """The builder that all functions of the program share."""
        return self.emit.builder

    def locate(self, node: ast.AST) -> SourceLocation:
        """The location of `node`, called from where this function was inlined."""
        source = self.source
        line: int = getattr(node, "lineno", source.definition.lineno)
        return SourceLocation(source.file, line, source.column(node), source.name, self.caller)

    def error(self, node: ast.AST, message: str) -> CompileError:
        """A compile error at `node`."""
        location = self.locate(node)
        text = self.source.line(location.line)
        return CompileError(
            message,
            frames=location.frames,
            column=location.column,
            source_line=None if text is None else text.replace("\t", " "),
            kernel=self.program.kernel_name,
        )

    @contextmanager
    def visiting(self, node: ast.AST) -> Iterator[None]:
        """Emit at `node`'s location; wrong uses raised inside become errors there."""
        builder = self.builder
        previous, builder.location = builder.location, self.locate(node)
        try:
            yield
        except Exception as error:
            self._raise_at(node, error)
            raise
        finally:
            builder.location = previous

    def _raise_at(self, node: ast.AST, error: Exception) -> None:
        """Raise a wrong use as an error at `node`; let errors with a place, and our bugs, pass."""
        # `statement` reports a RecursionError as too deep nesting: there the stack has room again.
        if isinstance(error, CompileError | RecursionError):
            return
        if isinstance(error, SemanticError | TkError) and not isinstance(error, IRError):
            raise self.error(node, str(error)) from error
        # A bug of tkdebug, not of the kernel: raised as it is, with a note on the kernel's line.
        self._note(error, node)

    def _note(self, error: Exception, node: ast.AST) -> None:
        notes: list[str] = getattr(error, "__notes__", [])
        if any(note.startswith("while compiling") for note in notes):
            return
        line: int = getattr(node, "lineno", self.source.definition.lineno)
        # Python 3.10 has no add_note, but shows nothing of the attribute either way.
        error.__notes__ = [
            *notes,
            f"while compiling {self.source.file}:{line}, kernel {self.program.kernel_name}; "
            "this is an error in tkdebug, not in the kernel",
        ]

    def expression(self, node: ast.expr) -> Any:
        """The value of an expression."""
        # `visiting`, written out for speed: this runs for every node of a kernel.
        builder = self.emit.builder
        previous = builder.location
        kind = type(node)
        try:
            if kind not in _LEAVES:
                builder.location = self.locate(node)
            handler = self.program.expressions.get(kind)
            if handler is None:
                raise SemanticError(_unsupported(node))
            value = handler(self, node)
            if self.program.recorder is not None:
                self.program.recorder.expression(node, value)
            return value
        except Exception as error:
            self._raise_at(node, error)
            raise
        finally:
            builder.location = previous

    def statement(self, node: ast.stmt, rest: Rest) -> Outcome | None:
        """Compile one statement; None means that control goes on with `rest`."""
        builder = self.emit.builder
        previous, builder.location = builder.location, self.locate(node)
        if self.program.recorder is not None:
            self.program.recorder.statement(self, node)
        watching = self.program.watching
        try:
            handler = self.program.statements.get(type(node))
            if handler is None:
                raise SemanticError(_unsupported(node))
            if watching is None:
                return handler(self, node, rest)
            watching.statement_begins(self, node)
            outcome = handler(self, node, rest)
            if outcome is None:
                watching.statement_ended(self, node)
            return outcome
        except RecursionError:
            raise self.error(node, _TOO_DEEP) from None
        except Exception as error:
            self._raise_at(node, error)
            raise
        finally:
            builder.location = previous

    def run(self, statements: Sequence[ast.stmt], after: Rest | None, start: int = 0) -> Outcome:
        """Compile `statements[start:]`, then `after`."""
        for index in range(start, len(statements)):
            outcome = self.statement(statements[index], Rest(statements, index + 1, after))
            if outcome is not None:
                return outcome
        return self.resume(after)

    def resume(self, rest: Rest | None) -> Outcome:
        """Compile the statements that are left."""
        if rest is None:
            return FALLS
        if rest is END_OF_FUNCTION:
            if self.program.recorder is not None:
                self.program.recorder.returns(self, self.source.definition.body[-1], None)
            return Outcome(Flow.RETURNS)
        return self.run(rest.statements, rest.after, rest.index)

    def lookup(self, name: str) -> Any:
        """The value of `name` here."""
        binding = self.scope.names.get(name)
        if binding is not None:
            return binding.value
        if name in self.scope.missing:
            raise SemanticError(undefined(name, self.scope, self.surroundings))
        try:
            return self.surroundings.lookup(name)
        except LookupError:
            message = undefined(name, self.scope, self.surroundings)
            if hasattr(builtins, name):
                message = f"Python's `{name}` cannot be used in a kernel"
            raise SemanticError(message) from None

    def bind(self, name: str, value: Any, node: ast.AST, is_constexpr: bool = False) -> None:
        """Bind a local variable; IR values without a name take it."""
        name_values(name, value)
        line: int = getattr(node, "lineno", self.source.definition.lineno)
        self.scope.bind(name, Binding(value, line, is_constexpr))

    def bind_parameter(self, name: str, value: Any) -> None:
        """Bind a parameter to its argument."""
        self.bind(name, value, self.source.definition)
        self.passed[name] = self.scope.names[name]

    def note_rebound(self, name: str, binding: Binding, where: str) -> None:
        """Warn if control flow of the run re-binds a parameter that is a constant here.

        tkdebug compiles it, since the same source is right for other arguments; Triton refuses it.

        Args:
            name: the name of the variable.
            binding: its binding before.
            where: the statement that re-binds it.
        """
        if self.passed.get(name) is not binding or not has_number(binding.value):
            return
        # Warn once: loops and branches around this statement compile it again.
        del self.passed[name]
        why = self._why_constant(name, binding)
        self.emit.warn(
            f"Triton refuses to re-bind `{name}` in a run-time {where}: {why}; tkdebug runs it. "
            f"For Triton, re-bind a copy, as of `own_{name} = {name}` before it"
        )

    def _why_constant(self, name: str, binding: Binding) -> str:
        """The reason why a parameter is a constant."""
        if any(p.is_constexpr for p in self.program.chain[-1][0].params if p.name == name):
            return "it is a tl.constexpr"
        if self.is_kernel and binding.value == 1:
            return (
                "it is 1 in this launch, and Triton makes constants of arguments that equal 1, "
                "not of others"
            )
        return f"this call passes {describe(binding.value)}"

    def number_to_tensor(self, value: Any) -> Any:
        """A constant number as the tensor that an assignment makes of it; others unchanged."""
        return conversion.to_tensor(self.emit, value) if is_number(value) else value

    def decay(self, value: Any) -> Any:
        """`value` with every number in it made a run-time value."""
        return map_numbers(value, self.number_to_tensor)

    def number_to_tensor_in(self, block: Block) -> Callable[[Any], Any]:
        """`number_to_tensor` that emits at the end of `block`."""

        def convert(value: Any) -> Any:
            with self.builder.inside(block):
                return self.number_to_tensor(value)

        return convert


def name_values(name: str, value: Any) -> None:
    """Give the IR values inside `value` the variable's name; a first name is kept."""
    match value:
        case tensor():
            if value.value.name is None:
                value.value.name = name
        case tensor_descriptor():
            if value.value.name is None:
                value.value.name = name
            name_values(f"{name}.shape", value.shape)
            name_values(f"{name}.stride", value.strides)
        case block_pointer():
            name_values(f"{name}.base", value.base)
            name_values(f"{name}.shape", value.shape)
            name_values(f"{name}.stride", value.strides)
            name_values(f"{name}.offset", value.offsets)
        case tuple():
            for index, item in enumerate(value):
                name_values(f"{name}.{index}", item)


def discard(block: Block) -> None:
    """Drop a detached block's operations, so that outer values forget their uses in it."""
    for op in block.operations:
        for inner in op.walk():
            inner.operands = ()
    block.operations.clear()


def _unsupported(node: ast.AST) -> str:
    name = type(node).__name__
    return ADVICE.get(type(node), f"Python syntax `{name}` is not part of the kernel language")
