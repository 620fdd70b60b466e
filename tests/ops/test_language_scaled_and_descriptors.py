"""dot_scaled against its definition; gathers, scatters and atomics through descriptors."""

from __future__ import annotations

import itertools

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug import TensorDescriptor
from tkdebug.errors import CompileError

_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
_FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def decoded(codes, format_, axis):
    if format_ != "e2m1":
        return codes.view(_FP8[format_]).float()
    low, high = _E2M1[(codes & 15).long()], _E2M1[(codes >> 4).long()]
    return torch.stack([low, high], axis + 1).flatten(axis, axis + 1)


@tkdebug.jit
def scaled_kernel(
    A, AS, B, BS, C,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    AM: tl.constexpr, AK: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr,
):  # fmt: skip
    groups: tl.constexpr = K // 32
    a = tl.load(A + tl.arange(0, AM)[:, None] * AK + tl.arange(0, AK)[None, :])
    b = tl.load(B + tl.arange(0, BK)[:, None] * BN + tl.arange(0, BN)[None, :])
    a_scale = tl.load(AS + tl.arange(0, M)[:, None] * groups + tl.arange(0, groups)[None, :])
    b_scale = tl.load(BS + tl.arange(0, N)[:, None] * groups + tl.arange(0, groups)[None, :])
    c = tl.dot_scaled(a, a_scale, LEFT, b, b_scale, RIGHT, lhs_k_pack=AM == M, rhs_k_pack=BN == N)
    tl.store(C + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], c)


# Format, and whether it is packed along K; only e2m1 can be packed along the other axis.
_OPERANDS = (("e2m1", True), ("e2m1", False), ("e4m3", True), ("e5m2", True))


@pytest.mark.parametrize(
    ("left", "left_along_k", "right", "right_along_k"),
    [(*left, *right) for left, right in itertools.product(_OPERANDS, repeat=2)],
)
def test_dot_scaled_is_the_product_of_scaled_elements(left, right, left_along_k, right_along_k):
    m, n, k = 16, 32, 64
    a_pack, b_pack = (2 if f == "e2m1" else 1 for f in (left, right))
    a_shape = (m, k // a_pack) if left_along_k else (m // a_pack, k)
    b_shape = (k // b_pack, n) if right_along_k else (k, n // b_pack)
    a, b = (torch.randint(0, 100, s, dtype=torch.uint8) for s in (a_shape, b_shape))
    a_scale = torch.randint(120, 130, (m, k // 32), dtype=torch.uint8)
    b_scale = torch.randint(120, 130, (n, k // 32), dtype=torch.uint8)
    c = torch.empty(m, n)
    scaled_kernel[(1,)](a, a_scale, b, b_scale, c, m, n, k, *a_shape, *b_shape, left, right)
    x = decoded(a, left, 1 if left_along_k else 0).double()
    y = decoded(b, right, 0 if right_along_k else 1).double()
    x = x * torch.exp2(a_scale.double() - 127).repeat_interleave(32, 1)
    y = y * torch.exp2(b_scale.double() - 127).repeat_interleave(32, 1).T
    torch.testing.assert_close(c.double(), x @ y, rtol=1e-5, atol=1e-5)


def test_dot_scaled_without_scales_is_a_dot():
    @tkdebug.jit
    def kernel(A, B, C, S: tl.constexpr):
        place = tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
        a, b = tl.load(A + place), tl.load(B + place)
        acc = tl.full((S, S), 1.0, tl.float32)
        tl.store(C + place, tl.dot_scaled(a, None, "bf16", b, None, "bf16", acc=acc))

    a, b = (torch.randn(64, 64).bfloat16() for _ in range(2))
    c = torch.empty(64, 64)
    kernel[(1,)](a, b, c, 64)
    torch.testing.assert_close(c, a.float() @ b.float() + 1.0)


def test_dot_scaled_of_a_missing_scale_is_nan():
    a, b = (torch.full(s, 0x38, dtype=torch.uint8) for s in ((16, 32), (32, 16)))
    scale = torch.full((16, 1), 127, dtype=torch.uint8)
    missing = scale.clone()
    missing[3] = 255
    c = torch.empty(16, 16)
    scaled_kernel[(1,)](a, missing, b, scale, c, 16, 16, 32, 16, 32, 32, 16, "e4m3", "e4m3")
    assert bool(c[3].isnan().all())
    assert torch.equal(c[:3], torch.full((3, 16), 32.0))


def test_dot_scaled_scale_of_the_wrong_shape_is_an_error():
    a, b = (torch.zeros(s, dtype=torch.uint8) for s in ((16, 64), (64, 16)))
    scale = torch.zeros((16, 2), dtype=torch.uint8)

    @tkdebug.jit
    def kernel(A, B, S):
        a = tl.load(A + tl.arange(0, 16)[:, None] * 64 + tl.arange(0, 64)[None, :])
        b = tl.load(B + tl.arange(0, 64)[:, None] * 16 + tl.arange(0, 16)[None, :])
        s = tl.load(S + tl.arange(0, 2)[:, None] * 16 + tl.arange(0, 16)[None, :])
        tl.dot_scaled(a, s, "e4m3", b, None, "e4m3")

    with pytest.raises(CompileError, match=r"lhs_scale must be a tile of shape \[16, 2\]"):
        kernel[(1,)](a, b, scale)


def test_descriptor_gather_and_scatter_stay_inside_the_tensor():
    @tkdebug.jit
    def kernel(source, target, OUT, INDEX):
        rows = tl.load(INDEX + tl.arange(0, 8))
        tile = source.gather(rows, 4)
        tl.store(OUT + tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :], tile)
        target.scatter(tile * 2, rows, 12)

    source, target = torch.randn(10, 24), torch.zeros(10, 24)
    rows = torch.tensor([0, 3, 9, 11, -1, 2, 5, 7], dtype=torch.int32)
    out = torch.empty(8, 16)
    kernel[(1,)](
        TensorDescriptor.from_tensor(source, [1, 16]),
        TensorDescriptor.from_tensor(target, [1, 16]),
        out,
        rows,
    )
    inside = (rows >= 0) & (rows < 10)
    expected = torch.where(inside[:, None], source[rows.clamp(0, 9).long(), 4:20], 0.0)
    assert torch.equal(out, expected)
    written = torch.zeros(10, 24)
    written[rows[inside].long(), 12:] = 2 * expected[inside, :12]
    assert torch.equal(target, written)


_COMBINE = {
    "add": lambda a, b: a + b,
    "min": torch.minimum,
    "max": torch.maximum,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}


@pytest.mark.parametrize("kind", list(_COMBINE))
def test_descriptor_atomic_combines_blocks_of_all_programs(kind):
    @tkdebug.jit
    def kernel(desc, V, KIND: tl.constexpr):
        value = tl.load(V + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :])
        getattr(desc, KIND)([tl.program_id(0) * 2, 4], value)

    start = torch.randint(0, 100, (6, 12), dtype=torch.int32)
    buffer, value = start.clone(), torch.randint(0, 100, (4, 8), dtype=torch.int32)
    kernel[(3,)](TensorDescriptor.from_tensor(buffer, [4, 8]), value, f"atomic_{kind}")
    for program in range(3):
        rows = min(4, 6 - 2 * program)
        block = start[2 * program : 2 * program + rows, 4:]
        block.copy_(_COMBINE[kind](block, value[:rows]))
    assert torch.equal(buffer, start)


def test_descriptor_atomic_of_an_unsupported_dtype_is_an_error():
    @tkdebug.jit
    def kernel(desc):
        desc.atomic_max([0, 0], tl.zeros((4, 8), tl.float32))

    with pytest.raises(CompileError, match="descriptor atomic_max does not support fp32"):
        kernel[(1,)](TensorDescriptor.from_tensor(torch.zeros(4, 8), [4, 8]))
