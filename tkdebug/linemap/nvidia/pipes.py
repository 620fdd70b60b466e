"""Which pipe of a multiprocessor executes an instruction.

Source: CUDA C++ Programming Guide, "Arithmetic Instructions", and CUDA Binary Utilities,
"Instruction Set Reference".
"""

from __future__ import annotations

from collections.abc import Mapping

from tkdebug.linemap.nvidia.sass import kind_of, opcode

_BY_OPCODE: Mapping[str, str] = {
    **dict.fromkeys(("FADD", "FMUL", "FFMA", "FSETP", "FMNMX", "FSEL", "HADD2", "HMUL2"), "fp32"),
    **dict.fromkeys(("HFMA2", "HSETP2", "HMNMX2", "FCHK", "FSET"), "fp32"),
    **dict.fromkeys(("DADD", "DMUL", "DFMA", "DSETP"), "fp64"),
    **dict.fromkeys(("F2F", "F2I", "I2F", "F2FP", "FRND", "POPC", "FLO", "I2I"), "convert"),
    **dict.fromkeys(("IMAD", "IADD3", "IADD", "LEA", "ISETP", "IABS", "IMNMX", "VIMNMX"), "int"),
    **dict.fromkeys(("LOP3", "SHF", "PRMT", "SEL", "VIADD", "BMSK", "SGXT", "VIADDMNMX"), "int"),
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
    """The pipe of an instruction: fp32, fp64, int, special, convert, lsu, tensor or other."""
    kind = kind_of(text)
    if kind == "special":
        return "special"
    if kind == "tensor-core":
        return "tensor"
    if kind in _MEMORY:
        return "lsu"
    name = opcode(text)
    if name == "IMAD" and ".MOV" in text:
        return "fp32"
    if name == "SHFL":
        return "lsu"
    # A packed conversion to bf16 or fp16 runs as arithmetic does.
    if name == "F2FP":
        return "fp32"
    return _BY_OPCODE.get(name, "other")
