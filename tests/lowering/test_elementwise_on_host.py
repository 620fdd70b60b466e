"""The LLVM IR of arithmetic and conversions computes what the interpreter does; needs no GPU."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
import torch
from host_execution import OnHost, interpret
from op_kernels import Kernel

sys.path.insert(0, str(Path(__file__).parents[1] / "native"))
import elementwise_cases as cases

NAMES = {
    "i1": "int1", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "f8E4M3FN": "float8e4nv", "f8E5M2": "float8e5", "f8E4M3FNUZ": "float8e4b8",
    "f8E5M2FNUZ": "float8e5b16", "f8E4M3B11FNUZ": "float8e4b15",
}  # fmt: skip
INTEGERS = ("i1", "i8", "i16", "i32", "i64")
FLOATS = ("f16", "bf16", "f32", "f64")
FLOATS8 = tuple(name for name in NAMES if name.startswith("f8"))
COUNT = 512


def stored(name: str) -> torch.dtype:
    """Dtype of a type in memory."""
    return torch.int8 if name == "i1" else cases.torch_dtype(NAMES[name])


def check(ops, inputs="", target="sm_80", any_zero=False):
    """Each op (name, operand types, result type, attributes), all on the same kind of inputs."""
    kernel = Kernel()
    for name, operands, result, attributes in ops:
        kernel.apply(name, operands, [result], attributes)
    kernel.op("tt.return")
    on_host = OnHost(kernel, target)
    for chunk in range(cases.ELEMENTS // COUNT):
        tensors, outputs = [], []
        for name, operands, result, _ in ops:
            for place, operand in enumerate(operands):
                tile = cases.inputs_of(NAMES[operand], inputs)[place]
                tensors.append(tile[chunk * COUNT :][:COUNT].to(stored(operand)).contiguous())
            outputs.append((len(tensors), name, operands, result))
            tensors.append(torch.zeros(COUNT, dtype=stored(result)))
        interpreted = [tensor.clone() for tensor in tensors]
        interpret(kernel, interpreted)
        on_host.run(tensors)
        for place, name, operands, result in outputs:
            case = cases.Case(name, NAMES[result], any_zero=any_zero)
            given = (tensors[place - len(operands) : place] * 3)[:3]
            problem = cases.disagreement(case, given, tensors[place], interpreted[place])
            assert problem is None, f"{operands} -> {result}: {problem}"


@pytest.mark.parametrize("type_", INTEGERS)
def test_integer_arithmetic(type_):
    plain = "addi subi muli andi ori xori minsi maxsi minui maxui".split()
    ops = [(f"arith.{name}", [type_, type_], type_, None) for name in plain]
    for predicate in "eq ne slt sle sgt sge ult ule ugt uge".split():
        ops.append(("arith.cmpi", [type_, type_], "i1", {"predicate": predicate}))
    if type_ in ("i32", "i64"):
        ops.append(("arith.mulhiui", [type_, type_], type_, None))
    if type_ != "i1":
        ops.append(("math.absi", [type_], type_, None))
    check(ops)


@pytest.mark.parametrize("type_", INTEGERS[1:])
def test_division_and_shifts(type_):
    names = "divsi divui remsi remui".split()
    check([(f"arith.{name}", [type_, type_], type_, None) for name in names], "division")
    names = "shli shrsi shrui".split()
    check([(f"arith.{name}", [type_, type_], type_, None) for name in names], "shift")


@pytest.mark.parametrize("type_", INTEGERS[1:])
def test_shifts_by_a_constant(type_):
    """Amounts are unsigned: -1 is more than the width."""
    bits = int(type_[1:])
    x = cases.inputs_of(NAMES[type_], "")[0][:COUNT].contiguous()
    kernel, tensors = Kernel(), [x]
    operand = kernel.operand(type_)
    for name in ("shli", "shrsi", "shrui"):
        for amount in (0, 1, bits - 2, bits - 1, bits, -1):
            (by,) = kernel.op("arith.constant", (), [operand.type], {"value": amount})
            kernel.keep(kernel.op(f"arith.{name}", [operand, by], [operand.type])[0])
            tensors.append(torch.zeros_like(x))
    kernel.op("tt.return")
    interpreted = [tensor.clone() for tensor in tensors]
    interpret(kernel, interpreted)
    OnHost(kernel, "sm_80").run(tensors)
    for place, (found, expected) in enumerate(zip(tensors, interpreted, strict=True)):
        assert torch.equal(found, expected), place


@pytest.mark.parametrize("type_", FLOATS)
def test_float_arithmetic(type_):
    ops = [(f"arith.{name}", [type_, type_], type_, None) for name in ("addf", "subf", "mulf")]
    ops += [(name, [type_], type_, None) for name in ("arith.negf", "math.absf")]
    for predicate in "oeq olt ole ogt oge one une ord uno".split():
        ops.append(("arith.cmpf", [type_, type_], "i1", {"predicate": predicate}))
    check(ops)
    if type_ in ("f32", "f64"):
        check([(f"math.{name}", [type_], type_, None) for name in ("floor", "ceil")])
        check([("arith.remf", [type_, type_], type_, None)], "division")
        names = ["maxnumf", "minnumf", "maximumf", "minimumf"]
        check([(f"arith.{name}", [type_, type_], type_, None) for name in names], any_zero=True)


@pytest.mark.parametrize("type_", [t for t in FLOATS8 if t != "f8E4M3B11FNUZ"])
def test_float8_comparisons(type_):
    names = "oeq olt ole ogt oge one une ord uno".split()
    ops = [("arith.cmpf", [type_, "f32"], "i1", {"predicate": name}) for name in names]
    with_itself = [(name, [type_, type_], result, at) for name, _, result, at in ops]
    kernel = Kernel()
    for op in with_itself:
        kernel.apply(op[0], op[1], [op[2]], op[3])
    assert "fcmp" in kernel.llvm()


@pytest.mark.parametrize("type_", INTEGERS)
def test_integer_casts(type_):
    ops = []
    for other in INTEGERS:
        if int(other[1:]) > int(type_[1:]):
            ops += [(f"arith.{name}", [type_], other, None) for name in ("extsi", "extui")]
        if int(other[1:]) < int(type_[1:]):
            ops.append(("arith.trunci", [type_], other, None))
    ops += [("arith.uitofp", [type_], other, None) for other in ("f32", "f64")]
    if type_ != "i1":
        ops += [("arith.sitofp", [type_], other, None) for other in ("f32", "f64")]
        for other, name in itertools.product(FLOATS, ("fptosi", "fptoui")):
            ops.append((f"arith.{name}", [other], type_, None))
    check(ops)


@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("type_", [*FLOATS, *FLOATS8])
def test_float_conversions(type_, rounding):
    ops = []
    for other in (*FLOATS, *FLOATS8):
        if other != type_:
            ops.append(("tt.fp_to_fp", [type_], other, {"rounding": rounding}))
    check(ops)


@pytest.mark.parametrize("type_", [t for t in FLOATS8 if t != "f8E4M3B11FNUZ"])
def test_constants_are_rounded(type_):
    from tkdebug.compiler.ir.types import SCALARS
    from tkdebug.compiler.targets.nvptx.lowering.arithmetic import constant

    values = cases.inputs_of("float32", "")[0]
    limit = torch.finfo(stored(type_)).max
    wanted = values.clamp(-limit, limit).to(stored(type_)).view(torch.uint8)
    got = [(constant(SCALARS[type_], value).constant or 0) & 0xFF for value in values.tolist()]
    nan = values.isnan()
    assert torch.equal(torch.tensor(got, dtype=torch.uint8)[~nan], wanted[~nan])


@pytest.mark.parametrize("type_", FLOATS)
def test_float_constants_are_rounded_to_nearest_even(type_):
    import struct

    from tkdebug.compiler.ir.types import SCALARS
    from tkdebug.compiler.targets.nvptx.lowering.arithmetic import constant

    values = cases.inputs_of("float32", "")[0].double() * (1 + 2.0**-9)
    for value in values[~values.isnan()].tolist():
        text = constant(SCALARS[type_], value).text
        wanted = torch.tensor([value], dtype=torch.float64).to(stored(type_))
        if text.startswith(("0xH", "0xR")):
            assert int(text[3:], 16) == int(wanted.view(torch.int16)) & 0xFFFF
        else:
            (bits,) = struct.unpack("<d", int(text[2:], 16).to_bytes(8, "little"))
            assert bits == wanted.item()
