"""Threads of one program that pass values through memory: what nothing orders, and look-alikes."""

from functools import partial
from types import SimpleNamespace

import pytest
import thread_order_kernels as kernels
import torch
from differential import run
from marked_lines import line_of

from tkdebug.interpreter.checks import thread_order
from tkdebug.knobs import scope

line = partial(line_of, kernels)


@pytest.fixture(autouse=True)
def order():
    with scope(checks=("thread-order",)):
        torch.manual_seed(0)
        yield


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


def permutation(n):
    return torch.randperm(n).to(torch.int32)


def ints(*shape):
    return zeros(*shape, dtype=torch.int32)


BUGS = {
    "reversed_back": ((2,), lambda: (zeros(256), zeros(256)), {"BLOCK": 128}, "writes"),
    "rows_then_tile": (
        (1,),
        lambda: (zeros(512), zeros(128), 128),
        {"ROWS": 4, "BLOCK": 128},
        "reads",
    ),
    "shifted_in_place": ((2,), lambda: (zeros(512), 512), {"BLOCK": 256}, "reads"),
    "rows_cleared": (
        (1,),
        lambda: (zeros(512), zeros(256)),
        {"ROWS": 4, "BLOCK": 64},
        "reads",
    ),
    "scalar_read_by_all": ((3,), lambda: (zeros(3), zeros(384), 2.0), {"BLOCK": 128}, "writes"),
    "counter_taken_by_all": ((1,), lambda: (ints(1), ints(128)), {"BLOCK": 128}, "reads"),
    "halves_combined": ((1,), lambda: (zeros(256),), {"BLOCK": 256}, "writes"),
    "scan_in_rounds": ((1,), lambda: (zeros(128), 4), {"BLOCK": 128}, "reads"),
    "two_stores": ((2,), lambda: (ints(256),), {"BLOCK": 128}, "writes"),
    "gathered_back": (
        (1,),
        lambda: (zeros(128), permutation(128), zeros(128)),
        {"BLOCK": 128},
        "writes",
    ),
}


def found(name, how="", **options):
    grid, arguments, constants, _ = BUGS[name]
    kernel = getattr(kernels, name)
    return run(kernel, grid, *arguments(), **constants, HOW=how, **options)


@pytest.mark.parametrize("name", BUGS)
def test_threads_that_nothing_orders(name):
    faults = found(name)
    first, second = line(f"FIRST {name}"), line(f"SECOND {name}")
    fault = next(fault for fault in faults if fault.line == second)
    assert (fault.kind, fault.severity) == ("thread-order", "warning")
    did = BUGS[name][3]
    assert f"which another thread of the same program {did} at" in fault.message
    assert f"{first}" in fault.message.partition(f"{did} at ")[2]
    assert fault.message.endswith("Triton does not order these")
    assert "tl.debug_barrier()" in fault.hint
    assert fault.program_id == (0, 0, 0)
    assert fault.count > 0


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, "barrier") for name in BUGS if name not in ("scan_in_rounds", "gathered_back")),
        ("scalar_read_by_all", "atomic"),
        ("scalar_read_by_all", "one"),
        ("counter_taken_by_all", "alone"),
        ("two_stores", "same"),
        ("scan_in_rounds", "barriers"),
        ("gathered_back", "sum"),
        ("gathered_back", "back"),
    ],
)
def test_threads_that_something_orders(name, how):
    assert found(name, how) == []


LOOK_ALIKES = {
    "transposed_in_place": ((1,), lambda: (torch.randn(32, 64),), {"N": 32}),
    "by_columns_and_rows": ((1,), lambda: (torch.randn(32, 32), zeros(32, 32)), {"N": 32}),
    "softmax_in_place": ((3,), lambda: (torch.randn(3, 50), 50), {"BLOCK": 64}),
    "halves_rotated": ((2,), lambda: (torch.randn(2, 128),), {"HALF": 64}),
    "two_passes": (
        (2,),
        lambda: (torch.randn(2, 512), zeros(2, 512), zeros(2, 512), 512),
        {"BLOCK": 256},
    ),
    "other_rows": ((1,), lambda: (torch.randn(6, 64),), {"BLOCK": 64}),
    "accumulated": ((1,), lambda: (torch.randn(5, 64), zeros(64), 5), {"BLOCK": 64}),
    "product_in_place": ((1,), lambda: (torch.randn(16, 16), torch.randn(16, 16)), {"N": 16}),
    # None of the programs that are looked at enters the loop.
    "ragged_rows": (
        (128,),
        lambda: (torch.randn(128, 2048), torch.tensor([0, 1500, 0, 700] * 32, dtype=torch.int32)),
        {"N": 2048, "BLOCK": 1024},
    ),
    "updated": (
        (3,),
        # No sum is near 0, where a product that becomes an fma would show.
        lambda: (torch.rand(300) + 8, torch.rand(300), torch.rand(300), zeros(1), 300),
        {"BLOCK": 128},
    ),
}


@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_threads_that_keep_to_their_elements(name, warps):
    grid, arguments, constants = LOOK_ALIKES[name]
    assert run(getattr(kernels, name), grid, *arguments(), **constants, num_warps=warps) == []


def test_copies_of_a_scalar_that_store_nothing_are_used_by_nobody():
    """One step of an optimiser, as `torch.compile` writes it."""
    assert run(kernels.counted_by_one, (1,), zeros(1), 1, BLOCK=256) == []
    (fault,) = run(kernels.counted_by_one, (1,), zeros(1), 2, BLOCK=256)
    assert fault.line == line("COUNT counted_by_one")


def test_accesses_of_one_line_are_of_one_round_unless_one_op_is_both():
    (once,) = run(kernels.shifted_at_one_line, (1,), zeros(257), BLOCK=256)
    assert once.line == line("ONCE shifted_at_one_line")
    assert "reads at the same line: Triton" in once.message
    (rounds,) = run(kernels.turned_in_rounds, (1,), ints(256), 2, BLOCK=256)
    assert rounds.line == line("ROUNDS turned_in_rounds")
    assert "writes at the same line, in another round: Triton" in rounds.message


def test_arguments_that_share_memory_meet_where_one_is_stored_to(monkeypatch):
    seen = []
    look = thread_order.AccessesOfThreads._look

    def noted(self, run, access, is_store):
        seen.append(access.buffer.name)
        look(self, run, access, is_store)

    monkeypatch.setattr(thread_order.AccessesOfThreads, "_look", noted)
    a, b, one = zeros(256), zeros(256), torch.ones(1)
    assert run(kernels.crossed, (1,), a, b, one, one, zeros(256), BLOCK=256) == []
    assert seen == []  # The one factor is only loaded.
    (fault,) = run(kernels.crossed, (1,), a, a, one, one, zeros(256), BLOCK=256)
    assert fault.line == line("SECOND crossed")
    assert f"writes at line {line('FIRST crossed')}" in fault.message


def test_argument_that_is_an_address_may_share_memory_with_others():
    a, one = zeros(256), torch.ones(1)
    address = SimpleNamespace(data_ptr=a.data_ptr, dtype=a.dtype)
    (fault,) = run(kernels.crossed, (1,), a, address, one, one, zeros(256), BLOCK=256)
    assert fault.line == line("SECOND crossed")
