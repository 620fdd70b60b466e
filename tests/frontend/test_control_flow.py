# ruff: noqa: F821
"""Control flow: structure of the emitted IR, and agreement with Python on integers."""

from __future__ import annotations

import pytest
from frontend_support import (
    FP32_PTR,
    INT32_PTR,
    ScalarMachine,
    body_of,
    compile_kernel,
    message_of,
    ops_named,
    text_of,
)

import tkdebug.language as tl
from tkdebug.compiler.dtypes import float16, int1, int32, int64, pointer_type
from tkdebug.runtime.jit.function import jit


def run(kernel, *arguments, **constants):
    names = [name for name in kernel.arg_names if name not in constants]
    specs = {name: INT32_PTR if name.startswith("p") else int32 for name in names}
    return ScalarMachine(compile_kernel(kernel, **specs, **constants)).run(*arguments)


@jit
def constant_branch(p, FLAG: tl.constexpr):
    if FLAG:
        tl.store(p, 1)
    else:
        tl.store(p, undefined_name)


def test_constant_if_leaves_the_other_branch_unvisited():
    text = text_of(constant_branch, p=INT32_PTR, FLAG=True)
    assert "scf.if" not in text


@jit
def merging(p, n):
    x = 1
    y = 2
    if n > 3:
        x = 5
        z = 7
    else:
        z = 9
    tl.store(p, x + y + z)


def test_if_yields_only_names_that_change():
    module = compile_kernel(merging, p=INT32_PTR, n=int32)
    (op,) = ops_named(module, "scf.if")
    assert [result.name for result in op.results] == ["x", "z"]


@pytest.mark.parametrize(("n", "expected"), [(4, 14), (3, 12)])
def test_if_merges_values(n, expected):
    assert run(merging, 0, n) == {0: expected}


@jit
def early_return(p, n):
    if n > 10:
        return
    tl.store(p, 1)
    if n > 5:
        if n > 7:
            tl.store(p + 1, 1)
            return
        tl.store(p + 2, 1)
    elif n == 0:
        return
    tl.store(p + 3, n)


@pytest.mark.parametrize("n", [11, 8, 6, 0, 3])
def test_early_return_skips_what_follows(n):
    expected = {}
    if n <= 10:
        expected[0] = 1
        if n > 7:
            expected[1] = 1
        elif n > 5:
            expected |= {2: 1, 3: n}
        elif n != 0:
            expected[3] = n
    assert run(early_return, 0, n) == expected


@jit
def classify(x, FLIP: tl.constexpr):
    if FLIP:
        if x > 0:
            return -1
        return 1
    if x > 10:
        return 2
    elif x > 0:
        return 1
    return 0


@jit
def classifies(p, n, FLIP: tl.constexpr):
    tl.store(p, classify(n, FLIP))


@pytest.mark.parametrize(
    ("n", "flip", "expected"), [(11, 0, 2), (4, 0, 1), (-2, 0, 0), (3, 1, -1), (-3, 1, 1)]
)
def test_early_return_in_a_device_function(n, flip, expected):
    assert run(classifies, 0, n, FLIP=flip) == {0: expected}


@jit
def covers_all(x):
    if x > 0:
        return x, 1.0
    elif x <= 0:
        return -x, 2.0


@jit
def calls_covering(p, n):
    x, _ = covers_all(n)
    tl.store(p, x)


def test_function_may_end_without_return_where_it_never_gets():
    text = text_of(calls_covering, p=INT32_PTR, n=int32)
    assert text.count("tt.assert") == 1
    assert "`covers_all` ended without a return" in text


@jit
def returns_something_or_nothing(x):
    if x > 0:
        return
    return x


@jit
def calls_either(p, n):
    tl.store(p, returns_something_or_nothing(n))


def test_return_with_and_without_a_value_is_an_error():
    message = message_of(calls_either, p=INT32_PTR, n=int32)
    assert "returns None at line" in message


@jit
def sums(p, n):
    total = 0
    last = 0
    for i in range(2, n, 3):
        unchanged = p
        total += i
        last = i
        if i > 5:
            total += 1
        tl.store(unchanged + i, i)
    tl.store(p, total)
    tl.store(p + 1, last)


def test_for_carries_rebound_names():
    module = compile_kernel(sums, p=INT32_PTR, n=int32)
    (op,) = ops_named(module, "scf.for")
    assert [result.name for result in op.results] == ["total", "last"]
    assert [argument.name for argument in op.regions[0].block.arguments] == ["i", "total", "last"]


@pytest.mark.parametrize("n", [0, 3, 11])
def test_for_agrees_with_python(n):
    expected = {i: i for i in range(2, n, 3)}
    total = sum(i + (i > 5) for i in range(2, n, 3))
    expected |= {0: total, 1: ([0, *range(2, n, 3)])[-1]}
    assert run(sums, 0, n) == expected


@jit
def descending(p, start, stop):
    k = 0
    for i in range(start, stop, -3):
        tl.store(p + k, i)
        k += 1


@pytest.mark.parametrize(("start", "stop"), [(10, 0), (10, 1), (9, -1), (0, 5), (3, 3)])
def test_descending_range_runs_the_same_iterations(start, stop):
    expected = dict(enumerate(range(start, stop, -3)))
    assert run(descending, 0, start, stop) == expected


@jit
def swapping(p, n):
    a = 1
    b = 2
    t = (a, 3)
    for _ in range(n):
        a, b = b, a + b
        t = (t[1], t[0] + a)
    tl.store(p, a)
    tl.store(p + 1, b)
    tl.store(p + 2, t[0])
    tl.store(p + 3, t[1])


def test_swaps_and_tuples_are_carried():
    a, b, t = 1, 2, (1, 3)
    for _ in range(7):
        a, b = b, a + b
        t = (t[1], t[0] + a)
    assert run(swapping, 0, 7) == {0: a, 1: b, 2: t[0], 3: t[1]}


@jit
def nested(p, n):
    s = 0
    for i in range(n):
        for j in range(i):
            if j & 1 == 0:
                s += i * j
        s -= 1
    for i in range(2):
        s += i
    tl.store(p, s)


def test_nested_loops_agree_with_python():
    s = sum(i * j for i in range(6) for j in range(i) if j % 2 == 0) - 6 + 1
    assert run(nested, 0, 6) == {0: s}


@jit
def collatz_like(p, n):
    steps = 0
    while n > 1 and steps < 50:
        if n & 1 == 1:
            n = n * 3 + 1
        else:
            n = n >> 1
        steps += 1
    tl.store(p, n)
    tl.store(p + 1, steps)


@pytest.mark.parametrize("n", [0, 7, 12])
def test_while_agrees_with_python(n):
    m, steps = n, 0
    while m > 1 and steps < 50:
        m = m * 3 + 1 if m & 1 else m >> 1
        steps += 1
    assert run(collatz_like, 0, n) == {0: m, 1: steps}


def test_while_turns_a_constant_it_changes_into_a_variable():
    module = compile_kernel(collatz_like, p=INT32_PTR, n=5)
    assert ScalarMachine(module).run(0) == run(collatz_like, 0, 5)


@jit
def rebinds_constant(p, m, n):
    for _ in range(m):
        n = n * 2
    tl.store(p, n)


def test_for_turns_a_constant_it_changes_into_a_variable():
    module = compile_kernel(rebinds_constant, p=INT32_PTR, m=int32, n=1)
    assert ScalarMachine(module).run(0, 5) == {0: 32}


@jit
def keeps_constant(p, m, BLOCK: tl.constexpr, HALVE: tl.constexpr):
    for _ in range(m):
        if HALVE:
            BLOCK = BLOCK // 2
        tl.store(p + tl.arange(0, BLOCK), 1)


def test_constant_rebound_only_in_a_dead_branch_stays_constant():
    text = text_of(keeps_constant, p=INT32_PTR, m=int32, BLOCK=16, HALVE=False)
    assert "iter_args" not in text


@jit
def unrolled(p, N: tl.constexpr):
    for i in tl.static_range(0, N, 2):
        tl.store(p + i, i)
    for a, b in ((1, 2), (3, 4)):
        tl.store(p + 10 * a, b)
    for x in [7, 8]:
        tl.store(p + x, x)
        if x == 7:
            return


def test_static_loops_unroll():
    module = compile_kernel(unrolled, p=INT32_PTR, N=5)
    assert not ops_named(module, "scf.for")
    assert ScalarMachine(module).run(0) == {0: 0, 2: 2, 4: 4, 10: 2, 30: 4, 7: 7}


@jit
def hinted(p, n):
    for i in tl.range(0, n, num_stages=2, flatten=True, warp_specialize=False):
        tl.store(p + i, i)


def test_loop_hints_become_attributes():
    (op,) = ops_named(compile_kernel(hinted, p=INT32_PTR, n=int32), "scf.for")
    assert op.attributes == {"num_stages": 2, "flatten": True}


@jit
def wide(p, n):
    for i in range(0, n):
        tl.store(p + i, 1)


def test_index_has_the_widest_type_of_the_bounds():
    (op,) = ops_named(compile_kernel(wide, p=INT32_PTR, n=int64), "scf.for")
    assert {str(operand.type) for operand in op.operands} == {"i64"}


@jit
def pointers(p, n):
    q = p
    block = tl.make_block_ptr(p, (n, n), (n, 1), (0, 0), (16, 16), (1, 0))
    for _ in range(n):
        q += 4
        tl.store(block, tl.load(block) + 1.0)
        block = tl.advance(block, (0, 16))
    tl.store(q, 0.0)


def test_block_pointers_are_carried():
    module = compile_kernel(pointers, p=FP32_PTR, n=int32)
    (op,) = ops_named(module, "scf.for")
    kinds = [str(result.type) for result in op.results]
    assert kinds.count("!tt.ptr<f32>") >= 1
    assert len(op.results) == len(op.regions[0].block.arguments) - 1


@jit
def ternaries(p, n, FLAG: tl.constexpr):
    tl.store(p, n if n > 3 else 3)
    tl.store(p + 1, 1 if FLAG else undefined_name)


@jit
def weak_ternaries(p, n, wide, real):
    tl.store(p, 0 if n > 1 else wide)
    tl.store(p, wide if n > 1 else 1)
    tl.store(p, 2 if n > 1 else real)
    tl.store(p, 3 if n > 1 else n)


def test_a_number_in_a_conditional_expression_has_the_type_of_the_other_side():
    module = compile_kernel(weak_ternaries, p=INT32_PTR, n=int32, wide=int64, real=float16)
    types = [str(op.result.type) for op in ops_named(module, "scf.if")]
    assert types == ["i64", "i64", "f16", "i32"]


@jit
def real_ternary(p, n):
    tl.store(p, 1.5 if n > 1 else n)


def test_a_real_number_does_not_become_the_integer_of_the_other_side():
    message = message_of(real_ternary, p=INT32_PTR, n=int32)
    assert "Ternary expression with dynamic condition has inconsistent types" in message


def test_conditional_expression():
    assert run(ternaries, 0, 2, FLAG=True) == {0: 3, 1: 1}
    assert run(ternaries, 0, 9, FLAG=True) == {0: 9, 1: 1}


@jit
def logic(p, n, m, FLAG: tl.constexpr):
    if (n > 1 and m > 1) or not (n < m):
        tl.store(p, 1)
    if FLAG is None or n == 2:
        tl.store(p + 1, 1)
    if 0 < n < m:
        tl.store(p + 2, 1)
    if n in (2, 5):
        tl.store(p + 3, 1)


@pytest.mark.parametrize(("n", "m"), [(2, 3), (5, 4), (0, 0), (-1, 3)])
def test_logic_agrees_with_python(n, m):
    checks = [(n > 1 and m > 1) or not n < m, n == 2, 0 < n < m, n in (2, 5)]
    expected = {index: 1 for index, holds in enumerate(checks) if holds}
    assert run(logic, 0, n, m, FLAG=1) == expected


def test_constant_decides_a_run_time_condition():
    text = text_of(logic, p=INT32_PTR, n=int32, m=int32, FLAG=None)
    assert text.count("scf.if") == 3


@jit
def loop_variable_after(p, n):
    for i in range(n):
        tl.store(p, i)
    tl.store(p, i)


def test_loop_variable_is_undefined_after_its_loop():
    message = message_of(loop_variable_after, p=INT32_PTR, n=int32)
    assert "`i` is not defined here: it is the variable of the loop at line" in message


@jit
def inner_name(p, n):
    for i in range(n):
        inside = i
    tl.store(p, inside)


def test_name_first_bound_in_a_loop_is_undefined_after_it():
    message = message_of(inner_name, p=INT32_PTR, n=int32)
    assert "first bound at line" in message
    assert "bind it before the loop" in message


@jit
def half_defined(p, n):
    if n > 3:
        x = 1
    tl.store(p, x)


def test_name_bound_in_one_branch_is_undefined_after_it():
    assert "in only one branch of the run-time `if`" in message_of(
        half_defined, p=INT32_PTR, n=int32
    )


@jit
def reused_index(p, n):
    j = 5
    for i in range(n):
        for j in range(i):
            tl.store(p, j)
    tl.store(p, 1)


def test_inner_loop_variable_may_hide_an_outer_name():
    module = compile_kernel(reused_index, p=INT32_PTR, n=int32)
    assert all(not op.results for op in ops_named(module, "scf.for"))


@jit
def read_stale(p, n):
    j = 5
    for i in range(n):
        tl.store(p, j)
        for j in range(i):
            tl.store(p, j)


def test_reading_a_name_that_the_iteration_before_left_open_is_an_error():
    assert "no value at the end" in message_of(read_stale, p=INT32_PTR, n=int32)


@jit
def boolean_carried(p, n):
    going = True
    i = 0
    while going:
        i += 1
        going = i < n
    tl.store(p, i)


def test_bool_variable_is_int1():
    text = text_of(boolean_carried, p=INT32_PTR, n=int32)
    assert "%going" in text
    assert run(boolean_carried, 0, 4) == {0: 4}


@jit
def takes_flag(p, flag):
    if flag:
        tl.store(p, 1)


def test_int1_argument_is_a_condition():
    assert body_of(text_of(takes_flag, p=INT32_PTR, flag=int1))[0].startswith("scf.if %flag")


@jit
def through_block_type(p, q, n):
    source = tl.make_block_ptr(p, (n, n), (n, 1), (0, 0), (16, 16), (1, 0))
    target = tl.make_block_ptr(q, (n, n), (n, 1), (0, 0), (16, 16), (1, 0))
    value = tl.load(source).to(source.dtype.element_ty, fp_downcast_rounding="rtne")
    value = value.to(target.dtype.element_ty, fp_downcast_rounding="rtne")
    tl.static_assert(value.dtype == q.dtype.element_ty)
    tl.static_assert(target.type.element_ty.shape == (16, 16))
    tl.static_assert(target.type.is_ptr() and target.type.element_ty.is_block())
    tl.store(target, value)


def test_block_pointer_is_a_pointer_to_a_block():
    module = compile_kernel(through_block_type, p=FP32_PTR, q=pointer_type(float16), n=int32)
    assert ops_named(module, "arith.truncf")
