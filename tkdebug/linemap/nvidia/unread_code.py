"""Machine code that was not read into its line table yet.

A compile has all of a line table but the instructions. Reading these takes nvdisasm, half a second
for a kernel, so it is left to whoever asks for the table: a script never waits for it. Reading a
finished table is `line_table`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tkdebug.linemap.line_table import Instruction, LineTable
from tkdebug.linemap.nvidia.call_credits import credit_calls
from tkdebug.linemap.nvidia.cubins import CubinError, FunctionLines, read_line_info
from tkdebug.linemap.nvidia.disassembly import DisassemblyError, disassemble
from tkdebug.linemap.nvidia.encoding import encoded_at
from tkdebug.linemap.nvidia.sass import SassInstruction, parse_sass
from tkdebug.linemap.op_place import Frames

Sass = Mapping[str, tuple[SassInstruction, ...]]


@dataclass(frozen=True, slots=True)
class UnreadCode:
    """A kernel's object file, and what its compiler knows of it.

    Attributes:
        table: the line table without instructions; `table.kernel` names the function.
        cubin: the object file.
        op_of_line: the op of each PTX line that has code, None for code of no op; empty where the
            PTX is another compiler's, or was edited.
        entry: the call chain of the kernel's `def`, which what ptxas puts before the first op has.
    """

    table: LineTable
    cubin: bytes
    op_of_line: Mapping[int, int | None]
    entry: Frames = ()


def read_code(code: UnreadCode) -> LineTable:
    """Read the line table of a kernel.

    Raises:
        CubinError: not a cubin, damaged, without line information, or without that function.
    """
    functions = read_line_info(code.cubin)
    name = code.table.kernel
    if name not in functions:
        raise CubinError(f"kernel {name}: its cubin has no code of that name")
    sass = read_sass(code.cubin).get(name)
    lines = functions[name]
    instructions, local_functions = credit_calls(_own_instructions(code, lines, sass), lines.locals)
    return replace(code.table, instructions=instructions, local_functions=local_functions)


def read_sass(cubin: bytes) -> Sass:
    """SASS by function; empty where there is no nvdisasm, or none for this architecture."""
    for options in (("-c", "-lrm", "count"), ("-c",)):
        try:
            return parse_sass(disassemble(cubin, options))
        except DisassemblyError:
            continue
    return {}


def plain_instructions(
    lines: FunctionLines, sass: Sequence[SassInstruction] | None
) -> tuple[Instruction, ...]:
    """The instructions of a function by the cubin's tables alone, without ops."""
    return tuple(
        _instruction(
            lines, item, lines.ptx_line_at(item.address), None, lines.frames_at(item.address)
        )
        for item in sass or _without_text(lines)
    )


def _instruction(
    lines: FunctionLines,
    item: SassInstruction,
    ptx_line: int | None,
    op_id: int | None,
    frames: Frames,
) -> Instruction:
    bits = encoded_at(lines.code, item.address)
    return Instruction(
        item.address,
        item.text,
        ptx_line,
        op_id,
        frames,
        item.live_registers,
        None if bits is None else bits.control.bits,
        None if bits is None else bits.target_from(item.address),
    )


def _own_instructions(
    code: UnreadCode, lines: FunctionLines, sass: Sequence[SassInstruction] | None
) -> tuple[Instruction, ...]:
    """The instructions with what is known by op.

    The cubin's own source rows do not start again where only the chain changes, and what ptxas puts
    in by itself (memory descriptors) reads there as if it were of the line before.
    """
    op_of_line, ops = code.op_of_line, code.table.ops
    if not op_of_line:
        return plain_instructions(lines, sass)
    first_line = next(iter(op_of_line))

    def instruction(item: SassInstruction) -> Instruction:
        at = item.address
        frames: Frames = ()
        ptx_line = lines.ptx_line_at(at)
        op_id = None if ptx_line is None else op_of_line.get(ptx_line)
        if op_id is not None and op_id in ops:
            frames = ops[op_id].chains[0]
        elif ptx_line is not None and ptx_line < first_line:
            frames = code.entry
        elif ptx_line in op_of_line:
            frames = lines.frames_at(at)  # the kernel's entry, or generated code
        return _instruction(lines, item, ptx_line, op_id, frames)

    return tuple(instruction(item) for item in sass or _without_text(lines))


def _without_text(lines: FunctionLines) -> list[SassInstruction]:
    return [SassInstruction(address, "") for address in lines.addresses]
