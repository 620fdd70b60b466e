"""LLVM IR text to PTX to cubin, by a worker process that may die without taking us along.

Responsible for the stages' order, their options, and for turning what LLVM, ptxas and the worker's
death say into compile errors that name the kernel and the op. The libraries themselves are only
ever loaded in the worker. Invariant: no PTX with a `.loc` of line 0 reaches ptxas.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping

from tkdebug.compiler.targets.nvptx.architectures import ptx_versions
from tkdebug.compiler.targets.nvptx.codegen import code_cache, diagnosis, wire
from tkdebug.compiler.targets.nvptx.codegen.diagnosis import CodegenError, deadly_op
from tkdebug.compiler.targets.nvptx.codegen.worker_process import POOL, WorkerDied
from tkdebug.compiler.targets.nvptx.native_code import NativeCode, native_code
from tkdebug.compiler.targets.target import Target
from tkdebug.errors import Frame
from tkdebug.knobs import KNOBS
from tkdebug.linemap.nvidia.ptx_locations import PtxLine, rewrite_locations

__all__ = ["CodegenError", "NativeCode", "assemble", "emit_ptx", "generate", "start_worker"]

# For LLVM and for ptxas.
_USUAL_LEVELS = (3, 3)
_SHARE_OF_TIMEOUT = 0.9
_THREADS = re.compile(r"^(\.(?:reqntid|maxntid) [\d, ]+)$", re.MULTILINE)
_OP_ID = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)\s", re.MULTILINE)

Locations = Mapping[int, tuple[Frame, ...]]


def generate(
    llvm_ir: str,
    kernel: str,
    target: Target,
    max_registers: int | None = None,
    locations: Locations | None = None,
    entry: tuple[Frame, ...] = (),
    on_ptx: Callable[[str], str | None] | None = None,
    *,
    shared_bytes: int = 0,
    is_checked: bool = False,
    is_lasting: bool = False,
) -> NativeCode:
    """Compile one module with one kernel, or take it from the disk.

    Args:
        llvm_ir: the text; each instruction's `!dbg` line is the id of its op.
        kernel: name of the kernel in it.
        target: the architecture.
        max_registers: most registers a thread may use; None leaves it to ptxas.
        locations: op id -> call chain, outermost first; without it line tables carry op ids.
        entry: place of the kernel's `def`.
        on_ptx: called with the PTX; another text that it returns is assembled instead, and the
            result is not cached.
        shared_bytes: dynamic shared memory of a block.
        is_checked: whether the kernel has checks; it then has to be ready soon.
        is_lasting: for a kernel with checks: whether the compile may take longer, since all
            launches use it.

    Raises:
        CodegenError: a stage refuses the kernel, or its process died of it.
    """
    options = f"{max_registers} {shared_bytes} {ptx_versions(target)[1]} {KNOBS.debug_info}"
    options += " checked" if is_checked else ""
    levels = (int(KNOBS.llvm_opt_level), int(KNOBS.ptxas_opt_level))
    options += "" if levels == _USUAL_LEVELS else f" {levels}"
    options += " lasting" if is_lasting else ""
    parts = (llvm_ir, kernel, target.name, options)
    key = code_cache.key_of((*parts, _text_of(locations, entry)))
    assembled = functools.partial(
        assemble,
        kernel=kernel,
        target=target,
        max_registers=max_registers,
        shared_bytes=shared_bytes,
        is_checked=is_checked,
        is_lasting=is_lasting,
    )
    if not KNOBS.always_compile and (found := code_cache.load(key, kernel)):
        edited = on_ptx(found.ptx) if on_ptx else None
        if edited is None or edited == found.ptx:
            return found
        return assembled(edited)
    ptx, times = _emit(llvm_ir, kernel, target, locations)
    start = time.perf_counter_ns()
    places = _op_ids_as_lines(ptx, kernel) if locations is None else locations
    ptx, lines = rewrite_locations(ptx, places, entry)
    times.append(("locations", time.perf_counter_ns() - start))
    edited = on_ptx(ptx) if on_ptx else None
    if edited is not None and edited != ptx:
        return assembled(edited)
    code = assembled(ptx, ptx_lines=lines, locations=locations, times_ns=tuple(times))
    code_cache.store(key, kernel, code)
    return code


def emit_ptx(llvm_ir: str, kernel: str, target: Target, locations: Locations | None = None) -> str:
    """Optimised PTX, whose `.loc` lines carry op ids, and 0 if LLVM has none.

    Raises:
        CodegenError: LLVM refuses the text, died of it, or a function in it exists nowhere.
    """
    return _emit(llvm_ir, kernel, target, locations)[0]


def _emit(
    llvm_ir: str, kernel: str, target: Target, locations: Locations | None
) -> tuple[str, list[tuple[str, int]]]:
    start = time.perf_counter_ns()
    least, wanted = ptx_versions(target)
    header = {
        "task": "ptx",
        "cpu": target.name,
        "ptx_version": wanted,
        "least_ptx_version": least,
        "opt_level": int(KNOBS.llvm_opt_level),
    }
    try:
        answer, body = _ask(header, llvm_ir.encode())
    except WorkerDied as death:
        detail, op_id = diagnosis.death_complaint(death.how, death.stderr, llvm_ir)
        if op_id is None and death.stage != "start":
            op_id = deadly_op(llvm_ir, header, KNOBS.codegen_timeout_s)
        raise CodegenError(kernel, death.stage, detail, op_id, locations) from None
    if answer["status"] != "ok":
        detail, op_id = diagnosis.llvm_complaint(
            str(answer["message"]), str(answer["log"]), llvm_ir
        )
        raise CodegenError(kernel, str(answer["stage"]), detail, op_id, locations)
    ptx = body.decode()
    for name in diagnosis.unknown_functions(ptx):
        raise CodegenError(
            kernel,
            "emit",
            f"{name} is called, but is neither an intrinsic of this LLVM nor in a library",
            diagnosis.op_of_text(llvm_ir, f"@{name}("),
            locations,
        )
    steps = answer.get("times_ns")
    times = [(str(step), int(ns)) for step, ns in steps.items()] if isinstance(steps, dict) else []
    rest = time.perf_counter_ns() - start - sum(ns for _, ns in times)
    return ptx, [*times, ("pipe", rest)]


def assemble(
    ptx: str,
    kernel: str,
    target: Target,
    max_registers: int | None = None,
    ptx_lines: tuple[PtxLine, ...] = (),
    locations: Locations | None = None,
    times_ns: tuple[tuple[str, int], ...] = (),
    shared_bytes: int = 0,
    is_checked: bool = False,
    is_lasting: bool = False,
) -> NativeCode:
    """PTX to cubin, with its registers and shared memory.

    Args:
        ptx: the text, also one that was edited.
        kernel: name of the kernel in it.
        target: the architecture.
        max_registers: most registers a thread may use.
        ptx_lines: the op of each instruction line.
        locations: op id -> call chain, for errors.
        times_ns: steps before this one, to be kept with the result.
        shared_bytes: dynamic shared memory of a block.
        is_checked: whether the kernel has checks; it then has to be ready soon.
        is_lasting: for a kernel with checks: whether the compile may take longer, since all
            launches use it.

    Raises:
        CodegenError: ptxas refuses the text, or its process died.
    """
    # Not for code from the disk.
    from tkdebug.compiler.targets.nvptx.cubins.debug_info import with_debug_info
    from tkdebug.compiler.targets.nvptx.cubins.wgmma_rows import with_wgmma_rows
    from tkdebug.linemap.nvidia.cubins import CubinError
    from tkdebug.linemap.nvidia.line_programs import LineProgramError

    start = time.perf_counter_ns()
    options = [f"-arch={target.name}", "-lineinfo", f"-O{int(KNOBS.ptxas_opt_level)}"]
    options += ["-verbose", "-no-cache"]
    if max_registers is not None:
        options.append(f"-maxrregcount={max_registers}")
        ptx = _with_register_limit(ptx, max_registers)
    # A little less than the worker has, which would leave its ptxas running.
    timeout_s = _SHARE_OF_TIMEOUT * KNOBS.codegen_timeout_s
    header = {
        "task": "cubin",
        "name": kernel,
        "options": options,
        "timeout_s": timeout_s,
        "shared_bytes": shared_bytes,
        "is_checked": is_checked,
        "is_lasting": is_lasting,
    }
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
        op_id = next((entry.op_id for entry in ptx_lines if entry.line == line), None)
        raise CodegenError(kernel, "assemble", detail, op_id, locations)
    try:
        cubin = with_wgmma_rows(cubin, ptx)
        cubin = with_debug_info(cubin) if KNOBS.debug_info else cubin
        times = (*times_ns, ("assemble", time.perf_counter_ns() - start))
        return native_code(ptx, cubin, kernel, log, ptx_lines, times)
    except (ValueError, CubinError, LineProgramError) as error:
        raise CodegenError(kernel, "assemble", str(error)) from None


def _text_of(locations: Locations | None, entry: tuple[Frame, ...]) -> str:
    chains = {} if locations is None else dict(locations)
    return f"{locations is None}\n" + "\n".join(
        f"{op_id} {frame.line} {frame.file!r} {frame.function!r}"
        for op_id, chain in (*chains.items(), (-1, entry))
        for frame in chain
    )


def _with_register_limit(ptx: str, max_registers: int) -> str:
    # ptxas ignores -maxrregcount for a kernel that states its number of threads. The directive
    # stands on the line of the other one, so that no line of the text moves.
    if ".maxnreg" in ptx:
        return ptx
    return _THREADS.sub(rf"\1 .maxnreg {max_registers}", ptx)


def start_worker() -> None:
    """Begin to start a worker, so that it is ready when the first kernel has been lowered."""
    POOL.start_one()


def _ask(header: Mapping[str, object], body: bytes) -> tuple[wire.Header, bytes]:
    with POOL.borrow() as worker:
        return worker.ask(header, body, KNOBS.codegen_timeout_s)


def _op_ids_as_lines(ptx: str, kernel: str) -> Locations:
    ids = {int(number) for number in _OP_ID.findall(ptx)} - {0}
    return {op_id: (Frame("<ops>", op_id, kernel),) for op_id in ids}
