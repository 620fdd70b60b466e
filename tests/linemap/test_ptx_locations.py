from __future__ import annotations

import re

import pytest

from tkdebug.errors import Frame
from tkdebug.linemap.nvidia.ptx_locations import GENERATED_FILE, PtxLine, rewrite_locations

# As LLVM writes it: `.loc` with op ids, 0 where an instruction has no place.
PTX = """\
.version 8.7
.visible .entry k(
	.param .u64 k_param_0
)
{
	.reg .b32 	%r<9>;
$L__func_begin0:
	.loc	1 1 0

	mov.b64 	%SPL, __local_depot0;
	ld.param.b64 	%rd1, [k_param_0];
$L__tmp0:
	.loc	1 10 1
	ld.global.b32 	%r1, [%rd1];
	.loc	1 0 1
	mov.b32 	%r2, 0f40000000;
	.loc	1 11 1
	fma.rn.f32 	%r3, %r1, %r1, %r1;
	.loc	1 12 1
	mul.f32 	%r4, %r3, %r2;
	.loc	1 0 1
	add.f32 	%r5, %r4, %r4;
	.loc	1 13 1
	// begin inline asm
	{
	.reg .pred p;
	st.global.b32 [%rd1], %r5;
	}
	// end inline asm
	ret;
$L__tmp1:
$L__func_end0:

}
	.section	.debug_macinfo	{	}
	.file	1 "ops"
"""
KERNEL = Frame("/tmp/k.py", 3, "k")


def frames(line: int, *inner: Frame) -> tuple[Frame, ...]:
    return (Frame("/tmp/k.py", line, "k"), *inner)


def ops(text: str, table: tuple[PtxLine, ...]) -> dict[str, int | None]:
    lines = text.splitlines()
    return {lines[entry.line - 1].split()[0]: entry.op_id for entry in table}


LOCATIONS = {op: frames(op * 10) for op in (10, 11, 12, 13)}


def test_each_instruction_has_its_op() -> None:
    text, table = rewrite_locations(PTX, LOCATIONS, (KERNEL,))
    found = ops(text, table)
    assert found["ld.global.b32"] == 10
    assert found["fma.rn.f32"] == 11
    assert found["mul.f32"] == 12
    assert found["st.global.b32"] == found["ret;"] == 13


def test_constants_and_parameters_are_of_their_first_reader() -> None:
    text, table = rewrite_locations(PTX, LOCATIONS, (KERNEL,))
    found = ops(text, table)
    assert found["ld.param.b64"] == 10
    assert found["mov.b32"] == 12
    assert found["mov.b64"] is None


def test_arithmetic_without_a_place_is_generated_code() -> None:
    text, table = rewrite_locations(PTX, LOCATIONS, (KERNEL,))
    assert ops(text, table)["add.f32"] is None
    file = re.search(rf'\.file\t(\d+) "{GENERATED_FILE}"', text)
    assert file
    assert f"\t.loc\t{file[1]} 1 0\n\tadd.f32" in text


def test_no_line_0_and_no_op_id_is_left() -> None:
    text, _ = rewrite_locations(PTX, LOCATIONS, (KERNEL,))
    lines = {int(number) for number in re.findall(r"\.loc\t\d+ (\d+)", text)}
    assert lines == {1, 3, 100, 110, 120, 130}
    assert '"ops"' not in text


def test_op_without_a_location_is_generated_code() -> None:
    text, table = rewrite_locations(PTX, {}, ())
    assert {entry.op_id for entry in table} == {None}
    assert set(re.findall(r'\.file\t\d+ "(.*)"', text)) == {GENERATED_FILE}


def test_nothing_but_locations_changes() -> None:
    def rest(text: str) -> list[str]:
        drop = (".loc", ".file", ".section", "$L__info", ".b8")
        return [t for t in text.splitlines() if t.strip() and not t.strip().startswith(drop)]

    inner = Frame("/tmp/d.py", 5, "f")
    text, _ = rewrite_locations(PTX, {**LOCATIONS, 11: frames(1, inner)}, (KERNEL,))
    assert [t for t in rest(text) if t not in ("\t{", "\t}")] == [
        t for t in rest(PTX) if t not in ("\t{", "\t}")
    ]


def test_call_chain_names_each_position_before_it_is_inlined_at() -> None:
    inner, deep = Frame("/tmp/d.py", 5, "f"), Frame("/tmp/d.py", 9, "g")
    locations = {**LOCATIONS, 11: frames(1, inner, deep), 12: frames(2, inner, deep)}
    text, _ = rewrite_locations(PTX, locations, (KERNEL,))
    named = set()
    for line in text.splitlines():
        if not line.startswith("\t.loc"):
            continue
        place, _, outer = line.removeprefix("\t.loc\t").partition(", function_name ")
        if outer:
            assert outer.partition("inlined_at ")[2] in named
        named.add(place)


def test_chains_that_end_on_one_line_are_distinguished() -> None:
    inner = Frame("/tmp/d.py", 5, "f")
    locations = {**LOCATIONS, 11: frames(1, inner), 12: frames(2, inner)}
    text, _ = rewrite_locations(PTX, locations, (KERNEL,))
    positions = re.findall(r"\.loc\t(\S+ 5 \d+), function_name", text)
    assert set(positions) == {"2 5 0", "2 5 1"}


def test_text_without_debug_information_stays() -> None:
    ptx = ".version 8.0\n.visible .entry k()\n{\n\tret;\n}\n"
    assert rewrite_locations(ptx, LOCATIONS) == (ptx, ())


def test_file_names_that_ptxas_cannot_take_are_encoded() -> None:
    locations = {op: (Frame('/tmp/é "x"\\y.py', op, "k"),) for op in LOCATIONS}
    text, _ = rewrite_locations(PTX, locations)
    assert '"/tmp/%C3%A9 %22x%22%5Cy.py"' in text
    assert text.isascii()


def body(*lines: str) -> str:
    return "\n".join(["$L__func_begin0:", "\t.loc\t1 1 0", *lines, "$L__func_end0:"]) + "\n"


def test_integer_arithmetic_is_of_its_reader_through_others() -> None:
    ptx = body(
        "\t.loc\t1 0 1",
        "\tmov.b32 \t%r1, shared;",
        "\tshl.b32 \t%r2, %r9, 2;",
        "\tadd.s32 \t%r3, %r1, %r2;",
        "\t.loc\t1 12 1",
        "\tst.shared.b32 \t[%r3], %r9;",
    )
    _, table = rewrite_locations(ptx, LOCATIONS)
    assert [entry.op_id for entry in table] == [12, 12, 12, 12]


def test_reader_above_in_a_loop_counts_and_a_writer_does_not() -> None:
    ptx = body(
        "$L__BB0_1:",
        "\t.loc\t1 10 1",
        "\tadd.s32 \t%r5, %r4, 1;",
        "\t.loc\t1 11 1",
        "\tmul.lo.s32 \t%r4, %r8, %r8;",
        "\t.loc\t1 0 1",
        "\tmov.b32 \t%r4, %r6;",
        "\t.loc\t1 12 1",
        "\t@%p1 bra \t$L__BB0_1;",
    )
    _, table = rewrite_locations(ptx, LOCATIONS)
    assert [entry.op_id for entry in table] == [10, 11, 10, 12]


def test_accesses_special_functions_and_assembly_are_never_given_a_place() -> None:
    ptx = body(
        "\t.loc\t1 0 1",
        "\tld.global.b32 \t%r1, [%rd1];",
        "\tex2.approx.f32 \t%r2, %r1;",
        "\tfma.rn.f32 \t%r3, %r2, %r2, %r2;",
        "\tatom.global.add.u32 \t%r4, [%rd1], %r3;",
        "\t// begin inline asm",
        "\tmov.b32 %r5, %r4;",
        "\t// end inline asm",
        "\t.loc\t1 12 1",
        "\tst.global.v4.b32 \t[%rd1], {%r1, %r2, %r3, %r5};",
    )
    _, table = rewrite_locations(ptx, LOCATIONS)
    assert [entry.op_id for entry in table] == [None] * 5 + [12]


def jumping(*others: str) -> list[int | None]:
    ptx = body(
        "\t.loc\t1 10 1",
        "\tmov.b32 \t%r1, 0;",
        "\t.loc\t1 0 1",
        "\tbra.uni \t$L__BB0_2;",
        *others,
        "$L__BB0_2:",
        "\t.loc\t1 13 1",
        "\tret;",
    )
    _, table = rewrite_locations(ptx, LOCATIONS)
    return [entry.op_id for entry in table]


def test_jump_without_a_place_is_of_the_op_whose_branch_leads_there() -> None:
    backward = ("\t.loc\t1 12 1", "\t@%p1 bra \t$L__BB0_2;", "\tret;")
    assert jumping(*backward) == [10, 12, 12, 12, 13]
    through = ("$L__BB0_1:", "\t.loc\t1 12 1", "\t@%p1 bra \t$L__BB0_9;")
    assert jumping(*through) == [10, 12, 12, 13]


def test_jump_to_where_branches_of_two_ops_lead_has_no_place() -> None:
    branches = ("\t.loc\t1 11 1", "\t@%p1 bra \t$L__BB0_2;", "\t.loc\t1 12 1")
    assert jumping(*branches, "\t@%p2 bra \t$L__BB0_2;", "\tret;")[1] is None
    assert jumping("\tret;")[1] is None


def reduced(*last: str) -> list[int | None]:
    ptx = body(
        "\t.loc\t1 11 1",
        "\tmax.f32 \t%r2, %r1, %r9;",
        "\t.loc\t1 12 1",
        "\tshfl.sync.bfly.b32 \t%r3, %r2, 16, 31, -1;",
        "\t.loc\t1 0 1",
        *last,
        "\t.loc\t1 13 1",
        "\tst.shared.b32 \t[%r8], %r4;",
    )
    _, table = rewrite_locations(ptx, LOCATIONS)
    return [entry.op_id for entry in table]


def test_last_step_of_a_reduction_is_of_the_op_of_the_step_before() -> None:
    assert reduced("\tmax.f32 \t%r4, %r2, %r3;") == [11, 12, 11, 13]


@pytest.mark.parametrize("last", ["add.f32 \t%r4, %r2, %r3;", "max.f32 \t%r4, %r1, %r3;"])
def test_what_is_no_step_of_the_reduction_has_no_place(last: str) -> None:
    assert reduced(f"\t{last}") == [11, 12, None, 13]
