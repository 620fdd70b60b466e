"""SASS of the loops of the benchmark's attention, for sm_90a, without a GPU."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch
from native_support import needs_codegen, needs_nvdisasm

import tkdebug
from tkdebug.compat.finder import InstalledFinder
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import assemble
from tkdebug.knobs import KNOBS
from tkdebug.linemap.nvidia.sass import opcode
from tkdebug.linemap.nvidia.unread_code import sass_text
from tkdebug.runtime.launch.compiled_kernel import CompiledKernel

pytestmark = [needs_codegen, needs_nvdisasm]

KERNELS = Path(__file__).resolve().parents[2] / "bench" / "kernels_native.py"
TARGET = "sm_90a"
TOKENS = 4096
# fence.proxy.async, fence.cta and membar.cta all become a MEMBAR.
WAITS_FOR_MEMORY = {"MEMBAR", "FENCE", "ERRBAR"}

_LABEL = re.compile(r"^\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_JUMP = re.compile(r"`\((\.L_x_\d+)\)")


@pytest.fixture(scope="module")
def kernels() -> Iterator[ModuleType]:
    finder = InstalledFinder()
    try:
        spec = importlib.util.spec_from_file_location("attention_of_the_benchmark", KERNELS)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        finder.uninstall()


@pytest.fixture(scope="module")
def compiled(kernels: ModuleType) -> Callable[[int, bool], CompiledKernel]:
    @cache
    def compile_attention(head: int, is_causal: bool) -> CompiledKernel:
        tensors = [torch.empty(1024, dtype=torch.float16)] * 4
        with tkdebug.mode("native"), KNOBS.scope(cross_compile=TARGET):
            return kernels.attention_kernel.fn.warmup(
                *tensors, 0.5, TOKENS * head, head, TOKENS, HEAD_DIM=head, CAUSAL=is_causal,
                BLOCK_M=128, BLOCK_N=64, num_warps=head // 16, num_stages=3, grid=(1,),
            )  # fmt: skip

    return compile_attention


def loops_of_products(cubin: bytes) -> list[list[str]]:
    """The opcodes of each loop that has wgmma."""
    texts: list[str] = []
    places: dict[str, int] = {}
    loops = []
    for line in sass_text(cubin).splitlines():
        if label := _LABEL.match(line):
            places[label[1]] = len(texts)
        elif found := _INSTRUCTION.match(line):
            texts.append(found[1])
            jump = _JUMP.search(found[1])
            if opcode(found[1]) == "BRA" and jump and jump[1] in places:
                loops.append([opcode(text) for text in texts[places[jump[1]] :]])
    return [loop for loop in loops if "HGMMA" in loop]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("head", [64, 128])
def test_loops_of_attention_wait_for_no_memory(compiled, head: int, is_causal: bool) -> None:
    """Threads write for wgmma before the loops only: one fence there is enough."""
    loops = loops_of_products(compiled(head, is_causal).asm["cubin"])
    assert len(loops) == 1 + is_causal
    assert [WAITS_FOR_MEMORY.intersection(loop) for loop in loops] == [set()] * len(loops)


@pytest.mark.parametrize("fence", ["fence.proxy.async.shared::cta", "membar.cta"])
def test_a_fence_in_a_loop_is_seen(compiled, fence: str) -> None:
    kernel = compiled(64, False)
    before, found, after = kernel.asm["ptx"].rpartition("wgmma.fence.sync.aligned;")
    code = assemble(f"{before}{fence};\n{found}{after}", kernel.name, TARGETS[TARGET])
    (loop,) = loops_of_products(code.cubin)
    assert "MEMBAR" in WAITS_FOR_MEMORY.intersection(loop)
