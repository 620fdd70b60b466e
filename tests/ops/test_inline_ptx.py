"""Inline PTX under interpret, instruction by instruction, against numbers worked out in Python.

The sections of the PTX ISA are named in `interpreter/ptx/`.
"""

import math
import struct

import numpy
import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.errors import UnsupportedError

M = 0xFFFFFFFF


@tkdebug.jit
def asm_kernel(
    A, B, C, OUT, ASM: tl.constexpr, RULES: tl.constexpr, SIZE: tl.constexpr, PACK: tl.constexpr
):
    i = tl.arange(0, SIZE)
    given = (tl.load(A + i), tl.load(B + i), tl.load(C + i))
    dtype: tl.constexpr = OUT.dtype.element_ty
    tl.store(OUT + i, tl.inline_asm_elementwise(ASM, RULES, given, dtype, True, PACK))


def words(values):
    return torch.tensor([value - (value >> 31 << 32) for value in values], dtype=torch.int32)


def run(asm, a, b, c):
    """Words of 32 bits in, words out."""
    size = 1 << (len(a) - 1).bit_length()
    out = torch.zeros(size, dtype=torch.int32)
    given = [words([value & M for value in values] + [0] * (size - len(a))) for values in (a, b, c)]
    asm_kernel[(1,)](*given, out, asm, "=r,r,r,r", size, 1)
    return [value & M for value in out[: len(a)].tolist()]


A = [0x00000000, 0x12345678, 0x80000001, 0xFFFFFFFF, 0x7F80FE01, 0x000000F0, 0x80007FFF, 0x01020304]
B = [0xFFFFFFFF, 0x0F1E2D3C, 0x00000001, 0xFFFFFFFF, 0x81FF7F80, 0x00000010, 0x7FFF8000, 0x05060708]
C = [0x00000000, 0x00005140, 0x00000003, 0x00000020, 0xDEADBEEF, 0x0000FB51, 0x00000011, 0x0000001F]


def signed(value, bits=32):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def bytes_of(value, sign):
    return [signed(value >> 8 * i, 8) if sign else value >> 8 * i & 255 for i in range(4)]


def halves(value, sign=False):
    return [signed(value >> 16 * i, 16) if sign else value >> 16 * i & 0xFFFF for i in range(2)]


def lop3(table):
    def bit(a, b, c, i):
        return table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1

    return lambda a, b, c: sum(bit(a, b, c, i) << i for i in range(32))


def bfe(value, start, length, sign):
    top = (value >> min(start + length - 1, 31) & 1) if sign and length else 0
    places = range(32)
    return sum(
        (value >> start + i & 1 if i < length and start + i < 32 else top) << i for i in places
    )


def bfi(a, b, start, length):
    places = [i for i in range(start, min(start + length, 32))]
    return sum((a >> i - start if i in places else b >> i) % 2 << i for i in range(32))


def highest(value, sign):
    value = ~value & M if sign and value >> 31 else value
    return value.bit_length() - 1


def clamped(value, bits, sign):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign else (0, (1 << bits) - 1)
    return min(max(value, low), high) & ((1 << bits) - 1)


def permuted(text):
    """Bytes of a result, the highest first, as PTX's table has them: `0` to `7`."""

    def result(a, b, c):
        every = bytes_of(a, False) + bytes_of(b, False)
        return int.from_bytes(bytes(every[int(place)] for place in text[c & 3]), "big")

    return result


@pytest.mark.parametrize(
    ("asm", "expected"),
    [
        ("lop3.b32 $0, $1, $2, $3, 0xEA;", lop3(0xEA)),
        ("lop3.b32 $0, $1, 0x000f000f, 0x64006400, 234;", lambda a, b, c: a & 0xF000F | 0x64006400),
        ("lop3.b32 $0, $1, $2, $3, 0x96;", lambda a, b, c: a ^ b ^ c),
        ("shf.l.wrap.b32 $0, $1, $2, $3;", lambda a, b, c: ((b << 32 | a) << c % 32) >> 32),
        ("shf.r.wrap.b32 $0, $1, $2, $3;", lambda a, b, c: (b << 32 | a) >> c % 32),
        ("shf.l.clamp.b32 $0, $1, $2, $3;", lambda a, b, c: ((b << 32 | a) << min(c, 32)) >> 32),
        ("shf.r.clamp.b32 $0, $1, $2, $3;", lambda a, b, c: (b << 32 | a) >> min(c, 32)),
        ("bfe.u32 $0, $1, 4, 8;", lambda a, b, c: bfe(a, 4, 8, False)),
        ("bfe.s32 $0, $1, 28, 8;", lambda a, b, c: bfe(a, 28, 8, True)),
        ("bfe.s32 $0, $1, 40, 2;", lambda a, b, c: bfe(a, 40, 2, True)),
        ("bfi.b32 $0, $1, $2, 8, 12;", lambda a, b, c: bfi(a, b, 8, 12)),
        ("bfi.b32 $0, $1, $2, 28, 12;", lambda a, b, c: bfi(a, b, 28, 12)),
        ("bfi.b32 $0, $1, $2, 3, $3;", lambda a, b, c: bfi(a, b, 3, c & 255)),
        ("bfind.u32 $0, $1;", lambda a, b, c: highest(a, False)),
        ("bfind.s32 $0, $1;", lambda a, b, c: highest(a, True)),
        ("bfind.shiftamt.u32 $0, $1;", lambda a, b, c: 31 - highest(a, False) if a else M),
        ("mad.lo.s32 $0, $1, $2, $3;", lambda a, b, c: a * b + c),
        ("mad.hi.u32 $0, $1, $2, $3;", lambda a, b, c: (a * b >> 32) + c),
        ("mad.hi.s32 $0, $1, $2, $3;", lambda a, b, c: (signed(a) * signed(b) >> 32) + c),
        (
            "{ .reg .b16 l, h, m, n; mov.b32 {l, h}, $1; mov.b32 {m, n}, $2; "
            "mad.wide.s16 $0, h, n, $3; }",
            lambda a, b, c: halves(a, True)[1] * halves(b, True)[1] + c,
        ),
        ("mul24.lo.u32 $0, $1, $2;", lambda a, b, c: a % 2**24 * (b % 2**24)),
        ("mad24.hi.s32 $0, $1, $2, $3;", lambda a, b, c: (signed(a, 24) * signed(b, 24) >> 16) + c),
        ("sad.s32 $0, $1, $2, $3;", lambda a, b, c: abs(signed(a) - signed(b)) + c),
        ("sad.u32 $0, $1, $2, $3;", lambda a, b, c: abs(a - b) + c),
        (
            "dp4a.s32.u32 $0, $1, $2, $3;",
            lambda a, b, c: c + numpy.dot(bytes_of(a, True), bytes_of(b, False)),
        ),
        (
            "dp4a.u32.u32 $0, $1, $2, $3;",
            lambda a, b, c: c + numpy.dot(bytes_of(a, False), bytes_of(b, False)),
        ),
        (
            "dp2a.lo.s32.s32 $0, $1, $2, $3;",
            lambda a, b, c: c + numpy.dot(halves(a, True), bytes_of(b, True)[:2]),
        ),
        (
            "dp2a.hi.u32.s32 $0, $1, $2, $3;",
            lambda a, b, c: c + numpy.dot(halves(a), bytes_of(b, True)[2:]),
        ),
        ("prmt.b32.f4e $0, $1, $2, $3;", permuted(("3210", "4321", "5432", "6543"))),
        ("prmt.b32.b4e $0, $1, $2, $3;", permuted(("5670", "6701", "7012", "0123"))),
        ("prmt.b32.rc8 $0, $1, $2, $3;", permuted(("0000", "1111", "2222", "3333"))),
        ("prmt.b32.ecl $0, $1, $2, $3;", permuted(("3210", "3211", "3222", "3333"))),
        ("prmt.b32.ecr $0, $1, $2, $3;", permuted(("0000", "1110", "2210", "3210"))),
        ("prmt.b32.rc16 $0, $1, $2, $3;", permuted(("1010", "3232", "1010", "3232"))),
        ("add.sat.s32 $0, $1, $2;", lambda a, b, c: clamped(signed(a) + signed(b), 32, True)),
        ("sub.sat.s32 $0, $1, $2;", lambda a, b, c: clamped(signed(a) - signed(b), 32, True)),
        (
            "add.s16x2 $0, $1, $2;",
            lambda a, b, c: (a + b) % 2**16 | ((a >> 16) + (b >> 16)) % 2**16 << 16,
        ),
        (
            "max.s16x2 $0, $1, $2;",
            lambda a, b, c: (
                max(halves(a, True)[0], halves(b, True)[0]) & 0xFFFF
                | max(halves(a, True)[1], halves(b, True)[1]) << 16
            ),
        ),
        (
            "min.u16x2 $0, $1, $2;",
            lambda a, b, c: min(halves(a)[0], halves(b)[0]) | min(halves(a)[1], halves(b)[1]) << 16,
        ),
        ("max.relu.s32 $0, $1, $2;", lambda a, b, c: max(signed(a), signed(b), 0)),
        (
            "cvt.pack.sat.s16.s32 $0, $1, $2;",
            lambda a, b, c: clamped(signed(a), 16, True) << 16 | clamped(signed(b), 16, True),
        ),
        (
            "cvt.pack.sat.u8.s32.b32 $0, $1, $2, $3;",
            lambda a, b, c: (
                c << 16 | clamped(signed(a), 8, False) << 8 | clamped(signed(b), 8, False)
            ),
        ),
        ("set.lt.u32.s32 $0, $1, $2;", lambda a, b, c: -(signed(a) < signed(b))),
        (
            "{ .reg .pred p, q; setp.lt.u32 p, $1, $2; setp.ne.and.b32 q, $3, 0, !p; "
            "selp.b32 $0, 5, 6, q; }",
            lambda a, b, c: 5 if c and not a < b else 6,
        ),
        (
            "{ .reg .pred p, q; setp.ge.s32 p|q, $1, $2; @q mov.b32 $0, 7; @p mov.b32 $0, 8; }",
            lambda a, b, c: 8 if signed(a) >= signed(b) else 7,
        ),
        ("slct.b32.s32 $0, $1, $2, $3;", lambda a, b, c: a if signed(c) >= 0 else b),
        ("cnot.b32 $0, $1;", lambda a, b, c: a == 0),
        ("mov.b32 $0, 010;", lambda a, b, c: 8),
    ],
)
def test_integers_and_bits(asm, expected):
    got = run(asm, A, B, C)
    assert got == [int(expected(*each)) & M for each in zip(A, B, C, strict=True)]


def f32(*values):
    return [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]


def f16x2(pairs, type_=numpy.float16):
    """Words of two halves, the lower first."""
    return [int(numpy.array(pair, type_).view(numpy.uint32)[0]) for pair in pairs]


def halves_of(words_):
    return [numpy.array([word], numpy.uint32).view(numpy.float16).tolist() for word in words_]


X = [(1.0, -2.0), (0.5, 65504.0), (2.0**-24, -(2.0**-15)), (math.inf, 3.0)]
Y = [(3.0, 0.25), (0.0009765625, 65504.0), (1.0, 1.0), (1.0, math.nan)]


@pytest.mark.parametrize(
    ("asm", "expected"),
    [
        ("add.f16x2 $0, $1, $2;", lambda x, y: x + y),
        ("sub.f16x2 $0, $1, $2;", lambda x, y: x - y),
        ("mul.f16x2 $0, $1, $2;", lambda x, y: x * y),
        ("max.f16x2 $0, $1, $2;", numpy.fmax),
        ("min.NaN.f16x2 $0, $1, $2;", numpy.minimum),
        ("abs.f16x2 $0, $1;", lambda x, y: abs(x)),
        ("neg.f16x2 $0, $1;", lambda x, y: -x),
        ("add.sat.f16x2 $0, $1, $2;", lambda x, y: numpy.clip(numpy.nan_to_num(x + y), 0, 1)),
        ("set.gt.f16x2.f16x2 $0, $1, $2;", lambda x, y: x > y),
        ("mul.ftz.f16x2 $0, $1, $2;", lambda x, y: x * y * (abs(x) >= 2.0**-14)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_pairs_of_halves(asm, expected):
    got = halves_of(run(asm, f16x2(X), f16x2(Y), f16x2(X)))
    wanted = expected(numpy.array(X, numpy.float16), numpy.array(Y, numpy.float16))
    numpy.testing.assert_array_equal(numpy.array(got), wanted.astype(numpy.float16))


def test_fused_halves_are_rounded_once():
    # (1 + 2**-10) * 1.5 lies between two numbers of fp16, and 2**-24 more above the tie. In fp32
    # the tail of 2**-35 is gone, and the tie goes to the even one below.
    given = [f16x2([(value, -value)]) for value in (1 + 2.0**-10, 1.5)]
    tail = f16x2([(2.0**-24, 0.0)])
    asm = "fma.rn.f16x2 $0, $1, $2, $3;"
    assert halves_of(run(asm, *given, tail)) == [[1.5 + 2.0**-9, 1.5 + 2.0**-9]]
    a, b, c = 1 + 2.0**-10, 1.0 - 2.0**-11, -(2.0**-24)
    got = halves_of(run(asm, f16x2([(a, a)]), f16x2([(b, b)]), f16x2([(c, 0.0)])))
    assert got == [[float(numpy.float16(a * b + c)), float(numpy.float16(a * b))]]
    relu = run("fma.rn.relu.f16x2 $0, $1, $2, $3;", given[0], f16x2([(-1.0, -1.0)]), tail)
    assert halves_of(relu) == [[0.0, 1 + 2.0**-10]]


V = [1.0, -3.25, 1.0 + 2.0**-23, math.nan, -0.0, 3e38, 2.0**-140]
W = [2.0**-30, 1.5, 2.0**-30, 1.0, 0.0, 3e38, 1.0]


@pytest.mark.parametrize(
    ("asm", "expected"),
    [
        (
            "add.rz.f32 $0, $1, $2;",
            [1.0, -1.75, 1.0 + 2.0**-23, math.nan, 0.0, 2**128 - 2**104, 1.0],
        ),
        (
            "add.rp.f32 $0, $1, $2;",
            [1.0 + 2.0**-23, -1.75, 1.0 + 2.0**-22, math.nan, 0.0, math.inf, 1.0 + 2.0**-23],
        ),
        (
            "mul.sat.f32 $0, $1, $2;",
            [2.0**-30, 0.0, 2.0**-30 + 2.0**-53, 0.0, None, 1.0, 2.0**-140],
        ),
        ("add.ftz.f32 $0, $1, $1;", [2.0, -6.5, 2.0 + 2.0**-22, math.nan, -0.0, math.inf, 0.0]),
        ("max.xorsign.abs.f32 $0, $1, $2;", [1.0, -3.25, 1.0 + 2.0**-23, 1.0, -0.0, 3e38, 1.0]),
        ("max.NaN.f32 $0, $1, $2;", [1.0, 1.5, 1.0 + 2.0**-23, math.nan, 0.0, 3e38, 1.0]),
        ("copysign.f32 $0, $1, $2;", [2.0**-30, -1.5, 2.0**-30, None, -0.0, 3e38, 1.0]),
        (
            "{ .reg .pred p; testp.normal.f32 p, $1; selp.f32 $0, 1.0, 2.0, p; }",
            [1, 1, 1, 2, 2, 1, 2],
        ),
        (
            "{ .reg .pred p; setp.nan.f32 p, $1, $2; selp.f32 $0, 1.0, 2.0, p; }",
            [2, 2, 2, 1, 2, 2, 2],
        ),
        ("cvt.sat.f32.f32 $0, $1;", [1, 0, 1, 0, None, 1, 2.0**-140]),
        (
            "{ .reg .b64 x, y, z; mov.b64 x, {$1, $2}; mov.b64 y, {$2, $1}; "
            "add.rn.f32x2 z, x, y; mov.b64 {_, $0}, z; }",
            [1.0, -1.75, 1.0 + 2.0**-23, math.nan, 0.0, math.inf, 1.0],
        ),
        (
            "{ .reg .b64 x, y, z; mov.b64 x, {$1, $2}; mov.b64 y, {$2, $1}; "
            "fma.rn.f32x2 z, x, y, x; mov.b64 {$0, _}, z; }",
            [1.0, -8.125, 1.0 + 2.0**-23, math.nan, -0.0, math.inf, 2.0**-139],
        ),
    ],
)
def test_single_precision(asm, expected):
    value = [float(numpy.float32(each)) for each in V]
    got = run(asm, f32(*value), f32(*W), f32(*W))
    for one, wanted in zip(got, expected, strict=True):
        result = struct.unpack("<f", struct.pack("<I", one))[0]
        if wanted is not None:
            assert f32(result) == f32(float(numpy.float32(wanted))) or result != result != wanted


def test_pairs_of_bfloats():
    x = torch.tensor([1.0, -2.5, 3e38, 2.0**-130], dtype=torch.bfloat16)
    pairs = x.view(torch.int32).tolist()
    for asm, expected in (
        ("ex2.approx.ftz.bf16x2 $0, $1;", x.float().exp2()),
        ("add.rn.bf16x2 $0, $1, $1;", x * 2),
        ("fma.rn.bf16x2 $0, $1, $1, $1;", x.double() * x + x),
        ("mul.rn.ftz.bf16x2 $0, $1, $1;", x.double() * x),
    ):
        got = words(run(asm, pairs, pairs, pairs)).view(torch.bfloat16)
        if "ftz" in asm and "ex2" not in asm:
            expected[3] = 0
        assert torch.equal(got, expected.to(torch.bfloat16)), asm


F = [1.0, -3.0, 449.0, 0.3, math.nan, -1e9, 5.0, 0.75]
G = [0.0625, 3.4, -0.25, 6.5, 2.5, 1.25, -1.75, 2.0**-9]


@pytest.mark.parametrize(
    ("to", "dtype"), [("e4m3x2", torch.float8_e4m3fn), ("e5m2x2", torch.float8_e5m2)]
)
def test_pairs_of_fp8(to, dtype):
    narrow = f"{{ .reg .b16 t; cvt.rn.satfinite.{to}.f32 t, $1, $2; cvt.u32.u16 $0, t; }}"
    got = run(narrow, f32(*F), f32(*G), f32(*G))
    limit = torch.finfo(dtype).max
    high, low = (
        torch.tensor(values).clamp(-limit, limit).to(dtype).view(torch.uint8).tolist()
        for values in (F, G)
    )
    for word, upper, lower in zip(got, high, low, strict=True):
        assert (word >> 8 & 127, word & 255) == (upper & 127, lower)
    wide = f"{{ .reg .b16 l, h; mov.b32 {{l, h}}, $1; cvt.rn.relu.f16x2.{to} $0, l; }}"
    again = halves_of(run(wide, got, got, got))
    assert [pair[0] for pair in again] == torch.tensor(low, dtype=torch.uint8).view(
        dtype
    ).float().clamp(min=0).tolist()


def test_pairs_of_fp4():
    def code(x):
        values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        if x != x:
            return 7
        # The nearest; of two that are as near, the one with an even code.
        best = min(range(8), key=lambda i: (abs(values[i] - min(abs(x), 6.0)), i % 2))
        return best | (8 if math.copysign(1, x) < 0 else 0)

    narrow = "{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $1, $2; cvt.u32.u8 $0, t; }"
    got = run(narrow, f32(*F), f32(*G), f32(*G))
    assert got == [code(f) << 4 | code(g) for f, g in zip(F, G, strict=True)]
    wide = "{ .reg .b8 a, b, c, d; mov.b32 {a, b, c, d}, $1; cvt.rn.f16x2.e2m1x2 $0, a; }"
    every = [place | (15 - place) << 4 for place in range(16)]
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    values += [-value for value in values]
    assert halves_of(run(wide, every, every, every)) == [
        [values[place], values[15 - place]] for place in range(16)
    ]


def test_powers_of_two_and_rounding_to_halves():
    wide = "{ .reg .b16 l, h; mov.b32 {l, h}, $1; cvt.rn.bf16x2.ue8m0x2 $0, l; }"
    got = words(run(wide, [0x7F80, 0xFF00], [0, 0], [0, 0])).view(torch.bfloat16)
    assert got[:3].tolist() == [2.0, 1.0, 2.0**-127]
    assert got[3].isnan()
    cut = halves_of(run("cvt.rz.f16x2.f32 $0, $1, $2;", f32(2049.5), f32(-1e6), f32(0)))
    assert cut == [[-65504.0, 2048.0]]
    kept = halves_of(
        run("cvt.rn.satfinite.relu.f16x2.f32 $0, $1, $2;", f32(1e6), f32(-1.0), f32(0))
    )
    assert kept == [[0.0, 65504.0]]


@tkdebug.jit
def four_bits(Q, LOW, HIGH, TOP: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    q = tl.load(Q + i)
    magic: tl.constexpr = 0x64006400
    table: tl.constexpr = (0xF0 & 0xCC) | 0xAA
    if TOP:
        text: tl.constexpr = "lop3.b32 t, $2, $3, $4, $5; fma.rn.f16x2 t, t, $6, $7;"
        low, high = tl.inline_asm_elementwise(
            "{ .reg .b32 t; " + text + " mov.b32 {$0, $1}, t; }",
            "=h,=h,r,n,n,n,r,r",
            [q, 0x00F000F0, magic, table, 0x2C002C00, 0xD400D400],
            (tl.float16, tl.float16),
            True,
            1,
        )
    else:
        low, high = tl.inline_asm_elementwise(
            "{ .reg .b32 t; lop3.b32 t, $2, $3, $4, $5; sub.f16x2 t, t, $6; mov.b32 {$0, $1}, t; }",
            "=h,=h,r,n,n,n,r",
            [q, 0x000F000F, magic, table, magic],
            (tl.float16, tl.float16),
            True,
            1,
        )
    tl.store(LOW + i, low)
    tl.store(HIGH + i, high)


@pytest.mark.parametrize(("top", "shift"), [(False, 0), (True, 4)])
def test_four_bits_become_halves_with_numbers_in_the_text(top, shift):
    low, high = torch.empty(8, dtype=torch.float16), torch.empty(8, dtype=torch.float16)
    four_bits[(1,)](words(A), low, high, top, 8)
    assert low.tolist() == [value >> shift & 15 for value in A]
    assert high.tolist() == [value >> 16 + shift & 15 for value in A]


def test_number_in_the_text_that_differs_is_refused():
    rules = "=r,r,r,n"
    with pytest.raises(
        UnsupportedError, match=r"test_inline_ptx.py:\d+: .*\$3 is of constraint 'n'"
    ):
        asm_kernel[(1,)](
            words(A), words(A), words(A), words(A), "lop3.b32 $0, $1, $2, $1, $3;", rules, 8, 1
        )


@pytest.mark.parametrize(
    "asm",
    [
        "sub.f16x2 $0, $1, 0x64006400;",
        "fma.rn.f32.bf16 $0, $1, $2, $3;",
        "max.abs.f32 $0, $1, $2;",
        "cvt.rp.satfinite.ue8m0x2.f32 $0, $1, $2;",
        "cvt.rs.f16x2.f32 $0, $1, $2, $3;",
        "cvt.pack.sat.u8.s32 $0, $1, $2;",
        "cvt.rn.e4m3x2.f32 $0, $1, $2;",
        "add.sat.u32 $0, $1, $2;",
        "add.rz.f16x2 $0, $1, $2;",
        "set.lt.u32.f16x2 $0, $1, $2;",
        "setp.num.s32 $0, $1, $2;",
    ],
)
def test_what_is_not_understood_is_named(asm):
    with pytest.raises(UnsupportedError, match="is not understood under interpret") as caught:
        run(asm, A, B, C)
    assert asm[:-1] in str(caught.value)
