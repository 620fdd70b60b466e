"""LLVM IR text to PTX to cubin, by a worker process that may die without taking us along.

Responsible for the stages' order, their options, and for turning what LLVM, nvJitLink and the
worker's death say into compile errors that name the kernel and the op. The libraries themselves are
only ever loaded in the worker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tkdebug.compiler.targets.nvptx import diagnosis, wire
from tkdebug.compiler.targets.nvptx.diagnosis import CodegenError
from tkdebug.compiler.targets.nvptx.worker_process import POOL, WorkerDied
from tkdebug.compiler.targets.targets import Target

# PTX 8.7 (CUDA 12.8) has everything the targets have; CUDA 13's nvJitLink and drivers take it.
PTX_VERSION = "87"
_TIMEOUT_S = 300.0
_PERFORMANCE_NOTE = re.compile(r"\(C75\d\d\)|Potential Performance Loss")


@dataclass(frozen=True, slots=True)
class NativeCode:
    """A compiled kernel.

    Attributes:
        ptx: the text that was assembled.
        cubin: ELF image.
        registers: 32-bit registers of a thread.
        spill_store_bytes: bytes a thread stores because registers ran out.
        spill_load_bytes: bytes a thread loads because registers ran out.
        stack_bytes: local memory of a thread, spills included.
        shared_bytes: static shared memory; the dynamic part is the launch's.
        log: what nvJitLink said.
        warnings: lines of it that mean lost speed, e.g. serialised wgmma (C75xx).
    """

    ptx: str
    cubin: bytes
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int
    log: str
    warnings: tuple[str, ...] = ()


def generate(
    llvm_ir: str, kernel: str, target: Target, max_registers: int | None = None
) -> NativeCode:
    """Compile one module with one kernel.

    Args:
        llvm_ir: the text; each instruction's `!dbg` line is the id of its op.
        kernel: name of the kernel in it.
        target: the architecture.
        max_registers: most registers a thread may use; None leaves it to ptxas.

    Raises:
        CodegenError: a stage refuses the kernel, or its process died of it.
    """
    ptx = emit_ptx(llvm_ir, kernel, target)
    return assemble(ptx, kernel, target, max_registers)


def emit_ptx(llvm_ir: str, kernel: str, target: Target) -> str:
    """Optimised PTX, whose `.loc` lines carry op ids, and 0 where LLVM has none.

    Raises:
        CodegenError: LLVM refuses the text, died of it, or a function in it exists nowhere.
    """
    header = {"task": "ptx", "cpu": target.name, "ptx_version": PTX_VERSION}
    try:
        answer, body = _ask(header, llvm_ir.encode())
    except WorkerDied as death:
        detail, op_id = diagnosis.death_complaint(death.how, death.stderr, llvm_ir)
        raise CodegenError(kernel, death.stage, detail, op_id) from None
    if answer["status"] != "ok":
        detail, op_id = diagnosis.llvm_complaint(
            str(answer["message"]), str(answer["log"]), llvm_ir
        )
        raise CodegenError(kernel, str(answer["stage"]), detail, op_id)
    ptx = body.decode()
    for name in diagnosis.unknown_functions(ptx):
        raise CodegenError(
            kernel,
            "emit",
            f"{name} is called, but is no intrinsic of this LLVM and in no library",
            diagnosis.op_of_text(llvm_ir, f"@{name}("),
        )
    return ptx


def assemble(ptx: str, kernel: str, target: Target, max_registers: int | None = None) -> NativeCode:
    """PTX to cubin, with what it needs of the machine.

    Raises:
        CodegenError: ptxas refuses the text.
    """
    options = [f"-arch={target.name}", "-lineinfo", "-O3", "-verbose"]
    if max_registers is not None:
        options.append(f"-maxrregcount={max_registers}")
    header = {"task": "cubin", "name": kernel, "options": options}
    try:
        answer, cubin = _ask(header, ptx.encode())
    except WorkerDied as death:
        detail, _ = diagnosis.death_complaint(death.how, death.stderr, "")
        raise CodegenError(kernel, death.stage, detail) from None
    log = str(answer["log"])
    if answer["status"] != "ok":
        if not log:
            raise CodegenError(kernel, "assemble", str(answer["message"]))
        detail, line = diagnosis.ptxas_complaint(log, ptx)
        op_id = None if line is None else diagnosis.op_at_ptx_line(ptx, line)
        raise CodegenError(kernel, "assemble", detail, op_id)
    return _native_code(ptx, cubin, kernel, log)


def _ask(header: Mapping[str, object], body: bytes) -> tuple[wire.Header, bytes]:
    with POOL.borrow() as worker:
        return worker.ask(header, body, _TIMEOUT_S)


def _native_code(ptx: str, cubin: bytes, kernel: str, log: str) -> NativeCode:
    # ptxas writes one block per function; the kernel's begins with its "Compiling entry" line.
    block = log[log.find(f"entry function '{kernel}'") :]

    def number(pattern: str) -> int:
        found = re.search(pattern, block)
        return int(found[1]) if found else 0

    registers = number(r"Used (\d+) registers")
    if not registers:
        raise CodegenError(kernel, "assemble", f"no entry {kernel} in ptxas's log: {log[:200]}")
    return NativeCode(
        ptx=ptx,
        cubin=cubin,
        registers=registers,
        spill_store_bytes=number(r"(\d+) bytes spill stores"),
        spill_load_bytes=number(r"(\d+) bytes spill loads"),
        stack_bytes=number(r"(\d+) bytes stack frame"),
        shared_bytes=number(r"(\d+) bytes smem"),
        log=log,
        warnings=tuple(line for line in log.splitlines() if _PERFORMANCE_NOTE.search(line)),
    )


def start_worker() -> None:
    """Begin to start a worker, so that it is ready by the time the first kernel is lowered."""
    POOL.start_one()
