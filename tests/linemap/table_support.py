"""A line table by hand: `k` calls `outer`, which calls `inner`, on lines of two files."""

from __future__ import annotations

from tkdebug.errors import Frame
from tkdebug.linemap.line_table import AssemblerNote, Instruction, LineTable
from tkdebug.linemap.nvidia.ptx_locations import GENERATED_FILE
from tkdebug.linemap.parts import LocalFunction, Occupancy, OpPlace, Resources

KERNEL, DEVICE = "/src/kernel.py", "/src/device.py"
LOAD = (Frame(KERNEL, 5, "k"),)
INNER = (Frame(KERNEL, 6, "k"), Frame(DEVICE, 20, "outer"), Frame(DEVICE, 30, "inner"))
STORE = (Frame(KERNEL, 8, "k"),)
FUSED = (Frame(KERNEL, 7, "k"),)
GENERATED = (Frame(GENERATED_FILE, 1, "k"),)


def make_table() -> LineTable:
    ops = [
        OpPlace(1, "tt.load", "tt.load", (LOAD,), 9, (1,)),
        OpPlace(2, "math.exp", "math.exp", (INNER, FUSED), 12, (2,)),
        OpPlace(3, "tt.store", "tt.store", (STORE,), 5, (3,)),
        OpPlace(4, "tt.dot", None, (FUSED,), 5, (4,), (STORE,)),
        OpPlace(9, None, "ttng.warp_group_dot", (FUSED,), 5, (4,)),
    ]
    return LineTable(
        kernel="k",
        target="sm_90a",
        ops={op.id: op for op in ops},
        instructions=(
            Instruction(0x00, "LDC R1, c[0x0][0x28]", None, None, (), 1),
            Instruction(0x10, "LDG.E.128 R4, desc[UR4][R2.64]", 11, 1, LOAD, 8),
            Instruction(0x20, "MUFU.EX2 R5, R4", 13, 2, INNER, 7),
            Instruction(0x30, "HGMMA.64x8x16.F32 R8, gdesc[UR4], R8", 14, 9, FUSED, 12),
            Instruction(0x40, "STL [R1], R5", 14, 9, FUSED, 12),
            Instruction(0x50, "FADD R5, R5, R5", 15, None, GENERATED, 6),
            Instruction(0x60, "STG.E desc[UR4][R2.64], R5", 16, 3, STORE, 5),
            Instruction(0x70, "EXIT", 16, 3, STORE, 0),
        ),
        ptx_ops={11: 1, 12: 2, 13: 2, 14: 9, 16: 3},
        llvm_ops={3: 1, 4: 2, 5: 2, 6: 9, 7: 3},
        resources=Resources(
            24, 128, 0, 4096, 16, 4, 4, Occupancy(16, 64, 64, {"warps": 16}, ("warps",))
        ),
        notes=(
            AssemblerNote("C7510", "wgmma is serialised", INNER),
            AssemblerNote("C7512", "of no line"),
        ),
        local_functions=(LocalFunction("$k$__cuda_division", 0x60, 0x80, (LOAD, STORE)),),
    )
