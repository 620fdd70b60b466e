"""`RematerialisePastLoops`: offsets used before and behind a loop take no registers in it."""

from __future__ import annotations

from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.passes.gpu.loop_registers import RematerialisePastLoops
from tkdebug.compiler.passes.pipeline import PassManager

LAYOUT = """\
#rows = #ttg.linear<{register = [[4], [8], [16]], lane = [[0], [0], [0], [1], [2]],
    warp = [[32], [64]], block = []}>
"""
TEXT = """tt.func @k(%p: !tt.ptr<f32>, %n: i32, %stride: i32, %zero: i32, %one: i32)
    attributes {num_warps = 4} {
  %base = tt.splat %p : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>, #rows>
  %rows = tt.make_range {start = 0, end = 128} : tensor<128xi32, #rows>
  %strides = tt.splat %stride : i32 -> tensor<128xi32, #rows>
  %offsets = OFFSETS
  %ptrs = tt.addptr %base, %offsets : (tensor<128x!tt.ptr<f32>, #rows>, tensor<128xi32, #rows>)
      -> tensor<128x!tt.ptr<f32>, #rows>
  %x = tt.load %ptrs : tensor<128x!tt.ptr<f32>, #rows> -> tensor<128xf32, #rows>
  %sum = scf.for %i = %zero to %n step %one iter_args(%acc = %x) -> (tensor<128xf32, #rows>) : i32 {
    %y = arith.sitofp USED : tensor<128xi32, #rows> -> tensor<128xf32, #rows>
    %next = arith.addf %acc, %y : tensor<128xf32, #rows>
    scf.yield %next : tensor<128xf32, #rows>
  }
  %out = tt.addptr %base, %offsets : (tensor<128x!tt.ptr<f32>, #rows>, tensor<128xi32, #rows>)
      -> tensor<128x!tt.ptr<f32>, #rows>
  tt.store %out, %sum : tensor<128x!tt.ptr<f32>, #rows>, tensor<128xf32, #rows>
  tt.return
}"""
PRODUCT = "arith.muli %rows, %strides : tensor<128xi32, #rows>"
SUM = "arith.addi %rows, %strides : tensor<128xi32, #rows>"
UNCHANGED = ["tt.addptr", "tt.store", "tt.return"]


def rematerialised(offsets: str = PRODUCT, used: str = "%rows", layout: str = LAYOUT) -> Module:
    text = layout.replace(",\n   ", ",") + TEXT.replace("OFFSETS", offsets).replace("USED", used)
    module = parse_module(text)
    PassManager((RematerialisePastLoops(),), verify_each=True).run(module)
    return module


def names_behind(module: Module) -> list[str]:
    names = [op.name for op in module.function.regions[0].block.operations]
    return names[names.index("scf.for") + 1 :]


def test_offsets_of_a_product_are_computed_again_behind_the_loop() -> None:
    module = rematerialised(used="%strides")
    clones = ["tt.make_range", "arith.muli"]
    assert names_behind(module) == [*clones, *UNCHANGED]
    first, second = (op for op in module.walk() if op.name == "tt.make_range")
    assert "rereads_thread" not in first.attributes
    assert second.attributes["rereads_thread"] is True


def test_what_the_loop_keeps_alive_anyway_is_not() -> None:
    assert names_behind(rematerialised(used="%offsets")) == UNCHANGED


def test_a_sum_is_one_register_and_constants() -> None:
    assert names_behind(rematerialised(SUM, used="%strides")) == UNCHANGED


def test_few_registers_are_kept() -> None:
    two = LAYOUT.replace("[[4], [8], [16]]", "[[16]]").replace("[0], [1]", "[4], [1]")
    two = two.replace("[[0], [0]", "[[0], [8]")
    assert names_behind(rematerialised(used="%strides", layout=two)) == UNCHANGED
