# ruff: noqa: E501  IR lines are long.
"""Layouts, buffer types and tokens in IR text; what the verifier says of layouts."""

from __future__ import annotations

from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tkdebug.compiler.ir import MemDescType, TensorType
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module, print_operation, print_with_lines
from tkdebug.compiler.ir.types import layout_text
from tkdebug.compiler.layouts import (
    BLOCK,
    LANE,
    OFFSET,
    REGISTER,
    WARP,
    LinearLayout,
    blocked,
    broadcast_source,
    concatenate,
    join,
    reshape,
    slice_layout,
    transpose,
)
from tkdebug.compiler.verifier import verify
from tkdebug.errors import IRError

TEXT = """\
#layout0 = #ttg.linear<{register = [[1]], lane = [[2], [4], [8], [16], [32]], warp = [[64]], block = []}>
#shared0 = #ttg.shared_linear<{offset = [[1], [2], [4], [8], [16], [32], [64]]}>
tt.func @k(%x: !tt.ptr<f32>) attributes {num_warps = 2, layout = #layout0} {
  %0 = ttg.local_alloc {offset = 0} : !ttg.memdesc<3x128xf16, #shared0, mutable>
  %cst = arith.constant dense<1.0> : tensor<128xf16, #layout0>
  %1 = ttg.local_alloc %cst : tensor<128xf16, #layout0> -> !ttg.memdesc<128xf16, #shared0>
  %2 = ttg.async_commit_group : !ttg.async.token
  tt.return
}
"""


def test_text_round_trips() -> None:
    module = parse_module(TEXT)
    verify(module)
    assert print_module(module) == TEXT


def test_layouts_may_stand_in_full() -> None:
    lines = TEXT.splitlines()
    text = "\n".join(lines[2:])
    for line in lines[:2]:
        name, full = line.split(" = ", 1)
        text = text.replace(name, full)
    assert print_module(parse_module(text)) == TEXT


def test_lines_of_ops_count_the_aliases() -> None:
    text, ops = print_with_lines(parse_module(TEXT))
    assert text == TEXT
    assert {line: op.name for line, op in ops.items()}[4] == "ttg.local_alloc"
    assert min(ops) == 3


def test_printed_operation_brings_its_layouts() -> None:
    module = parse_module(TEXT)
    constant = next(op for op in module.walk() if op.name == "arith.constant")
    lines = print_operation(constant).splitlines()
    assert lines[0].startswith("#layout0 = ")
    assert lines[1:] == ["%cst = arith.constant dense<1.0> : tensor<128xf16, #layout0>"]


def test_sizes_of_buffers() -> None:
    layout = LinearLayout.of({OFFSET: [[1], [2]]}, {"dim0": 4})
    several = MemDescType((3, 4), ir.F16, layout, True)
    assert (several.buffers, several.buffer_bytes, several.size_bytes) == (3, 8, 24)
    assert MemDescType((2,), ir.I1, layout).size_bytes == 4


@st.composite
def any_layout(draw: st.DrawFn) -> LinearLayout:
    names = draw(st.sampled_from([(REGISTER, LANE, WARP, BLOCK), (OFFSET,), (OFFSET, BLOCK), ()]))
    rank = draw(st.integers(1, 3))
    sizes = [1 << draw(st.integers(0, 4)) for _ in range(rank)]
    dims = draw(st.permutations([f"dim{i}" for i in range(rank)]))
    vector = st.tuples(*(st.integers(0, size - 1) for size in sizes))
    bases = {name: draw(st.lists(vector, max_size=4)) for name in names}
    return LinearLayout.of(bases, dict(zip(dims, sizes, strict=True)))


@settings(max_examples=150, deadline=None)
@given(any_layout())
def test_any_layout_round_trips(layout: LinearLayout) -> None:
    text = f"tt.func @k() attributes {{layout = {layout_text(layout)}}} {{\n  tt.return\n}}"
    module = parse_module(text)
    assert module.function.attributes["layout"] == layout
    printed = print_module(module)
    assert parse_module(printed).function.attributes["layout"] == layout
    assert print_module(parse_module(printed)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#a = #b", "layout #b is not defined"),
        ("#a = #ttg.linear<{}>\n#a = #ttg.linear<{}>", "given twice"),
        ("#a = #ttg.linear<{lane = [[1], [1, 2]]}>", "different lengths"),
        ("#a = #ttg.linear<{lane = [[1]], outs = {dim0 = 3}}>", "power of two"),
        ("#a = #ttg.linear<{lane = [[1]], outs = {dim0 = 1}}>", "expected 0 to 0"),
        ("#a = #ttg.linear<{lane = [[-1]]}>", "expected a coordinate"),
        ("#a = #ttg.linear<{lane = [" + ", ".join(["[1]"] * 65) + "]}>", "more than 64"),
        ("#a = #ttg.linear<{lane = [[" + ", ".join(["1"] * 200) + "]]}>", "nested deeper"),
        ("tt.func @k(%x: !ttg.memdesc<4xf32>) {", "expected ','"),
        ("tt.func @k(%x: !ttg.memdesc<4xf32, #ttg.linear<{}>, immutable>) {", "'mutable'"),
    ],
)
def test_malformed_layouts_are_refused(text: str, message: str) -> None:
    with pytest.raises(IRError, match=message):
        parse_module(text)


ROWS = blocked((1, 4), (8, 4), (2, 1), (1, 0), (16, 16))
WIDE = blocked((1, 2), (8, 4), (2, 1), (1, 0), (16, 16)).without_zero_bases(REGISTER)


def check(body: str, warps: int = 2) -> None:
    verify(
        parse_module(
            f"tt.func @k() attributes {{num_warps = {warps}}} {{\n{dedent(body)}\ntt.return\n}}"
        )
    )


def tile(layout: LinearLayout | None, element: str = "f32") -> str:
    assert layout is not None
    return str(TensorType(layout.shape, ir.SCALARS[element], layout))


def constant(name: str, layout: LinearLayout) -> str:
    return f"{name} = arith.constant dense<1.0> : {tile(layout)}\n"


def rule(
    op: str, source: LinearLayout, wanted: LinearLayout, other: LinearLayout, tail: str = ""
) -> None:
    """`op` from `source` may give `wanted` and not `other`."""
    check(constant("%x", source) + f"%y = {op} %x{tail} : {tile(source)} -> {tile(wanted)}")
    with pytest.raises(IRError, match="is laid out as"):
        check(constant("%x", source) + f"%y = {op} %x{tail} : {tile(source)} -> {tile(other)}")


def test_shape_ops_move_no_data() -> None:
    turned = transpose(ROWS, (1, 0))
    rule("tt.trans", ROWS, turned, ROWS, " {order = [1, 0]}")
    rule("tt.reshape", ROWS, reshape(ROWS, (8, 32)), reshape(WIDE, (8, 32)), "")
    cut = broadcast_source(ROWS, (16, 1))
    check(constant("%x", cut) + f"%y = tt.broadcast %x : {tile(cut)} -> {tile(ROWS)}")
    with pytest.raises(IRError, match="is laid out as"):
        check(
            constant("%x", cut)
            + f"%y = tt.broadcast %x : {tile(cut)} -> {tile(transpose(ROWS, (1, 0)))}"
        )


def test_reduction_leaves_a_slice() -> None:
    def reduced(result: LinearLayout) -> str:
        return (
            constant("%x", ROWS)
            + f"""
        %y = tt.reduce %x {{axis = 1}} ({{
        ^bb0(%a: f32, %b: f32):
          %c = arith.addf %a, %b : f32
          tt.reduce.return %c : f32
        }}) : {tile(ROWS)} -> {tile(result)}
        """
        )

    check(reduced(slice_layout(ROWS, 1)))
    with pytest.raises(IRError, match="a result is laid out as"):
        check(reduced(slice_layout(transpose(ROWS, (1, 0)), 1)))


def test_join_split_and_cat_use_registers() -> None:
    pair, both = tile(join(ROWS)), tile(concatenate(ROWS))
    x = constant("%x", ROWS)
    check(
        x
        + f"%y = tt.join %x, %x : ({tile(ROWS)}, {tile(ROWS)}) -> {pair}\n%a, %b = tt.split %y : {pair} -> ({tile(ROWS)}, {tile(ROWS)})"
    )
    check(x + f"%y = tt.cat %x, %x : ({tile(ROWS)}, {tile(ROWS)}) -> {both}")


def test_elementwise_ops_have_one_layout() -> None:
    with pytest.raises(IRError, match="different layouts"):
        check(
            constant("%x", ROWS)
            + f"%y = math.exp %x : {tile(ROWS)} -> {tile(transpose(ROWS, (1, 0)))}"
        )


def test_layouts_are_all_or_nothing() -> None:
    with pytest.raises(IRError, match="has no layout, but others"):
        check(constant("%x", ROWS) + "%y = arith.constant dense<1.0> : tensor<16x16xf32>")


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (blocked((1, 4), (8, 4), (4, 1), (1, 0), (16, 16)), "4 warps, expected 32 and 2"),
        (LinearLayout(((REGISTER, (0,)), *ROWS.ins[1:]), ROWS.outs), "register bit without effect"),
        (LinearLayout(ROWS.ins[:3], ROWS.outs), "inputs register, lane, warp, expected"),
        (LinearLayout(((REGISTER, ()), *ROWS.ins[1:]), ROWS.outs), "does not hold every element"),
    ],
)
def test_layouts_are_canonical(layout: LinearLayout, message: str) -> None:
    with pytest.raises(IRError, match=message):
        check(constant("%x", layout))


def test_layout_fits_its_shape() -> None:
    text = constant("%x", ROWS).replace("16x16", "16x32")
    with pytest.raises(IRError, match="made for"):
        check(text)
