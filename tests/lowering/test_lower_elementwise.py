"""Elementwise ops to PTX and cubin, for every type they take."""

from __future__ import annotations

import itertools
import re

import pytest
from op_kernels import Kernel, ptx_of, type_named

from tkdebug.compiler.dialects.libdevice import FUNCTIONS
from tkdebug.compiler.ir import Region
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Block
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.layouts import blocked
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import assemble
from tkdebug.compiler.targets.nvptx.codegen.llvm_stage import find_libdevice
from tkdebug.compiler.targets.nvptx.lowering.driver import lower_module
from tkdebug.compiler.targets.nvptx.lowering.types import LoweringError, llvm_scalar

NARROW = blocked((1,), (32,), (4,), (0,), (128,))
INTEGERS = ("i1", "i8", "i16", "i32", "i64")
FLOATS = ("f16", "bf16", "f32", "f64")
FLOATS8 = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ", "f8E4M3B11FNUZ")
BINARY_INTEGER = (
    "addi subi muli divsi divui remsi remui andi ori xori shli shrsi shrui minsi maxsi minui maxui"
).split()
BINARY_FLOAT = "addf subf mulf divf remf maxnumf minnumf maximumf minimumf".split()
UNARY_MATH = "exp exp2 log log2 sqrt rsqrt sin cos erf floor ceil absf".split()
PREDICATES = "eq ne slt sle sgt sge ult ule ugt uge".split()
FLOAT_PREDICATES = "oeq olt ole ogt oge one une ord uno".split()


def body(ptx: str) -> str:
    """The instructions of the kernel."""
    return ptx[ptx.index("{", ptx.index(".entry")) :]


def check_assembles(kernel: Kernel, target: str) -> str:
    ptx = kernel.ptx(target)
    assemble(ptx, "kernel", TARGETS[target])
    return body(ptx)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("type_", INTEGERS)
def test_integer_ops_assemble(type_, target):
    kernel = Kernel(NARROW)
    for name in BINARY_INTEGER:
        kernel.apply(f"arith.{name}", [type_, type_], [type_])
    for predicate in PREDICATES:
        kernel.apply("arith.cmpi", [type_, type_], ["i1"], {"predicate": predicate})
    if type_ in ("i32", "i64"):
        kernel.apply("arith.mulhiui", [type_, type_], [type_])
    if type_ != "i1":
        kernel.apply("math.absi", [type_], [type_])
    kernel.apply("arith.select", ["i1", type_, type_], [type_])
    check_assembles(kernel, target)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("type_", FLOATS)
def test_float_ops_assemble(type_, target):
    kernel = Kernel(NARROW)
    for name in BINARY_FLOAT:
        kernel.apply(f"arith.{name}", [type_, type_], [type_])
    for predicate in FLOAT_PREDICATES:
        kernel.apply("arith.cmpf", [type_, type_], ["i1"], {"predicate": predicate})
    for name in UNARY_MATH:
        kernel.apply(f"math.{name}", [type_], [type_])
    for name in ("arith.negf", "tt.precise_sqrt"):
        kernel.apply(name, [type_], [type_])
    kernel.apply("tt.precise_divf", [type_, type_], [type_])
    kernel.apply("math.fma", [type_] * 3, [type_])
    kernel.apply("arith.select", ["i1", type_, type_], [type_])
    check_assembles(kernel, target)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_casts_assemble(target):
    kernel = Kernel(NARROW)
    for low, high in itertools.pairwise(INTEGERS):
        kernel.apply("arith.extsi", [low], [high])
        kernel.apply("arith.extui", [low], [high])
        kernel.apply("arith.trunci", [high], [low])
    for integer in INTEGERS:
        for float_ in FLOATS:
            kernel.apply("arith.sitofp", [integer], [float_])
            kernel.apply("arith.uitofp", [integer], [float_])
            if integer != "i1":
                kernel.apply("arith.fptosi", [float_], [integer])
                kernel.apply("arith.fptoui", [float_], [integer])
    for source, wanted in (("i8", "f8E5M2"), ("bf16", "f16"), ("f64", "i64"), ("*f32", "*i8")):
        kernel.apply("tt.bitcast", [source], [wanted])
    kernel.apply("tt.ptr_to_int", ["*f32"], ["i64"])
    kernel.apply("tt.int_to_ptr", ["i64"], ["*f32"])
    check_assembles(kernel, target)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("source", [*FLOATS, *FLOATS8])
def test_float_conversions_assemble(source, rounding, target):
    kernel = Kernel(NARROW)
    for wanted in (*FLOATS, *FLOATS8):
        if wanted != source:
            kernel.apply("tt.fp_to_fp", [source], [wanted], {"rounding": rounding})
    check_assembles(kernel, target)


def test_libdevice_has_every_function_as_it_is_called():
    from llvmlite import binding as llvm

    path = find_libdevice()
    assert path is not None
    library = llvm.parse_bitcode(path.read_bytes(), llvm.create_context())
    for function in FUNCTIONS.values():
        for overload in function.overloads:
            result, *arguments = (
                llvm_scalar(type_.to_ir()) for type_ in (overload.result, *overload.arguments)
            )
            found = library.get_function(overload.symbol)
            assert str(found.global_value_type) == f"{result} ({', '.join(arguments)})"


def test_libdevice_function_is_linked():
    attributes = {"function": "tanh", "symbol": "__nv_tanhf"}
    ptx = body(ptx_of("tt.extern_elementwise", ["f32"], ["f32"], attributes, layout=NARROW))
    assert "ex2.approx" in ptx
    assert "call" not in ptx


# What the instructions are. One case: op, operand types, result, attributes, target, PTX.
@pytest.mark.parametrize(
    ("name", "operands", "result", "attributes", "target", "pattern"),
    [
        ("arith.addf", ["bf16", "bf16"], "bf16", None, "sm_90a", r"add(\.rn)?\.bf16"),
        ("arith.addf", ["bf16", "bf16"], "bf16", None, "sm_80", r"fma\.rn\.bf16"),
        ("arith.mulf", ["f16", "f16"], "f16", None, "sm_80", r"mul(\.rn)?\.f16"),
        ("arith.divf", ["f32", "f32"], "f32", None, "sm_90a", r"div\.full\.f32"),
        ("tt.precise_divf", ["f32", "f32"], "f32", None, "sm_90a", r"div\.rn\.f32"),
        ("arith.maxnumf", ["f32", "f32"], "f32", None, "sm_90a", r"max\.f32"),
        ("arith.maximumf", ["f32", "f32"], "f32", None, "sm_90a", r"max\.NaN\.f32"),
        ("arith.minnumf", ["bf16", "bf16"], "bf16", None, "sm_80", r"min\.bf16"),
        ("arith.mulhiui", ["i32", "i32"], "i32", None, "sm_90a", r"mul\.hi\.u32"),
        ("arith.mulhiui", ["i64", "i64"], "i64", None, "sm_90a", r"mul\.hi\.u64"),
        ("arith.shli", ["i32", "i32"], "i32", None, "sm_90a", r"shl\.b32"),
        ("arith.shrsi", ["i64", "i64"], "i64", None, "sm_90a", r"shr\.s64"),
        ("arith.fptosi", ["f32"], "i32", None, "sm_90a", r"cvt\.rzi\.s32\.f32"),
        ("arith.fptosi", ["f32"], "i8", None, "sm_90a", r"cvt\.rzi\.s16\.f32"),
        ("arith.fptoui", ["f16"], "i8", None, "sm_80", r"cvt\.rzi\.u16\.f32"),
        ("arith.fptosi", ["f64"], "i64", None, "sm_90a", r"cvt\.rzi\.s64\.f64"),
        ("arith.sitofp", ["i32"], "f16", None, "sm_90a", r"cvt\.rn\.f16\.s32"),
        ("arith.truncf", ["f32"], "bf16", None, "sm_80", r"cvt\.rn\.bf16\.f32"),
        ("tt.fp_to_fp", ["f32"], "f16", {"rounding": "rtz"}, "sm_80", r"cvt\.rz\.f16\.f32"),
        ("tt.fp_to_fp", ["f32"], "bf16", {"rounding": "rtz"}, "sm_80", r"cvt\.rz\.bf16\.f32"),
        ("math.exp", ["f32"], "f32", None, "sm_90a", r"ex2\.approx\.f32"),
        ("math.exp2", ["f32"], "f32", None, "sm_90a", r"ex2\.approx\.ftz\.f32"),
        ("math.sqrt", ["f32"], "f32", None, "sm_90a", r"sqrt\.approx\.ftz\.f32"),
        ("math.rsqrt", ["f32"], "f32", None, "sm_90a", r"rsqrt\.approx\.ftz\.f32"),
        ("tt.precise_sqrt", ["f32"], "f32", None, "sm_90a", r"sqrt\.rn\.f32"),
        ("math.fma", ["f32"] * 3, "f32", None, "sm_90a", r"fma\.rn\.f32"),
    ],
)
def test_op_becomes_instruction(name, operands, result, attributes, target, pattern):
    ptx = ptx_of(name, operands, [result], attributes, target=target, layout=NARROW)
    assert re.search(pattern, body(ptx)), body(ptx)


@pytest.mark.parametrize("format_", ["e4m3", "e5m2"])
@pytest.mark.parametrize(("source", "pairs"), [("f32", "f32"), ("f16", "f16x2"), ("bf16", "f32")])
def test_fp8_is_converted_in_pairs(source, pairs, format_):
    name = {"e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}[format_]
    ptx = body(ptx_of("tt.fp_to_fp", [source], [name], {"rounding": "rtne"}))
    assert len(re.findall(rf"cvt\.rn\.satfinite\.{format_}x2\.{pairs}", ptx)) == 2
    ptx = body(ptx_of("tt.fp_to_fp", [name], [source], {"rounding": "rtne"}))
    assert len(re.findall(rf"cvt\.rn\.f16x2\.{format_}x2", ptx)) == 2


def test_equal_registers_are_computed_once():
    kernel = Kernel()
    scalar = kernel.op("arith.constant", (), [ir.F32], {"value": 3.0})[0]
    (splat,) = kernel.op("tt.splat", [scalar], [kernel.tile(ir.F32)])
    (root,) = kernel.op("math.sin", [splat], [splat.type])
    kernel.keep(root)
    assert kernel.llvm().count("call float @__nv_sinf") == 1


def test_sums_of_products_contract():
    kernel = Kernel(NARROW)
    a, b, c = (kernel.operand("f32") for _ in range(3))
    (product,) = kernel.op("arith.mulf", [a, b], [a.type])
    kernel.keep(kernel.op("arith.addf", [product, c], [a.type])[0])
    assert "fma.rn.f32" in body(kernel.ptx())


# Mapped functions and inline PTX


def mapped(kernel: Kernel, pack: int, effect: str | None = None) -> None:
    x = kernel.operand("f32")
    block = Block([ir.F32] * pack)
    with kernel.builder.inside(block):
        values = []
        for argument in block.arguments:
            (zero,) = kernel.op("arith.constant", (), [ir.F32], {"value": 0.0})
            (positive,) = kernel.op("arith.cmpf", [argument, zero], [ir.I1], {"predicate": "ogt"})
            then, otherwise = Block(), Block()
            with kernel.builder.inside(then):
                kernel.op("scf.yield", kernel.op("math.sin", [argument], [ir.F32]))
            with kernel.builder.inside(otherwise):
                kernel.op("scf.yield", [zero])
            regions = [Region([then]), Region([otherwise])]
            values += kernel.op("scf.if", [positive], [ir.F32], {}, regions)
        if effect is not None:
            kernel.op(effect)
        kernel.op("tt.map_elementwise.return", values[::-1])
    attributes = {"pack": pack}
    (out,) = kernel.op("tt.map_elementwise", [x], [x.type], attributes, [Region([block])])
    kernel.keep(out)


@pytest.mark.parametrize("pack", [1, 2])
def test_mapped_function_branches_for_each_element(pack):
    kernel = Kernel()
    mapped(kernel, pack)
    text = kernel.llvm()
    assert text.count("call float @__nv_sinf") == 4
    assert text.count("phi float") == 4


def test_mapped_function_with_a_pack_beyond_a_threads_elements_is_refused():
    kernel = Kernel(NARROW)
    mapped(kernel, 2)
    with pytest.raises(LoweringError, match="pack 2 does not divide the 1 elements"):
        kernel.llvm()


def test_mapped_function_with_a_barrier_is_refused():
    kernel = Kernel()
    mapped(kernel, 1, effect="tt.barrier")
    with pytest.raises(LoweringError, match=r"tt\.barrier inside of a mapped function"):
        kernel.llvm()


def inline(asm, constraints, pack=1, pure=True):
    return {"asm": asm, "constraints": constraints, "pack": pack, "pure": pure}


@pytest.mark.parametrize(
    ("operands", "results", "attributes", "count"),
    [
        (["i32", "i32"], ["i32"], inline("add.s32 $0, $1, $2;", "=r,r,r"), 4),
        (["f16"], ["f16"], inline("abs.f16x2 $0, $1;", "=r,r", pack=2), 2),
        (["f16"], ["f16"], inline("abs.f16 $0, $1;", "=h,h"), 4),
        (["i8"], ["i8"], inline("xor.b32 $0, $1, $1;", "=r,r", pack=4), 1),
        (["i8"], ["i16"], inline("prmt.b32 $0, $2, $2, 0; mov.b32 $1, $2;", "=r,=r,r", 4), 1),
        (["f32"], ["f32", "i32"], inline("mov.b32 $0, $2; mov.b32 $1, $2;", "=f,=r,f"), 4),
        (["f64", "i64"], ["f64"], inline("mov.b64 $0, $1; add.u64 $0, $0, $2;", "=&d,d,l"), 4),
        (["f32"], ["bf16"], inline("cvt.rn.bf16.f32 $0, $1;", "=h,f"), 4),
        (["i8"], ["i8"], inline("shl.b32 $0, $1, 3;", "=r,r"), 4),
        (["i1"], ["i32"], inline("selp.b32 $0, 1, 2, $1;", "=r,b"), 4),
        (["i32"], ["i32"], inline("{ .reg .b32 t; mov.b32 t, $1; mov.b32 $0, t; }", "=r,r"), 4),
        ([], ["i32"], inline("mov.u32 $0, %laneid;", "=r"), 4),
    ],
)
def test_inline_ptx_is_emitted_per_pack(operands, results, attributes, count):
    kernel = Kernel()
    kernel.apply("tt.elementwise_inline_asm", operands, results, attributes)
    text = check_assembles(kernel, "sm_90a")
    assert text.count("// begin inline asm") - text.count(".global") >= min(count, 1)
    again = Kernel()
    again.apply("tt.elementwise_inline_asm", operands, results, attributes)
    first = attributes["asm"].split("$")[0]
    assert again.llvm().count(f'"{first}') == count


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ("=r,r,r", "name 2 inputs, but with pack=1 there must be 1"),
        ("=r,=r,r", "name 2 outputs, but with pack=1 there must be 1"),
        ("=r,z", "constraint 'z' of '=r,z' is not supported"),
    ],
)
def test_inline_ptx_with_wrong_constraints_is_refused(constraints, message):
    with pytest.raises(LoweringError, match=message):
        ptx_of("tt.elementwise_inline_asm", ["i32"], ["i32"], inline("", constraints))


def kernel_with_a_table(table):
    """Combines two loaded tiles by a lop3 whose table is a constant, or a third tile."""
    kernel = Kernel()
    type_ = kernel.tile(ir.I32)
    operands = [kernel.operand("i32"), kernel.operand("i32")]
    if table is None:
        operands.append(kernel.operand("i32"))
    else:
        operands += kernel.op("arith.constant", (), [type_], {"value": table})
    asm = inline("lop3.b32 $0, $1, $2, 3, $3;", "=r,r,r,n")
    kernel.keep(*kernel.op("tt.elementwise_inline_asm", operands, [type_], asm))
    return kernel


def test_number_of_inline_ptx_stands_in_its_text():
    kernel = kernel_with_a_table(0xEA)
    text = check_assembles(kernel, "sm_90a")
    assert re.search(r"lop3\.b32 %r\d+, %r\d+, %r\d+, 3, 234;", text)


def test_number_of_inline_ptx_that_is_not_known_is_refused():
    with pytest.raises(LoweringError, match="input 2 of '=r,r,r,n' has to be a number that is"):
        kernel_with_a_table(None).ptx("sm_90a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ .reg .b32 t; mov.b32 $0, $1;", "`{` is never closed in `{ .reg .b32 t; mov.b32 "),
        ("mov.b32 $0, $1; } ret; {", "`}` is never opened"),
        ("mov.b32 $0, $1; /* and so on", r"`/\*` is never closed"),
    ],
)
def test_inline_ptx_that_would_swallow_what_follows_is_refused(text, message):
    with pytest.raises(LoweringError, match=message):
        ptx_of("tt.elementwise_inline_asm", ["i32"], ["i32"], inline(text, "=r,r"))


def test_braces_in_comments_of_inline_ptx_are_not_counted():
    text = "// {\n mov.b32 $0, ${1}; /* } */"
    ptx = ptx_of("tt.elementwise_inline_asm", ["i32"], ["i32"], inline(text, "=r,r"))
    assemble(ptx, "kernel", TARGETS["sm_90a"])


def test_malformed_inline_ptx_is_an_error_at_its_line():
    from tkdebug.errors import CompileError

    ptx = ptx_of("tt.elementwise_inline_asm", ["i32"], ["i32"], inline("nonsense $0;", "=r,r"))
    with pytest.raises(CompileError, match="nonsense"):
        assemble(ptx, "kernel", TARGETS["sm_90a"])


def test_impure_inline_ptx_is_kept():
    kernel = Kernel()
    x = kernel.operand("i32")
    attributes = inline("mov.b32 $0, $1;", "=r,r", pure=False)
    kernel.op("tt.elementwise_inline_asm", [x], [x.type], attributes)
    assert body(kernel.ptx()).count("mov.b32 %") >= 4
    assert type_named("i32") == ir.I32


MASK = """
#rows = #ttg.linear<{{register = [[1], [2], [4], [128]], lane = [[8], [16], [32], [64], [0]], warp = [], block = []}}>
tt.func @kernel(%out: !tt.ptr<i1>, %n: i32) attributes {{arg_names = ["out", "n"], num_warps = 1, target = "sm_90a", shared_bytes = 0, arg_divisibility = [16, {divisor}]}} {{
  %r = tt.make_range {{end = 256, start = 0}} : tensor<256xi32, #rows>
  %s = tt.splat %n : i32 -> tensor<256xi32, #rows>
  %m = arith.cmpi %r, %s {{predicate = "slt"}} : (tensor<256xi32, #rows>, tensor<256xi32, #rows>) -> tensor<256xi1, #rows>
  %b = tt.splat %out : !tt.ptr<i1> -> tensor<256x!tt.ptr<i1>, #rows>
  %p = tt.addptr %b, %r : (tensor<256x!tt.ptr<i1>, #rows>, tensor<256xi32, #rows>) -> tensor<256x!tt.ptr<i1>, #rows>
  tt.store %p, %m : tensor<256x!tt.ptr<i1>, #rows>, tensor<256xi1, #rows>
  tt.return
}}
"""  # noqa: E501  IR lines are long.


@pytest.mark.parametrize(("divisor", "comparisons"), [(16, 2), (4, 4), (2, 8), (1, 16)])
def test_masks_are_compared_once_for_elements_that_have_the_same(divisor, comparisons):
    module = parse_module(MASK.format(divisor=divisor))
    text = lower_module(module, TARGETS["sm_90a"], "kernel")
    assert len(re.findall(r"icmp slt i32", text)) == comparisons
