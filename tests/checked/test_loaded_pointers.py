"""Pointers that kernels load: checked GPU IR reports what the interpreter finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from check_support import copy_of, launches, reported
from native_support import needs_codegen
from pointer_kernels import counted, elements, grouped_gemm, loaded_blocks, row_sums, scaled_rows
from test_checked_code import accesses, llvm_ir

import tkdebug
from tkdebug.compiler.sites.checks import BOUNDS_KINDS, CheckOptions
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.compile import compile_module
from tkdebug.interpreter.memory.address_registry import watch_addresses

targets = pytest.mark.parametrize("target", ["sm_80", "sm_90a"])


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    stop = watch_addresses()
    yield
    stop()


def addresses(*tensors: torch.Tensor) -> torch.Tensor:
    return torch.tensor([tensor.data_ptr() for tensor in tensors])


def check(run, target: str) -> list[tkdebug.Fault]:
    """The faults of the last launch, which its GPU IR reports too."""
    launch = launches(run)[-1]
    faults, after = reported(launch, target)
    assert faults == launch.faults
    for got, wanted in zip(after, launch.after, strict=True):
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(got, wanted, equal_nan=True)
    return faults


@targets
def test_legal_pointers_report_nothing(target: str) -> None:
    rows = [torch.randn(50), torch.randn(40)]
    assert check(lambda: row_sums[(2,)](addresses(*rows), torch.zeros(2), 40, B=64), target) == []


@targets
def test_row_of_a_shorter_tensor(target: str) -> None:
    rows = [torch.randn(50), torch.randn(40), torch.randn(50)]
    (fault,) = check(lambda: row_sums[(3,)](addresses(*rows), torch.zeros(3), 50, B=64), target)
    assert (fault.kind, fault.program_id, fault.lane) == ("oob-load", (1, 0, 0), (40,))
    assert (fault.index, fault.legal, fault.count) == (40, (0, 40), 10)


@targets
def test_freed_tensor_is_told_as_such(target: str) -> None:
    kept = torch.randn(50)
    table = addresses(kept, torch.empty(1 << 20))
    (fault,) = check(lambda: row_sums[(2,)](table, torch.zeros(2), 50, B=64), target)
    assert (fault.kind, fault.program_id, fault.count) == ("oob-load", (1, 0, 0), 50)
    assert "belongs to no tensor" in fault.message
    assert "a torch.float32 tensor of shape [1048576], which is freed" in (fault.hint or "")


@targets
def test_address_of_nothing(target: str) -> None:
    table = torch.zeros(1, dtype=torch.int64)
    (fault,) = check(lambda: row_sums[(1,)](table, torch.zeros(1), 50, B=64), target)
    assert (fault.index, fault.count) == (0, 50)


@targets
def test_pointers_that_a_loop_moves(target: str) -> None:
    rows = [torch.zeros(64), torch.zeros(56)]
    faults = check(lambda: scaled_rows[(2,)](addresses(*rows), 64, B=16), target)
    assert [(f.kind, f.index, f.count) for f in faults] == [
        ("oob-load", 56, 8),
        ("oob-store", 56, 8),
    ]


@targets
def test_atomics(target: str) -> None:
    bins = torch.zeros(24, dtype=torch.int32)
    (fault,) = check(lambda: counted[(1,)](addresses(bins), B=32), target)
    assert (fault.kind, fault.index, fault.count) == ("oob-atomic", 24, 8)


@targets
def test_a_pointer_for_each_element(target: str) -> None:
    x = torch.arange(16.0)
    table = x.data_ptr() + 4 * torch.arange(16)
    table[5] = 8
    (fault,) = check(lambda: elements[(1,)](table, torch.zeros(16), B=16), target)
    assert (fault.kind, fault.lane, fault.index, fault.count) == ("oob-load", (5,), 8, 1)


@targets
def test_grouped_gemm(target: str) -> None:
    whole = [torch.randn(32, 64).half(), torch.randn(64, 32).half(), torch.zeros(32, 32).half()]
    short = [torch.randn(32, 64).half(), torch.randn(48, 32).half(), torch.zeros(32, 32).half()]
    strides = torch.tensor([64, 32, 32], dtype=torch.int32)
    (fault,) = check(
        lambda: grouped_gemm[(2,)](addresses(*whole, *short), strides, 64, M=32, N=32, BK=32),
        target,
    )
    assert (fault.program_id, fault.lane, fault.count) == ((1, 0, 0), (16, 0), 16 * 32)
    assert fault.index == 48 * 32


def _gemm() -> None:
    tiles = [torch.randn(32, 64).half(), torch.randn(64, 32).half(), torch.zeros(32, 32).half()]
    strides = torch.tensor([64, 32, 32], dtype=torch.int32)
    grouped_gemm[(1,)](addresses(*tiles), strides, 64, M=32, N=32, BK=32)


def _each() -> None:
    x = torch.arange(16.0)
    elements[(1,)](x.data_ptr() + 4 * torch.arange(16), torch.zeros(16), B=16)


@pytest.mark.parametrize("run", [_gemm, _each])
def test_accesses_stay_as_wide(run) -> None:
    bare = accesses(llvm_ir(run, "sm_90a", None))
    checked = accesses(llvm_ir(run, "sm_90a", CheckOptions(frozenset(BOUNDS_KINDS))))
    searches = checked.pop("ld.global.u64")
    assert searches >= 4
    # Where the scalars do not tell, the same accesses are made of good elements alone.
    assert {name: bare[name] for name in checked} == dict(bare)


def test_a_pointer_is_looked_up_once_where_it_is_loaded() -> None:
    text = llvm_ir(_gemm, "sm_90a", CheckOptions(frozenset(BOUNDS_KINDS)))
    assert text.count("CHECK_HALF:") == 3
    each = llvm_ir(_each, "sm_90a", CheckOptions(frozenset(BOUNDS_KINDS)))
    assert each.count("CHECK_HALF:") == 1


@needs_codegen
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_120a"])
def test_checked_code_assembles(target: str) -> None:
    module = copy_of(launches(_gemm)[-1])
    compiled = compile_module(module, NativeOptions(checks=CheckOptions()), TARGETS[target])
    assert not compiled.code.warnings
    plan = compiled.binary().checks
    assert plan is not None
    assert plan.takes_map
    tested = [test for site, test in zip(plan.sites, plan.tests, strict=True) if site.is_loaded]
    assert tested == ["tile", "tile", "tile"]


SOURCES = [torch.randn(16, 64).half(), torch.randn(12, 64).half()]


def _blocks(rows: int) -> None:
    loaded_blocks[(2,)](addresses(*SOURCES), torch.zeros(64, 64).half(), rows, B=16)


@targets
def test_block_partly_outside_of_its_descriptor_is_legal(target: str) -> None:
    assert check(lambda: _blocks(12), target) == []


def test_block_of_a_loaded_address_outside_of_its_tensor() -> None:
    """Not for bulk copies: these stay in the shape that the descriptor was given."""
    (fault,) = check(lambda: _blocks(16), "sm_80")
    assert (fault.kind, fault.program_id, fault.count) == ("oob-load", (1, 0, 0), 4 * 64)


@needs_codegen
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_checked_blocks_of_loaded_addresses_assemble(target: str) -> None:
    module = copy_of(launches(lambda: _blocks(16))[-1])
    compiled = compile_module(module, NativeOptions(checks=CheckOptions()), TARGETS[target])
    assert not compiled.code.warnings
