"""Loads and stores of global memory in PTX: what their modifiers become."""

from __future__ import annotations

import re

import pytest
from op_kernels import LAYOUT, Kernel

from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import assemble

I32 = ir.SCALARS["i32"]


def opcodes(load: dict[str, Attribute], store: dict[str, Attribute]) -> list[str]:
    """The distinct opcodes of a kernel that loads and stores with these attributes."""
    kernel = Kernel(LAYOUT)
    (value,) = kernel.op("tt.load", [kernel.pointers(I32)], [kernel.tile(I32)], load)
    kernel.op("tt.store", [kernel.pointers(I32), value], [], store)
    ptx = kernel.ptx()
    assemble(ptx, "kernel", TARGETS["sm_90a"])
    return list(dict.fromkeys(re.findall(r"\b(?:ld|st)\.(?!param)[\w.:]*", ptx)))


@pytest.mark.parametrize(
    ("attributes", "infix"),
    [
        ({}, ""),
        ({"eviction": "evict_normal"}, ""),
        ({"eviction": "evict_first"}, ".L1::evict_first.L2::cache_hint"),
        ({"eviction": "evict_last"}, ".L1::evict_last.L2::cache_hint"),
        ({"cache": ".cg"}, ".cg"),
        ({"cache": ".cg", "eviction": "evict_first"}, ".cg"),
    ],
)
def test_modifiers_are_in_the_opcode(attributes: dict[str, Attribute], infix: str) -> None:
    assert opcodes(attributes, attributes) == [f"{name}.global{infix}.b32" for name in ("ld", "st")]


@pytest.mark.parametrize("is_masked", [False, True])
def test_the_policy_of_l2_is_made_once_and_is_the_last_operand(is_masked: bool) -> None:
    kernel = Kernel(LAYOUT)
    masks = [kernel.operand("i1")] if is_masked else []
    last: dict[str, Attribute] = {"eviction": "evict_last"}
    for _ in range(2):
        operands = [kernel.pointers(I32), *masks]
        (value,) = kernel.op("tt.load", operands, [kernel.tile(I32)], last)
        kernel.op("tt.store", [kernel.pointers(I32), value, *masks], [], last)
    ptx = kernel.ptx()
    assemble(ptx, "kernel", TARGETS["sm_90a"])
    (policy,) = re.findall(r"createpolicy\.fractional\.L2::evict_last\.b64 \t?(%rd\d+), 1\.0;", ptx)
    hinted = re.findall(r"(?:ld|st)\.global\S* .*?(%rd\d+);", ptx)
    assert hinted
    assert set(hinted) == {policy}


def test_turing_has_no_policies_of_l2() -> None:
    kernel = Kernel(LAYOUT)
    kernel.op("tt.load", [kernel.pointers(I32)], [kernel.tile(I32)], {"eviction": "evict_last"})
    ptx = kernel.ptx("sm_75")
    assert "ld.global.L1::evict_last.b32" in ptx
    assert "createpolicy" not in ptx


def test_volatile_load() -> None:
    assert opcodes({"volatile": True}, {}) == ["ld.volatile.global.b32", "st.global.b32"]


def test_a_masked_load_keeps_the_other_value_where_the_mask_is_false() -> None:
    kernel = Kernel(LAYOUT)
    mask = kernel.operand("i1")
    other = kernel.operand("i32")
    loaded = kernel.op("tt.load", [kernel.pointers(I32), mask, other], [kernel.tile(I32)])
    kernel.keep(loaded[0])
    ptx = kernel.ptx()
    assemble(ptx, "kernel", TARGETS["sm_90a"])
    load = re.search(r"mov\.b32 (%r\d+), (%r\d+);\s+@(%p\d+) ld\.global\.b32 (%r\d+), ", ptx)
    assert load is not None
    assert load[1] == load[4], "the register that the load leaves alone holds the other value"


@pytest.mark.parametrize("element", ["i1", "i8", "i16", "i64", "f16", "bf16", "f32", "f64"])
def test_a_masked_load_without_another_value_gives_zero(element: str) -> None:
    kernel = Kernel(LAYOUT)
    type_ = ir.SCALARS[element]
    mask = kernel.operand("i1")
    (loaded,) = kernel.op("tt.load", [kernel.pointers(type_), mask], [kernel.tile(type_)])
    kernel.keep(loaded)
    ptx = kernel.ptx()
    assemble(ptx, "kernel", TARGETS["sm_90a"])
    assert re.search(r"mov\.b\d+ %\w+, 0;\s+@%p\d+ ld\.global", ptx)


@pytest.mark.parametrize(
    ("element", "number", "word"),
    [("i8", -2, 0xFEFEFEFE), ("i16", 3, 0x00030003), ("i1", 1, 0x01010101)],
)
def test_small_constants_are_stored_as_words(element: str, number: int, word: int) -> None:
    kernel = Kernel(LAYOUT)
    type_ = ir.SCALARS[element]
    (value,) = kernel.op("arith.constant", (), [kernel.tile(type_)], {"value": number})
    kernel.op("tt.store", [kernel.pointers(type_), value])
    kernel.function.attributes["arg_divisibility"] = (16,)
    text = kernel.llvm()
    stored = {int(n) % (1 << 32) for n in re.findall(r"asm .*st\.global.*i32 (-?\d+)", text)}
    assert stored == {word}


def test_any_byte_but_zero_is_a_true_boolean() -> None:
    kernel = Kernel(LAYOUT)
    kernel.keep(kernel.op("tt.load", [kernel.pointers(ir.I1)], [kernel.tile(ir.I1)])[0])
    compared = re.findall(r"icmp (\w+) i8 %\w+, (\d+)", kernel.llvm())
    assert compared == [("ne", "0")] * 4
