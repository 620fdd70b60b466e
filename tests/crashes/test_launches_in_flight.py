"""The launch that crashed, and the message where it is not known."""

import os
import re
import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest
from dumps import LINES, dump_bytes

import tkdebug
import tkdebug.language as tl
from tkdebug.compat.gpu_failures.crashes import ArmedCoreDumps, CrashWatch
from tkdebug.compiler.analysis.tensor_maps import TensorMap
from tkdebug.linemap.nvidia.core_dumps import decode_core_dump
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.cuda import crash_dumps
from tkdebug.runtime.cuda.crashes import could_be, faults_of, no_dump_fault
from tkdebug.runtime.launch.launches_in_flight import InFlight

DUMP = decode_core_dump(dump_bytes("program"))
(GRID,) = DUMP.grids
X, OUT, FAR = struct.unpack("<QQq", GRID.parameters)


@tkdebug.jit
def one_program(x, o, far, BLOCK: tl.constexpr):
    pass


def kernel(name="one_program", function=GRID.function):
    pointer = tl.pointer_type(tl.float32)
    source = SimpleNamespace(fn=one_program, specs=[pointer, pointer, tl.int64, tl.int32])
    binary = SimpleNamespace(
        entry=name, ptx_ops={}, tensor_maps={}, made_maps=(), workspace_bytes=0, checks=None
    )
    return SimpleNamespace(
        name=name, function=function, module=GRID.module, binary=binary, src=source
    )


def flying(*launches):
    """Launches 1, 2, …: each (kernel, grid, arguments, time it was seen to have ended)."""
    flights = InFlight()
    for number, (what, grid, values, settled_s) in enumerate(launches, start=1):
        span = SimpleNamespace(settled_ns=settled_s and settled_s * 1_000_000_000)
        flights.add(what, SimpleNamespace(id=number, grid=grid, device_ns=span, stream=0), values)
    return flights


KERNEL = kernel()
SAME = (KERNEL, (1, 4, 1), (X, OUT, FAR), None)


def fault_of(*launches):
    (fault,) = faults_of(DUMP, flying(*launches))
    return fault


@pytest.mark.parametrize(
    "other",
    [
        (KERNEL, (1, 4, 1), (X, OUT, 0), None),
        (KERNEL, (1, 4, 1), (X + 4, OUT, FAR), None),
        (KERNEL, (1, 5, 1), (X, OUT, FAR), None),
        (kernel("other", function=1), (1, 4, 1), (X, OUT, FAR), None),
        (KERNEL, (1, 4, 1), (X, OUT, FAR), DUMP.time_s - 1),
    ],
    ids=["scalar", "address", "grid", "kernel", "ended"],
)
def test_launch_is_distinguished_from_others(other):
    fault = fault_of(other, other, SAME, other, other)
    assert fault.launch_id == 3
    assert "launch 3 (" in fault.message


@tkdebug.jit
def described(n, desc, far):
    pass


@pytest.mark.parametrize("far", [77, 78])
def test_arguments_behind_a_tensor_map_are_found(far):
    type_ = tl.tensor_descriptor_type(tl.block_type(tl.float16, (8, 32)))
    source = SimpleNamespace(fn=described, specs=[tl.int32, type_, tl.int64])
    maps = {1: TensorMap("f16", (8, 32), 64, "zero")}
    binary = SimpleNamespace(
        entry="k", ptx_ops={}, tensor_maps=maps, made_maps=(), workspace_bytes=0, checks=None
    )
    made = SimpleNamespace(**{**vars(KERNEL), "src": source, "binary": binary})
    # A tensor map is aligned to 64 bytes; shape and strides follow it, twice.
    dims = struct.pack("<4q2i2q", 8, 32, 32, 1, 8, 32, 32, 1)
    parameters = struct.pack("<i60x128s", 5, b"map") + dims + struct.pack("<q", 77)
    flights = InFlight()
    record = SimpleNamespace(id=1, grid=GRID.size, device_ns=None, stream=0)
    flights.add(made, record, (5, object(), far))
    (flight,) = flights.latest
    assert could_be(flight, replace(GRID, parameters=parameters)) is (far == 77)


def test_launch_seen_to_end_after_the_crash_may_be_the_one():
    fault = fault_of((*SAME[:3], DUMP.time_s + 1))
    assert fault.launch_id == 1


def test_launches_that_nothing_tells_apart_are_all_named():
    fault = fault_of(SAME, SAME)
    assert fault.launch_id == 0
    assert "one of 2 launches with the same arguments: launch 1, launch 2" in fault.message


def test_arguments_that_are_not_kept_do_not_rule_a_launch_out():
    assert fault_of((KERNEL, (1, 4, 1), (object(), OUT, FAR), None)).launch_id == 1


def test_launch_of_nobody_we_know_is_said_so():
    assert "no launch of tkdebug's that is known" in fault_of().message


def test_launch_of_a_store_whose_block_is_not_known_is_sought_by_its_kernel():
    dump = decode_core_dump(dump_bytes("store"))
    module = dump.place_of(dump.stops[0].pc).module
    storing = SimpleNamespace(**{**vars(kernel("store_far")), "module": module})
    launch = (storing, (1, 1, 1), (X, OUT, FAR), None)
    assert faults_of(dump, flying(SAME, launch))[0].launch_id == 2
    assert "one of 2 launches in flight" in faults_of(dump, flying(launch, launch))[0].message


def test_without_a_dump_the_launches_in_flight_are_named():
    ended = (*SAME[:3], 1)
    fault = no_dump_fault("CUDA_ERROR_ILLEGAL_ADDRESS", flying(ended, SAME, SAME))
    assert (fault.kind, fault.kernel, fault.frames) == ("cuda-error", "one_program", ())
    (made,) = re.findall(r"in flight: launch 2 \((.+?)\), launch 3 \(.+?\); `", fault.message)
    assert re.fullmatch(r"one_program, test_launches_in_flight.py:\d+", made)
    assert fault.message.endswith("; `tkdebug run --coredump` names the source line")


@pytest.fixture
def arms(monkeypatch):
    monkeypatch.setattr(crash_dumps, "driver_version", lambda: 13000)
    for name in list(os.environ):
        if name.startswith(("CUDA_COREDUMP", "CUDA_ENABLE_COREDUMP")):
            monkeypatch.delenv(name)
    armed = ArmedCoreDumps()
    yield armed
    armed.disarm()


def test_arming_sets_the_drivers_variables_and_disarming_restores_them(arms):
    arms.arm(coredump=True)
    assert os.environ["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] == "1"
    folder = os.path.dirname(os.environ["CUDA_COREDUMP_FILE"])
    assert os.stat(folder).st_mode & 0o077 == 0
    assert "skip_abort" in os.environ["CUDA_COREDUMP_GENERATION_FLAGS"]
    arms.disarm()
    assert not any("COREDUMP" in name for name in os.environ)
    assert not os.path.exists(folder)


def test_variables_of_the_user_stay(arms, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_COREDUMP_FILE", str(tmp_path / "mine.%p"))
    monkeypatch.setenv("CUDA_COREDUMP_GENERATION_FLAGS", "skip_abort")
    arms.arm(coredump=True)
    assert os.environ["CUDA_COREDUMP_FILE"] == str(tmp_path / "mine.%p")
    assert os.environ["CUDA_COREDUMP_GENERATION_FLAGS"] == "skip_abort"
    path = tmp_path / f"mine.{os.getpid()}"
    path.write_bytes(dump_bytes("trap"))
    arms.conclude()
    assert path.exists()


def test_driver_that_knows_no_flags_is_not_asked_for_dumps(arms, monkeypatch, capsys):
    monkeypatch.setattr(crash_dumps, "driver_version", lambda: 12040)
    arms.arm(coredump=True)
    assert not any(name.startswith("CUDA") and "COREDUMP" in name for name in os.environ)
    assert arms.watch.dumps() == []
    assert "this driver is too old" in capsys.readouterr().err


@pytest.mark.parametrize("by", ["user", "option"])
def test_dumps_that_are_switched_off_stay_off(arms, monkeypatch, by):
    if by == "user":
        monkeypatch.setenv("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "0")
    arms.arm(coredump=by == "user")
    assert os.environ.get("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "0") == "0"
    assert "CUDA_COREDUMP_FILE" not in os.environ


def test_dump_is_reported_once_and_deleted(tmp_path):
    watch = CrashWatch(str(tmp_path / "%p.core"), owned=True)
    assert watch.dumps() == []
    path = tmp_path / f"{os.getpid()}.core"
    path.write_bytes(dump_bytes("trap"))
    faults = []
    hook = Hook(fault=faults.append)
    HOOKS.add(hook)
    try:
        watch.conclude()
        watch.conclude()
    finally:
        HOOKS.remove(hook)
    assert [(fault.kind, fault.line) for fault in faults] == [("trap", LINES["crash: trap"])]
    assert not path.exists()


def test_dump_of_an_earlier_run_is_no_crash(tmp_path):
    path = tmp_path / "mine.core"
    path.write_bytes(dump_bytes("trap"))
    assert CrashWatch(str(path), owned=False).dumps() == []


def test_dump_that_a_child_left_is_reported(tmp_path):
    watch = CrashWatch(str(tmp_path / "%p.core"), owned=True)
    (tmp_path / "1.core").write_bytes(dump_bytes("trap"))
    faults = []
    hook = Hook(fault=faults.append)
    HOOKS.add(hook)
    try:
        watch.conclude_children()
    finally:
        HOOKS.remove(hook)
    assert [fault.line for fault in faults] == [LINES["crash: trap"]]


def test_damaged_dump_is_one_line(tmp_path, capsys):
    watch = CrashWatch(str(tmp_path / "%p.core"), owned=True)
    (tmp_path / f"{os.getpid()}.core").write_bytes(dump_bytes("trap")[:5000])
    watch.conclude()
    printed = capsys.readouterr().err
    assert printed.startswith("tkdebug: GPU core dump: ")
    assert "cut short" in printed
    assert printed.count("\n") == 1


def test_grid_of_clusters_names_the_cluster_as_program():
    (stop,) = DUMP.stops
    grid = replace(GRID, cluster_size=(2, 1, 1))
    clustered = replace(stop, grid=grid, cluster=(7, 1, 0))
    (fault,) = faults_of(replace(DUMP, stops=(clustered,)))
    assert fault.program_id == (7, 1, 0)
