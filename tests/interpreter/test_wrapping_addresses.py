"""Addresses wrap in 64 bits, as on a GPU, and what wraps back into a tensor is in it."""

import pytest
import torch
from differential import run

import tkdebug
import tkdebug.language as tl
from tkdebug.checks import DEFAULT_CHECKS
from tkdebug.knobs import KNOBS
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor

N, WIDTH = 16, 8


@tkdebug.jit
def by_constants(x, out, HALF: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + HALF + i + HALF, tl.load(x + HALF + HALF + i))


@tkdebug.jit
def by_arguments(x, out, HALF, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i + HALF + HALF, tl.load((x + i + HALF) + HALF))


@tkdebug.jit
def by_programs(x, out, HALF, N: tl.constexpr):
    i = tl.arange(0, N)
    far = tl.program_id(0).to(tl.int64) * HALF
    tl.store((out + far + i) + far, tl.load(x + i + far + far), mask=i >= 0)


@tkdebug.jit
def by_elements(x, out, HALF, N: tl.constexpr):
    i = tl.arange(0, N)
    far = tl.load(HALF + (i & 1))
    tl.store(out + i + far + far, tl.load((x + far + i) + far))


@tkdebug.jit
def by_steps(x, out, HALF: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    step = (HALF // (N // 2)) * 2  # N steps are 2 * HALF
    tl.store(out + i, tl.load(x + i + i * step + (N - i) * step))


@tkdebug.jit
def rows_of_one_part(x, out, sums, FAR: tl.constexpr):
    first = FAR + 4 * tl.program_id(0)
    rows = x.load([FAR, first, 0])
    out.store([FAR, first, 0], rows)
    sums.atomic_add([FAR, first, 0], rows)


KERNELS = [by_constants, by_arguments, by_programs, by_elements, by_steps]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_pointers_wrap(kernel, dtype):
    x, out = torch.arange(N).to(dtype), torch.zeros(N, dtype=dtype)
    half = (1 << 63) // x.element_size()
    given = torch.tensor([half, -half]) if kernel is by_elements else half
    programs = 2 if kernel is by_programs else 1
    with KNOBS.scope(checks=DEFAULT_CHECKS):
        faults = run(kernel, (programs, 1, 1), x, out, given, N=N)
    assert (faults, out.tolist()) == ([], x.tolist())


@pytest.mark.parametrize("kernel", KERNELS[:3], ids=lambda kernel: kernel.__name__)
def test_what_wraps_to_another_place_is_out_of_bounds(kernel):
    half = (1 << 62) // 4
    faults = run(kernel, (2, 1, 1), torch.ones(N), torch.zeros(N), half, N=N)
    assert {fault.kind for fault in faults} == {"oob-load", "oob-store"}


def parts(tensor, end):
    """A descriptor of the rows before `end`, that wraps where both first places are 2**30."""
    far = 1 << 30
    strides = [(1 << 34) - WIDTH, WIDTH, 1]
    return TensorDescriptor(tensor, [2 * far - 1, far + end, WIDTH], strides, [1, 4, WIDTH])


@pytest.mark.parametrize("end", [5, 8])
def test_descriptors_wrap_and_mask_rows_off(end):
    x = torch.arange(1.0, 1 + 9 * WIDTH).view(9, WIDTH)
    out, sums = torch.zeros(9, WIDTH), torch.ones(9, WIDTH)
    with KNOBS.scope(checks=DEFAULT_CHECKS):
        tensors = (parts(tensor, end) for tensor in (x, out, sums))
        assert run(rows_of_one_part, (2, 1, 1), *tensors, FAR=1 << 30) == []
    x[end:] = 0
    assert torch.equal(out, x)
    assert torch.equal(sums, x + 1)
