"""Races that are looked for without being asked: in the first launch of each kind, where cheap."""

import sys
from functools import partial

import checked_kernels as kernels
import order_kernels
import pytest
import torch
from differential import run
from marked_lines import line_of, only

import tkdebug
import tkdebug.language as tl
from tkdebug.checks import DEFAULT_CHECKS, FIRST_RACES, not_looked_for
from tkdebug.findings.reporting import checks_in_force
from tkdebug.interpreter.checks.races import first_launches
from tkdebug.knobs import scope

line = partial(line_of, kernels)
BUDGETS = pytest.mark.parametrize("budget", [None, 4096, 64], ids=["whole", "batches", "single"])


@pytest.fixture(autouse=True)
def first_races():
    with scope(checks=(FIRST_RACES,)):
        yield


def integers(*shape):
    return torch.zeros(*shape, dtype=torch.int32)


def copies_of(fn):
    """Return the same kernel, as if no launch of it had been looked at."""
    return tkdebug.jit(fn.fn)


@BUDGETS
def test_programs_that_store_to_the_same_place(budget):
    kernel = copies_of(kernels.all_store_here)
    fault = only(run(kernel, (4,), integers(8), BLOCK=8, budget=budget))
    assert (fault.kind, fault.line, fault.count) == ("race", line("RACE all_store_here"), 24)


@BUDGETS
def test_storing_the_same_value_is_no_race(budget):
    kernel = copies_of(kernels.all_store_the_same)
    assert not run(kernel, (4,), integers(8), BLOCK=8, budget=budget)


@BUDGETS
def test_store_to_what_another_program_reads(budget):
    x = torch.arange(1, 65, dtype=torch.int32)
    (fault,) = run(copies_of(kernels.shift_in_place), (4,), x, 64, BLOCK=16, budget=budget)
    assert (fault.kind, fault.line) == ("race", line("RACE shift_in_place"))


def test_two_arguments_that_are_one_tensor():
    x = torch.arange(64, dtype=torch.int32)
    (fault,) = run(copies_of(kernels.copy_shifted), (4,), x, x, 64, BLOCK=16)
    assert "`to_ptr` and `from_ptr` are the same memory" in fault.hint


def test_elements_of_one_tile_that_store_to_the_same_place():
    index = torch.tensor([0, 1, 2, 3, 3, 5, 6, 7], dtype=torch.int32)
    fault = only(run(copies_of(kernels.scatter), (1,), integers(8), index, BLOCK=8))
    assert (fault.kind, fault.line) == ("race", line("RACE scatter"))


@tkdebug.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@tkdebug.jit
def spread(x, out, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * step + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + tl.program_id(0))  # RACE spread


@tkdebug.jit
def in_rounds(out, rounds, BLOCK: tl.constexpr):
    for step in range(rounds):
        i = (tl.program_id(0) + step) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, i + tl.program_id(0))


@BUDGETS
@pytest.mark.parametrize("n", [64, 61])
def test_programs_with_elements_of_their_own(n, budget):
    x = torch.rand(n)
    assert not run(doubled, (4,), x, torch.zeros(n), n, BLOCK=16, budget=budget)


@BUDGETS
def test_stores_of_one_tensor_that_overlap(budget):
    kernel, x, out = copies_of(spread), torch.rand(80), torch.zeros(80)
    assert not run(kernel, (4,), x, out, 16, BLOCK=16, budget=budget)
    (fault,) = run(kernel, (4,), x, out, 12, BLOCK=16, budget=budget)
    assert (fault.line, fault.count) == (line_of(sys.modules[__name__], "RACE spread"), 12)


def test_programs_of_several_batches_that_store_to_the_same_place():
    # What the first one stores is there already, so it changes nothing; the next one does.
    x, out = torch.zeros(80), torch.zeros(80)
    (fault,) = run(copies_of(spread), (2,), x, out, 0, BLOCK=16, budget=64)
    assert (fault.program_id, fault.count) == ((1, 0, 0), 16)
    x[:] = 1 - torch.arange(80) // 16
    assert not run(copies_of(spread), (2,), x, out, 16, BLOCK=16, budget=64)


def test_stores_of_several_rounds_that_overlap():
    (fault,) = run(in_rounds, (4,), integers(256), 3, BLOCK=16)
    assert fault.kind == "race"


@tkdebug.jit
def rows_by_address(addresses, lengths, BLOCK: tl.constexpr):
    row = tl.load(addresses + tl.program_id(0)).to(tl.pointer_type(tl.int32))
    i = tl.arange(0, BLOCK)
    tl.store(row + i, i + tl.program_id(0), mask=i < tl.load(lengths + tl.program_id(0)))


def test_stores_by_address_of_no_element():
    rows, other = integers(2, 8), integers(8)
    addresses = torch.tensor([row.data_ptr() for row in (*rows, other)])
    lengths = torch.tensor([0, 0, 3], dtype=torch.int32)
    assert not run(rows_by_address, (3,), addresses, lengths, BLOCK=8)
    assert (rows.tolist(), other.tolist()) == ([[0] * 8] * 2, [2, 3, 4, 0, 0, 0, 0, 0])
    addresses = torch.tensor([other.data_ptr(), other.data_ptr()])
    (fault,) = run(copies_of(rows_by_address), (2,), addresses, lengths[1:] + 4, BLOCK=8)
    assert fault.kind == "race"


def test_a_kind_of_launches_is_looked_at_once():
    kernel, out = copies_of(kernels.scatter), integers(16)
    apart, together = torch.arange(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    assert not run(kernel, (1,), out, apart, BLOCK=8)
    assert not run(kernel, (1,), out, together, BLOCK=8)
    # Another tensor is another kind.
    assert run(kernel, (1,), integers(32), together, BLOCK=8)


def test_kernels_whose_programs_synchronise_take_being_asked():
    def faults():
        arguments = torch.rand(2, 4, 16), torch.zeros(2, 4, 16), integers(2), torch.zeros(2, 16)
        options = {"BUG": "counted first", "SPLITS": 4, "BLOCK": 16}
        return run(copies_of(order_kernels.split_k), (2, 4), *arguments, **options)

    assert not faults()
    with scope(checks=("race",)):
        assert faults()


def test_nothing_is_said_of_more_elements_than_are_listed(monkeypatch):
    monkeypatch.setattr(first_launches, "_MOST_LISTED", 7)
    index = torch.zeros(8, dtype=torch.int32)
    assert not run(copies_of(kernels.scatter), (1,), integers(8), index, BLOCK=8)


def test_a_race_that_was_asked_for_is_reported_once():
    with scope(checks=(*DEFAULT_CHECKS, "race")):
        faults = run(copies_of(kernels.all_store_here), (4,), integers(8), BLOCK=8)
    assert [fault.kind for fault in faults] == ["race"]


def test_ignoring_races_leaves_them_out():
    with scope(checks=DEFAULT_CHECKS, ignored_kinds=("race",)):
        assert FIRST_RACES not in checks_in_force()
        assert "nan" in checks_in_force()


def test_races_are_named_among_what_is_not_looked_for():
    assert not_looked_for(DEFAULT_CHECKS)[0] == "race (but in first launches)"
    assert not_looked_for(())[0] == "race"
    assert "race" not in "".join(not_looked_for(("race",)))
    assert "race" not in "".join(not_looked_for(DEFAULT_CHECKS, ("race",)))
