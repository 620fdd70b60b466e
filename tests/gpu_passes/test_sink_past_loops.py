"""`SinkPastLoops`: what only code behind a loop needs takes no registers in it."""

from __future__ import annotations

from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.passes.gpu.loop_registers import SinkPastLoops
from tkdebug.compiler.passes.pipeline import PassManager

TEXT = """tt.func @k(%p: !tt.ptr<f32>, %n: i32, %zero: i32, %one: i32) attributes {num_warps = 4} {
  %base = tt.splat %p : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>, #a>
  %range = tt.make_range {start = 0, end = 128} : tensor<128xi32, #a>
  %ptrs = tt.addptr %base, %range : (tensor<128x!tt.ptr<f32>, #a>, tensor<128xi32, #a>)
      -> tensor<128x!tt.ptr<f32>, #a>
BEFORE
  %sum = scf.for %i = %zero to %n step %one iter_args(%acc = %x) -> (tensor<128xf32, #a>) : i32 {
    %next = arith.addf %acc, INSIDE : tensor<128xf32, #a>
    scf.yield %next : tensor<128xf32, #a>
  }
  %total = arith.addf %sum, %y : tensor<128xf32, #a>
  tt.store %ptrs, %total : tensor<128x!tt.ptr<f32>, #a>, tensor<128xf32, #a>
  tt.return
}"""
LAYOUT = (
    "#a = #ttg.linear<{register = [], lane = [[1], [2], [4], [8], [16]], "
    "warp = [[32], [64]], block = []}>\n"
)
LOAD = "  %x = tt.load %ptrs : tensor<128x!tt.ptr<f32>, #a> -> tensor<128xf32, #a>\n"
CAST = "  %y = arith.sitofp %range : tensor<128xi32, #a> -> tensor<128xf32, #a>\n"
ADD = "  %y = arith.addf %x, %x : tensor<128xf32, #a>\n"
SUM = """  %u = tt.load %ptrs : tensor<128x!tt.ptr<f32>, #a> -> tensor<128xf32, #a>
  %v = tt.load %ptrs : tensor<128x!tt.ptr<f32>, #a> -> tensor<128xf32, #a>
  %y = arith.addf %u, %v : tensor<128xf32, #a>
"""


def names_behind(before: str, inside: str = "%acc") -> list[str]:
    """The ops after the loop, once the pass has run."""
    text = LAYOUT + TEXT.replace("BEFORE", LOAD + before).replace("INSIDE", inside)
    module = parse_module(text)
    PassManager((SinkPastLoops(),), verify_each=True).run(module)
    names = [op.name for op in module.function.regions[0].block.operations]
    return names[names.index("scf.for") + 1 :]


LEFT = ["arith.addf", "tt.store", "tt.return"]


def test_what_only_the_code_behind_needs_is_computed_there() -> None:
    assert names_behind(CAST) == ["arith.sitofp", *LEFT]


def test_what_the_loop_needs_stays() -> None:
    assert names_behind(CAST, "%y") == LEFT


def test_operands_that_would_take_more_registers_than_the_result_keep_it_in_place() -> None:
    assert names_behind(ADD) == ["arith.addf", *LEFT]
    assert names_behind(SUM) == LEFT
