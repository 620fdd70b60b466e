"""Runs a kernel under the interpreter and under the reference, and compares memory and faults."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from dataclasses import dataclass, field
from unittest import mock

import torch
from reference import Reference

import tkdebug.interpreter.launch
from tkdebug.knobs import scope

_real_run = tkdebug.interpreter.launch.run_module
_counter = itertools.count()
# What undefined values come to is tested by itself, in test_undefined_values.py and
# test_offset_overflow.py.
NOT_IN_REFERENCE = (
    "division-by-zero",
    "shift-range",
    "offset-overflow",
    "misaligned-descriptor",
    "negative-remainder",
)


@dataclass
class Seen:
    """Results of one launch under the interpreter: its module, faults, and a reference."""

    faults: list = field(default_factory=list)
    reference: Reference | None = None
    module: object = None


def load_kernel(folder, source, name="kernel"):
    """Import `source` as a module of its own (kernels need a file) and give its kernel."""
    unique = f"generated_{next(_counter)}"
    path = folder / f"{unique}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(unique, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def launch(kernel, grid, *arguments, budget=None, observers=(), **options):
    """Launch under the interpreter; the launch's faults and a reference not yet run."""
    seen = Seen()

    def spy(module, values, dimensions, record=None, name=None, **options):
        names = module.function.attributes["arg_names"]
        seen.module = module
        seen.reference = Reference(module, values, dimensions, names)
        options = {**options, "observers": [*options.get("observers", ()), *observers]}
        seen.faults = _real_run(module, values, dimensions, record, name, **options)
        return seen.faults

    with mock.patch.object(tkdebug.interpreter.launch, "run_module", spy):
        with scope(**({} if budget is None else {"memory_budget_bytes": budget})):
            kernel.interpret[grid](*arguments, **options)
    return seen


def run(kernel, grid, *arguments, **options):
    """The faults of a launch under the interpreter; `options` are those of `launch`."""
    return launch(kernel, grid, *arguments, **options).faults


def compare(kernel, grid, *arguments, budget=None, first=True, signed_zeros=True, **options):
    """Launch both ways; every byte of every tensor and every fault count must agree."""
    seen = launch(kernel, grid, *arguments, budget=budget, **options)
    reference = seen.reference
    reference.run()
    tensors = [a for a in (*arguments, *options.values()) if isinstance(a, torch.Tensor)]
    tensors += [a.base for a in arguments if not isinstance(a, torch.Tensor) and hasattr(a, "base")]
    for tensor in tensors:
        same_memory(tensor, reference.memory, signed_zeros)
    faults = [fault for fault in seen.faults if fault.kind not in NOT_IN_REFERENCE]
    got = {(f.kind, f.op_id, f.tensor): f.count for f in faults}
    assert got == dict(reference.faults), (got, dict(reference.faults))
    if first:
        for fault in faults:
            expected = reference.first[fault.kind, fault.op_id, fault.tensor]
            assert (fault.program_id, fault.lane, fault.index) == expected, (fault, expected)
    return seen


def same_memory(tensor, memory, signed_zeros=True):
    """The whole allocation behind `tensor` equals the reference's; any NaN equals any NaN."""
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return
    kind = tensor.dtype
    got = torch.empty(0, dtype=torch.uint8).set_(storage)
    want = torch.frombuffer(memory.blocks[storage.data_ptr()], dtype=torch.uint8)
    if torch.equal(got, want):
        return
    count = storage.nbytes() // tensor.element_size()
    got, want = (t[: count * tensor.element_size()].clone().view(kind) for t in (got, want))
    if kind.is_floating_point and kind.itemsize > 1:
        same = (got == want) | (got.isnan() & want.isnan())
        if signed_zeros:
            same &= (torch.signbit(got) == torch.signbit(want)) | got.isnan()
    else:
        same = (
            got.view(torch.uint8) == want.view(torch.uint8)
            if kind.is_floating_point
            else got == want
        )
    assert bool(same.all()), (
        f"{int((~same).sum())} elements differ, first at {int((~same).nonzero()[0])}: "
        f"got {got[~same][:8].tolist()}, expected {want[~same][:8].tolist()}"
    )
