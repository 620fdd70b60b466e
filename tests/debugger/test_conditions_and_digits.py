"""Expressions with ids of fewer axes, `if` as gdb has it, and all digits of one element."""

import math

import pytest
import torch

from tkdebug.debugger.console.breakpoint_commands import split_condition
from tkdebug.debugger.expressions import EvaluationError, ProgramNumber, ProgramPlace
from tkdebug.debugger.value_text import element_text
from tkdebug.errors import UsageError

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
FLOATS += [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_an_element_has_the_fewest_digits_that_give_it_back(dtype):
    torch.manual_seed(0)
    values = (torch.randn(200, dtype=torch.float64) * 10.0 ** torch.randint(-4, 5, (200,))).to(
        dtype
    )
    for value in values:
        text = element_text(value)
        digits = len(text.partition("e")[0].strip("-").replace(".", "").strip("0"))
        assert torch.tensor(float(text), dtype=torch.float64).to(dtype).double() == value.double()
        shorter = float(f"{value.item():.{digits - 1}g}") if digits > 1 else math.nan
        assert torch.tensor(shorter, dtype=torch.float64).to(dtype).double() != value.double()


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, torch.float32, "0.1"),
        (0.1, torch.float64, "0.1"),
        (0.1, torch.float16, "0.1"),
        (79.09837341308594, torch.float32, "79.09837"),
        (16777216.0, torch.float32, "16777216"),
        (100.0, torch.float16, "100"),
        (-0.0, torch.float32, "-0"),
        (1e-45, torch.float32, "1e-45"),
        (3.4028234663852886e38, torch.float32, "3.4028235e+38"),
        (448.0, torch.float8_e4m3fn, "450"),
        (math.nan, torch.bfloat16, "nan"),
        (-math.inf, torch.float32, "-inf"),
        (2**63 - 1, torch.int64, "9223372036854775807"),
        (True, torch.bool, "True"),
    ],
)
def test_elements_read_as_people_write_them(value, dtype, text):
    wide = torch.float64 if dtype.is_floating_point else dtype
    assert element_text(torch.tensor(value, dtype=wide).to(dtype)) == text


KERNELS = """\
import torch, triton, triton.language as tl

@triton.jit
def rows(x_ptr, out_ptr, n):
    at = tl.program_id(0) * n + tl.program_id(1)
    x = tl.load(x_ptr + at)
    half = x / 3
    tl.store(out_ptr + at, half)

x = torch.full((4, 2), 79.09837)
rows[(4,)](x, x.clone(), 1)
rows[(4, 2)](x, x.clone(), 2)
"""


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "rows.py"
    file.write_text(KERNELS)
    return file


def test_a_single_element_is_printed_with_all_of_its_digits(run, script):
    typed = ["b 8", "c", "p x_ptr[0, 1]", "pid 2", "p x_ptr[0, 1], half, x, (half, 1)"]
    typed += ["p half * 1.0", "whatis half", "q", ""]
    _, out, _ = run(script, typed="\n".join(typed))
    assert "(tkdebug) x_ptr[0, 1] = 79.09837\n" in out
    assert (
        "x_ptr[0, 1] = 79.09837\nhalf = 26.366125\nx = 79.09837\n(half, 1) = (26.366125, 1)" in out
    )
    assert "half * 1.0 = 26.366125106811523\n" in out
    assert "(tkdebug) fp32\n" in out


@pytest.mark.parametrize(
    ("condition", "stops"),
    [
        ("pid == (3, 0, 0)", ["program 3", "program (3, 0)"]),
        ("pid == (3, 1)", ["program (3, 1)"]),
        ("pid == [3, 0]", ["program 3", "program (3, 0)"]),
        ("pid in ((3, 0, 0), (9, 9))", ["program 3", "program (3, 0)"]),
        ("program == (3, 1)", ["program (3, 1)"]),
        ("grid == (4, 2) and pid == (0, 1, 0)", ["program (0, 1)"]),
        ("grid == (4,) and pid != (1, 0) and pid > 0", ["2 programs"]),
    ],
)
def test_ids_of_fewer_or_more_axes_are_compared_as_if_they_had_all(run, script, condition, stops):
    _, out, _ = run(script, typed=f"b 8 if {condition}\nc\npid all\nc\nq\n")
    lines = [line for line in out.splitlines() if line.startswith("   launch ")]
    assert len(lines) == len(stops)
    for line, stop in zip(lines, stops, strict=True):
        assert stop in line
    assert "failed" not in out


@pytest.mark.parametrize(
    ("place", "other", "message"),
    [
        (ProgramNumber(3), (3, 0, 0, 0), "`pid` never equals 4 numbers: a grid has 3 axes"),
        (
            ProgramPlace((3, 0)),
            3,
            "`pid` is 2 numbers and never equals 3: compare pid[0], or pid ==",
        ),
        (ProgramPlace.named((4, 1, 1), "grid", 1), 4, "`grid` is 3 numbers and never equals 4"),
    ],
)
def test_a_comparison_that_never_holds_is_refused(place, other, message):
    with pytest.raises(EvaluationError) as raised:
        _ = place == other
    assert message in str(raised.value)
    with pytest.raises(EvaluationError):
        _ = place != other


def test_a_program_s_number_is_a_number_otherwise():
    assert ProgramNumber(3) == 3
    assert ProgramNumber(3) != (4, 0)
    assert {ProgramNumber(3): 1}[3] == 1
    assert (torch.arange(4) == ProgramNumber(3)).tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("42", ("42", None)),
        ("a.py:42 if n > 3", ("a.py:42", "n > 3")),
        ("a.py:42, n if n > 3 else 0", ("a.py:42", "n if n > 3 else 0")),
        ("kernel if f(a, b)", ("kernel", "f(a, b)")),
        ("kernel if(n > 3)", ("kernel", "(n > 3)")),
        ("op scf.if", ("op scf.if", None)),
        ("op scf.if if n", ("op scf.if", "n")),
        ("if/kernel.py:3", ("if/kernel.py:3", None)),
        ("fault oob-load\tif pid == 1", ("fault oob-load", "pid == 1")),
    ],
)
def test_a_condition_comes_after_a_comma_or_if(text, parts):
    assert split_condition(text) == parts


@pytest.mark.parametrize("text", ["42 if", "42,", "kernel if "])
def test_a_condition_that_is_left_out_is_asked_for(text):
    with pytest.raises(UsageError, match="expected a condition after `"):
        split_condition(text)


def test_if_is_for_lines_of_the_script_and_of_kernels(run, script):
    name = script.name
    typed = [f"b {name}:8 if pid == 2", "tbreak rows if n == 2", "b 12 if x is None"]
    typed += ["b 12 if x.sum() > 1", "c", "c", "c", "q", ""]
    _, out, _ = run(script, typed="\n".join(typed))
    stops = [line.partition(name)[2] for line in out.splitlines() if f"{name}(" in line]
    assert stops == ["(1)<module>()", "(8)rows()", "(12)<module>()", "(5)rows()"]
    assert "   launch 1, program 2; " in out
