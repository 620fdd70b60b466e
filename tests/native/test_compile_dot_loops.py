"""SASS of loops around dots: what a loop should cost, seen without a GPU."""

from __future__ import annotations

import re

import pytest
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


@tkdebug.jit
def multiply_often(a, c, COUNT: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    total = tl.zeros([B, B], dtype=tl.float32)
    for i in tl.static_range(COUNT):
        tile = tl.load(a + i * B * B + at)
        total = tl.dot(tile, tile, total)
    tl.store(c + at, total)


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


def descriptors_of_dots(llir: str) -> set[int]:
    """Return the number of descriptors that each block of wgmma gets."""
    calls = [line for line in llir.splitlines() if "wgmma.mma_async" in line]
    assert all(call.count("wgmma.mma_async") == 4 for call in calls)
    return {len(re.findall(r"\bi64 %", call.rpartition('"')[2])) for call in calls}


def test_steps_of_few_dots_have_descriptors_of_their_own() -> None:
    halves, single = torch.empty(1024, dtype=torch.float16), torch.empty(1024)
    with tkdebug.mode("native"):
        kernel = multiply.warmup(*(halves, halves, single, 1024), M=64, N=64, BLOCK=64, grid=(1,))
    assert descriptors_of_dots(kernel.asm["llir"]) == {8}


@pytest.mark.parametrize(("count", "descriptors"), [(8, 8), (9, 2)])
def test_many_dots_add_to_one_descriptor_of_each_operand(count: int, descriptors: int) -> None:
    """LLVM would hold those of all steps in registers across loops, and ptxas would spill them."""
    halves, single = torch.empty(1024, dtype=torch.float16), torch.empty(1024)
    with tkdebug.mode("native"):
        kernel = multiply_often.warmup(halves, single, COUNT=count, B=64, grid=(1,))
    assert descriptors_of_dots(kernel.asm["llir"]) == {descriptors}


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
