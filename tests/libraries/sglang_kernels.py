"""Kernels of SGLang against torch: its wheel has the kernels, and no tests of them.

Run by `run.py sglang`; not collected otherwise.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest
import torch

DEVICE = "cuda"


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def ops(name: str) -> ModuleType:
    """A module of kernels, by its name below sglang.kernels.ops."""
    return import_module(f"sglang.kernels.ops.{name}")


def randn(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype)


def attention(q, k, v, causal=False):
    """Attend over (tokens, heads, dim); k and v have fewer heads, q's tokens are the last."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.float(), k) * q.shape[-1] ** -0.5
    if causal:
        rows = torch.arange(q.shape[0], device=DEVICE)[:, None] + k.shape[0] - q.shape[0]
        scores = scores.masked_fill(rows < torch.arange(k.shape[0], device=DEVICE), float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v), scores.logsumexp(-1).T


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 2e-2) -> None:
    torch.testing.assert_close(found.float(), expected.float(), rtol=tolerance, atol=tolerance)


def pages(lengths):
    """Rows of a KV cache for sequences of these lengths, shuffled: kv_indptr, kv_indices."""
    indptr = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=DEVICE)
    indptr[1:] = torch.tensor(lengths, device=DEVICE).cumsum(0)
    return indptr, torch.randperm(sum(lengths), device=DEVICE).to(torch.int64)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2)])
def test_context_attention(heads, kv_heads, causal):
    lengths = [37, 70]
    q, k, v = (randn(sum(lengths), n, 64) for n in (heads, kv_heads, kv_heads))
    out, start = torch.empty_like(q), torch.tensor([0, 37], device=DEVICE)
    ops("attention.prefill_attention").context_attention_fwd(
        q, k, v, out, start, torch.tensor(lengths, device=DEVICE), 70, is_causal=causal
    )
    for first, length in zip((0, 37), lengths, strict=True):
        rows = slice(first, first + length)
        close(out[rows], attention(q[rows], k[rows], v[rows], causal)[0])


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (8, 2)])
def test_decode_attention(heads, kv_heads):
    lengths, dim, splits = [5, 130, 64], 64, 4
    indptr, indices = pages(lengths)
    q, k, v = randn(3, heads, dim), *(randn(sum(lengths), kv_heads, dim) for _ in range(2))
    out = torch.empty_like(q)
    logits = torch.empty(3, heads, splits, dim, device=DEVICE)
    lse = torch.empty(3, heads, splits, device=DEVICE)
    counts = torch.full((3,), splits, dtype=torch.int32, device=DEVICE)
    ops("attention.decode_attention").decode_attention_fwd(
        q, k, v, out, indptr, indices, logits, lse, counts, splits, dim**-0.5, 1.0, 1.0
    )
    for i in range(3):
        rows = indices[indptr[i] : indptr[i + 1]]
        close(out[i : i + 1], attention(q[i : i + 1], k[rows], v[rows])[0])


@pytest.mark.parametrize("prefix", [(0, 0), (33, 80)])
def test_extend_attention(prefix):
    extend, heads, kv_heads, dim = [19, 40], 4, 2, 64
    indptr, indices = pages(prefix)
    cache = [randn(sum(prefix) + 1, kv_heads, dim) for _ in range(2)]
    q, k, v = (randn(sum(extend), n, dim) for n in (heads, kv_heads, kv_heads))
    out = torch.empty_like(q)
    starts = torch.tensor([0, 19, 59], dtype=torch.int32, device=DEVICE)
    ops("attention.extend_attention").extend_attention_fwd(
        q, k, v, out, *cache, starts, indptr, indices, None, True, None, 40, 1.0, 1.0
    )
    for i in range(2):
        rows, known = slice(starts[i], starts[i + 1]), indices[indptr[i] : indptr[i + 1]]
        keys, values = (
            torch.cat([old[known], new[rows]]) for old, new in zip(cache, (k, v), strict=True)
        )
        close(out[rows], attention(q[rows], keys, values, causal=True)[0])


def test_merge_state():
    q, k, v = randn(13, 4, 64), randn(50, 4, 64), randn(50, 4, 64)
    (a, lse_a), (b, lse_b) = attention(q, k[:20], v[:20]), attention(q, k[20:], v[20:])
    merged, lse = ops("attention.merge_state").merge_state_triton(
        a.contiguous(), lse_a.contiguous(), b.contiguous(), lse_b.contiguous()
    )
    expected, expected_lse = attention(q, k, v)
    close(merged, expected)
    close(lse, expected_lse)


def test_interleaved_rope():
    x = randn(3, 11, 64, dtype=torch.float32)
    sections = [16, 8, 8]
    expected = x[0].clone()
    for axis, offset in ((1, 1), (2, 2)):
        at = slice(offset, sections[axis] * 3, 3)
        expected[..., at] = x[axis, ..., at]
    close(ops("attention.mrope").apply_interleaved_rope_triton(x, sections), expected, 0)


def test_gelu_and_mul():
    x = randn(9, 256)
    gate, up = x.float().chunk(2, -1)
    found = ops("activation.gelu_and_mul_triton").gelu_and_mul_triton(x)
    expected = torch.nn.functional.gelu(gate, approximate="tanh") * up
    close(found[0] if isinstance(found, tuple) else found, expected)


def test_per_token_quant_int8():
    x = randn(17, 300)
    q, scales = ops("quantization.int8_kernel").per_token_quant_int8(x)
    close(q.float() * scales, x, 3e-2)


def test_int8_block_matmul():
    a = torch.randint(-100, 100, (33, 256), dtype=torch.int8, device=DEVICE)
    b = torch.randint(-100, 100, (128, 256), dtype=torch.int8, device=DEVICE)
    a_scales, b_scales = torch.rand(33, 2, device=DEVICE), torch.rand(1, 2, device=DEVICE)
    found = ops("gemm.int8_kernel").w8a8_block_int8_matmul(
        a, b, a_scales, b_scales, [128, 128], torch.float32
    )
    wide_a = a.float() * a_scales.repeat_interleave(128, 1)
    close(found / 1e4, wide_a @ (b.float() * b_scales.repeat_interleave(128, 1)).T / 1e4, 1e-3)


def test_awq_dequantize():
    weights = torch.randint(0, 16, (128, 64), device=DEVICE)
    zeros = torch.randint(0, 16, (1, 64), device=DEVICE)
    scales = torch.rand(1, 64, device=DEVICE).half()
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7], device=DEVICE)

    def packed(values):
        parts = values.view(values.shape[0], -1, 8)[..., order]
        return (parts << (4 * torch.arange(8, device=DEVICE))).sum(-1).to(torch.int32)

    found = ops("quantization.awq_triton").awq_dequantize_triton(
        packed(weights), scales, packed(zeros)
    )
    close(found, (weights - zeros) * scales)


def test_vocab_parallel_embedding():
    weight, ids = randn(48, 64), torch.randint(0, 96, (23,), device=DEVICE)
    found = ops("embeddings.vocab_parallel_embedding").vocab_parallel_embedding(
        ids, weight, 32, 80, 0, 96, 96
    )
    mine = (ids >= 32) & (ids < 80)
    close(found, weight[(ids - 32).clamp(0, 47)] * mine[:, None], 0)


def test_rmsnorm_fp32():
    x, weight = (randn(*shape, dtype=torch.bfloat16) for shape in ((7, 300), (300,)))
    found = ops("layernorm.rmsnorm_fp32").rmsnorm_fp32(x, weight, 1e-6)
    expected = torch.nn.functional.rms_norm(x.float(), (300,), weight.float(), 1e-6)
    close(found, expected)


def test_gemma_rmsnorm_residual():
    x, residual, weight = randn(7, 256), randn(7, 256), randn(256)
    scalar = torch.tensor([0.5], device=DEVICE).half()
    found = ops("layernorm.gemma4_fused_ops").gemma_rmsnorm_residual_scalar(
        x, weight, residual, scalar
    )
    normed = torch.nn.functional.rms_norm(x.float(), (256,), weight.float(), 1e-6)
    close(found, (normed + residual.float()) * 0.5)


def test_temperature_softmax():
    logits, temperatures = (
        randn(5, 3000, dtype=torch.float32),
        torch.rand(5, 1, device=DEVICE) + 0.5,
    )
    expected = (logits / temperatures).softmax(-1)
    found = ops("sampling.temperature_softmax").temperature_softmax(logits, temperatures)
    close(found, expected, 1e-5)


def test_top_p_renorm():
    probs = randn(4, 1000, dtype=torch.float32).softmax(-1)
    found = ops("sampling.renorm_triton").top_p_renorm_probs_triton(probs, 0.7)
    ordered, at = probs.sort(-1, descending=True)
    kept = (ordered.cumsum(-1) - ordered < 0.7) * ordered
    expected = torch.zeros_like(probs).scatter_(-1, at, kept / kept.sum(-1, keepdim=True))
    close(found, expected, 1e-5)


def test_top_k_renorm():
    probs = randn(4, 1000, dtype=torch.float32).softmax(-1)
    found = ops("sampling.renorm_triton").top_k_renorm_probs_triton(probs, 20)
    values, at = probs.topk(20, -1)
    values = values / values.sum(-1, keepdim=True)
    close(found, torch.zeros_like(probs).scatter_(-1, at, values), 1e-5)


def test_moe_fused_mul_sum():
    x, weights = randn(9, 4, 256), torch.rand(9, 4, device=DEVICE)
    found = ops("moe.moe_fused_mul_sum").moe_fused_mul_sum(x, weights)
    close(found, (x.float() * weights[..., None]).sum(1))


def test_moe_router():
    hidden, gates = randn(6, 256), randn(8, 256)
    weights, ids = ops("moe.router").fused_moe_router_shim(30.0, hidden, gates, 2, False)
    logits = hidden.float() @ gates.float().T
    probs = (torch.tanh(logits / 30) * 30).softmax(-1)
    expected, expected_ids = probs.topk(2, -1)
    close(weights, expected)
    assert torch.equal(ids.long(), expected_ids)


def test_masked_silu_and_mul():
    x, rows = randn(3, 16, 256, dtype=torch.bfloat16), torch.tensor([4, 0, 16], device=DEVICE)
    out = torch.zeros(3, 16, 128, device=DEVICE, dtype=torch.bfloat16)
    ops("moe.ep_moe_kernels").silu_and_mul_masked_fwd(x, out, rows.int())
    gate, up = x.float().chunk(2, -1)
    kept = torch.arange(16, device=DEVICE)[None, :, None] < rows[:, None, None]
    close(out * kept, torch.nn.functional.silu(gate) * up * kept)
