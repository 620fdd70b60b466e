"""Dots on FMA units: which read their operands from shared memory, and how these lie there."""

from __future__ import annotations

import pytest

from tkdebug.compiler.ir import Module
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.types import MemDescType, TensorType
from tkdebug.compiler.layouts import OFFSET, REGISTER, blocked
from tkdebug.compiler.passes.gpu.assign_layouts import AssignLayouts
from tkdebug.compiler.passes.gpu.select_tensor_cores import SelectTensorCores
from tkdebug.compiler.passes.pipeline import PassManager
from tkdebug.compiler.targets.nvptx.architectures import TARGETS

ROWS = (1, 0)
COLUMNS = (0, 1)


def product(
    size: int,
    element: str = "f32",
    b_order: tuple[int, int] = ROWS,
    target: str = "sm_80",
    acc: str = "%zero",
) -> Module:
    """A dot of two loaded tiles, `size` x `size`; B's memory runs in `b_order`."""
    type_ = f"tensor<{size}x{size}x{element}>"
    pointers = f"tensor<{size}x{size}x!tt.ptr<{element}>>"
    module = parse_module(f"""
    tt.func @k(%p: !tt.ptr<{element}>) attributes {{num_warps = 4}} {{
      %ps = tt.splat %p : !tt.ptr<{element}> -> {pointers}
      %a = tt.load %ps : {pointers} -> {type_}
      %b = tt.load %ps : {pointers} -> {type_}
      %loaded = tt.load %ps : {pointers} -> {type_}
      {f"%sum = arith.addf %loaded, %loaded : {type_}" if acc == "%sum" else ""}
      %zero = arith.constant dense<0.0> : {type_}
      %d = tt.dot %a, %b, {acc} {{input_precision = "ieee"}}
          : ({type_}, {type_}, {type_}) -> {type_}
      tt.store %ps, %d : {pointers}, {type_}
      tt.return
    }}""")
    for op in module.walk():
        if op.name in ("tt.load", "tt.store"):
            order = b_order if op.name == "tt.load" and op.result.name == "b" else ROWS
            box, lanes = ((1, 4), (4, 8)) if order == ROWS else ((4, 1), (8, 4))
            made = blocked(box, lanes, (4, 1), order, (size, size))
            op.attributes["layout"] = made.without_zero_bases(REGISTER)
    passes = (SelectTensorCores(TARGETS[target]), AssignLayouts(TARGETS[target]))
    PassManager(passes, verify_each=True).run(module)
    return module


def dot_of(module: Module):
    (dot,) = (op for op in module.walk() if op.name in ("tt.dot", "ttg.local_dot"))
    return dot


def contiguous_dim(buffer: MemDescType) -> int:
    return 0 if buffer.layout.bases(OFFSET)[0][0] else 1


@pytest.mark.parametrize(("size", "name"), [(16, "tt.dot"), (64, "ttg.local_dot")])
def test_large_operands_stay_in_shared_memory(size, name):
    dot = dot_of(product(size))
    assert dot.name == name
    kind = MemDescType if name == "ttg.local_dot" else TensorType
    assert all(isinstance(value.type, kind) for value in dot.operands[:2])
    assert "reads_shared" not in dot.attributes


@pytest.mark.parametrize("b_order", [ROWS, COLUMNS])
def test_buffers_lie_as_memory_does(b_order):
    a, b = (value.type for value in dot_of(product(64, b_order=b_order)).operands[:2])
    assert isinstance(a, MemDescType)
    assert isinstance(b, MemDescType)
    assert contiguous_dim(a) == 1
    assert contiguous_dim(b) == b_order[0]


def test_operands_that_do_not_fit_shared_memory_stay_in_registers():
    assert dot_of(product(128, "f64")).name == "tt.dot"
    # Accumulators may need room, too, on their way to the dot.
    assert dot_of(product(128, target="sm_80")).name == "ttg.local_dot"
    assert dot_of(product(128, target="sm_80", acc="%sum")).name == "tt.dot"


def test_sums_are_loaded_and_stored_where_they_are():
    module = product(64, acc="%loaded")
    dot = dot_of(module)
    assert dot.operands[2].defining_op.name == "tt.load"
    assert not [op for op in module.walk() if op.name == "ttg.convert_layout"]


def test_threads_of_f64_dots_read_16_bytes_of_a_row():
    acc = dot_of(product(64, "f64")).result.type
    assert isinstance(acc, TensorType)
    assert acc.encoding.bases(REGISTER)[:2] == ((0, 1), (1, 0))
