"""Checked kernels on a GPU report, fault by fault, what the interpreter finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from probe_kernels import (
    add,
    asserting,
    block_sum,
    described,
    histogram,
    matmul,
    neighbours,
    unmasked,
)
from probe_support import Launch, copy_of, faults_found, launches
from test_probe_symptoms import RUNS as SYMPTOMATIC

from tkdebug import knobs
from tkdebug.compiler.ir import PointerType
from tkdebug.compiler.ir.types import ScalarType
from tkdebug.compiler.probes.bounds import byte_bounds
from tkdebug.compiler.probes.sites import ProbeOptions
from tkdebug.compiler.probes.table import table_bytes
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.nvptx.compile import compile_module
from tkdebug.events import Fault
from tkdebug.interpreter.probe_reports import CheckedLaunch, PassedTensor

pytestmark = pytest.mark.gpu


def on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """The same view of a copy of its allocation, within memory that is filled all around."""
    storage = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    margin = 4096
    whole = torch.zeros(storage.numel() + 2 * margin, dtype=torch.uint8, device="cuda")
    whole[margin : margin + storage.numel()] = storage.cuda()
    count = whole.numel() // tensor.element_size()
    elements = whole[: count * tensor.element_size()].view(tensor.dtype)
    offset = margin // tensor.element_size() + int(tensor.storage_offset())
    return elements.as_strided(tensor.shape, tensor.stride(), offset)


def natively(launch: Launch) -> tuple[list[Fault], list[Any]]:
    """The faults that a checked native launch reports, and what it leaves in memory."""
    import ctypes
    import struct

    from tkdebug.compiler.targets.backend import target_of
    from tkdebug.runtime.cuda import driver_api
    from tkdebug.runtime.cuda.device import device
    from tkdebug.runtime.cuda.module import load_kernel

    torch.zeros(1, device="cuda")
    module = copy_of(launch)
    target = target_of(torch.cuda.get_device_capability())
    binary = compile_module(
        module, NativeOptions(host_tma_descriptors=False, probes=ProbeOptions()), target
    ).binary()
    plan = binary.probes
    assert plan is not None
    loaded = load_kernel(device(0), binary.cubin, binary.entry, binary.threads, binary.shared_bytes)
    values = [
        on_gpu(value) if isinstance(value, torch.Tensor) else value for value in launch.values
    ]
    names = module.function.attributes["arg_names"]
    tensors = {
        name: value
        for name, value in zip(names, values, strict=True)
        if isinstance(value, torch.Tensor)
    }
    table = torch.zeros(table_bytes(len(plan.sites)), dtype=torch.uint8, device="cuda")
    packed = []
    for argument, value in zip(
        plan.module.function.regions[0].block.arguments, values, strict=True
    ):
        if isinstance(argument.type, PointerType):
            packed.append(struct.pack("=Q", value.data_ptr()))
        else:
            assert isinstance(argument.type, ScalarType)
            code = {"i32": "i", "i64": "q", "f32": "f"}[argument.type.name]
            packed.append(struct.pack(f"={code}", value))
    packed.append(struct.pack("=Q", table.data_ptr()))
    for name in plan.bounds:
        packed += [struct.pack("=Q", end) for end in byte_bounds(tensors[name])]
    memory = [ctypes.create_string_buffer(value, 8) for value in packed]
    pointers = (ctypes.c_void_p * len(memory))(*map(ctypes.addressof, memory))
    driver_api.call(
        "cuLaunchKernel", loaded.function, *launch.grid, binary.threads, 1, 1, binary.shared_bytes,
        0, ctypes.addressof(pointers), 0,
    )  # fmt: skip
    torch.cuda.synchronize()
    passed = {name: PassedTensor.of(tensor) for name, tensor in tensors.items()}
    checked = CheckedLaunch(module.name, 0, launch.grid, passed, launch.arguments)
    after = [v.cpu() if isinstance(v, torch.Tensor) else v for v in values]
    return faults_found(plan, bytes(table.cpu().numpy()), checked, launch), after


def check(run: Callable[[], object]) -> list[Fault]:
    """The faults of a launch, which are the interpreter's, and so is the memory."""
    launch = launches(run)[-1]
    faults, after = natively(launch)
    assert faults == launch.faults
    for got, wanted in zip(after, launch.after, strict=True):
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3, equal_nan=True)
    return faults


def test_legal_kernel() -> None:
    x, out = torch.randn(1000), torch.zeros(1000)
    assert check(lambda: add[(1,)](x, x, out, 1000, B=1024)) == []


@pytest.mark.parametrize("size", [103, 104, 117])
def test_wrong_mask(size: int) -> None:
    x, y, out = torch.randn(120), torch.randn(size), torch.zeros(90)
    assert check(lambda: add[(3,)](x, y, out, 117, B=64))


@pytest.mark.parametrize("size", [1000, 1001, 7, 1023])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.float64])
def test_missing_mask(size: int, dtype: torch.dtype) -> None:
    x, out = torch.arange(size).to(dtype), torch.zeros(size + 13, dtype=dtype)
    assert check(lambda: unmasked[(4,)](x, out, B=256))


def test_many_faults_are_counted() -> None:
    x, out = torch.randn(5), torch.zeros(1 << 20)
    (fault,) = check(lambda: unmasked[(1 << 10,)](x, out, B=1024))
    assert fault.count == (1 << 20) - 5


def test_pipelined_loads() -> None:
    a, b = torch.randn(64, 88).half(), torch.randn(88, 32).half()
    c = torch.zeros(128, 32)
    assert check(lambda: matmul[(2,)](a, b, c, 88, M=64, N=32, BK=32))


def test_pipelined_loads_that_stay_inside() -> None:
    a, b = torch.randn(128, 96).half(), torch.randn(96, 32).half()
    c = torch.zeros(128, 32)
    assert check(lambda: matmul[(2,)](a, b, c, 96, M=64, N=32, BK=32)) == []


def test_block_pointer() -> None:
    x, out = torch.randn(10, 40), torch.zeros(16)
    assert check(lambda: block_sum[(1,)](x, out, 10, 40, BM=16, BN=32))


def test_atomics() -> None:
    x = torch.tensor([0, 1, 9, -2, 3, 1], dtype=torch.int32)
    counts = torch.zeros(4, dtype=torch.int32)
    assert check(lambda: histogram[(1,)](x, counts, 6, B=16))


def test_scalars() -> None:
    x, out = torch.randn(8), torch.zeros(8)
    assert check(lambda: neighbours[(8,)](x, out, 8))


def test_view_as_passed() -> None:
    x, out = torch.randn(4, 64)[1:3].reshape(-1)[3:100], torch.zeros(128)
    assert check(lambda: unmasked[(2,)](x, out, B=64))


def test_assertions_and_assumptions_report_and_go_on() -> None:
    x, out = torch.arange(100), torch.zeros(100, dtype=torch.int64)
    assert len(check(lambda: asserting[(2,)](x, out, 90, 70, B=64))) == 1
    assert len(check(lambda: asserting[(2,)](x, out, 3, 2, B=64))) == 2


def test_mask_that_is_true_in_the_whole_tile() -> None:
    x, y, out = torch.randn(128), torch.randn(100), torch.zeros(128)
    (fault,) = check(lambda: add[(2,)](x, y, out, 128, B=64))
    assert "true in all of this tile" in (fault.hint or "")


def test_box_beyond_the_tensor() -> None:
    x, out = torch.randn(20, 32), torch.zeros(30, 32)
    check(lambda: described[(2, 2)](x, out, 30, 32, B=16))


@pytest.mark.parametrize("run", SYMPTOMATIC)
def test_symptoms_and_a_closer_look(run: Callable[[], object]) -> None:
    with knobs.scope(checks=("nan",)):
        launch = launches(run)[-1]
    faults, _ = natively(launch)
    assert faults == launch.faults
    assert faults
