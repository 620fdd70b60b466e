"""Rules that upstream's own tests hold kernels to."""

import warnings

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.errors import CompileError, UnsupportedError
from tkdebug.runtime.arguments.tensor_stand_ins import reinterpret


@tkdebug.jit
def shift_right(X, Y, Z):
    i = tl.arange(0, 4)
    tl.store(Z + i, tl.load(X + i) >> tl.load(Y + i))


@pytest.mark.parametrize("amount", [torch.uint8, torch.uint16])
def test_right_shift_is_arithmetic_by_the_left_operand(amount):
    x = torch.tensor([-128, -1, 64, 5], dtype=torch.int8)
    z = torch.empty(4, dtype=torch.int16)
    shift_right.interpret[(1,)](x, torch.full((4,), 2, dtype=amount), z)
    assert z.to(torch.int8).tolist() == [-32, -1, 16, 1]


@tkdebug.jit
def absolute(X, Z):
    i = tl.arange(0, 4)
    tl.store(Z + i, tl.abs(tl.load(X + i)))


def test_abs_of_fp8e4b15_clears_the_sign():
    x = torch.tensor([-128, -1, 64, -5], dtype=torch.int8)
    z = torch.empty_like(x)
    absolute.interpret[(1,)](reinterpret(x, tl.float8e4b15), reinterpret(z, tl.float8e4b15))
    assert z.tolist() == [0, 127, 64, 123]


@tkdebug.jit
def product(X, Y, Z):
    x = tl.load(X + tl.arange(0, 2048)).reshape([2, 1, 2, 16, 32])
    y = tl.load(Y + tl.arange(0, 2048)).reshape([2, 1, 2, 32, 16])
    z = tl.dot(x, y)
    tl.static_assert(z.shape == (2, 1, 2, 16, 16))
    tl.store(Z + tl.arange(0, 1024), z.reshape([1024]))


def test_dot_takes_several_batch_axes():
    x = torch.randint(-4, 5, (2, 1, 2, 16, 32), dtype=torch.bfloat16)
    y = torch.randint(-4, 5, (2, 1, 2, 32, 16), dtype=torch.bfloat16)
    z = torch.empty(2, 1, 2, 16, 16)
    product.interpret[(1,)](x, y, z)
    assert torch.equal(z, x.float() @ y.float())


@tkdebug.jit
def product_of(X, Y, Z, N: tl.constexpr, K: tl.constexpr):
    n, k = tl.arange(0, N), tl.arange(0, K)
    x = tl.load(X + n[:, None] * K + k[None, :])
    y = tl.load(Y + k[:, None] * N + n[None, :])
    tl.store(Z + n[:, None] * N + n[None, :], tl.dot(x, y, input_precision="ieee"))


@pytest.mark.parametrize(
    ("dtype", "least"),
    [(torch.int8, 32), (torch.bfloat16, 16), (torch.float32, 8), (torch.float64, 4)],
)
def test_dot_takes_256_bits_along_k(dtype, least):
    sums = torch.int32 if dtype == torch.int8 else torch.promote_types(dtype, torch.float32)
    x, y = (torch.randint(-4, 5, shape).to(dtype) for shape in ((16, least), (least, 16)))
    z = torch.empty(16, 16, dtype=sums)
    product_of.interpret[(1,)](x, y, z, 16, least)
    assert torch.equal(z, x.to(sums) @ y.to(sums))
    with pytest.raises(CompileError, match=f"K must be at least {least} .*, got {least // 2}"):
        product_of.interpret[(1,)](x, y, z, 16, least // 2)


def test_dot_of_integers_above_8_bits_is_refused_whatever_their_shape():
    x = torch.ones(16, 4, dtype=torch.int32)
    with pytest.raises(CompileError, match="integer operands must be 8-bit, got int32"):
        product_of.interpret[(1,)](x, x.T.contiguous(), torch.empty(16, 16), 16, 4)


@tkdebug.jit
def wrong_axis():
    tl.program_id(3)


def test_compile_error_keeps_its_cause():
    with pytest.raises(CompileError) as caught:
        wrong_axis.interpret[(1,)]()
    assert str(caught.value.__cause__) == "program_id axis must be 0, 1, or 2 but got 3"


@tkdebug.jit
def where_integers(Z):
    tl.store(Z, tl.where(tl.load(Z), 1, 2))


def test_where_warns_at_its_line_of_a_condition_that_is_no_bool():
    with pytest.warns(UserWarning, match="non-boolean") as warned:
        where_integers.interpret[(1,)](torch.zeros(1, dtype=torch.int32))
    line = where_integers.starting_line_number + 2
    assert [(w.filename, w.lineno) for w in warned] == [(__file__, line)]


@tkdebug.jit
def range_with_keywords(Z, n, s):
    count = 0
    for _ in range(0, n):
        for i in range(1, n, step=s):
            count += i
    tl.store(Z, count)


def test_keywords_of_range_are_ignored_and_warned_of_once():
    z = torch.zeros(1, dtype=torch.int32)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        range_with_keywords.interpret[(1,)](z, 5, 2)
    line = range_with_keywords.starting_line_number + 4
    assert [(w.filename, w.lineno) for w in warned] == [(__file__, line)]
    assert "`step=` is ignored" in str(warned[0].message)
    assert z.item() == 5 * (1 + 2 + 3 + 4)


@tkdebug.jit(do_not_specialize=["N"])
def constant_not_specialized(N: tl.constexpr):
    pass


def test_constexpr_in_do_not_specialize_is_refused():
    with pytest.raises(CompileError, match="N marked as constexpr and listed in"):
        constant_not_specialized.interpret[(1,)](4)


@tkdebug.jit
def softmax_of_halves(X, Z):
    i = tl.arange(0, 16)
    z = tl.softmax(tl.load(X + i))
    tl.static_assert(z.dtype == tl.float32)
    tl.store(Z + i, z)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2])
def test_softmax_of_narrow_floats_is_computed_in_fp32(dtype):
    x = torch.linspace(-4, 4, 16).to(dtype)
    z = torch.empty(16)
    softmax_of_halves.interpret[(1,)](x, z)
    torch.testing.assert_close(z, torch.softmax(x.float(), 0))


@tkdebug.jit
def rearranged_pointers(X, Y, Z):
    i = tl.arange(0, 8)
    x, y = X + i, Y + i
    left, right = tl.split(tl.join(x, y))
    both = tl.cat(x, y)
    turned = tl.gather(x, 7 - i, 0)
    tl.store(Z + i, tl.load(left))
    tl.store(Z + 8 + i, tl.load(right))
    tl.store(Z + 16 + tl.arange(0, 16), tl.load(both))
    tl.store(Z + 32 + i, tl.load(turned))


def test_tiles_of_pointers_are_rearranged_like_others():
    x, y, z = torch.arange(8.0), torch.arange(8.0) + 100, torch.zeros(40)
    rearranged_pointers.interpret[(1,)](x, y, z)
    assert torch.equal(z, torch.cat([x, y, x, y, x.flip(0)]))


@tkdebug.jit
def leftmost(a, b):
    return a


@tkdebug.jit
def reduced_pointers(X):
    tl.store(tl.reduce(X + tl.arange(0, 8), 0, leftmost), 1.0)


def test_reductions_of_pointers_are_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"tt\.reduce of pointers is not supported"):
        reduced_pointers.interpret[(1,)](torch.zeros(8))
