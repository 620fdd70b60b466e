"""The kernels of examples and of the interpreter's tests, interpreted and on the GPU, agree.

What may differ, and by how much, is `agreeing_corpus.TOLERANCES` with its reasons. Kernels that
cannot be compared are counted by reason; each of the reasons is known.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from agreeing_corpus import ORDER, Agreement, Rounding, Row, difference, read_rows

import tkdebug
import tkdebug.language as tl
from tkdebug.compat.around_torch.unwritten_memory import mark_empties, watch_gaps
from tkdebug.interpreter.launch import run_module
from tkdebug.runtime.arguments.specialize import runtime_values

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
ALIGNED = ("attention", "layer_norm", "matmul", "softmax", "vector_add")
# As many at the least are compared, of the interpreter's tests.
ENOUGH = 150


def rows_of(report: Path, *command: str) -> list[Row]:
    report.touch()
    path = os.pathsep.join((str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    rows = read_rows(report)
    assert rows, f"ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}"
    return rows


def check(rows: list[Row]) -> None:
    wrong = [row for row in rows if row.result == "different"]
    counts = Counter((row.result, row.detail) for row in rows if row.result != "different")
    shown = [f"{row.kernel} ({row.where}): {row.detail}" for row in wrong]
    print("\n".join(f"{count:5} {result}: {why}" for (result, why), count in counts.items()))
    assert not wrong, f"{len(wrong)} of {len(rows)} launches differ\n" + "\n".join(shown)


@pytest.mark.gpu
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_agrees(name, tmp_path):
    script = str(ROOT / "examples" / f"{name}.py")
    command = (str(HERE / "agreeing_corpus.py"), "--agree-report", str(tmp_path / "rows"), script)
    check(rows_of(tmp_path / "rows", *command))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ALIGNED)
def test_aligned_example_agrees(name, tmp_path):
    script = (str(HERE / "aligned_examples.py"), name)
    command = (str(HERE / "agreeing_corpus.py"), "--agree-report", str(tmp_path / "rows"), *script)
    check(rows_of(tmp_path / "rows", *command))


@pytest.mark.gpu
def test_kernels_of_the_interpreters_tests_agree(tmp_path):
    report = tmp_path / "rows"
    command = ["-m", "pytest", "tests/interpreter", "-q", "-p", "agreeing_corpus"]
    command += ["--agree-report", str(report), "-p", "no:cacheprovider"]
    # Those install the stand-in's CUDA over memory that a GPU cannot reach.
    command += ["-k", "not on_a_gpu"]
    if importlib.util.find_spec("xdist") is not None:
        command += ["-n", "8"]
    rows = rows_of(report, *command)
    check(rows)
    assert sum(row.result in ("equal", "close") for row in rows) >= ENOUGH


# What the comparison rests on; needs no GPU.


def interpret_again(kernel, grid, values):
    run_module(kernel.module, runtime_values(kernel.src.specs, values), grid, None, kernel.name)


@tkdebug.jit
def scaled_sum(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


def repeated(run, start=0, bound=None):
    memory = torch.randn(400)
    x, y, out = memory[start:100], memory[100:200], memory[203:303]
    agreement = Agreement(run, "cpu")
    with agreement.checking():
        for _ in range(3):
            scaled_sum[(2,)](x, y, out, bound or 100 - start, BLOCK=64)
    return agreement.rows


def test_a_launch_is_repeated_from_the_same_memory():
    rows = repeated(interpret_again)
    assert [(row.kernel, row.result) for row in rows] == [("scaled_sum", "equal")] * 2


def test_a_gap_in_an_output_is_the_same_in_its_copies():
    agreement = Agreement(interpret_again, "cpu")
    with tkdebug.knobs.scope(checks=("unwritten-output",)), contextlib.ExitStack() as stack:
        for stop in (mark_empties(), watch_gaps()):
            stack.callback(stop)
        given, out = torch.ones(80, dtype=torch.int8), torch.empty(80, dtype=torch.int8)
        with agreement.checking():
            scaled_sum[(3,)](given, given, out, 80, BLOCK=16)
    assert [(row.result, row.detail) for row in agreement.rows] == [("equal", "")]


@tkdebug.jit
def shifted_in_place(x, divisor, STEP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at + STEP) // divisor)


@pytest.mark.parametrize(
    ("step", "divisor", "wanted"),
    [
        (0, 1, "different"),
        (1, 1, ORDER),
        (20, 1, ORDER),
        (0, 0, "it has faults"),
    ],
)
def test_launches_of_several_results_are_reported(step, divisor, wanted):
    memory = torch.arange(64)

    def run_elsewhere(kernel, grid, values):
        values[0].fill_(-1)

    agreement = Agreement(run_elsewhere, "cpu")
    with agreement.checking():
        shifted_in_place[(2,)](memory[8:], divisor, STEP=step, BLOCK=16)
    (row,) = agreement.rows
    assert wanted in (row.result, row.detail)
    assert (row.result == "different") == (wanted == "different")


@tkdebug.jit
def after_the_first(ready, out):
    pid = tl.program_id(0)
    if pid == 1:
        while tl.load(ready) == 0:
            pass
    tl.store(out + pid, pid)
    tl.store(ready, 1)


@tkdebug.jit
def promised(offset, out):
    start = tl.multiple_of(offset, 8)
    tl.store(out + start + tl.arange(0, 8), 1)


@pytest.mark.parametrize(
    ("kernel", "grid", "number", "why"),
    [(after_the_first, 2, 0, "its programs wait"), (promised, 1, 3, "it has faults")],
)
def test_launches_that_a_gpu_may_do_otherwise_are_left_alone(kernel, grid, number, why):
    def refuse(*launch):
        raise AssertionError("launched")

    agreement = Agreement(refuse, "cpu")
    first = torch.tensor([number], dtype=torch.int32) if grid == 2 else number
    with agreement.checking():
        kernel[(grid,)](first, torch.zeros(64, dtype=torch.int32))
    (row,) = agreement.rows
    assert row.result == "not run"
    assert row.detail.startswith(why)


def test_views_keep_their_place_in_memory():
    seen = []

    def note(kernel, grid, values):
        seen.append([value.data_ptr() for value in values if isinstance(value, torch.Tensor)])
        interpret_again(kernel, grid, values)

    assert repeated(note, start=3)[0].result == "equal"
    assert [address - seen[0][0] for address in seen[0]] == [0, 4 * 97, 4 * 200]


def test_a_difference_is_reported():
    def wrong(kernel, grid, values):
        interpret_again(kernel, grid, values)
        values[2][7] += 1e-6

    assert "1 of 400 torch.float32 differ" in repeated(wrong)[0].detail


def test_an_error_is_reported():
    def broken(kernel, grid, values):
        raise RuntimeError("no such register")

    assert repeated(broken)[0].detail == "RuntimeError: no such register"


def test_kernels_with_faults_are_not_launched():
    (row, _) = repeated(interpret_again, bound=300)
    assert (row.result, row.detail) == ("not run", "it has faults")


SINGLE = Rounding("math.exp", has_sums=True, relative=1e-5)
DOUBLE = Rounding("tt.reduce", has_sums=True, relative=1e-13)


def test_integers_and_nan_have_no_tolerance():
    assert difference(torch.tensor([1]), torch.tensor([2]), SINGLE)
    assert difference(torch.tensor([float("nan")]), torch.tensor([1.0]), SINGLE)
    got, wanted = torch.tensor([float("nan"), 1.0]), torch.tensor([float("nan"), 1 + 1e-7])
    assert not difference(got, wanted, SINGLE)


def test_single_numbers_stored_as_doubles_differ_as_singles_do():
    got = torch.tensor([1 - 2.0**-24], dtype=torch.float64)
    wanted = torch.ones(1, dtype=torch.float64)
    assert not difference(got, wanted, SINGLE)
    assert difference(got, wanted, DOUBLE)


@tkdebug.jit
def exponentials(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.exp(tl.load(x + at)))


@pytest.mark.parametrize(
    ("dtype", "result"), [(torch.float32, "close"), (torch.float64, "different")]
)
def test_the_tolerance_is_of_what_the_kernel_calculates(dtype, result):
    def run_a_little_off(kernel, grid, values):
        interpret_again(kernel, grid, values)
        values[1].mul_(1 - 2.0**-24)

    agreement = Agreement(run_a_little_off, "cpu")
    with agreement.checking():
        exponentials[(1,)](
            torch.zeros(16, dtype=dtype), torch.empty(16, dtype=torch.float64), BLOCK=16
        )
    assert [row.result for row in agreement.rows] == [result]
