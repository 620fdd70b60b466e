"""Line tables of kernels that tkdebug compiled, and of cubins of others.

Responsible for the compiler's facts of a kernel: ops, PTX lines, resources. The machine code is
read by `linemap.nvidia.unread_code`, when somebody asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tkdebug.compiler.rewriting.rewriter import RewriteRecord
from tkdebug.compiler.targets.nvptx.architectures import occupancy
from tkdebug.compiler.targets.registered_backends import target_of
from tkdebug.compiler.targets.target import Target
from tkdebug.errors import UnsupportedError
from tkdebug.linemap.line_table import AssemblerNote, LineTable
from tkdebug.linemap.nvidia.cubins import CubinKernel, read_kernels, read_line_info
from tkdebug.linemap.nvidia.unread_code import (
    UnreadCode,
    credit_calls,
    plain_instructions,
    read_sass,
)
from tkdebug.linemap.parts import Frames, OpPlace, Resources

if TYPE_CHECKING:
    from tkdebug.compiler.targets.nvptx.compile import CompiledModule


_LOCATION = re.compile(r"!(\d+) = (?:distinct )?!DILocation\(line: (\d+)")


def llvm_ops(llvm_ir: str) -> dict[int, int]:
    """Text line (1-based) -> op id, for each instruction of LLVM IR that tkdebug lowered."""
    # Patterns that look through the whole text take ten times as long.
    lines = llvm_ir.splitlines()
    places = (_LOCATION.match(text) for text in lines if text.startswith("!"))
    ops = {place[1]: int(place[2]) for place in places if place}
    uses = (text.rstrip().rpartition(", !dbg !")[2] for text in lines)
    return {number: ops[used] for number, used in enumerate(uses, start=1) if used in ops}


def unread_code(
    compiled: CompiledModule, target: Target, tile_ops: Mapping[int, OpPlace]
) -> UnreadCode:
    """The machine code of a kernel that tkdebug compiled, and its ops and PTX lines.

    Args:
        compiled: the kernel.
        target: the architecture.
        tile_ops: `op_places` of its Tile IR.
    """
    code = compiled.code
    records = [record for run in compiled.passes for record in run.records]
    ops = _joined(tile_ops, compiled.places, records)
    threads = compiled.num_warps * target.threads_per_warp
    shared = code.shared_bytes + compiled.shared_bytes
    table = LineTable(
        kernel=compiled.symbol,
        target=target.name,
        ops=ops,
        instructions=(),
        ptx_ops={row.line: row.op_id for row in code.ptx_lines if row.op_id is not None},
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
        tests=() if compiled.checks is None else compiled.checks.tests,
    )
    lines = {row.line: row.op_id for row in code.ptx_lines}
    return UnreadCode(table, code.cubin, lines, compiled.entry)


def _frames_of(ops: Mapping[int, OpPlace], op_id: int | None) -> Frames:
    """Return an op's first chain; () without an op."""
    op = ops.get(op_id) if op_id is not None else None
    return op.chains[0] if op is not None else ()


def cubin_tables(cubin: bytes) -> tuple[LineTable, ...]:
    """A table for each function of any cubin: places and PTX lines, no ops.

    Raises:
        CubinError: not a cubin, damaged, of an architecture before Volta, without line information.
    """
    lines = read_line_info(cubin)
    kernels = read_kernels(cubin)
    sass = read_sass(cubin)
    tables = []
    for name, function in lines.items():
        instructions, local_functions = credit_calls(
            plain_instructions(function, sass.get(name)), function.locals
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


def unread_cubin(cubin: bytes, name: str) -> UnreadCode:
    """The machine code of one function of any cubin.

    Raises:
        CubinError: not a cubin, damaged, or of an architecture before Volta.
    """
    kernels = read_kernels(cubin)
    resources = _resources(kernels.target, kernels.kernels.get(name))
    return UnreadCode(LineTable(name, kernels.target, resources=resources), cubin, {})


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
