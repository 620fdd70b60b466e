"""Functions and structured control flow. The interpreter's executor runs their regions."""

from __future__ import annotations

from tkdebug.compiler.dialects import scf, tt
from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, Effects, OpSpec, SemanticError, no_results
from tkdebug.errors import IRError


def _verify_for(op: Operation) -> None:
    inits = op.operands[3:]
    arguments = op.regions[0].block.arguments
    if len(op.operands) < 3 or len(arguments) != len(inits) + 1 or len(op.results) != len(inits):
        raise IRError("scf.for: operands, region arguments and results do not fit each other")
    for init, argument, result in zip(inits, arguments[1:], op.results, strict=True):
        if not init.type == argument.type == result.type:
            raise IRError(f"scf.for: carried value changes type: {init.type}, {argument.type}")


def _verify_if(op: Operation) -> None:
    if len(op.regions) != 2:
        raise IRError("scf.if: expected a then and an else region")
    for region in op.regions:
        terminator = region.block.terminator
        if [v.type for v in terminator.operands] != [v.type for v in op.results]:
            raise IRError("scf.if: a branch yields other types than the results")


OPS: tuple[OpSpec, ...] = (
    OpSpec(
        tt.Func,
        no_results,
        effects=Effects.OTHER,
    ),
    OpSpec(
        tt.Return,
        no_results,
        effects=Effects.TERMINATOR,
    ),
    OpSpec(
        scf.For,
        lambda operands, attributes: tuple(operands[3:]),
        _verify_for,
        effects=Effects.OTHER,
    ),
    OpSpec(
        scf.While,
        None,
        effects=Effects.OTHER,
    ),
    OpSpec(
        scf.If,
        None,
        _verify_if,
        effects=Effects.OTHER,
    ),
    OpSpec(
        scf.Condition,
        no_results,
        effects=Effects.TERMINATOR,
    ),
    OpSpec(
        scf.Yield,
        no_results,
        effects=Effects.TERMINATOR,
    ),
)


def _emit_range(
    emit: Emitter,
    arg1: object,
    arg2: object = None,
    step: object = None,
    num_stages: object = None,
    loop_unroll_factor: object = None,
    disallow_acc_multi_buffer: object = False,
    flatten: object = False,
    warp_specialize: object = False,
    disable_licm: object = False,
) -> None:
    """Like Python's range, with hints on how to compile the loop.

    Args:
        emit: where to emit.
        arg1: where it starts, or where it ends if nothing else is given.
        arg2: where it ends.
        step: 1 by default.
        num_stages: native: iterations in flight of what the loop loads.
        loop_unroll_factor: iterations that become one.
        disallow_acc_multi_buffer: without effect here.
        flatten: without effect here; nested loops stay nested.
        warp_specialize: without effect here.
        disable_licm: what does not change from one iteration to the next stays in the loop.
    """
    raise SemanticError("tl.range only has a meaning in `for i in tl.range(...)`")


def _emit_static_range(
    emit: Emitter, arg1: object, arg2: object = None, step: object = None
) -> None:
    """Like Python's range over constants; the loop is unrolled and its variable a constant."""
    raise SemanticError("tl.static_range only has a meaning in `for i in tl.static_range(...)`")


def _emit_condition(emit: Emitter, arg1: object, disable_licm: object = False) -> object:
    """The condition of a `while`, with a hint on how to compile the loop.

    Args:
        emit: where to emit.
        arg1: the condition.
        disable_licm: what does not change from one iteration to the next stays in the loop.
    """
    return arg1


LANGUAGE: dict[str, Builtin] = {
    "range": Builtin("range", _emit_range),
    "static_range": Builtin("static_range", _emit_static_range),
    "condition": Builtin("condition", _emit_condition),
}
