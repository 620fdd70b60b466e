"""Machine code that was not read into its line table yet.

A compile has all of a line table but the instructions. Reading these takes nvdisasm, half a second
for a kernel that no process had read before, so it is left until the table is used: a script never
waits for it. `line_table` reads finished tables.

Code of local functions gets the line of their calls, if that is one line. Calls are read off
nvdisasm's text, which prints the callee's symbol; without it nothing is known.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from tkdebug.linemap.line_table import Instruction, LineTable
from tkdebug.linemap.nvidia.cubins import CubinError, FunctionLines, read_line_info
from tkdebug.linemap.nvidia.sass import SassInstruction, encoded_at, opcode, parse_sass
from tkdebug.linemap.nvidia.tools import DisassemblyError, disassemble, find_nvdisasm
from tkdebug.linemap.parts import Frames, LocalFunction, holding
from tkdebug.process import disk_cache

_CALLEE = re.compile(r"`\(([^)]+)\)")
_T = TypeVar("_T")


def credit_calls(
    code: Sequence[Instruction], functions: tuple[LocalFunction, ...]
) -> tuple[tuple[Instruction, ...], tuple[LocalFunction, ...]]:
    """Return `code`, and its local `functions` with their callers.

    Instructions of a local function get the place of its calls, if these agree.

    Code of local functions that has a place already, as a device function that was not inlined has,
    keeps it.
    """
    if not functions:
        return tuple(code), ()
    sites = _call_sites(code)
    calls = {f.name: tuple(_calls(f.name, sites, functions, set())) for f in functions}

    def credited(instruction: Instruction) -> Instruction:
        function = holding(functions, instruction.address)
        if function is None or instruction.frames or not calls[function.name]:
            return instruction
        callers = calls[function.name]
        return replace(
            instruction,
            ptx_line=_only(call.ptx_line for call in callers),
            op_id=_only(call.op_id for call in callers),
            frames=_only(call.frames for call in callers) or (),
        )

    return tuple(map(credited, code)), tuple(
        replace(f, callers=tuple(dict.fromkeys(c.frames for c in calls[f.name]))) for f in functions
    )


def _call_sites(code: Sequence[Instruction]) -> Mapping[str, list[Instruction]]:
    """Symbol -> the instructions that call it."""
    sites: dict[str, list[Instruction]] = {}
    for instruction in code:
        callee = _CALLEE.search(instruction.text)
        if callee and opcode(instruction.text) == "CALL":
            sites.setdefault(callee[1], []).append(instruction)
    return sites


def _calls(
    name: str,
    sites: Mapping[str, list[Instruction]],
    functions: tuple[LocalFunction, ...],
    seen: set[str],
) -> Iterable[Instruction]:
    """Yield the calls of `name`; for calls in unplaced local functions, the calls of these."""
    seen.add(name)
    for site in sites.get(name, ()):
        function = holding(functions, site.address)
        if function is None or site.frames:
            yield site
        elif function.name not in seen:
            yield from _calls(function.name, sites, functions, seen)


def _only(values: Iterable[_T]) -> _T | None:
    """The value that all of `values` equal, or None if they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


Sass = Mapping[str, tuple[SassInstruction, ...]]


@dataclass(frozen=True, slots=True)
class UnreadCode:
    """A kernel's object file, with the facts that its compiler knows.

    Attributes:
        table: the line table without instructions; `table.kernel` names the function.
        cubin: the object file.
        op_of_line: the op of each PTX line that has code, None for code of no op; empty if the
            PTX is another compiler's, or was edited.
        entry: the call chain of the kernel's `def`, for the code that ptxas puts before the first
            op.
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
    """SASS by function; empty if there is no nvdisasm, or none for this architecture."""
    for options in (("-c", "-lrm", "count"), ("-c",)):
        try:
            return parse_sass(sass_text(cubin, options))
        except DisassemblyError:
            continue
    return {}


@lru_cache(maxsize=16)
def sass_text(cubin: bytes, options: tuple[str, ...] = ("-c",)) -> str:
    """SASS text of `cubin`, as `disassemble` gives it; from the disk where it was made before.

    Raises:
        DisassemblyError: there is no nvdisasm, or it fails.
    """
    program = find_nvdisasm()
    if program is None:
        return disassemble(cubin, options)
    name = hashlib.sha256(cubin).hexdigest() + disk_cache.SUFFIX
    path = disk_cache.directory() / f"sass-{_maker(program, options)}" / name
    text = disk_cache.read_entry(path, _unpacked)
    if text is None:
        text = disassemble(cubin, options)
        packed = zlib.compress(text.encode(), 1)
        disk_cache.write_entry(path, lambda: packed)
    return text


def _maker(program: Path, options: tuple[str, ...]) -> str:
    status = program.stat()
    identity = (str(program), status.st_size, status.st_mtime_ns, options)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]


def _unpacked(data: bytes) -> str:
    try:
        return zlib.decompress(data).decode()
    except zlib.error as error:
        raise ValueError(str(error)) from None


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
    """Return the instructions with the facts that are known of their ops.

    The cubin's own source rows do not start again if only the chain changes, and code that ptxas
    adds by itself (memory descriptors) reads there as if it belonged to the line before.
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
