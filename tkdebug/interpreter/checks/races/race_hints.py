"""What to change in the source where two accesses race."""

from __future__ import annotations

from tkdebug.compiler.analysis.data_flow import source_of, traced
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.op import Effects
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import names_of

APART = "programs of a launch run in any order and at once: make it two launches"
POLLED = "a loop may see the old value forever: wait with an atomic, or with volatile=True"
_ALL_STORE = "give every program elements of its own, or combine them with atomics"
_BOTH_ATOMIC = "use an atomic in both places, or make it two launches"

# They change a number's type or place, and not what it is.
_CARRIERS = names_of(arith.ExtF, arith.TruncF, arith.ExtSI, arith.TruncI, tt.Rearrangement)
# How many ops two addresses, or a store's value, are followed back.
_MOST_STEPS = 200


def race_hint(op: Operation, other: Operation) -> str:
    """The fix where nothing that programs do to synchronise is to be mended."""
    if is_atomic(op) or is_atomic(other):
        return _BOTH_ATOMIC
    if not _loads(op) and not _loads(other):
        return _ALL_STORE
    load, store = (op, other) if _loads(op) else (other, op)
    return _load_and_store_hint(load, store)


def is_atomic(op: Operation) -> bool:
    """Whether an access to memory is atomic."""
    return tt.Atomic.matches(op) or tt.DescriptorReduce.matches(op)


def _loads(op: Operation) -> bool:
    return Effects.READ in OPS[op.name].effects


def _load_and_store_hint(load: Operation, store: Operation) -> str:
    """The fix where one program loads what another stores: one atomic, where it does both."""
    if not (tt.Load.matches(load) and tt.Store.matches(store)):
        return APART
    read, written = tt.Load(load), tt.Store(store)
    name = _combination(written.value, read.result, _MOST_STEPS)
    if name is None or not _has_atomic(name, written.value.type):
        return APART
    if not _same(read.pointer, written.pointer, _MOST_STEPS):
        return APART
    return (
        f"programs come between each other's load and store: use tl.atomic_{name} in place of both"
    )


def _combination(value: Value, target: Value, steps: int) -> str | None:
    """The atomic that gives `value` of `target` and other operands; None if none does."""
    op = value.defining_op
    if steps == 0 or op is None or value is target:
        return None
    source = source_of(value, _CARRIERS)
    if source is not None:
        return _combination(source, target, steps - 1)
    if scf.For.matches(op):
        return _combination_of_loop(scf.For(op), op.results.index(value), target, steps)
    binary = arith.Binary.cast(op)
    name = "" if binary is None else binary.atomic
    if binary is None or not name:
        return None
    for operand, other in binary.both_orders if binary.commutes else [(binary.lhs, binary.rhs)]:
        source = traced(operand, _CARRIERS)
        if source is target or _combination(source, target, steps - 1) == name:
            return None if _depends(other, target) else name
    return None


def _depends(value: Value, target: Value) -> bool:
    """Whether `value` is made of `target`, as far as it is followed."""
    pending, seen = [value], {value}
    while pending and len(seen) < _MOST_STEPS:
        value = pending.pop()
        if value is target:
            return True
        operands = value.defining_op.operands if value.defining_op is not None else ()
        pending += [operand for operand in operands if operand not in seen]
        seen.update(operands)
    return False


def _combination_of_loop(loop: scf.For, place: int, target: Value, steps: int) -> str | None:
    """Of a loop's result: what a turn combines, begun with `target` or what is made of it alike."""
    turn = _combination(loop.yielded[place], loop.iter_args[place], steps - 1)
    begun = traced(loop.inits[place], _CARRIERS)
    if begun is target or _combination(begun, target, steps - 1) == turn:
        return turn
    return None


def _has_atomic(name: str, type_: ir.Type) -> bool:
    element = ir.element_of(type_)
    if not isinstance(element, ir.ScalarType):
        return False
    is_half = element.bits == 16 and not element.is_integer
    return element.bits >= 32 or (is_half and name == "add")


def _same(a: Value, b: Value, steps: int) -> bool:
    """Whether two values are made alike, of the same values."""
    if a is b:
        return True
    left, right = a.defining_op, b.defining_op
    if steps == 0 or left is None or right is None or left.name != right.name:
        return False
    if left.regions or tt.Load.matches(left) or left.attributes != right.attributes:
        return False
    return a.type == b.type and all(
        _same(x, y, steps - 1) for x, y in zip(left.operands, right.operands, strict=True)
    )
