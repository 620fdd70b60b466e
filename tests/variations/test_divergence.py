"""Things that must not matter: what is varied, and the first value that differs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import torch
from divergent_kernels import DIVERGENT, blocks

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.passes import cleanup
from tkdebug.variations.diverge_report import Diverged, diverge_json, diverge_text
from tkdebug.variations.divergence import Divergence
from tkdebug.variations.grids import related_names, scaled_grid
from tkdebug.variations.outcomes import Outcome
from tkdebug.variations.ways import Found, Way

SECONDS = 30.0
DOCS = Path(__file__).parents[2] / "docs"


def line_of(kernel, text):
    source = kernel.kernel_source
    lines = source.text.splitlines()
    return source.first_line + next(i for i, line in enumerate(lines) if text in line)


def diverged(keep, launch, what):
    """Return how each way of one kind compares."""
    torch.manual_seed(0)
    (kept,) = keep(launch)
    divergence = Divergence(kept, "sm_80", SECONDS)
    return [divergence.look(way) if isinstance(way, Way) else way for way in divergence.ways(what)]


@pytest.mark.parametrize(
    ("kernel", "launch"), DIVERGENT, ids=[kernel.__name__ for kernel, _ in DIVERGENT]
)
def test_line_from_which_blocks_matter_is_named(keep, kernel, launch):
    found = [one for one in diverged(keep, launch, "BLOCK") if one.difference is not None]
    assert found
    assert {one.at[-1].line for one in found} == {line_of(kernel, "# parts")}


@tkdebug.jit
def scaled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) * 2.0, at < n)


def launch_scaled():
    scaled[blocks(100)](torch.rand(100), torch.empty(100), 100, BLOCK=32)


@pytest.mark.parametrize("what", ["BLOCK", "order", "padding", "outputs", "passes", "warps"])
def test_kernel_for_which_nothing_matters_gives_the_same_bits(keep, what):
    found = diverged(keep, launch_scaled, what)
    assert found
    assert all(one.same_bits and not one.refused for one in found), found


def test_pass_that_changes_the_result_is_named(keep, monkeypatch):
    (kept,) = keep(launch_chosen)
    divergence = Divergence(kept, "sm_80", SECONDS)
    real = cleanup._attributes_key

    def without_predicate(attributes):
        return real({name: a for name, a in attributes.items() if name != "predicate"})

    monkeypatch.setattr(cleanup, "_attributes_key", without_predicate)
    (way,) = divergence.ways("passes")
    found = divergence.look(way)
    assert found.difference is not None
    assert found.op == "arith.cmpf"
    assert found.at[-1].line == line_of(chosen, "low = ")
    assert "merge-equal" in found.note
    assert "tile-ir:eliminate-common-subexpressions" in found.note


@tkdebug.jit
def chosen(x_ptr, y_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    high = tl.where(x > 0.5, x, 0.0)
    low = tl.where(x < 0.5, x * 2.0, 1.0)
    tl.store(y_ptr + tl.arange(0, BLOCK), high + low)


def launch_chosen():
    chosen[(1,)](torch.linspace(0, 1, 32), torch.empty(32), BLOCK=32)


@tkdebug.jit
def handed_on(x_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    before = tl.load(x_ptr + program * BLOCK + at)
    tl.store(x_ptr + (program + 1) * BLOCK + at, before + 1.0)


@tkdebug.jit
def counted(x_ptr, y_ptr):
    before = tl.load(x_ptr)
    tl.store(x_ptr, before + 1.0)
    tl.store(y_ptr, before)


def test_scalar_that_differs_is_named_and_a_tensor_without_axes_is_compared(keep):
    found = diverged(keep, lambda: counted[(4,)](torch.zeros(()), torch.zeros(())), "order")[0]
    assert found.difference.text == "x_ptr is 4, as it is 1"
    assert (found.variable, found.got, found.expected) == ("before", "3", "0")
    strided = torch.zeros(4, 3)[:, 1]
    outputs = diverged(keep, lambda: counted[(1,)](torch.zeros(()), strided), "outputs")
    assert all(one.same_bits for one in outputs)


def test_order_of_programs_that_matters_is_found_at_the_load(keep):
    def launch():
        handed_on[(4,)](torch.zeros(160), 160, BLOCK=32)

    found = diverged(keep, launch, "order")
    one_by_one = next(one for one in found if one.way == "programs one by one")
    assert (one_by_one.variable, one_by_one.op) == ("before", "tt.load")
    assert (one_by_one.program, one_by_one.got, one_by_one.expected) == (1, "1", "0")
    assert one_by_one.at[-1].line == line_of(handed_on, "before = ")


@tkdebug.jit
def sum_of_padding(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(y_ptr, tl.sum(x))


def test_padding_that_is_summed_up_is_found(keep):
    def launch():
        sum_of_padding[(1,)](torch.rand(20), torch.empty(1), 20, BLOCK=32)

    (found,) = diverged(keep, launch, "padding")
    assert (found.got, found.variable) == ("nan", "x")
    assert found.at[-1].line == line_of(sum_of_padding, "x = tl.load")


@tkdebug.jit
def half_written(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at), at < BLOCK // 2)


def test_outputs_that_are_written_in_part_are_no_difference(keep):
    found = diverged(keep, launch_half, "outputs")
    assert [one.way for one in found] == ["outputs filled with NaNs", "outputs filled with zeros"]
    for one in found:
        assert one.same_bits
        assert one.note == "16 elements of y_ptr are not written"


@tkdebug.jit
def added_up(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + at % 2, tl.load(x_ptr + at))


def test_output_that_is_added_to_is_not_filled(keep):
    def launch():
        added_up[(2,)](torch.ones(64), torch.zeros(2), 64, BLOCK=32)

    (found,) = diverged(keep, launch, "outputs")
    assert found.refused == "no argument is only written"


def test_block_that_covers_a_row_is_not_made_smaller(keep):
    def launch():
        sum_of_padding[(1,)](torch.rand(20), torch.empty(1), 20, BLOCK=32)

    smaller, larger = diverged(keep, launch, "BLOCK")
    assert smaller.refused == "a block of 32 covers an extent of 20, 16 would not"
    assert larger.same_bits


def test_grid_in_numbers_follows_the_extent_that_was_cut(keep):
    def launch():
        scaled[(4,)](torch.rand(100), torch.empty(100), 100, BLOCK=32)

    (kept,) = keep(launch)
    assert scaled_grid(kept, {"BLOCK": 64}) == (2, 1, 1)
    assert scaled_grid(kept, {"BLOCK": 16}) == (7, 1, 1)

    def launch_by_rows():
        by_rows[(4,)](torch.rand(4, 40), torch.empty(4), 40, BLOCK=16)

    (kept,) = keep(launch_by_rows)
    assert scaled_grid(kept, {"BLOCK": 32}) == (4, 1, 1)

    def launch_ambiguous():
        scaled[(4,)](torch.rand(100), torch.empty(120), 100, BLOCK=32)

    (kept,) = keep(launch_ambiguous)
    found = list(Divergence(kept, "sm_80", SECONDS).ways("BLOCK"))
    assert len(found) == 2
    assert "give the grid as a function" in found[0].refused


@tkdebug.jit
def by_rows(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + row * n + at, at < n, other=0.0))
    tl.store(y_ptr + row, total)


def test_meta_parameters_of_an_axis_are_those_that_lay_out_its_programs():
    text = """
def kernel(M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BZ: tl.constexpr):
    pid = tl.program_id(axis=0)
    columns = tl.cdiv(N, BN)
    row, column = pid // columns, pid % columns
    rows = row * BM + tl.arange(0, BM)
    for k in range(0, K, BK):
        at = k + tl.arange(0, BK)
    z = tl.program_id(1) * BZ
"""
    names = dict.fromkeys(("BM", "BN", "BK", "BZ"))
    assert related_names(text, 0, names) == {"BM", "BN"}
    assert related_names(text, 1, names) == {"BZ"}
    assert related_names(text, 2, names) == set()


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("order", "the grid has one program"),
        ("padding", "no load has a mask and no other value"),
        ("native", "needs a GPU of sm_80"),
        ("TILE", "no meta-parameter of that name is a power of 2 (BLOCK)"),
    ],
)
def test_what_makes_no_sense_says_why(keep, what, reason):
    def launch():
        half_written[(1,)](torch.rand(32), torch.ones(32), BLOCK=32)

    (found,) = diverged(keep, launch, what)
    assert found.refused == reason


def test_other_version_is_compared_on_the_same_inputs(keep):
    (ours,) = keep(launch_scaled)
    (theirs,) = keep(lambda: tripled[blocks(100)](torch.rand(100), torch.empty(100), 100, BLOCK=64))
    divergence = Divergence(ours, "sm_80", SECONDS)
    found = divergence.look(divergence.against(theirs))
    assert found.difference.index == (0,)
    assert found.at[-1].line == line_of(tripled, "factor = ")
    other = divergence.against(keep(lambda: launch_half())[0])
    assert isinstance(other, Found)
    assert other.refused == "its kernel has other parameters"


def launch_half():
    half_written[(1,)](torch.rand(32), torch.ones(32), BLOCK=32)


@tkdebug.jit
def tripled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    factor = tl.load(x_ptr + at, at < n) * 3.0
    tl.store(y_ptr + at, factor, at < n)


def test_native_result_is_compared_by_its_elements(keep):
    (kept,) = keep(launch_scaled)
    divergence = Divergence(kept, "sm_80", SECONDS)
    wrong = {name: tensor.clone() for name, tensor in divergence.expected.tensors.items()}
    wrong["y_ptr"][7] += 1
    way = Way("native", kept, divergence.module, run=lambda: Outcome(wrong, kept.grid))
    found = divergence.look(way)
    assert (found.difference.index, found.at) == ((7,), ())
    assert divergence.look(replace(way, run=lambda: divergence.expected)).same_bits


def test_reports_have_the_line_and_the_values(keep):
    (kept,) = keep(launch_half)
    divergence = Divergence(kept, "sm_80", SECONDS)
    ways = [*divergence.ways("outputs"), *divergence.ways("order")]
    row = Diverged(kept, [w if isinstance(w, Found) else divergence.look(w) for w in ways])
    text = "".join(diverge_text([row]))
    shown = "outputs filled with NaNs: the same bits (16 elements of y_ptr are not written)"
    assert shown in text
    assert "order: left out: the grid has one program" in text
    data = json.loads("".join(diverge_json([row])))
    schema = json.loads((DOCS / "diverge.schema.json").read_text())
    jsonschema.validate(data, schema)
    (answer,) = data["launches"]
    assert set(answer) == set(schema["$defs"]["Diverged"]["properties"])
    assert set(answer["ways"][0]) == set(schema["$defs"]["Way"]["properties"])
    assert [way["same_bits"] for way in answer["ways"]] == [True, True, False]
    assert not row.differs(counts_bits=True)
