# ruff: noqa: F821, E702
"""Locations of ops, names of values, and the layout of arguments."""

from __future__ import annotations

import inspect

import pytest
from frontend_support import FP32_PTR, INT32_PTR, compile_kernel, error_of, ops_named

import tkdebug.language as tl
from tkdebug.compiler.dtypes import (
    block_type,
    float16,
    int32,
    int64,
    pointer_type,
    tensor_descriptor_type,
)
from tkdebug.compiler.frontend import Constant, KernelSource, flatten_names, flatten_types
from tkdebug.errors import CompileError
from tkdebug.runtime.jit.function import jit


@jit
def helper(x):
    return x + 1


# fmt: off
@jit
def kernel(p, n):
    x = helper(n)
    for i in range(
        n
    ):
        x = (x
             + helper(i))
    tl.store(p, x)
# fmt: on


START = kernel.fn.__code__.co_firstlineno
HELPER_LINE = helper.fn.__code__.co_firstlineno + 2


def test_every_op_has_a_place_and_calls_have_a_chain():
    module = compile_kernel(kernel, p=INT32_PTR, n=int32)
    assert {op.location.file for op in module.walk()} == {__file__}
    first, inner, outer = ops_named(module, "arith.addi")[:3]
    assert [(f.line, f.function) for f in first.location.frames] == [
        (START + 2, "kernel"),
        (HELPER_LINE, "helper"),
    ]
    assert [f.line for f in inner.location.frames] == [START + 7, HELPER_LINE]
    assert (outer.location.line, outer.location.column) == (START + 6, 14)


def test_loop_and_store_lines():
    module = compile_kernel(kernel, p=INT32_PTR, n=int32)
    (loop,), (store,) = ops_named(module, "scf.for"), ops_named(module, "tt.store")
    assert loop.location.line == START + 3
    assert (store.location.line, store.location.column) == (START + 8, 5)
    assert module.function.location.line == START + 1


@jit
def naming(p, n):
    first = n * 2
    second = first
    x, y = first + 1, 4
    tl.store(p, second + x + y)


def test_values_keep_the_first_name_they_are_bound_to():
    module = compile_kernel(naming, p=INT32_PTR, n=int32)
    names = {result.name for op in module.walk() for result in op.results}
    assert {"first", "x", "y"} <= names
    assert "second" not in names


@jit
def not_ascii(p):
    # fmt: off
    tl.device_print("größe"); tl.store(q, 1)


def test_columns_count_characters():
    error = error_of(not_ascii, p=INT32_PTR)
    assert error.source_line[error.column - 1 :].startswith("q, 1")


def test_arguments_are_flattened_in_order():
    descriptor = tensor_descriptor_type(block_type(float16, (16, 32)))
    spec = (FP32_PTR, (Constant(3), int32), descriptor)
    assert flatten_types(spec) == [FP32_PTR, int32, descriptor, int32, int32, int64, int64]
    assert flatten_names("a", spec) == [
        "a.0",
        "a.1.1",
        "a.2",
        "a.2.shape.0",
        "a.2.shape.1",
        "a.2.stride.0",
        "a.2.stride.1",
    ]


@jit
def takes_structures(p, pair, desc, MODE: tl.constexpr):
    tl.static_assert(pair[1] == 3)
    tile = desc.load([pair[0], 0])
    tl.static_assert(desc.block_shape[1] == 32)
    desc.store([0, 0], tile)
    tl.store(p, desc.shape[0])


def test_structured_arguments_become_block_arguments():
    descriptor = tensor_descriptor_type(block_type(float16, (16, 32)))
    module = compile_kernel(
        takes_structures,
        p=INT32_PTR,
        pair=(int32, Constant(3)),
        desc=descriptor,
        MODE="x",
    )
    types = [str(a.type) for a in module.function.regions[0].block.arguments]
    assert types[:2] == ["!tt.ptr<i32>", "i32"]
    assert types[2].startswith("!tt.tensordesc<")
    assert types[3:] == ["i32", "i32", "i64", "i64"]
    assert module.function.attributes["arg_names"][:3] == ("p", "pair.0", "desc")


def test_source_of_a_nested_indented_function_keeps_its_lines():
    @jit
    def inner(p):
        """Text
        less indented than the code."""
        tl.store(p, undefined)

    error = error_of(inner, p=INT32_PTR)
    lines, first = inspect.getsourcelines(inner.fn)
    assert error.frames[-1].line == first + 4
    assert error.source_line == lines[4].rstrip()
    assert error.column == lines[4].index("undefined") + 1


def test_source_that_is_nowhere_is_named():
    namespace = {}
    exec("def kernel(p):\n    pass\n", namespace)
    with pytest.raises(CompileError, match="kernel source not available for `kernel`"):
        KernelSource.of(namespace["kernel"])


def test_lambda_is_refused():
    with pytest.raises(CompileError, match="define kernels with `def`"):
        KernelSource.of(lambda p: p)


def test_missing_argument_is_named():
    assert "no argument given for `n`" in error_of(kernel, p=INT32_PTR).message


def test_internal_errors_are_not_disguised(monkeypatch):
    from tkdebug.compiler.ops import table
    from tkdebug.compiler.ops.spec import Builtin

    def broken(emit, *arguments):
        raise ZeroDivisionError("ours")

    monkeypatch.setitem(table.LANGUAGE, "broken", Builtin("broken", broken, member=True))

    @jit
    def breaks(p):
        p.broken()

    with pytest.raises(ZeroDivisionError) as caught:
        compile_kernel(breaks, p=pointer_type(float16))
    assert "this is an error in tkdebug" in caught.value.__notes__[0]
