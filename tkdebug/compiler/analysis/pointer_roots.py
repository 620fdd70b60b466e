"""Which argument of a function a pointer or descriptor was computed from."""

from __future__ import annotations

from tkdebug.compiler.ir.core import Operation, Value

_POINTER_VIEWS = frozenset(
    (
        "tt.make_tensor_descriptor",
        "tt.addptr",
        "tt.splat",
        "tt.broadcast",
        "tt.expand_dims",
        "tt.reshape",
        "tt.trans",
        "tt.hint",
        "ttg.convert_layout",
    )
)


def pointer_root(value: Value) -> Value | None:
    """The argument of the function that a pointer was computed from, if that is plain to see."""
    while True:
        op = value.defining_op
        if op is not None and op.name in _POINTER_VIEWS:
            value = op.operands[0]
            continue
        if op is not None:
            return None
        parent = value.owner.parent_op if not isinstance(value.owner, Operation) else None
        if parent is None or parent.name == "tt.func":
            return value
        if parent.name != "scf.for" or value.index == 0:
            return None
        yielded = parent.regions[0].block.terminator.operands[value.index - 1]
        if not _steps(yielded, value):
            return None
        value = parent.operands[2 + value.index]


def _steps(value: Value, start: Value) -> bool:
    """Whether `value` is `start` moved by some offsets."""
    while value is not start:
        op = value.defining_op
        if op is None or op.name not in ("tt.addptr", "tt.hint", "ttg.convert_layout"):
            return False
        value = op.operands[0]
    return True
