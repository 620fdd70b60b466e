"""Links between all places of a kernel: source line, ops, LLVM, PTX, SASS, both ways.

One `LineTable` per compiled kernel. tkdebug's own kernels are joined by op ids: an instruction's
address gives its PTX line, the PTX line its op, and the op its call chain and its Tile IR op.
Cubins of other compilers have no ops, only line tables.

Invariants: nothing is guessed: an instruction without a place, of line 0 or of generated code is
unmapped. No compiler library is needed to read a table from a session (`line_table_data`).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tkdebug.errors import Frame, TkError
from tkdebug.linemap.nvidia import sass
from tkdebug.linemap.nvidia.ptx_locations import GENERATED_FILE
from tkdebug.linemap.nvidia.sass import pipe_of
from tkdebug.linemap.parts import Frames, LocalFunction, OpPlace, Resources


class LineTableError(TkError):
    """There is no line table for the kernel, or the data is no line table."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One SASS instruction; padding is left out.

    Attributes:
        address: byte offset in the kernel.
        text: the text as nvdisasm prints it, "" without nvdisasm.
        ptx_line: line (1-based) of the PTX text that it was made of; None if unknown.
        op_id: the GPU IR op it was made of, None if that is not known.
        frames: the call chain, outermost first; () if none is known.
        live_registers: 32-bit registers in use there; None if unknown.
        control: the bits that say when it issues (`linemap.nvidia.sass.Control`); None if they
            are not known.
        target: the address that it branches to or calls; None if it goes on with the next one.
    """

    address: int
    text: str
    ptx_line: int | None
    op_id: int | None
    frames: Frames
    live_registers: int | None = None
    control: int | None = None
    target: int | None = None

    @property
    def opcode(self) -> str:
        """The name without operands; "" if its text is not known."""
        return sass.opcode(self.text)

    @property
    def kind(self) -> sass.Kind:
        """The kind: loads, arithmetic, control flow."""
        return sass.kind_of(self.text)

    @property
    def pipe(self) -> str:
        """The pipe of a multiprocessor that executes it."""
        return pipe_of(self.text)

    @property
    def mapped(self) -> bool:
        """Whether it belongs to a source line: line 0 and generated code do not."""
        return bool(self.frames) and is_source(self.frames[-1])


def is_source(frame: Frame) -> bool:
    """Whether a place is in a file: neither line 0 nor the compiler's own."""
    return frame.line > 0 and frame.file not in ("", GENERATED_FILE)


@dataclass(frozen=True, slots=True)
class Trace:
    """The source places, ops, lines and instructions that belong to one place.

    Attributes:
        chains: source places, each a call chain, outermost first.
        tile_ops: ids of Tile IR ops.
        gpu_ops: ids of GPU IR ops.
        llvm_lines: 1-based lines of the LLVM IR text.
        ptx_lines: 1-based lines of the PTX text.
        addresses: addresses of SASS instructions.
    """

    chains: tuple[Frames, ...] = ()
    tile_ops: tuple[int, ...] = ()
    gpu_ops: tuple[int, ...] = ()
    llvm_lines: tuple[int, ...] = ()
    ptx_lines: tuple[int, ...] = ()
    addresses: tuple[int, ...] = ()

    @property
    def found(self) -> bool:
        """Whether the place belongs to any op, PTX line or instruction."""
        return bool(self.tile_ops or self.gpu_ops or self.ptx_lines or self.addresses)


@dataclass(frozen=True, slots=True)
class AssemblerNote:
    """A note of the assembler on lost speed, such as wgmma that it had to serialise.

    Attributes:
        code: C7510 and its kin.
        message: the assembler's words.
        frames: the call chain of the op that it is about, outermost first; empty if it names no
            line.
    """

    code: str
    message: str
    frames: Frames = ()


@dataclass(frozen=True)
class LineTable:
    """All places of one kernel.

    Attributes:
        kernel: its symbol in the cubin.
        target: the architecture, such as sm_90a.
        ops: id -> op, of Tile IR and GPU IR; empty for cubins of others.
        instructions: the instructions by address.
        ptx_ops: PTX line -> op id, for lines that are of an op.
        llvm_ops: LLVM IR line -> op id.
        resources: the kernel's resources; None if not known.
        notes: the notes of the assembler.
        local_functions: functions that ptxas put into its code, with their callers.
        tests: for a checked build, how each access is tested (`compiler.sites.checks.TESTS`).
        has_sass: whether `instructions` have their text; without nvdisasm padding is counted too.
    """

    kernel: str
    target: str
    ops: Mapping[int, OpPlace] = field(default_factory=dict)
    instructions: tuple[Instruction, ...] = ()
    ptx_ops: Mapping[int, int] = field(default_factory=dict)
    llvm_ops: Mapping[int, int] = field(default_factory=dict)
    resources: Resources | None = None
    notes: tuple[AssemblerNote, ...] = ()
    local_functions: tuple[LocalFunction, ...] = ()
    tests: tuple[str, ...] = ()

    @property
    def has_sass(self) -> bool:
        """Whether the instructions have their text."""
        return any(instruction.text for instruction in self.instructions)

    @property
    def mapped_percent(self) -> float:
        """Percentage of instructions, padding left out, that have a source line."""
        mapped = sum(instruction.mapped for instruction in self.instructions)
        return 100 * mapped / len(self.instructions) if self.instructions else 0.0

    def sass_text(self) -> str:
        """The code as text, a line for each of `instructions`."""
        return "".join(f"/*{i.address:04x}*/  {i.text}\n" for i in self.instructions)

    def at(self, address: int) -> Instruction | None:
        """The instruction that holds the byte at `address`; None outside of the kernel's code."""
        index = bisect.bisect_right(self._addresses, address) - 1
        if index < 0 or address >= self._addresses[index] + 16:
            return None
        return self.instructions[index]

    def lines(self) -> tuple[tuple[str, int], ...]:
        """All source lines (file, line) that have ops or instructions, innermost places only."""
        chains = [c for op in self.ops.values() for c in (*op.chains, *op.tile_chains)]
        chains += [i.frames for i in self.instructions if i.mapped]
        return tuple(sorted({(c[-1].file, c[-1].line) for c in chains if c and is_source(c[-1])}))

    # From one place to all others

    def of_line(self, file: str, line: int) -> Trace:
        """The trace of a source line, calls on it included."""
        on_line = {op.id for op in self.ops.values() if op.is_on(file, line)}
        gpu = {i for i in on_line if self.ops[i].gpu_name}
        tile = {i for i in on_line if self.ops[i].tile_name}
        return self._trace(
            tile,
            gpu,
            lambda i: (
                any(f.line == line and f.file == file for f in i.frames)
                if i.op_id is None
                else i.op_id in gpu
            ),
        )

    def of_gpu_op(self, op_id: int) -> Trace:
        """The trace of a GPU IR op."""
        return self._of_ops(self._origins(op_id), {op_id} & self.ops.keys())

    def of_ptx_line(self, line: int) -> Trace:
        """The trace of a PTX line: its op and source, and the SASS made of this line alone."""
        op_id = self.ptx_ops.get(line)
        ops = set() if op_id is None else {op_id}
        trace = self._trace(self._origins(op_id), ops, lambda i: i.ptx_line == line)
        lines = (line,) if op_id is not None or trace.addresses else ()
        return replace(trace, ptx_lines=lines)

    def of_address(self, address: int) -> Trace:
        """The trace of the SASS instruction at `address`."""
        instruction = self.at(address)
        if instruction is None:
            return Trace()
        op_id = instruction.op_id
        ops = set() if op_id is None else {op_id}
        trace = self._trace(self._origins(op_id), ops, lambda i: i is instruction)
        line = instruction.ptx_line
        return replace(trace, ptx_lines=() if line is None else (line,))

    @cached_property
    def _addresses(self) -> list[int]:
        return [instruction.address for instruction in self.instructions]

    def _gpu_ops(self) -> Iterable[OpPlace]:
        return (op for op in self.ops.values() if op.gpu_name)

    def _origins(self, op_id: int | None) -> set[int]:
        op = None if op_id is None else self.ops.get(op_id)
        return set() if op is None else set(op.origins)

    def _of_ops(self, tile: set[int], gpu: set[int]) -> Trace:
        return self._trace(tile & self.ops.keys(), gpu, lambda i: i.op_id in gpu)

    def _trace(self, tile: set[int], gpu: set[int], holds: Callable[[Instruction], bool]) -> Trace:
        code = [instruction for instruction in self.instructions if holds(instruction)]
        ptx = {line for line, op in self.ptx_ops.items() if op in gpu}
        ptx |= {i.ptx_line for i in code if i.ptx_line is not None}
        chains = [i.frames for i in code if i.mapped]
        chains += [chain for i in sorted(gpu or tile) for chain in self.ops[i].chains[:1]]
        return Trace(
            chains=tuple(dict.fromkeys(chains)),
            tile_ops=tuple(sorted(tile)),
            gpu_ops=tuple(sorted(gpu)),
            llvm_lines=tuple(sorted(n for n, op in self.llvm_ops.items() if op in gpu)),
            ptx_lines=tuple(sorted(ptx)),
            addresses=tuple(i.address for i in code),
        )
