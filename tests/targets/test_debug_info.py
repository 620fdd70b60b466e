"""Debug info that cuda-gdb reads: compile units of inlined functions, and rows in its order."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise

import llvm_text
import pytest
from native_support import needs_codegen, needs_nvdisasm, places

from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate
from tkdebug.compiler.targets.nvptx.cubins.debug_info import separate_inlined_rows, with_debug_info
from tkdebug.compiler.targets.nvptx.cubins.sections import CubinSections
from tkdebug.errors import Frame, TkError
from tkdebug.knobs import KNOBS
from tkdebug.linemap.nvidia.cubins import CubinError, read_kernels, read_line_info
from tkdebug.linemap.nvidia.line_programs import LineProgramError, Row, decode, steps
from tkdebug.linemap.nvidia.tools import disassemble

pytestmark = needs_codegen

KERNEL, DEVICE = "/tmp/kernel.py", "/tmp/device.py"
BODY = """
  %v = load float, ptr addrspace(1) %x, !dbg !10
  %a = fmul float %v, 3.0, !dbg !11
  %b = fadd float %a, 5.0, !dbg !12
  store float %b, ptr addrspace(1) %x, !dbg !13
  ret void, !dbg !14"""
# The calls of `outer` are on different lines, that of `inner` in it is one line.
LOCATIONS = {
    10: (Frame(KERNEL, 5, "k"), Frame(KERNEL, 40, "fetch")),
    11: (Frame(KERNEL, 6, "k"), Frame(DEVICE, 20, "outer"), Frame(DEVICE, 30, "inner")),
    12: (Frame(KERNEL, 7, "k"), Frame(DEVICE, 20, "outer"), Frame(DEVICE, 30, "inner")),
    13: (Frame(KERNEL, 8, "k"),),
    14: (Frame(KERNEL, 8, "k"),),
}


def cubin_of(debug_info: bool, target: str = "sm_90a", body: str = BODY) -> bytes:
    with KNOBS.scope(debug_info=debug_info):
        return generate(
            llvm_text.module(body),
            "k",
            TARGETS[target],
            locations=LOCATIONS,
            entry=(Frame(KERNEL, 4, "k"),),
        ).cubin


@pytest.fixture(scope="module", params=["sm_80", "sm_90a"])
def plain(request: pytest.FixtureRequest) -> bytes:
    return cubin_of(False, request.param)


@pytest.fixture(scope="module")
def described(plain: bytes) -> bytes:
    return with_debug_info(plain)


def units(cubin: bytes):
    from elftools.elf.elffile import ELFFile

    dwarf = ELFFile(io.BytesIO(cubin)).get_dwarf_info(relocate_dwarf_sections=False)
    return dwarf, list(dwarf.iter_CUs())


def text(die, name: str) -> str:
    return die.attributes[f"DW_AT_{name}"].value.decode()


def number(die, name: str) -> int:
    return die.attributes[f"DW_AT_{name}"].value


def calls_at(dwarf, die, address: int, files: list[str]) -> Iterator[tuple[str, str, int]]:
    """(function, file and line of its call) of each inlined function at `address`, outer first."""
    lists = dwarf.range_lists()
    for child in die.iter_children():
        ranges = lists.get_range_list_at_offset(number(child, "ranges"), die.cu)
        if any(entry.begin_offset <= address < entry.end_offset for entry in ranges):
            origin = child.get_DIE_from_attribute("DW_AT_abstract_origin")
            file = files[number(child, "call_file")]
            yield text(origin, "name"), file, number(child, "call_line")
            yield from calls_at(dwarf, child, address, files)


def files_of(dwarf, unit) -> list[str]:
    header = dwarf.line_program_for_CU(unit).header
    folders = [""] + [folder.decode() for folder in header["include_directory"]]
    names = [f"{folders[e.dir_index]}/{e.name.decode()}" for e in header["file_entry"]]
    return ["", *names]


def shown_by_cuda_gdb(rows: tuple[Row, ...], address: int) -> Row:
    """The row that cuda-gdb 13.0 takes for an instruction: `find_pc_sect_line`."""
    before = [row for row in rows if row.address <= address and not row.end]
    while len(before) > 1:
        last, prior = before[-1], before[-2]
        if prior.address != last.address or prior.context is None or prior.file != last.file:
            break
        before.pop()
    return before[-1]


def line_rows(cubin: bytes) -> tuple[Row, ...]:
    sections = CubinSections(cubin)
    return decode(sections.data(".debug_line"), None, sections.data(".debug_str"))


def test_only_the_knob_brings_units() -> None:
    assert ".debug_info" not in CubinSections(cubin_of(False))
    assert ".debug_info" in CubinSections(cubin_of(True))
    assert ".debug_info" not in CubinSections(cubin_of(False))


def test_unit_names_the_python_file_and_the_kernel_with_its_code(described: bytes) -> None:
    _, (unit,) = units(described)
    top = unit.get_top_DIE()
    assert text(top, "name") == KERNEL
    assert text(top, "producer").startswith("tkdebug ")
    assert number(top, "stmt_list") == 0
    functions = [die for die in top.iter_children() if die.tag == "DW_TAG_subprogram"]
    assert [text(die, "name") for die in functions] == ["fetch", "outer", "inner", "k"]
    assert [number(die, "inline") for die in functions[:-1]] == [1, 1, 1]
    size = read_line_info(described)["k"].size_bytes
    for die in (top, functions[-1]):
        assert (number(die, "low_pc"), number(die, "high_pc")) == (0, size)


def test_addresses_in_units_are_relocated_by_the_kernel(described: bytes) -> None:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(described))
    _, (unit,) = units(described)
    top = unit.get_top_DIE()
    kernel = [die for die in top.iter_children() if die.tag == "DW_TAG_subprogram"][-1]
    addresses = {
        die.attributes[f"DW_AT_{name}"].offset: number(die, name)
        for die in (top, kernel)
        for name in ("low_pc", "high_pc")
    }
    rows = list(elf.get_section_by_name(".rela.debug_info").iter_relocations())
    symbols = elf.get_section_by_name(".symtab")
    assert {row["r_offset"]: row["r_addend"] for row in rows} == addresses
    assert {symbols.get_symbol(row["r_info_sym"]).name for row in rows} == {"k"}
    assert {row["r_info_type"] for row in rows} == {2}  # R_CUDA_64


def test_every_instruction_has_the_inlined_functions_of_its_line(described: bytes) -> None:
    dwarf, (unit,) = units(described)
    kernel = list(unit.get_top_DIE().iter_children())[-1]
    lines = read_line_info(described)["k"]
    files = files_of(dwarf, unit)
    seen = set()
    for address in lines.addresses:
        frames = lines.frames_at(address)
        wanted = [(inner.function, outer.file, outer.line) for outer, inner in pairwise(frames)]
        assert list(calls_at(dwarf, kernel, address, files)) == wanted
        seen.add(tuple(wanted))
    assert (("outer", KERNEL, 6), ("inner", DEVICE, 20)) in seen
    assert (("outer", KERNEL, 7), ("inner", DEVICE, 20)) in seen
    assert (("fetch", KERNEL, 5),) in seen


@needs_nvdisasm
def test_code_lines_and_resources_are_those_of_a_plain_cubin(
    plain: bytes, described: bytes
) -> None:
    for options in (("-c", "-g"), ("-c", "-gp")):
        before = places(disassemble(plain, options))
        assert before
        assert places(disassemble(described, options)) == before
    assert disassemble(described, ("-c",)) == disassemble(plain, ("-c",))
    assert read_kernels(described) == read_kernels(plain)
    before, after = read_line_info(plain)["k"], read_line_info(described)["k"]
    assert [after.frames_at(a) for a in after.addresses] == [
        before.frames_at(a) for a in before.addresses
    ]
    assert after.ptx == before.ptx


def test_cuda_gdb_shows_the_innermost_line_of_nested_calls(plain: bytes, described: bytes) -> None:
    lines = read_line_info(plain)["k"]
    innermost = [lines.frames_at(address)[-1] for address in lines.addresses]

    def shown(cubin: bytes) -> list[tuple[str, int]]:
        rows = line_rows(cubin)
        found = [shown_by_cuda_gdb(rows, address) for address in lines.addresses]
        return [(row.file, row.line) for row in found]

    wanted = [(frame.file, frame.line) for frame in innermost]
    assert shown(described) == wanted
    assert shown(plain) != wanted


def test_code_keeps_its_alignment_and_segments_their_contents(
    plain: bytes, described: bytes
) -> None:
    from elftools.elf.elffile import ELFFile

    before, after = (ELFFile(io.BytesIO(data)) for data in (plain, described))
    assert len(plain) < len(described) < len(plain) + 2000
    for old, new in zip(before.iter_sections(), after.iter_sections(), strict=False):
        assert old.name == new.name
        assert new["sh_offset"] % max(1, old["sh_addralign"] if old["sh_size"] else 1) == 0
        if old.name not in (".shstrtab", ".debug_line", ".rel.debug_line", ".rela.debug_line"):
            assert old.data() == new.data()
    for old, new in zip(before.iter_segments(), after.iter_segments(), strict=True):
        if old["p_offset"] == before.header["e_phoff"]:
            assert new["p_offset"] == after.header["e_phoff"]
        else:
            assert old.data() == new.data()


def test_the_relocated_address_in_the_line_table_is_found_again(described: bytes) -> None:
    sections = CubinSections(described)
    (at,) = sections.relocations(".debug_line")
    rows = decode(sections.data(".debug_line"), {at: "k"})
    assert {row.function for row in rows} == {"k"}


def test_described_cubins_and_those_without_lines_stay_as_they_are(described: bytes) -> None:
    assert with_debug_info(described) is described
    unlined = described.replace(b".debug_line\0", b".xebug_line\0")
    unlined = unlined.replace(b".debug_info\0", b".xebug_info\0")
    assert with_debug_info(unlined) is unlined


def test_stripped_and_cut_cubins_are_refused(plain: bytes) -> None:
    with pytest.raises(CubinError, match="stripped"):
        with_debug_info(plain.replace(b".symtab\0", b".xymtab\0"))
    for size in (0, 50, len(plain) // 2, len(plain) - 200):
        with pytest.raises(TkError):
            with_debug_info(plain[:size])


def test_rows_between_nested_calls_are_added_once_and_none_is_lost() -> None:
    lines = CubinSections(cubin_of(False)).data(".debug_line")
    edited, _ = separate_inlined_rows(lines, ())
    before, after = decode(lines), decode(edited)
    kept = [row for row in after if row.context is not None or row.end]
    assert len(kept) == len([row for row in before if row.context is not None or row.end])
    assert {(row.address, row.file, row.line) for row in after} == {
        (row.address, row.file, row.line) for row in before
    }
    again, _ = separate_inlined_rows(edited, ())
    assert again == edited


def test_line_tables_that_are_cut_or_damaged_are_refused() -> None:
    lines = CubinSections(cubin_of(False)).data(".debug_line")
    for size in range(5, len(lines), 7):
        with pytest.raises(LineProgramError):
            separate_inlined_rows(lines[:size], ())
    with pytest.raises(LineProgramError, match="several programs"):
        list(steps(lines + lines))
