"""Entry of the front end: a kernel and its arguments in, Tile IR out."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.describe import describe
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.frontend.arguments import (
    ArgSpec,
    Constant,
    JitCallable,
    bind_argument,
    flatten_names,
    nan_padded_names,
)
from tkdebug.compiler.frontend.arithmetic import OPERATORS
from tkdebug.compiler.frontend.attributes import visit_attribute
from tkdebug.compiler.frontend.branches import visit_conditional, visit_if
from tkdebug.compiler.frontend.calls import visit_call
from tkdebug.compiler.frontend.expressions import EXPRESSIONS
from tkdebug.compiler.frontend.inline import inline
from tkdebug.compiler.frontend.loops import visit_for, visit_while
from tkdebug.compiler.frontend.scope import UsedGlobals
from tkdebug.compiler.frontend.source import KernelSource
from tkdebug.compiler.frontend.statements import (
    STATEMENTS,
    visit_annotated,
    visit_assign,
    visit_augmented,
)
from tkdebug.compiler.frontend.variables import VariableRecorder
from tkdebug.compiler.frontend.visitor import (
    END_OF_FUNCTION,
    ExpressionHandler,
    Flow,
    Program,
    StatementHandler,
    Visitor,
)
from tkdebug.compiler.ir import Block, Module, Region, SourceLocation
from tkdebug.compiler.ops.descriptors import NAN_PADDED
from tkdebug.compiler.ops.emitter import CompileOptions, Emitter
from tkdebug.compiler.ops.spec import SemanticError
from tkdebug.compiler.tensor import is_jit_function

if TYPE_CHECKING:
    from tkdebug.watches.places import Watch

_EXPRESSIONS: dict[type[ast.expr], ExpressionHandler] = {
    **EXPRESSIONS,
    **OPERATORS,
    ast.Attribute: visit_attribute,
    ast.Call: visit_call,
    ast.IfExp: visit_conditional,
}
_STATEMENTS: dict[type[ast.stmt], StatementHandler] = {
    **STATEMENTS,
    ast.Assign: visit_assign,
    ast.AnnAssign: visit_annotated,
    ast.AugAssign: visit_augmented,
    ast.If: visit_if,
    ast.For: visit_for,
    ast.While: visit_while,
}


class TileModule(Module):
    """A module fresh from the front end.

    Attributes:
        used_globals: module-level names the kernel read; when one has `changed`, compile again.
        breakpoints: where the kernel calls `breakpoint()`; only a debugger stops there.
        unwatched: each requested watch that is impossible, with a line that says where and why.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.used_globals: UsedGlobals = {}
        self.breakpoints: tuple[SourceLocation, ...] = ()
        self.unwatched: tuple[tuple[Watch, str], ...] = ()


def compile_to_tile_ir(
    kernel: JitCallable,
    arguments: Mapping[str, ArgSpec],
    options: CompileOptions,
    recorder: VariableRecorder | None = None,
    watches: Sequence[Watch] = (),
    sources: Mapping[Any, KernelSource] | None = None,
) -> TileModule:
    """Compile a kernel for given argument types and constants.

    Args:
        kernel: the jit function.
        arguments: a type, a `Constant` or a tuple of such for each parameter; one that is absent
            takes the parameter's default as a constant.
        options: the launch's options that the language can see.
        recorder: notes the variables' values at each line, for a debugger.
        watches: values that are to be shown.
        sources: other sources of some Python functions.

    Raises:
        CompileError: the kernel is wrong; the message says where, why and what to write instead.
    """
    sources = sources or {}
    source = sources.get(kernel.fn) or kernel.kernel_source
    module = TileModule(source.name)
    emit = Emitter(module, options)
    program = Program(
        emit,
        source.name,
        _EXPRESSIONS,
        _STATEMENTS,
        module.used_globals,
        recorder=recorder,
        sources=sources,
    )
    if watches:
        # Imported only here: few compiles have watches.
        from tkdebug.compiler.frontend.watching import Watching

        program.watching = Watching(watches)
    program.chain.append((kernel, None))

    def call_function(function: Any, values: Sequence[Any]) -> Any:
        if not is_jit_function(function):
            raise SemanticError(f"expected a @triton.jit function, got {describe(function)}")
        return inline(program, emit.builder.location, function, values, {})

    emit.call_function = call_function
    emit.warning_registry = kernel.fn.__globals__.setdefault("__warningregistry__", {})
    visitor = Visitor(program, kernel.fn, source, caller=None, is_kernel=True)
    definition = source.definition
    block = Block()
    names: list[str] = []
    nan_padded: list[str] = []
    with visitor.visiting(definition):
        for parameter in kernel.params:
            spec = arguments.get(parameter.name)
            if spec is None:
                if not parameter.has_default:
                    raise visitor.error(definition, f"no argument given for `{parameter.name}`")
                spec = Constant(parameter.default)
            names += flatten_names(parameter.name, spec)
            nan_padded += nan_padded_names(parameter.name, spec)
            value = bind_argument(parameter.name, spec, block)
            visitor.bind_parameter(parameter.name, value)
        if recorder is not None:
            recorder.enter(visitor)
        with emit.builder.inside(block):
            outcome = visitor.run(definition.body, END_OF_FUNCTION)
            assert outcome.flow is Flow.RETURNS, f"{source.name} ends in {outcome.flow}"
            emit.op(tt.Return)
        function = emit.op(
            tt.Func,
            result_types=(),
            regions=[Region([block])],
            sym_name=source.name,
            arg_names=tuple(names),
        )
        if nan_padded:
            function.attributes[NAN_PADDED] = tuple(nan_padded)
    if program.watching is not None:
        module.unwatched = program.watching.finish(function)
    # Break the reference cycle with the emitter, so that both are freed without garbage collection.
    emit.call_function = None
    module.breakpoints = tuple(dict.fromkeys(program.breakpoints))
    return module
