"""Random kernels report by their checks what the Tile IR interpreter finds, field by field."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from check_support import Launch, launches, reported
from machine_launches import by_ptx
from native_launches import natively
from random_checked_kernels import RandomKernel, random_kernel

from tkdebug.records.events import Fault

SEEDS = 24
PTX_SEEDS = 20
NATIVE_SEEDS = 60


def launched(case: RandomKernel, path: Path):
    path.write_text(case.text, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return launches(lambda: module.kernel[case.grid](*case.arguments, **case.constants))[-1]


def of_bounds(faults: list[Fault]) -> list[Fault]:
    return [fault for fault in faults if fault.kind.startswith("oob-")]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_kernel_reports_what_is_interpreted(seed: int, tmp_path: Path) -> None:
    case = random_kernel(seed)
    launch = launched(case, tmp_path / f"random_kernel_{seed}.py")
    faults, after = reported(launch, ("sm_80", "sm_90a")[seed % 2])
    wanted = sorted(of_bounds(launch.faults), key=str)
    assert sorted(of_bounds(faults), key=str) == wanted, case.text
    for got, expected in zip(after, launch.after, strict=True):
        if isinstance(expected, torch.Tensor):
            assert torch.equal(got, expected), case.text


@pytest.mark.parametrize("first", range(0, PTX_SEEDS, 4))
def test_random_kernels_report_by_ptx(first: int, tmp_path: Path) -> None:
    target = ("sm_80", "sm_90a")[first // 4 % 2]
    run = partial(by_ptx, target=target, knows_ends=first < 8)
    check_code(range(first, first + 4), run, tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("first", range(0, NATIVE_SEEDS, 20))
def test_random_kernels_report_natively(first: int, tmp_path: Path) -> None:
    run = partial(natively, knows_ends=first != 0)
    check_code(range(first, first + 20), run, tmp_path)


def check_code(
    seeds: Iterable[int], run: Callable[[Launch], tuple[list[Fault], list[Any]]], tmp_path: Path
) -> None:
    for seed in seeds:
        case = random_kernel(seed)
        launch = launched(case, tmp_path / f"random_kernel_{seed}.py")
        faults, after = run(launch)
        wanted = sorted(of_bounds(launch.faults), key=str)
        assert sorted(of_bounds(faults), key=str) == wanted, case.text
        for got, expected in zip(after, launch.after, strict=True):
            if isinstance(expected, torch.Tensor):
                assert torch.equal(got, expected), case.text


def test_random_kernels_have_faults_of_every_kind(tmp_path: Path) -> None:
    kinds = {
        fault.kind
        for seed in range(0, SEEDS, 3)
        for fault in launched(random_kernel(seed), tmp_path / f"kernel_{seed}.py").faults
    }
    assert kinds >= {"oob-load", "oob-store", "oob-atomic"}
