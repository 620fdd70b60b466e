"""Native launches that are checked: which ones, what they are given, and how faults come back."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from simulated_checks import CheckedPrinter, in_use

import tkdebug
import tkdebug.language as tl
from tkdebug import knobs
from tkdebug.compat.inductor.compiles import INDUCTOR_COMPILES, Wanted
from tkdebug.compiler.sites.table import Report, packed_symptoms, table_bytes
from tkdebug.errors import CompileError
from tkdebug.findings.launch_counts import LaunchCounts
from tkdebug.findings.reporting import REFINEMENTS
from tkdebug.interpreter.closer_looks import closer_look
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.records.running_faults import SHOWN
from tkdebug.runtime.arguments.specialize import alignment_key
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.benchmark.testing import do_bench
from tkdebug.runtime.checked import builds, checked_launches, held_launch
from tkdebug.runtime.checked.checked_kernel import (
    MOST_CHECKED_BUILDS,
    CheckedKernel,
    look_at_captures,
)
from tkdebug.runtime.checked.checked_launches import CHECKED
from tkdebug.runtime.checked.closer_looks import MOST_LOOKS_AT_THREADS
from tkdebug.runtime.checked.launch_kinds import QUIET
from tkdebug.runtime.device.modes import timed_launches
from tkdebug.runtime.launch import launch_writer, native_kernel
from tkdebug.runtime.launch.launches_in_flight import InFlight
from tkdebug.runtime.launch.native_kernel import NativeKernel


@pytest.fixture
def printer():
    with in_use(CheckedPrinter(), check_launches="first") as device:
        yield device


@pytest.fixture
def reported():
    faults, records = [], []
    hook = Hook(fault=faults.append, record=records.append)
    HOOKS.add(hook)
    yield faults, records
    HOOKS.remove(hook)


@pytest.fixture
def x():
    return torch.arange(100, dtype=torch.int32)


def make_kernel():
    @tkdebug.jit
    def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2, mask=mask)

    return scale


def make_gather():
    @tkdebug.jit
    def gather(x_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr + tl.load(index_ptr + offsets)))

    return gather


def overrun(elements, site=0):
    """Site `site` of each launch reports an access that far after the first tensor's begin.

    Of an access that arguments decide, the host finds the elements by itself.
    """

    def finds(plan, bounds):
        report = Report(site, 3, 1, 1, 7, bounds[0] + 4 * elements, 3)
        slots = [bytes(table_bytes(1))] * len(plan.sites)
        slots[site] = report.packed()
        return b"".join(slots)

    return finds


@pytest.fixture
def packer():
    """Takes launches without records, as the recorder does beside a GPU."""
    noted = []

    def note_of(kernel):
        return lambda launch, x, y, z, *rest: noted.append((kernel.parameter_kinds, x))

    hook = Hook(enter=lambda kernel, record: None)
    HOOKS.add(hook)
    packer = SimpleNamespace(notes={}, note_of=note_of, time_of=lambda launch: None)
    HOOKS.pack_natively(hook, packer)
    yield noted
    HOOKS.remove(hook)


def test_launches_that_are_not_checked_are_packed(printer, packer, x, monkeypatch):
    flights = InFlight()
    flights.is_on = True
    for module in (launch_writer, native_kernel):
        monkeypatch.setattr(module, "IN_FLIGHT", flights)
    scale = make_kernel()
    for _ in range(QUIET + 4):
        scale[(2,)](x, x, 64, BLOCK=64)
    assert sum(printer.is_checked) == 1
    # Some of them are looked at, the others are not.
    assert packer == [(("tensor", "tensor", "int", "fixed"), 2)] * (QUIET + 3)
    assert {flight.caller.function for flight in flights.latest} == {
        "test_launches_that_are_not_checked_are_packed"
    }
    assert len(flights.latest) == QUIET + 4


def test_passes_of_the_checked_build_are_not_recorded(printer, x):
    compiled = []
    hook = Hook(compiled=compiled.append)
    HOOKS.add(hook)
    scale = make_kernel()
    try:
        for _ in range(2):
            scale[(2,)](x, x, 64, BLOCK=64)
    finally:
        HOOKS.remove(hook)
    (bare,) = [one for one in compiled if "checked" not in one.options]
    (checked,) = [one for one in compiled if "checked" in one.options]
    assert len(bare.passes) > 5
    assert checked.passes == ()
    for stage in ("tile-ir after", "gpu-ir after"):
        assert sum(name.startswith(stage) for name in checked.artifacts) == 1


def test_packed_launch_that_fails_raises_its_own_error(printer, packer, x):
    scale = make_kernel()
    for _ in range(QUIET + 1):
        kernel = scale[(2,)](x, x, 64, BLOCK=64)
    kernel.submit = lambda *passed: 1 // 0
    with pytest.raises(ZeroDivisionError):
        scale[(2,)](x, x, 64, BLOCK=64)
    assert len(packer) == QUIET


def test_first_launch_of_each_kind_is_checked(printer, x):
    scale = make_kernel()
    for tensor in (x, x, x.clone(), x[:64], x[:64], x):
        scale[(2,)](tensor, x, 64, BLOCK=64)
    assert printer.is_checked == [True, False, False, True, False, False]
    passed = [(t.data_ptr(), x.data_ptr(), 64) for t in (x, x)]
    assert [arguments for _, _, arguments in printer.launches[:2]] == passed


def test_checked_launch_gets_the_bounds_of_views_as_passed(printer, x):
    view = x[16:96:2]
    make_kernel()[(1,)](view, x, 40, BLOCK=64)
    first = x.data_ptr()
    assert printer.bounds == [(first + 64, first + 4 * 95, 79, first, first + 400, 100)]


def test_tensor_whose_memory_was_given_up_has_no_elements(printer, reported, x):
    faults, _ = reported
    printer.finds = overrun(0)
    freed = x.clone()
    freed.untyped_storage().resize_(0)
    make_kernel()[(1,)](freed, x, 64, BLOCK=64)
    CHECKED.collect()
    (fault,) = faults
    assert printer.bounds[0][:2] == (0, 0)
    assert (fault.kind, fault.index, fault.count) == ("oob-load", 0, 64)
    assert fault.message == "load reads offset 0 of `x_ptr`, which is empty"


@pytest.mark.parametrize(("policy", "expected"), [("all", [True] * 3), ("none", [False] * 3)])
def test_policies(printer, x, policy, expected):
    with knobs.scope(check_launches=policy):
        scale = make_kernel()
        for _ in range(3):
            scale[(2,)](x, x, 64, BLOCK=64)
    assert printer.is_checked == expected


def test_kernel_that_loads_its_addresses_is_checked_at_powers_of_two(printer, x):
    gather, index = make_gather(), torch.arange(64)
    for _ in range(9):
        gather[(1,)](x, index, x, BLOCK=64)
    assert [n for n, is_checked in enumerate(printer.is_checked, 1) if is_checked] == [1, 2, 4, 8]


def test_fault_is_reported_as_an_interpreted_one(printer, reported, x):
    faults, _ = reported
    printer.finds = overrun(120)
    ids = []
    hook = Hook(enter=lambda kernel, record: ids.append(record.id))
    HOOKS.add(hook)
    try:
        make_kernel()[(2,)](x, x.clone(), 200, BLOCK=64)
    finally:
        HOOKS.remove(hook)
    CHECKED.collect()
    (fault,) = faults
    assert (fault.kind, fault.kernel, fault.tensor, fault.index) == (
        "oob-load",
        "scale",
        "x_ptr",
        100,
    )
    assert (fault.program_id, fault.lane, fault.count) == ((1, 0, 0), (36,), 28)
    assert fault.legal == (0, 100)
    assert [fault.launch_id] == ids
    assert "load reads offset 100 of `x_ptr`, which has 100 elements" in fault.message


def test_launches_are_reported_in_order_and_nobody_waits(printer, reported, x):
    faults, _ = reported
    printer.memory.holds, printer.finds = True, overrun(101)
    scale = make_kernel()
    scale[(2,)](x, x, 200, BLOCK=64)
    scale[(3,)](x, x, 200, BLOCK=64)
    assert (faults, printer.memory.waited) == ([], 0)
    printer.memory.let_end()
    scale[(3,)](x, x, 200, BLOCK=64)
    assert len(faults) == 2
    assert faults[0].launch_id < faults[1].launch_id


def test_end_waits_for_what_is_not_done(printer, reported, x):
    faults, records = reported
    printer.memory.holds, printer.finds = True, overrun(101)
    make_kernel()[(2,)](x, x, 200, BLOCK=64)
    CHECKED.conclude()
    assert len(faults) == 1
    assert printer.memory.waited == 1
    assert LaunchCounts(1, 0) in records
    CHECKED.conclude()
    assert sum(isinstance(record, LaunchCounts) for record in records) == 1


def test_launch_without_a_free_table_waits_for_the_oldest(printer, reported, x):
    printer.memory.holds, printer.memory.most = True, 2
    with knobs.scope(check_launches="all"):
        scale = make_kernel()
        for _ in range(5):
            scale[(2,)](x, x, 64, BLOCK=64)
    assert printer.is_checked == [True] * 5
    assert printer.memory.waited == 3


def test_hook_that_launches_when_it_is_reported_does_not_wait_for_itself(printer, x):
    scale, seen = make_kernel(), []
    printer.finds = overrun(101)

    def launch_again(fault):
        seen.append(fault)
        if len(seen) < 3:
            scale[(len(seen) + 1,)](x, x, 128, BLOCK=128)

    hook = Hook(fault=launch_again)
    HOOKS.add(hook)
    try:
        scale[(1,)](x, x, 128, BLOCK=128)
        CHECKED.conclude()
    finally:
        HOOKS.remove(hook)
    assert len(seen) == 3


def test_what_is_lost_by_a_crash_is_said(printer, reported, x, capsys):
    printer.memory.holds = True
    make_kernel()[(2,)](x, x, 64, BLOCK=64)
    printer.memory.fails = True
    CHECKED.conclude()
    assert "1 checked launch could not be read, as the GPU failed" in capsys.readouterr().err


def bad_store_of(plan):
    """The table of a launch that stored outside of its tensor."""
    site = next(site for site in plan.sites if site.kind == "oob-store")
    slots = [bytes(table_bytes(1))] * len(plan.sites)
    slots[site.number] = Report.flagged(site.number).packed()
    return b"".join(slots)


@pytest.mark.parametrize("ends", ["by failing", "never"])
def test_what_the_host_saw_of_a_launch_that_does_not_end_is_reported(printer, reported, x, ends):
    SHOWN.follow(watcher := [].append)
    printer.memory.holds = True
    make_kernel()[(2,)](x, x, 128, BLOCK=64)
    SHOWN.unfollow(watcher)
    (table,) = printer.memory.tables.values()
    launch, number, sites = table.header
    (plan,) = CHECKED._plans.values()
    assert (number, sites) == (1, len(plan.sites))
    table.seen = bad_store_of(plan)
    if ends == "never":
        CHECKED.report_unfinished()
        assert table.header == (0, 0, 0)
    else:
        printer.memory.fails = True
        CHECKED.conclude()
    (fault,) = reported[0]
    assert (fault.kind, fault.launch_id, fault.count) == ("oob-store", launch, 28)


def test_captured_launch_of_a_kind_that_was_checked_is_bare_and_counted(printer, reported, x):
    scale = make_kernel()
    scale[(2,)](x, x, 64, BLOCK=64)
    printer.memory.capturing.add(7)
    scale[(2,)](x, x, 64, BLOCK=64)
    scale[(3,)](x, x, 64, BLOCK=64)
    assert printer.is_checked == [True, False, True]
    assert CHECKED.counts == LaunchCounts(2, 1)


def test_replays_are_checked_where_addresses_are_loaded(printer, reported, x):
    gather, index = make_gather(), torch.zeros(64, dtype=torch.int32)
    for _ in range(QUIET + 5):
        gather[(1,)](x, index, x, BLOCK=64)
    printer.is_checked.clear()
    look_at_captures()
    printer.memory.capturing.add(7)
    gather[(1,)](x, index, x, BLOCK=64)
    (table,) = printer.memory.tables.values()
    CHECKED.collect_replays()
    assert (printer.is_checked, reported[0]) == ([True], [])
    # Each replay writes there.
    (plan,) = CHECKED._plans.values()
    for _ in range(2):
        table.content = overrun(200, site=1)(plan, printer.bounds[-1])
        CHECKED.collect_replays()
        CHECKED.collect_replays()
    (fault,) = reported[0]
    assert (fault.kind, fault.tensor) == ("oob-load", "x_ptr")
    assert fault.message.endswith(", in a replay of a CUDA graph")
    table.content = overrun(200, site=1)(plan, printer.bounds[-1])
    CHECKED.conclude()
    assert (len(reported[0]), printer.memory.waited) == (1, 1)


def test_end_reports_what_the_last_replay_found(printer, reported, x):
    printer.memory.capturing.add(7)
    make_kernel()[(2,)](x, x, 128, BLOCK=64)
    (table,) = printer.memory.tables.values()
    (plan,) = CHECKED._plans.values()
    printer.memory.wait = lambda: setattr(table, "content", bad_store_of(plan))
    CHECKED.conclude()
    assert [fault.kind for fault in reported[0]] == ["oob-store"]


def test_captured_launch_for_which_no_table_is_left_is_bare(printer, x):
    printer.memory.most = 0
    printer.memory.capturing.add(7)
    make_kernel()[(2,)](x, x, 64, BLOCK=64)
    assert printer.is_checked == [False]
    assert CHECKED.counts == LaunchCounts(0, 1)


def test_timed_launches_are_bare(printer, x):
    scale = make_kernel()
    with timed_launches():
        scale[(2,)](x, x, 64, BLOCK=64)
    scale[(2,)](x, x, 64, BLOCK=64)
    assert printer.is_checked == [False, True]


def test_do_bench_checks_the_call_that_it_does_not_time(printer, x):
    scale = make_kernel()
    do_bench(lambda: scale[(2,)](x, x, 64, BLOCK=64), warmup=0.01, rep=0.01)
    assert printer.is_checked[0]
    assert not any(printer.is_checked[1:])
    assert len(printer.is_checked) > 2


def test_tuner_tries_bare_kernels_and_checks_the_chosen_one(printer, x):
    configs = [tkdebug.Config({"BLOCK": block}) for block in (32, 64)]
    tuned = tkdebug.autotune(configs, key=["n"])(make_kernel())
    tuned[(4,)](x, x, 100)
    assert printer.is_checked[-1]
    assert not any(printer.is_checked[:-1])


def test_tuner_checks_each_configuration_where_all_launches_are(printer, x):
    configs = [tkdebug.Config({"BLOCK": block}) for block in (32, 64)]
    tuned = tkdebug.autotune(configs, key=["n"], do_bench=lambda call, quantiles: [1.0])
    with knobs.scope(check_launches="all"):
        tuned(make_kernel())[(4,)](x, x, 100)
    assert printer.is_checked == [True] * 3


def test_configurations_that_are_tried_take_no_place_of_the_chosen_one(printer, x):
    count = MOST_CHECKED_BUILDS + 1
    configs = [tkdebug.Config({"BLOCK": 64}, num_stages=1 + n) for n in range(count)]
    times = iter(range(count, 0, -1))

    def bench(call, quantiles):
        call()
        return [next(times)] * 3

    tkdebug.autotune(configs, key=["n"], do_bench=bench)(make_kernel())[(4,)](x, x, 100)
    assert printer.is_checked == [False] * count + [True]


def test_checked_kernel_reads_as_the_bare_one(printer, x):
    scale = make_kernel()
    kernel = scale[(2,)](x, x, 64, BLOCK=64)
    assert kernel.__class__ is CheckedKernel
    with knobs.scope(check_launches="none"):
        bare = make_kernel()[(2,)](x, x, 64, BLOCK=64)
    assert kernel.metadata._replace(hash="") == bare.metadata._replace(hash="")
    assert kernel.asm["schedule"] == bare.asm["schedule"]
    assert (kernel.n_regs, kernel.function) == (bare.n_regs, bare.function)


def test_warm_up_compiles_the_bare_kernel_and_its_launch_is_checked(printer, x):
    scale = make_kernel()
    kernel = scale.warmup(x, x, 64, BLOCK=64, grid=(2,))
    assert printer.is_checked == []
    kernel[(2, 1, 1)](x, x, 64, 64)
    scale[(2,)](x, x, 64, BLOCK=64)
    assert printer.is_checked == [True, False]


def test_grid_of_nothing_and_grid_functions(printer, x):
    scale = make_kernel()
    scale[(0,)](x, x, 64, BLOCK=64)
    scale[lambda meta: (meta["n"] // meta["BLOCK"], 2)](x, x, 64, BLOCK=64)
    assert [grid for grid, _, _ in printer.launches] == [(1, 2, 1)]


def test_kernel_that_shows_nothing_new_becomes_the_bare_one(printer, x, monkeypatch):
    from tkdebug.runtime.checked import launch_kinds

    monkeypatch.setattr(launch_kinds, "LONGEST_REST", QUIET)
    scale = make_kernel()
    for _ in range(4 * QUIET):
        kernel = scale[(2,)](x, x, 64, BLOCK=64)
    assert kernel.__class__ is NativeKernel
    assert sum(printer.is_checked) == 1
    assert len(printer.launches) == 4 * QUIET


def test_launches_at_rest_are_not_looked_at(printer, x, monkeypatch):
    looked = []
    scale = make_kernel()
    original = CheckedKernel.launch_seen
    monkeypatch.setattr(
        CheckedKernel, "launch_seen", lambda *args: (looked.append(1), original(*args))
    )
    for _ in range(3 * QUIET):
        scale[(2,)](x, x, 64, BLOCK=64)
    assert len(looked) == QUIET + 2
    assert len(printer.launches) == 3 * QUIET


def test_checked_builds_of_one_function_are_bounded(printer, x):
    scale = make_kernel()
    for n in range(MOST_CHECKED_BUILDS + 3):
        scale[(1,)](x, x, 64, BLOCK=16, num_stages=n)
    assert sum(printer.is_checked) == MOST_CHECKED_BUILDS


def test_build_that_fails_leaves_launches_bare(printer, x, monkeypatch, capsys):
    def refuse(self, module, rewriter):
        raise RuntimeError("no room")

    from tkdebug.compiler.passes.insert_checks import InsertChecks

    monkeypatch.setattr(InsertChecks, "run", refuse)
    faults = []
    hook = Hook(fault=faults.append)
    HOOKS.add(hook)
    try:
        make_kernel()[(1,)](x, x, 64, BLOCK=64)
    finally:
        HOOKS.remove(hook)
    assert (printer.is_checked, faults) == ([False], [])
    assert "kernel scale: its launches are not checked" in capsys.readouterr().err


def test_only_kernels_that_are_asked_for_are_checked(printer, x):
    with knobs.scope(only_kernels=("other",)):
        make_kernel()[(1,)](x, x, 64, BLOCK=64)
    assert printer.is_checked == [False]


def test_hooks_hear_of_checked_and_bare_launches(printer, x):
    hashes, marked = [], []
    hook = Hook(
        exit=lambda kernel, record: (
            hashes.append(record.kernel_hash),
            marked.append(record.options.get("checked", False)),
        )
    )
    HOOKS.add(hook)
    try:
        scale = make_kernel()
        for _ in range(3):
            scale[(1,)](x, x, 64, BLOCK=64)
    finally:
        HOOKS.remove(hook)
    assert printer.is_checked == [True, False, False]
    assert marked == printer.is_checked
    assert len(set(hashes)) == 2
    assert hashes[1] == hashes[2]


@pytest.mark.parametrize("policy", ["none", "first", "all"])
def test_static_print_prints_once(printer, policy, capsys, monkeypatch):
    @tkdebug.jit
    def speak(x_ptr, BLOCK: tl.constexpr):
        values = tl.load(x_ptr + tl.arange(0, BLOCK))
        tl.static_print("values", values)
        tl.store(x_ptr + tl.arange(0, BLOCK), values)

    # The bare build is begun at once, as where the checked one takes long.
    monkeypatch.setattr(builds, "_ON_DISK_S", 0.0)
    with knobs.scope(check_launches=policy):
        for size in (64, 65, 64):
            speak[(1,)](torch.zeros(size), BLOCK=64)
            speak[(1,)](torch.zeros(size), BLOCK=64)
    expected = {"none": {False}, "first": {True, False}, "all": {True}}
    assert {*printer.is_checked} == expected[policy]
    assert capsys.readouterr().out.splitlines() == ["values fp32[constexpr[64]]"]


def test_edited_stages_run_as_they_are(printer, x, tmp_path):
    with knobs.scope(override_dir=tmp_path):
        make_kernel()[(1,)](x, x, 64, BLOCK=64)
    assert printer.is_checked == [False]


def test_threads_lose_no_fault(printer, reported, x):
    faults, _ = reported
    printer.finds = overrun(101)
    scale, alike = make_kernel(), make_kernel()

    def launch():
        for kernel in (scale, alike) * 25:
            kernel[(2,)](x, x, 128, BLOCK=64)

    with knobs.scope(check_launches="all"):
        threads = [threading.Thread(target=launch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        CHECKED.conclude()
    assert len(faults) == 200
    assert len({fault.launch_id for fault in faults}) == 200
    assert CHECKED.counts == LaunchCounts(200, 0)
    assert printer.memory.tables == {}


def test_forked_child_has_nothing_to_read(printer, x):
    printer.memory.holds = True
    make_kernel()[(2,)](x, x, 64, BLOCK=64)
    CHECKED.renew_locks()
    CHECKED.conclude()
    assert printer.memory.waited == 0


def test_nothing_of_it_is_loaded_without_checks(printer, x, monkeypatch):
    monkeypatch.setattr(checked_launches.CheckedLaunches, "add", None)
    with knobs.scope(check_launches="none"):
        kernel = make_kernel()[(1,)](x, x, 64, BLOCK=64)
    assert kernel.__class__ is NativeKernel


def test_kernel_that_does_not_compile_says_so_as_without_checks(printer, x):
    @tkdebug.jit
    def wrong(x_ptr):
        tl.store(x_ptr, unknown_name)  # noqa: F821

    faults = []
    hook = Hook(fault=faults.append)
    HOOKS.add(hook)
    try:
        with pytest.raises(CompileError, match="unknown_name") as raised:
            wrong[(1,)](x)
    finally:
        HOOKS.remove(hook)
    errors, error = [], raised.value
    while error is not None:
        errors.append(error)
        error = error.__context__
    assert sum(isinstance(error, CompileError) for error in errors) == 1
    assert [fault.kind for fault in faults] == ["compile-error"]


def test_kernel_of_the_user_in_a_compiled_graph_is_checked_by_position(printer, x):
    scale = make_kernel()
    values = (x, x.clone(), 64, 64)
    alignment = alignment_key(scale.params, values)
    src = scale._specialization(values, {}, alignment)
    kernel = INDUCTOR_COMPILES.kernel(src, 0, Wanted(True))
    for _ in range(2):
        kernel.run(2, 1, 1, 0, None, None, None, None, None, *values)
    with timed_launches():
        kernel.run(2, 1, 1, 0, None, None, None, None, None, *values[:2], 60, 64)
    assert printer.is_checked == [True, False, False]
    bare = INDUCTOR_COMPILES.kernel(src, 0, Wanted(False))
    bare.run(2, 1, 1, 0, None, None, None, None, None, *values)
    assert printer.is_checked == [True, False, False, False]


def test_fault_is_reported_in_the_context_of_its_launch(printer, reported, x):
    faults, _ = reported
    line = ContextVar("line", default="nowhere")
    REFINEMENTS.append(lambda fault: replace(fault, hint=line.get()))
    try:
        printer.finds = overrun(120)
        token = line.set("of the launch")
        make_kernel()[(2,)](x, x.clone(), 200, BLOCK=64)
        line.reset(token)
        CHECKED.collect()
    finally:
        REFINEMENTS.pop()
    assert [fault.hint for fault in faults] == ["of the launch"]


def make_ratio():
    @tkdebug.jit
    def ratio(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        quotient = tl.load(x_ptr + offsets, mask=mask) / tl.load(y_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, quotient, mask=mask)

    return ratio


def stored_nan(program):
    """Have that program, and none before, store a NaN."""

    def finds(plan, bounds):
        slots = [bytes(table_bytes(1))] * len(plan.sites)
        slots[-1] = packed_symptoms({"nan": (program, 0, 0)})
        return b"".join(slots)

    return finds


def test_stored_nan_is_looked_at_again(printer, reported):
    faults, _ = reported
    x, y = torch.zeros(100), torch.ones(100)
    y[90] = 0
    printer.finds = stored_nan(1)
    make_ratio()[(2,)](x, y, torch.zeros(100), 100, BLOCK=64)
    CHECKED.collect()
    (fault,) = faults
    assert (fault.kind, fault.program_id, fault.lane, fault.index) == ("nan", (1, 0, 0), (26,), 90)
    assert "of 0 / 0" in fault.message


@pytest.mark.parametrize("change", ["freed", "changed", "in place"])
def test_stored_nan_of_arguments_that_are_gone_is_no_fault(
    printer, reported, change, capsys, monkeypatch
):
    faults, _ = reported
    x, y, out = torch.zeros(100), torch.zeros(100), torch.zeros(100)
    printer.finds = stored_nan(1)
    printer.memory.holds = True
    monkeypatch.setattr(held_launch, "SAVED_BYTES", 0)
    make_ratio()[(2,)](x, y, x if change == "in place" else out, 100, BLOCK=64)
    if change == "freed":
        del y
    if change == "changed":
        y += 1
    printer.memory.let_end()
    CHECKED.collect()
    assert faults == []
    why = {"freed": "freed", "changed": "changed", "in place": "wrote into what it read"}[change]
    assert why in capsys.readouterr().err


def test_stored_nan_of_reinterpreted_tensors(printer, reported):
    @tkdebug.jit
    def ratio(top, y, out):
        at = tl.arange(0, 32)
        tl.store(out + at, top.load([0]) / tl.load(y + at))

    faults, _ = reported
    x, y = torch.zeros(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    printer.finds = stored_nan(0)
    top = TensorDescriptor(tkdebug.reinterpret(x, tl.uint32), [32], [1], [32])
    ratio[(1,)](top, tkdebug.reinterpret(y, tl.float32), torch.zeros(32))
    del top
    CHECKED.collect()
    (fault,) = faults
    assert (fault.kind, fault.index, fault.count) == ("nan", 0, 32)


def test_nan_that_the_device_did_not_see_is_no_fault(printer, reported):
    faults, _ = reported
    x, y = torch.zeros(100), torch.ones(100)
    y[3] = 0
    printer.finds = stored_nan(1)
    make_ratio()[(2,)](x, y, torch.zeros(100), 100, BLOCK=64)
    CHECKED.collect()
    assert faults == []


@pytest.mark.parametrize(
    ("most", "count", "hint"), [(1 << 16, 1792, ""), (64, 64, "program (100, 0, 0) alone")]
)
def test_stored_nan_of_a_large_launch(printer, reported, monkeypatch, most, count, hint):
    faults, _ = reported
    monkeypatch.setattr(closer_look, "MOST_PROGRAMS", most)
    x, y, out = (torch.zeros(8192) for _ in range(3))
    y[:6400] = 1
    printer.finds = stored_nan(100)
    make_ratio()[(128,)](x, y, out, 8192, BLOCK=64)
    CHECKED.collect()
    (fault,) = faults
    assert (fault.program_id, fault.index, fault.count) == ((100, 0, 0), 6400, count)
    assert hint in fault.hint


def test_access_between_the_elements_of_a_view(printer, reported, x):
    faults, _ = reported
    make_kernel()[(1,)](x[16:96:2], x.clone(), 40, BLOCK=64)
    CHECKED.collect()
    (fault,) = faults
    assert (fault.kind, fault.tensor, fault.index, fault.count) == (
        "between-elements",
        "x_ptr",
        1,
        20,
    )


def test_elements_of_overlapping_windows_are_legal(printer, reported, x):
    faults, _ = reported
    make_kernel()[(1,)](x.unfold(0, 10, 5), x.clone(), 40, BLOCK=64)
    make_kernel()[(1,)](x.as_strided((3, 5), (3, 2)), x.clone(), 2, BLOCK=2)
    CHECKED.collect()
    assert [(fault.kind, fault.index, fault.count) for fault in faults] == [
        ("between-elements", 1, 1)
    ]


def test_stored_nan_of_a_kernel_that_works_in_place(printer, reported):
    faults, _ = reported
    x, y = torch.zeros(100), torch.ones(100)
    y[90] = 0
    printer.finds = stored_nan(1)
    printer.memory.holds = True
    make_ratio()[(2,)](x, y, x, 100, BLOCK=64)
    x += 1
    printer.memory.let_end()
    CHECKED.collect()
    (fault,) = faults
    assert (fault.kind, fault.index) == ("nan", 90)
    assert "of 0 / 0" in fault.message


def make_turned():
    @tkdebug.jit
    def turned(scratch, out, BLOCK: tl.constexpr, WAITS: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        last = tl.program_id(0) * BLOCK + BLOCK - 1
        tl.store(scratch + i, i * 2)
        if WAITS:
            tl.debug_barrier()
        tl.store(out + i, tl.load(scratch + last - tl.arange(0, BLOCK)))

    return turned


def launch_turned(waits=False):
    numbers = torch.zeros(256, dtype=torch.int32)
    make_turned()[(2,)](numbers, numbers.clone(), BLOCK=128, WAITS=waits)
    CHECKED.collect()


def test_threads_that_nothing_orders_are_looked_for_in_a_first_launch(printer, reported):
    faults, _ = reported
    launch_turned()
    (fault,) = faults
    assert (fault.kind, fault.severity, fault.tensor) == ("thread-order", "warning", "scratch")
    assert (fault.program_id, fault.line) == ((0, 0, 0), fault.frames[0].line)
    assert "load reads offset 127 of `scratch`" in fault.message
    assert f"writes at line {fault.line - 3}" in fault.message


def test_threads_that_wait_for_each_other(printer, reported):
    faults, _ = reported
    launch_turned(waits=True)
    assert faults == []


@pytest.mark.parametrize("left_out", [{"ignored_kinds": ("thread-order",)}, {"checks": ("none",)}])
def test_threads_are_not_looked_at_where_that_is_left_out(printer, reported, left_out):
    faults, _ = reported
    with knobs.scope(**left_out):
        launch_turned()
    assert faults == []


def test_threads_are_looked_at_in_the_first_launches_of_a_build(printer, reported):
    faults, _ = reported
    turned = make_turned()
    for programs in range(1, 6):
        numbers = torch.zeros(128 * programs, dtype=torch.int32)
        turned[(programs,)](numbers, numbers.clone(), BLOCK=128, WAITS=False)
        CHECKED.collect()
    assert len(faults) == MOST_LOOKS_AT_THREADS


def test_checks_that_native_kernels_do_without_are_named_once(printer, x, capsys):
    builds._tell_once.cache_clear()
    with knobs.scope(checks=("unwritten-output", "nan")):
        for _ in range(2):
            make_kernel()[(2,)](x, x, 64, BLOCK=64)
    said = "native kernels are not checked for unwritten-output; use `tkdebug run --mode interpret`"
    assert capsys.readouterr().err.count(said) == 1


def test_stored_nan_of_a_view_made_for_the_launch(printer, reported):
    faults, _ = reported
    x, y = torch.zeros(300), torch.ones(200)
    y[90] = 0
    printer.finds = stored_nan(1)
    printer.memory.holds = True
    make_ratio()[(2,)](x[50:], y[:150], torch.zeros(100), 100, BLOCK=64)
    printer.memory.let_end()
    CHECKED.collect()
    assert [(fault.kind, fault.index) for fault in faults] == [("nan", 90)]
