"""Tensor maps that programs make: chosen where they fit, right after every pass, compiled."""

from __future__ import annotations

import re

import pytest
import torch
from kernel_map_kernels import (
    batch_kernel,
    empty_kernel,
    fixed_kernel,
    grouped_kernel,
    groups,
    shaped_kernel,
)
from native_support import needs_codegen
from tensor_map_kernels import whole
from test_tensor_maps import compiled, count, reasons

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.analysis.tensor_maps import kernel_made, workspace_bytes
from tkdebug.compiler.dialects import ttng
from tkdebug.runtime.cuda.packing import kernel_slots

pytestmark = needs_codegen
SIZES = [(100, 72, 80), (64, 60, 36), (0, 64, 32), (130, 64, 0)]
OTHERWISE = "a bulk store cannot begin before the tensor or end within a unit of 16 bytes"
AGAIN = "the kernel may also access what it describes by pointers"


@pytest.mark.parametrize("turned", [False, True])
def test_descriptors_of_loaded_addresses_are_made_by_each_program(turned):
    g = groups(SIZES, turned=turned)
    module = compiled(
        grouped_kernel, (3,), *g.arguments, WORKERS=3, BM=64, BN=64, BK=32, TURNED=turned,
        ELEMENT=tl.float16, OUT=tl.float16,
    )  # fmt: skip
    for result, wanted, memory in zip(g.results, g.wanted, g.memory, strict=True):
        assert torch.equal(result, wanted)
        assert bool((memory[:, result.shape[1] :] == 7).all())
    assert len(kernel_made(module.function)) == 3
    assert workspace_bytes(module.function) == 3 * 128
    assert reasons(module) == {OTHERWISE}
    (products,) = [op for op in module.walk() if "pipelined" in op.attributes]
    inside = [op.name for op in products.walk()]
    assert inside.count(ttng.AsyncTmaCopyGlobalToLocal.name) == 2
    assert not {"tt.load", "ttg.async_copy_global_to_local"} & set(inside)


@pytest.mark.parametrize(
    ("how", "made", "why_not"),
    [
        ("", 3, set()),
        ("before", 3, set()),
        ("made again", 2, {"the loop that loads by it makes it again"}),
        ("read", 2, {AGAIN}),
        ("barrier", 0, {"the kernel has a barrier, which does not order bulk copies"}),
    ],
)
def test_descriptors_of_a_programs_own_part(how, made, why_not):
    M, N, K = 72, 56, 80
    a, b = whole((3, M, K)), whole((3, K, N))
    memory = torch.full((4 * M, N), 7.0, dtype=torch.float16)
    c = memory[M:].view(3, M, N)
    c.zero_()
    module = compiled(batch_kernel, (3, 2, 1), a, b, c, c, M, N, K, how, 64, 64, 32)
    wanted = (a.double() @ b.double()).half()
    if how == "before":
        assert torch.equal(c[:, : M - 8], wanted[:, 8:])
    else:
        assert torch.equal(c, wanted)
    assert bool((memory[:M] == 7).all())
    assert len(kernel_made(module.function)) == made
    stored_by_map = count(module, ttng.AsyncTmaCopyLocalToGlobal.name) == 1
    assert reasons(module) == why_not | ({OTHERWISE} if stored_by_map else set())


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("size", [(0, 64), (64, -3), (17, 35)])
def test_tensors_that_may_be_empty(size, padding):
    x, out = whole((64, 64)), torch.zeros(64, 64)
    table, numbers = torch.tensor([x.data_ptr()]), torch.tensor(size, dtype=torch.int32)
    module = compiled(empty_kernel, (1,), table, numbers, out, padding, 64)
    assert len(kernel_made(module.function)) == 1
    inside = torch.zeros(64, 64, dtype=torch.bool)
    inside[: max(size[0], 0), : max(size[1], 0)] = True
    if padding == "zero":
        assert torch.equal(out, torch.where(inside, x, 0).float())
    else:
        assert bool(out.isnan().all())


def test_stores_that_are_known_to_fit_are_made_in_one_way():
    out = torch.zeros(64, 64, dtype=torch.float16)
    table = torch.tensor([out.data_ptr()])
    module = compiled(fixed_kernel, (1,), table, 64)
    assert bool((out == 1).all())
    assert count(module, ttng.AsyncTmaCopyLocalToGlobal.name) == 1
    assert reasons(module) == set()
    assert not [op for op in module.walk() if op.name in ("scf.if", "tt.store")]


def test_launches_pass_a_workspace():
    out = torch.zeros(64, 64, dtype=torch.float16)
    with tkdebug.mode("native"):
        kernel = fixed_kernel.warmup(torch.tensor([out.data_ptr()]), 64, grid=(1,))
    slots = kernel_slots(kernel.src.fn.arg_names, kernel.src.specs, kernel.binary)
    assert [(slot.name, slot.code) for slot in slots] == [("table", "Q"), ("workspace", "Q")]
    assert kernel.metadata.global_scratch_size == 128
    ptx = kernel.asm["ptx"]
    assert ".ptr .global .align 128 fixed_kernel_param_1" in ptx
    # The fields of the map, its way to memory, and only then the copy.
    steps = ["tensormap.replace", "tensormap.cp_fenceproxy", "fence.proxy.tensormap",
             "cp.async.bulk.tensor"]  # fmt: skip
    found = [ptx.index(step) for step in steps]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("dtype", "block", "padding", "fields"),
    [
        (
            tl.float32,
            (64, 32),
            "nan",
            {"elemtype": 7, "rank": 1, "swizzle_mode": 3, "fill_mode": 1},
        ),
        (tl.bfloat16, (64, 16), "zero", {"elemtype": 10, "swizzle_mode": 1, "fill_mode": 0}),
        (tl.int8, (2, 4, 64), "zero", {"elemtype": 0, "rank": 2, "swizzle_mode": 2}),
    ],
)
def test_fields_of_tensor_maps(dtype, block, padding, fields):
    with tkdebug.mode("native"):
        table = torch.zeros(1, dtype=torch.int64)
        kernel = shaped_kernel.warmup(table, dtype, block, padding, grid=(1,))
    ptx = kernel.asm["ptx"]
    found = dict(re.findall(r"replace\.tile\.(\w+)\S+ \[%r\d+\], (\d+);", ptx))
    assert {name: int(found[name]) for name in fields} == fields
    boxes = re.findall(r"replace\.tile\.box_dim\S+ \[%r\d+\], (\d), (\d+);", ptx)
    assert boxes == [(str(axis), str(size)) for axis, size in enumerate(reversed(block))]
