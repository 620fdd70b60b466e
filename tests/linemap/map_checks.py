"""Properties of the line table of every kernel that tkdebug compiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from native_support import places

from tkdebug.linemap.line_counts import Place
from tkdebug.linemap.line_table import Instruction, LineTable
from tkdebug.linemap.nvidia.sass import Kind, kind_of
from tkdebug.linemap.nvidia.unread_code import sass_text
from tkdebug.linemap.parts import holding

WANTED_PERCENT = 95
# Kind of instruction -> how the Tile IR ops that such code is made of begin. Integer division goes
# by way of MUFU.RCP; inline assembly may hold anything; a tensor map that the kernel makes is
# copied to global memory by atomic exchanges.
_ANYTHING = ("tt.elementwise_inline_asm",)
_OPS: dict[Kind, tuple[str, ...]] = {
    "global-load": ("tt.load", "tt.descriptor_load", "tt.descriptor_gather", *_ANYTHING),
    "global-store": ("tt.store", "tt.descriptor_store", "tt.descriptor_scatter", *_ANYTHING),
    "atomic": (
        *("tt.atomic", "tt.descriptor_reduce", "tt.histogram", "tt.make_tensor_descriptor"),
        *_ANYTHING,
    ),
    "tensor-core": ("tt.dot", *_ANYTHING),
    "special": ("math.", "arith.div", "arith.rem", "tt.precise", "tt.extern", *_ANYTHING),
}
_OPS["shared-copy"] = _OPS["global-load"]


def problems(table: LineTable) -> Iterator[str]:
    """Return the defects of a table, a line each."""
    # What several lines call is of none of them.
    called = {i.address for i in table.instructions if holding(table.local_functions, i.address)}
    own = replace(
        table,
        instructions=tuple(i for i in table.instructions if i.mapped or i.address not in called),
    )
    if own.mapped_percent < WANTED_PERCENT:
        yield f"{table.kernel}: {own.mapped_percent:.1f} % mapped"
    names = _tile_ops(table)
    for instruction in own.instructions:
        yield from _misplaced(table, instruction, names)


def _tile_ops(table: LineTable) -> dict[Place, set[str]]:
    """Names of the Tile IR ops by line."""
    names: dict[Place, set[str]] = defaultdict(set)
    for op in table.ops.values():
        for chain in op.tile_chains or op.chains:
            if op.tile_name:
                names[chain[-1].file, chain[-1].line].add(op.tile_name)
    return names


def _misplaced(
    table: LineTable, instruction: Instruction, names: dict[Place, set[str]]
) -> Iterator[str]:
    wanted = _OPS.get(kind_of(instruction.text))
    if wanted is None:
        return
    place = f"{table.kernel} 0x{instruction.address:x} {instruction.text}"
    if not instruction.mapped:
        yield f"{place}: unmapped"
        return
    frame = instruction.frames[-1]
    there = names[frame.file, frame.line]
    if not any(name.startswith(wanted) for name in there):
        yield f"{place}: at line {frame.line}, which has {sorted(there)}"
    op = None if instruction.op_id is None else table.ops[instruction.op_id]
    if op is None:
        yield f"{place}: of no op"
        return
    origins = {table.ops[origin].tile_name or "" for origin in op.origins}
    if origins and not any(name.startswith(wanted) for name in origins):
        yield f"{place}: op {op.id} {op.name}, of {sorted(origins)}"


def differences_from_nvdisasm(table: LineTable, cubin: bytes) -> Iterator[str]:
    """Return the places where our line is not the one that `nvdisasm -g` prints.

    Left out is what ptxas puts in itself and gives to the head of the function (memory
    descriptors, room on the stack), and its local functions: they have no rows, and nvdisasm prints
    the row before.
    """
    shown = {
        address: place
        for (function, address), place in places(sass_text(cubin, ("-c", "-g"))).items()
        if function == table.kernel
    }
    first_line = min(table.ptx_ops)
    for instruction in table.instructions:
        if (instruction.ptx_line or 0) < first_line:
            continue
        if holding(table.local_functions, instruction.address):
            continue
        ours = instruction.frames[-1] if instruction.frames else None
        theirs = shown.pop(instruction.address, None)
        if theirs != (None if ours is None else (ours.file, ours.line)):
            yield f"{table.kernel} 0x{instruction.address:x} {instruction.text}: {ours}, {theirs}"
