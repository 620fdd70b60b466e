"""Each mistake is reported once, at its line, with program, lane, tensor, index, range, count."""

from functools import partial

import fault_kernels as kernels
import pytest
import torch
from differential import compare, run
from marked_lines import line_of, only

line = partial(line_of, kernels)
BUDGETS = pytest.mark.parametrize("budget", [None, 4096, 64], ids=["whole", "batches", "single"])


def zeros(*shape):
    return torch.zeros(shape)


@BUDGETS
def test_missing_mask_on_a_load(budget):
    x, out = torch.arange(100.0), zeros(100)
    fault = only(compare(kernels.missing_mask, (4,), x, out, 100, BLOCK=32, budget=budget).faults)
    assert fault.kind == "oob-load"
    assert fault.line == line("FAULT missing_mask")
    assert fault.file == kernels.__file__
    assert fault.program_id == (3, 0, 0)
    assert fault.lane == (4,)
    assert (fault.tensor, fault.index, fault.legal, fault.count) == ("x_ptr", 100, (0, 100), 28)
    assert "no mask" in fault.hint
    assert "100" in fault.message
    assert fault.severity == "error"
    assert torch.equal(x, out)


def test_hint_of_a_missing_mask_names_the_shape_of_rows():
    x = torch.arange(100.0)
    hints = [
        only(compare(kernels.missing_mask, (4,), of, zeros(100), 100, BLOCK=32).faults).hint
        for of in (x, x.view(5, 20), x.view(1, 100))
    ]
    flat = "this tl.load has no mask: pass mask=offsets < n, with n at most 100 for `x_ptr`"
    assert hints == [flat, f"{flat}, or that of an axis of its shape, [5, 20]", flat]


@BUDGETS
def test_mask_with_one_element_too_many(budget):
    x, out = torch.arange(96.0), zeros(96)
    faults = compare(kernels.wrong_mask, (4,), x, out, 96, BLOCK=32, budget=budget).faults
    load, store = sorted(faults, key=lambda f: f.kind)
    assert (load.kind, load.line) == ("oob-load", line("FAULT wrong_mask load"))
    assert (store.kind, store.line) == ("oob-store", line("FAULT wrong_mask store"))
    for fault, tensor in ((load, "x_ptr"), (store, "out_ptr")):
        assert fault.program_id == (3, 0, 0)
        assert (fault.tensor, fault.lane, fault.index) == (tensor, (0,), 96)
        assert (fault.legal, fault.count) == ((0, 96), 1)
        assert fault.hint == f"mask is `offs <= n` but `{tensor}` has 96 elements"


@BUDGETS
def test_expanded_tensor_is_said_to_be_one(budget):
    x, out = torch.ones(1).expand(4, 24), zeros(96)
    fault = only(compare(kernels.missing_mask, (3,), x, out, 96, BLOCK=32, budget=budget).faults)
    assert "offset 1 of `x_ptr`, which has 1 element (legal: 0 to 0)" in fault.message
    assert "expanded" in fault.hint
    assert "[4, 24]" in fault.hint
    assert ".contiguous()" in fault.hint


@BUDGETS
def test_negative_index(budget):
    fault = only(
        compare(
            kernels.negative_index,
            (4,),
            torch.arange(100.0),
            zeros(100),
            100,
            BLOCK=32,
            budget=budget,
        ).faults
    )
    assert fault.line == line("FAULT negative_index")
    assert (fault.program_id, fault.lane, fault.index) == ((0, 0, 0), (0,), -1)
    assert fault.count == 1
    assert "negative" in fault.hint


@BUDGETS
def test_read_past_a_view_inside_a_larger_allocation(budget):
    big, out = torch.arange(256.0), zeros(100)
    fault = only(
        compare(kernels.missing_mask, (4,), big[50:150], out, 100, BLOCK=32, budget=budget).faults
    )
    assert (fault.tensor, fault.index, fault.legal) == ("x_ptr", 100, (0, 100))
    assert fault.count == 28
    assert torch.equal(out, big[50:150])


@BUDGETS
def test_read_before_a_view_inside_a_larger_allocation(budget):
    big = torch.arange(256.0)
    fault = only(
        compare(
            kernels.negative_index, (4,), big[50:150], zeros(100), 100, BLOCK=32, budget=budget
        ).faults
    )
    assert (fault.index, fault.count) == (-1, 1)


def test_call_chain_of_a_fault_in_a_device_function():
    fault = only(
        compare(
            kernels.in_device_function, (4,), torch.arange(100.0), zeros(100), 100, BLOCK=32
        ).faults
    )
    assert fault.line == line("FAULT read_row")
    chain = [(frame.line, frame.function) for frame in fault.frames]
    assert chain == [
        (line("CALL in_device_function"), "in_device_function"),
        (line("CALL scaled_row"), "scaled_row"),
        (line("FAULT read_row"), "read_row"),
    ]
    assert fault.program_id == (3, 0, 0)


@BUDGETS
def test_mask_that_is_the_same_in_every_program_is_not_to_blame(budget):
    x, out = torch.zeros(4, 64)[:, :20], zeros(80)
    fault = only(
        compare(kernels.wrong_stride, (4,), x, out, 64, 20, BLOCK=32, budget=budget).faults
    )
    assert (fault.kind, fault.line) == ("oob-store", line("FAULT wrong_stride"))
    assert fault.program_id == (1, 0, 0)
    assert fault.hint == (
        "mask is `cols < n`, the same in every program, but `out_ptr` has 80 elements: check the "
        "index arithmetic and the grid, (4, 1, 1)"
    )


@BUDGETS
def test_store_without_mask(budget):
    big = torch.zeros(256)
    out = big[16:116]
    fault = only(
        compare(
            kernels.unmasked_store, (4,), torch.arange(100.0), out, 100, BLOCK=32, budget=budget
        ).faults
    )
    assert (fault.kind, fault.line) == ("oob-store", line("FAULT unmasked_store"))
    assert (fault.program_id, fault.lane, fault.index) == ((3, 0, 0), (4,), 100)
    assert fault.count == 28
    # What lies around the view is untouched.
    assert not big[:16].any()
    assert not big[116:].any()


@BUDGETS
def test_atomic_out_of_bounds(budget):
    bins = torch.tensor([0, 1, 2, 3, 4, 5, 2, 2] * 8, dtype=torch.int32)
    out = torch.zeros(4, dtype=torch.int32)
    fault = only(compare(kernels.histogram, (4,), bins, out, 60, BLOCK=16, budget=budget).faults)
    assert (fault.kind, fault.line) == ("oob-atomic", line("FAULT histogram"))
    assert (fault.program_id, fault.lane, fault.index) == ((0, 0, 0), (4,), 4)
    assert fault.legal == (0, 4)
    assert fault.count == 14
    assert fault.hint.startswith("mask is")


@BUDGETS
def test_wrong_row_bound_of_a_2d_tile(budget):
    x, out = torch.arange(30.0 * 20).reshape(30, 20), zeros(30, 20)
    fault = only(
        compare(kernels.wrong_rows, (2, 2), x, out, 30, 20, 20, R=16, C=16, budget=budget).faults
    )
    assert fault.line == line("FAULT wrong_rows")
    assert (fault.program_id, fault.lane, fault.index) == ((0, 1, 0), (14, 0), 600)
    assert fault.count == 2 * 20
    assert torch.equal(x, out)


@BUDGETS
def test_wrong_stride_argument(budget):
    x, out = torch.arange(30.0 * 20).reshape(30, 20), zeros(30, 20)
    faults = compare(
        kernels.copy_2d, (2, 2), x, out, 30, 20, 32, 1, R=16, C=16, budget=budget
    ).faults
    fault = only(faults)
    assert fault.line == line("FAULT copy_2d")
    assert (fault.kind, fault.tensor) == ("oob-load", "x_ptr")
    assert fault.program_id == (0, 1, 0)
    assert fault.index == 19 * 32 if fault.lane == (3, 0) else fault.index >= 600


@BUDGETS
def test_transposed_strides(budget):
    x, out = torch.arange(30.0 * 20).reshape(30, 20), zeros(30, 20)
    # Strides swapped: offsets reach 29 + 19 * 20 only, so nothing leaves the tensor.
    assert not compare(
        kernels.copy_2d, (2, 2), x, out, 30, 20, 1, 20, R=16, C=16, budget=budget
    ).faults
    fault = only(
        compare(kernels.copy_2d, (2, 2), x, out, 30, 20, 1, 32, R=16, C=16, budget=budget).faults
    )
    assert fault.tensor == "x_ptr"


@BUDGETS
def test_last_iteration_of_a_loop(budget):
    x, out = torch.arange(3.0 * 40), zeros(3)
    fault = only(compare(kernels.last_iteration, (3,), x, out, 40, BLOCK=16, budget=budget).faults)
    assert fault.line == line("FAULT last_iteration")
    assert (fault.program_id, fault.lane, fault.index) == ((2, 0, 0), (8,), 120)
    assert fault.count == 8


@BUDGETS
def test_trip_counts_that_differ_between_programs(budget):
    counts = torch.tensor([4, 0, 16, 12, 5], dtype=torch.int32)
    x = torch.arange(5.0 * 16)[: 4 * 16 + 4]
    fault = only(
        compare(
            kernels.per_program_trips, (5,), x, zeros(5), counts, 16, BLOCK=4, budget=budget
        ).faults
    )
    assert fault.line == line("FAULT trips")
    assert (fault.program_id, fault.lane, fault.index) == ((4, 0, 0), (0,), 68)
    assert fault.count == 4


@BUDGETS
def test_only_programs_in_a_branch_are_checked_there(budget):
    x, out = torch.arange(100.0), zeros(100)
    fault = only(compare(kernels.under_branch, (5,), x, out, 100, BLOCK=32, budget=budget).faults)
    assert fault.line == line("FAULT under_branch")
    assert (fault.program_id, fault.lane, fault.index) == ((3, 0, 0), (4,), 100)
    assert fault.count == 28


@BUDGETS
def test_block_pointer_without_boundary_check(budget):
    x, out = torch.arange(30.0 * 20).reshape(30, 20), zeros(30, 20)
    arguments = (x, out, 30, 20)
    clean = compare(
        kernels.block_pointer, (2, 2), *arguments, R=16, C=16, CHECK=(0, 1), budget=budget
    )
    assert not clean.faults
    assert torch.equal(x, out)
    fault = only(
        compare(
            kernels.block_pointer, (2, 2), *arguments, R=16, C=16, CHECK=(1,), budget=budget
        ).faults
    )
    assert fault.line == line("FAULT block_pointer")
    assert (fault.program_id, fault.lane, fault.index) == ((0, 1, 0), (14, 0), 600)
    assert fault.count == 40
    assert "leaves out axis 0: pass boundary_check=(0, 1)" in fault.hint


@BUDGETS
def test_descriptor_that_claims_more_rows_than_there_are(budget):
    x, out = torch.arange(30.0 * 20).reshape(30, 20), zeros(30, 20)
    assert not compare(
        kernels.descriptor, (2, 2), x, out, 30, 20, 30, R=16, C=16, budget=budget
    ).faults
    assert torch.equal(x, out)
    fault = only(
        compare(kernels.descriptor, (2, 2), x, out, 30, 20, 31, R=16, C=16, budget=budget).faults
    )
    assert fault.line == line("FAULT descriptor")
    assert (fault.kind, fault.tensor, fault.index) == ("oob-load", "x_ptr", 600)
    assert fault.count == 20
    assert "descriptor" in fault.hint


@BUDGETS
def test_int32_offset_that_overflows(budget):
    x = zeros(64)
    faults = compare(
        kernels.int32_overflow, (3,), x, zeros(48), 2**30, BLOCK=16, budget=budget
    ).faults
    wrapped, fault = sorted(faults, key=lambda fault: fault.kind)
    assert (wrapped.kind, fault.kind) == ("offset-overflow", "oob-load")
    assert wrapped.line == fault.line == line("FAULT int32_overflow")
    assert (wrapped.program_id, wrapped.count) == ((2, 0, 0), 16)
    assert (fault.program_id, fault.index) == ((1, 0, 0), 2**30)
    assert fault.count == 32


def test_int32_sums_and_products_that_overflow_are_reported_by_their_columns():
    faults = run(kernels.int32_overflow, (3,), zeros(64), zeros(48), 2**31 - 8, BLOCK=16)
    assert {(f.kind, f.program_id, f.lane): f.column for f in faults} == {
        ("offset-overflow", (1, 0, 0), (8,)): 26,
        ("offset-overflow", (2, 0, 0), ()): 26,
        ("oob-load", (1, 0, 0), (0,)): 9,
    }


def test_program_by_program_when_programs_wait_for_each_other(capsys):
    lock = torch.zeros(1, dtype=torch.int32)
    x, out = torch.arange(4.0), zeros(1)
    fault = only(compare(kernels.locked, (6,), lock, x, out, 4).faults)
    assert fault.line == line("FAULT locked")
    assert (fault.program_id, fault.index, fault.count) == ((4, 0, 0), 4, 2)
    assert out.item() == 6
    assert "one after the other" in capsys.readouterr().err


@BUDGETS
def test_gather_with_a_bad_row(budget):
    x = torch.arange(8.0 * 16).reshape(8, 16)
    index = torch.tensor([3, 7, 8, 0, -1, 2, 2], dtype=torch.int32)
    fault = only(
        compare(
            kernels.gather_rows, (2,), x, index, zeros(7, 16), 7, 16, R=4, C=16, budget=budget
        ).faults
    )
    assert fault.line == line("FAULT gather")
    assert (fault.program_id, fault.lane, fault.index) == ((0, 0, 0), (2, 0), 128)
    assert fault.count == 32
    loaded_at = line("FAULT gather") - 1
    assert fault.hint.endswith(
        f"; the offset is computed from what line {loaded_at} loads from `index_ptr`"
    )


def test_gather_with_a_negative_row():
    x = torch.arange(8.0 * 16).reshape(8, 16)
    index = torch.tensor([3, 7, -2, 0, -1], dtype=torch.int32)
    fault = only(
        compare(kernels.gather_rows, (2,), x, index, zeros(5, 16), 5, 16, R=4, C=16).faults
    )
    assert (fault.index, fault.count) == (-32, 32)
    assert fault.message == (
        "load reads offset -32 of `x_ptr`, which is negative: it has 128 elements (legal: 0 to 127)"
    )
    assert fault.hint.endswith("loads from `index_ptr`, whose least element is -2")


def test_negative_index_of_a_gather():
    x, index = torch.arange(8.0), torch.tensor([3, -1, 2, 9], dtype=torch.int32)
    fault = only(run(kernels.gathered, (1,), x, index, zeros(4), N=8, M=4))
    assert (fault.line, fault.index, fault.count) == (line("FAULT gathered"), -1, 2)
    assert "index -1 along axis 0, which is negative: it has 8 elements" in fault.message


def test_address_of_a_tensor_that_is_gone():
    address = torch.tensor([64])
    fault = only(run(kernels.stale_address, (1,), address, zeros(8), BLOCK=8))
    assert (fault.kind, fault.line) == ("oob-load", line("FAULT stale_address"))
    assert "address 0x40, which belongs to no tensor" in fault.message
    assert "still alive" in fault.hint


def test_address_that_was_stored_in_32_bits():
    stored = torch.tensor([-0x5F5EA8C0])
    fault = only(run(kernels.stale_address, (1,), stored, zeros(8), BLOCK=8))
    assert "fits 32 bits" in fault.hint


@pytest.mark.parametrize("grid", [(2, 3, 4), (1, 3, 5), (2, 1, 4), (3, 5, 1)])
@pytest.mark.parametrize("budget", [None, 1024, 512, 256, 64])
def test_program_ids_on_three_axes(grid, budget):
    nx, ny, nz = grid[0] * 8 - 3, grid[1], grid[2]
    x = torch.arange(float(nx * ny * nz - 3))
    seen = compare(
        kernels.three_axes, grid, x, zeros(nx * ny * nz), nx, ny, nz, BLOCK=8, budget=budget
    )
    fault = only(seen.faults)
    assert fault.program_id == (grid[0] - 1, ny - 1, nz - 1)
    assert (fault.count, fault.index) == (3, x.numel())


def test_faults_of_each_launch_are_its_own():
    x, out = torch.arange(100.0), zeros(100)
    counts = [
        only(run(kernels.missing_mask, (grid,), x, out, 100, BLOCK=32)).count for grid in (4, 5, 4)
    ]
    assert counts == [28, 60, 28]
    assert not run(kernels.missing_mask, (3,), x, out, 100, BLOCK=32)


@BUDGETS
def test_empty_tensor(budget):
    empty, out = torch.zeros(0), zeros(32)
    fault = only(compare(kernels.missing_mask, (1,), empty, out, 0, BLOCK=32, budget=budget).faults)
    assert (fault.index, fault.count) == (0, 32)
    assert "empty" in fault.message
    assert not compare(
        kernels.negative_index, (1,), empty, empty, 0, BLOCK=32, budget=budget
    ).faults
    store = compare(kernels.unmasked_store, (1,), empty, torch.zeros(0), 0, BLOCK=32, budget=budget)
    assert only(store.faults).kind == "oob-store"


def test_access_between_elements_names_the_strides():
    x, out = torch.arange(64.0)[::2], zeros(32)
    fault = only(compare(kernels.missing_mask, (1,), x, out, 32, BLOCK=32).faults)
    assert fault.kind == "between-elements"
    assert "`x_ptr` has strides (2)" in fault.hint


@BUDGETS
def test_hint_of_a_mask_that_leaves_an_axis_free(budget):
    x, out = torch.arange(30.0 * 20).reshape(30, 20), zeros(30, 20)
    fault = only(
        compare(kernels.wrong_rows, (2, 2), x, out, 30, 20, 20, R=16, C=16, budget=budget).faults
    )
    assert fault.hint == (
        "mask is `c[None, :] < cols`, which says nothing of axis 0 of the tile: "
        "is a bound missing there?"
    )


def test_hint_of_a_mask_given_by_position():
    x, out = torch.arange(100.0), zeros(100)
    fault = only(compare(kernels.positional_masks, (4,), x, out, 100, EVEN=False, BLOCK=32).faults)
    assert fault.line == line("FAULT positional store")
    assert fault.hint == "mask is `offs < n + 1` but `out_ptr` has 100 elements"


def test_hint_of_a_mask_that_is_always_true():
    x, out = torch.arange(100.0), zeros(128)
    fault = only(compare(kernels.constant_mask, (4,), x, out, 32, BLOCK=32).faults)
    expected = "mask is `cols < n`, which is always true, but `x_ptr` has 100 elements"
    assert fault.hint == expected
    x = torch.arange(96.0)
    fault = only(compare(kernels.constant_mask, (4,), x, out, 31, BLOCK=32).faults)
    assert "always" not in fault.hint


def test_hint_of_strides_names_the_tensors_own():
    b, out = torch.arange(16.0 * 48).reshape(16, 48), zeros(16, 48)
    assert not run(kernels.strided, (3,), b, out, 16, 48, 48, 1, B=16)
    fault = only(run(kernels.strided, (3,), b, out, 16, 48, 1, 48, B=16))
    assert fault.hint.endswith("; sbk=1 is b_ptr.stride(1), sbn=48 is b_ptr.stride(0)")
    fault = only(run(kernels.strided, (3,), b, out, 16, 48, 48, 2, B=16))
    assert "stride(" not in fault.hint


def test_hint_of_a_mask_that_is_none():
    x, out = torch.arange(100.0), zeros(101)
    fault = only(compare(kernels.positional_masks, (4,), x, out, 100, EVEN=True, BLOCK=32).faults)
    assert fault.line == line("FAULT positional load")
    assert fault.hint == (
        "mask is `mask`, which is None or true everywhere here, but `x_ptr` has 100 elements"
    )


def test_hint_quotes_the_mask_of_the_call_that_went_astray():
    x, y, out = torch.arange(100.0), torch.arange(100.0), zeros(100)
    fault = only(compare(kernels.masks_of_one_line, (4,), x, y, out, 100, BLOCK=32).faults)
    assert (fault.tensor, fault.line) == ("y_ptr", line("FAULT two"))
    assert fault.hint == "mask is `offs <= n` but `y_ptr` has 100 elements"


def test_hint_of_one_element_a_program():
    index, out = torch.zeros(3, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    load, atomic = compare(kernels.one_element, (3,), index, out).faults
    assert (load.line, load.program_id, load.index) == (line("FAULT one_element"), (2, 0, 0), 3)
    assert load.hint == (
        "this tl.load touches one element a program: check the index arithmetic and the grid, "
        "(3, 1, 1), or guard it with an `if`"
    )
    assert atomic.hint.startswith("this tl.atomic_add touches one element a program")


@pytest.mark.parametrize("in_block", [False, True])
def test_hint_of_a_tile_that_lies_outside_as_a_whole(in_block):
    x, out = torch.arange(3.0 * 16), zeros(3 * 16)
    fault = only(compare(kernels.wrong_row, (3,), x, out, 16, CHECK=in_block, BLOCK=16).faults)
    where = "the index arithmetic and the grid, (3, 1, 1)"
    assert (fault.program_id, fault.lane, fault.index) == ((2, 0, 0), (0,), 48)
    assert fault.hint == (
        "the whole block lies outside: check the pointer, the shape and the strides given to "
        f"make_block_ptr, {where}"
        if in_block
        else f"this program's tile has no element of `x_ptr`: check {where}"
    )


def _of_loads(faults):
    return [fault for fault in faults if fault.kind == "oob-load"]


def test_hint_of_an_offset_that_wrapped():
    x, out = zeros(48), zeros(48)
    (fault,) = _of_loads(run(kernels.int32_overflow, (3,), x, out, 2**30 - 1, BLOCK=16))
    assert fault.index == 2**30 - 1
    assert "int32" not in fault.hint
    (fault,) = _of_loads(run(kernels.wrapped_product, (3,), x, out, 2**30, BLOCK=16))
    assert fault.index == -(2**31)
    assert fault.hint == f"the offset wrapped at line {fault.line}: fix that first"


@BUDGETS
def test_pointer_cast_to_a_wider_type(budget):
    x, out = zeros(40), zeros(40)
    fault = only(run(kernels.cast_pointer, (3,), x, out, 40, BLOCK=16, budget=budget))
    assert (fault.kind, fault.line) == ("oob-load", line("FAULT cast_pointer"))
    assert (fault.tensor, fault.index, fault.legal) == ("x_ptr", 20, (0, 20))
    assert (fault.program_id, fault.lane, fault.count) == ((1, 0, 0), (4,), 20)
    assert fault.hint == (
        "mask is `offs < n` but `x_ptr` has 20 elements of 8 bytes, as which it is accessed "
        "(torch.float32)"
    )


@BUDGETS
def test_rows_of_bytes_that_are_read_as_words(budget):
    def faults(x, n):
        out = torch.zeros(4, 32, dtype=torch.int32)
        stride = x.stride(0) // 4
        return run(kernels.words_of_rows, (4,), x, out, stride, n, B=32, budget=budget)

    whole = torch.zeros(4, 128, dtype=torch.uint8)
    assert not faults(whole[:, :64], 16)
    assert not faults(whole.view(4, 8, 16)[:, :4], 16)
    between, after = sorted(faults(whole[:, :64], 17), key=lambda fault: fault.kind)
    assert (between.kind, between.index, between.count) == ("between-elements", 16, 3)
    assert (after.kind, after.index, after.count) == ("oob-load", 112, 1)
    assert between.line == after.line == line("FAULT words_of_rows")
    # Words do not fill the rows: what lies between these is not known.
    assert not faults(whole[:, :62], 15)
