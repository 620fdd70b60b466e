"""Line tables of what tkdebug compiled, and of cubins of others.

Responsible for joining what the compiler knows (ops, PTX lines, resources) with what the cubin and
nvdisasm say. Reading a finished table is `linemap`'s, which knows no compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tkdebug.compiler.op_facts import op_places
from tkdebug.compiler.rewriting.rewriter import RewriteRecord
from tkdebug.compiler.targets.nvptx.cubins.disassembly import DisassemblyError, disassemble
from tkdebug.compiler.targets.nvptx.native_code import NativeCode
from tkdebug.compiler.targets.nvptx.occupancy import occupancy
from tkdebug.compiler.targets.registered_backends import target_of
from tkdebug.compiler.targets.target import Target
from tkdebug.errors import TkError, UnsupportedError
from tkdebug.linemap.line_table import AssemblerNote, Instruction, LineTable
from tkdebug.linemap.line_table_data import absent, to_data
from tkdebug.linemap.llvm_locations import llvm_ops
from tkdebug.linemap.nvidia.call_credits import credit_calls
from tkdebug.linemap.nvidia.cubin_resources import CubinKernel, read_kernels
from tkdebug.linemap.nvidia.cubins import FunctionLines, read_line_info
from tkdebug.linemap.nvidia.sass import SassInstruction, parse_sass
from tkdebug.linemap.op_place import Frames, OpPlace
from tkdebug.linemap.resources import Resources

if TYPE_CHECKING:
    from tkdebug.compiler.targets.nvptx.compile import CompiledModule

Sass = Mapping[str, tuple[SassInstruction, ...]]


def kernel_table(
    compiled: CompiledModule, target: Target, tile_ops: Mapping[int, OpPlace]
) -> LineTable:
    """The table of a kernel that tkdebug compiled.

    Args:
        compiled: the kernel.
        target: the architecture.
        tile_ops: `op_places` of its Tile IR.

    Raises:
        CubinError: the cubin (an edited one) has no line information.
    """
    code = compiled.code
    records = [record for run in compiled.passes for record in run.records]
    ops = _joined(tile_ops, op_places(compiled.module), records)
    ptx_ops = {row.line: row.op_id for row in code.ptx_lines if row.op_id is not None}
    lines = read_line_info(code.cubin)[compiled.symbol]
    threads = compiled.num_warps * target.threads_per_warp
    shared = code.shared_bytes + compiled.shared_bytes
    entry = compiled.module.function.location.frames
    sass = _sass(code.cubin).get(compiled.symbol)
    instructions, local_functions = credit_calls(
        _own_instructions(lines, sass, code, ops, entry), lines.locals
    )
    return LineTable(
        kernel=compiled.symbol,
        target=target.name,
        ops=ops,
        instructions=instructions,
        ptx_ops=ptx_ops,
        llvm_ops=llvm_ops(compiled.llvm_ir),
        resources=Resources(
            registers=code.registers,
            threads=threads,
            static_shared_bytes=code.shared_bytes,
            dynamic_shared_bytes=compiled.shared_bytes,
            stack_bytes=code.stack_bytes,
            spill_store_bytes=code.spill_store_bytes,
            spill_load_bytes=code.spill_load_bytes,
            occupancy=occupancy(target, threads, code.registers, shared),
        ),
        notes=tuple(
            AssemblerNote(note.code, note.message, _frames_of(ops, note.op_id))
            for note in code.warnings
        ),
        local_functions=local_functions,
        tests=() if compiled.probes is None else compiled.probes.tests,
    )


def _frames_of(ops: Mapping[int, OpPlace], op_id: int | None) -> Frames:
    """An op's first chain; none for no op."""
    op = ops.get(op_id) if op_id is not None else None
    return op.chains[0] if op is not None else ()


def line_table_data(
    compiled: CompiledModule, target: Target, tile_ops: Mapping[int, OpPlace]
) -> Mapping[str, object]:
    """`kernel_table` as data; where there can be none, data that says why."""
    try:
        return to_data(kernel_table(compiled, target, tile_ops))
    except TkError as error:
        return absent(f"kernel {compiled.symbol}: {error}")


def cubin_tables(cubin: bytes) -> tuple[LineTable, ...]:
    """A table for each function of any cubin: places and PTX lines, no ops.

    Raises:
        CubinError: not a cubin, damaged, of an architecture before Volta, without line information.
    """
    lines = read_line_info(cubin)
    kernels = read_kernels(cubin)
    sass = _sass(cubin)
    tables = []
    for name, function in lines.items():
        instructions, local_functions = credit_calls(
            _instructions(function, sass.get(name)), function.locals
        )
        tables.append(
            LineTable(
                kernel=name,
                target=kernels.target,
                instructions=instructions,
                resources=_resources(kernels.target, kernels.kernels.get(name)),
                local_functions=local_functions,
            )
        )
    return tuple(tables)


def _sass(cubin: bytes) -> Sass:
    """SASS by function; empty where there is no nvdisasm, or none for this architecture."""
    for options in (("-c", "-lrm", "count"), ("-c",)):
        try:
            return parse_sass(disassemble(cubin, options))
        except DisassemblyError:
            continue
    return {}


def _instructions(
    lines: FunctionLines, sass: Sequence[SassInstruction] | None
) -> tuple[Instruction, ...]:
    """What the cubin's tables say, no more."""
    return tuple(
        Instruction(
            item.address,
            item.text,
            lines.ptx_line_at(item.address),
            None,
            lines.frames_at(item.address),
            item.live_registers,
        )
        for item in sass or _without_text(lines)
    )


def _own_instructions(
    lines: FunctionLines,
    sass: Sequence[SassInstruction] | None,
    code: NativeCode,
    ops: Mapping[int, OpPlace],
    entry: Frames,
) -> tuple[Instruction, ...]:
    """What is known by op; what ptxas gives to the head of the function is of the kernel's `def`.

    The cubin's own source rows do not start anew where only the chain changes, and what ptxas puts
    in by itself (memory descriptors) reads there as if it were of the line before.
    """
    if not code.ptx_lines:
        return _instructions(lines, sass)  # the PTX was edited: its ops are not known
    items = sass or _without_text(lines)
    op_of_line = {row.line: row.op_id for row in code.ptx_lines}
    first_line = code.ptx_lines[0].line

    def instruction(item: SassInstruction) -> Instruction:
        at = item.address
        frames: Frames = ()
        ptx_line = lines.ptx_line_at(at)
        op_id = None if ptx_line is None else op_of_line.get(ptx_line)
        if op_id is not None and op_id in ops:
            frames = ops[op_id].chains[0]
        elif ptx_line is not None and ptx_line < first_line:
            frames = entry
        elif ptx_line in op_of_line:
            frames = lines.frames_at(at)  # the kernel's entry, or generated code
        return Instruction(at, item.text, ptx_line, op_id, frames, item.live_registers)

    return tuple(instruction(item) for item in items)


def _without_text(lines: FunctionLines) -> list[SassInstruction]:
    return [SassInstruction(address, "") for address in lines.addresses]


def _joined(
    tile: Mapping[int, OpPlace], gpu: Mapping[int, OpPlace], records: Iterable[RewriteRecord]
) -> dict[int, OpPlace]:
    """Tile IR's and GPU IR's ops, each with the Tile IR ops it came from."""
    origins: dict[int, tuple[int, ...]] = {op_id: (op_id,) for op_id in tile}
    for record in records:
        sources = dict.fromkeys(o for old in record.old_op_ids for o in origins.get(old, ()))
        for new in record.new_op_ids:
            if new not in tile:
                origins[new] = tuple(dict.fromkeys((*origins.get(new, ()), *sources)))
    return {
        op_id: replace(
            gpu.get(op_id) or tile[op_id],
            tile_name=tile[op_id].tile_name if op_id in tile else None,
            gpu_name=gpu[op_id].tile_name if op_id in gpu else None,
            origins=origins.get(op_id, ()),
            tile_chains=_changed_chains(tile.get(op_id), gpu.get(op_id)),
        )
        for op_id in (*tile, *(new for new in gpu if new not in tile))
    }


def _changed_chains(tile: OpPlace | None, gpu: OpPlace | None) -> tuple[Frames, ...]:
    if tile is None or gpu is None or tile.chains == gpu.chains:
        return ()
    return tile.chains


def _resources(target_name: str, kernel: CubinKernel | None) -> Resources | None:
    if kernel is None or kernel.registers is None:
        return None
    try:
        target = target_of(target_name)
    except UnsupportedError:
        fits = None
    else:
        threads = kernel.threads
        fits = (
            occupancy(target, threads, kernel.registers, kernel.shared_bytes) if threads else None
        )
    return Resources(
        registers=kernel.registers,
        threads=kernel.threads,
        static_shared_bytes=kernel.shared_bytes,
        dynamic_shared_bytes=None,
        stack_bytes=kernel.stack_bytes,
        spill_store_bytes=None,
        spill_load_bytes=None,
        occupancy=fits,
    )
