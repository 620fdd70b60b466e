"""Printing and parsing of IR text."""

from __future__ import annotations

import math
import struct

import pytest

from tkdebug.compiler.ir import Block, Builder, Module, Region, SourceLocation, fuse
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module, print_operation, print_with_lines
from tkdebug.compiler.verifier import verify

ROW_SUM = """\
tt.func @row_sum(%x_ptr: !tt.ptr<f32>, %n: i32) attributes {arg_names = ["x_ptr", "n"]} {
  %c0_i32 = arith.constant 0 : i32
  %c8_i32 = arith.constant 8 : i32
  %cst = arith.constant dense<0.0> : tensor<8xf32>
  %cols = tt.make_range {start = 0, end = 8} : tensor<8xi32>
  %0 = tt.splat %x_ptr : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
  %acc = scf.for %k = %c0_i32 to %n step %c8_i32 iter_args(%acc_1 = %cst) -> (tensor<8xf32>) : i32 {
    %1 = tt.splat %k : i32 -> tensor<8xi32>
    %offs = arith.addi %1, %cols : tensor<8xi32>
    %2 = tt.splat %n : i32 -> tensor<8xi32>
    %mask = arith.cmpi %offs, %2 {predicate = "slt"} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
    %3 = tt.addptr %0, %offs : (tensor<8x!tt.ptr<f32>>, tensor<8xi32>) -> tensor<8x!tt.ptr<f32>>
    %x = tt.load %3, %mask, %cst : (tensor<8x!tt.ptr<f32>>, tensor<8xi1>, tensor<8xf32>) -> tensor<8xf32>
    %acc_2 = arith.addf %acc_1, %x : tensor<8xf32>
    scf.yield %acc_2 : tensor<8xf32>
  } {num_stages = 3}
  %total = tt.reduce %acc {axis = 0, combiner = "add"} ({
  ^bb0(%4: f32, %5: f32):
    %6 = arith.addf %4, %5 : f32
    tt.reduce.return %6 : f32
  }) : tensor<8xf32> -> f32
  %positive = arith.cmpi %n, %c0_i32 {predicate = "sgt"} : (i32, i32) -> i1
  %out, %7 = scf.if %positive -> (f32, i32) {
    scf.yield %total, %n : f32, i32
  } else {
    scf.yield %total, %c0_i32 : f32, i32
  }
  %left = scf.while (%i = %n) : (i32) -> (i32) {
    %more = arith.cmpi %i, %c0_i32 {predicate = "sgt"} : (i32, i32) -> i1
    scf.condition(%more) %i : i32
  } do {
  ^bb0(%i_1: i32):
    %i_2 = arith.subi %i_1, %c8_i32 : i32
    scf.yield %i_2 : i32
  }
  tt.store %x_ptr, %out : !tt.ptr<f32>, f32
  tt.barrier
  tt.return
}
"""  # noqa: E501


def test_text_of_every_form_round_trips() -> None:
    module = parse_module(ROW_SUM)
    verify(module)
    assert print_module(module) == ROW_SUM
    assert module.name == "row_sum"


def test_locations_and_ids_round_trip() -> None:
    module = parse_module(ROW_SUM)
    text = print_module(module, locations=True)
    again = parse_module(text)
    assert print_module(again, locations=True) == text
    assert [op.id for op in again.walk()] == [op.id for op in module.walk()]
    assert [op.location for op in again.walk()] == [op.location for op in module.walk()]


def test_new_ids_after_parsing_are_unused_ones() -> None:
    module = parse_module("tt.func @k() { tt.return id(41) } id(7)")
    assert [op.id for op in module.walk()] == [7, 41]
    assert module.new_id() > 41


def test_call_chains_and_fused_locations_round_trip() -> None:
    outer = SourceLocation('dir/with "quotes"\\k.py', 10, 5, "kernel")
    inner = SourceLocation("helpers.py", 3, 1, "helper", outer)
    deeper = SourceLocation("helpers.py", 8, 2, "deeper", inner)
    module = Module("k")
    builder = Builder(module)
    block = Block()
    with builder.at(fuse(deeper, outer)):
        with builder.inside(block):
            builder.build("tt.return")
        builder.build("tt.func", regions=[Region([block])], attributes={"sym_name": "k"})
    again = parse_module(print_module(module, locations=True))
    assert [op.location for op in again.walk()] == [fuse(deeper, outer)] * 2


def test_text_without_locations_is_located_in_the_text() -> None:
    module = parse_module("tt.func @k() {\n  tt.barrier\n  tt.return\n}\n")
    places = [op.location.primary for op in module.walk()]
    assert [(p.file, p.line, p.column) for p in places] == [
        ("<ir>", 1, 1),
        ("<ir>", 2, 3),
        ("<ir>", 3, 3),
    ]


def test_lines_name_the_operation_that_starts_there() -> None:
    module = parse_module(ROW_SUM)
    text, op_lines = print_with_lines(module)
    assert text == ROW_SUM
    lines = text.splitlines()
    assert len(op_lines) == len(list(module.walk()))
    for number, op in op_lines.items():
        assert op.name in lines[number - 1]


def test_python_variable_names_survive_and_stay_unique() -> None:
    module = parse_module(ROW_SUM)
    names = [result.name for op in module.walk() for result in op.results]
    assert names.count("acc") == 2
    assert "acc_1" not in names
    assert "c0_i32" not in names


def test_numbered_variable_of_the_user_is_no_suffix() -> None:
    text = "tt.func @k(%x_2: i32, %x: i32, %x_1: i32, %x_3: i32) {\n  tt.return\n}\n"
    module = parse_module(text)
    arguments = module.function.regions[0].block.arguments
    assert [value.name for value in arguments] == ["x_2", "x", "x", "x"]
    assert print_module(module) == text


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**63),
        2**64 - 1,
        0.1,
        -0.0,
        1e-45,
        1e300,
        math.inf,
        -math.inf,
        math.nan,
        "",
        'a "b" \\ \n \x00 é \ud800',
        (),
        (1, 0),
        (1, (2.0, ("x", None)), False),
        ir.F16,
        ir.PointerType(ir.PointerType(ir.SCALARS["f8E5M2"])),
    ],
    ids=repr,
)
def test_attribute_round_trips(value: object) -> None:
    module = Module("k")
    builder = Builder(module)
    with builder.at(SourceLocation("k.py", 1, 1, "k")):
        builder.build("test.op", attributes={"a": value, "odd name": 1})  # type: ignore[dict-item]
    text = print_module(module)
    (op,) = parse_module(text).walk()
    got = op.attributes["a"]
    assert type(got) is type(value)
    if isinstance(value, float):
        assert struct.pack("d", got) == struct.pack("d", value)
    else:
        assert got == value
    assert op.attributes["odd name"] == 1


def test_nan_payload_round_trips() -> None:
    (payload,) = struct.unpack(">d", bytes.fromhex("fff8000000000123"))
    module = Module("k")
    builder = Builder(module)
    with builder.at(SourceLocation("k.py", 1, 1, "k")):
        builder.build("arith.constant", (), [ir.F64], {"value": payload})
    text = print_module(module)
    assert "nan(0xfff8000000000123)" in text
    (op,) = parse_module(text).walk()
    assert struct.pack(">d", op.attributes["value"]).hex() == "fff8000000000123"


@pytest.mark.parametrize(
    "type_",
    [
        *ir.SCALARS.values(),
        ir.PointerType(ir.F32),
        ir.TensorType((), ir.I1),
        ir.TensorType((1, 128, 64), ir.BF16),
        ir.TensorType((8,), ir.PointerType(ir.PointerType(ir.I8))),
        ir.DescriptorType(ir.TensorType((64, 32), ir.F16)),
    ],
    ids=str,
)
def test_type_round_trips(type_: ir.Type) -> None:
    text = f"tt.func @k(%x: {type_}) {{\n  tt.return\n}}\n"
    module = parse_module(text)
    assert module.function.regions[0].block.arguments[0].type == type_
    assert print_module(module) == text


def test_op_that_does_not_have_its_custom_form_prints_quoted() -> None:
    module = Module("k")
    builder = Builder(module)
    with builder.at(SourceLocation("k.py", 1, 1, "k")):
        op = builder.build("scf.for", (), [ir.I32], {"a": 1})
    assert print_operation(op) == '%0 = "scf.for" {a = 1} : i32'
    text = print_module(module)
    assert print_module(parse_module(text)) == text


def test_print_operation_names_values_as_the_module_does() -> None:
    module = parse_module(ROW_SUM)
    op = next(op for op in module.walk() if op.name == "tt.addptr")
    assert print_operation(op).startswith("%3 = tt.addptr %0, %offs : ")


def test_comments_and_free_layout_are_read() -> None:
    text = """
    // a kernel
    tt.func @k(%n: i32)   // with a comment
    {
        %a = arith.addi %n, // twice
             %n : i32
        tt.return }"""
    assert print_module(parse_module(text)) == (
        "tt.func @k(%n: i32) {\n  %a = arith.addi %n, %n : i32\n  tt.return\n}\n"
    )
