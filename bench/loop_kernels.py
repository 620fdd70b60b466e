"""Kernels for `loop_code.py`, with the types, constants and options of a launch.

One source for upstream's Triton and for tkdebug, as `kernels_native.py` is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from kernels_native import attention_kernel, layer_norm_kernel, matmul_kernel


@triton.jit
def grouped_matmul_kernel(
    a_ptrs_ptr,
    b_ptrs_ptr,
    c_ptrs_ptr,
    sizes_ptr,
    strides_ptr,
    n_products,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Products of whole tiles; a fixed number of programs walks over the tiles of all of them."""
    tile = tl.program_id(0)
    last = 0
    for product in range(n_products):
        m = tl.load(sizes_ptr + product * 3)
        n = tl.load(sizes_ptr + product * 3 + 1)
        k = tl.load(sizes_ptr + product * 3 + 2)
        tiles_n = tl.cdiv(n, BLOCK_N)
        tiles = tl.cdiv(m, BLOCK_M) * tiles_n
        while tile >= last and tile < last + tiles:
            stride_a = tl.load(strides_ptr + product * 3)
            stride_b = tl.load(strides_ptr + product * 3 + 1)
            stride_c = tl.load(strides_ptr + product * 3 + 2)
            a_ptr = tl.load(a_ptrs_ptr + product).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_ptrs_ptr + product).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_ptrs_ptr + product).to(tl.pointer_type(tl.float16))
            offs_m = (tile - last) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            offs_n = (tile - last) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            offs_k = tl.arange(0, BLOCK_K)
            a_ptrs = a_ptr + offs_m[:, None] * stride_a + offs_k[None, :]
            b_ptrs = b_ptr + offs_k[:, None] * stride_b + offs_n[None, :]
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for _ in range(0, tl.cdiv(k, BLOCK_K)):
                tl.multiple_of(a_ptrs, [16, 16])
                tl.multiple_of(b_ptrs, [16, 16])
                acc += tl.dot(tl.load(a_ptrs), tl.load(b_ptrs))
                a_ptrs += BLOCK_K
                b_ptrs += BLOCK_K * stride_b
            c_ptrs = c_ptr + offs_m[:, None] * stride_c + offs_n[None, :]
            tl.store(c_ptrs, acc.to(tl.float16))
            tile += PROGRAMS
        last += tiles


@dataclass(frozen=True)
class Case:
    """One kernel as one launch has it.

    Attributes:
        arguments: "*fp16" and the like for tensors, numbers for what they stand for (1 and
            multiples of 16 are known as such to the compiler, a float is an fp32), constants.
        constants: names of those that are compile-time parameters.
    """

    name: str
    kernel: Any
    arguments: dict[str, Any]
    constants: frozenset[str]
    num_warps: int
    num_stages: int


def case(
    name: str, kernel: Any, arguments: dict[str, Any], warps: int, stages: int, **constants: Any
) -> Case:
    """A case of `kernel`, or of the jit function in a tuner."""
    plain = getattr(kernel, "fn", kernel) if hasattr(kernel, "configs") else kernel
    return Case(name, plain, {**arguments, **constants}, frozenset(constants), warps, stages)


def matmul(m: int, n: int, k: int, warps: int, stages: int) -> Case:
    size = 4096
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16")
    strides = {
        f"stride_{axis}": 1 if axis[1] in "kn" and axis != "bk" else size
        for axis in ("am", "ak", "bk", "bn", "cm", "cn")
    }
    arguments = {**pointers, "M": size, "N": size, "K": size, **strides}
    return case(
        f"matmul {m}x{n}x{k}, {warps} warps, {stages} stages",
        matmul_kernel, arguments, warps, stages,
        ACC=tl.float32, BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, GROUP_M=8,
    )  # fmt: skip


def attention(head: int, causal: bool, m: int, n: int, warps: int, stages: int) -> Case:
    pointers = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), "*fp16")
    arguments = {
        **pointers, "scale": 0.5, "stride_head": 4096 * head, "stride_token": head,
        "n_tokens": 4096,
    }  # fmt: skip
    kind = "causal attention" if causal else "attention"
    return case(
        f"{kind} {head}, {m}x{n}, {warps} warps, {stages} stages",
        attention_kernel, arguments, warps, stages,
        HEAD_DIM=head, CAUSAL=causal, BLOCK_M=m, BLOCK_N=n,
    )  # fmt: skip


def layer_norm(block: int, warps: int) -> Case:
    pointers = dict.fromkeys(("x_ptr", "out_ptr", "weight_ptr", "bias_ptr"), "*fp16")
    arguments = {**pointers, "stride": 4096, "n_cols": 4096, "eps": 1e-5}
    return case(
        f"layer norm {block}, {warps} warps", layer_norm_kernel, arguments, warps, 3, BLOCK=block
    )


def grouped_matmul(m: int, n: int, k: int, warps: int, stages: int) -> Case:
    arguments = {
        **dict.fromkeys(("a_ptrs_ptr", "b_ptrs_ptr", "c_ptrs_ptr"), "*i64"),
        **dict.fromkeys(("sizes_ptr", "strides_ptr"), "*i32"),
        "n_products": 5,
    }
    return case(
        f"grouped matmul {m}x{n}x{k}, {warps} warps, {stages} stages",
        grouped_matmul_kernel, arguments, warps, stages,
        PROGRAMS=128, BLOCK_M=m, BLOCK_N=n, BLOCK_K=k,
    )  # fmt: skip


CASES = [
    matmul(128, 256, 64, 8, 3),
    matmul(128, 128, 64, 4, 4),
    matmul(128, 128, 32, 4, 4),
    *(attention(64, causal, 128, 64, 4, 3) for causal in (False, True)),
    *(attention(128, causal, 128, 64, 8, 3) for causal in (False, True)),
    *(attention(128, causal, 128, 64, 4, 3) for causal in (False, True)),
    layer_norm(1024, 4),
    grouped_matmul(128, 128, 32, 4, 3),
    grouped_matmul(128, 128, 64, 4, 3),
]
