"""Device functions, Python functions and the language's functions as kernels call them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
from frontend_support import (
    FP32_PTR,
    INT32_PTR,
    ScalarMachine,
    compile_kernel,
    message_of,
    ops_named,
    text_of,
)

import tkdebug.language as tl
from tkdebug.compiler.aggregates import aggregate
from tkdebug.compiler.dtypes import float16, float32, int32, pointer_type
from tkdebug.compiler.frontend import Constant
from tkdebug.runtime.jit.constexpr_function import cdiv, constexpr_function
from tkdebug.runtime.jit.function import jit


class Pair(NamedTuple):
    first: Any
    second: Any


class Tiling(NamedTuple):
    rows: Any
    columns: Any = tl.constexpr(8)


@jit
def scaled(x, factor=2, *, offset: tl.constexpr = 1):
    return x * factor + offset


@jit
def calls_with_defaults(p, n):
    tl.store(p, scaled(n))
    tl.store(p + 1, scaled(n, 3))
    tl.store(p + 2, scaled(x=n, offset=5))


def test_defaults_and_keywords():
    module = compile_kernel(calls_with_defaults, p=INT32_PTR, n=int32)
    assert ScalarMachine(module).run(0, 10) == {0: 21, 1: 31, 2: 25}


@jit
def operators_by_name(p, n):
    tl.store(p, n.__mul__(4).__add__(3))
    tl.store(p + 1, n.__rsub__(3))
    tl.store(p + 2, n.__sub__(8))


def test_operators_can_be_called_by_their_methods_names():
    module = compile_kernel(operators_by_name, p=INT32_PTR, n=int32)
    assert ScalarMachine(module).run(0, 10) == {0: 43, 1: -7, 2: 2}


@jit
def size_of(N: tl.constexpr):
    tl.static_assert(isinstance(N, tl.constexpr))
    return tl.zeros([N], tl.float32)


@jit
def passes_constants(p):
    tl.store(p + tl.arange(0, 8), size_of(4 * 2))


def test_constants_stay_constants_through_calls():
    assert "tensor<8xf32>" in text_of(passes_constants, p=FP32_PTR)


@jit
def returns_constant():
    return 2.0


@jit
def uses_returned_constant(p):
    x = tl.load(p)
    tl.store(p, x * returns_constant())


def test_returned_numbers_are_run_time_values():
    # A weak 2.0 would leave fp16; the fp32 that `return` makes of it does not.
    text = text_of(uses_returned_constant, p=pointer_type(float16))
    assert "arith.extf" in text


@jit
def two_values(a, b):
    return a + b, a - b


@jit
def unpacks(p, n):
    s, d = two_values(n, 3)
    tl.store(p, s)
    tl.store(p + 1, d)
    pair = two_values(*(n, 1))
    tl.store(p + 2, pair[0] + pair[-1])


def test_returned_tuples():
    module = compile_kernel(unpacks, p=INT32_PTR, n=int32)
    assert ScalarMachine(module).run(0, 10) == {0: 13, 1: 7, 2: 20}


@jit
def swaps_fields(pair):
    return Pair(second=pair.first, first=pair.second)


@jit
def named_tuples(p, pair):
    q = swaps_fields(pair)
    for _ in range(3):
        q = Pair(q.first + 1, q.second)
    tl.store(p, q.first)
    tl.store(p + 1, q.second)


def test_named_tuples_pass_through_calls_and_loops():
    module = compile_kernel(named_tuples, p=INT32_PTR, pair=Pair(int32, Constant(7)))
    assert ScalarMachine(module).run(0, 4) == {0: 10, 1: 4}


@jit
def countdown(x, N: tl.constexpr):
    if N == 0:
        return x
    else:
        return countdown(x + N, N - 1)


@jit
def constant_recursion(p, n):
    tl.store(p, countdown(n, 4))


@jit
def makes_a_tuple_with_a_default(p):
    tiling = Tiling(4)
    tl.store(p + tl.arange(0, Tiling(4)[1]), tiling[0] + tiling[1])


def test_constexpr_defaults_of_named_tuples_are_constants():
    text = text_of(makes_a_tuple_with_a_default, p=INT32_PTR)
    assert "end = 8" in text


def test_recursion_that_ends_on_a_constant():
    module = compile_kernel(constant_recursion, p=INT32_PTR, n=int32)
    assert ScalarMachine(module).run(0, 1) == {0: 11}


@jit
def never_ends(x, N: tl.constexpr):
    return never_ends(x, N + 1)


@jit
def deep(p, n):
    tl.store(p, never_ends(n, 0))


def test_unbounded_recursion_is_refused():
    assert "nested more than" in message_of(deep, p=INT32_PTR, n=int32)


@constexpr_function
def log2(x):
    return int(math.log2(x))


@jit
def compile_time_functions(p, n, BLOCK: tl.constexpr):
    k: tl.constexpr = log2(BLOCK)
    tl.static_assert(k == 5)
    tl.static_assert(cdiv(7, 2) == 4)
    tl.static_assert(math.ceil(2.5) == 3)
    tl.store(p, cdiv(n, BLOCK))
    tl.store(p + 1, max(n, 4))
    tl.store(p + 2, min(3, 4, 2) + abs(-3) + len((1, 2)) + sum([1, 2]) + int(2.7))
    for i in tl.static_range(len([x for x in range(6) if x % 2])):
        tl.store(p + 3 + i, float("-inf") < 0)


def test_compile_time_functions():
    text = text_of(compile_time_functions, p=INT32_PTR, n=int32, BLOCK=32)
    assert "arith.maxsi" in text
    assert text.count("tt.store") == 6


@jit
def adds(a, b):
    return a + b


@jit
def reduces(p):
    x = tl.load(p + tl.arange(0, 16))
    tl.store(p, tl.reduce(x, 0, adds))


def test_combine_functions_are_inlined_with_their_call_site():
    module = compile_kernel(reduces, p=FP32_PTR)
    inner = [op for op in ops_named(module, "arith.addf")]
    assert [frame.function for frame in inner[0].location.frames] == ["reduces", "adds"]


@jit
def methods(p, TYPE: tl.constexpr):
    x = tl.load(p + tl.arange(0, 16)[:, None] * 8 + tl.arange(0, 8)[None, :])
    tl.static_assert(x.shape == (16, 8))
    tl.static_assert(x.T.shape[0] == 8)
    tl.static_assert(x.dtype is tl.float32 and x.dtype.is_fp32())
    tl.static_assert(x.numel == 128 and x.type.element_ty == tl.float32)
    tl.static_assert(p.dtype.element_ty == tl.float32)
    tl.static_assert(hasattr(x, "dtype") and not hasattr(x, "missing"))
    y = x.to(TYPE).sum(axis=1)
    tl.store(p + tl.arange(0, 16), y)


def test_members_of_tensors():
    text = text_of(methods, p=FP32_PTR, TYPE=Constant(float16))
    assert "tensor<16x8xf16>" in text


@jit
def takes_function(p, f: tl.constexpr, n):
    tl.store(p, f(n, 1))


def test_functions_as_arguments():
    module = compile_kernel(takes_function, p=INT32_PTR, f=adds, n=int32)
    assert ScalarMachine(module).run(0, 4) == {0: 5}


def make_kernel(scale, helper):
    factor = tl.constexpr(scale)

    @jit
    def kernel(p, n):
        tl.store(p, helper(n, factor))

    return kernel


def test_closures():
    module = compile_kernel(make_kernel(6, adds), p=INT32_PTR, n=int32)
    assert ScalarMachine(module).run(0, 4) == {0: 10}


@jit
def prints(p, n):
    print("n", n)
    print("constant", 3)
    assert n > 3, "n is small"
    tl.device_assert(n < 9)
    tl.store(p, n)


def test_print_and_assert(capfd):
    text = text_of(prints, p=INT32_PTR, n=int32)
    assert 'prefix = " n: "' in text
    assert 'message = "n is small"' in text
    assert text.count("tt.assert") == 2
    assert "constant 3" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("given", "shown"),
    [(float32, "pointer"), (Constant("text"), "text")],
)
def test_wrong_argument_of_a_builtin_names_it(given, shown):
    @jit
    def kernel(p):
        tl.load(p)

    assert shown in message_of(kernel, p=given)


def demanding(fn):
    fn._must_use_result = "Store it."
    return fn


@demanding
@jit
def demanded(x):
    return x + 1


@jit
def ignores(p, n):
    demanded(n)


def test_result_that_must_be_used():
    message = message_of(ignores, p=INT32_PTR, n=int32)
    assert message == "The result of demanded is not being used. Store it."


@aggregate
class Squared:
    x: tl.tensor

    @demanding
    @jit
    def twice(self):
        return self.x * 2


@jit
def ignores_a_method(p, n):
    pair = Squared(n)
    pair.twice()


def test_result_of_a_method_that_must_be_used():
    message = message_of(ignores_a_method, p=INT32_PTR, n=int32)
    assert message == "The result of pair.twice is not being used. Store it."


@jit
def types_of_constants(n, N: tl.constexpr, PAIR: tl.constexpr):
    tl.static_assert(N.type == tl.constexpr_type(7))
    tl.static_assert(isinstance(PAIR.type, tl.constexpr_type))
    tl.static_assert(PAIR.type == tl.constexpr_type((1, 2)))
    literal: tl.constexpr = 1.5
    tl.static_assert(literal.type == tl.constexpr_type(1.5))
    tl.static_assert(literal.type != tl.constexpr_type(2.5))
    variable = literal
    tl.static_assert(variable.type == tl.float32)


def test_type_of_a_constant():
    compile_kernel(types_of_constants, n=int32, N=7, PAIR=Constant((1, 2)))


@jit
def store_into_const(p, q, n):
    if n > 0:
        r = p
    else:
        r = q
    tl.store(r, 1.0)


def test_const_pointers_are_distinguished():
    const = pointer_type(float32, const=True)
    message = message_of(store_into_const, p=const, q=const, n=int32)
    assert "Cannot store to a constant pointer" in message
    message = message_of(store_into_const, p=const, q=FP32_PTR, n=int32)
    assert "const_pointer<fp32> when" in message
    assert "but pointer<fp32> otherwise" in message


@jit
def shows_what_it_has(x, n, B: tl.constexpr):
    block = tl.load(x + tl.arange(0, B))
    tl.static_print("a", block, x, n, block[None, :].to(tl.float32), (block, 2), B, block.dtype)
    tl.store(x + tl.arange(0, B), block)


def test_static_print_shows_types_as_upstream_does(capsys):
    compile_kernel(shows_what_it_has, x=INT32_PTR, n=int32, B=16)
    assert capsys.readouterr().out == (
        "a int32[constexpr[16]] pointer<int32>[] int32[] fp32[constexpr[1], constexpr[16]] "
        "['int32[constexpr[16]]', '2'] 16 int32\n"
    )
