"""Alike lines that follow each other, shown as one."""

from __future__ import annotations

import pytest

from tkdebug.instrument.passes.kernel_passes import OpLine
from tkdebug.instrument.passes.summary import LineRun, run_text, runs_of


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("  %v{n} = extractvalue {{ float, float }} %v9, {n}", "extractvalue"),
        ("\tmov.b32 \t%r{n}, 0f00000000;", "mov.b32"),
        ("\t@%p{n} st.shared.v4.b32 [%r1], {{}};", "st.shared.v4.b32"),
        ("        /*0{n}0*/  @!P1 STG.E R{n}, R2", "STG.E"),
    ],
)
def test_runs_of_one_instruction_are_reported_once(text, name):
    lines = [OpLine(n, text.format(n=n)) for n in range(10, 20)]
    (run,) = runs_of(lines)
    assert run == LineRun(lines[0], 9, name)
    assert run_text(run) == f"9 more of {name}, up to line 19"


def test_runs_end_at_other_instructions_gaps_and_where_they_are_short():
    lines = [OpLine(n, "add.s32 a;") for n in (1, 2, 3, 4, 5)]
    lines += [OpLine(n, "add.s32 a;") for n in (7, 8)]
    lines += [OpLine(9, "ret;")]
    assert [(run.first.line, run.more) for run in runs_of(lines)] == [
        (1, 4),
        (7, 0),
        (8, 0),
        (9, 0),
    ]


def test_ops_of_the_ir_stay_by_themselves():
    lines = [OpLine(n, f"  %{n} = tt.load %p", op_id=n) for n in range(1, 9)]
    assert [run.first for run in runs_of(lines)] == lines
