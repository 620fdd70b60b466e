"""Descriptors lowered to pointers: the same memory, the same faults, and no descriptor left."""

from __future__ import annotations

import itertools

import pytest
import torch
from descriptor_kernels import (
    carried_kernel,
    copy_kernel,
    far_kernel,
    reduce_kernel,
    rows_kernel,
    volume_kernel,
)
from lowering_support import run_lowered_too, same_bits

import tkdebug
import tkdebug.language as tl
from tkdebug import TensorDescriptor
from tkdebug.compiler.analysis.axis_info import analyse
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes import PassManager
from tkdebug.compiler.passes.lower_descriptors import LowerDescriptors
from tkdebug.errors import CompileError

PASSES = [LowerDescriptors()]


def check(kernel, grid, *arguments):
    with run_lowered_too(PASSES, same_bits) as modules:
        kernel[grid](*arguments)
    assert modules
    for module in modules:
        assert not any("descriptor" in op.name or "tensordesc" in op.name for op in module.walk())
    return modules[0]


@pytest.mark.parametrize("pad", ["zero", "nan"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float8_e5m2])
@pytest.mark.parametrize(("dy", "dx"), [(0, 0), (-3, -5), (4, 32)])
def test_blocks_that_reach_outside_are_padded_and_cut(dtype, pad, dy, dx):
    source = torch.randn(20, 80).to(dtype)
    target = torch.zeros(20, 80).to(dtype)
    check(copy_kernel, (3, 3), source, target, 17, 70, 80, dy, dx, 8, 32, pad)


@pytest.mark.parametrize(("y", "x"), list(itertools.product((2**31 - 2, -(2**31), 1), repeat=2)))
def test_offsets_near_the_limits_do_not_wrap_into_the_tensor(y, x):
    check(far_kernel, (1,), torch.randn(8, 16), torch.ones(4, 8), 8, 16, y, x)


def test_negative_extents_hold_no_element():
    check(far_kernel, (1,), torch.randn(8, 16), torch.ones(4, 8), -8, 16, 0, 0)


def test_host_descriptors_of_four_axes_some_of_extent_one():
    source, target = torch.randn(3, 4, 5, 16), torch.zeros(3, 4, 5, 16)
    shape = [1, 2, 2, 8]
    module = check(
        volume_kernel,
        (4, 3),
        TensorDescriptor.from_tensor(source, shape),
        TensorDescriptor.from_tensor(target, shape),
    )
    names = module.function.attributes["arg_names"]
    assert names[:9] == ("source.base", *(f"source.{part}{axis}" for part in ("shape", "stride")
                                          for axis in range(4)))  # fmt: skip
    assert len(names) == len(module.function.regions[0].block.arguments)


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_host_descriptors_keep_their_padding(padding):
    source, target = torch.randn(8, 16), torch.zeros(8, 16)

    @tkdebug.jit
    def kernel(source, target):
        target.store([0, 0], source.load([4, 12]))

    described = [TensorDescriptor.from_tensor(t, [8, 16], padding) for t in (source, target)]
    check(kernel, (1,), *described)
    assert bool(target.isnan().any()) == (padding == "nan")


@pytest.mark.parametrize("rounds", [0, 2, 3])
@pytest.mark.parametrize("flag", [False, True])
def test_descriptors_carried_through_loops_and_branches(rounds, flag):
    a, b = torch.randn(8, 16), torch.randn(8, 16)
    check(carried_kernel, (1,), a, b, torch.zeros(64), 8, 16, rounds, flag)


def test_descriptors_of_different_padding_in_one_variable_are_an_error():
    @tkdebug.jit
    def kernel(a, out, flag):
        zero = tl.make_tensor_descriptor(a, [8, 16], [16, 1], [4, 8])
        if flag:
            zero = tl.make_tensor_descriptor(a, [8, 16], [16, 1], [4, 8], padding_option="nan")
        place = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
        tl.store(out + place, zero.load([6, 0]))

    with pytest.raises(CompileError, match="same padding_option"):
        check(kernel, (1,), torch.randn(8, 16), torch.zeros(32), 3)


def test_gathered_and_scattered_rows():
    source, target = torch.randn(10, 24), torch.zeros(10, 24)
    rows = torch.tensor([0, 3, 9, 11, -1, 2, 5, 7], dtype=torch.int32)
    described = [TensorDescriptor.from_tensor(t, [1, 16]) for t in (source, target)]
    check(rows_kernel, (1,), *described, rows)


@pytest.mark.parametrize("kind", ["add", "min", "max", "and", "or", "xor"])
def test_reductions_in_memory(kind):
    start = torch.randint(0, 100, (6, 12), dtype=torch.int32)
    value = torch.randint(0, 100, (4, 8), dtype=torch.int32)
    check(reduce_kernel, (3,), TensorDescriptor.from_tensor(start, [4, 8]), value, f"atomic_{kind}")


@tkdebug.jit
def plain_kernel(source, p, M, N, S, BM: tl.constexpr, BN: tl.constexpr):
    target = tl.make_tensor_descriptor(p, [M, N], [S, 1], [BM, BN])
    y, x = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([y, x], source.load([y, x]))


def test_contiguity_and_alignment_of_accesses_are_visible():
    a = torch.zeros(64, 96, dtype=torch.float16)
    source = TensorDescriptor.from_tensor(a, [16, 64])
    with tkdebug.mode("interpret"):
        module = plain_kernel.warmup(source, a, 64, 96, 96, 16, 64, grid=(1,)).module
    module = parse_module(print_module(module, locations=True))
    function = module.function
    # The descriptor with its shape and strides, a pointer of unknown alignment, M, N, S.
    function.attributes["arg_divisibility"] = (16, 1, 16, 8, 1, 1, 16, 16, 1)
    PassManager(PASSES, verify_each=True, print_after=()).run(module)
    assert function.attributes["arg_divisibility"] == (
        *(16, 1, 16, 8, 1),
        *(1, 16, 8, 1),
        *(1, 16, 16, 1),
    )
    infos = analyse(function)
    ops = {op.name: op for op in module.walk()}
    for name in ("tt.load", "tt.store"):
        pointers = infos[ops[name].operands[0]]
        assert pointers.contiguity[1] == 64
        assert pointers.divisibility[1] >= 16
    for name, place in (("tt.load", 1), ("tt.store", 2)):
        assert infos[ops[name].operands[place]].constancy[1] >= 16
