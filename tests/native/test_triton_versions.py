"""Additions of Triton 3.7, 3.8 and 3.9 to the language, in both modes.

Every launch is interpreted; what it launches is also compiled for sm_80 and sm_90a, and run as each
GPU pass left it, from the same memory.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager

import pytest
import torch
from corpus import Corpus

import tkdebug
import tkdebug.language as tl
from tkdebug import TensorDescriptor
from tkdebug.compiler.aggregates import aggregate
from tkdebug.errors import CompileError, LaunchError
from tkdebug.knobs import scope
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.errors import ArgumentTypeError

LANES = torch.arange(8, dtype=torch.int32)


@pytest.fixture(autouse=True)
def in_both_modes():
    torch.manual_seed(0)
    corpus = Corpus(["sm_80", "sm_90a"], True, None)
    with tkdebug.mode("interpret"), corpus.collecting():
        yield
    assert not corpus.failures, [(row.kernel, row.target, row.cause) for row in corpus.failures]


@contextmanager
def collected(seen):
    hook = Hook(fault=seen.append)
    HOOKS.add(hook)
    try:
        yield
    finally:
        HOOKS.remove(hook)


@tkdebug.jit
def squeezes(X, OUT):
    lanes = tl.arange(0, 8)
    x = tl.load(X + lanes)
    tl.store(OUT + lanes, tl.squeeze(tl.unsqueeze(x, 0), -2) + x.unsqueeze(-1).squeeze(1))


def test_squeeze_and_unsqueeze():
    x, out = torch.rand(8), torch.empty(8)
    squeezes[(1,)](x, out)
    assert torch.equal(out, 2 * x)


@tkdebug.jit
def makes_tensors(OUT):
    tl.static_assert(tl.to_tensor(3).dtype == tl.int32)
    tl.static_assert(tl.to_tensor(4000000000).dtype == tl.uint32)
    tl.static_assert(tl.to_tensor(True).dtype == tl.int1)
    tl.static_assert(tl.to_tensor(1e-300).dtype == tl.float64)
    tl.store(OUT, tl.to_tensor(3) + tl.to_tensor(2.5))


def test_to_tensor():
    out = torch.empty(1)
    makes_tensors[(1,)](out)
    assert out.item() == 5.5


@tkdebug.jit
def smallest(X, OUT, K: tl.constexpr):
    tl.store(OUT + tl.arange(0, K), tl.topk(tl.load(X + tl.arange(0, 16)), K, descending=False))


@pytest.mark.parametrize("k", [1, 4, 16])
def test_topk_of_the_smallest(k):
    x, out = torch.randperm(16).float(), torch.empty(k)
    smallest[(1,)](x, out, k)
    assert torch.equal(out, x.sort().values[:k])


@tkdebug.jit
def expects_zero(X, OUT):
    lanes = tl.arange(0, 8)
    x = tl.load(X + lanes)
    tl.store(OUT + lanes, tl.expect_zero(x, lanes < 2))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_expect_zero_is_asserted_in_debugging_only(value):
    x, out = torch.full((8,), value), torch.empty(8)
    expects_zero[(1,)](x, out)
    assert torch.equal(out, x)
    seen = []
    with collected(seen):
        expects_zero[(1,)](x, out, debug=True)
    assert [fault.kind for fault in seen] == ["assert"] * int(value)


@tkdebug.jit
def copies_atomically(X, OUT):
    lanes = tl.arange(0, 8)
    x = tl.atomic_load(X + lanes, mask=lanes < 4, sem="relaxed")
    tl.atomic_store(OUT + lanes, x, mask=lanes < 4)
    (OUT + lanes).atomic_store(tl.atomic_load(X + lanes, scope="sys"), mask=lanes >= 4)
    tl.atomic_store(OUT + 8, tl.atomic_load(X + 7), sem="relaxed")


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.float16, torch.bfloat16, torch.float32, torch.int64]
)
def test_atomic_load_and_store(dtype):
    x = torch.randint(0, 2, (8,)).to(dtype)
    out = torch.empty(9, dtype=dtype)
    copies_atomically[(1,)](x, out)
    assert torch.equal(out, torch.cat([x, x[7:]]))


@tkdebug.jit
def polls(X, OUT, timeout_ns):
    lanes = tl.arange(0, 8)
    tl.store(OUT + lanes, tl.atomic_poll(X + lanes, lanes, timeout_ns=timeout_ns))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_atomic_poll_gives_up_at_its_timeout(dtype):
    x, out = LANES.to(dtype, copy=True), torch.zeros(8, dtype=torch.bool)
    x[3] = 9
    polls[(1,)](x, out, 100_000)
    assert torch.equal(out, x == LANES)


@tkdebug.jit
def hands_on(FLAG, DATA, OUT):
    pid = tl.program_id(0)
    if pid == 0:
        tl.atomic_poll(FLAG, 1)
        tl.store(OUT, tl.load(DATA))
    else:
        tl.store(DATA, 7)
        tl.atomic_store(FLAG, 1)


def test_atomic_poll_waits_for_a_later_program_and_orders_what_it_wrote():
    flag, data, out = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
    seen = []
    with scope(checks="race"), collected(seen):
        hands_on[(2,)](flag, data, out)
    assert out.item() == 7
    assert not seen


@tkdebug.jit
def polls_relaxed(FLAG, DATA, OUT):
    pid = tl.program_id(0)
    if pid == 0:
        tl.atomic_poll(FLAG, 1, sem="relaxed")
        tl.store(OUT, tl.load(DATA))
    else:
        tl.store(DATA, 7)
        tl.atomic_store(FLAG, 1)


def test_relaxed_poll_orders_nothing():
    flag, data, out = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
    seen = []
    with scope(checks="race"), collected(seen):
        polls_relaxed[(2,)](flag, data, out)
    assert [fault.kind for fault in seen] == ["race"]


@tkdebug.jit
def reads_twice(X, OUT):
    pid = tl.program_id(0)
    tl.store(OUT + pid, tl.load(X) + tl.atomic_load(X))


def test_atomic_load_beside_plain_loads_is_no_race():
    seen = []
    with scope(checks="race"), collected(seen):
        reads_twice[(4,)](torch.ones(1), torch.empty(4))
    assert not seen


@tkdebug.jit
def waits_for_nobody(FLAG):
    tl.atomic_poll(FLAG, 1)


def test_atomic_poll_that_nobody_ends_is_reported():
    with pytest.raises(LaunchError, match="waits for memory that no other program changes"):
        waits_for_nobody[(2,)](torch.zeros(1, dtype=torch.int32))


@tkdebug.jit
def polls_floats(X):
    tl.atomic_poll(X, 1.0)


def test_atomic_poll_refuses_floats():
    with pytest.raises(CompileError, match="atomic_poll needs integers of 16, 32 or 64 bits"):
        polls_floats[(1,)](torch.zeros(1))


@tkdebug.jit
def concatenates(X, Y, OUT):
    rows, columns = tl.arange(0, 4)[:, None], tl.arange(0, 4)[None, :]
    both = tl.cat(tl.load(X + rows * 4 + columns), tl.load(Y + rows * 4 + columns), dim=1)
    tl.store(OUT + rows * 8 + tl.arange(0, 8)[None, :], both)


def test_cat_along_an_axis():
    x, y, out = torch.rand(4, 4), torch.rand(4, 4), torch.empty(4, 8)
    concatenates[(1,)](x, y, out)
    assert torch.equal(out, torch.cat([x, y], 1))


@tkdebug.jit
def divides(X, OUT):
    lanes = tl.arange(0, 8)
    x = tl.load(X + lanes)
    tl.store(OUT + lanes, tl.fdiv(x, 3, approx=True) + tl.math.fdiv(1.0, x, ieee_rounding=True))


def test_fdiv_is_approximate_or_exact():
    x, out = torch.rand(8) + 1, torch.empty(8)
    divides[(1,)](x, out)
    torch.testing.assert_close(out, x / 3 + 1 / x)


@tkdebug.jit
def divides_both_ways(X):
    tl.store(X, tl.fdiv(tl.load(X), 2.0, ieee_rounding=True, approx=True))


def test_fdiv_cannot_be_approximate_and_exact():
    with pytest.raises(CompileError, match="approx and ieee_rounding exclude each other"):
        divides_both_ways[(1,)](torch.ones(1))


@tkdebug.jit
def scans(X, SUMS, PRODUCTS):
    lanes = tl.arange(0, 8)
    x = tl.load(X + lanes)
    tl.store(SUMS + lanes, tl.cumsum(x, dtype=tl.float32))
    tl.store(PRODUCTS + lanes, x.cumprod(0, dtype=tl.float64))


def test_scans_in_a_dtype():
    x = torch.rand(8, dtype=torch.float16)
    sums, products = torch.empty(8), torch.empty(8, dtype=torch.float64)
    scans[(1,)](x, sums, products)
    torch.testing.assert_close(sums, x.float().cumsum(0))
    torch.testing.assert_close(products, x.double().cumprod(0))


@tkdebug.jit
def calls_members(X, OUT):
    lanes = tl.arange(0, 8)
    x = tl.load(X + lanes)
    tl.store(OUT + lanes, x.erf() + x.exp2() + x.floor() + x.ceil() + x.log2() + x.sqrt_rn())


def test_functions_as_members():
    x, out = torch.rand(8) + 1, torch.empty(8)
    calls_members[(1,)](x, out)
    wanted = x.erf() + x.exp2() + x.floor() + x.ceil() + x.log2() + x.sqrt()
    torch.testing.assert_close(out, wanted)


@tkdebug.jit
def added(*terms):
    total = terms[0]
    for i in tl.static_range(1, len(terms)):
        total += terms[i]
    return total


@tkdebug.jit
def scaled(x, *, by):
    return x * by


@tkdebug.jit
def adds_all(OUT, *terms, factor: tl.constexpr = 1):
    tl.store(OUT, scaled(added(*terms), by=factor))


def test_variadic_and_keyword_only_parameters():
    out = torch.empty(1)
    adds_all[(1,)](out, 1.5, 2.5, 3)
    assert out.item() == 7
    adds_all[(1,)](out, 1.5, 2, factor=2)
    assert out.item() == 7


@tkdebug.jit
def gives_by_position(OUT):
    tl.store(OUT, scaled(1.0, 2.0))


def test_keyword_only_parameter_takes_no_position():
    with pytest.raises(CompileError, match="scaled takes 1 arguments by position, got 2"):
        gives_by_position[(1,)](torch.empty(1))
    with pytest.raises(ArgumentTypeError, match=r"adds_all\(OUT, \*terms, factor\) is missing"):
        adds_all[(1,)]()


@tkdebug.jit
def doubled(x):
    return x * 2


@tkdebug.jit
def applies(OUT, F: tl.constexpr):
    tl.store(OUT, F(3.0))


def test_jit_function_as_a_constant():
    out = torch.empty(1)
    applies[(1,)](out, doubled)
    assert out.item() == 6


@aggregate
class Line:
    slope: tl.tensor
    start: tl.tensor
    degree: tl.constexpr = 1

    @tkdebug.jit
    def at(self, x):
        return self.slope * x + self.start

    @tkdebug.jit
    def __add__(self, other):
        return Line(self.slope + other.slope, self.start + other.start)


@aggregate
class Scaled(Line):
    factor: tl.constexpr

    def __init__(self, line, factor):
        self.slope, self.start, self.degree = line.slope, line.start, line.degree
        self.factor = factor


@tkdebug.jit
def uses_aggregates(OUT, a, b, N):
    lanes = tl.arange(0, 8)
    line = Line(a, b) + Line(1.0, b)
    for _ in range(N):
        line = tl.aggregate_replace(line, start=line.at(1.0))
    scaled_line = Scaled(line, 2)
    tl.static_assert(scaled_line.degree == 1)
    tl.store(OUT + lanes, scaled_line.at(lanes) * tl.arange(0, scaled_line.factor * 4))


def test_aggregates_are_made_carried_and_replaced():
    out = torch.empty(8)
    uses_aggregates[(1,)](out, 2.0, 1.0, 3)
    assert torch.equal(out, (3.0 * LANES + 11) * LANES)


@tkdebug.jit
def takes_aggregate(OUT, line):
    lanes = tl.arange(0, 8 * line.degree)
    tl.store(OUT + lanes, line.at(lanes))


def test_aggregate_as_an_argument():
    out = torch.empty(8)
    takes_aggregate[(1,)](out, Line(2.0, 5))
    assert torch.equal(out, 2.0 * LANES + 5)


@tkdebug.jit
def replaces_wrongly(OUT):
    tl.store(OUT, tl.aggregate_replace(Line(1.0, 2.0), steep=1.0).start)


@tkdebug.jit
def varies_a_constant(OUT, n):
    tl.store(OUT, Line(1.0, 2.0, n).start)


def test_wrong_fields_are_named():
    with pytest.raises(CompileError, match="Line has no field 'steep'; it has slope, start"):
        replaces_wrongly[(1,)](torch.empty(1))
    with pytest.raises(CompileError, match="field 'degree' of Line is a tl"):
        varies_a_constant[(1,)](torch.empty(1), 3)


@tkdebug.jit
def bools(X, Y, OUT):
    lanes = tl.arange(0, 4)
    x, y = tl.load(X + lanes), tl.load(Y + lanes)
    tl.store(OUT + lanes, x + y)
    tl.store(OUT + 4 + lanes, x - y)
    tl.store(OUT + 8 + lanes, x * y)


def test_int1_wraps():
    x, y = torch.tensor([0, 0, 1, 1]).bool(), torch.tensor([0, 1, 0, 1]).bool()
    out = torch.empty(12, dtype=torch.bool)
    bools[(1,)](x, y, out)
    assert torch.equal(out, torch.cat([x ^ y, x ^ y, x & y]))


@tkdebug.jit
def fmas(X, Y, Z, OUT):
    lanes = tl.arange(0, 4)
    tl.store(OUT + lanes, tl.fma(tl.load(X + lanes), tl.load(Y + lanes), tl.load(Z + lanes)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_fma_rounds_once(dtype):
    step = torch.finfo(dtype).eps
    x, y = torch.full((4,), 1 + step, dtype=dtype), torch.full((4,), 1 - step, dtype=dtype)
    out = torch.empty(4, dtype=dtype)
    fmas[(1,)](x, y, torch.full((4,), -1.0, dtype=dtype), out)
    assert torch.equal(out, torch.full((4,), -step * step, dtype=dtype))


@tkdebug.jit
def high_halves(X, Y, OUT):
    lanes = tl.arange(0, 4)
    tl.store(OUT + lanes, tl.umulhi(tl.load(X + lanes), tl.load(Y + lanes)))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_umulhi_takes_signed_operands_for_unsigned(dtype):
    bits = 8 * dtype.itemsize
    x = torch.tensor([-1, -2, 3, -(2 ** (bits - 1))], dtype=dtype)
    y, out = torch.tensor([-1, 5, -7, 2], dtype=dtype), torch.empty(4, dtype=dtype)
    high_halves[(1,)](x, y, out)
    mask = (1 << bits) - 1
    wanted = [
        ((a & mask) * (b & mask)) >> bits for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    assert [value & mask for value in out.tolist()] == wanted


@tkdebug.jit
def counts(X, OUT):
    tl.store(OUT + tl.arange(0, 4), tl.histogram(tl.load(X + tl.arange(0, 8)), 4))


def test_histogram_drops_what_is_at_its_upper_edge():
    x = torch.tensor([0, 1, 2, 3, 4, 4, 5, -1], dtype=torch.int32)
    out = torch.empty(4, dtype=torch.int32)
    counts[(1,)](x, out)
    assert out.tolist() == [1, 1, 1, 1]


@tkdebug.jit
def loads_block(DESC, OUT):
    rows, columns = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    tl.store(OUT + rows * 8 + columns, DESC.load([0, 0]))


def test_descriptor_rounds_to_tf32():
    x, out = torch.randn(4, 8), torch.empty(4, 8)
    bits = [0x3F801000, 0x3F803000, 0x7F800000, -0x800000, 0x7F800001]
    x[0, :5] = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    loads_block[(1,)](TensorDescriptor.from_tensor(x, [4, 8], round_f32_to_tf32=True), out)
    words = x.view(torch.int32).long()
    near = (words + ((words >> 13) & 1) + 0xFFF) & ~0x1FFF
    near[0, 2:5] = words[0, 2:5]
    assert torch.equal(out.view(torch.int32).long(), near)
    loads_block[(1,)](TensorDescriptor.from_tensor(x, [4, 8]), out)
    assert torch.equal(out.view(torch.int32), x.view(torch.int32))


@tkdebug.jit
def casts_fnuz(X, OUT):
    lanes = tl.arange(0, 4)
    x = tl.load(X + lanes)
    tl.store(OUT + lanes, x.to(tl.float8e4b8).to(tl.uint8, bitcast=True))
    tl.store(OUT + 4 + lanes, x.to(tl.float8e5b16).to(tl.uint8, bitcast=True))


def test_fnuz_has_one_zero():
    out = torch.empty(8, dtype=torch.uint8)
    casts_fnuz[(1,)](torch.tensor([-0.0, 0.0, -1e-30, float("nan")]), out)
    assert out.tolist() == [0, 0, 0, 128] * 2


# Where versions differ


@tkdebug.jit
def limits(X, OUT):
    lanes = tl.arange(0, 4)
    tl.store(OUT + lanes, tl.clamp(tl.load(X + lanes), 2, 5))


@tkdebug.jit
def widens(X, NARROW: tl.constexpr):
    x = tl.load(X + tl.arange(0, 4))
    tl.static_assert((tl.maximum(x, x).dtype == tl.bfloat16) == NARROW)
    tl.static_assert((tl.minimum(x, 1.0).dtype == tl.bfloat16) == NARROW)
    tl.static_assert((tl.cumsum(x).dtype == tl.bfloat16) == NARROW)
    tl.static_assert((tl.max(x, 0, return_indices=True)[0].dtype == tl.bfloat16) == NARROW)
    tl.static_assert(tl.max(x, 0).dtype == tl.float32)


@tkdebug.jit
def negates(X, OUT):
    tl.store(OUT, -tl.load(X))


@tkdebug.jit
def normalises(X, OUT):
    places = tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(OUT + places, tl.softmax(tl.load(X + places), dim=1))


@tkdebug.jit
def compares_with_a_tenth(X, OUT):
    tl.store(OUT, tl.load(X) == 0.1)


def test_clamp_takes_integers_from_3_9_on():
    x, out = torch.arange(0, 8, 2, dtype=torch.int32), torch.empty(4, dtype=torch.int32)
    limits[(1,)](x, out)
    assert out.tolist() == [2, 2, 4, 5]
    fresh = tkdebug.jit(limits.fn)
    with scope(triton_version="3.8"):
        with pytest.raises(CompileError, match="clamp expects floating-point operands"):
            fresh[(1,)](x, out)


@pytest.mark.parametrize("version", ["3.6", "3.8", "3.9"])
def test_bf16_is_kept_from_3_9_on(version):
    with scope(triton_version=version):
        tkdebug.jit(widens.fn)[(1,)](torch.ones(4, dtype=torch.bfloat16), version == "3.9")


@pytest.mark.parametrize(("version", "sign"), [("3.7", 1.0), ("3.8", -1.0)])
def test_negated_zero_has_a_sign_from_3_8_on(version, sign):
    out = torch.empty(1)
    with scope(triton_version=version):
        tkdebug.jit(negates.fn)[(1,)](torch.zeros(1), out)
    assert torch.copysign(torch.ones(1), out).item() == sign


@pytest.mark.parametrize(("version", "is_right"), [("3.8", False), ("3.9", True)])
def test_softmax_keeps_its_shape_from_3_9_on(version, is_right):
    x, out = torch.rand(4, 4), torch.empty(4, 4)
    with scope(triton_version=version):
        tkdebug.jit(normalises.fn)[(1,)](x, out)
    assert torch.allclose(out, x.softmax(1)) is is_right


@pytest.mark.parametrize(("version", "found"), [("3.8", operator.not_), ("3.9", bool)])
def test_compared_numbers_are_weak_from_3_9_on(version, found):
    out = torch.empty(1, dtype=torch.bool)
    with scope(triton_version=version):
        tkdebug.jit(compares_with_a_tenth.fn)[(1,)](torch.tensor([0.1]).half(), out)
    assert found(out.item())


ON_A_GPU = {
    "atomic_load_and_store": (copies_atomically, (torch.arange(8.0), torch.zeros(9))),
    "atomic_bytes": (copies_atomically, (LANES.to(torch.int8), torch.zeros(9, dtype=torch.int8))),
    "poll": (polls, (LANES + (LANES == 3), torch.ones(8, dtype=torch.bool), 100_000)),
    "variadic": (adds_all, (torch.zeros(1), 1.5, 2.5, 3)),
    "aggregate": (uses_aggregates, (torch.zeros(8), 2.0, 1.0, 3)),
    "aggregate_argument": (takes_aggregate, (torch.zeros(8), Line(2.0, 5))),
    "fnuz": (casts_fnuz, (torch.tensor([-0.0, 0.0, -1e-30, 3.0]), torch.zeros(8).byte())),
    "clamp": (limits, (torch.arange(0, 8, 2).int(), torch.zeros(4).int())),
    "cat": (concatenates, (torch.rand(4, 4), torch.rand(4, 4), torch.zeros(4, 8))),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_A_GPU)
def test_native_launches_agree(name):
    kernel, arguments = ON_A_GPU[name]
    found = []
    for mode, device in (("interpret", "cpu"), ("native", "cuda")):
        given = [x.to(device, copy=True) if isinstance(x, torch.Tensor) else x for x in arguments]
        with tkdebug.mode(mode):
            kernel[(1,)](*given)
        found.append([x.cpu() for x in given if isinstance(x, torch.Tensor)])
    for interpreted, native in zip(*found, strict=True):
        assert torch.equal(interpreted, native)


@pytest.mark.gpu
def test_native_poll_waits_for_another_program():
    flag, data, out = (torch.zeros(1, dtype=torch.int32, device="cuda") for _ in range(3))
    with tkdebug.mode("native"):
        hands_on[(2,)](flag, data, out)
    assert out.item() == 7
