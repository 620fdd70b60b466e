"""SASS of loops around dots: what a loop should cost, seen without a GPU."""

from __future__ import annotations

import re

import torch
from kernel_map_kernels import grouped_kernel
from native_support import instructions, needs_codegen, needs_nvdisasm

import tkdebug
import tkdebug.language as tl

pytestmark = [needs_codegen, needs_nvdisasm]


@tkdebug.jit
def multiply(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, K, BLOCK):
        x = tl.load(a + m[:, None] * K + first + k[None, :])
        y = tl.load(b + (first + k)[:, None] * N + n[None, :])
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


def test_descriptors_of_wgmma_stay_in_uniform_registers() -> None:
    """Two groups of warps share B; where each has its rows of A is the same in all its lanes."""
    halves, single = torch.empty(1024, dtype=torch.float16), torch.empty(1024)
    with tkdebug.mode("native"):
        kernel = multiply.warmup(
            *(halves, halves, single, 1024), M=128, N=256, BLOCK=64, num_warps=8, grid=(1,)
        )
    sass = instructions(kernel.asm["sass"])
    dots = [place for place, text in enumerate(sass) if text.startswith("HGMMA")]
    assert len(dots) == 4
    loop = sass[dots[0] : dots[-1]]
    assert not [text for text in loop if "R2UR" in text]


def test_a_dot_gets_one_descriptor_of_each_operand() -> None:
    """Those of the further steps are sums that LLVM would hold in registers across the loop."""
    halves, single = torch.empty(1024, dtype=torch.float16), torch.empty(1024)
    with tkdebug.mode("native"):
        kernel = multiply.warmup(*(halves, halves, single, 1024), M=64, N=64, BLOCK=64, grid=(1,))
    (call,) = (line for line in kernel.asm["llir"].splitlines() if "wgmma.mma_async" in line)
    assert call.count("wgmma.mma_async") == 4
    assert len(re.findall(r"\bi64 %", call.rpartition('"')[2])) == 2


def test_products_of_loaded_addresses_are_copied_by_one_thread() -> None:
    """No thread loads operands or keeps their addresses, of which there are more than registers."""
    tables, numbers = torch.empty(16, dtype=torch.int64), torch.empty(16, dtype=torch.int32)
    with tkdebug.mode("native"):
        kernel = grouped_kernel.warmup(
            *(tables, numbers, numbers, 4), WORKERS=132, BM=128, BN=128, BK=64, TURNED=True,
            ELEMENT=tl.float16, OUT=tl.float16, grid=(132,),
        )  # fmt: skip
    assert kernel.n_spills == 0
    sass = instructions(kernel.asm["sass"])
    dots = [place for place, text in enumerate(sass) if text.startswith("HGMMA")]
    loop = sass[dots[0] : dots[-1]]
    assert not [text for text in loop if "LDG" in text or "LDL" in text]
    # Of both operands: two stages are filled before the loop, one is in it.
    assert sum("UTMALDG" in text for text in sass) == 2 * 3
