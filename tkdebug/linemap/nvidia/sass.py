"""SASS: instructions by function, the work, width and pipe of each, and its scheduling bits.

Reads nvdisasm's text, whose caller runs it, and the 128 bits of an instruction: when it issues and
where it branches to. The work of an instruction is read off its opcode.

Sources: CUDA Binary Utilities, "Instruction Set Reference" (Ampere, Hopper); nvdisasm's `-lrm
count` columns are live registers as its own data-flow analysis finds them. Pipes: CUDA C++
Programming Guide, "Arithmetic Instructions", and Nsight Compute, "Hardware Model", for what ALU and
FMA execute: products of integers go to the latter, comparisons and packed conversions of floats to
the former. Bits: Z. Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", 2018, section 2.1: the stall count and the barriers in an instruction's control
bits. Later architectures have the same. Opcodes and branches are read off `nvdisasm -hex` for sm_75
to sm_121a.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "global-load",
    "global-store",
    "shared-load",
    "shared-store",
    "shared-copy",
    "local-load",
    "local-store",
    "atomic",
    "tensor-core",
    "special",
    "barrier",
    "other",
]
_SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*(?://\s*\|\s*(\d*)\s*\|)?")
# `(*"SpillRefill"*)` and the like, after the operands.
_REMARK = re.compile(r"\s*\(\*.*?\*\)")
_PREDICATE = re.compile(r"^@!?U?P\w+\s+")
_GENERAL = re.compile(r"\s*R(\d+)(?:\.\w+)*\s*")
_PREDICATE_OPERAND = re.compile(r"\s*U?P(?:T|\d)\s*")
_BRANCHES = ("BRA", "EXIT", "RET", "BRX", "JMP", "CALL", "BREAK", "BSYNC")
# First part of the opcode -> its kind. LDC and ULDC read the constant bank: kernel arguments.
_KINDS: Mapping[str, Kind] = {
    "LDG": "global-load",
    "LD": "global-load",
    "STG": "global-store",
    "ST": "global-store",
    "UTMASTG": "global-store",
    "UTMAREDG": "atomic",
    "LDS": "shared-load",
    "LDSM": "shared-load",
    "STS": "shared-store",
    "STSM": "shared-store",
    "LDGSTS": "shared-copy",
    "UTMALDG": "shared-copy",
    "UBLKCP": "shared-copy",
    "LDL": "local-load",
    "STL": "local-store",
    "ATOM": "atomic",
    "ATOMG": "atomic",
    "ATOMS": "atomic",
    "RED": "atomic",
    "REDG": "atomic",
    "HMMA": "tensor-core",
    "IMMA": "tensor-core",
    "DMMA": "tensor-core",
    "QMMA": "tensor-core",
    "BMMA": "tensor-core",
    "HGMMA": "tensor-core",
    "IGMMA": "tensor-core",
    "QGMMA": "tensor-core",
    "BGMMA": "tensor-core",
    "MUFU": "special",
    "BAR": "barrier",
    "SYNCS": "barrier",
    "WARPGROUP": "barrier",
    "LDGDEPBAR": "barrier",
    "DEPBAR": "barrier",
}
_WIDTHS = {"128": 128, "64": 64, "U16": 16, "S16": 16, "U8": 8, "S8": 8}
_MATRIX_COUNTS = {"4": 128, "2": 64}
_REGISTER_BITS = 32
_WITH_WIDTH = frozenset(
    {
        "global-load",
        "global-store",
        "shared-load",
        "shared-store",
        "shared-copy",
        "local-load",
        "local-store",
    }
)


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """One line of nvdisasm's text.

    Attributes:
        address: byte offset in its function.
        text: predicate, opcode and operands.
        live_registers: 32-bit registers in use there; None if nvdisasm was not asked.
    """

    address: int
    text: str
    live_registers: int | None = None


def parse_sass(text: str) -> dict[str, tuple[SassInstruction, ...]]:
    """The instructions of each function in nvdisasm's `-c` text, padding left out.

    Padding is the code after the last instruction that can be reached: the jump to itself that ends
    the code, and NOPs.
    """
    functions: dict[str, list[SassInstruction]] = {}
    current: list[SassInstruction] = []
    for line in text.splitlines():
        if section := _SECTION.match(line):
            current = functions.setdefault(section[1], [])
        elif found := _INSTRUCTION.match(line):
            live = int(found[3]) if found[3] else (0 if found[3] is not None else None)
            shown = _REMARK.sub("", found[2])
            current.append(SassInstruction(int(found[1], 16), shown, live))
    return {name: _without_padding(code) for name, code in functions.items()}


def _without_padding(code: Sequence[SassInstruction]) -> tuple[SassInstruction, ...]:
    end = len(code)
    while end and opcode(code[end - 1].text) == "NOP":
        end -= 1
    if end > 1 and opcode(code[end - 1].text) == "BRA" and _guards_nothing(code, end - 1):
        end -= 1
    return tuple(code[:end])


def _guards_nothing(code: Sequence[SassInstruction], index: int) -> bool:
    """Whether the branch at `index` cannot be reached: an unconditional end or jump precedes it."""
    before = code[index - 1].text
    return opcode(before) in ("EXIT", "RET", "BRA") and not before.startswith("@")


def opcode(text: str) -> str:
    """Return the opcode's first part: `LDG` of `@!P3 LDG.E.128 R14, desc[UR14][R4.64]`."""
    return _PREDICATE.sub("", text).partition(" ")[0].partition(".")[0]


def kind_of(text: str) -> Kind:
    """The kind of an instruction."""
    return _KINDS.get(opcode(text), "other")


def width_bits(text: str) -> int | None:
    """Bits that each thread moves with a memory access; None for other instructions.

    A bulk copy (UTMALDG and the like) moves a box that its descriptor gives: None.
    """
    words = _PREDICATE.sub("", text).partition(" ")[0].split(".")
    if words[0] not in _KINDS or words[0].startswith("U"):
        return None
    if _KINDS[words[0]] not in _WITH_WIDTH:
        return None
    if words[0] in ("LDSM", "STSM"):
        return _MATRIX_COUNTS.get(words[-1], _REGISTER_BITS)
    return next((_WIDTHS[word] for word in words[1:] if word in _WIDTHS), _REGISTER_BITS)


def written_registers(text: str) -> range:
    """Numbers of the general registers that an instruction writes, as far as its text shows."""
    plain = _PREDICATE.sub("", text)
    name, _, operands = plain.partition(" ")
    words = name.split(".")
    if (
        words[0] in _BRANCHES
        or "SETP" in words[0]
        or kind_of(plain) in ("global-store", "shared-store", "local-store")
    ):
        return range(0)
    for operand in operands.split(","):
        found = _GENERAL.fullmatch(operand)
        if found:
            first = int(found[1])
            return range(first, first + _result_count(plain, words))
        if not _PREDICATE_OPERAND.fullmatch(operand):
            break
    return range(0)


def _result_count(text: str, words: Sequence[str]) -> int:
    bits = width_bits(text)
    if bits is not None:
        return max(1, bits // _REGISTER_BITS)
    if words[0].endswith("GMMA"):
        # 64 rows by N columns over 128 threads: N / 2 values of 32 bits.
        shape = re.fullmatch(r"64x(\d+)x\d+", words[1]) if len(words) > 1 else None
        return int(shape[1]) // 2 if shape else 1
    if kind_of(text) == "tensor-core":
        return 2 if words[-1] == "F16" else 4
    return 2 if "WIDE" in words or "64" in words or words[0] in ("DADD", "DMUL", "DFMA") else 1


def stored_register(text: str) -> int | None:
    """Number of the register that a store takes its value from, None for other instructions."""
    if kind_of(text) not in ("global-store", "shared-store", "local-store"):
        return None
    found = re.search(r",\s*R(\d+)(?:\.\w+)*\s*$", text)
    return int(found[1]) if found else None


_BY_OPCODE: Mapping[str, str] = {
    **dict.fromkeys(("FADD", "FMUL", "FFMA", "HADD2", "HMUL2", "HFMA2"), "fp32"),
    **dict.fromkeys(("IMAD", "IMUL"), "imad"),
    **dict.fromkeys(("DADD", "DMUL", "DFMA", "DSETP"), "fp64"),
    **dict.fromkeys(("F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "I2I"), "convert"),
    **dict.fromkeys(("IADD3", "IADD", "LEA", "ISETP", "IABS", "IMNMX", "VIMNMX"), "alu"),
    **dict.fromkeys(("LOP3", "SHF", "PRMT", "SEL", "VIADD", "BMSK", "SGXT", "VIADDMNMX"), "alu"),
    **dict.fromkeys(("FSETP", "FMNMX", "FSEL", "FSET", "FCHK", "HSETP2", "HMNMX2", "F2FP"), "alu"),
    **dict.fromkeys(("MOV", "PLOP3"), "alu"),
}
_MEMORY = (
    "global-load",
    "global-store",
    "shared-load",
    "shared-store",
    "shared-copy",
    "local-load",
    "local-store",
    "atomic",
)


def pipe_of(text: str) -> str:
    """The pipe of an instruction: fp32, imad, alu, fp64, special, convert, lsu, tensor or other."""
    kind = kind_of(text)
    if kind == "special":
        return "special"
    if kind == "tensor-core":
        return "tensor"
    if kind in _MEMORY:
        return "lsu"
    name = opcode(text)
    return "lsu" if name == "SHFL" else _BY_OPCODE.get(name, "other")


WORDS = struct.Struct("<QQ")
BRANCH, CALL, NOP = 0x947, 0x944, 0x918
BARRIERS = 6
NO_BARRIER = 7
_OPCODE = 0xFFF
_CONTROL_AT, _CONTROL_BITS = 41, 17


@dataclass(frozen=True, slots=True)
class Control:
    """The control bits of an instruction, with the reuse flags left out.

    Attributes:
        bits: the control bits, the lowest first: stall count, yield, barriers, mask of barriers.
    """

    bits: int

    @property
    def stall_cycles(self) -> int:
        """Cycles until the warp's next instruction may issue."""
        return self.bits & 0xF

    @property
    def write_barrier(self) -> int:
        """The barrier that is signalled when the result is ready; 7 for none."""
        return self.bits >> 5 & 7

    @property
    def read_barrier(self) -> int:
        """The barrier that is signalled when the operands have been read; 7 for none."""
        return self.bits >> 8 & 7

    @property
    def waits_for(self) -> tuple[int, ...]:
        """The barriers that have to be signalled before it issues."""
        mask = self.bits >> 11
        return tuple(bit for bit in range(BARRIERS) if mask >> bit & 1)


@dataclass(frozen=True, slots=True)
class Encoded:
    """An instruction's bits."""

    low: int
    high: int

    @property
    def opcode(self) -> int:
        """The number of its name and form."""
        return self.low & _OPCODE

    @property
    def control(self) -> Control:
        """The fields that say when it issues."""
        return Control(self.high >> _CONTROL_AT & ((1 << _CONTROL_BITS) - 1))

    @property
    def branch_bytes(self) -> int:
        """Distance of a branch or call, from the instruction after it."""
        units = (self.high & 0x3FFFF) << 30 | self.low >> 34
        if units >> 47:
            units -= 1 << 48
        return units << 10 | (self.low >> 16 & 0xFF) << 2

    def target_from(self, address: int) -> int | None:
        """The address that the instruction at `address` jumps to or calls; None for no jump."""
        if self.opcode not in (BRANCH, CALL):
            return None
        return address + WORDS.size + self.branch_bytes


def encoded_at(code: bytes, address: int) -> Encoded | None:
    """The bits of the instruction at a byte offset; None outside of the code."""
    if not 0 <= address <= len(code) - WORDS.size:
        return None
    return Encoded(*WORDS.unpack_from(code, address))
