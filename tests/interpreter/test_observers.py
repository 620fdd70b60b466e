"""Values that observers of a launch see, and may alter."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.launch import run_module
from tkdebug.interpreter.observers import LaunchContext, Moments, Observer
from tkdebug.interpreter.plan import Prepared
from tkdebug.interpreter.tiles.values import TileValue

KERNEL = """
tt.func @k(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>) attributes {arg_names = ["x", "out"]} {
  %a = tt.load %x : !tt.ptr<f32> -> f32
  %two = arith.constant 2.0 : f32
  %b = arith.mulf %a, %two : f32
  %c = arith.addf %b, %b : f32
  tt.store %out, %c : !tt.ptr<f32>, f32
  tt.return
}
"""


@pytest.fixture
def module():
    return parse_module(KERNEL)


def launch(module, *observers):
    out = torch.zeros(1)
    assert run_module(module, [torch.tensor([3.0]), out], (1, 1, 1), observers=observers) == []
    return float(out)


class At(Observer):
    """Calls a function before or after the ops of one name."""

    def __init__(self, name, before=None, after=None):
        self.name, self._before, self._after = name, before, after

    @property
    def key(self):
        return None

    def moments(self, op: Operation) -> Moments:
        if op.name != self.name:
            return Moments.NEVER
        before = Moments.BEFORE if self._before else Moments.NEVER
        return before | (Moments.AFTER if self._after else Moments.NEVER)

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        self._before(run, op, operands)

    def after(self, run, op, operands, results):
        return self._after(run, op, operands, results) or results


def test_observer_sees_operands_and_results_of_its_ops(module):
    seen = []

    def after(run, op, operands, results):
        seen.append((op.name, *map(float, operands), *map(float, results)))

    assert launch(module, At("arith.mulf", after=after)) == 12
    assert seen == [("arith.mulf", 3, 2, 6)]


def test_observer_alters_a_result(module):
    def after(run, op, operands, results):
        return [torch.full_like(results[0], 5.0)]

    assert launch(module, At("arith.mulf", after=after)) == 10


def test_observer_alters_a_value_before_an_op(module):
    def before(run, op, operands):
        run.values[op.operands[0]] = torch.tensor([7.0])

    assert launch(module, At("arith.addf", before=before)) == 14


class Keeping(At):
    keeps_values = True


@pytest.mark.parametrize(("kind", "expected"), [(At, False), (Keeping, True)])
def test_values_stay_after_their_last_use_where_that_is_asked_for(module, kind, expected):
    (load,) = (op for op in module.walk() if op.name == "tt.load")
    seen = []

    def before(run, op, operands):
        seen.append(load.result in run.values)

    launch(module, kind("arith.addf", before=before))
    assert seen == [expected]


class Whole(At):
    needs_intermediates = True


@pytest.mark.parametrize("kind", [At, Whole])
def test_fused_ops_have_values_of_their_own_where_that_is_asked_for(module, kind):
    seen = []

    def after(run, op, operands, results):
        seen.append(isinstance(results[0], torch.Tensor))

    launch(module, kind("arith.addf", after=after))
    assert seen == [kind is Whole]


class Accesses(Observer):
    follows_accesses = True

    def __init__(self):
        self.seen = []

    def launch_begins(self, launch: LaunchContext) -> None:
        self.seen.append(("begins", launch.grid))

    def launch_ends(self) -> None:
        self.seen.append("ends")

    def read(self, run, access):
        self.seen.append(("read", float(access.loaded), access.touch().places.tolist()))

    def writing(self, run, access):
        self.seen.append(("writing", float(access.buffer.tensor), access.stored().tolist()))

    def written(self, run, access):
        self.seen.append(("written", float(access.buffer.tensor)))


def test_observer_follows_accesses_from_begin_to_end(module):
    observer = Accesses()
    launch(module, observer)
    assert observer.seen == [
        ("begins", (1, 1, 1)),
        ("read", 3, [0]),
        ("writing", 0, [12]),
        ("written", 12),
        "ends",
    ]


class OfBatch(Observer):
    def __init__(self, batches):
        self.batches = batches

    def moments(self, op: Operation) -> Moments:
        return Moments.BEFORE if op.name == "tt.store" else Moments.NEVER

    def of_batch(self, run: Evaluator) -> Observer:
        self.batches.append([])
        return At("tt.store", before=lambda run, op, operands: self.batches[-1].append(op.name))


def test_observer_has_one_of_its_own_for_each_batch(module):
    batches = []
    launch(module, OfBatch(batches))
    assert batches == [["tt.store"]]


def test_attentive_observer_is_called_before_every_op(module):
    seen = []

    def before(run, op, operands):
        seen.append(op.name)
        run.attend(observer, op.name != "arith.addf")

    observer = At("arith.constant", before=before)
    launch(module, observer)
    assert seen == ["arith.constant", "arith.mulf", "arith.addf"]


class Unseeing(Observer):
    pass


def test_plans_are_shared_by_observers_of_equal_keys(module):
    prepared = Prepared.of(module)
    assert prepared.plan([Unseeing()]) is prepared.plan([Unseeing()])
    assert prepared.plan([Unseeing()]) is not prepared.plan([])
    unique = At("tt.load")
    assert prepared.plan([unique]) is not prepared.plan([unique])


LOOP = """
tt.func @k(%x: !tt.ptr<f32>, %n: i32) attributes {arg_names = ["x", "n"]} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %sum = scf.for %i = %zero to %n step %one iter_args(%s = %zero) -> (i32) : i32 {
    %t = arith.addi %s, %i : i32
    scf.yield %t : i32
  }
  tt.return
}
"""


class Regions(Observer):
    def __init__(self):
        self.seen = []

    def moments(self, op: Operation) -> Moments:
        return Moments.REGIONS if op.name == "scf.for" else Moments.NEVER

    def enters(self, run, region, arguments):
        assert [run.values[value] for value in region.block.arguments] == list(arguments)
        self.seen.append(("enters", *arguments))

    def leaves(self, run, region, results):
        self.seen.append(("leaves", *results))


def test_observer_sees_the_edges_of_a_region():
    observer = Regions()
    run_module(parse_module(LOOP), [torch.zeros(1), 2], (1, 1, 1), observers=[observer])
    assert observer.seen == [("enters", 0, 0), ("leaves", 0), ("enters", 1, 0), ("leaves", 1)]


def test_observers_say_which_accesses_they_look_at():
    class Stores(Observer):
        def written(self, run, access):
            pass

    class Reads(Stores):
        def read(self, run, access):
            pass

    class Results(Observer):
        def atomic_done(self, run, access):
            pass

    kinds = Observer, Stores, Reads, Results
    assert [kind.sees_reads for kind in kinds] == [False, False, True, False]
    assert [kind.sees_atomics for kind in kinds] == [False, False, False, True]
