"""Which ops of a kernel may give undefined elements."""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.compiler.analysis import offset_arithmetic
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.shadow_values import is_in_kernel
from tkdebug.interpreter.memory.checked_access import mask_of

WATCHED = names_of(arith.IntegerDivision, arith.Shift, tt.Load)


def is_watched(op: Operation) -> bool:
    """Whether `op` may give undefined elements."""
    if op.name not in WATCHED or (tt.Load.matches(op) and not _lacks_other(op)):
        return False
    return is_in_kernel(op)


def _lacks_other(op: Operation) -> bool:
    """Whether a load has a mask and nothing that stands where it is false.

    Blocks without padding are left alone: kernels that pad nothing count on zeros, and get them.
    """
    return (
        mask_of(op) is not None and len(op.operands) == 2 and "boundary_check" not in op.attributes
    )


@dataclass(frozen=True, slots=True)
class Sources:
    """The ops of a module that may give what is followed.

    Attributes:
        ops: divisions, remainders and shifts.
        loads: loads that have a mask and nothing that stands where it is false.
        offsets: what offsets of pointers are made by.
    """

    ops: frozenset[Operation]
    loads: frozenset[Operation]
    offsets: offset_arithmetic.OffsetArithmetic

    @classmethod
    def of(cls, module: Module) -> Sources:
        """Those of a module, found when they are first asked for."""
        found = module.derived.get(cls)
        if found is None:
            watched = [op for op in module.walk() if is_watched(op)]
            loads = frozenset(op for op in watched if tt.Load.matches(op))
            offsets = offset_arithmetic.offset_arithmetic(module)
            found = module.derived[cls] = cls(frozenset(watched) - loads, loads, offsets)
        assert isinstance(found, cls)
        return found
