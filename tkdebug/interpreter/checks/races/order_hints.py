"""What to change where programs race although they synchronise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Operation
from tkdebug.interpreter.checks.races.happens_before import Event, HappensBefore, Meaning
from tkdebug.interpreter.checks.races.race_hints import is_atomic

_UNORDERED = (
    "neither program waits until the other is done with it: let one release (an atomic behind its "
    "access) and the other acquire (an atomic whose result it tests), or make it two launches"
)


@dataclass(frozen=True, slots=True)
class Side:
    """One of two accesses that race: whose, in which segment, by which op."""

    program: int
    segment: int
    op: Operation


def order_hint(
    order: HappensBefore, meanings: Mapping[Operation, Meaning], one: Side, other: Side
) -> str | None:
    """What to change where two accesses race; None where that is none of the order's."""
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
    """Why what the programs do does not put `earlier` before `later`; None if that is unknown."""
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
    """Where a program waits for a store only after it has loaded what is stored."""
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
    """The last event of one program that precedes one of another at the same place."""
    for late in reversed(asked):
        for early in events:
            follows = early.is_written and early.time < late.time
            if follows and set(early.places) & set(late.places):
                return early, late
    return None


def _weakness(meanings: Mapping[Operation, Meaning], early: Event, late: Event) -> str | None:
    """Why the first of two events that meet does not order what is around them."""
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
