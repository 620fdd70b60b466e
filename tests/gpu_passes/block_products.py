"""A product of matrices over blocks of K: the loop that tests of pipelines change and run."""

from __future__ import annotations

import torch

from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.passes import EliminateDeadCode
from tkdebug.compiler.passes.gpu.assign_layouts import AssignLayouts
from tkdebug.compiler.passes.gpu.coalesce_accesses import CoalesceAccesses
from tkdebug.compiler.passes.gpu.select_tensor_cores import SelectTensorCores
from tkdebug.compiler.passes.pass_run import Pass
from tkdebug.compiler.passes.pipeline import PassManager
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.interpreter.launch import run_module

M, N, K = 64, 32, 32
BLOCKS = 7

# A matrix product over blocks of K; LOADS, EXTRA and STEP vary.
PRODUCT = """
tt.func @k(%a: !tt.ptr<f16>, %b: !tt.ptr<f16>, %c: !tt.ptr<f32>, %i: !tt.ptr<i32>,
    %lower: i32, %upper: i32, %width: i32)
    attributes {arg_names = ["a", "b", "c", "i", "lower", "upper", "width"], num_warps = 4,
    arg_divisibility = [16, 16, 16, 16, 1, 1, 16]} {
  %rows = tt.make_range {start = 0, end = 64} : tensor<64xi32>
  %inner = tt.make_range {start = 0, end = 32} : tensor<32xi32>
  %0 = tt.expand_dims %rows {axis = 1} : tensor<64xi32> -> tensor<64x1xi32>
  %1 = tt.splat %width : i32 -> tensor<64x1xi32>
  %2 = arith.muli %0, %1 : tensor<64x1xi32>
  %3 = tt.broadcast %2 : tensor<64x1xi32> -> tensor<64x32xi32>
  %4 = tt.expand_dims %inner {axis = 0} : tensor<32xi32> -> tensor<1x32xi32>
  %cols = tt.broadcast %4 : tensor<1x32xi32> -> tensor<64x32xi32>
  %offs_a = arith.addi %3, %cols : tensor<64x32xi32>
  %5 = tt.splat %a : !tt.ptr<f16> -> tensor<64x32x!tt.ptr<f16>>
  %ptrs_a = tt.addptr %5, %offs_a : (tensor<64x32x!tt.ptr<f16>>, tensor<64x32xi32>)
      -> tensor<64x32x!tt.ptr<f16>>
  %6 = tt.expand_dims %inner {axis = 1} : tensor<32xi32> -> tensor<32x1xi32>
  %c32 = arith.constant dense<32> : tensor<32x1xi32>
  %7 = arith.muli %6, %c32 : tensor<32x1xi32>
  %8 = tt.broadcast %7 : tensor<32x1xi32> -> tensor<32x32xi32>
  %9 = tt.broadcast %4 : tensor<1x32xi32> -> tensor<32x32xi32>
  %offs_b = arith.addi %8, %9 : tensor<32x32xi32>
  %10 = tt.splat %b : !tt.ptr<f16> -> tensor<32x32x!tt.ptr<f16>>
  %ptrs_b = tt.addptr %10, %offs_b : (tensor<32x32x!tt.ptr<f16>>, tensor<32x32xi32>)
      -> tensor<32x32x!tt.ptr<f16>>
  %zero = arith.constant dense<0.0> : tensor<64x32xf32>
  %none = arith.constant dense<0.0> : tensor<32x32xf16>
  %step = arith.constant 1 : i32
  %block = arith.constant 32 : i32
  %block_a = arith.constant dense<32> : tensor<64x32xi32>
  %product, %last = scf.for %t = %lower to %upper step %step
      iter_args(%acc = %zero, %pa = %ptrs_a)
      -> (tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>) : i32 {
    %x = tt.load %pa : tensor<64x32x!tt.ptr<f16>> -> tensor<64x32xf16>
    %11 = arith.muli %t, %block : i32
    %12 = arith.subi %width, %11 : i32
    %13 = tt.splat %12 : i32 -> tensor<32x1xi32>
    %14 = arith.cmpi %6, %13 {predicate = "slt"} : (tensor<32x1xi32>, tensor<32x1xi32>)
        -> tensor<32x1xi1>
    %mask = tt.broadcast %14 : tensor<32x1xi1> -> tensor<32x32xi1>
    %15 = arith.muli %11, %block : i32
    %16 = tt.splat %15 : i32 -> tensor<32x32xi32>
    %pb = tt.addptr %ptrs_b, %16 : (tensor<32x32x!tt.ptr<f16>>, tensor<32x32xi32>)
        -> tensor<32x32x!tt.ptr<f16>>
    %y = tt.load %pb, %mask, %none
        : (tensor<32x32x!tt.ptr<f16>>, tensor<32x32xi1>, tensor<32x32xf16>) -> tensor<32x32xf16>
EXTRA
    %sum = tt.dot %u, %v, %acc {input_precision = "tf32"}
        : (tensor<64x32xf16>, tensor<32x32xf16>, tensor<64x32xf32>) -> tensor<64x32xf32>
    %next = tt.addptr %pa, %block_a : (tensor<64x32x!tt.ptr<f16>>, tensor<64x32xi32>)
        -> tensor<64x32x!tt.ptr<f16>>
    scf.yield %sum, %next : tensor<64x32xf32>, tensor<64x32x!tt.ptr<f16>>
  }
  %c32_c = arith.constant dense<32> : tensor<64x1xi32>
  %17 = arith.muli %0, %c32_c : tensor<64x1xi32>
  %18 = tt.broadcast %17 : tensor<64x1xi32> -> tensor<64x32xi32>
  %offs_c = arith.addi %18, %cols : tensor<64x32xi32>
  %19 = tt.splat %c : !tt.ptr<f32> -> tensor<64x32x!tt.ptr<f32>>
  %ptrs_c = tt.addptr %19, %offs_c : (tensor<64x32x!tt.ptr<f32>>, tensor<64x32xi32>)
      -> tensor<64x32x!tt.ptr<f32>>
  tt.store %ptrs_c, %product : tensor<64x32x!tt.ptr<f32>>, tensor<64x32xf32>
  tt.return
}
"""
_TILES = {"u": ("x", "64x32"), "v": ("y", "32x32")}


def _plain(name: str) -> str:
    source, shape = _TILES[name]
    hint = f'tt.hint %{source} {{kind = "divisibility", values = [1, 1]}}'
    return f"    %{name} = {hint} : tensor<{shape}xf16>\n"


def _scaled(name: str) -> str:
    source, shape = _TILES[name]
    return f"    %{name} = arith.addf %{source}, %{source} : tensor<{shape}xf16>\n"


def _transposed(name: str) -> str:
    if name == "u":
        return _plain(name)
    return "    %v = tt.trans %y {order = [1, 0]} : tensor<32x32xf16> -> tensor<32x32xf16>\n"


OPERANDS = {"plain": _plain, "scaled": _scaled, "transposed": _transposed}


def product(u: str = "plain", v: str = "plain", extra: str = "") -> str:
    text = PRODUCT.replace("EXTRA", OPERANDS[u]("u") + OPERANDS[v]("v") + extra)
    # A hint on what is loaded keeps a name and nothing else.
    for name, (source, shape) in _TILES.items():
        if _plain(name) in text:
            text = text.replace(_plain(name), "").replace(f"%{name},", f"%{source},")
        assert shape in text
    return text


def gpu_module(text: str, target: str) -> Module:
    module = parse_module(text)
    passes = (
        CoalesceAccesses(),
        SelectTensorCores(TARGETS[target]),
        AssignLayouts(TARGETS[target]),
    )
    PassManager((*passes, EliminateDeadCode()), verify_each=True).run(module)
    return module


def result(module: Module, lower: int, upper: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    width = K * BLOCKS - 16
    a = torch.randint(-4, 5, (M, K * BLOCKS), generator=generator).to(torch.float16)
    b = torch.randint(-4, 5, (K * BLOCKS, N), generator=generator).to(torch.float16)
    c = torch.full((M, N), -1.0)
    i = torch.randperm(BLOCKS, generator=generator, dtype=torch.int32)
    faults = run_module(module, (a, b, c, i, lower, upper, width), (1, 1, 1))
    assert not [fault for fault in faults if lower == 0]
    return c


def pipelined(text: str, target: str, *passes: Pass) -> Module:
    module = gpu_module(text, target)
    PassManager((*passes, EliminateDeadCode()), verify_each=True).run(module)
    return module


def named(module: Module, name: str) -> list[Operation]:
    return [op for op in module.walk() if op.name == name]


def loop_of(module: Module) -> Operation:
    (loop,) = named(module, "scf.for")
    return loop
