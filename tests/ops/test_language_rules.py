"""Types and errors of functions that upstream's tests do not pin down."""

from __future__ import annotations

import math

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.errors import CompileError
from tkdebug.knobs import scope

X = torch.arange(64, dtype=torch.float32)


def message(kernel, *arguments):
    with pytest.raises(CompileError) as caught:
        kernel[(1,)](*arguments)
    return caught.value.message


@pytest.mark.parametrize("version", ["3.8", "3.9"])
def test_a_python_number_in_maximum_is_weak_from_3_9_on(version):
    @tkdebug.jit
    def kernel(WIDE: tl.constexpr, WIDE_BF16: tl.constexpr):
        half = tl.zeros((16,), tl.float16)
        tl.static_assert(tl.maximum(half, 0.0).dtype == WIDE)
        tl.static_assert(tl.fma(half, 2.0, half).dtype == WIDE)
        tl.static_assert(tl.maximum(half, half).dtype == tl.float16)
        narrow = half.to(tl.bfloat16)
        tl.static_assert(tl.minimum(narrow, narrow).dtype == WIDE_BF16)
        tl.static_assert((half + 1.0).dtype == tl.float16)

    types = (tl.float16, tl.bfloat16) if version == "3.9" else (tl.float32, tl.float32)
    with scope(triton_version=version):
        kernel[(1,)](*types)


def test_max_widens_and_its_indices_keep_the_dtype():
    @tkdebug.jit
    def kernel():
        tl.static_assert(tl.max(tl.zeros((16,), tl.uint8), 0).dtype == tl.int32)
        tl.static_assert(tl.max(tl.zeros((16,), tl.float16), 0).dtype == tl.float32)
        value, index = tl.max(tl.zeros((16,), tl.float16), 0, return_indices=True)
        tl.static_assert(value.dtype == tl.float16)
        tl.static_assert(index.dtype == tl.int32)
        value, index = tl.min(tl.zeros((16,), tl.bfloat16), 0, return_indices=True)
        tl.static_assert(value.dtype == tl.bfloat16)
        tl.static_assert(tl.cumprod(tl.zeros((16,), tl.int8)).dtype == tl.int32)
        tl.static_assert(tl.cumsum(tl.zeros((16,), tl.int8)).dtype == tl.int32)
        tl.static_assert(tl.cumsum(tl.zeros((16,), tl.int8), dtype=tl.int64).dtype == tl.int64)

    kernel[(1,)]()


def test_clamp_gives_the_bound_for_nan_unless_nan_propagates():
    @tkdebug.jit
    def kernel(P, OUT, ALL: tl.constexpr):
        i = tl.arange(0, 4)
        rule: tl.constexpr = tl.PropagateNan.ALL if ALL else tl.PropagateNan.NONE
        tl.store(OUT + i, tl.clamp(tl.load(P + i), -1.0, 1.0, propagate_nan=rule))

    x, out = torch.tensor([math.nan, -3.0, 0.5, 7.0]), torch.empty(4)
    kernel[(1,)](x, out, False)
    assert out.tolist() == [-1.0, -1.0, 0.5, 1.0]
    kernel[(1,)](x, out, True)
    assert math.isnan(out[0])
    assert out.tolist()[1:] == [-1.0, 0.5, 1.0]


def test_clamp_of_integers_is_an_error_before_3_9():
    @tkdebug.jit
    def kernel():
        tl.clamp(tl.arange(0, 16), 0, 4)

    with scope(triton_version="3.8"):
        assert message(kernel) == (
            "tl.clamp expects floating-point operands, got int32; "
            "write tl.minimum(tl.maximum(x, low), high)"
        )


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat_joins_along_an_axis(dim):
    @tkdebug.jit
    def kernel(P, OUT, DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        x = tl.load(P + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :])
        place = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        tl.store(OUT + place, tl.cat(x, x + 100, dim=DIM))

    x = X[:32].reshape(4, 8)
    expected = torch.cat([x, x + 100], dim)
    out = torch.empty_like(expected)
    kernel[(1,)](x, out, dim, *expected.shape)
    assert torch.equal(out, expected)


def test_precise_sqrt_and_fma_are_rounded_once():
    @tkdebug.jit
    def kernel(A, B, C, ROOT, FUSED, N: tl.constexpr):
        i = tl.arange(0, N)
        a, b, c = tl.load(A + i), tl.load(B + i), tl.load(C + i)
        tl.store(ROOT + i, tl.math.sqrt_rn(a))
        tl.store(FUSED + i, tl.fma(a, b, c))

    a, b = torch.rand(1024), torch.rand(1024)
    c = -(a * b)
    root, fused = torch.empty(1024), torch.empty(1024)
    kernel[(1,)](a, b, c, root, fused, 1024)
    assert torch.equal(root, a.double().sqrt().float())
    # The product is exact in double, and so is this difference.
    assert torch.equal(fused, (a.double() * b.double() + c.double()).float())


def test_item_makes_a_scalar():
    @tkdebug.jit
    def kernel(OUT):
        value = tl.full((1, 1), 7, tl.int32).item()
        tl.static_assert(value.shape == ())
        tl.store(OUT, value)

    out = torch.zeros(1, dtype=torch.int32)
    kernel[(1,)](out)
    assert out.item() == 7


def test_standard_random_and_target_modules():
    @tkdebug.jit
    def kernel(OUT):
        tl.static_assert(tl.standard._log2(64) == 6)
        tl.static_assert(tl.target_info.is_cuda())
        tl.static_assert(tl.target_info.cuda_capability_geq(8, 0))
        tl.static_assert(tl.core.to_tensor(1.5).dtype == tl.float32)
        tl.store(OUT + tl.arange(0, 4), tl.random.rand(0, tl.arange(0, 4)))

    out = torch.empty(4)
    kernel[(1,)](out)
    torch.testing.assert_close(
        out, torch.tensor([0.798092902, 0.0555175915, 0.0388988405, 0.425264418])
    )


def test_log2_of_the_standard_module_can_be_imported_by_itself():
    from tkdebug.language.standard import _log2

    @tkdebug.jit
    def kernel(OUT, N: tl.constexpr):
        tl.static_assert(_log2(N) == 6)
        tl.store(OUT, tl.full((1,), 1, tl.int8).__lshift__(_log2(N)).sum())

    out = torch.empty(1, dtype=torch.int32)
    kernel[(1,)](out, 64)
    assert out.item() == 64
    assert _log2(8) == 3


@tkdebug.jit
def combine_by_methods(x, y, OUT, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(OUT + at, (a > 0).logical_and(b > 0))
    tl.store(OUT + N + at, (a > 0).logical_or(b > 0))
    tl.store(OUT + 2 * N + at, (a > 0).logical_or(True))


def test_conditions_combine_by_methods_too():
    x, y = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 0, 1])
    out = torch.empty(3, 4, dtype=torch.bool)
    combine_by_methods[(1,)](x, y, out, 4)
    a, b = x > 0, y > 0
    assert torch.equal(out, torch.stack([a & b, a | b, torch.ones_like(a)]))


@tkdebug.jit
def argmax_outside():
    tl.argmax(tl.arange(0, 16), 1)


@tkdebug.jit
def max_with_indices_of_all_axes():
    tl.max(tl.arange(0, 16), return_indices=True)


@tkdebug.jit
def sum_of_a_scalar(n):
    tl.sum(n, axis=0)


@tkdebug.jit
def hint_without_values(n):
    tl.multiple_of(n, None)


@tkdebug.jit
def topk_too_large():
    tl.topk(tl.arange(0, 16), 32)


@tkdebug.jit
def histogram_of_two_axes():
    tl.histogram(tl.zeros((4, 4), tl.int32), 4)


@tkdebug.jit
def gather_of_other_rank():
    tl.gather(tl.zeros((4, 4), tl.float32), tl.arange(0, 4), 0)


@tkdebug.jit
def flip_outside():
    tl.flip(tl.arange(0, 16), 1)


@tkdebug.jit
def numbers_of_a_pointer(P):
    tl.sum(P + tl.arange(0, 16), 0)


@tkdebug.jit
def random_numbers_without_end():
    tl.randint(7, tl.arange(0, 16), n_rounds=2**31)


@tkdebug.jit
def tensor_for_a_number(P):
    tl.store(P + tl.arange(0, 16), 1.0, mask=tl.arange(0, 16) < P)


@tkdebug.jit
def product_with_a_pointer(P):
    tl.store(P + tl.program_id(0) * P, 1.0)


@tkdebug.jit
def pointer_for_a_value(P):
    tl.store(P, P + 1)


@pytest.mark.parametrize(
    ("kernel", "arguments", "expected"),
    [
        (argmax_outside, (), "argmax: axis 1 is outside a tile of 1 axes"),
        (max_with_indices_of_all_axes, (), "max: an index needs an axis"),
        (sum_of_a_scalar, (5,), "sum: got a scalar of type int32, expected a tile"),
        (hint_without_values, (5,), "multiple_of: values must be constant ints, got None"),
        (topk_too_large, (), "topk: k must be a constant power of 2 from 1 to 16"),
        (histogram_of_two_axes, (), "histogram only supports tiles of one axis, got [4, 4]"),
        (gather_of_other_rank, (), "source and index tensors must have the same rank"),
        (flip_outside, (), "flip: axis 1 is outside a tile of 1 axes"),
        (random_numbers_without_end, (), "n_rounds must be a constant int from 0 to 1024"),
        (tensor_for_a_number, (X,), "`<` compares pointer<fp32> with int32[16]"),
        (product_with_a_pointer, (X,), "unsupported operator * on pointers, only p + offset"),
        (pointer_for_a_value, (X,), "tl.load reads what it points to"),
        (numbers_of_a_pointer, (X,), "expected numbers, got pointer<fp32>[16]"),
    ],
)
def test_error_says_what_is_wrong(kernel, arguments, expected):
    assert expected in message(kernel, *arguments)
