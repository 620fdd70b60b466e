"""Correct kernels give no fault and the reference's memory, whole and in batches."""

import correct_kernels as kernels
import numpy as np
import pytest
import torch
from differential import compare, run

BUDGETS = pytest.mark.parametrize("budget", [None, 2048, 64], ids=["whole", "batches", "single"])


def clean(kernel, grid, *arguments, **options):
    seen = compare(kernel, grid, *arguments, **options)
    assert not seen.faults


def cdiv(a, b):
    return -(-a // b)


@BUDGETS
@pytest.mark.parametrize("n", [1, 7, 31, 32, 33, 64, 100, 128])
@pytest.mark.parametrize("extra", [0, 1, 3])
def test_masked_copy_with_programs_to_spare(n, extra, budget):
    x, out = torch.arange(float(n)), torch.zeros(n)
    clean(kernels.copy_1d, (cdiv(n, 32) + extra,), x, out, n, 1, 1, BLOCK=32, budget=budget)
    assert torch.equal(x, out)


def views():
    big = torch.arange(80.0 * 90).reshape(80, 90)
    yield "contiguous", big[:40].contiguous()
    yield "columns", big[:, :64]
    yield "every second row", big[::2]
    yield "every third column", big[:, 1::3]
    yield "transposed", big.t()
    yield "inner transposed", big[3:50, 10:77].t()
    yield "expanded rows", big[:1].expand(33, 90)
    yield "expanded columns", big[:, :1].expand(80, 37)
    yield "all expanded", big[:1, :1].expand(17, 20)
    yield "one element", big[5:6, 7:8]
    yield "overlapping windows", big.reshape(-1)[:50].unfold(0, 8, 1)
    yield "interleaved strides", big.reshape(-1)[:8].as_strided((2, 3), (3, 2))
    yield "wide overlap", big.reshape(-1)[:100].as_strided((10, 30), (7, 1))


VIEWS = dict(views())


@BUDGETS
@pytest.mark.parametrize("name", VIEWS)
def test_strided_views(name, budget):
    x = VIEWS[name]
    m, n = x.shape
    out = torch.zeros(m, n)
    grid = (cdiv(n, 32), cdiv(m, 16))
    arguments = (x, out, m, n, *x.stride(), *out.stride())
    clean(kernels.copy_2d, grid, *arguments, M=16, N=32, budget=budget)
    assert torch.equal(x, out)


@BUDGETS
@pytest.mark.parametrize(
    "name",
    [
        "columns",
        "every second row",
        "transposed",
        "inner transposed",
        "every third column",
        "one element",
    ],
)
def test_stores_to_strided_views(name, budget):
    big = torch.zeros(80, 90)
    at = VIEWS[name]
    out = big.as_strided(at.shape, at.stride(), at.storage_offset())
    m, n = out.shape
    x = torch.randn(m, n)
    clean(
        kernels.copy_2d,
        (cdiv(n, 32), cdiv(m, 16)),
        x,
        out,
        m,
        n,
        *x.stride(),
        *out.stride(),
        M=16,
        N=32,
        budget=budget,
    )
    assert torch.equal(x, out)
    assert (big != 0).sum() == (x != 0).sum()


@BUDGETS
@pytest.mark.parametrize("axis", [0, 1])
def test_strides_of_0_may_be_replaced_within_the_allocation(axis, budget):
    # Gathers and scatters pass the dimension that they index with a stride of 0, its own beside it.
    big = torch.arange(80.0 * 90).reshape(80, 90)
    strides = [0 if dim == axis else stride for dim, stride in enumerate(big.stride())]
    x, out = big.as_strided((40, 30), strides), torch.zeros(40, 30)
    grid, strides = (1, 3), (*big.stride(), *out.stride())
    clean(kernels.copy_2d, grid, x, out, 40, 30, *strides, M=16, N=32, budget=budget)
    assert torch.equal(big[:40, :30], out)


@BUDGETS
@pytest.mark.parametrize("first", [8, 4])
def test_columns_of_one_tensor_that_programs_choose_between(first, budget):
    # What lies between the elements of one view is the other one.
    big = torch.arange(4.0 * 24).reshape(4, 24)
    a, b, out = big[:, :first], big[:, 8:], torch.zeros(4, 2, 16)
    clean(kernels.rows_of_either, (4, 2), a, b, out, 24, A=first, B=16, budget=budget)
    assert torch.equal(out[:, 0, :first], a)
    assert torch.equal(out[:, 1], b)


@pytest.mark.parametrize("name", ["columns", "every second row", "every third column"])
def test_one_element_between_the_elements_of_a_view(name):
    x = VIEWS[name]
    m, n = x.shape
    step = x.stride()
    wrong = (step[0], step[1] + 1) if name == "every third column" else (step[0] - 1, step[1])
    seen = compare(kernels.copy_2d, (1, 1), x, torch.zeros(m, n), 8, 8, *wrong, n, 1, M=16, N=32)
    assert {fault.kind for fault in seen.faults} == {"between-elements"}
    assert {fault.severity for fault in seen.faults} == {"warning"}


@BUDGETS
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_three_axes(order, budget):
    x = torch.arange(5.0 * 9 * 13).reshape(5, 9, 13).permute(order)
    out = torch.zeros(x.shape)
    grid = tuple(
        cdiv(extent, block) for extent, block in zip(reversed(x.shape), (8, 4, 2), strict=True)
    )
    clean(kernels.copy_3d, grid, x, out, *x.shape, *x.stride(), A=2, B=4, C=8, budget=budget)
    assert torch.equal(x, out)


@BUDGETS
@pytest.mark.parametrize("n", [1, 31, 32, 33, 100])
def test_shapes_of_masks(n, budget):
    x, out = torch.arange(float(n)), torch.zeros(n)
    grid = (cdiv(n, 32) + 1,)
    clean(kernels.reversed_copy, grid, x, out, n, BLOCK=32, budget=budget)
    for shift in (-40, -5, 0, 5, 40):
        clean(kernels.both_sides, grid, x, out, n, shift, BLOCK=32, budget=budget)
    clean(kernels.stencil, grid, x, out, n, BLOCK=32, budget=budget)
    clean(kernels.nothing_to_do, grid, x, out, n, BLOCK=32, budget=budget)
    clean(kernels.guarded_scalar, (n + 5,), x, out, n, budget=budget)
    clean(kernels.persistent, (3,), x, out, n, BLOCK=16, budget=budget)
    square = torch.randn(n, n)
    clean(kernels.band, (1,), square, torch.zeros(n, n), n, N=128, budget=budget)


@BUDGETS
def test_windows_of_a_line(budget):
    x = torch.arange(64.0)
    clean(kernels.windows, (4,), x, torch.zeros(57, 8), 57, W=8, BLOCK=16, budget=budget)
    clean(
        kernels.windows,
        (4,),
        x.unfold(0, 8, 1),
        torch.zeros(57, 8),
        57,
        W=8,
        BLOCK=16,
        budget=budget,
    )


@BUDGETS
def test_loops(budget):
    starts = torch.tensor([0, 3, 3, 40, 41, 90, 100], dtype=torch.int32)
    clean(
        kernels.ragged, (6,), torch.arange(100.0), starts, torch.zeros(6), BLOCK=16, budget=budget
    )
    x = torch.arange(5.0 * 50).reshape(5, 50)
    clean(kernels.carried_pointers, (5,), x, torch.zeros(5, 16), 50, 50, BLOCK=16, budget=budget)
    clean(
        kernels.carried_pointers,
        (5,),
        x[:, :41],
        torch.zeros(5, 16),
        41,
        50,
        BLOCK=16,
        budget=budget,
    )


@BUDGETS
def test_many_lanes_stored_at_one_place(budget):
    a, b = torch.randn(64), torch.randn(64)
    clean(kernels.stored_at_one_place, (5,), a, b, torch.zeros(16), BLOCK=64, budget=budget)
    clean(kernels.stored_repeated, (5,), a, b, torch.zeros(80), R=8, C=8, budget=budget)
    clean(kernels.stored_across, (1,), a, torch.zeros(16), R=4, C=2, budget=budget)


@BUDGETS
def test_in_place_through_two_arguments(budget):
    x = torch.arange(100.0)
    clean(kernels.in_place, (4,), x, x, 100, BLOCK=32, budget=budget)
    x = torch.arange(100.0)
    clean(kernels.in_place, (4,), x, x[:], 100, BLOCK=32, budget=budget)
    clean(kernels.swap_halves, (4,), torch.arange(128.0), HALF=16, budget=budget)


DIVIDENDS = [-(2**63), -(2**31), -(2**15), -128, -129, -7, -1, 0, 1, 5, 127, 2**31 - 1, 2**63 - 1]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("scalars", [False, True])
def test_division_at_the_ends_of_the_range(dtype, scalars):
    info = torch.iinfo(dtype)
    inside = [v for v in DIVIDENDS if info.min <= v <= info.max]
    pairs = [(a, b) for a in inside for b in inside if b != 0]
    x, y = (torch.tensor(column, dtype=dtype) for column in zip(*pairs, strict=True))
    q, r = torch.zeros_like(x), torch.zeros_like(x)
    if scalars:
        clean(kernels.divide_scalars, (len(pairs),), x, y, q, r)
    else:
        clean(kernels.divide_int, (1,), x, y, q, r, len(pairs), BLOCK=256)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_comparisons_at_the_ends_of_the_range(dtype):
    info = torch.iinfo(dtype)
    ends = [info.min, info.min + 1, -1 % (info.max + 1), 0, 1, info.max - 1, info.max]
    if info.min < 0:
        ends.append(-1)
    pairs = [(a, b) for a in ends for b in ends]
    x, y = (torch.tensor(column, dtype=dtype) for column in zip(*pairs, strict=True))
    out = torch.zeros(len(pairs), dtype=torch.int32)
    clean(kernels.compare_scalars, (len(pairs),), x, y, out)
    wide = torch.zeros(len(pairs), 8, dtype=torch.int32)
    if dtype != torch.uint8 and dtype != torch.int8:
        clean(kernels.compare_tile_to_scalar, (len(pairs),), x, y, wide, BLOCK=8)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.int32,
        torch.uint32,
        torch.int64,
        torch.uint64,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.uint8,
        torch.float16,
        torch.bfloat16,
    ],
)
def test_extremum_with_its_index(dtype):
    signed = torch.tensor([3, 7, -2, 7, -2, 0, 5, 7])
    x = signed.to(dtype)
    wide = {
        torch.int8: torch.int32,
        torch.uint8: torch.int32,
        torch.float16: torch.float32,
        torch.bfloat16: torch.float32,
    }.get(dtype, dtype)
    value, index = torch.zeros(2, dtype=wide), torch.zeros(2, dtype=torch.int32)
    clean(kernels.argmax_of, (1,), x, value, index, BLOCK=8)


@BUDGETS
def test_reduction_keeps_the_order_of_an_associative_combine(budget):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-9, 9, (64,), generator=generator, dtype=torch.int32) for _ in range(2))
    clean(kernels.compose_all, (4,), a, b, torch.zeros(8, dtype=torch.int32), N=16, budget=budget)


def test_reduction_of_one_element_keeps_its_value():
    clean(kernels.reduce_of_one, (1,), torch.arange(8.0), torch.zeros(16), N=8)


@BUDGETS
@pytest.mark.parametrize("n", [1, 2, 8])
def test_fill_of_a_masked_tile_whose_memory_is_reused(n, budget):
    x = torch.rand(8)
    clean(kernels.fill_of_reused_operand, (4,), x, torch.zeros(32), n, N=8, budget=budget)


@BUDGETS
def test_colliding_atomics_give_old_values_in_order(budget):
    out, old = torch.zeros(3, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    clean(kernels.atomics_in_order, (4,), out, old, 60, BINS=3, BLOCK=16, budget=budget)


def test_lock_taken_in_the_loop_body():
    lock, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    clean(kernels.lock_in_the_body, (5,), lock, out)
    assert out.item() == 5


@BUDGETS
def test_pointers_from_memory(budget):
    tensors = [(torch.randn(n), torch.zeros(n)) for n in (5, 16, 9)]
    addresses = torch.tensor([t.data_ptr() for pair in tensors for t in pair])
    sizes = torch.tensor([5, 16, 9], dtype=torch.int32)
    assert not run(kernels.grouped, (3,), addresses, sizes, BLOCK=16, budget=budget)
    for x, y in tensors:
        assert torch.equal(x * 2, y)
    sizes[0] = 7
    faults = run(kernels.grouped, (3,), addresses, sizes, BLOCK=16, budget=budget)
    assert {fault.kind for fault in faults} == {"oob-load", "oob-store"}


@BUDGETS
def test_unsigned_offsets(budget):
    x, out = torch.arange(40.0), torch.zeros(40)
    clean(kernels.unsigned_offsets, (3,), x, out, 40, BLOCK=16, budget=budget)


@BUDGETS
def test_pointer_chosen_per_program(budget):
    clean(
        kernels.pointer_by_branch,
        (4,),
        torch.randn(16),
        torch.randn(31),
        torch.zeros(64),
        BLOCK=16,
        budget=budget,
    )


@BUDGETS
def test_memory_read_under_another_type(budget):
    x = torch.randn(40)
    clean(
        kernels.reinterpret,
        (3,),
        x,
        torch.zeros(80, dtype=torch.int32),
        40,
        BLOCK=16,
        budget=budget,
    )


@BUDGETS
@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16]
)
def test_small_floats_gathered_and_scattered(dtype, budget):
    x = torch.randn(40).to(dtype)
    out = torch.zeros(40).to(dtype)
    index = torch.randperm(40, dtype=torch.int32)
    clean(kernels.fp8_copy, (3,), x, out, index, 40, BLOCK=16, budget=budget)


@BUDGETS
def test_bool_memory(budget):
    x = torch.rand(40) > 0.5
    clean(
        kernels.bool_memory, (3,), x, torch.zeros(40, dtype=torch.bool), 40, BLOCK=16, budget=budget
    )


def test_all_programs_wait_for_the_last():
    counter = torch.zeros(1, dtype=torch.int32)
    assert not run(kernels.grid_barrier, (4,), counter)
    assert counter.item() == 4


def test_work_queue():
    queue, out = torch.zeros(1, dtype=torch.int32), torch.zeros(30, dtype=torch.int32)
    clean(kernels.work_queue, (4,), queue, out, 30)


def test_memory_shared_by_two_storages():
    array = np.arange(40, dtype=np.float32)
    x, y, out = torch.from_numpy(array), torch.from_numpy(array[8:]), torch.zeros(16)
    assert not run(kernels.shifted_in_place, (1,), x, y, out, BLOCK=16)
    assert out.tolist() == list(range(16))


@BUDGETS
@pytest.mark.parametrize("kind", ["add", "max", "min", "xchg"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.uint32,
                                   torch.int64])  # fmt: skip
def test_atomics_of_each_type(dtype, kind, budget):
    x = torch.tensor([3, -7, 5, 0, 9, 9, -1, 2, 8, -9, 4, 1, 6]).to(dtype)
    out, old = torch.tensor([1, 2, 3]).to(dtype), torch.zeros(13, dtype=dtype)
    clean(kernels.float_atomics, (4,), x, out, old, 13, kind, BLOCK=4, budget=budget)


@BUDGETS
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_compare_and_swap_in_program_order(dtype, budget):
    out, old = torch.zeros(1, dtype=dtype), torch.zeros(6, dtype=dtype)
    x = torch.tensor([0, 1, 1, 2, 7, 3], dtype=dtype)
    clean(kernels.compare_and_swap, (6,), out, old, x, budget=budget)
    assert out.item() == 4


@BUDGETS
@pytest.mark.parametrize("programs", [1, 4])
def test_random_numbers_that_wrap_in_int64(programs, budget):
    out = torch.zeros(16 * programs, dtype=torch.int64)
    clean(kernels.random_numbers_64, (programs,), out, BLOCK=16, budget=budget)
    assert len(out.unique()) == len(out)
