"""`SinkReductions`: what leaves a loop and what stays; sums and extrema come out the same."""

from __future__ import annotations

import pytest
import torch

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
tt.func @k(%x: tensor<2x64xf32, #tile>, %first: tensor<2xf32, #sums>, %n: i32)
    attributes {arg_names = ["x", "first", "n"], num_warps = 1} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %total = scf.for %i = %zero to %n step %one iter_args(%t = %first)
      -> (tensor<2xf32, #sums>) : i32 {
    %r = tt.reduce %x {axis = 1, combiner = "add"} ({
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      tt.reduce.return %c : f32
    }) : tensor<2x64xf32, #tile> -> tensor<2xf32, #sums>
    %s = arith.addf %t, %r : tensor<2xf32, #sums>
    BETWEEN
    scf.yield %s : tensor<2xf32, #sums>
  }
  tt.print %total {prefix = ""} : tensor<2xf32, #sums>
  tt.return
}
"""  # noqa: E501


def deferred(text: str) -> str:
    module = parse_module(text)
    PassManager((SinkReductions(),), verify_each=True, print_after=()).run(module)
    return print_module(module)


DEFERRED = """\
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %cst = arith.constant dense<-0.0> : tensor<2x32xf32, #layout2>
  %total = scf.for %i = %zero to %n step %one iter_args(%t = %cst) -> (tensor<2x32xf32, #layout2>) : i32 {
    %0 = tt.reshape %x : tensor<2x64xf32, #layout0> -> tensor<2x32x2xf32, #layout3>
    %1 = tt.reduce %0 {axis = 2, combiner = "add"} ({
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      tt.reduce.return %c : f32
    }) : tensor<2x32x2xf32, #layout3> -> tensor<2x32xf32, #layout2>
    %s = arith.addf %t, %1 : tensor<2x32xf32, #layout2>
    scf.yield %s : tensor<2x32xf32, #layout2>
  }
  %2 = tt.reduce %total {axis = 1, combiner = "add"} ({
  ^bb0(%a_1: f32, %b_1: f32):
    %c_1 = arith.addf %a_1, %b_1 : f32
    tt.reduce.return %c_1 : f32
  }) : tensor<2x32xf32, #layout2> -> tensor<2xf32, #layout1>
  %3 = arith.addf %first, %2 : tensor<2xf32, #layout1>
  tt.print %3 {prefix = ""} : tensor<2xf32, #layout1>
  tt.return
}
"""  # noqa: E501


def test_parts_are_reduced_in_threads_and_behind_the_loop() -> None:
    text = deferred(ROWS.replace("BETWEEN", ""))
    assert text[text.index("  %zero") :] == DEFERRED


def test_sums_of_several_reductions_are_deferred_together() -> None:
    reduce = ROWS[ROWS.index("    %r = ") : ROWS.index("    %s = ")]
    again = (
        reduce.replace("%r", "%r2").replace("%a", "%a2").replace("%b", "%b2").replace("%c", "%c2")
    )
    text = ROWS.replace("BETWEEN", f"{again}    %s2 = arith.addf %r2, %s : tensor<2xf32, #sums>")
    text = deferred(text.replace("yield %s :", "yield %s2 :"))
    loop, _, behind = text.partition("\n  }\n")
    assert (loop.count("tt.reduce %"), behind.count("tt.reduce %")) == (2, 1)
    assert loop.count("{axis = 2") == 2


@pytest.mark.parametrize(
    "use",
    [
        'tt.print %s {prefix = ""} : tensor<2xf32, #sums>',
        'tt.print %r {prefix = ""} : tensor<2xf32, #sums>',
        'tt.print %t {prefix = ""} : tensor<2xf32, #sums>',
    ],
)
def test_sums_that_the_loop_looks_at_stay(use: str) -> None:
    text = ROWS.replace("BETWEEN", use)
    assert deferred(text) == print_module(parse_module(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%s = arith.addf %t, %r", "%s = arith.maxnumf %t, %r"),
        ("%s = arith.addf %t, %r", "%s = arith.subf %t, %r"),
        (
            "[[0, 2], [0, 4], [0, 8], [0, 16], [0, 32]]",
            "[[0, 3], [0, 4], [0, 8], [0, 16], [0, 32]]",
        ),
    ],
)
def test_other_combinations_and_mixed_layouts_stay(old: str, new: str) -> None:
    text = ROWS.replace("BETWEEN", "").replace(old, new)
    assert deferred(text) == print_module(parse_module(text))


def test_what_lies_in_one_thread_stays() -> None:
    text = ROWS.replace("BETWEEN", "").replace("2x64xf32", "2x2xf32")
    lanes = "[[0, 2], [0, 4], [0, 8], [0, 16], [0, 32]]"
    text = text.replace(lanes, "[[0, 0], [0, 0], [0, 0], [0, 0], [0, 0]]")
    assert deferred(text) == print_module(parse_module(text))


# Sums along AXIS of a tile that a loop loads; SIZE, OTHER, OP, TYPE and FIRST vary.
LOADED = """
tt.func @k(%x: !tt.ptr<TYPE>, %y: !tt.ptr<TYPE>, %n: i32)
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
  %first = arith.constant dense<FIRST> : tensor<SIZExTYPE>
  %total = scf.for %i = %zero to %n step %one iter_args(%t = %first) -> (tensor<SIZExTYPE>) : i32 {
    %5 = arith.muli %i, %size : i32
    %6 = tt.addptr %x, %5 : (!tt.ptr<TYPE>, i32) -> !tt.ptr<TYPE>
    %7 = tt.splat %6 : !tt.ptr<TYPE> -> tensor<16x256x!tt.ptr<TYPE>>
    %8 = tt.addptr %7, %offsets : (tensor<16x256x!tt.ptr<TYPE>>, tensor<16x256xi32>)
        -> tensor<16x256x!tt.ptr<TYPE>>
    %v = tt.load %8 : tensor<16x256x!tt.ptr<TYPE>> -> tensor<16x256xTYPE>
    %r = tt.reduce %v {axis = AXIS} ({
    ^bb0(%a: TYPE, %b: TYPE):
      %c = OP %a, %b : TYPE
      tt.reduce.return %c : TYPE
    }) : tensor<16x256xTYPE> -> tensor<SIZExTYPE>
    %s = OP %r, %t : tensor<SIZExTYPE>
    scf.yield %s : tensor<SIZExTYPE>
  }
  %9 = tt.make_range {start = 0, end = SIZE} : tensor<SIZExi32>
  %10 = tt.splat %y : !tt.ptr<TYPE> -> tensor<SIZEx!tt.ptr<TYPE>>
  %11 = tt.addptr %10, %9 : (tensor<SIZEx!tt.ptr<TYPE>>, tensor<SIZExi32>)
      -> tensor<SIZEx!tt.ptr<TYPE>>
  tt.store %11, %total : tensor<SIZEx!tt.ptr<TYPE>>, tensor<SIZExTYPE>
  tt.return
}
"""


def loaded(axis: int, op: str, type_: str, first: str) -> Module:
    text = LOADED
    values = {"SIZE": (256, 16)[axis], "AXIS": axis, "OP": op, "TYPE": type_, "FIRST": first}
    for name, value in values.items():
        text = text.replace(name, str(value))
    return parse_module(text)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("op", "first"),
    [
        ("arith.addf", "2.0"),
        ("arith.mulf", "2.0"),
        ("arith.maximumf", "0.5"),
        ("arith.minimumf", "0.5"),
        ("arith.maxnumf", "nan"),
        ("arith.minnumf", "nan"),
        ("arith.addi", "5"),
        ("arith.muli", "5"),
        ("arith.andi", "-1"),
        ("arith.ori", "3"),
        ("arith.xori", "3"),
        ("arith.maxsi", "-7"),
        ("arith.minsi", "7"),
        ("arith.maxui", "7"),
        ("arith.minui", "7"),
    ],
)
def test_results_stay(op: str, first: str, axis: int, count: int) -> None:
    is_float = op.endswith("f")
    x_type = "f32" if is_float else "i32"
    module = loaded(axis, op, x_type, first)
    torch.manual_seed(0)
    x = torch.randint(-3, 4, (3 * 4096,), dtype=torch.int32)
    if is_float:
        x = torch.where(x > 0, 1.0, -1.0)
    y, wanted = (torch.zeros(256, dtype=x.dtype) for _ in range(2))
    assert run_module(module, [x, wanted, count], (1, 1, 1)) == []
    module = loaded(axis, op, x_type, first)
    passes = (CoalesceAccesses(), AssignLayouts(TARGETS["sm_90a"]))
    PassManager(passes, verify_each=True, print_after=()).run(module)
    (run,) = PassManager((SinkReductions(),), verify_each=True, print_after=()).run(module)
    assert run.changed
    assert run_module(module, [x, y, count], (1, 1, 1)) == []
    assert torch.equal(y.nan_to_num(123.0), wanted.nan_to_num(123.0))
