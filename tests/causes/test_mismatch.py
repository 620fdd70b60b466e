"""Comparisons that fail: what is reported, and the edit that fixes the launch."""

import gc
from functools import partial
from types import SimpleNamespace

import mismatched_kernels as kernels
import numpy
import pytest
import torch
from marked_lines import line_of
from mismatched_kernels import mismatch

import tkdebug
from tkdebug.causes.launches import REMEMBERED, Launched, RememberedLaunches
from tkdebug.compat.around_torch.failed_comparisons import watch_failures
from tkdebug.knobs import scope

line = partial(line_of, kernels)
N = 96


def scaled(x, s, out):
    kernels.scaled_rows[(3, 3)](x, s, out, N, N, *x.stride(), BM=32, BN=32)


def softmax(x, kernel=kernels.softmax):
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
    return y


def edited_lines(fault):
    return [edit.line for edit in fault.cause.edits]


GPU = pytest.param("cuda", marks=pytest.mark.gpu, id="gpu")


@pytest.mark.parametrize("device", ["cpu", "cuda", GPU])
def test_an_edit_that_fixes_the_launch_is_named_with_its_line(faults, device):
    x, s = torch.randn(N, N).to(device), torch.randn(N).to(device)
    out = torch.empty_like(x)
    scaled(x, s, out)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, x * s[:, None])
    fault = mismatch(faults)
    assert (fault.kernel, fault.line, fault.tensor) == ("scaled_rows", line("WRONG rows"), "o_ptr")
    assert "wrong: all but the diagonal" in fault.message
    assert fault.cause.verdict == "fixes"
    (after,) = fault.cause.edits[0].after
    assert "rm[:, None] * sxm + rn[None, :] * sxn" in after


def test_the_scripts_default_device_is_not_the_searchs(faults):
    x, s, out = torch.randn(N, N), torch.randn(N), torch.empty(N, N)
    scaled(x, s, out)
    with torch.device("meta"), pytest.raises(AssertionError):
        torch.testing.assert_close(out, x * s[:, None])
    assert "wrong: all but the diagonal" in mismatch(faults).message
    assert mismatch(faults).cause.verdict == "fixes"


def test_one_element_alone_may_be_compared(faults):
    x = torch.randn(5, 100)
    y = softmax(x)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(y[3, 7], torch.softmax(x, 1)[3, 7])
    assert (mismatch(faults).kernel, mismatch(faults).tensor) == ("softmax", "y_ptr")


def test_the_scripts_memory_is_as_it_was(faults):
    x, s, out = torch.randn(N, N), torch.randn(N), torch.empty(N, N)
    scaled(x, s, out)
    before = [tensor.clone() for tensor in (x, s, out)]
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, x * s[:, None])
    assert all(map(torch.equal, (x, s, out), before))


def test_a_comparison_that_holds_is_no_fault(faults):
    x = torch.randn(5, 100)
    torch.testing.assert_close(softmax(x, kernels.right_softmax), torch.softmax(x, 1))
    assert torch.allclose(softmax(x, kernels.right_softmax), torch.softmax(x, 1), atol=1e-6)
    assert faults == []


def test_comparisons_that_the_interpreter_makes_are_not_the_scripts():
    data, lock, failed = torch.zeros(16), torch.zeros(1, dtype=torch.int32), []
    stop = watch_failures(failed.append)
    try:
        kernels.locked_add[(4,)](data, lock)
        assert failed == []
        assert not torch.allclose(data, torch.zeros(16))
        assert torch.equal(data, torch.ones(16)) is False
    finally:
        stop()
    assert [each.function for each in failed] == ["torch.equal"]
    assert data.tolist() == [4.0] * 16


def test_an_element_that_no_launch_wrote_is_no_fault(faults):
    softmax(torch.randn(5, 100))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(torch.zeros(5, 100), torch.ones(5, 100))
    assert faults == []


@pytest.mark.parametrize(
    "compare",
    [
        lambda y, want: torch.testing.assert_close(y, want),
        lambda y, want: torch.testing.assert_close(y.double(), want.double(), rtol=1e-4, atol=1e-4),
        lambda y, want: torch.testing.assert_close([want, y], [want, want]),
        lambda y, want: numpy.testing.assert_allclose(y.numpy(), want.numpy(), rtol=1e-4),
        lambda y, want: numpy.testing.assert_array_almost_equal(y.clone().numpy(), want.numpy()),
        lambda y, want: tkdebug.testing.assert_close(y, want),
        lambda y, want: tkdebug.expect(y, want),
        lambda y, want: tkdebug.expect(y, lambda: want, rtol=1e-3),
    ],
)
def test_every_way_to_compare_leads_to_the_cause(faults, compare):
    x = torch.randn(5, 100)
    y = softmax(x)
    with pytest.raises(AssertionError):
        compare(y, torch.softmax(x, 1))
    fault = mismatch(faults)
    assert fault.severity == "error"
    assert fault.line == edited_lines(fault)[0] == line("WRONG base")


def test_an_asserted_answer_is_a_failure(faults):
    x = torch.randn(5, 100)
    y = softmax(x)
    with pytest.raises(AssertionError):
        assert torch.allclose(y, torch.softmax(x, 1))
    assert mismatch(faults).severity == "error"


@pytest.mark.parametrize(
    "ask",
    [
        lambda y, want: torch.allclose(y, want),
        lambda y, want: torch.equal(y, want),
        lambda y, want: torch.isclose(y, want).all(),
        lambda y, want: numpy.allclose(y.numpy(), want.numpy()),
    ],
)
def test_a_question_is_a_warning_without_a_search(faults, ask):
    x = torch.randn(5, 100)
    y = softmax(x)
    answer = ask(y, torch.softmax(x, 1))
    assert not answer
    fault = mismatch(faults)
    assert (fault.severity, fault.cause.edits, fault.cause.tried) == ("warning", (), 0)


def test_a_difference_that_is_asserted_is_no_fault(faults):
    x = torch.randn(5, 100)
    y = softmax(x)
    assert not torch.equal(y, torch.softmax(x, 1))
    assert all(not torch.equal(each, torch.softmax(x, 1)) for each in (y, 2 * y))
    assert any([not torch.equal(each, torch.softmax(x, 1)) for each in (y, x)])
    assert faults == []


def test_each_of_several_comparisons_is_asserted(faults):
    x = torch.randn(5, 100)
    y = softmax(x)
    with pytest.raises(AssertionError):
        assert all(torch.equal(each, torch.softmax(x, 1)) for each in (y,))
    assert mismatch(faults).severity == "error"


def test_a_fault_in_a_function_that_the_kernel_calls_is_found_there(faults):
    x, out = torch.randn(100), torch.empty(100)
    kernels.twice[(2,)](x, out, 100, BLOCK=64)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, 2 * x)
    assert mismatch(faults).line == line("WRONG callee")


def test_launches_that_wrote_what_the_last_one_read_are_searched_too(faults):
    x, middle, out = torch.randn(100), torch.empty(100), torch.empty(100)
    kernels.added[(2,)](x, middle, 100, BLOCK=64)
    kernels.added[(2,)](middle, out, 100, BLOCK=64)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, x + 2)
    assert mismatch(faults).line == line("WRONG first")


def test_an_edit_is_made_in_all_launches_that_work_in_place(faults):
    p, b = torch.randn(20), torch.zeros(20)
    expected, sums = p.clone(), b.clone()
    for g in torch.randn(3, 20):
        kernels.momentum[(1,)](p, g, b, 0.25, 20, BLOCK=32)
        sums = 0.5 * sums + g
        expected = expected - 0.25 * sums
    with pytest.raises(AssertionError):
        torch.testing.assert_close(p, expected)
    fault = mismatch(faults)
    assert (fault.line, fault.cause.verdict) == (line("WRONG step"), "fixes")
    assert "p - rate * new" in fault.cause.edits[0].after[0]


@pytest.fixture
def large(monkeypatch):
    """Arguments of any size count as too large to be copied."""
    monkeypatch.setattr("tkdebug.causes.launches._SMALL_BYTES", 0)


def test_little_that_a_launch_was_given_is_kept(faults):
    s, out = torch.randn(N), torch.empty(N, N)
    x = torch.randn(N, N)
    want = x * s[:, None]
    scaled(x.clone(), s, out)
    s.zero_()
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, want)
    assert mismatch(faults).line == line("WRONG rows")


def test_a_changed_input_is_said_and_nothing_is_guessed(faults, large):
    x, s, out = torch.randn(N, N), torch.randn(N), torch.empty(N, N)
    scaled(x, s, out)
    want = x * s[:, None]
    x.zero_()
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, want)
    fault = mismatch(faults)
    assert (fault.cause.verdict, fault.cause.tried) == ("undecided", 0)
    assert fault.cause.lacks_inputs
    assert "has changed since; `--cause` keeps that" in fault.hint


def test_a_kernel_that_works_in_place_needs_its_inputs_kept(faults, large):
    def launched():
        x = torch.randn(100)
        want = x * 2
        kernels.in_place[(2,)](x, 100, BLOCK=64)
        with pytest.raises(AssertionError):
            torch.testing.assert_close(x, want)

    launched()
    assert mismatch(faults).cause.verdict == "undecided"
    faults.clear()
    with scope(cause=True):
        launched()
    fault = mismatch(faults)
    assert fault.line == line("WRONG place")
    assert "* 2.0" in fault.cause.edits[0].after[0]


def test_an_argument_that_was_freed_is_said(faults, large):
    x, s, out = torch.randn(N, N), torch.randn(N), torch.empty(N, N)
    scaled(x, s, out)
    want = x * s[:, None]
    del x
    gc.collect()
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, want)
    assert "an argument of the launch was freed since" in mismatch(faults).hint


def test_forgotten_launches_keep_no_copies():
    launches = RememberedLaunches()
    given, grid = (torch.ones(4),), (77, 1, 1)
    for _ in range(REMEMBERED + 10):
        launches.ended(None, grid, given, 0, launches.begins(given))
    found = (one for one in gc.get_objects() if isinstance(one, Launched))
    assert sum(one.grid is grid for one in found) == REMEMBERED


def test_the_launch_before_is_the_one_that_wrote_what_a_chain_reads_first():
    def launched(needed, stored):
        return SimpleNamespace(
            needed_storages=lambda: frozenset(needed), stored_storages=lambda: frozenset(stored)
        )

    launches = RememberedLaunches()
    filled, apart, updated, read = (
        launched((), (1,)), launched((), (9,)), launched((1,), (1,)), launched((1,), (2,))
    )  # fmt: skip
    launches._launches.extend((filled, apart, updated, read))
    assert launches.writer_before([read]) is updated
    # It is updated in place: what it held before matters, although the chain writes it, too.
    assert launches.writer_before([updated, read]) is filled
    assert launches.writer_before([filled, updated, read]) is None


def test_a_temporary_argument_is_kept_where_that_is_asked_for(faults):
    s, out = torch.randn(N), torch.empty(N, N)
    x = torch.randn(N, N)
    with scope(cause=True):
        scaled(x.clone(), s, out)
        with pytest.raises(AssertionError):
            torch.testing.assert_close(out, x * s[:, None])
    assert mismatch(faults).line == line("WRONG rows")


def test_precision_that_is_lost_is_told_from_a_wrong_formula(faults):
    x, out = torch.ones(64), torch.empty(64)
    x[:32] = 1e8
    kernels.suffix_sums[(1,)](x, out, N=64)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, x.double().flip(0).cumsum(0).flip(0).float())
    fault = mismatch(faults)
    assert (fault.cause.verdict, fault.line) == ("precision", line("WRONG precision"))
    assert fault.cause.losses[0].value == "1"
    assert fault.cause.losses[0].cause in ("order", "cancellation", "rounding")
    assert "in fp64 the launch agrees" in fault.hint


def test_a_tensor_in_a_tuple_is_known_to_be_wrong(faults):
    x, out = torch.rand(8), torch.zeros(8)
    kernels.tripled[(1,)](x, (out, 1), N=8)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, x * 3)
    fault = mismatch(faults)
    assert (fault.tensor, fault.line) == ("out.0", line("WRONG factor"))
    assert edited_lines(fault) == [fault.line]


def test_a_difference_of_nearly_equal_numbers_is_the_line_that_loses(faults):
    x, out = torch.randn(4, 128) + 3000, torch.empty(4)
    kernels.variances[(4,)](x, out, 128, N=128)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, x.double().var(1, correction=0).float())
    fault = mismatch(faults)
    assert fault.line == line("WRONG variance")
    assert fault.cause.losses[0].cause == "cancellation"


def test_an_accumulator_that_is_too_narrow_is_edited_where_it_is_made(faults):
    x, out = torch.rand(256, 16).half(), torch.empty(16)
    kernels.half_sums[(1,)](x, out, 256, B=16)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(out, x.float().sum(0))
    fault = mismatch(faults)
    assert edited_lines(fault)[0] == fault.line == line("WRONG accumulator")
    assert "dtype=tl.float32" in fault.cause.edits[0].after[0]
    assert fault.cause.losses[0].line == line("WRONG accumulator") + 2
    assert fault.cause.losses[0].cause == "accumulator"


def test_a_search_ends_with_its_budget(faults):
    x, s, out = torch.randn(N, N), torch.randn(N), torch.empty(N, N)
    scaled(x, s, out)
    with pytest.raises(AssertionError), scope(cause_seconds=0.001):
        torch.testing.assert_close(out, x * s[:, None])
    assert mismatch(faults).cause.verdict == "undecided"


def test_only_some_causes_are_looked_for_in_a_run(faults):
    x = torch.randn(5, 100)
    for _ in range(4):
        with pytest.raises(AssertionError):
            torch.testing.assert_close(softmax(x), torch.softmax(x, 1))
    verdicts = [fault.cause.verdict for fault in faults]
    assert verdicts == ["fixes"] * 3 + ["undecided"]
    assert "3 times in a run" in faults[-1].hint


def test_expect_compares_without_tkdebug():
    tkdebug.expect(torch.ones(3), torch.ones(3, dtype=torch.float64))
    with pytest.raises(AssertionError, match="not close"):
        tkdebug.expect(torch.ones(3), lambda: torch.zeros(3))


def test_lines_that_go_and_come_are_printed(faults, capsys):
    from tkdebug.fault_printing.text import describe

    x = torch.randn(5, 100)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(softmax(x), torch.softmax(x, 1))
    text = describe(mismatch(faults))
    at = line("WRONG base")
    assert "with this edit the launch agrees:" in text
    assert f"{at} - e = tl.exp2(x - tl.max(x, axis=0))" in text
    assert f"{at} + e = tl.exp(x - tl.max(x, axis=0))" in text
