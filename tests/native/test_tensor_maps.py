"""Host descriptors as tensor maps: chosen where they fit, right after every pass, compiled."""

from __future__ import annotations

import pytest
import torch
from corpus import Corpus
from tensor_map_kernels import (
    attention_kernel,
    made_kernel,
    persistent_kernel,
    product_kernel,
    scaled_kernel,
    whole,
)

import tkdebug
import tkdebug.language as tl
from tkdebug import TensorDescriptor
from tkdebug.compiler.analysis.tensor_maps import MadeMap, TensorMap, made_maps
from tkdebug.compiler.dialects import ttng
from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes import PassManager
from tkdebug.compiler.passes.select_tensor_maps import SelectTensorMaps
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.runtime.arguments.specialize import mappable_names
from tkdebug.runtime.cuda import tensor_maps
from tkdebug.runtime.cuda.packing import kernel_slots
from tkdebug.runtime.launch import native_kernel
from tkdebug.runtime.launch.launches_in_flight import InFlight
from tkdebug.runtime.launch.native_kernel import NativeKernel

describe = TensorDescriptor.from_tensor


def compiled(kernel, grid, *arguments, **options) -> Module:
    """Launch interpreted, hold every pass and ptxas to it, and give the GPU IR of sm_90a."""
    corpus = Corpus(["sm_80", "sm_90a"], check_gpu_ir=True)
    with corpus.collecting():
        kernel[grid](*arguments, **options)
    assert [row.detail for row in corpus.rows if row.cause] == []
    with tkdebug.mode("native"):
        made = kernel.warmup(*arguments, grid=grid, **options)
    assert isinstance(made, NativeKernel)
    return made.gpu_module


def count(module: Module, name: str) -> int:
    return sum(op.name == name for op in module.walk())


def reasons(module: Module) -> set[str]:
    found = (op.attributes.get("by_pointers") for op in module.walk())
    return {str(reason) for reason in found if reason is not None}


def product(M, N, K, blocks, *, dtype=torch.float16, out=torch.float16, turned=False, **options):
    """Launch the product, check it, and give the GPU IR."""
    a, b, c = whole((M, K), dtype), whole((K, N), dtype), torch.zeros((M, N), dtype=out)
    BM, BN, BK = blocks
    operand = describe(b.T.contiguous(), [BN, BK]) if turned else describe(b, [BK, BN])
    arguments = (describe(a, [BM, BK]), operand, describe(c, [BM, BN]), K, BM, BN, BK, turned)
    module = compiled(product_kernel, (-(-M // BM), -(-N // BN)), *arguments, **options)
    assert torch.equal(c, (a.float() @ b.float()).to(out))
    return module


@pytest.mark.parametrize(
    ("blocks", "settings"),
    [
        ((64, 64, 64), {}),
        ((64, 64, 32), {"turned": True, "num_stages": 4}),
        ((64, 128, 64), {"num_stages": 2}),
        ((64, 64, 64), {"num_stages": 1}),
        ((16, 32, 32), {"num_stages": 2}),
        ((64, 32, 16), {"dtype": torch.float32, "out": torch.float32}),
        ((64, 32, 64), {"dtype": torch.float8_e4m3fn, "out": torch.float32, "turned": True}),
        ((64, 32, 64), {"dtype": torch.float8_e4m3fn, "out": torch.float32}),
    ],
)
def test_operands_and_results_of_dots_are_copied_by_tensor_maps(blocks, settings):
    module = product(100, 80, 144, blocks, **settings)
    assert count(module, ttng.AsyncTmaCopyGlobalToLocal.name) >= 2
    assert count(module, ttng.AsyncTmaCopyLocalToGlobal.name) == 1
    assert reasons(module) == set()
    assert not [op for op in module.walk() if op.name in ("tt.load", "tt.store")]


def test_pipelined_loop_has_one_wait_one_barrier_and_no_fence():
    module = product(100, 80, 144, (64, 64, 64), num_stages=3)
    (loop,) = [op for op in module.walk() if op.name == "scf.for"]
    inside = [op.name for op in loop.walk()]
    assert inside.count(ttng.WaitBarrier.name) == 1
    assert inside.count(ttng.BarrierExpect.name) == 1
    assert inside.count(ttng.AsyncTmaCopyGlobalToLocal.name) == 2
    assert inside.count("gpu.barrier") == 1
    for name in ("ttng.fence_async_shared", "ttg.async_wait", "ttg.async_commit_group"):
        assert name not in inside


def test_every_op_has_the_line_of_the_access_it_is_of():
    module = product(100, 80, 144, (64, 64, 64))
    first = product_kernel.kernel_source.first_line
    load_lines = {first + 6, first + 10}
    for op in module.walk():
        lines = {frame.line for frame in op.location.frames}
        if op.name == ttng.AsyncTmaCopyGlobalToLocal.name:
            assert lines <= load_lines
        elif op.name in (ttng.WaitBarrier.name, ttng.BarrierExpect.name, ttng.InitBarrier.name):
            assert lines & load_lines
        elif op.name in (ttng.AsyncTmaCopyLocalToGlobal.name, ttng.AsyncTmaStoreWait.name):
            assert lines == {first + 12}


def test_programs_that_compute_several_tiles_reuse_their_buffers():
    a, b, c = whole((320, 96)), whole((96, 64)), torch.zeros(320, 64, dtype=torch.float16)
    described = (describe(a, [64, 32]), describe(b, [32, 64]), describe(c, [64, 64]))
    module = compiled(persistent_kernel, (2,), *described, 96, 5, 64, 64, 32)
    assert torch.equal(c, (a.float() @ b.float()).half())
    assert count(module, ttng.AsyncTmaCopyLocalToGlobal.name) == 1


def test_what_is_loaded_once_before_a_loop_lands_where_the_dot_reads_it():
    q, k, v = (whole((128, 64)) / 8 for _ in range(3))
    o = torch.zeros(128, 64, dtype=torch.float16)
    described = [describe(x, [64, 64]) for x in (q, k, v, o)]
    module = compiled(attention_kernel, (2,), *described, 128, 64, 64, 64)
    torch.testing.assert_close(o, (q.float() @ k.float().T).half() @ v, rtol=1e-2, atol=1e-2)
    (loop,) = [op for op in module.walk() if op.name == "scf.for"]
    inside = [op.name for op in loop.walk()]
    assert inside.count(ttng.AsyncTmaCopyGlobalToLocal.name) == 2
    assert "ttng.fence_async_shared" not in inside
    assert not [op for op in module.walk() if op.name == "ttg.local_load"]


def test_blocks_that_threads_read_and_rows_that_are_looked_up():
    a, b, bias = whole((64, 128)), whole((128, 64)), whole((128,))
    pages = torch.tensor([2, 0, 3, 1], dtype=torch.int32)
    c = torch.zeros(64, 64, dtype=torch.float16)
    described = (describe(a, [64, 32]), describe(b, [32, 64]), bias, describe(c, [64, 64]))
    module = compiled(scaled_kernel, (1,), *described, pages, 128, 32)
    picked = b.view(4, 32, 64)[pages.long()].view(128, 64) * bias[:, None]
    assert torch.equal(c, (torch.where(a > 0, a, a * 2).float() @ picked.float()).half())
    (loop,) = [op for op in module.walk() if op.name == "scf.for"]
    inside = [op.name for op in loop.walk()]
    assert inside.count(ttng.AsyncTmaCopyGlobalToLocal.name) == 2
    # Threads have read a buffer before a bulk copy fills it again.
    assert "ttng.fence_async_shared" in inside


def test_padding_of_a_tensor_map_is_its_descriptors():
    a, b, c = whole((40, 64)), whole((64, 64)), torch.zeros(64, 64, dtype=torch.float16)
    described = (
        describe(a, [64, 64], "nan"),
        describe(b, [64, 64]),
        describe(c, [64, 64]),
    )
    module = compiled(product_kernel, (1, 1), *described, 64, 64, 64, 64)
    assert bool(c[40:].isnan().all())
    assert not c[:40].isnan().any()
    assert count(module, ttng.AsyncTmaCopyGlobalToLocal.name) >= 2


# Why descriptors are accessed by pointers


@tkdebug.jit
def copy_kernel(x_desc, y_desc):
    y_desc.store([0, 0], x_desc.load([0, 0]))


def test_what_no_dot_multiplies_is_loaded_by_pointers():
    x, y = whole((64, 64)), torch.zeros(64, 64, dtype=torch.float16)
    module = compiled(copy_kernel, (1,), describe(x, [32, 32]), describe(y, [32, 32]))
    assert reasons(module) == {"no dot multiplies what it loads"}
    assert count(module, ttng.AsyncTmaCopyLocalToGlobal.name) == 1
    (load,) = [op for op in module.walk() if op.name == "tt.load"]
    assert "by_pointers" in load.attributes


@tkdebug.jit
def misuse_kernel(a, b, c, flag, HOW: tl.constexpr):
    acc = tl.dot(a.load([0, 0]), b.load([0, 0])).to(tl.float16)
    if HOW == "both":
        b.store([0, 0], acc)
    if HOW == "reduce":
        b.atomic_add([0, 0], acc)
    if HOW == "sum":
        acc += b.load([0, 0])
    if HOW == "barrier":
        tl.debug_barrier()
    if HOW == "atomic":
        tl.atomic_add(flag, 1)
    if HOW == "loop":
        d = a
        for _ in range(2):
            acc += tl.dot(d.load([0, 0]), b.load([0, 0])).to(tl.float16)
            d, a = a, d
    c.store([0, 0], acc)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("both", "it is both loaded from and stored to"),
        ("reduce", "reduces are made by pointers"),
        ("sum", "no dot multiplies what it loads"),
        ("barrier", "the kernel has a barrier, which does not order bulk copies"),
        ("atomic", "the kernel has an atomic that orders memory, but not bulk copies"),
        ("loop", "a loop or a branch forwards the descriptor"),
    ],
)
def test_accesses_by_pointers_carry_the_reason(how, reason):
    a, b, c = (whole((64, 64)) / 16 for _ in range(3))
    described = [describe(x, [64, 64]) for x in (a, b, c)]
    flag = torch.zeros((64, 64), dtype=torch.int32)
    module = compiled(misuse_kernel, (1,), *described, flag, how)
    assert reasons(module) == {reason}


@pytest.mark.parametrize(
    ("shape", "block", "dtype", "reason"),
    [
        ((64,), (64,), "fp16", "its blocks have one axis"),
        ((64, 8), (64, 4), "fp16", "its blocks have rows of 8 bytes, of 16 that a copy moves"),
        ((64, 64), (4, 64), "fp16", "its blocks have 4 rows, of 8 that a swizzle pattern has"),
        ((512, 2, 64), (512, 2, 64), "fp16",
         "its blocks have more than 256 elements along an axis"),
    ],
)  # fmt: skip
def test_blocks_that_no_box_has(shape, block, dtype, reason):
    @tkdebug.jit
    def kernel(x, y, AT: tl.constexpr):
        y.store(AT, y.load(AT))
        x.store(AT, tl.zeros(x.block_shape, tl.float16))

    x, y = whole(shape), whole(shape)
    with tkdebug.mode("interpret"):
        tile = kernel.warmup(describe(x, block), describe(y, block), (0,) * len(shape), grid=(1,))
    module = parse_module(print_module(tile.module, locations=True))
    function = module.function
    function.attributes.update(mappable=("x", "y"), num_warps=4)
    PassManager((SelectTensorMaps(TARGETS["sm_90a"]),), verify_each=True).run(module)
    found = {op.operands[0].name: op.attributes.get("by_pointers") for op in module.walk()
             if op.name == "tt.descriptor_store"}  # fmt: skip
    assert found["x"] == reason


def test_strides_that_no_tensor_map_has_are_accessed_by_pointers():
    a = whole((1, 64)).expand(64, 64)
    b, c = whole((64, 64)), torch.zeros(64, 64, dtype=torch.float16)
    described = (describe(a, [64, 64]), describe(b, [64, 64]), describe(c, [64, 64]))
    module = compiled(product_kernel, (1, 1), *described, 64, 64, 64, 64)
    assert reasons(module) == {"its strides and rows are not known to be those of a tensor map"}
    assert torch.equal(c, (a.float() @ b.float()).half())


def test_names_of_descriptors_in_tuples():
    from tkdebug.compiler.dtypes import block_type, float16, int32, tensor_descriptor_type

    type_ = tensor_descriptor_type(block_type(float16, (64, 64)))
    specs = (int32, (type_, int32, type_), type_)
    alignment = (True, (True, True, "mappable"), False)
    assert mappable_names(("n", "pair", "d"), specs, alignment) == ("pair.0", "pair.2")


def test_rows_that_end_within_a_unit_are_accessed_by_pointers():
    """A bulk store would write the memory after them."""
    memory = torch.full((64, 80), 7.0, dtype=torch.float16)
    x = whole((64, 80))
    described = (describe(t[:, :70], [32, 32]) for t in (x, memory))
    module = compiled(far_kernel, (1,), *described, 0)
    assert reasons(module) == {"its strides and rows are not known to be those of a tensor map"}
    assert bool((memory[:, 70:] == 7).all())


@tkdebug.jit
def far_kernel(x_desc, y_desc, column):
    y_desc.store([0, column * 8], x_desc.load([0, column]))
    y_desc.store([0, column + 64], x_desc.load([32, 32]))


def test_stores_that_may_begin_within_a_unit_are_made_by_pointers():
    x, y = whole((64, 128)), torch.zeros(64, 128, dtype=torch.float16)
    module = compiled(far_kernel, (1,), describe(x, [32, 32]), describe(y, [32, 32]), 3)
    assert reasons(module) == {
        "no dot multiplies what it loads",
        "it may be accessed elsewhere than at multiples of 16 bytes",
    }


# Descriptors that the kernel makes


def made(M, N, K, how=""):
    a, b, c = whole((M, K)), whole((K, N)), torch.zeros((M, N), dtype=torch.float16)
    wanted = (a.float() @ b.float()).half()
    module = compiled(made_kernel, (-(-M // 64),), a, b, c, M, N, K, 64, 64, 32, how)
    assert torch.equal(c, wanted)
    return module


def test_descriptors_made_of_arguments_are_made_by_the_launch():
    module = made(96, 64, 80)
    assert reasons(module) == set()
    assert count(module, ttng.AsyncTmaCopyGlobalToLocal.name) >= 2
    assert count(module, ttng.AsyncTmaCopyLocalToGlobal.name) == 1
    found = [made for _, made in made_maps(module.function)]
    assert [m.base for m in found] == [0, 1, 2]
    assert [(m.shape, m.strides) for m in found] == [
        (("{3}", "{5}"), ("{5}", "1")),
        (("{5}", "{4}"), ("{4}", "1")),
        (("{3}", "{4}"), ("{4}", "1")),
    ]
    # Where the store begins follows from the program's number alone.
    assert {m.non_negative for m in found} == {()}


@pytest.mark.parametrize(
    ("size", "how", "reason"),
    [
        ((96, 64, 80), "read", "the kernel may also access what it describes by pointers"),
        ((96, 64, 80), "before", "a store may begin before the tensor"),
        ((96, 64, 72), "", "base, strides or rows are not known to be multiples of 16 bytes"),
    ],
)
def test_other_descriptors_of_the_kernel_stay_pointers(size, how, reason):
    assert reasons(made(*size, how)) == {reason}


def test_stores_by_arguments_need_a_check_of_the_launch():
    module = made(96, 64, 80, "at")
    assert reasons(module) == set()
    found = [made.non_negative for _, made in made_maps(module.function)]
    assert found == [(), (), (3, 4, 5)]


def made_natively(how=""):
    with tkdebug.mode("native"):
        a, b, c = whole((96, 80)), whole((80, 64)), torch.zeros((96, 64), dtype=torch.float16)
        return made_kernel.warmup(a, b, c, 96, 64, 80, 64, 64, 32, how, grid=(2,))


def test_slots_of_what_the_launch_makes():
    kernel = made_natively("at")
    slots = kernel_slots(kernel.src.fn.arg_names, kernel.src.specs, kernel.binary)
    assert [(slot.name, slot.expression) for slot in slots[6:]] == [
        ("tensor map of a", "v0, (v3, v5, ), (v5, 1, ), ()"),
        ("tensor map of b", "v1, (v5, v4, ), (v4, 1, ), ()"),
        ("tensor map of c", "v2, (v3, v4, ), (v4, 1, ), (v3, v4, v5, )"),
    ]
    assert kernel.asm["ptx"].count(".param .align 64 .b8 made_kernel_param_") == 3


def test_kernels_without_maps_of_the_launch_are_there_for_what_does_not_fit():
    kernel = made_natively()._without_host_descriptors
    assert "cp.async.bulk.tensor" not in kernel.asm["ptx"]
    assert kernel.hash != made_natively().hash


def test_crashes_find_the_kernel_that_ran(monkeypatch):
    kernel, ran = made_natively(), made_natively("at")
    flights = InFlight()
    flights.is_on = True
    monkeypatch.setattr(native_kernel, "IN_FLIGHT", flights)
    kernel.function, kernel.submit = 1, lambda *given: ran
    values = (*[torch.zeros(4)] * 3, 96, 64, 80, 64, 64, 32, "")
    kernel.launch_hooked((2, 1, 1), 0, values, (0, 0, 0, 96, 64, 80))
    assert flights.latest[-1].kernel is ran


@tkdebug.jit
def large_kernel(x, M, N, BM: tl.constexpr, BN: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    desc.store([0, 0], tl.zeros((BM, BN), tl.float32))


@pytest.mark.parametrize("size", [128, 256])
def test_blocks_that_no_buffer_can_hold_are_stored_by_pointers(size):
    with tkdebug.mode("native"):
        kernel = large_kernel.warmup(torch.zeros(512, 512), 512, 512, size, size, grid=(1,),
                                     num_warps=8)  # fmt: skip
    assert ("cp.async.bulk.tensor" in kernel.asm["ptx"]) is (size == 128)


@pytest.mark.parametrize(
    ("address", "shape", "strides", "numbers"),
    [
        (4096, (0, 80), (80, 1), ()),
        (4096, (-3, 80), (80, 1), ()),
        (4096, (96, 80), (0, 1), ()),
        (4096, (96, 80), (-80, 1), ()),
        (4096, (96, 80), (1 << 40, 1), ()),
        (4096, (96, 76), (80, 1), ()),
        (4104, (96, 80), (80, 1), ()),
        (4096, (96, 80), (80, 1), (3, -1)),
    ],
)
def test_no_tensor_map_is_made_of_what_has_none(monkeypatch, address, shape, strides, numbers):
    monkeypatch.setattr(tensor_maps, "encode", lambda *given: given[1:])
    make = tensor_maps.made_map_of(MadeMap(TensorMap("f16", (64, 64), 128, "zero"), 0, (), ()))
    assert make(4096, (96, 80), (80, 1), (3, 0)) == (4096, (96, 80), (80, 1))
    with pytest.raises(tensor_maps.UnmappableError):
        make(address, shape, strides, numbers)


@pytest.mark.parametrize(
    ("number", "bits", "wanted"),
    [
        (5, 32, 5),
        (1 << 31, 32, -(1 << 31)),
        (-5, 32, -5),
        ((1 << 64) - 1, 64, -1),
        (7 << 40, 32, 0),
    ],
)
def test_arithmetic_of_launches_wraps_as_the_kernels(number, bits, wanted):
    assert tensor_maps.wrapped(number, bits) == wanted
