"""What to change in the source where two accesses race."""

from __future__ import annotations

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ops.spec import Effects
from tkdebug.compiler.ops.table import OPS

APART = "programs of a launch run in any order and at once: make it two launches"
POLLED = "a loop may see the old value for ever: wait with an atomic, or with volatile=True"
_ALL_STORE = "give every program elements of its own, or combine them with atomics"
_BOTH_ATOMIC = "use an atomic in both places, or make it two launches"

_ATOMICS = {
    "arith.addf": "add",
    "arith.addi": "add",
    "arith.subf": "add",
    "arith.subi": "add",
    "arith.andi": "and",
    "arith.ori": "or",
    "arith.xori": "xor",
    **{f"arith.{name}": "max" for name in ("maxsi", "maxui", "maxnumf", "maximumf")},
    **{f"arith.{name}": "min" for name in ("minsi", "minui", "minnumf", "minimumf")},
}
_SUBTRACTIONS = ("arith.subf", "arith.subi")
# They change a number's type or place, and not what it is.
_CARRIERS = frozenset(
    "arith.extf arith.truncf arith.extsi arith.trunci tt.splat tt.unsplat tt.expand_dims "
    "tt.broadcast tt.reshape tt.trans".split()
)
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
    if (load.name, store.name) != ("tt.load", "tt.store"):
        return APART
    name = _combination(store.operands[1], load.result, _MOST_STEPS)
    if name is None or not _has_atomic(name, store):
        return APART
    if not _same(load.operands[0], store.operands[0], _MOST_STEPS):
        return APART
    return (
        f"programs come between each other's load and store: use tl.atomic_{name} in place of both"
    )


def _combination(value: Value, target: Value, steps: int) -> str | None:
    """The atomic that gives `value` of `target` and other operands; None if none does."""
    op = value.defining_op
    if steps == 0 or op is None or value is target:
        return None
    if op.name in _CARRIERS:
        return _combination(op.operands[0], target, steps - 1)
    if op.name == "scf.for":
        return _combination_of_loop(op, op.results.index(value), target, steps)
    name = _ATOMICS.get(op.name)
    if name is None:
        return None
    left, right = op.operands
    pairs = [(left, right)] if op.name in _SUBTRACTIONS else [(left, right), (right, left)]
    for operand, other in pairs:
        source = _uncarried(operand)
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


def _combination_of_loop(op: Operation, place: int, target: Value, steps: int) -> str | None:
    """Of a loop's result: what a turn combines, begun with `target` or what is made of it alike."""
    block = op.regions[0].block
    turn = _combination(block.terminator.operands[place], block.arguments[place + 1], steps - 1)
    begun = _uncarried(op.operands[3 + place])
    if begun is target or _combination(begun, target, steps - 1) == turn:
        return turn
    return None


def _uncarried(value: Value) -> Value:
    while value.defining_op is not None and value.defining_op.name in _CARRIERS:
        value = value.defining_op.operands[0]
    return value


def _has_atomic(name: str, store: Operation) -> bool:
    element = ir.element_of(store.operands[1].type)
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
    if left.regions or left.name == "tt.load" or left.attributes != right.attributes:
        return False
    return a.type == b.type and all(
        _same(x, y, steps - 1) for x, y in zip(left.operands, right.operands, strict=True)
    )
