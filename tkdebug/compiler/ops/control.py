"""Functions and structured control flow. The interpreter's executor runs their regions."""

from __future__ import annotations

from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError


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
