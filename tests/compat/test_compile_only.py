"""`triton.compile` of a jit function, and results that must be used."""

import pytest

import tkdebug.language as tl
from tkdebug.compat.triton_api.compiler import ASTSource, compile
from tkdebug.errors import CompileError, UnsupportedError
from tkdebug.language import must_use_result
from tkdebug.runtime.device.platform import GPUTarget
from tkdebug.runtime.errors import ArgumentTypeError
from tkdebug.runtime.jit.function import jit


@jit
def store(X, value, N: tl.constexpr):
    tl.store(X + tl.arange(0, N), value)


def test_compiles_for_a_signature():
    kernel = compile(ASTSource(store, {"X": "*fp32", "value": "i32"}, {"N": 8}))
    assert "tt.store" in kernel.asm["ttir"]
    assert kernel.src.signature == {"X": "*fp32", "value": "i32", "N": "constexpr"}


def test_type_that_is_none_is_named():
    with pytest.raises(ArgumentTypeError, match="parameter `value` has the type 'i7'"):
        compile(ASTSource(store, {"X": "*fp32", "value": "i7"}, {"N": 8}))


@pytest.mark.parametrize(("arch", "name"), [(80, "sm_80"), (90, "sm_90a")])
def test_code_for_a_target(arch, name):
    source = ASTSource(
        store, {"X": "*fp32", "value": "i32"}, {"N": 8}, {(0,): [["tt.divisibility", 16]]}
    )
    kernel = compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": 2})
    assert kernel.asm["cubin"][:4] == b"\x7fELF"
    assert f".target {name}" in kernel.asm["ptx"]
    assert kernel.metadata.target == GPUTarget("cuda", arch, 32)
    assert kernel.metadata.num_warps == 2
    assert "arg_divisibility = [16, 1]" in kernel.asm["ttir"]


def test_another_vendors_target_is_refused():
    source = ASTSource(store, {"X": "*fp32", "value": "i32"}, {"N": 8})
    with pytest.raises(UnsupportedError, match="hip"):
        compile(source, target=GPUTarget("hip", "gfx942", 64))


@must_use_result("Words.")
@jit
def cube(x):
    return x * x * x


@jit
def drops(x):
    cube(x)


def test_dropped_result_is_refused():
    with pytest.raises(CompileError, match=r"The result of cube is not being used\. Words\."):
        compile(ASTSource(drops, {"x": "i32"}))
