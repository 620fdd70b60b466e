"""Random programs: the race check agrees with whole vector clocks on the trace of what was run."""

from dataclasses import dataclass

import pytest
import torch
from differential import launch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tkdebug
import tkdebug.language as tl
from tkdebug.interpreter.observers import Observer
from tkdebug.knobs import scope

READ, WRITE, ADD, RELEASE, ACQUIRE, RELAXED_SET, RELAXED_LOOK, BOTH, NEAR, LOCK, UNLOCK = range(11)
STEPS = 8  # and two for a lock
PLACES = 3


@tkdebug.jit
def scripted(table, a, b, c, flags, locks, sink, STEPS: tl.constexpr, WAITS: tl.constexpr):
    pid = tl.program_id(0)
    for step in range(STEPS):
        code = tl.load(table + (pid * STEPS + step) * 2)
        at = tl.load(table + (pid * STEPS + step) * 2 + 1)
        element = tl.where(at == 0, a, tl.where(at == 1, b, c))
        token = pid * STEPS + step + 1
        if code == 0:
            tl.store(sink + pid, tl.load(element))
        elif code == 1:
            tl.store(element, token)
        elif code == 2:
            tl.atomic_add(element, 1, sem="relaxed")
        elif code == 3:
            tl.atomic_xchg(flags + at, token, sem="release")
        elif code == 4:
            tl.store(sink + pid, tl.atomic_add(flags + at, 0, sem="acquire"))
        elif code == 5:
            tl.atomic_xchg(flags + at, token, sem="relaxed")
        elif code == 6:
            tl.store(sink + pid, tl.atomic_add(flags + at, 0, sem="relaxed"))
        elif code == 7:
            tl.store(sink + pid, tl.atomic_add(flags + at, 1))
        elif code == 8:
            tl.store(sink + pid, tl.atomic_add(flags + at, 1, scope="cta"))
        elif code == 9:
            if WAITS:
                while tl.atomic_cas(locks + at, 0, 1) == 1:
                    pass
        elif code == 10:
            if WAITS:
                tl.atomic_xchg(locks + at, 0)


@dataclass
class Access:
    program: int
    time: int
    known: dict
    place: tuple
    kind: str


class Oracle(Observer):
    """Keeps the clock of every access, and compares each with each."""

    follows_accesses = True

    def __init__(self, programs):
        self.clocks = [dict() for _ in range(programs)]
        self.seen = [dict() for _ in range(programs)]
        self.fenced = [None] * programs
        self.released = {}
        self.accesses = []

    def read(self, run, access):
        self._note(access, "load")

    def writing(self, run, access):
        self._note(access, "store")

    def atomic(self, run, access):
        memory = access.buffer.flat(torch.int32)
        touched = access.touch()
        for program, place in zip(touched.programs.tolist(), touched.places.tolist(), strict=True):
            self._add(access, program, place, "atomic")
            self._synchronise(access.op, program, (access.buffer.name, place), int(memory[place]))

    def _note(self, access, kind):
        touched = access.touch()
        for program, place in zip(touched.programs.tolist(), touched.places.tolist(), strict=True):
            self._add(access, program, place, kind)

    def _add(self, access, program, place, kind):
        clock = self.clocks[program]
        clock[program] = clock.get(program, 0) + 1
        where = (access.buffer.name, place)
        self.accesses.append(Access(program, clock[program], dict(clock), where, kind))

    def _synchronise(self, op, program, place, old):
        attributes = op.attributes
        if attributes.get("scope") == "cta":
            return
        sem, clock = attributes.get("sem", "acq_rel"), self.clocks[program]
        if op.result.uses:
            join(self.seen[program], self.released.get(place, {}))
        if sem in ("acquire", "acq_rel"):
            join(clock, self.seen[program])
        # Exchanges bring a token that is not there, except of locks; sums of 0 bring nothing.
        if op.name == "tt.atomic_cas":
            changes = old == 0
        elif attributes["kind"] == "add":
            changes = not self._adds_nothing(op)
        else:
            changes = place[0] != "locks" or old != 0
        if not changes:
            return
        if sem in ("release", "acq_rel"):
            self.fenced[program] = dict(clock)
        if self.fenced[program] is not None:
            join(self.released.setdefault(place, {}), self.fenced[program])

    def _adds_nothing(self, op):
        constant = op.operands[1].defining_op
        return constant.attributes["value"] == 0

    def racy(self):
        found = set()
        for number, one in enumerate(self.accesses):
            for other in self.accesses[:number]:
                if one.place != other.place or one.program == other.program:
                    continue
                kinds = {one.kind, other.kind}
                if "store" not in kinds and kinds != {"load", "atomic"}:
                    continue
                if one.known.get(other.program, 0) < other.time:
                    found.add(one.place[0])
        return found


def join(clock, other):
    for program, time in other.items():
        clock[program] = max(clock.get(program, 0), time)


@st.composite
def scripts(draw, waits):
    """For each program its steps: a code and a place each.

    Of each place one program tells another through a flag, by ops and in an order that may do or
    not; other steps come between. Locks are let go of.
    """
    programs = draw(st.integers(2, 3))
    early, late = [[] for _ in range(programs)], [[] for _ in range(programs)]
    for place in range(PLACES):
        teller = draw(st.integers(0, programs - 1))
        listener = (teller + draw(st.integers(1, programs - 1))) % programs
        flag = draw(st.sampled_from((place, 0)))
        tell = draw(st.sampled_from((RELEASE, RELAXED_SET, BOTH, NEAR, ACQUIRE)))
        look = draw(st.sampled_from((ACQUIRE, RELAXED_LOOK, BOTH, NEAR, RELEASE)))
        reported = [(draw(st.sampled_from((WRITE, WRITE, ADD))), place), (tell, flag)]
        looked = [(look, flag), (draw(st.sampled_from((READ, READ, WRITE, ADD))), place)]
        early[teller] += draw(st.sampled_from((reported, reported, reported, reported[::-1])))
        late[listener] += draw(st.sampled_from((looked, looked, looked, looked[::-1])))
    table = []
    for first, last in zip(early, late, strict=True):
        steps = [*first, *[(NEAR, 2)] * (STEPS - len(first) - len(last)), *last][:STEPS]
        if draw(st.integers(0, 3)) == 0:
            change = st.tuples(st.integers(READ, NEAR), st.integers(0, PLACES - 1))
            steps[draw(st.integers(0, STEPS - 1))] = draw(change)
        if waits and draw(st.booleans()):
            begin = draw(st.integers(0, STEPS - 1))
            end = draw(st.integers(begin + 1, STEPS))
            steps.insert(begin, (LOCK, lock := draw(st.integers(0, 1))))
            steps.insert(end + 1, (UNLOCK, lock))
        table.append(steps + [(NEAR, 2)] * (STEPS + 2 - len(steps)))
    return torch.tensor(table, dtype=torch.int32)


def check(table, waits, budget):
    programs = table.shape[0]
    oracle = Oracle(programs)
    words = [torch.zeros(1, dtype=torch.int32) for _ in range(PLACES)]
    rest = [torch.zeros(n, dtype=torch.int32) for n in (PLACES, 2, programs)]
    with scope(checks=("race",)):
        seen = launch(
            scripted,
            (programs,),
            table,
            *words,
            *rest,
            STEPS=table.shape[1],
            WAITS=waits,
            budget=budget,
            observers=(oracle,),
        )
    assert {fault.kind for fault in seen.faults} <= {"race"}
    assert {fault.tensor for fault in seen.faults} == oracle.racy()


QUICK = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@QUICK
@given(table=scripts(waits=False), budget=st.sampled_from([None, 64]))
def test_programs_in_batches_race_where_their_clocks_say_so(table, budget):
    check(table, False, budget)


@QUICK
@given(table=scripts(waits=True))
def test_programs_with_locks_race_where_their_clocks_say_so(table):
    check(table, True, None)


@pytest.mark.parametrize("waits", [False, True])
def test_the_oracle_sees_races_and_orders(waits):
    released = [(WRITE, 0), (RELEASE, 0), *[(NEAR, 1)] * (STEPS - 2)]
    acquired = [*[(NEAR, 1)] * (STEPS - 2), (ACQUIRE, 0), (READ, 0)]
    check(torch.tensor([released, acquired], dtype=torch.int32), waits, None)
    released[1] = (RELAXED_SET, 0)
    check(torch.tensor([released, acquired], dtype=torch.int32), waits, None)
