from __future__ import annotations

import pytest

from tkdebug.linemap.nvidia.sass import (
    kind_of,
    opcode,
    parse_sass,
    stored_register,
    width_bits,
    written_registers,
)

TEXT = """
	.section	.text.k,"ax",@progbits
                                         // | GPR   | PRED   | UGPR   |
k:                                       // |       |        |        |
        /*0000*/   LDC R1, c[0x0][0x28] ;                    // |   1   |        |        |
        /*0010*/   @!P0 LDG.E.128 R12, desc[UR4][R20.64] ;   // |  155  |   1    |    2   |
.L_x_1:                                  // |  3  |   1    |    2   |
        /*0020*/   BRA `(.L_x_1) ;                           // |       |        |        |
        /*0028*/   STL [R1+0x1a0], R8           (*"Spill"*) ; // |   3   |        |        |
        /*0030*/   EXIT ;                                    // |       |        |        |
.L_x_2:
        /*0040*/   BRA `(.L_x_2);                            // |       |        |        |
        /*0050*/   NOP ;
        /*0060*/   NOP ;
	.section	.text.g,"ax",@progbits
        /*0000*/   NOP ;
        /*0010*/   RET.REL.NODEC R8 `(k) ;
"""


def test_instructions_are_read_by_function_without_padding() -> None:
    functions = parse_sass(TEXT)
    assert [i.address for i in functions["k"]] == [0, 0x10, 0x20, 0x28, 0x30]
    assert functions["k"][1].text == "@!P0 LDG.E.128 R12, desc[UR4][R20.64]"
    assert [i.live_registers for i in functions["k"]] == [1, 155, 0, 3, 0]
    assert functions["k"][3].text == "STL [R1+0x1a0], R8"
    assert [(i.text[:3], i.live_registers) for i in functions["g"]] == [
        ("NOP", None),
        ("RET", None),
    ]


@pytest.mark.parametrize(
    ("text", "kind", "bits"),
    [
        ("@!P0 LDG.E.128 R12, desc[UR4][R20.64]", "global-load", 128),
        ("LDG.E.U16.CONSTANT R2, desc[UR4][R2.64]", "global-load", 16),
        ("LDG.E R14, desc[UR14][R4.64]", "global-load", 32),
        ("@UP0 STG.E.64 desc[UR4][R16.64+0x800], R4", "global-store", 64),
        ("LDS.128 R4, [UR6]", "shared-load", 128),
        ("LDSM.16.M88.4 R4, [R6]", "shared-load", 128),
        ("LDSM.16.MT88.2 R4, [R6]", "shared-load", 64),
        ("STS.U8 [R2+UR5], R17", "shared-store", 8),
        ("LDGSTS.E.BYPASS.128 [R3], desc[UR4][R2.64]", "shared-copy", 128),
        ("STL.64 [R1+0x8], R4", "local-store", 64),
        ("LDL R4, [R1]", "local-load", 32),
        ("LDC.64 R20, c[0x0][0x218]", "other", None),
        ("ATOMG.E.ADD.STRONG.GPU PT, R5, desc[UR6][R2.64], R5", "atomic", None),
        ("HGMMA.64x64x16.F32 R24, gdesc[UR12], R24", "tensor-core", None),
        ("HMMA.16816.F32 R4, R8, R12, R4", "tensor-core", None),
        ("MUFU.EX2 R14, R5", "special", None),
        ("UTMALDG.2D [UR8], [UR4]", "shared-copy", None),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", "barrier", None),
    ],
)
def test_kind_and_width_follow_the_opcode(text: str, kind: str, bits: int | None) -> None:
    assert kind_of(text) == kind
    assert width_bits(text) == bits


@pytest.mark.parametrize(
    ("text", "registers"),
    [
        ("FADD R14, -R4.reuse, R14", [14]),
        ("LDG.E.128 R12, desc[UR4][R20.64]", [12, 13, 14, 15]),
        ("SHFL.BFLY PT, R7, R6, 0x1, 0x1f", [7]),
        ("ISETP.GE.AND P3, PT, R0.reuse, UR10, PT", []),
        ("IMAD.WIDE R16, R0, 0x4, R22", [16, 17]),
        ("HGMMA.64x8x16.F32 R24, gdesc[UR12], R24", [24, 25, 26, 27]),
        ("STG.E desc[UR4][R16.64], R12", []),
        ("@P0 EXIT", []),
        ("UMOV UR5, 0x0", []),
    ],
)
def test_written_registers(text: str, registers: list[int]) -> None:
    assert list(written_registers(text)) == registers


def test_stored_register_is_the_value() -> None:
    assert stored_register("STL.64 [R1+0x8], R4") == 4
    assert stored_register("@!P4 STS [R2+UR5], R17.H0_H0") == 17
    assert stored_register("FADD R14, R4, R14") is None


def test_opcode_is_the_first_part() -> None:
    assert opcode("@!UP3 LDG.E.128 R14, desc[UR14][R4.64]") == "LDG"
    assert opcode("EXIT") == "EXIT"
