from __future__ import annotations

import os
import re
import time
from pathlib import Path

import llvm_text
import pytest
from native_support import instructions, needs_codegen, needs_libdevice, needs_nvdisasm

from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import emit_ptx, generate
from tkdebug.compiler.targets.nvptx.codegen.ptx_stage import WarpTime
from tkdebug.compiler.targets.nvptx.codegen.worker_process import POOL
from tkdebug.linemap.nvidia.tools import disassemble

pytestmark = needs_codegen
HOPPER = TARGETS["sm_90a"]


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_vector_add_becomes_a_cubin_of_each_target(name: str) -> None:
    code = generate(llvm_text.VECTOR_ADD, "k", TARGETS[name])
    assert code.cubin.startswith(b"\x7fELF")
    assert f".target {name}\n" in code.ptx
    assert 0 < code.registers < 40
    assert WarpTime.of(code.cubin).waits_for_memory == 1
    assert code.spill_store_bytes == code.spill_load_bytes == code.stack_bytes == 0
    assert code.shared_bytes == 0
    assert code.warnings == ()


def test_vector_accesses_stay_vectors() -> None:
    ptx = emit_ptx(llvm_text.VECTOR_ADD, "k", HOPPER)
    assert len(re.findall(r"ld\.global\.v4\.b32", ptx)) == 2
    assert len(re.findall(r"st\.global\.v4\.b32", ptx)) == 1


@needs_nvdisasm
def test_vector_add_uses_128_bit_accesses() -> None:
    code = generate(llvm_text.VECTOR_ADD, "k", HOPPER)
    sass = instructions(disassemble(code.cubin))
    assert sum("LDG.E.128" in text for text in sass) == 2
    assert sum("STG.E.128" in text for text in sass) == 1


def test_contracted_product_and_sum_become_one_fma() -> None:
    ptx = emit_ptx(
        llvm_text.module(
            """
  %v = load float, ptr addrspace(1) %x, !dbg !10
  %m = fmul contract float %v, 3.0, !dbg !11
  %a = fadd contract float %m, 5.0, !dbg !12
  store float %a, ptr addrspace(1) %x, !dbg !13
  ret void, !dbg !14"""
        ),
        "k",
        HOPPER,
    )
    assert "fma.rn.f32" in ptx
    assert "mul" not in ptx


def test_shared_pointers_are_32_bits_wide() -> None:
    ptx = emit_ptx(
        llvm_text.module(
            """
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !10
  %p = getelementptr float, ptr addrspace(3) @shared, i32 %t, !dbg !11
  %v = load float, ptr addrspace(3) %p, !dbg !12
  store float %v, ptr addrspace(1) %x, !dbg !13
  ret void, !dbg !14""",
            "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
        ),
        "k",
        HOPPER,
    )
    assert re.search(r"ld\.shared\.b32\s+%r\d+, \[%r\d+\]", ptx)


@needs_libdevice
@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("__nv_sinf", "float"),
        ("__nv_sin", "double"),
        ("__nv_exp", "double"),
        ("__nv_erff", "float"),
    ],
)
def test_libdevice_function_is_linked_and_inlined(name: str, type_: str) -> None:
    code = generate(llvm_text.call(name, type_), "k", HOPPER)
    assert ".extern" not in code.ptx
    assert "nvvm_reflect" not in code.ptx


@needs_libdevice
def test_two_libdevice_functions_share_an_inner_one() -> None:
    text = llvm_text.module(
        """
  %v = load double, ptr addrspace(1) %x, !dbg !10
  %s = call double @__nv_sin(double %v), !dbg !11
  %c = call double @__nv_cos(double %s), !dbg !12
  store double %c, ptr addrspace(1) %x, !dbg !13
  ret void, !dbg !14""",
        "declare double @__nv_sin(double)\ndeclare double @__nv_cos(double)",
    )
    assert ".extern" not in generate(text, "k", HOPPER).ptx


@needs_nvdisasm
def test_wgmma_keeps_128_accumulators_in_registers() -> None:
    code = generate(llvm_text.wgmma(steps=1), "k", HOPPER)
    sass = instructions(disassemble(code.cubin))
    assert sum(text.startswith("HGMMA.64x256x16") for text in sass) == 1
    assert not any("LDL" in text or "STL" in text for text in sass)
    assert code.warnings == ()
    assert 128 <= code.registers <= 168


def test_serialised_wgmma_is_a_warning_at_its_op() -> None:
    code = generate(llvm_text.wgmma(steps=2, touch_between=True), "k", HOPPER)
    serialised = [note for note in code.warnings if "serialized" in note.message]
    assert serialised
    assert serialised[0].code.startswith("C75")
    if serialised[0].ptx_line is not None:  # nvJitLink 13.0 does not say which line
        assert serialised[0].op_id in range(20, 28)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_max_registers_makes_it_spill_and_the_log_says_how_much(name: str) -> None:
    free = generate(llvm_text.many_registers(96), "k", TARGETS[name])
    code = generate(llvm_text.many_registers(96), "k", TARGETS[name], max_registers=64)
    assert free.registers > 64
    assert free.spill_store_bytes == 0
    assert code.registers <= 64
    assert code.spill_store_bytes > 0
    assert code.spill_load_bytes > 0
    assert code.stack_bytes > 0


def test_static_shared_memory_is_reported() -> None:
    text = llvm_text.module(
        """
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !10
  %p = getelementptr [256 x float], ptr addrspace(3) @own, i32 0, i32 %t, !dbg !11
  %v = load volatile float, ptr addrspace(3) %p, !dbg !12
  store volatile float %v, ptr addrspace(3) %p, !dbg !12
  ret void, !dbg !14""",
        "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
        "@own = internal addrspace(3) global [256 x float] undef",
    )
    assert generate(text, "k", HOPPER).shared_bytes == 1024


def cpu_s_of(pid: int) -> float:
    """Processor time that a process has had; of a thread that waits, none is added."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor times are of /proc")
def test_a_small_kernel_is_compiled_within_a_blink() -> None:
    def compile_ten(first: int) -> float:
        with POOL.borrow() as worker:
            pid = worker.pid
        before = cpu_s_of(pid) + time.process_time()
        for registers in range(first, first + 10):
            generate(llvm_text.VECTOR_ADD, "k", HOPPER, max_registers=registers)
        with POOL.borrow() as worker:
            assert worker.pid == pid  # no kernel has a process started for it
        return cpu_s_of(pid) + time.process_time() - before

    generate(llvm_text.VECTOR_ADD, "k", HOPPER)
    # 0.13 s for ten on a quiet machine; processes that share a core count more.
    assert any(compile_ten(first) < 0.5 for first in (64, 74, 84))


def test_instruction_that_serves_two_ops_is_of_one_of_them() -> None:
    ptx = emit_ptx(
        llvm_text.module(
            """
  %v = load i32, ptr addrspace(1) %x, !dbg !10
  %c = icmp sgt i32 %v, 5, !dbg !11
  br i1 %c, label %a, label %b, !dbg !11
a:
  %m = mul i32 %v, %v, !dbg !12
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !13
  store i32 %m, ptr addrspace(1) %x, !dbg !13
  br label %end, !dbg !14
b:
  %o = mul i32 %v, %v, !dbg !15
  %y = getelementptr i32, ptr addrspace(1) %x, i32 %v, !dbg !16
  store i32 %o, ptr addrspace(1) %y, !dbg !16
  br label %end, !dbg !14
end:
  ret void, !dbg !18""",
            "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)",
        ),
        "k",
        HOPPER,
    )
    before, product, after = ptx.partition("mul.lo")
    assert product
    assert "mul.lo" not in after
    assert re.findall(r"\.loc\s+1 (\d+) ", before)[-1] in ("12", "15")
