"""map_elementwise, inline assembly and tl.extra.cuda."""

from __future__ import annotations

import time

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.errors import CompileError, UnsupportedError

N = 64


@tkdebug.jit
def branching(x, alpha):
    program = tl.program_id(0)
    if x > 0:
        result = x + program
    else:
        result = alpha * (tl.exp(x) - 1)
        while result < -0.5:
            result = result / 2
    return result


@tkdebug.jit
def branching_kernel(X, Y, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(Y + i, tl.map_elementwise(branching, tl.load(X + i), 1.5))


def test_map_elementwise_branches_and_loops_by_element():
    x, y = torch.randn(N), torch.empty(N)
    branching_kernel[(4,)](x, y, 16)
    negative = 1.5 * (x.exp() - 1)
    while bool((negative < -0.5).any()):
        negative = torch.where(negative < -0.5, negative / 2, negative)
    torch.testing.assert_close(y, torch.where(x > 0, x + torch.arange(N) // 16, negative))


def test_map_elementwise_runs_only_active_programs():
    @tkdebug.jit
    def kernel(X, Y, SIZE: tl.constexpr):
        i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
        if tl.load(X + tl.program_id(0) * SIZE) > 0:
            tl.store(Y + i, tl.map_elementwise(branching, tl.load(X + i), 1.5))

    x, y = torch.ones(N), torch.zeros(N)
    x[16:32] = -1.0
    kernel[(4,)](x, y, 16)
    expected = torch.where(x > 0, x + torch.arange(N) // 16, 0.0)
    torch.testing.assert_close(y, expected)


@tkdebug.jit
def pair(a0, a1, b0, b1):
    return a0 + b1, a1 + b0, a0 * b0, a1 * b1


def test_map_elementwise_packs_neighbours():
    @tkdebug.jit
    def kernel(X, Y, S, P, SIZE: tl.constexpr):
        i = tl.arange(0, SIZE)
        total, product = tl.map_elementwise(pair, tl.load(X + i), tl.load(Y + i), pack=2)
        tl.store(S + i, total)
        tl.store(P + i, product)

    x, y = torch.randn(N), torch.randn(N)
    s, p = torch.empty(N), torch.empty(N)
    kernel[(1,)](x, y, s, p, N)
    assert torch.equal(p, x * y)
    assert torch.equal(s, x + y.reshape(-1, 2).flip(1).reshape(-1))


def test_map_elementwise_of_no_value_is_an_error():
    @tkdebug.jit
    def nothing(x):
        tl.device_assert(x == x)

    @tkdebug.jit
    def kernel(X):
        tl.map_elementwise(nothing, tl.load(X + tl.arange(0, 16)))

    with pytest.raises(CompileError, match="the function must return a value, got None"):
        kernel[(1,)](torch.zeros(16))


@tkdebug.jit
def asm_kernel(
    X, Y, OUT, ASM: tl.constexpr, RULES: tl.constexpr, SIZE: tl.constexpr, PACK: tl.constexpr
):
    i = tl.arange(0, SIZE)
    x, y = tl.load(X + i), tl.load(Y + i)
    dtype: tl.constexpr = OUT.dtype.element_ty
    tl.store(OUT + i, tl.inline_asm_elementwise(ASM, RULES, [x, y], dtype, True, PACK))


def run(asm, x, y, result, rules="=r,r,r", pack=1):
    out = torch.empty(x.shape, dtype=result)
    asm_kernel[(1,)](x, y, out, asm, rules, x.numel(), pack)
    return out


def words():
    return torch.randint(-(2**31), 2**31 - 1, (N,), dtype=torch.int64).to(torch.int32)


@pytest.mark.parametrize(
    ("asm", "expected"),
    [
        ("add.f32 $0, $1, $2;", torch.add),
        ("fma.rn.f32 $0, $1, $2, $1;", lambda x, y: (x.double() * y + x).float()),
        ("tanh.approx.f32 $0, $1;", lambda x, y: x.tanh()),
        ("ex2.approx.ftz.f32 $0, $1;", lambda x, y: x.exp2()),
        ("rcp.approx.f32 $0, $1;", lambda x, y: 1 / x),
        ("max.f32 $0, $1, 0f3F800000;", lambda x, y: x.clamp(min=1.0)),
        ("{ .reg .f32 t; mul.f32 t, $1, 2.0; sub.f32 $0, t, $2; }", lambda x, y: x * 2 - y),
        (
            "{ .reg .pred p; setp.lt.f32 p, $1, $2; selp.f32 $0, $1, $2, p; }",
            torch.minimum,
        ),
        (
            "mov.f32 $0, $1; { .reg .pred p; setp.gt.f32 p, $1, 0.0; @p mov.f32 $0, $2; }",
            lambda x, y: torch.where(x > 0, y, x),
        ),
    ],
)
def test_inline_asm_of_floats(asm, expected):
    x, y = torch.randn(N), torch.randn(N)
    got = run(asm, x, y, torch.float32, "=f,f,f")
    torch.testing.assert_close(got, expected(x, y))


def test_inline_asm_rounds_to_tf32_away_from_zero():
    x = torch.randn(N)
    got = run("cvt.rna.tf32.f32 $0, $1;", x, x, torch.float32, "=f,f,f")
    bits = x.view(torch.int32)
    assert torch.equal(got.view(torch.int32), (bits + 0x1000) & ~0x1FFF)


@pytest.mark.parametrize(
    ("asm", "expected"),
    [
        ("shf.l.wrap.b32 $0, $1, $2, 5;", lambda a, b: (b << 5) | (a >> 27)),
        ("lop3.b32 $0, $1, $2, $1, 0x3C;", lambda a, b: a ^ b),
        ("and.b32 $0, $1, 0xFF00;", lambda a, b: a & 0xFF00),
        ("shr.u32 $0, $1, 9;", lambda a, b: a >> 9),
        ("mul.hi.u32 $0, $1, $2;", lambda a, b: (a * b) >> 32),
        ("mad.lo.u32 $0, $1, $2, 7;", lambda a, b: a * b + 7),
        (
            "prmt.b32 $0, $1, $2, 0x5140;",
            lambda a, b: (a & 255) | (b & 255) << 8 | (a >> 8 & 255) << 16 | (b >> 8 & 255) << 24,
        ),
        ("bfe.u32 $0, $1, 4, 8;", lambda a, b: (a >> 4) & 255),
        ("popc.b32 $0, $1;", lambda a, b: bin(a).count("1")),
    ],
)
def test_inline_asm_of_words(asm, expected):
    x, y = words(), words()
    got = run(asm, x, y, torch.int32).tolist()
    for value, a, b in zip(got, x.tolist(), y.tolist(), strict=True):
        assert (value - expected(a & 0xFFFFFFFF, b & 0xFFFFFFFF)) % 2**32 == 0


def test_inline_asm_packs_narrow_elements():
    x = torch.randint(0, 256, (N,), dtype=torch.uint8)
    got = run("and.b32 $0, $1, 0x0F0F0F0F; shl.b32 $0, $0, 3;", x, x, torch.uint8, pack=4)
    assert torch.equal(got, (x & 15) << 3)


def test_inline_asm_of_half_pairs():
    x, y = torch.randn(N).half(), torch.randn(N).half()
    got = run("max.f16x2 $0, $1, $2;", x, y, torch.float16, pack=2)
    assert torch.equal(got, torch.maximum(x, y))


def test_inline_asm_gives_several_results():
    @tkdebug.jit
    def kernel(X, C, D, SIZE: tl.constexpr):
        i = tl.arange(0, SIZE)
        narrow, wide = tl.inline_asm_elementwise(
            """
            {   // unpack four bytes
                .reg .b8 byte<4>;
                mov.b32 {byte0, byte1, byte2, byte3}, $8;
                cvt.u32.u8 $0, byte0; cvt.u32.u8 $1, byte1;
                cvt.u32.u8 $2, byte2; cvt.u32.u8 $3, byte3;
            }
            cvt.rn.f32.s32 $4, $0; cvt.rn.f32.s32 $5, $1;
            cvt.rn.f32.s32 $6, $2; cvt.rn.f32.s32 $7, $3;
            """,
            "=r,=r,=r,=r,=r,=r,=r,=r,r",
            [tl.load(X + i)],
            (tl.int32, tl.float32),
            True,
            4,
        )
        tl.store(C + i, narrow)
        tl.store(D + i, wide)

    x = torch.randint(0, 256, (N,), dtype=torch.uint8)
    c, d = torch.empty(N, dtype=torch.int32), torch.empty(N)
    kernel[(1,)](x, c, d, N)
    assert torch.equal(c, x.int())
    assert torch.equal(d, x.float())


def test_inline_asm_of_barriers():
    @tkdebug.jit
    def kernel(X, Y, SIZE: tl.constexpr):
        i = tl.arange(0, SIZE)
        tl.store(Y + i, tl.load(X + i))
        tl.inline_asm_elementwise("bar.sync 0;", "=r", [], tl.int32, False, 1)
        x = tl.load(Y + SIZE - 1 - i)
        tl.inline_asm_elementwise("membar.gl; bar.sync 0;", "=r,r", [i], tl.int32, False, 1)
        tl.store(X + i, x)

    x, y = torch.arange(N, dtype=torch.int32), torch.zeros(N, dtype=torch.int32)
    kernel[(1,)](x, y, N)
    assert x.tolist() == list(range(N - 1, -1, -1))


@pytest.mark.parametrize(
    ("asm", "named"),
    [
        ("mov.u32 $0, %laneid;", "%laneid"),
        ("bar.arrive 0, 64;", "bar.arrive 0, 64"),
        ("ld.global.b32 $0, [$1];", "ld.global.b32"),
        ("ex2.rz.f32 $0, $1;", "ex2.rz.f32"),
        ("add.f32 $0, $1;", "add.f32"),
        ("lop3.b32 $0, $1, $2;", "lop3.b32"),
        ("popc.pred $0, $1;", "popc.pred"),
        ("shl.bf16 $0, $1, $2;", "shl.bf16"),
        ("and.f32 $0, $1, $2;", "and.f32"),
        ("cvt.s32.u8 $0, $1, $2;", "cvt.s32.u8"),
        ("add.s32 {$0, $3}, $1, $2;", "add.s32"),
    ],
)
def test_inline_asm_that_needs_a_gpu_fails_by_name(asm, named):
    with pytest.raises(UnsupportedError, match="is not understood under interpret") as caught:
        run(asm, words(), words(), torch.int32)
    assert named in str(caught.value)
    assert "test_language_elementwise.py:" in str(caught.value)


def test_cuda_registers_and_dependent_launches():
    @tkdebug.jit
    def kernel(S, T):
        tl.extra.cuda.gdc_wait()
        place = tl.program_id(0)
        tl.static_assert(tl.extra.cuda.num_threads() == 32 * tl.extra.cuda.num_warps())
        tl.store(S + place, tl.extra.cuda.smid() + tl.extra.cuda.num_warps())
        tl.store(T + place, tl.extra.cuda.globaltimer())
        tl.extra.cuda.gdc_launch_dependents()

    s, t = torch.empty(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int64)
    before = time.time_ns()
    kernel[(4,)](s, t, num_warps=8)
    assert s.tolist() == [8, 9, 10, 11]
    assert bool((t >= before).all())
