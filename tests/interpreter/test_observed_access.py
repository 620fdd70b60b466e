"""The compact forms of an access have the elements that its list has."""

import random

import pytest
import torch
from differential import load_kernel, run
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from random_accesses import HEADER, random_launch

from tkdebug.interpreter.observers import Observer


class Comparing(Observer):
    """Compares the forms of every access, and counts those that there were."""

    follows_accesses = True

    def __init__(self):
        self.slabs = self.intervals = self.accesses = 0

    def read(self, run, access):
        self.compare(access)

    def writing(self, run, access):
        self.compare(access)
        touched = access.touch()
        tile = access.stored_tile().expand(-1, *access.shape)
        assert access.stored().shape == touched.places.shape
        if tile.shape[0] == 1:
            expected = tile.reshape(-1)[touched.lanes]
            assert torch.allclose(access.stored(), expected, rtol=0, atol=0, equal_nan=True)

    def atomic(self, run, access):
        self.compare(access)

    def compare(self, access):
        self.accesses += 1
        touched = access.touch()
        listed = torch.stack([touched.programs, touched.lanes, touched.places], 1).tolist()
        slabs = access.hyperslabs()
        if slabs is not None:
            self.slabs += 1
            found = [entry for slab in slabs for entry in elements(slab, access.shape)]
            assert sorted(found) == sorted(listed)
            for slab in slabs:
                places = [place for _, _, place in elements(slab, access.shape)]
                assert (min(places), max(places)) == (slab.start, slab.last)
                assert len(places) == slab.count
                if slab.is_injective:
                    assert len(set(places)) == len(places)
        intervals = access.intervals()
        if intervals is not None:
            self.intervals += 1
            runs = zip(
                intervals.programs.tolist(),
                intervals.first.tolist(),
                intervals.last.tolist(),
                strict=True,
            )
            found = {(p, place) for p, first, last in runs for place in range(first, last + 1)}
            assert found == {(p, place) for p, _, place in listed}


def elements(slab, shape):
    """(program, lane, place) of each element, by the slab's description and by its view."""
    rank = len(shape)
    outer = slab.sizes[: len(slab.sizes) - rank]
    places = slab.view(torch.arange(slab.last + 1)).expand(slab.sizes)
    programs = slab.programs.reshape(*outer, *(1,) * rank).expand(slab.sizes)
    lanes = torch.zeros(slab.sizes, dtype=torch.int64)
    for axis, ((low, high), extent) in enumerate(zip(slab.box, shape, strict=True)):
        positions = torch.arange(low, high)
        if axis in slab.flips:
            positions = positions.flip(0)
        lanes = lanes * extent + positions.reshape(-1, *(1,) * (rank - 1 - axis))
    assert len(outer) + rank == lanes.dim()
    columns = [column.reshape(-1) for column in (programs, lanes, places)]
    return torch.stack(columns, 1).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kernels")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_forms_of_random_accesses_agree(folder, seed):
    launch = random_launch(random.Random(seed))
    note(launch.source)
    note(launch.described)
    kernel = load_kernel(folder, launch.source)
    run(kernel, launch.grid, *launch.arguments, **launch.options, observers=[Comparing()])


def forms(folder, statements, x, out, m, n, grid, shift=0, rows=8, cols=8, **options):
    """The forms of the accesses of a kernel with these statements."""
    source = HEADER + "".join(f"    {line}\n" for line in statements)
    seen = Comparing()
    strides = (*x.stride(), *out.stride())
    arguments = (x, x, out, m, n, *strides, shift)
    kernel = load_kernel(folder, source)
    run(kernel, grid, *arguments, M=rows, N=cols, **options, observers=[seen])
    return seen.slabs, seen.intervals, seen.accesses


@pytest.mark.parametrize(
    ("statements", "slabs", "intervals"),
    [
        (["tl.store(out_ptr + p0 * N + tl.arange(0, N), 1.0)"], 1, 1),
        (["tl.store(out_ptr + j, 1.0, mask=j < n)"], 1, 1),
        (["tl.store(out_ptr + j, 1.0, mask=(j < n) & (j >= shift + 2))"], 1, 1),
        (["tl.store(out_ptr + n * 8 - 1 - j, 1.0, mask=j < n)"], 1, 0),
        (["tl.store(out_ptr + 2 * j, 1.0, mask=j < n)"], 1, 0),
        (["tl.store(out_ptr + p0 * 0, 1.0)"], 1, 1),
        (["tl.store(out_ptr + i[:, None] * n + j[None, :], 1.0, mask=j[None, :] < n)"], 1, 0),
        (["tl.store(out_ptr + i[:, None] * 0 + j[None, :], 1.0, mask=j[None, :] < n)"], 1, 1),
        (["tl.store(out_ptr + j, 1.0, mask=j % 3 < 2)"], 0, 0),
        (["tl.store(out_ptr + (j * j) % n, 1.0)"], 0, 0),
        (["tl.atomic_add(out_ptr + j, 1.0, mask=j < n)"], 0, 0),
    ],
)
@pytest.mark.parametrize("budget", [None, 64])
def test_forms_of_an_access(folder, statements, slabs, intervals, budget):
    x, out = torch.zeros(8, 21), torch.zeros(8, 21)
    found = forms(folder, statements, x, out, 8, 21, (3, 1, 1), budget=budget)
    batches = found[2]
    assert found == (slabs * batches, intervals * batches, batches)


def test_forms_leave_out_programs_that_are_not_active(folder):
    statements = ["if p0 > 0:", "    tl.store(out_ptr + p0, 1.0)", "    tl.store(out_ptr, 2.0)"]
    x, out = torch.zeros(8, 21), torch.zeros(8, 21)
    assert forms(folder, statements, x, out, 8, 21, (3, 1, 1)) == (2, 2, 2)


def test_no_compact_form_of_what_is_out_of_bounds(folder):
    statements = ["tl.store(out_ptr + j, 1.0)"]
    x, out = torch.zeros(8, 21), torch.zeros(21)[None].expand(1, 21)
    assert forms(folder, statements, x, out, 8, 21, (3, 1, 1)) == (0, 0, 1)


def test_elements_are_listed_once_for_all_observers(folder):
    class Listing(Observer):
        follows_accesses = True

        def __init__(self):
            self.lists = []

        def writing(self, run, access):
            self.lists.append(access.touch())

    first, second = Listing(), Listing()
    source = HEADER + "    tl.store(out_ptr + j, 1.0, mask=j < n)\n"
    x = torch.zeros(8, 8)
    arguments = (x, x, x.clone(), 8, 8, 8, 2, 8, 2, 0)
    kernel = load_kernel(folder, source)
    run(kernel, (1, 1, 1), *arguments, M=8, N=8, observers=[first, second])
    assert first.lists[0] is second.lists[0]
