"""Gaps in tensors of 8- and 16-bit integers, whose elements have no mark each."""

from functools import partial

import numpy
import pytest
import torch
import unwritten_kernels as kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from marked_lines import line_of, only

from tkdebug.compat.around_torch.unwritten_memory import mark_empties, watch_gaps
from tkdebug.instrument import add_hook
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS
from tkdebug.interpreter.checks.unwritten.patterns import NarrowPatterns
from tkdebug.knobs import scope

line = partial(line_of, kernels)
TYPES = (torch.int8, torch.uint8, torch.int16, torch.uint16)


@pytest.fixture(params=["unwritten-output", "uninitialised-read"])
def reported(request):
    faults = []
    with scope(checks=(request.param,)), add_hook(fault=faults.append):
        undo = mark_empties(), watch_gaps()
        yield faults
        for stop in reversed(undo):
            stop()


by_output = pytest.mark.parametrize("reported", ["unwritten-output"], indirect=True)
by_read = pytest.mark.parametrize("reported", ["uninitialised-read"], indirect=True)


def double(n, blocks, dtype=torch.int8):
    """An output of `n` elements of which `blocks` blocks of 16 are written."""
    out = torch.empty(n, dtype=dtype)
    kernels.double.interpret[(blocks,)](torch.ones(n, dtype=dtype), out, n, BLOCK=16)
    return out


@by_output
@pytest.mark.parametrize("dtype", TYPES)
def test_comparison_of_an_output_with_a_gap(reported, dtype):
    out = double(80, 3, dtype)
    assert not reported
    torch.equal(out, torch.full((80,), 2, dtype=dtype))
    fault = only(reported)
    assert (fault.kind, fault.line) == ("unwritten-output", line("GAP double"))
    assert (fault.index, fault.count) == (48, 32)
    assert fault.message.endswith("the first at position 48; torch's `equal` reads some of them")


@by_output
@pytest.mark.parametrize(
    "look",
    [
        lambda out: torch.equal(out.cpu().clone(), torch.ones(80, dtype=torch.int8)),
        lambda out: out.float().sum(),
        lambda out: out.view(4, 20).contiguous().sum(),
        lambda out: out[::2].to(torch.int32).max(),
        lambda out: out.view(torch.uint8).sum(),
        lambda out: numpy.array_equal(out.numpy(), numpy.ones(80)),
        lambda out: torch.cat([torch.zeros(5, dtype=torch.int8), out]).sum(),
        repr,
    ],
)  # fmt: skip
def test_reads_of_a_gap(reported, look):
    look(double(80, 3))
    assert only(reported).count == 32


@by_output
@pytest.mark.parametrize(
    "look",
    [
        lambda out: out[:48].sum(),
        lambda out: out.clone()[:48].tolist(),
        lambda out: out.float()[:48].sum(),
        lambda out: kernels.double.interpret[(5,)](out, torch.zeros(80), 80, BLOCK=16),
        lambda out: out[48:].zero_() + out.sum(),
        lambda out: out.shape,
    ],
)
def test_gaps_that_nothing_reads(reported, look):
    out = double(80, 3)
    look(out)
    del out
    HELD_GAPS.end()
    assert not reported


@by_output
def test_outputs_that_are_written_in_full(reported):
    for dtype in TYPES:
        assert int(double(80, 5, dtype).sum()) == 160
        assert double(7, 1, dtype).tolist() == [2] * 7
    # Memory that another tensor gets again is that one's.
    for size in (48, 4096):
        for _ in range(20):
            torch.empty(size, dtype=torch.uint8)
            assert not torch.zeros(size, dtype=torch.uint8).any()
    assert not reported


@by_output
def test_output_that_is_never_read(reported):
    out = double(80, 3)
    HELD_GAPS.end()
    assert only(reported).count == 32
    del out


@by_read
@pytest.mark.parametrize("dtype", TYPES)
def test_kernel_that_reads_a_gap(reported, dtype):
    parts = double(80, 3, dtype)
    kernels.double.interpret[(5,)](parts, torch.zeros(80), 80, BLOCK=16)
    fault = only(reported)
    assert (fault.kind, fault.line) == ("uninitialised-read", line("GAP double"))
    assert (fault.tensor, fault.index, fault.count) == ("x_ptr", 48, 32)


@by_read
def test_kernel_that_reads_what_was_written(reported):
    parts = double(80, 3)
    kernels.double.interpret[(3,)](parts, torch.zeros(80), 80, BLOCK=16)
    whole = double(80, 5)
    kernels.double.interpret[(5,)](whole, torch.zeros(80), 80, BLOCK=16)
    kernels.double.interpret[(5,)](whole[3:], torch.zeros(77), 77, BLOCK=16)
    assert not reported


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 399), st.integers(1, 90)), max_size=6), st.integers(0, 30))
def test_stretches_that_were_not_written(written, skipped):
    patterns = NarrowPatterns()
    whole = torch.zeros(400, dtype=torch.uint8)
    patterns.fill(whole.untyped_storage())
    expected = torch.ones(400, dtype=torch.bool)
    for start, count in written:
        whole[start : start + count] ^= 255
        expected[start : start + count] = ~expected[start : start + count]
    found = patterns.marked(whole)
    found = torch.zeros(400, dtype=torch.bool) if found is None else found
    # What is said was not written; of what was not, all stretches of two words and more.
    assert not bool((found & ~expected).any())
    edges = torch.cat([torch.zeros(1), expected.float(), torch.zeros(1)]).diff().nonzero().ravel()
    for start, end in edges.view(-1, 2).tolist():
        if end - start >= 15:
            assert bool(found[start:end].all())
    view = whole[skipped:].unfold(0, 20, 10)
    again = patterns.marked(view)
    assert again is None or torch.equal(again, found[skipped:].unfold(0, 20, 10))
