from __future__ import annotations

import os
import threading
import time

import llvm_text
import pytest
from native_support import needs_codegen

from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen import diagnosis, worker_process
from tkdebug.compiler.targets.nvptx.codegen.generation import CodegenError, generate
from tkdebug.compiler.targets.nvptx.codegen.worker_process import POOL, WorkerDied
from tkdebug.errors import CompileError, Frame
from tkdebug.knobs import KNOBS

pytestmark = needs_codegen
HOPPER = TARGETS["sm_90a"]
# LLVM 22 has this name, and no instruction for it on sm_90a: it aborts.
ABORTING = llvm_text.module(
    """
  %v = load float, ptr addrspace(1) %x, !dbg !10
  %r = call float @llvm.nvvm.redux.sync.fmax(float %v, i32 -1), !dbg !11
  store float %r, ptr addrspace(1) %x, !dbg !12
  ret void, !dbg !13""",
    "declare float @llvm.nvvm.redux.sync.fmax(float, i32)",
)


def error_of(text: str) -> CodegenError:
    with pytest.raises(CodegenError) as caught:
        generate(text, "k", HOPPER)
    assert " k" in str(caught.value)
    assert len(str(caught.value)) < 1000
    return caught.value


def test_intrinsic_that_llvm_aborts_on_is_an_error_at_its_op() -> None:
    error = error_of(ABORTING)
    assert (error.op_id, error.stage) == (11, "emit")
    assert "redux.sync.fmax" in str(error)
    generate(llvm_text.VECTOR_ADD, "k", HOPPER)


def test_error_with_locations_names_the_line() -> None:
    frames = (Frame("kernel.py", 7, "k"), Frame("device.py", 3, "inner"))
    with pytest.raises(CompileError) as caught:
        generate(ABORTING, "k", HOPPER, locations={11: frames})
    assert str(caught.value).startswith("device.py:3: ")
    assert "called from kernel.py:7 in k" in str(caught.value)


@pytest.mark.parametrize(
    ("template", "constraints"),
    [
        ("foo.bar.f32 $0, $1;", "=f,f"),
        ("add.f32 $0, $1;", "=f,f"),
        ("add.s64 $0, $1, $1;", "=f,f"),
        ("}} ret;", "=f,f"),
        ("add.f32 $0, $1, $1;", "=x,f"),
        ("add.f32 $0, $1, $1;", "=f,f,~"),
        ("add.f32 $0, $1, $1;", "=f,0,5"),
    ],
)
def test_malformed_assembly_is_an_error_at_its_op(template: str, constraints: str) -> None:
    assert error_of(llvm_text.assembly(template, constraints)).op_id == 11


@pytest.mark.parametrize("name", ["llvm.nvvm.sqrtt.approx.f", "__nv_sinff", "nothing"])
def test_function_that_exists_nowhere_is_an_error_at_its_op(name: str) -> None:
    error = error_of(llvm_text.call(name))
    assert error.op_id == 11
    assert name in str(error)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("%v = load flat, ptr addrspace(1) %x, !dbg !11\n  ret void, !dbg !12", "expected type"),
        ("%v = fadd float %w, %w, !dbg !11\n  ret void, !dbg !12", "undefined value '%w'"),
        (
            "%v = fadd float %w, 1.0, !dbg !11\n  %w = fadd float 1.0, 1.0, !dbg !12\n"
            "  ret void, !dbg !12",
            "does not dominate",
        ),
    ],
)
def test_text_that_llvm_refuses_is_an_error_at_its_op(body: str, said: str) -> None:
    error = error_of(llvm_text.module(body))
    assert said in str(error)
    assert error.op_id in (11, 12)


def test_too_few_registers_for_wgmma_is_an_error_at_its_op() -> None:
    with pytest.raises(CodegenError, match=r"Insufficient registers \(64\)") as caught:
        generate(llvm_text.wgmma(steps=1), "k", HOPPER, max_registers=64)
    assert caught.value.op_id == 21


def test_kernel_that_is_not_in_the_module_is_an_error() -> None:
    with pytest.raises(CodegenError, match="no entry missing"):
        generate(llvm_text.VECTOR_ADD, "missing", HOPPER)


def test_deadly_ops_finds_the_deadly_call_when_nothing_was_said() -> None:
    header = {"task": "ptx", "cpu": "sm_90a", "ptx_version": 87, "least_ptx_version": 80}
    assert diagnosis.deadly_op(ABORTING, header, 60) == 11
    assert diagnosis.deadly_op(llvm_text.VECTOR_ADD, header, 60) is None


def test_deadly_ops_handles_inline_assembly_and_immediates() -> None:
    header = {"task": "ptx", "cpu": "sm_90a", "ptx_version": 87, "least_ptx_version": 80}
    text = llvm_text.assembly("add.f32 $0, $1, $1;", "=x,f")
    assert diagnosis.deadly_op(text, header, 60) == 11
    assert diagnosis.deadly_op(llvm_text.wgmma(steps=1), header, 60) is None


def test_worker_that_cannot_start_blames_no_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_BOOTSTRAP", "raise ImportError('no such thing')")
    POOL.close()
    error = error_of(ABORTING)
    assert error.op_id is None
    assert "ImportError: no such thing" in str(error)


def test_killed_worker_is_an_error_and_the_next_kernel_compiles() -> None:
    generate(llvm_text.VECTOR_ADD, "k", HOPPER)
    with POOL.borrow() as worker:
        os.kill(worker.pid, 9)
        with pytest.raises(WorkerDied, match="signal 9"):
            worker.ask({"task": "ping"}, b"", 60)
    assert generate(llvm_text.VECTOR_ADD, "k", HOPPER, max_registers=80).registers


def test_timeout_is_an_error_and_the_worker_is_replaced() -> None:
    with KNOBS.scope(codegen_timeout_s=0.001), pytest.raises(CodegenError, match="no answer in"):
        generate(llvm_text.wgmma(), "k", HOPPER)
    assert generate(llvm_text.VECTOR_ADD, "k", HOPPER, max_registers=81).registers


def test_several_threads_compile_side_by_side() -> None:
    results: list[int] = []

    def compile_one(registers: int) -> None:
        code = generate(llvm_text.VECTOR_ADD, "k", HOPPER, max_registers=registers)
        results.append(code.registers)

    threads = [threading.Thread(target=compile_one, args=(n,)) for n in range(90, 96)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_compiles_with_workers_of_its_own() -> None:
    generate(llvm_text.VECTOR_ADD, "k", HOPPER)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            code = generate(llvm_text.VECTOR_ADD, "k", HOPPER, max_registers=100)
            status = 0 if code.registers else 2
        finally:
            POOL.close()
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert generate(llvm_text.VECTOR_ADD, "k", HOPPER, max_registers=101).registers


def test_worker_ends_when_its_parent_does() -> None:
    import subprocess
    import sys

    code = (
        "import os\n"
        "from tkdebug.compiler.targets.nvptx.codegen.worker_process import POOL\n"
        "with POOL.borrow() as worker:\n"
        "    worker.ask({'task': 'ping'}, b'', 60)\n"
        "    print(worker.pid, flush=True)\n"
        "os._exit(0)\n"  # no atexit: as if killed
    )
    pid = int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    deadline = time.monotonic() + 60
    while _alive(pid):
        assert time.monotonic() < deadline, f"worker {pid} outlives its parent"
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"
