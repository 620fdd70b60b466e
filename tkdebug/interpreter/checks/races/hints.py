"""Hints for races: what to change in the source, also where programs synchronise and still race."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tkdebug.compiler.analysis.data_flow import source_of, traced
from tkdebug.compiler.dialects import arith, scf, tt
from tkdebug.compiler.dialects.interfaces import Effects
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.ir import Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.interpreter.checks.races.happens_before import Event, HappensBefore, Meaning

APART = "programs of a launch run in any order and at once: make it two launches"
POLLED = "a loop may see the old value forever: wait with an atomic, or with volatile=True"
_ALL_STORE = "give every program elements of its own, or combine them with atomics"
_BOTH_ATOMIC = "use an atomic in both places, or make it two launches"

# They change a number's type or place, and not what it is.
_CARRIERS = names_of(arith.ExtF, arith.TruncF, arith.ExtSI, arith.TruncI, tt.Rearrangement)
# How many ops two addresses, or a store's value, are followed back.
_MOST_STEPS = 200


def race_hint(op: Operation, other: Operation) -> str:
    """Return the fix for a race that is not due to how programs synchronise."""
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
    """Return the fix for a load that races a store: one atomic for both, if there is one."""
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
    """Return the atomic that combines `target` with other operands to `value`, or None."""
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
    """Whether `value` is computed from `target`, within a limited number of steps."""
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
    """Return the atomic that a loop that began with `target` amounts to, or None."""
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
    """Whether two values are computed in the same way, from the same values."""
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


_UNORDERED = (
    "neither program waits until the other is done with it: let one release (an atomic behind its "
    "access) and the other acquire (an atomic whose result it tests), or make it two launches"
)


@dataclass(frozen=True, slots=True)
class Side:
    """One of two accesses that race: its program, segment and op."""

    program: int
    segment: int
    op: Operation


def order_hint(
    order: HappensBefore, meanings: Mapping[Operation, Meaning], one: Side, other: Side
) -> str | None:
    """Return what to change where two accesses race; None if their order is not the cause."""
    if not order.events(one.program) or not order.events(other.program):
        return None
    missing = _missing_order(order, meanings, one, other)
    missing = missing or _missing_order(order, meanings, other, one)
    if missing is None and not (is_atomic(one.op) or is_atomic(other.op)):
        return _UNORDERED
    return missing


def _missing_order(
    order: HappensBefore, meanings: Mapping[Operation, Meaning], earlier: Side, later: Side
) -> str | None:
    """Return why `earlier` does not happen before `later`; None if that is unknown."""
    events = [event for event in order.events(earlier.program) if event.segment >= earlier.segment]
    asked = [event for event in order.events(later.program) if event.segment < later.segment]
    met = _meeting(events, asked)
    weakness = None if met is None else _weakness(meanings, *met)
    if weakness is not None:
        return weakness
    known = order.known_segments(later.program, later.segment, earlier.program)
    before = [event for event in order.events(earlier.program) if event.segment < known]
    met = _meeting([event for event in reversed(before) if meanings[event.op].releases], asked)
    if met is not None:
        return (
            f"line {_line(earlier.op)} comes after line {_line(met[0].op)}, from where other "
            "programs go on: move it before that, or let them wait for it"
        )
    if tt.Load.matches(earlier.op) or tt.Load.matches(later.op):
        load, store = (earlier, later) if tt.Load.matches(earlier.op) else (later, earlier)
        return _too_early(order, meanings, load, store)
    return None


def _too_early(
    order: HappensBefore, meanings: Mapping[Operation, Meaning], load: Side, store: Side
) -> str | None:
    """Return the hint for a program that waits for a store only after it has loaded its value."""
    stored = [event for event in order.events(store.program) if event.segment >= store.segment]
    waits = [event for event in order.events(load.program) if meanings[event.op].observes]
    met = _meeting(stored, [event for event in waits if event.segment >= load.segment])
    if met is None or met[1].op is load.op:
        return None
    if any(set(met[1].places) & set(e.places) for e in waits if e.segment < load.segment):
        return None
    return (
        f"line {_line(load.op)} comes before its program has waited at line {_line(met[1].op)}: "
        "move it behind that"
    )


def _line(op: Operation) -> int:
    return op.location.primary.line


def _meeting(events: list[Event], asked: list[Event]) -> tuple[Event, Event] | None:
    """Return the last pair of events at one place, the earlier one a write, or None."""
    for late in reversed(asked):
        for early in events:
            follows = early.is_written and early.time < late.time
            if follows and set(early.places) & set(late.places):
                return early, late
    return None


def _weakness(meanings: Mapping[Operation, Meaning], early: Event, late: Event) -> str | None:
    """Return why two events that meet do not order the accesses around them; None if they do."""
    for event, is_strong, needed in (
        (early, meanings[early.op].releases, "release"),
        (late, _acquires(meanings[late.op]), "acquire"),
    ):
        atomic = tt.Atomic.cast(event.op)
        if is_strong or atomic is None:
            continue
        line = _line(event.op)
        if atomic.scope == "cta":
            return (
                f'the atomic at line {line} has scope="cta" and orders nothing between programs: '
                "leave scope out"
            )
        if atomic.sem not in (needed, "acq_rel"):
            return (
                f'the atomic at line {line} has sem="{atomic.sem}", which does not {needed}: '
                'leave sem out, or make it "acq_rel"'
            )
        return (
            f"nothing depends on what the atomic at line {line} gave: programs arrive in any "
            "order, so test its result"
        )
    return None


def _acquires(meaning: Meaning) -> bool:
    return meaning.acquires and meaning.observes
