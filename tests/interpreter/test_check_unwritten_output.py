"""`--check unwritten-output`: gaps in fresh tensors, reported once something reads them."""

import importlib
import io
import sys
from functools import partial

import numpy
import numpy.testing
import pytest
import torch
import unwritten_kernels as kernels
from marked_lines import line_of, only

from tkdebug.compat.around_torch.unwritten_memory import mark_empties, watch_comparisons, watch_gaps
from tkdebug.instrument import add_hook
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS, HeldGaps
from tkdebug.interpreter.checks.unwritten.patterns import MARKS
from tkdebug.knobs import scope
from tkdebug.records.events import Fault
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.benchmark.testing import assert_close

line = partial(line_of, kernels)
ones = torch.ones


@pytest.fixture(autouse=True)
def reported():
    faults = []
    with scope(checks=("unwritten-output",)), add_hook(fault=faults.append):
        undo = mark_empties(), watch_gaps()
        yield faults
        for stop in reversed(undo):
            stop()


def double(n, blocks, dtype=torch.float32):
    """An output of `n` elements of which `blocks` blocks of 16 are written."""
    out = torch.empty(n, dtype=dtype)
    kernels.double.interpret[(blocks,)](ones(n, dtype=dtype), out, n, BLOCK=16)
    return out


# Gaps that are read


@pytest.mark.parametrize("dtype", MARKS)
def test_sum_of_an_output_with_a_gap(reported, dtype):
    out = double(50, 3, dtype)
    assert not reported
    out.sum()
    fault = only(reported)
    assert (fault.kind, fault.severity) == ("unwritten-output", "warning")
    assert (fault.line, fault.tensor) == (line("GAP double"), "out_ptr")
    assert (fault.index, fault.count) == (48, 2)
    assert "2 of the 50 elements of `out_ptr`" in fault.message
    assert fault.message.endswith("the first at position 48; torch's `sum` reads some of them")
    assert "the grid, (3, 1, 1), too small" in fault.hint
    out.sum()
    assert len(reported) == 1


@pytest.mark.parametrize(
    "look",
    [
        lambda out: torch.allclose(out, ones(50)),
        lambda out: torch.testing.assert_close(out[:48], 2 * ones(48)) or (out - 1).max(),
        lambda out: repr(out),
        lambda out: out.clone().mean(),
        lambda out: out.reshape(5, 10).t().contiguous().tolist(),
        lambda out: torch.cat([ones(3), out]).sum(),
        lambda out: ones(50).copy_(out).sum(),
        lambda out: out[40:].to("cpu", copy=True) @ ones(10),
        lambda out: torch.stack((out, out)).argmax(),
        lambda out: bool((out == 2).all()),
    ],
)
def test_ways_to_read_a_gap(reported, look):
    look(double(50, 3))
    assert only(reported).line == line("GAP double")


def wrong(assertion, *args, **keywords):
    with pytest.raises(AssertionError):
        assertion(*args, **keywords)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32])
@pytest.mark.parametrize(
    "look",
    [
        lambda out: torch.allclose(out.double(), 2 * ones(50).double()),
        lambda out: (out.to(torch.float64) - 2).abs().max(),
        lambda out: out.type_as(ones(1).double()).tolist(),
        lambda out: out.half().float()[-1].item(),
        lambda out: torch.equal(out.long(), 2 * ones(50).long()),
        lambda out: wrong(
            torch.testing.assert_close, out.view(5, 10).t().half(), ones(10, 5).half()
        ),
        lambda out: wrong(assert_close, out.double(), 2 * ones(50).double()),
        lambda out: wrong(numpy.testing.assert_allclose, out.cpu().double().numpy(), 2.0),
        lambda out: numpy.allclose(2.0, out.double().numpy()[40:]),
        lambda out: ones(2, 50).double().copy_(out).sum(),
        lambda out: torch.cat([ones(3).double(), out])[50:].sum(),
        lambda out: torch.tensor(out, dtype=torch.float64).isnan(),
        lambda out: out.flip(0).roll(1).double()[:4].sum(),
        lambda out: out.tile(2)[60:].sum(),
        lambda out: str(out.double().unbind()[-1]),
        lambda out: torch.save({"out": [out.double()]}, io.BytesIO()),
    ],
)
@pytest.mark.filterwarnings("ignore:To copy construct")
def test_ways_to_read_a_converted_gap(reported, look, dtype):
    look(double(50, 3, dtype))
    assert only(reported).line == line("GAP double")


def test_part_of_another_type_that_is_filled_with_a_gap(reported):
    both = torch.zeros(3, 50, dtype=torch.float64)
    both[1, :] = double(50, 3)
    both[0].sum()
    assert not reported
    both[1].sum()
    assert only(reported).index == 48


@pytest.mark.parametrize(
    ("look", "reader"),
    [
        (lambda out: (out.double() * 2 - 1).abs().max(), "torch's `max`"),
        (lambda out: out.add_(1).sub_(3).double().mean(), "torch's `mean`"),
        (lambda out: (out - 2).numpy(), "torch's `sub`"),
        (lambda out: wrong(numpy.testing.assert_equal, out.numpy(), 2), "numpy's `assert_equal`"),
        (lambda out: out.sort().values.sum(), "torch's `sum`"),
        (lambda out: torch.save(out, io.BytesIO()), "torch's `save`"),
    ],
)
def test_reader_of_what_arithmetic_made_of_a_gap(reported, look, reader):
    look(double(50, 3))
    assert f"; {reader} " in only(reported).message


def test_gap_that_a_later_launch_reads(reported):
    x, out = double(50, 3), torch.zeros(50)
    kernels.double.interpret[(3,)](x, out, 50, BLOCK=16)
    assert not reported
    kernels.double.interpret[(4,)](x, out, 50, BLOCK=16)
    assert (only(reported).line, only(reported).tensor) == (line("GAP double"), "out_ptr")


def test_gap_that_an_atomic_reads(reported):
    kernels.add_into.interpret[(1,)](ones(64), double(50, 3), 50, BLOCK=64)
    assert only(reported).index == 48


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_fresh_tensor_that_atomics_add_to(reported, dtype):
    x = ones(40, dtype=dtype)
    kernels.add_into.interpret[(1,)](x, torch.zeros(50, dtype=dtype), 40, BLOCK=64)
    assert not reported
    kernels.add_into.interpret[(1,)](x, torch.empty(50, dtype=dtype), 40, BLOCK=64)
    fault = only(reported)
    assert (fault.line, fault.tensor, fault.count) == (line("GAP add_into"), "out_ptr", 40)
    assert "atomics compute with 40 of the 50 elements of `out_ptr`" in fault.message


def test_partial_sums_whose_rest_is_added_up(reported):
    out = torch.empty(4)
    parts = torch.empty(4, 16)
    kernels.part_sums.interpret[(4,)](ones(50), parts, 50, 13, 16, BLOCK=16)
    kernels.add_parts.interpret[(4,)](parts, out, 50, 13, 16, ALL=True, BLOCK=16)
    fault = only(reported)
    assert (fault.line, fault.tensor) == (line("GAP part_sums"), "parts_ptr")
    assert f"; add_parts reads some of them at line {line('READ parts')}" in fault.message


def test_last_row_left_out(reported):
    x, out, mean = ones(5, 20), torch.empty(5, 20), torch.empty(5)
    kernels.norm.interpret[(4,)](x, out, mean, 20, BLOCK=32)
    out.isnan()
    fault = only(reported)
    assert (fault.line, fault.index, fault.count) == (line("GAP norm"), 80, 20)


def test_columns_left_out(reported):
    out = torch.empty(5, 20)
    kernels.norm.interpret[(5,)](ones(5, 16), out[:, :], torch.empty(5), 16, BLOCK=16)
    out.max()
    assert (only(reported).line, only(reported).count) == (line("GAP norm"), 20)


def test_grid_without_programs(reported):
    out = torch.empty(10)
    kernels.none_at_all.interpret[(10 // 16,)](out, BLOCK=16)
    out.sum()
    assert (only(reported).line, only(reported).count) == (line("GAP none_at_all"), 10)


def test_store_by_a_descriptor(reported):
    out = torch.empty(48)
    desc = TensorDescriptor.from_tensor(out, [16])
    kernels.by_descriptor.interpret[(2,)](ones(16), desc, BLOCK=16)
    out.sum()
    assert (only(reported).line, only(reported).index) == (line("GAP by_descriptor"), 32)


def test_output_that_is_still_there_and_unread_at_the_end(reported):
    kept = double(50, 3)
    HELD_GAPS.end()
    assert only(reported).index == 48
    del kept


# What is right


@pytest.mark.parametrize(
    "look",
    [
        lambda out: out[:48].sum(),
        lambda out: out.view(5, 10)[:4].clone().sum(),
        lambda out: out.zero_().sum(),
        lambda out: out.__setitem__(slice(48, 50), 0) or out.sum(),
        lambda out: out[48:].copy_(ones(2)) is None or out.sum(),
        lambda out: torch.add(ones(50), 1, out=out).sum(),
        lambda out: (out.shape, out.stride(), out.is_contiguous(), out.data_ptr(), len(out)),
        lambda out: torch.empty_like(out).fill_(1).sum() + out.new_zeros(3).sum(),
        lambda out: out.clone()[:48].sum(),
        lambda out: torch.nn.functional.pad(out, (0, 2))[:48].sum(),
        lambda out: torch.where(torch.arange(50) < 48, out, torch.zeros(50)).sum(),
        lambda out: out.masked_fill(torch.arange(50) >= 48, 0).sum(),
        lambda out: out.nan_to_num().sum(),
    ],
)
def test_ways_to_leave_a_gap_alone(reported, look):
    out = double(50, 3)
    look(out)
    del out
    HELD_GAPS.end()
    assert not reported


@pytest.mark.parametrize(
    "look",
    [
        lambda out: (out.double() + 1)[:48].sum(),
        lambda out: out.mul_(2)[:48].sum(),
        lambda out: (torch.relu(out.bfloat16()) * ones(50))[:48].mean(),
        lambda out: out.flip(0).roll(1)[3:].sum(),
        lambda out: out.sort().values[:48].sum(),
        lambda out: torch.where(torch.arange(50) < 48, out.double(), 0.5).sum(),
        lambda out: out.short()[:48].sum(),
        lambda out: (out.sum, torch.save(out[:48].clone(), io.BytesIO())),
        lambda out: (out[:48].sum(), torch.save(out, io.BytesIO())),
        lambda out: numpy.testing.assert_equal(out.double().numpy()[:48], 2),
        lambda out: numpy.copyto(out.double().numpy(), 2),
        lambda out: torch.vmap(lambda row: row.double() * 2)(out.view(5, 10))[:4].sum(),
    ],
)
def test_ways_to_convert_and_compute_with_a_gap_and_leave_it(reported, look):
    test_ways_to_leave_a_gap_alone(reported, look)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ways_to_leave_a_gap_of_integers_alone(reported, dtype):
    out = double(50, 3, dtype)
    assert int(out.long()[:48].sum() + out.int()[:48].sum() + out.float()[:48].sum()) == 288
    assert int(out.flip(0)[2:].sum() + out.gather(0, torch.arange(9)).sum()) == 114
    assert not reported


def test_converted_gaps_keep_values_and_gradients(reported):
    out, scale = double(50, 3).bfloat16(), ones(50, requires_grad=True)
    (out * scale)[:48].sum().backward()
    assert torch.equal(scale.grad[:48], 2 * ones(48))
    assert bool(out[48:].view(torch.int16).eq(MARKS[torch.bfloat16]).all())
    assert float(out[:48].sum()) == 96
    assert not reported


def test_only_gaps_are_marked_in_what_they_are_put_into(reported):
    gap = double(50, 3)[48:49]
    joined = torch.cat(tensors=[gap, ones(5).double()])
    assert joined[1:].tolist() == [1.0] * 5
    stacked = torch.stack([gap, torch.full((1,), 3.0, dtype=torch.float64)])
    assert stacked[1].item() == 3
    torch.relu_(input=ones(3))
    assert not reported
    assert (gap + ones(4, 1))[0, 0].view(torch.int32).eq(MARKS[torch.float32])


def test_copies_that_are_gone_are_forgotten(reported):
    out, others = double(50, 3), []
    for size in range(1, 400):
        assert HELD_GAPS.has(out.repeat(size))
        others.append(ones(50 * size))  # is where the copy was
    assert len(HELD_GAPS.allocations()) <= 65
    assert not reported


def test_output_that_is_written_in_full(reported):
    double(50, 4).sum()
    double(48, 3).sum()
    assert not reported


def test_scratch_whose_rest_nobody_reads(reported):
    parts, out = torch.empty(4, 16), torch.empty(4)
    kernels.part_sums.interpret[(4,)](ones(50), parts, 50, 13, 16, BLOCK=16)
    kernels.add_parts.interpret[(4,)](parts, out, 50, 13, 16, ALL=False, BLOCK=16)
    assert float(out.sum()) == 50
    HELD_GAPS.end()
    assert not reported


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bfloat16])
def test_half_of_a_square_that_is_read_and_dropped(reported, dtype):
    square, out = torch.empty(20, 20, dtype=dtype), torch.empty(20, dtype=dtype)
    kernels.store_lower_half.interpret[(1,)](square, 20, BLOCK=32)
    kernels.lower_half.interpret[(1,)](square, out, 20, BLOCK=32)
    assert float(out.sum()) == 210
    square.tril().sum()
    HELD_GAPS.end()
    assert not reported


@pytest.mark.parametrize("is_read_later", [False, True])
def test_workspace_that_the_kernel_itself_reads(reported, is_read_later):
    """The first program does not need its part."""
    workspace, out = torch.empty(4, 16), torch.empty(4, 16)
    kernels.through_workspace.interpret[(4,)](ones(4, 16), workspace, out, BLOCK=16)
    assert float(out.sum()) == 4 * 16
    if is_read_later:
        workspace.sum()
    HELD_GAPS.end()
    assert [fault.count for fault in reported] == [16] * is_read_later


def test_kernel_that_copies_a_gap(reported):
    out, copy = double(50, 3), torch.empty(50)
    kernels.copy.interpret[(1,)](out, copy, 50, BLOCK=64)
    copy[:48].sum()
    HELD_GAPS.end()
    assert not reported


def test_scratch_that_is_let_go_of(reported):
    def scratch():
        double(50, 3)

    scratch()
    HELD_GAPS.end()
    again = [double(50, 4) for _ in range(3)]
    assert not reported
    assert all(float(out.sum()) == 100 for out in again)


def test_gap_that_another_launch_fills(reported):
    out = double(50, 3)
    kernels.fill_rest.interpret[(1,)](out, 48, 50, BLOCK=16)
    out.sum()
    HELD_GAPS.end()
    assert not reported


def test_output_that_was_not_fresh(reported):
    out = torch.empty(50)
    out[40:] = 0
    kernels.double.interpret[(1,)](ones(50), out, 16, BLOCK=16)
    out[:16].sum()
    assert not reported


def test_output_that_nothing_is_stored_to(reported):
    kernels.double.interpret[(4,)](ones(50), torch.empty(50), 0, BLOCK=16)
    HELD_GAPS.end()
    assert not reported


@pytest.mark.parametrize("n", [0, 50])
def test_output_that_nothing_is_stored_to_and_that_is_read(reported, n):
    out = torch.empty(50)
    kernels.rounds.interpret[(4,)](out, n, 0, BLOCK=16)
    assert not reported
    out.sum()
    fault = only(reported)
    assert (fault.line, fault.tensor, fault.count) == (line("GAP rounds"), "out_ptr", 50)


def test_output_that_another_launch_stores_to(reported):
    out = torch.empty(64)
    kernels.rounds.interpret[(4,)](out, 64, 0, BLOCK=16)
    kernels.rounds.interpret[(4,)](out, 64, 1, BLOCK=16)
    assert float(out.sum()) == 64
    assert not reported


def test_gaps_beside_the_view_that_was_passed(reported):
    both = torch.empty(2, 48)
    kernels.double.interpret[(3,)](ones(48), both[0], 48, BLOCK=16)
    both[0].sum()
    assert not reported


def test_rows_that_are_padded(reported):
    out = torch.empty(5, 32)[:, :20]
    kernels.norm.interpret[(5,)](ones(5, 20), out.contiguous(), torch.empty(5), 20, BLOCK=32)
    HELD_GAPS.end()
    assert not reported


def test_nothing_is_watched_afterwards():
    stack = torch._C._len_torch_function_stack()
    functions = torch.save, numpy.allclose, numpy.testing.assert_allclose
    watch_gaps()()
    assert functions == (torch.save, numpy.allclose, numpy.testing.assert_allclose)
    assert torch._C._len_torch_function_stack() == stack


def test_gaps_of_memory_that_an_earlier_tensor_had_are_found_by_address():
    memory = bytearray(64)
    earlier = torch.frombuffer(memory, dtype=torch.float32)
    gaps, address = HeldGaps(), earlier.data_ptr()
    gaps.hold(earlier, Fault("unwritten-output", "k", (), "earlier"))
    del earlier
    assert gaps.at(address) == []
    now = torch.frombuffer(memory, dtype=torch.float32)
    assert now.data_ptr() == address
    later = Fault("unwritten-output", "k", (), "later")
    gaps.hold(now, later)
    try:
        assert [gap.fault for gap in gaps.at(address + 8)] == [later]
    finally:
        gaps.end()


def test_comparisons_of_numpy_are_seen_where_it_is_imported_later(monkeypatch):
    monkeypatch.setattr(numpy, "testing", numpy.testing)
    monkeypatch.delitem(sys.modules, "numpy.testing")
    finders = list(sys.meta_path)

    stop = watch_comparisons()
    late = importlib.import_module("numpy.testing")
    watched = late.assert_equal
    stop()
    assert watched.__wrapped__ is late.assert_equal

    del sys.modules["numpy.testing"]
    watch_comparisons()()
    assert sys.meta_path == finders
