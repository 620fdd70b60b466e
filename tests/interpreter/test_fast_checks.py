"""Checks find the same by compact forms and batches run again as by lists of elements, op by op."""

import random
from unittest import mock

import pytest
import torch
from differential import load_kernel, run
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from random_accesses import HEADER, random_launch

from tkdebug.interpreter import launch as launching
from tkdebug.interpreter.checks import nans
from tkdebug.interpreter.checks.unwritten import uninitialised_reads
from tkdebug.interpreter.checks.unwritten.patterns import MARKS
from tkdebug.interpreter.memory import observed_access
from tkdebug.knobs import scope

SPECIALS = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 3e38)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kernels")


def slowly():
    """No compact forms, no batch run again, and a look at every result of every op."""
    reads = uninitialised_reads
    return (
        mock.patch.multiple(observed_access, hyperslabs_of=nothing, intervals_of=nothing),
        mock.patch.object(launching, "memory_to_save", nothing),
        mock.patch.object(nans, "_KEEPS", frozenset()),
        mock.patch.object(nans, "has_nan", lambda values: bool(values.isnan().any())),
        mock.patch.object(reads, "may_have_nan", return_value=True),
        mock.patch.object(reads.UninitialisedReads, "_has_no_marks", return_value=False),
    )


def nothing(*_):
    return None


def found(kernel, grid, arguments, options, slow):
    """Faults of a launch on copies of its tensors, and what it leaves in them."""
    memo = {}
    arguments = [copied(value, memo) for value in arguments]
    patches = slowly() if slow else ()
    for patch in patches:
        patch.start()
    try:
        faults = run(kernel, grid, *arguments, **options)
    finally:
        for patch in patches:
            patch.stop()
    # A batch's NaNs are reported when it has ended.
    seen = sorted(
        (f.kind, f.line, f.program_id, f.lane, f.tensor, f.index, f.count, f.message)
        for f in faults
    )
    return seen, [value for value in arguments if isinstance(value, torch.Tensor)]


def copied(value, memo):
    """A tensor of the same view on a copy of its storage, shared as the original is."""
    if not isinstance(value, torch.Tensor):
        return value
    key = value.untyped_storage().data_ptr()
    if key not in memo:
        memo[key] = value.untyped_storage().clone()
    out = torch.empty(0, dtype=value.dtype)
    return out.set_(memo[key], value.storage_offset(), value.shape, value.stride())


def agree(kernel, grid, arguments, options):
    fast, fast_memory = found(kernel, grid, arguments, options, slow=False)
    slow, slow_memory = found(kernel, grid, arguments, options, slow=True)
    assert fast == slow
    for one, other in zip(fast_memory, slow_memory, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
    return fast


def sprinkle(tensor, chooser, value, part):
    """Put `value()` at some elements of a tensor's storage."""
    flat = torch.empty(0, dtype=tensor.dtype)
    storage = tensor.untyped_storage()
    flat.set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))
    for place in range(flat.numel()):
        if chooser.random() < part:
            flat[place] = value()


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_random_kernels_make_the_same_nans(folder, seed):
    chooser = random.Random(seed)
    launched = random_launch(chooser)
    note(launched.source)
    note(launched.described)
    for tensor in launched.arguments[:2]:
        sprinkle(tensor, chooser, lambda: chooser.choice(SPECIALS), chooser.choice([0, 0.02, 0.2]))
    arguments = list(launched.arguments)
    if chooser.random() < 0.3:
        # In place: what is read is written, too.
        arguments[0], arguments[5:7] = arguments[2], arguments[2].stride()
    kernel = load_kernel(folder, launched.source)
    with scope(checks=("nan",)):
        agree(kernel, launched.grid, arguments, launched.options)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_random_kernels_read_the_same_unwritten_memory(folder, seed):
    chooser = random.Random(seed)
    launched = random_launch(chooser)
    note(launched.source)
    note(launched.described)
    arguments = list(launched.arguments)
    mark = torch.tensor(MARKS[torch.float32], dtype=torch.int32).view(torch.float32)
    for place in range(3):
        sprinkle(arguments[place], chooser, lambda: mark, chooser.choice([0, 0, 0.02, 1]))
    if chooser.random() < 0.3:
        arguments[0], arguments[5:7] = arguments[2], arguments[2].stride()
    kernel = load_kernel(folder, launched.source)
    with scope(checks=("uninitialised-read",)):
        agree(kernel, launched.grid, arguments, launched.options)


BODIES = {
    "made and stored": "tl.store(out_ptr + j, tl.log(x), mask=j < n)",
    "made, masked off": "tl.store(out_ptr + j, tl.log(x), mask=(j < n) & (x > 0))",
    "dropped by where": "tl.store(out_ptr + j, tl.where(x > 0, tl.log(x), 0.0), mask=j < n)",
    "dropped by maximum": "tl.store(out_ptr + j, tl.maximum(tl.log(x), 0.0), mask=j < n)",
    "overwritten": "tl.store(out_ptr + j * 0, tl.log(x), mask=j < n)",
    "overwritten by the next": (
        "tl.store(out_ptr + j, tl.log(x), mask=j < n); tl.store(out_ptr + j, x, mask=j < n)"
    ),
    "in place": (
        "y = tl.load(out_ptr + j, mask=j < n); tl.store(out_ptr + j, y + tl.log(x), mask=j < n)"
    ),
    "twice in place": (
        "tl.store(out_ptr + j, tl.load(out_ptr + j, mask=j < n) + 1.0, mask=j < n); "
        "tl.store(out_ptr + j, tl.load(out_ptr + j, mask=j < n) * tl.log(x), mask=j < n)"
    ),
    "after an atomic": (
        "y = tl.atomic_add(out_ptr + j, 1.0, mask=j < n); "
        "tl.store(out_ptr + j, y * tl.log(x), mask=j < n)"
    ),
    "reduced": "tl.store(out_ptr + p0, tl.sum(tl.log(x)))",
    "largest": "tl.store(out_ptr + p0, tl.max(tl.log(x)))",
    "infinite, not NaN": "tl.store(out_ptr + j, tl.where(x < 0, 1e38 * 10.0, x), mask=j < n)",
    "both infinities": (
        "tl.store(out_ptr + j, tl.where(x < 0, 1e38 * 10.0, -1e38 * 10.0), mask=j < n)"
    ),
    "half": "tl.store(out_ptr + j, tl.log(x.to(tl.float16).to(tl.float32)), mask=j < n)",
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("budget", [None, 64], ids=["whole", "batches"])
def test_nans_are_the_same_where_batches_run_again(folder, name, budget):
    body = BODIES[name]
    source = HEADER + f"    x = tl.load(x_ptr + j, mask=j < n, other=1.0)\n    {body}\n"
    kernel = load_kernel(folder, source)
    x = torch.tensor([1.0, 2.0, -1.0, 0.0] * 5)
    arguments = [x, x, torch.ones(20), 1, 20, 1, 1, 1, 1, 0]
    with scope(checks=("nan",)):
        faults = agree(kernel, (3, 1, 1), arguments, {"M": 8, "N": 8, "budget": budget})
    drops_nan = any(word in body for word in ("where", "x > 0", "tl.max"))
    assert bool(faults) == (not drops_nan and not name.startswith("overwritten"))


def test_a_batch_that_stores_a_nan_prints_once(folder, capsys):
    source = HEADER + (
        "    x = tl.load(x_ptr + j, mask=j < n, other=1.0)\n"
        '    tl.device_print("x", p0)\n'
        "    tl.store(out_ptr + j, tl.log(x), mask=j < n)\n"
    )
    kernel = load_kernel(folder, source)
    arguments = [-torch.ones(8), torch.ones(8), torch.ones(8), 1, 8, 1, 1, 1, 1, 0]
    with scope(checks=("nan",)):
        (fault,) = run(kernel, (1, 1, 1), *arguments, M=8, N=8)
    assert (fault.kind, fault.count) == ("nan", 8)
    assert capsys.readouterr().out.count("pid") == 1


@pytest.mark.interpreted_only("an observer alters its values")
def test_observers_that_may_alter_values_keep_batches_from_running_again(folder):
    from tkdebug.interpreter.observers import Moments, Observer

    class Altering(Observer):
        key = None

        def moments(self, op):
            return Moments.AFTER if op.name == "math.log" else Moments.NEVER

        def after(self, run, op, operands, results):
            return [torch.full_like(results[0], 5.0)]

    source = HEADER + "    tl.store(out_ptr + j, tl.log(tl.load(x_ptr + j)))\n"
    kernel = load_kernel(folder, source)
    out = torch.zeros(8)
    arguments = [-torch.ones(8), out, out, 1, 8, 1, 1, 1, 1, 0]
    with scope(checks=("nan",)):
        assert not run(kernel, (1, 1, 1), *arguments, M=8, N=8, observers=[Altering()])
    assert out.tolist() == [5.0] * 8
