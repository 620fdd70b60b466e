"""Configurations of tuners by the bits that they give: as brute force has it."""

from __future__ import annotations

import pytest
import torch
from kept_launches import keeping

import tkdebug
import tkdebug.language as tl
from tkdebug.interpreter.launch import run_module
from tkdebug.runtime.arguments.specialize import runtime_values
from tkdebug.variations.diverge_report import Diverged, diverge_text
from tkdebug.variations.divergence import Divergence
from tkdebug.variations.ways import gpu_ir

TARGET = "sm_90a"


def configs(name, *sizes, warps=(1, 4)):
    return [tkdebug.Config({name: size}, num_warps=w) for size in sizes for w in warps]


@tkdebug.autotune(configs=configs("BLOCK", 32, 64), key=["n"])
@tkdebug.jit
def row_sums(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n, BLOCK):
        total += tl.sum(tl.load(x_ptr + row * n + start + tl.arange(0, BLOCK)) * 1.01)
    tl.store(y_ptr + row, total)


@tkdebug.autotune(configs=configs("BLOCK", 32, 64, 128), key=["n"])
@tkdebug.jit
def shifted(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) + 0.1, at < n)


@tkdebug.autotune(configs=configs("BLOCK", 16, 32, 64, warps=(4,)), key=["n"])
@tkdebug.jit
def products(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + tl.arange(0, BLOCK))
        total += tl.sum(x * x)
    tl.store(y_ptr, total)


@tkdebug.autotune(configs=configs("BLOCK", 32, 64, warps=(4,)), key=["n"])
@tkdebug.jit
def largest(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    top = -float("inf")
    for start in range(0, n, BLOCK):
        top = tl.maximum(top, tl.max(tl.load(x_ptr + start + tl.arange(0, BLOCK))))
    tl.store(y_ptr, top)


@tkdebug.autotune(configs=configs("BLOCK", 32, 64, warps=(4,)), key=["n"])
@tkdebug.jit
def by_program(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) + program)


def grid(meta):
    return (256 // meta["BLOCK"],)


CASES = [
    (row_sums, (4,), (4, 256), 4),
    (shifted, grid, (256,), 256),
    (products, (1,), (256,), 1),
    (largest, (1,), (256,), 1),
    (by_program, grid, (256,), 256),
]


def kept_launch(kernel, asked, shape, size):
    torch.manual_seed(0)
    with keeping() as keeper:
        kernel[asked](torch.randn(shape), torch.empty(size), 256)
    return keeper.kept[0]


def by_brute_force(kept):
    """The configurations, each run for itself, in groups whose outputs have the same bits."""
    groups = []
    for config in kept.request.configs:
        launch = kept.again({}, config)
        values = launch.fresh()
        module = gpu_ir(launch, TARGET)
        assert run_module(module, runtime_values(launch.src.specs, values), launch.grid) == []
        bits = values[1].view(torch.int32)
        for known, names in groups:
            if torch.equal(known, bits):
                names.append(config.brief)
                break
        else:
            groups.append((bits, [config.brief]))
    return tuple(tuple(names) for _, names in groups)


@pytest.mark.parametrize("case", CASES, ids=[case[0].base_fn.__name__ for case in CASES])
def test_classes_of_equal_bits_are_those_of_brute_force(case):
    kept = kept_launch(*case)
    classes = Divergence(kept, TARGET, 30.0).classes()
    assert classes.names == by_brute_force(kept)
    assert not classes.refused
    assert len(classes.parted) == len(classes.names) - 1


def test_order_of_summation_is_told_from_another_value():
    sums = Divergence(kept_launch(*CASES[2]), TARGET, 30.0).classes()
    assert len(sums.names) > 1
    assert all(one.difference is None for one in sums.parted)
    # Tile IR adds up the same; each thread adds up what it holds only after a pass.
    assert "sink-reductions changes the bits" in sums.parted[0].note
    rows = Divergence(kept_launch(*CASES[0]), TARGET, 30.0).classes()
    assert any("summed in another order" in one.note for one in rows.parted)
    kept = kept_launch(*CASES[4])
    numbers = Divergence(kept, TARGET, 30.0).classes()
    (parted,) = numbers.parted
    assert parted.difference is not None
    assert parted.op == "arith.addf"
    row = Diverged(kept, (), numbers)
    assert "2 configurations, 2 classes of equal bits" in "".join(diverge_text([row]))
    assert row.differs(counts_bits=False)
    assert not Diverged(kept, (), sums).differs(counts_bits=False)
    assert Diverged(kept, (), sums).differs(counts_bits=True)


def test_kernel_without_a_tuner_has_no_classes():
    @tkdebug.jit
    def plain(x_ptr):
        tl.store(x_ptr, 1.0)

    with keeping() as keeper:
        plain[(1,)](torch.empty(1))
    assert Divergence(keeper.kept[0], TARGET, 30.0).classes() is None
