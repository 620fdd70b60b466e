# ruff: noqa: F821, F841
"""Kernels that do not compile, one mistake each; `test_errors` compares the messages."""

import math

import torch

import tkdebug.language as tl
from tkdebug.runtime.jit.function import jit

FACTOR = 3


def plain(x):
    return x


@jit
def undefined_name(p):
    offsets = tl.arange(0, 16)
    tl.store(p + ofsets, 0.0)


@jit
def plain_global(p):
    tl.store(p, FACTOR)


@jit
def plain_function(p):
    tl.store(p, plain(1.0))


@jit
def python_function(p, n):
    tl.store(p, math.sqrt(n))


@jit
def carried_type(p, n):
    acc = tl.zeros([64], tl.float32)
    for _ in range(n):
        acc += 1.0
        acc = acc.to(tl.float16)
    tl.store(p + tl.arange(0, 64), acc)


@jit
def carried_shape(p, n):
    acc = 0.0
    for k in range(n):
        acc += tl.load(p + k + tl.arange(0, 32))
    tl.store(p, tl.sum(acc, axis=0))


@jit
def branch_type(p, n):
    if n > 3:
        x = 1.0
    else:
        x = n
    tl.store(p, x)


@jit
def tile_condition(p, n):
    offsets = tl.arange(0, 16)
    if offsets < n:
        tl.store(p + offsets, 1.0)


@jit
def return_in_loop(p, n):
    for i in range(n):
        if i > 3:
            return
        tl.store(p + i, 1.0)


@jit
def breaks(p, n):
    for i in range(n):
        if i > 3:
            break


@jit
def inner_helper(x, n):
    y = x + 1
    return y[n]


@jit
def outer_helper(x):
    return inner_helper(x, 2) * 2


@jit
def in_device_function(p):
    x = tl.arange(0, 16)
    tl.store(p + x, outer_helper(x))


@jit
def endless(x):
    return endless(x)


@jit
def recursion(p):
    tl.store(p, endless(1))


@jit
def return_types(x):
    if x > 3:
        return x
    return x * 2.0


@jit
def mixed_returns(p, n):
    tl.store(p, return_types(n))


@jit
def not_constant(p, n):
    BLOCK: tl.constexpr = n * 2
    tl.store(p + tl.arange(0, BLOCK), 1)


@jit
def item_assignment(p):
    x = tl.zeros([16], tl.float32)
    x[0] = 1.0


@jit
def unknown_member(p):
    x = tl.zeros([16], tl.float32)
    tl.store(p + tl.arange(0, 16), x.too(tl.float16))


@jit
def unknown_function(p):
    tl.store(p, tl.program_idx(0))


@jit
def wrong_keyword(p):
    tl.store(p, tl.load(p, masc=None))


@jit
def missing_argument(p):
    tl.store(p, inner_helper(3))


@jit
def constant_arithmetic(p):
    tl.store(p, 1.0 << 1)


@jit
def static_assertion(p, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK % 16 == 0, f"BLOCK is {BLOCK}")


@jit
def raises(p, BLOCK: tl.constexpr):
    if BLOCK > 4:
        raise ValueError("BLOCK is too large")


@jit
def dictionary(p):
    table = {"a": 1}


@jit
def run_time_static_range(p, n):
    for i in tl.static_range(n):
        tl.store(p + i, 1.0)


@jit
def float_bound(p, n):
    for i in range(n / 2):
        tl.store(p + i, 1.0)


@jit
def unpacking(p, n):
    a, b = n, n, n


@jit
def f_string(p, n):
    tl.static_print(f"n is {n}")


@jit
def wrong_tile(p):
    offsets = tl.arange(0, 16)
    tl.store(
        p + offsets,
        tl.arange(0, 32) + offsets,
    )


@jit
def constant_for_a_tensor(p):
    tl.store(p, tl.trans(3))


@jit
def axis_of_a_type(p):
    tl.store(p, tl.squeeze(tl.zeros([1, 16], tl.float32), tl.float32))


@jit
def axis_of_a_scalar(p, n):
    tl.store(p, tl.squeeze(n.to(tl.float32), 0))


@jit
def new_axis_of_a_string(p):
    tl.store(p, tl.expand_dims(tl.zeros([16], tl.float32), "last"))


@jit
def run_time_order(p, n):
    tl.store(p, tl.permute(tl.zeros([16, 16], tl.float32), 1, n))


@jit
def run_time_flag(p, n):
    tl.store(p, tl.sum(tl.zeros([16], tl.float32), 0, keep_dims=n > 3))


@jit
def dtype_by_name(p):
    tl.store(p, tl.sum(tl.zeros([16], tl.float32), 0, dtype="float32"))


@jit
def rounds_by_name(p):
    tl.store(p, tl.rand(1, 2, n_rounds="ten"))


@jit
def division_of_tuples(p):
    tl.store(p, tl.cdiv((1, 2), 3))


@jit
def no_combine_function(p):
    tl.store(p, tl.reduce(tl.zeros([16], tl.float32), 0, "add"))


@jit
def no_tiles(p):
    tl.store(p, tl.associative_scan((), 0, tl.maximum))


@jit
def offsets_of_a_type(p):
    block = tl.make_block_ptr(p, [16], [1], [0], [16], [0])
    tl.store(tl.advance(block, tl.int32), 0.0)


@jit
def python_builtin_without_arguments(p):
    tl.static_print(isinstance())


@jit
def member_of_a_number(p, n):
    tl.store(p, 1.0, mask=n in 3)


@jit
def called_type(p):
    tl.static_print(slice(0, 1).type())


@jit
def sigmoid_of_integers(p):
    tl.store(p, tl.sigmoid(tl.arange(0, 16)))


@jit
def pointers_or_numbers(p, n):
    tl.store(tl.where(n > 3, p, n), 1.0)


@jit
def several_numbers_of_bins(p):
    tl.store(p, tl.histogram(tl.arange(0, 16), [16, 16]))


@jit
def descriptor_without_axes(p):
    tl.make_tensor_descriptor(p, [], [], [])


@jit
def stride_that_is_a_number(p):
    tl.make_tensor_descriptor(p, [64, 64], 1, [16, 16])


@jit
def descriptor_of_nan_integers(p):
    integers = p.to(tl.pointer_type(tl.int32))
    tl.make_tensor_descriptor(integers, [64], [1], [16], padding_option="nan")


@jit
def descriptor_of_pointers(p):
    pointers = p.to(tl.pointer_type(tl.pointer_type(tl.float32)))
    tl.make_tensor_descriptor(pointers, [64], [1], [16])


@jit
def loose_bit_operator(p, n):
    i = tl.arange(0, 16)
    tl.store(p + i, 0.0, mask=i < n & i + 1 < n)


@jit
def torch_tensor(p):
    tl.store(p + tl.arange(0, 16), torch.zeros(16))


@jit
def tile_through_a_scalar_pointer(p):
    tl.store(p, tl.zeros((16,), tl.float32))


@jit
def column_stored_to_a_row(p):
    at = tl.arange(0, 8)
    tl.store(p + at, (at * 1.0)[:, None])


@jit
def mask_of_more_rows(p):
    at = tl.arange(0, 8)
    tl.store(p + at[None, :], 1.0, mask=(at < 4)[:, None])


@jit
def column_added_to_a_row(p):
    at = tl.arange(0, 8)
    tl.atomic_add(p + at, (at * 1.0)[:, None])
