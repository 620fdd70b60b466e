"""Compile-time values as run-time ones: `tl.core.to_tensor`."""

from __future__ import annotations

from tkdebug.compiler.ops import operators
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, OpSpec
from tkdebug.compiler.tensor import tensor

OPS: tuple[OpSpec, ...] = ()


def _emit_to_tensor(emit: Emitter, value: object) -> tensor:
    """A Python number as a scalar: int1, int32 or wider where it must be, fp32."""
    return operators.to_tensor(emit, value)


LANGUAGE: dict[str, Builtin] = {}
BUILTINS = {"to_tensor": Builtin("core.to_tensor", _emit_to_tensor)}
