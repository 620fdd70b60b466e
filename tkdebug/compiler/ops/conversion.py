"""Constants as run-time values, one-element tiles as scalars: what upstream keeps in `tl.core`."""

from __future__ import annotations

from tkdebug.compiler.ops import operators
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, OpSpec, SemanticError
from tkdebug.compiler.tensor import tensor

OPS: tuple[OpSpec, ...] = ()


def _emit_to_tensor(emit: Emitter, value: object) -> tensor:
    """A Python number as a scalar: int1, int32 or wider where it must be, fp32."""
    return operators.to_tensor(emit, value)


def _emit_item(emit: Emitter, input: object) -> tensor:
    """The only element of a one-element tile, as a scalar."""
    value = operators.to_tensor(emit, input)
    if not value.type.is_block():
        return value
    if value.numel != 1:
        raise SemanticError(
            f"item: the tile must have one element, got shape {list(value.shape)}; reduce it first"
        )
    return operators.unsplat(emit, value)


LANGUAGE: dict[str, Builtin] = {"item": Builtin("item", _emit_item, member=True)}
BUILTINS = {"to_tensor": Builtin("core.to_tensor", _emit_to_tensor)}
