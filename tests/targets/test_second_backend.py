"""The border between tkdebug and its targets: a backend and a platform of this test's own."""

from __future__ import annotations

import linecache
from dataclasses import fields

import pytest
import torch
from schedule_backend import PRINTER, WARP_SIZE, PrinterPlatform, ScheduleBackend

import tkdebug
import tkdebug.language as tl
from tkdebug import knobs
from tkdebug.compiler.targets import backend_of, register_backend, target_of, targets
from tkdebug.compiler.targets.backend import Backend
from tkdebug.compiler.targets.registered_backends import forget_backend
from tkdebug.errors import UnsupportedError
from tkdebug.instrument import add_hook
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.device.platform import GPUTarget, Platform, platform
from tkdebug.runtime.errors import NoDeviceError, OptionValueError, OutOfResources
from tkdebug.runtime.launch.launches_in_flight import InFlight


@pytest.fixture
def printer():
    register_backend(ScheduleBackend())
    device: Platform = PrinterPlatform()
    try:
        with platform(device):
            yield device
    finally:
        forget_backend("schedule")


def make_kernel():
    @tkdebug.jit
    def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2, mask=mask)

    return scale


def source_line(frame):
    return linecache.getline(frame.file, frame.line)


@pytest.fixture
def x():
    return torch.arange(100.0)


def test_kernel_is_compiled_and_launched_by_another_backend(printer, x):
    out = torch.empty_like(x)
    kernel = make_kernel()[(2,)](x, out, 100, BLOCK=64, num_warps=2)
    assert printer.launches == [((2, 1, 1), 7, (x.data_ptr(), out.data_ptr(), 100))]
    schedule = kernel.asm["schedule"].splitlines()
    # 64 elements are too few for more than 2 a thread of 2 warps of 16.
    assert f"tt.load: 2 registers, {WARP_SIZE} lanes, 2 warps" in schedule
    assert schedule.index("tt.store") > schedule.index("arith.mulf: 2 registers, 16 lanes, 2 warps")
    assert kernel.metadata.target == GPUTarget("schedule", 10, WARP_SIZE)
    assert kernel.n_max_threads == PRINTER.threads_per_block
    assert set(kernel.asm) == {"source", "ttir", "ttgir", "schedule"}
    assert "threads_per_warp = 16" in kernel.asm["ttgir"]


def test_layouts_of_another_warp_size_are_verified(printer, x):
    with knobs.scope(verify_each=True):
        make_kernel()[(2,)](x, x, 100, BLOCK=256, num_warps=4)
    assert len(printer.launches) == 1


def test_its_stages_reach_hooks_and_files(printer, x, tmp_path):
    compiled = []
    hook = Hook(compiled=compiled.append)
    HOOKS.add(hook)
    try:
        with knobs.scope(dump_dir=tmp_path):
            make_kernel()[(1,)](x, x, 64, BLOCK=64)
    finally:
        HOOKS.remove(hook)
    (event,) = compiled
    line = 1 + event.artifacts["schedule"].splitlines().index("tt.store")
    assert "tl.store" in source_line(event.op_lines["schedule"][line][-1])
    (folder,) = tmp_path.iterdir()
    assert (folder / "schedule.txt").read_text() == event.artifacts["schedule"]
    assert not (folder / "kernel.ptx").exists()


def test_limits_and_options_are_the_targets(printer, x):
    with pytest.raises(OutOfResources) as error:
        make_kernel()[(1,)](x, x, 64, BLOCK=64, num_warps=16)
    assert (error.value.required, error.value.limit) == (256, PRINTER.threads_per_block)
    with pytest.raises(OptionValueError, match="printers have no clusters"):
        make_kernel()[(1,)](x, x, 64, BLOCK=64, num_ctas=2)


def test_mode_auto_is_native_where_its_device_is(printer):
    assert tkdebug.current_mode() == "native"
    with tkdebug.mode("interpret"):
        assert tkdebug.current_mode() == "interpret"


def test_its_targets_are_found_by_name(printer):
    assert target_of("printer1") is PRINTER
    assert list(targets())[-1] == "printer1"
    with pytest.raises(
        UnsupportedError, match="printer9 prints nothing; use `tkdebug run --mode interpret`"
    ):
        target_of("printer9")


def test_kernel_of_one_backend_is_not_launched_by_another(printer, x):
    kernel = make_kernel()[(1,)](x, x, 64, BLOCK=64)
    nvidia: Backend = backend_of(target_of("sm_90a"))

    class OtherPlatform(PrinterPlatform):
        pass

    other = OtherPlatform(backend=nvidia.name)
    with platform(other), pytest.raises(NoDeviceError, match="it is for printer1"):
        kernel[(1,)](x, x, 64, 64)
    assert other.launches == []


@pytest.fixture
def packing(printer, tmp_path):
    """A recorder to which native launches are packed, as where CUPTI times them."""
    recorder = Recorder(tmp_path / "run.tkd", output=False).start()
    with KNOBS.scope(cupti=False):
        recorder._gpu_used(None)
    HOOKS.time_natively(recorder._hook, False)
    yield recorder
    recorder.stop(0)


def recorded(recorder):
    recorder.stop(0)
    with Session.open(recorder.path) as session:
        return session.launches_in_order()


def test_launches_are_packed_without_a_record_of_each(packing, x, monkeypatch):
    kernel = make_kernel()
    monkeypatch.setattr(Recorder, "_on_exit", None)
    for n in (100, 50):
        kernel[(2, 3)](x, x, n, BLOCK=64)
    first, second = recorded(packing)
    assert (first.kernel, first.grid, first.stream) == ("scale", (2, 3, 1), 7)
    assert [(a.name, a.type, a.value, a.shape) for a in second.arguments] == [
        ("x_ptr", "*fp32", "a tensor of torch.float32", (100,)),
        ("out_ptr", "*fp32", "a tensor of torch.float32", (100,)),
        ("n", "i32", "50", None),
        ("BLOCK", "constexpr", "64", None),
    ]


def test_launch_is_the_same_with_a_record_and_packed(packing, x):
    kernel = make_kernel()
    kernel[(2,)](x, x, 100, BLOCK=64)
    with add_hook(enter=lambda kernel, record: None):
        assert HOOKS.packer is None
        kernel[(2,)](x, x, 100, BLOCK=64)
    one, other = recorded(packing)
    unlike = {"seq", "revision", "id", "start_ns", "duration_ns", "time_source"}
    for field in fields(one):
        if field.name not in unlike:
            assert getattr(one, field.name) == getattr(other, field.name), field.name


def test_packed_launch_that_fails_has_its_error(packing, printer, x, monkeypatch):
    compiled = make_kernel()
    kernel = compiled[(1,)](x, x, 64, BLOCK=64)

    def refuse(*arguments):
        raise NoDeviceError("gone")

    monkeypatch.setattr(kernel, "submit", refuse)
    with pytest.raises(NoDeviceError):
        compiled[(1,)](x, x, 64, BLOCK=64)
    assert [one.error for one in recorded(packing)] == [None, "NoDeviceError: gone"]


def test_packed_launches_in_flight_are_known(packing, x, monkeypatch):
    flights = InFlight()
    flights.is_on = True
    monkeypatch.setattr("tkdebug.runtime.launch.launch_writer.IN_FLIGHT", flights)
    kernel = make_kernel()[(2,)](x, x, 100, BLOCK=64)
    (flight,) = flights.latest
    assert (flight.kernel, flight.grid) == (kernel, (2, 1, 1))
    assert flight.values == (x.data_ptr(), x.data_ptr(), 100)
    assert (flight.stream, flight.had_ended()) == (7, False)
    assert flight.caller is not None
    assert flight.caller.function == "test_packed_launches_in_flight_are_known"


def test_packed_launches_in_flight_hold_on_to_no_descriptor(packing, x, monkeypatch):
    flights = InFlight()
    flights.is_on = True
    monkeypatch.setattr("tkdebug.runtime.launch.launch_writer.IN_FLIGHT", flights)

    @tkdebug.jit
    def scale(x_ptr, desc, factor, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) * factor)

    for descriptor, factor in ((tkdebug.TensorDescriptor.from_tensor(x, [4]), 2), (3, True)):
        scale[(1,)](x, descriptor, factor, BLOCK=64)
    assert [flight.values for flight in flights.latest] == [
        (x.data_ptr(), None, 2),
        (x.data_ptr(), 3, True),
    ]
