"""Which pipe of a multiprocessor executes an instruction.

Sources: CUDA C++ Programming Guide, "Arithmetic Instructions"; CUDA Binary Utilities, "Instruction
Set Reference"; Nsight Compute, "Hardware Model", for what ALU and FMA execute: products of integers
go to the latter, comparisons and packed conversions of floats to the former.
"""

from __future__ import annotations

from collections.abc import Mapping

from tkdebug.linemap.nvidia.sass import kind_of, opcode

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
