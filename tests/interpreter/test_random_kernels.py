"""Random kernels: the interpreter against the reference, whole and in batches."""

import random

import pytest
import torch
from differential import compare, load_kernel
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from random_accesses import random_launch
from random_kernels import INPUT_SIZE, KEPT, LANES, OUT_SIZE, Writer

# Hypothesis' default number of kernels per run; set TKDEBUG_RANDOM_KERNELS for more.
EXTREMES = {
    torch.int8: [-128, -1, 0, 1, 127],
    torch.int32: [-(2**31), -1, 0, 1, 2**31 - 1],
    torch.int64: [-(2**63), -1, 0, 1, 2**63 - 1],
    torch.float32: [float("nan"), float("inf"), float("-inf"), -0.0, 1e30, 3.5],
}


def tensor_of(values, dtype, size):
    """Small values mostly, some at the ends of the range."""
    out = torch.tensor([values.randrange(-20, 40) for _ in range(size)]).to(dtype)
    for place in range(0, size, 9):
        ends = EXTREMES[dtype]
        out[place] = ends[values.randrange(len(ends))]
    return out


def arguments(values, grid, rows, cols):
    programs = grid[0] * grid[1]
    a = tensor_of(values, torch.int32, INPUT_SIZE)
    if values.randrange(2):
        a = torch.randint(-20, 40, (2 * INPUT_SIZE,), dtype=torch.int32)[::2]
    io = torch.arange(programs * rows * cols, dtype=torch.int32)
    return [
        a,
        tensor_of(values, torch.int8, INPUT_SIZE),
        tensor_of(values, torch.float32, INPUT_SIZE),
        tensor_of(values, torch.int64, INPUT_SIZE),
        io,
        io,
        values.choice([0, 2, 3, 8, 13, 40]),
        values.choice([2, 7, 16, -3]),
        values.choice([5, 2**33, -(2**40)]),
        torch.zeros(OUT_SIZE, dtype=torch.int32),
        torch.zeros(OUT_SIZE, dtype=torch.float32),
        torch.zeros(OUT_SIZE, dtype=torch.int64),
        torch.zeros(OUT_SIZE, dtype=torch.int8),
        torch.zeros(16, dtype=torch.int32),
        torch.zeros(programs * KEPT * LANES, dtype=torch.int64),
        torch.zeros(programs * KEPT * LANES, dtype=torch.float64),
    ]


def check(seed, folder, statements):
    chooser = random.Random(seed)
    rows, cols = chooser.choice([(8, 8), (4, 16), (16, 4), (2, 8), (1, 8), (8, 1)])
    source = Writer(chooser, rows, cols, statements).write()
    grid = chooser.choice([(1, 1), (5, 1), (3, 2), (1, 4), (7, 3)])
    note(source)
    kernel = load_kernel(folder, source)
    budget = chooser.choice([None, None, 64, 1 << 14, 1 << 16])
    values = arguments(chooser, grid, rows, cols)
    note(f"grid {grid}, budget {budget}, scalars {values[6:9]}")
    compare(kernel, grid, *values, R=rows, C=cols, budget=budget, first=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kernels")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), statements=st.integers(1, 20))
def test_random_kernels_agree_with_the_reference(folder, seed, statements):
    check(seed, folder, statements)


def check_accesses(seed, folder):
    launch = random_launch(random.Random(seed))
    note(launch.source)
    note(launch.described)
    kernel = load_kernel(folder, launch.source)
    # Which zero is the larger depends on the order.
    compare(kernel, launch.grid, *launch.arguments, **launch.options, signed_zeros=False)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_random_accesses_agree_with_the_reference(folder, seed):
    check_accesses(seed, folder)
