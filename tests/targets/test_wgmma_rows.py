"""Rows for HGMMA, into whose line tables ptxas writes none."""

from __future__ import annotations

from functools import cache

import pytest
from native_support import needs_codegen, needs_nvdisasm, places

from tkdebug.cli import main
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import assemble
from tkdebug.compiler.targets.nvptx.cubins.debug_info import with_debug_info
from tkdebug.compiler.targets.nvptx.cubins.line_tables import cubin_tables
from tkdebug.compiler.targets.nvptx.cubins.sections import CubinSections
from tkdebug.compiler.targets.nvptx.cubins.wgmma_rows import with_wgmma_rows
from tkdebug.errors import Frame
from tkdebug.linemap.nvidia.cubins import read_line_info
from tkdebug.linemap.nvidia.ptx_locations import rewrite_locations
from tkdebug.linemap.nvidia.sass import opcode
from tkdebug.linemap.nvidia.tools import disassemble

pytestmark = [needs_codegen, needs_nvdisasm]

KERNEL, DEVICE = "/tmp/kernel.py", "/tmp/device.py"
LOCATIONS = {
    10: (Frame(KERNEL, 5, "k"),),
    11: (Frame(KERNEL, 6, "k"), Frame(DEVICE, 20, "product")),
    12: (Frame(KERNEL, 7, "k"), Frame(DEVICE, 20, "product")),
    13: (Frame(KERNEL, 8, "k"),),
}
ACC = ", ".join(f"%r{i}" for i in range(4))
MULTIPLY = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"


def dot(op: int) -> str:
    return f"""
\t.loc\t1 {op} 1
wgmma.fence.sync.aligned;
{MULTIPLY} {{{ACC}}}, %rd0, %rd1, %p0, 1, 1, 0, 0;
{MULTIPLY} {{{ACC}}}, %rd1, %rd0, %p0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;"""


def kernel() -> str:
    loads = "\n".join(f"ld.global.b32 %r{i}, [%rd2+{4 * i}];" for i in range(4))
    more = "\n".join(f"fma.rn.f32 %r{i}, %r{i}, %r{i}, %r{i};" for i in range(4))
    stores = "\n".join(f"st.global.b32 [%rd2+{4 * i}], %r{i};" for i in range(4))
    ptx = f"""\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 k_param_0) .reqntid 128
{{
.reg .pred %p<1>;
.reg .b32 %r<8>;
.reg .b64 %rd<4>;
$L__func_begin0:
\t.loc\t1 1 0
\t.loc\t1 10 1
ld.param.u64 %rd2, [k_param_0];
setp.eq.u32 %p0, 0, 0;
{loads}
ld.global.b64 %rd0, [%rd2+64];
ld.global.b64 %rd1, [%rd2+72];{dot(11)}
\t.loc\t1 10 1
{more}{dot(12)}
\t.loc\t1 13 1
{stores}
ret;
$L__func_end0:
}}
"""
    return rewrite_locations(ptx, LOCATIONS, (Frame(KERNEL, 4, "k"),))[0]


@cache
def plain_cubin() -> bytes:
    """The code as the assembler makes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tkdebug.compiler.targets.nvptx.cubins.wgmma_rows.with_wgmma_rows",
            lambda cubin, ptx: cubin,
        )
        return assemble(kernel(), "k", TARGETS["sm_90a"]).cubin


@cache
def repaired_cubin() -> bytes:
    return assemble(kernel(), "k", TARGETS["sm_90a"]).cubin


def shown(cubin: bytes, *options: str) -> dict[int, tuple[str, int] | None]:
    return {at: place for (_, at), place in places(disassemble(cubin, ("-c", *options))).items()}


def multiplies(cubin: bytes) -> list[int]:
    (table,) = cubin_tables(cubin)
    return [i.address for i in table.instructions if opcode(i.text) == "HGMMA"]


def test_nvdisasm_shows_the_dots_line_at_each_wgmma() -> None:
    found = multiplies(repaired_cubin())
    assert len(found) == 4
    lines = shown(repaired_cubin(), "-g")
    assert [lines[at] for at in found] == [(DEVICE, 20)] * 4
    texts = kernel().splitlines()
    by_ptx = shown(repaired_cubin(), "-gp")
    assert all("wgmma.mma_async" in texts[(by_ptx[at] or ("", 0))[1] - 1] for at in found)
    assert len({by_ptx[at] for at in found}) == 4


def test_each_wgmma_has_its_own_chain_of_calls() -> None:
    lines = read_line_info(repaired_cubin())["k"]
    chains = [lines.frames_at(at) for at in multiplies(repaired_cubin())]
    assert chains == [LOCATIONS[11], LOCATIONS[11], LOCATIONS[12], LOCATIONS[12]]


@pytest.mark.parametrize("option", ["-g", "-gp"])
def test_no_other_instruction_and_no_code_changes(option: str) -> None:
    found = set(multiplies(plain_cubin()))
    before, after = shown(plain_cubin(), option), shown(repaired_cubin(), option)
    assert {at: p for at, p in before.items() if at not in found} == {
        at: p for at, p in after.items() if at not in found
    }
    assert disassemble(plain_cubin()) == disassemble(repaired_cubin())


def test_cubin_of_others_says_that_there_is_no_row() -> None:
    (table,) = cubin_tables(plain_cubin())
    found = [i for i in table.instructions if opcode(i.text) == "HGMMA"]
    assert [(i.frames, i.ptx_line) for i in found] == [((), None)] * 4
    assert all(i.mapped for i in table.instructions if opcode(i.text) == "FFMA")


def test_lines_of_a_cubin_of_others_say_that_rows_are_missing(tmp_path, capsys) -> None:
    path = tmp_path / "k.cubin"
    path.write_bytes(plain_cubin())
    assert main(["lines", str(path)]) == 0
    assert "4 of them are wgmma: the cubin has no row for them" in capsys.readouterr().out
    path.write_bytes(repaired_cubin())
    assert main(["lines", str(path)]) == 0
    assert "are wgmma" not in capsys.readouterr().out


def test_repair_is_done_once() -> None:
    assert with_wgmma_rows(repaired_cubin(), kernel()) == repaired_cubin()


def test_debug_info_is_made_of_the_repaired_lines() -> None:
    described = with_debug_info(repaired_cubin())
    lines = shown(described, "-g")
    assert [lines[at] for at in multiplies(described)] == [(DEVICE, 20)] * 4


def test_wgmma_whose_line_is_unknown_is_left_without_one() -> None:
    # Another text than the one that was assembled: the fences' lines hold no fence.
    shifted = "// one line more\n" + kernel()
    assert read_line_info(with_wgmma_rows(plain_cubin(), shifted)) == read_line_info(plain_cubin())


def test_cubin_without_wgmma_stays_as_it_is() -> None:
    cubin = plain_cubin()
    assert with_wgmma_rows(cubin, kernel().replace("wgmma.mma_async", "wgmma.none")) is cubin


def test_addresses_in_both_tables_are_still_relocated() -> None:
    before, after = CubinSections(plain_cubin()), CubinSections(repaired_cubin())
    for name in (".debug_line", ".nv_debug_line_sass"):
        assert after.relocations(name) == before.relocations(name)
        assert len(after.data(name)) > len(before.data(name))
