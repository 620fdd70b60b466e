"""Runs elementwise kernels' LLVM IR on this machine's processor, and interpreted, for comparison.

The IR is what code generation gets, but for loads and stores (plain ones here), the thread's number
(a parameter) and what only PTX has: NVPTX intrinsics and inline PTX are replaced by functions that
do, in LLVM IR, what the PTX ISA says.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence

import torch
from op_kernels import NUM_WARPS, Kernel

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.emitter import Emitter
from tkdebug.compiler.targets.nvptx.lowering.context import WARP_SIZE, Lowering
from tkdebug.compiler.targets.nvptx.lowering.driver import LOWERINGS
from tkdebug.compiler.targets.nvptx.lowering.types import Registers
from tkdebug.interpreter.launch import run_module

_THREAD = "call i32 @llvm.nvvm.read.ptx.sreg.tid.x()"


def _load(ctx: Lowering, op: Operation, pointers: Registers) -> Sequence[Registers]:
    type_ = ctx.element_type(op.result)
    return ([ctx.emit.load(type_, pointer, 1) for pointer in pointers],)


def _store(
    ctx: Lowering, op: Operation, pointers: Registers, values: Registers
) -> Sequence[Registers]:
    for pointer, value in zip(pointers, values, strict=True):
        ctx.emit.store(value, pointer, 1)
    return ()


_TABLE = {**LOWERINGS, "tt.load": _load, "tt.store": _store}


def host_ir(kernel: Kernel, target: str) -> str:
    """LLVM IR of the kernel as a function of its pointers and the thread's number."""
    count = len(kernel.block.arguments)
    emit = Emitter("kernel", ["ptr addrspace(1)"] * count, NUM_WARPS * WARP_SIZE)
    ctx = Lowering(kernel.module, TARGETS[target], emit, _TABLE)
    emit.set_op(kernel.function.id)
    for index, argument in enumerate(kernel.block.arguments):
        ctx.values[argument] = [emit.parameter(index)]
    ctx.lower_block(kernel.block)
    emit.ret()
    text = emit.module("test").replace(_THREAD, "add i32 %thread, 0")
    text = re.sub(r"^@shared.*\n", "", text, flags=re.M)
    text = re.sub(r"(?<=attributes #0 = { nounwind ).*(?= })", "", text)
    text = re.sub(r"define ptx_kernel void @kernel\((.*?)\) #0", _with_thread, text)
    return _without_ptx(text)


def _with_thread(match: re.Match[str]) -> str:
    return f"define void @kernel({match[1]}, i32 %thread) #0"


def _without_ptx(text: str) -> str:
    """The text with our functions for NVPTX's, and those functions."""
    text = re.sub(r"^declare .*@(llvm\.nvvm|__nv_).*\n", "", text, flags=re.M)
    text = re.sub(r"@llvm\.nvvm\.([\w.]+)", r"@host.\1", text)
    text = re.sub(r"@(__nv_\w+)", r"@host.\1", text)
    text = re.sub(r'asm "([\w.]+) [^"]*", "[^"]*"', r"@host.\1", text)
    names = sorted(set(re.findall(r"@host\.([\w.]+)", text)))
    needed = "\n".join(HOST_FUNCTIONS[name] for name in names)
    declared = set(re.findall(r"^declare [^@]*@([\w.]+)", text, flags=re.M))
    declarations = [
        line
        for line in HOST_DECLARATIONS
        if (name := line[line.index("@") + 1 : line.index("(")]) not in declared
        and f"@{name}(" in needed
    ]
    return "\n".join([text, *declarations, needed, HALF_ROUNDING])


def _saturating(name: str, type_: str, floating: str, suffix: str) -> dict[str, str]:
    """cvt.rzi and cvt.rni: LLVM's saturating conversions, NaN to 0."""
    integer, sign = ("i64", name[2:-2]) if name.endswith("ll") else ("i32", name[2:-1])
    convert = f"@llvm.fpto{sign or 's'}i.sat.{integer}.{suffix}"
    head = f"define internal {integer} @host.{name}"
    return {
        f"{name}.rz": f"{head}.rz({type_} %x) {{\n"
        f"  %r = call {integer} {convert}({type_} %x)\n  ret {integer} %r\n}}",
        f"{name}.rn": f"{head}.rn({type_} %x) {{\n"
        f"  %w = call {type_} @llvm.rint.{suffix}({type_} %x)\n"
        f"  %r = call {integer} {convert}({type_} %w)\n  ret {integer} %r\n}}",
    }


def _to_integer(sign: str, bits: int, ptx_type: str, type_: str) -> dict[str, str]:
    """cvt.rzi: NaN gives the highest bit alone where either side has 64 bits."""
    name, integer = f"cvt.rzi.{sign}{bits}.{ptx_type}", f"i{bits}"
    nan = -(1 << (bits - 1)) if 64 in (bits, int(ptx_type[1:])) else 0
    convert = f"@llvm.fpto{sign}i.sat.{integer}.{ptx_type}"
    return {
        name: f"define internal {integer} @host.{name}({type_} %x) {{\n"
        f"  %i = call {integer} {convert}({type_} %x)\n"
        f"  %nan = fcmp uno {type_} %x, %x\n"
        f"  %r = select i1 %nan, {integer} {nan}, {integer} %i\n  ret {integer} %r\n}}"
    }


def _shift(ptx: str, instruction: str, width: int) -> str:
    """PTX's shifts clamp the amount to the width."""
    type_, last = f"i{width}", f"ashr {{0}} %x, {width - 1}"
    beyond = "%over = " + (
        last.format(f"i{width}") if instruction == "ashr" else f"and {type_} %x, 0"
    )
    amount = "%n" if width == 32 else "%wide"
    widen = "" if width == 32 else "  %wide = zext i32 %n to i64\n"
    return (
        f"define internal {type_} @host.{ptx}({type_} %x, i32 %n) {{\n{widen}  {beyond}\n"
        f"  %ok = icmp ult i32 %n, {width}\n"
        f"  %by = select i1 %ok, {type_} {amount}, {type_} 0\n"
        f"  %in = {instruction} {type_} %x, %by\n"
        f"  %r = select i1 %ok, {type_} %in, {type_} %over\n  ret {type_} %r\n}}"
    )


def _high_product(name: str, width: int) -> str:
    wide = f"i{2 * width}"
    return (
        f"define internal i{width} @host.{name}(i{width} %a, i{width} %b) {{\n"
        f"  %x = zext i{width} %a to {wide}\n  %y = zext i{width} %b to {wide}\n"
        f"  %p = mul {wide} %x, %y\n  %h = lshr {wide} %p, {width}\n"
        f"  %r = trunc {wide} %h to i{width}\n  ret i{width} %r\n}}"
    )


def _toward_zero(ptx: str, source: str, target: str, integer: str, suffix: str) -> str:
    """To nearest, then a step back where that went away from zero."""
    is_half = target in ("half", "bfloat")
    result = "i16" if is_half else target
    last = "  ret i16 %b2" if is_half else f"  %r = bitcast i32 %b2 to {target}\n  ret {target} %r"
    return (
        f"define internal {result} @host.{ptx}({source} %x) {{\n"
        f"  %t = fptrunc {source} %x to {target}\n  %w = fpext {target} %t to {source}\n"
        f"  %m = call {source} @llvm.fabs.{suffix}({source} %w)\n"
        f"  %n = call {source} @llvm.fabs.{suffix}({source} %x)\n"
        f"  %far = fcmp ogt {source} %m, %n\n  %step = zext i1 %far to {integer}\n"
        f"  %b = bitcast {target} %t to {integer}\n  %b2 = sub {integer} %b, %step\n{last}\n}}"
    )


HOST_FUNCTIONS: dict[str, str] = {
    **{
        key: text
        for letter, type_, suffix in (("f", "float", "f32"), ("d", "double", "f64"))
        for sign in ("", "u")
        for size in ("i", "ll")
        for key, text in _saturating(f"{letter}2{sign}{size}", type_, "", suffix).items()
    },
    **{
        key: text
        for ptx_type, type_ in (("f32", "float"), ("f64", "double"))
        for sign in "su"
        for bits in (16, 32, 64)
        for key, text in _to_integer(sign, bits, ptx_type, type_).items()
    },
    "shl.b32": _shift("shl.b32", "shl", 32),
    "shl.b64": _shift("shl.b64", "shl", 64),
    "shr.u32": _shift("shr.u32", "lshr", 32),
    "shr.u64": _shift("shr.u64", "lshr", 64),
    "shr.s32": _shift("shr.s32", "ashr", 32),
    "shr.s64": _shift("shr.s64", "ashr", 64),
    "mulhi.ui": _high_product("mulhi.ui", 32),
    "mulhi.ull": _high_product("mulhi.ull", 64),
    "d2f.rz": _toward_zero("d2f.rz", "double", "float", "i32", "f64"),
    "cvt.rz.f32.f64": _toward_zero("cvt.rz.f32.f64", "double", "float", "i32", "f64"),
    "cvt.rz.f16.f64": _toward_zero("cvt.rz.f16.f64", "double", "half", "i16", "f64"),
    "cvt.rz.f16.f32": _toward_zero("cvt.rz.f16.f32", "float", "half", "i16", "f32"),
    "cvt.rz.bf16.f32": _toward_zero("cvt.rz.bf16.f32", "float", "bfloat", "i16", "f32"),
    "div.full": "define internal float @host.div.full(float %a, float %b) {\n"
    "  %r = fdiv float %a, %b\n  ret float %r\n}",
    "__nv_fmodf": "define internal float @host.__nv_fmodf(float %a, float %b) {\n"
    "  %r = frem float %a, %b\n  ret float %r\n}",
    "__nv_fmod": "define internal double @host.__nv_fmod(double %a, double %b) {\n"
    "  %r = frem double %a, %b\n  ret double %r\n}",
}
HOST_DECLARATIONS = [
    *(
        f"declare {integer} @llvm.fpto{sign}i.sat.{integer}.{suffix}({type_})"
        for integer in ("i16", "i32", "i64")
        for sign in "su"
        for suffix, type_ in (("f32", "float"), ("f64", "double"))
    ),
    *(
        f"declare {type_} @llvm.{name}.{suffix}({type_})"
        for name in ("rint", "fabs")
        for suffix, type_ in (("f32", "float"), ("f64", "double"))
    ),
]
# Conversions that compilers take from a library, which not every system has.
HALF_ROUNDING = """
define bfloat @__truncsfbf2(float %x) {
  %b = bitcast float %x to i32
  %up = lshr i32 %b, 16
  %odd = and i32 %up, 1
  %bias = add i32 %odd, 32767
  %r = add i32 %b, %bias
  %h = lshr i32 %r, 16
  %quiet = or i32 %up, 64
  %nan = fcmp uno float %x, %x
  %s = select i1 %nan, i32 %quiet, i32 %h
  %t = trunc i32 %s to i16
  %v = bitcast i16 %t to bfloat
  ret bfloat %v
}
define float @host.to_odd(double %x) {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %m = call double @llvm.fabs.f64(double %back)
  %n = call double @llvm.fabs.f64(double %x)
  %far = fcmp ogt double %m, %n
  %step = zext i1 %far to i32
  %b = bitcast float %near to i32
  %down = sub i32 %b, %step
  %lost = fcmp one double %back, %x
  %sticky = zext i1 %lost to i32
  %o = or i32 %down, %sticky
  %f = bitcast i32 %o to float
  ret float %f
}
define bfloat @__truncdfbf2(double %x) {
  %f = call float @host.to_odd(double %x)
  %r = call bfloat @__truncsfbf2(float %f)
  ret bfloat %r
}
define half @__truncdfhf2(double %x) {
  %f = call float @host.to_odd(double %x)
  %r = fptrunc float %f to half
  ret half %r
}
"""


def _machine():
    """The processor at hand; an execution engine takes it over."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    # No more than half precision needs: instructions for bfloat16 flush subnormals.
    features = "+f16c,+fma" if "x86_64" in target.triple else ""
    return target.create_target_machine(features=features)


class OnHost:
    """A kernel compiled for this machine's processor."""

    def __init__(self, kernel: Kernel, target: str) -> None:
        from llvmlite import binding as llvm

        text = host_ir(kernel, target)
        if "@llvm.fabs.f64(" in text and "declare double @llvm.fabs.f64" not in text:
            text += "\ndeclare double @llvm.fabs.f64(double)\n"
        module = llvm.parse_assembly(text)
        module.triple = llvm.get_default_triple()
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, _machine())
        self._engine.finalize_object()
        address = self._engine.get_function_address("kernel")
        pointers = [ctypes.c_void_p] * len(kernel.block.arguments)
        self._function = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int)(address)

    def run(self, tensors: Sequence[torch.Tensor]) -> None:
        """Run all threads of the kernel's block, one after the other."""
        pointers = [tensor.data_ptr() for tensor in tensors]
        for thread in range(NUM_WARPS * WARP_SIZE):
            self._function(*pointers, thread)


def interpret(kernel: Kernel, tensors: Sequence[torch.Tensor]) -> None:
    """Run the same module interpreted."""
    names = tuple(f"arg{i}" for i in range(len(tensors)))
    kernel.function.attributes["arg_names"] = names
    faults = run_module(kernel.module, list(tensors), (1, 1, 1))
    # Shifts by the width are among them: both sides define what they give, the language does not.
    faults = [fault for fault in faults if fault.kind != "shift-range"]
    assert not faults, faults
