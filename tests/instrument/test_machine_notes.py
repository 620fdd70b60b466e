"""Launches noted by machine code lie in slots as those that the Python function notes."""

import ctypes
import gc
import itertools
import os
import struct
import sys
import threading
import time
import weakref
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tkdebug.events import launch_type
from tkdebug.instrument.recording_process import packing
from tkdebug.instrument.recording_process.note_text import UNLIKE
from tkdebug.instrument.recording_process.packing import LaunchPacker
from tkdebug.instrument.recording_process.ring import (
    PLACES,
    SLOT_BYTES,
    SLOTS,
    RingReader,
    RingWriter,
)
from tkdebug.runtime.launch_notes import c_functions, machine_code
from tkdebug.runtime.launch_notes.machine_notes import KNOWN_SETS, machine_note
from tkdebug.scopes import SCOPES

KINDS = ("tensor", "int", "uint", "float", "fixed", "tensor")
X = torch.zeros(4, 8)
VALUES = (X, -5, 7, 0.5, 64, X[0])
INT64, UINT64 = 1 << 63, 1 << 64


class Hashable(SimpleNamespace):
    __hash__ = object.__hash__


@pytest.fixture(autouse=True)
def no_scopes(monkeypatch):
    monkeypatch.setattr(SCOPES, "is_plain", True)


class Noted:
    """A packer of its own, and what became of its launches."""

    def __init__(self, kinds=KINDS, is_machine=True, is_read=lambda: True):
        self.instead = 0
        self.odd, self.sent = [], []
        self.ring = RingWriter(is_read)
        self.reader = RingReader(self.ring.descriptor)
        self.flags = bytearray(1)
        self.packer = LaunchPacker(
            self.ring,
            lambda *message: self.sent.append(message),
            lambda kernel, *launch: self.odd.append(launch),
            Hashable(),
            self.flags,
            lambda launch: lambda: None,
        )
        self.kernel = Hashable(
            parameter_kinds=kinds,
            known_tensors=lambda tensors: None,
            machine_note=self._counting if is_machine else lambda parts: None,
            launch_record=launch_type("kernel", "native", {}, "hash", lambda values: ()),
        )

    def _counting(self, parts):
        def instead(*launch):
            self.instead += 1
            return parts.instead(*launch)

        return machine_note(parts._replace(instead=instead))

    def note(self, *values, head=(3, 4, 5, 6, 7, 8)):
        return self.packer.note_of(self.kernel)(*head, *(values or VALUES))

    def taken(self):
        """The slots that came; when a launch ended is looked at apart."""
        return [slot._replace(end_ns=0) for slot in self.reader.take(self.reader.head())]


@pytest.fixture
def noted():
    return Noted()


def test_machine_code_is_there(noted):
    note = noted.packer.note_of(noted.kernel)
    assert type(note) is type(len)
    for _ in range(5):
        assert noted.note() is None
    assert (noted.instead, len(noted.taken())) == (1, 5)


of_64_bits = st.integers(-INT64, UINT64 - 1) | st.sampled_from(
    (-INT64, INT64 - 1, INT64, UINT64 - 1, -1, 0)
)
anything = of_64_bits | st.sampled_from((True, None, 1 << 64, "a", 2.5)) | st.floats()


@given(
    st.lists(
        st.tuples(
            st.tuples(*[anything] * 6),
            st.tuples(anything, anything, anything),
            st.sampled_from((X, X.t(), X[:, None], X[0, 0], torch.nn.Parameter(X), None, 5)),
        ),
        max_size=6,
    ),
    st.integers(0, 255),
)
@settings(max_examples=150, deadline=None)
def test_slots_are_those_of_the_python_function(launches, flags):
    both = Noted(), Noted(is_machine=False)
    for one in both:
        one.flags[0] = flags
        for head, (signed, unsigned, real), tensor in [*launches, *launches]:
            one.note(X, signed, unsigned, real, 64, tensor, head=head)
            one.note(head=(1, *head[1:4], 2, 3))
    ours, theirs = both
    assert ours.taken() == theirs.taken()
    assert ours.sent == theirs.sent
    assert str([launch[:4] for launch in ours.odd]) == str([launch[:4] for launch in theirs.odd])


def test_launch_ends_when_it_is_noted(noted):
    before_ns = time.time_ns()
    for _ in range(2):
        noted.note()
    first, second = noted.reader.take(noted.reader.head())
    assert before_ns <= first.end_ns <= second.end_ns <= time.time_ns()


def shapes(noted):
    """Numbers of facts."""
    return [slot.facts for slot in noted.taken()]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.resize_(2, 2),
        lambda x: x.set_(torch.zeros(4, 8).t()),
        lambda x: setattr(x, "data", torch.zeros(3)),
        lambda x: torch.utils.swap_tensors(x, torch.zeros(5)),
        lambda x: x.unsqueeze_(0),
    ],
)
def test_tensor_that_was_changed_in_place_has_other_facts(change):
    noted = Noted(("tensor",))
    x = torch.zeros(4, 8)
    for _ in range(2):
        noted.note(x)
    change(x)
    for _ in range(2):
        noted.note(x)
    assert shapes(noted) == [1, 1, 2, 2]
    assert noted.instead == 2


def test_kinds_of_tensors_in_turn_are_known(noted):
    kinds = [torch.zeros(n + 1, 2) for n in range(KNOWN_SETS)]
    for _ in range(10):
        for x in kinds:
            noted.note(x, 1, 1, 1.0, 1, X)
    assert noted.instead == KNOWN_SETS
    assert shapes(noted) == [*range(1, KNOWN_SETS + 1)] * 10


def test_tensors_that_come_late_are_known_soon(noted):
    for n in range(3 * UNLIKE):
        noted.note(torch.zeros(n + 1), 1, 1, 1.0, 1, X)
    noted.instead = 0
    for _ in range(2 * UNLIKE):
        noted.note()
    assert 0 < noted.instead <= UNLIKE


@pytest.mark.parametrize("dims", [0, machine_code.MAX_DIMS, machine_code.MAX_DIMS + 1])
def test_tensors_of_many_axes_are_left_to_python(dims):
    noted = Noted(("tensor",))
    for _ in range(3):
        noted.note(torch.zeros((1,) * dims))
    assert noted.instead == (3 if dims > machine_code.MAX_DIMS else 1)
    assert shapes(noted) == [1] * 3


def test_nothing_forgotten_is_known(noted, monkeypatch):
    monkeypatch.setattr(packing, "MAX_KEPT", 5)
    for n in range(20):
        first = max([0, *(message[2] for message in noted.sent if message[0] == "forget")])
        noted.note()
        noted.note(torch.zeros(n + 1), 1, 1, 1.0, 1, X)
        assert min(shapes(noted)) > first or first == 0
    assert first > 10
    assert noted.instead < 40


def test_kernel_without_tensors_has_the_same_facts():
    noted = Noted(("int", "fixed"))
    for n in range(3):
        noted.note(n, 64)
    assert [slot.scalars[:8] for slot in noted.taken()] == [
        n.to_bytes(8, "little") for n in range(3)
    ]
    assert noted.instead == 1


@pytest.mark.parametrize("kinds", [("tensor", "look"), ("tensor", "other"), ("int",) * 8])
def test_values_that_are_no_scalars_of_a_slot_are_left_to_python(kinds):
    noted = Noted(kinds)
    assert type(noted.packer.note_of(noted.kernel)) is not type(len)


def test_scopes_are_noted(noted, monkeypatch):
    paths = iter([("a",), ("a", "b"), ("a",), ()])
    monkeypatch.setattr(type(SCOPES), "path", lambda self, watcher: next(paths))
    noted.note()
    monkeypatch.setattr(SCOPES, "is_plain", False)
    for _ in range(4):
        noted.note()
    assert [slot.scopes for slot in noted.taken()] == [0, 1, 2, 1, 0]
    assert noted.instead == 1


@pytest.mark.parametrize(("error", "is_raised"), [(KeyboardInterrupt, True), (ValueError, False)])
def test_scopes_that_raise_take_no_number(noted, monkeypatch, error, is_raised):
    def path(self, watcher):
        raise error

    noted.note()
    noted.taken()
    monkeypatch.setattr(SCOPES, "is_plain", False)
    monkeypatch.setattr(type(SCOPES), "path", path)
    if is_raised:
        with pytest.raises(error):
            noted.note()
    else:
        noted.note()
        assert len(noted.odd) == 1
    monkeypatch.setattr(SCOPES, "is_plain", True)
    noted.note()
    assert len(noted.taken()) == 1


def test_wrong_number_of_values_is_pythons_error(noted):
    noted.note()
    with pytest.raises(TypeError, match="positional argument"):
        noted.note(X, 1)


def fill(ring):
    """Take all numbers of which the slots are free."""
    assert len(list(itertools.islice(ring.numbers, SLOTS - 1))) == SLOTS - 1


def test_full_ring_waits_for_its_reader(noted):
    noted.note()
    fill(noted.ring)

    def read():
        time.sleep(0.05)
        struct.pack_into("=Q", noted.ring.memory, PLACES.read_at, 1)

    began_s = time.monotonic()
    reading = threading.Thread(target=read)
    reading.start()
    noted.note(X, 11, 7, 0.5, 64, X[0])
    assert time.monotonic() - began_s > 0.04
    reading.join()
    slot = noted.ring.memory[PLACES.first : PLACES.first + SLOT_BYTES]
    assert struct.unpack_from("=q", slot, PLACES.scalars) == (11,)
    assert struct.unpack_from("=Q", slot, PLACES.number) == (SLOTS + 1,)
    assert noted.instead == 1


def test_full_ring_that_nobody_reads_lets_the_script_go_on():
    noted = Noted(is_read=lambda: False)
    noted.note()
    fill(noted.ring)
    noted.note()
    assert len(noted.taken()) == 1


def test_threads_have_their_own_ids(noted):
    noted.note()
    noted.taken()
    ids = []

    def work():
        ids.append(threading.get_native_id())
        for _ in range(3):
            noted.note()

    # One after the other: what a thread leaves behind, the next one gets.
    for _ in range(5):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [slot.thread for slot in noted.taken()] == [one for one in ids for _ in range(3)]
    assert noted.instead == 1


def test_threads_note_at_once(noted):
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(
                target=lambda n=n: [noted.note(X, n, i, 0.5, 64, X[0]) for i in range(2000)]
            )
            for n in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    slots = noted.taken()
    assert len(slots) == 12_000
    assert len({slot.scalars[:16] for slot in slots}) == 12_000
    assert len({(slot.thread, slot.scalars[:8]) for slot in slots}) == 6
    assert not noted.odd


def test_forked_child_has_its_own_id():
    Noted().note()
    child = os.fork()
    if not child:
        noted = Noted()
        noted.note()
        noted.note()
        is_own = {slot.thread for slot in noted.taken()} == {threading.get_native_id()}
        os._exit(0 if is_own else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_notes_hold_on_to_nothing_that_they_were_given(noted):
    x = torch.zeros(4, 8)
    values = (x, 1 << 40, 1 << 41, 1.25, 64, x)
    noted.note(*values)
    counts = [sys.getrefcount(value) for value in (*values, None)]
    for _ in range(1000):
        noted.note(*values)
        noted.note(*values[:-1], None)
    noted.odd.clear()
    after = [sys.getrefcount(value) for value in (*values, None)]
    assert [b - a for a, b in zip(counts, after, strict=True)][:-1] == [0] * len(values)
    assert abs(after[-1] - counts[-1]) < 100


def test_a_packer_that_is_gone_leaves_nothing(noted):
    noted.note()
    packer, ring = weakref.ref(noted.packer), weakref.ref(noted.ring)
    noted.packer = noted.ring = None
    gc.collect()
    assert packer() is None
    assert ring() is None


def test_python_notes_where_there_is_no_such_code(monkeypatch):
    monkeypatch.setattr(machine_code, "c_functions", lambda: None)
    machine_code.note_maker.cache_clear()
    noted = Noted()
    try:
        noted.note()
        noted.note()
    finally:
        machine_code.note_maker.cache_clear()
    assert (len(noted.taken()), noted.instead) == (2, 0)


PR_SET_MDWE, NO_NEW_EXECUTABLE = 65, 1


def test_python_notes_where_memory_must_not_become_executable():
    child = os.fork()
    if not child:
        if ctypes.CDLL(None).prctl(PR_SET_MDWE, NO_NEW_EXECUTABLE, 0, 0, 0):
            os._exit(2)
        c_functions.c_functions.cache_clear()
        machine_code.note_maker.cache_clear()
        noted = Noted()
        noted.note()
        noted.note()
        os._exit(0 if len(noted.taken()) == 2 else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 2:
        pytest.skip("Linux before 6.3 cannot forbid it")
    assert code == 0


def test_memory_that_code_writes_to_cannot_go_away(noted):
    noted.note()
    with pytest.raises(BufferError):
        noted.ring.memory.close()
    with pytest.raises(BufferError):
        noted.flags.clear()
    noted.note()
    assert len(noted.taken()) == 2


@pytest.mark.parametrize("kind", ["tensor", "int"])
def test_sets_that_another_thread_has_not_written_yet_are_not_known(kind):
    noted = Noted((kind,))
    scalar = torch.tensor(0.5)
    value = scalar if kind == "tensor" else 5
    noted.packer.note_of(noted.kernel)
    (known,) = noted.packer._machine_notes
    next_set = known._next_set

    def interrupted():
        number = next_set()
        if number == 0:
            known.know(7, (X,) if kind == "tensor" else ())
            noted.note(value)
        return number

    known._next_set = interrupted
    known.know(8, (scalar,) if kind == "tensor" else ())
    assert 0 not in shapes(noted)
    assert noted.instead == (kind == "tensor")


def test_forgotten_sets_do_not_come_back_with_a_late_one(noted):
    for n in range(3):
        noted.note(torch.zeros(n + 1), 1, 1, 1.0, 1, X)
    (known,) = noted.packer._machine_notes
    next_set = known._next_set

    def forgotten():
        number = next_set()
        known.forget()
        return number

    known._next_set = forgotten
    known.know(9, (torch.zeros(9), X))
    noted.instead = 0
    noted.note(torch.zeros(1), 1, 1, 1.0, 1, X)
    assert noted.instead == 1


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_kernel_that_got_a_tensor_without_strides_is_left_to_python():
    noted = Noted(("tensor",))
    for _ in range(2):
        noted.note(X)
    noted.note(X.to_sparse_csr())
    assert (noted.instead, len(noted.odd)) == (2, 1)
    for _ in range(2):
        noted.note(X)
    assert noted.instead == 4
    assert shapes(noted) == [1] * 4
