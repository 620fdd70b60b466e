"""Where pointers come from, and whether two may point into one tensor."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tkdebug.compiler.analysis.memory_tiles import pointer_base
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import PointerAccess, stored
from tkdebug.compiler.ir.core import Module, Operation, Value
from tkdebug.compiler.ir.types import PointerType, TensorType, element_of


class Origin(Enum):
    """What is not a parameter.

    Attributes:
        LOADED: memory, or numbers that no pointer of the kernel was turned into.
        UNKNOWN: anything.
    """

    LOADED = "loaded"
    UNKNOWN = "unknown"


_INTEGER_OPS: Final = ("arith.", tt.Splat.name, tt.Broadcast.name, tt.ExpandDims.name, tt.Hint.name)


def pointer_origin(pointer: Value) -> Value | Origin:
    """The parameter of the function that a pointer is an offset from, or what else it is."""
    base = pointer_base(pointer)
    maker = base.defining_op
    if maker is None:
        block = base.owner
        assert not isinstance(block, Operation)
        parent = block.parent_op
        return base if parent is not None and tt.Func.matches(parent) else Origin.UNKNOWN
    if tt.Bitcast.matches(maker):
        return pointer_origin(tt.Bitcast(maker).source)
    if tt.Load.matches(maker):
        return Origin.LOADED
    if tt.IntToPtr.matches(maker) and _is_number(tt.IntToPtr(maker).source):
        return Origin.LOADED
    return Origin.UNKNOWN


def loaded_root(access: Operation) -> Value | None:
    """The one pointer that all those of an access are offsets from.

    Returns:
        None where that is a parameter, where there is none, and of all other ops.
    """
    if not PointerAccess.matches(access):
        return None
    root = pointer_base(PointerAccess(access).pointer)
    return None if root.defining_op is None or isinstance(root.type, TensorType) else root


def hands_out_addresses(module: Module) -> bool:
    """Whether a kernel may store addresses: it makes numbers of pointers, or stores pointers."""
    return any(
        tt.PtrToInt.matches(op)
        or (tt.Store.matches(op) and isinstance(element_of(stored(op).type), PointerType))
        for op in module.walk()
    )


def may_meet(a: Value | Origin, b: Value | Origin) -> bool:
    """Whether pointers of two origins may point into one tensor.

    Two parameters are taken to be different tensors, and so are a parameter and what is loaded.
    """
    return Origin.UNKNOWN in (a, b) or a is b


def _is_number(value: Value) -> bool:
    """Whether an integer was computed of loaded ones and of arguments, and of no pointer."""
    seen, pending = {value}, [value]
    while pending:
        current = pending.pop()
        maker = current.defining_op
        if isinstance(element_of(current.type), PointerType):
            return False
        if maker is None:
            block = current.owner
            assert not isinstance(block, Operation)
            if block.parent_op is None or not tt.Func.matches(block.parent_op):
                return False
        elif maker.name.startswith(_INTEGER_OPS):
            pending += [operand for operand in maker.operands if operand not in seen]
            seen.update(maker.operands)
        elif maker.name not in (tt.Load.name, tt.GetProgramId.name, tt.GetNumPrograms.name):
            return False
    return True
