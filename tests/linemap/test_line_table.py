from __future__ import annotations

import copy
import json
import random
from contextlib import suppress
from dataclasses import replace

import pytest
from table_support import DEVICE, FUSED, INNER, KERNEL, LOAD, make_table

from tkdebug.errors import TkError
from tkdebug.linemap.line_counts import count_lines, counts_data, totals
from tkdebug.linemap.line_table import LineTableError
from tkdebug.linemap.line_table_data import absent, from_data, to_data

TABLE = make_table()


def test_address_leads_to_chain_op_and_ptx() -> None:
    trace = TABLE.of_address(0x20)
    assert trace.chains == (INNER,)
    assert (trace.tile_ops, trace.gpu_ops) == ((2,), (2,))
    assert (trace.llvm_lines, trace.ptx_lines, trace.addresses) == ((4, 5), (13,), (0x20,))


def test_address_inside_an_instruction_is_that_instruction() -> None:
    assert TABLE.at(0x2F) is TABLE.instructions[2]
    assert TABLE.at(0x80) is None
    assert TABLE.at(-1) is None
    assert not TABLE.of_address(0x80).found


def test_line_leads_to_all_stages() -> None:
    trace = TABLE.of_line(KERNEL, 5)
    assert (trace.tile_ops, trace.gpu_ops) == ((1,), (1,))
    assert (trace.llvm_lines, trace.ptx_lines, trace.addresses) == ((3,), (11,), (0x10,))


def test_line_of_a_call_has_what_was_inlined_there() -> None:
    assert TABLE.of_line(KERNEL, 6).addresses == (0x20,)
    assert TABLE.of_line(DEVICE, 20).addresses == (0x20,)
    assert TABLE.of_line(DEVICE, 30).addresses == (0x20,)


def test_line_that_was_fused_into_another_is_found() -> None:
    trace = TABLE.of_line(KERNEL, 7)
    assert set(trace.tile_ops) == {2, 4}
    assert set(trace.addresses) == {0x20, 0x30, 0x40}


def test_gpu_op_leads_to_the_tile_op_that_it_replaced() -> None:
    trace = TABLE.of_gpu_op(9)
    assert (trace.tile_ops, trace.ptx_lines, trace.addresses) == ((4,), (14,), (0x30, 0x40))


def test_ptx_lines_lead_both_ways() -> None:
    assert TABLE.of_ptx_line(13).addresses == (0x20,)
    # A PTX instruction of which no SASS was made is still of its op.
    assert TABLE.of_ptx_line(12).tile_ops == (2,)
    assert TABLE.of_ptx_line(12).addresses == ()
    assert not TABLE.of_ptx_line(99).found


def test_generated_code_and_code_without_a_line_are_unmapped() -> None:
    assert [i.address for i in TABLE.instructions if not i.mapped] == [0, 0x50]
    assert TABLE.mapped_percent == pytest.approx(75)
    assert TABLE.of_address(0).chains == ()
    assert TABLE.of_address(0x50).chains == ()


def test_lines_are_those_of_ops_and_instructions() -> None:
    assert TABLE.lines() == (
        (DEVICE, 30),
        (KERNEL, 5),
        (KERNEL, 7),
        (KERNEL, 8),
    )


def test_counts_by_line() -> None:
    counts = count_lines(TABLE)
    assert counts[KERNEL, 5].widths == {("global-load", 128): 1}
    assert counts[KERNEL, 5].max_live_registers == 8
    assert counts[DEVICE, 30].kinds["special"] == 1
    assert (counts[KERNEL, 6].instructions, counts[KERNEL, 6].inlined) == (0, 1)
    assert counts[KERNEL, 7].kinds["tensor-core"] == 1
    assert counts[None].instructions == 2
    whole = totals(TABLE)
    assert whole.instructions == sum(c.instructions for c in counts.values()) == 8


def test_spill_counts_for_the_line_that_made_the_value() -> None:
    # R5 is written by MUFU, of the inner function; the store is on another line.
    counts = count_lines(TABLE)
    assert counts[DEVICE, 30].spilled_values == 1
    assert counts[KERNEL, 7].kinds["local-store"] == 1
    assert counts_data(totals(TABLE))["spilled_values"] == 1


def test_what_is_stored_to_a_stack_frame_is_no_spilled_value() -> None:
    assert TABLE.resources is not None
    unspilled = replace(TABLE.resources, spill_store_bytes=0, spill_load_bytes=0)
    whole = totals(replace(TABLE, resources=unspilled))
    assert (whole.spilled_values, whole.kinds["local-store"]) == (0, 1)


def test_data_holds_all_of_it() -> None:
    data = json.loads(json.dumps(to_data(TABLE)))
    assert from_data(data) == TABLE


def test_data_of_before_there_were_notes_is_read() -> None:
    data = to_data(TABLE)
    del data["notes"], data["local_functions"]
    assert from_data(data) == replace(TABLE, notes=(), local_functions=())


def test_data_stores_each_chain_and_file_once() -> None:
    data = to_data(TABLE)
    assert data["files"] == [KERNEL, DEVICE, "<tkdebug>"]
    assert isinstance(data["chains"], list)
    assert len(data["chains"]) == len({LOAD, INNER, FUSED}) + 3


def test_absent_table_says_why() -> None:
    with pytest.raises(LineTableError, match="nvdisasm has gone"):
        from_data(absent("nvdisasm has gone"))


def test_newer_data_is_refused() -> None:
    with pytest.raises(LineTableError, match="schema 99"):
        from_data({**to_data(TABLE), "schema": 99})


@pytest.mark.parametrize("data", [None, [], "x", {}, {"schema": "1"}, {"schema": 1}])
def test_what_is_no_table_is_one_line(data: object) -> None:
    with pytest.raises(LineTableError) as caught:
        from_data(data)
    assert "\n" not in str(caught.value)


def test_damaged_data_raises_nothing_else() -> None:
    chance = random.Random(3)
    junk = [None, -1, 1 << 70, "x", [], {}, 3.5, True, [[]]]
    for _ in range(1500):
        data = copy.deepcopy(to_data(TABLE))
        place: object = data
        for _ in range(chance.randint(1, 4)):
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))  # type: ignore[arg-type]
            if not keys:
                break
            key = chance.choice(keys)
            if chance.random() < 0.4 or not isinstance(place[key], (dict, list)):  # type: ignore[index]
                place[key] = chance.choice(junk)  # type: ignore[index]
                break
            place = place[key]  # type: ignore[index]
        with suppress(TkError):
            table = from_data(data)
            for instruction in table.instructions:
                table.of_address(instruction.address)
            count_lines(table)
