"""`SinkReductions` of sums that an iteration rescales, as an online softmax does."""

from __future__ import annotations

import re

import pytest
import torch
from test_sink_reductions import deferred

from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes import PassManager
from tkdebug.compiler.passes.gpu.assign_layouts import AssignLayouts
from tkdebug.compiler.passes.gpu.coalesce_accesses import CoalesceAccesses
from tkdebug.compiler.passes.gpu.sink_reductions import SinkReductions
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.interpreter.launch import run_module

# One warp; a thread holds two elements of every row, of which there are two.
ROWS = """
#tile = #ttg.linear<{register = [[0, 1], [1, 0]], lane = [[0, 2], [0, 4], [0, 8], [0, 16], [0, 32]], warp = [], block = []}>
#sums = #ttg.linear<{register = [[1]], lane = [[0], [0], [0], [0], [0]], warp = [], block = []}>
tt.func @k(%x: tensor<2x64xf32, #tile>, %first: tensor<2xf32, #sums>, %w: tensor<2xf32, #sums>, %n: i32)
    attributes {arg_names = ["x", "first", "w", "n"], num_warps = 1} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %total = scf.for %i = %zero to %n step %one iter_args(%t = %first)
      -> (tensor<2xf32, #sums>) : i32 {
    %e = math.exp2 %w : tensor<2xf32, #sums>
    %d = arith.mulf %t, %e : tensor<2xf32, #sums>
    %r = tt.reduce %x {axis = 1, combiner = "add"} ({
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      tt.reduce.return %c : f32
    }) : tensor<2x64xf32, #tile> -> tensor<2xf32, #sums>
    %s = arith.addf %d, %r : tensor<2xf32, #sums>
    BETWEEN
    scf.yield %s : tensor<2xf32, #sums>
  }
  tt.print %total {prefix = ""} : tensor<2xf32, #sums>
  tt.return
}
"""  # noqa: E501


DEFERRED = """\
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %0 = tt.expand_dims %first {axis = 1} : tensor<2xf32, #layout1> -> tensor<2x1xf32, #layout2>
  %1 = tt.broadcast %0 : tensor<2x1xf32, #layout2> -> tensor<2x32xf32, #layout3>
  %2 = tt.make_range {start = 0, end = 32} : tensor<32xi32, #layout4>
  %3 = tt.expand_dims %2 {axis = 0} : tensor<32xi32, #layout4> -> tensor<1x32xi32, #layout5>
  %4 = tt.broadcast %3 : tensor<1x32xi32, #layout5> -> tensor<2x32xi32, #layout3>
  %cst = arith.constant dense<0> : tensor<2x32xi32, #layout3>
  %5 = arith.cmpi %4, %cst {predicate = "eq"} : (tensor<2x32xi32, #layout3>, tensor<2x32xi32, #layout3>) -> tensor<2x32xi1, #layout3>
  %cst_1 = arith.constant dense<-0.0> : tensor<2x32xf32, #layout3>
  %6 = arith.select %5, %1, %cst_1 : (tensor<2x32xi1, #layout3>, tensor<2x32xf32, #layout3>, tensor<2x32xf32, #layout3>) -> tensor<2x32xf32, #layout3>
  %total = scf.for %i = %zero to %n step %one iter_args(%t = %6) -> (tensor<2x32xf32, #layout3>) : i32 {
    %e = math.exp2 %w : tensor<2xf32, #layout1>
    %7 = tt.expand_dims %e {axis = 1} : tensor<2xf32, #layout1> -> tensor<2x1xf32, #layout2>
    %8 = tt.broadcast %7 : tensor<2x1xf32, #layout2> -> tensor<2x32xf32, #layout3>
    %d = arith.mulf %t, %8 : tensor<2x32xf32, #layout3>
    %9 = tt.reshape %x : tensor<2x64xf32, #layout0> -> tensor<2x32x2xf32, #layout6>
    %10 = tt.reduce %9 {axis = 2, combiner = "add"} ({
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      tt.reduce.return %c : f32
    }) : tensor<2x32x2xf32, #layout6> -> tensor<2x32xf32, #layout3>
    %s = arith.addf %d, %10 : tensor<2x32xf32, #layout3>
    scf.yield %s : tensor<2x32xf32, #layout3>
  }
  %11 = tt.reduce %total {axis = 1, combiner = "add"} ({
  ^bb0(%a_1: f32, %b_1: f32):
    %c_1 = arith.addf %a_1, %b_1 : f32
    tt.reduce.return %c_1 : f32
  }) : tensor<2x32xf32, #layout3> -> tensor<2xf32, #layout1>
  tt.print %11 {prefix = ""} : tensor<2xf32, #layout1>
  tt.return
}
"""  # noqa: E501


def test_parts_are_rescaled_and_reduced_behind_the_loop() -> None:
    text = deferred(ROWS.replace("BETWEEN", ""))
    assert text[text.index("  %zero") :] == DEFERRED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The factor may be infinite, or is no weight of the iteration.
        ("arith.mulf %t, %e", "arith.mulf %t, %w"),
        ("arith.mulf %t, %e", "arith.addf %t, %e"),
        # What is multiplied by itself has no parts to be multiplied.
        ("arith.mulf %t, %e", "arith.mulf %t, %t"),
        ("BETWEEN", 'tt.print %d {prefix = ""} : tensor<2xf32, #sums>'),
        ("BETWEEN", 'tt.print %t {prefix = ""} : tensor<2xf32, #sums>'),
        # A product of the greatest with a weight is not the greatest of products.
        ("%c = arith.addf", "%c = arith.maxnumf"),
    ],
)
def test_other_sums_stay(old: str, new: str) -> None:
    text = ROWS.replace(old, new).replace("BETWEEN", "")
    if "maxnumf" in new:
        text = text.replace("%s = arith.addf", "%s = arith.maxnumf").replace('"add"', '"maxnum"')
    assert deferred(text) == print_module(parse_module(text))


# What an online softmax does along AXIS of a tile; the sum begins with numbers of y.
SOFTMAX = """
tt.func @k(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32)
    attributes {arg_names = ["x", "y", "n"], num_warps = 4, arg_divisibility = [16, 16, 1]} {
  %rows = tt.make_range {start = 0, end = 16} : tensor<16xi32>
  %columns = tt.make_range {start = 0, end = 256} : tensor<256xi32>
  %0 = tt.expand_dims %rows {axis = 1} : tensor<16xi32> -> tensor<16x1xi32>
  %width = arith.constant dense<256> : tensor<16x1xi32>
  %1 = arith.muli %0, %width : tensor<16x1xi32>
  %2 = tt.broadcast %1 : tensor<16x1xi32> -> tensor<16x256xi32>
  %3 = tt.expand_dims %columns {axis = 0} : tensor<256xi32> -> tensor<1x256xi32>
  %4 = tt.broadcast %3 : tensor<1x256xi32> -> tensor<16x256xi32>
  %offsets = arith.addi %2, %4 : tensor<16x256xi32>
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %size = arith.constant 4096 : i32
  %9 = tt.make_range {start = 0, end = SIZE} : tensor<SIZExi32>
  %10 = tt.splat %y : !tt.ptr<f32> -> tensor<SIZEx!tt.ptr<f32>>
  %11 = tt.addptr %10, %9 : (tensor<SIZEx!tt.ptr<f32>>, tensor<SIZExi32>)
      -> tensor<SIZEx!tt.ptr<f32>>
  %first = tt.load %11 : tensor<SIZEx!tt.ptr<f32>> -> tensor<SIZExf32>
  %lowest = arith.constant dense<-4.0> : tensor<SIZExf32>
  %total, %peak = scf.for %i = %zero to %n step %one iter_args(%t = %first, %p = %lowest)
      -> (tensor<SIZExf32>, tensor<SIZExf32>) : i32 {
    %5 = arith.muli %i, %size : i32
    %6 = tt.addptr %x, %5 : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
    %7 = tt.splat %6 : !tt.ptr<f32> -> tensor<16x256x!tt.ptr<f32>>
    %8 = tt.addptr %7, %offsets : (tensor<16x256x!tt.ptr<f32>>, tensor<16x256xi32>)
        -> tensor<16x256x!tt.ptr<f32>>
    %v = tt.load %8 : tensor<16x256x!tt.ptr<f32>> -> tensor<16x256xf32>
    %top = tt.reduce %v {axis = AXIS} ({
    ^bb0(%a: f32, %b: f32):
      %c = arith.maxnumf %a, %b : f32
      tt.reduce.return %c : f32
    }) : tensor<16x256xf32> -> tensor<SIZExf32>
    %new = arith.maxnumf %p, %top : tensor<SIZExf32>
    %change = arith.subf %p, %new : tensor<SIZExf32>
    %weight = math.exp2 %change : tensor<SIZExf32>
    %faded = arith.mulf %weight, %t : tensor<SIZExf32>
    %r = tt.reduce %v {axis = AXIS} ({
    ^bb0(%a2: f32, %b2: f32):
      %c2 = arith.addf %a2, %b2 : f32
      tt.reduce.return %c2 : f32
    }) : tensor<16x256xf32> -> tensor<SIZExf32>
    %s = arith.addf %r, %faded : tensor<SIZExf32>
    scf.yield %s, %new : tensor<SIZExf32>, tensor<SIZExf32>
  }
  tt.store %11, %total : tensor<SIZEx!tt.ptr<f32>>, tensor<SIZExf32>
  tt.return
}
"""


def softmax(axis: int) -> Module:
    return parse_module(SOFTMAX.replace("SIZE", str((256, 16)[axis])).replace("AXIS", str(axis)))


def test_a_second_loop_goes_on_from_the_parts_of_the_first() -> None:
    text = ROWS.replace("BETWEEN", "")
    start, end = text.index("  %total ="), text.index("  tt.print")
    loop = text[start:end]
    again = re.sub(r"%(total|[itedrabcs])\b", r"%\g<1>2", loop).replace("= %first", "= %total")
    text = deferred(f"{text[:end]}{again}{text[end:].replace('%total', '%total2')}")
    assert "iter_args(%t2 = %total)" in text
    assert text.count("arith.select") == 1


def test_sums_may_be_told_to_stay() -> None:
    text = ROWS.replace("BETWEEN", "")
    module = parse_module(text)
    PassManager((SinkReductions(rescaled=False),), verify_each=True, print_after=()).run(module)
    assert print_module(module) == print_module(parse_module(text))


@pytest.mark.parametrize("special", [0.0, float("inf"), float("nan")])
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_results_stay(axis: int, count: int, special: float) -> None:
    """Whole numbers and weights that are powers of two: their sums are exact in any order."""
    torch.manual_seed(0)
    x = torch.randint(-3, 4, (3 * 4096,)).float()
    y = torch.randint(1, 5, (256,)).float()
    y[3] = special
    wanted, got = y.clone(), y.clone()
    assert run_module(softmax(axis), [x, wanted, count], (1, 1, 1)) == []
    module = softmax(axis)
    passes = (CoalesceAccesses(), AssignLayouts(TARGETS["sm_90a"]))
    PassManager(passes, verify_each=True, print_after=()).run(module)
    (run,) = PassManager((SinkReductions(),), verify_each=True, print_after=()).run(module)
    assert run.changed
    assert run_module(module, [x, got, count], (1, 1, 1)) == []
    assert count == 0 or not torch.equal(got, y)
    assert torch.equal(got.nan_to_num(123.0), wanted.nan_to_num(123.0))


def test_the_weight_of_one_sum_is_that_of_all_its_parts() -> None:
    """A tile of one axis has scalars for sums."""
    text = ROWS.replace("BETWEEN", "").replace("tensor<2xf32, #sums>", "f32")
    text = text.replace("2x64xf32", "64xf32").replace("{axis = 1", "{axis = 0")
    lanes = "register = [[1]], lane = [[2], [4], [8], [16], [32]], warp = [], block = []"
    tile, sums = (line for line in text.splitlines() if line.startswith("#"))
    text = text.replace(tile, f"#tile = #ttg.linear<{{{lanes}}}>").replace(sums, "")
    loop, _, behind = deferred(text).partition("\n  }\n")
    assert "tt.splat %e : f32 -> tensor<32xf32, " in loop
    assert (loop.count("tt.reduce %"), behind.count("tt.reduce %total ")) == (1, 1)
    assert "tensor<32x2xf32, " in loop
