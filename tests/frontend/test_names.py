# ruff: noqa: F841, RUF005
"""Names: what assignment makes of a value, and what a kernel may read from outside."""

from __future__ import annotations

import pytest
from frontend_support import (
    FP32_PTR,
    INT32_PTR,
    compile_kernel,
    line_of,
    message_of,
    text_of,
)

import tkdebug.language as tl
from tkdebug.compiler.dtypes import float16, int32, pointer_type
from tkdebug.compiler.frontend import Constant
from tkdebug.runtime.jit.function import jit

SIZE = tl.constexpr(16)
ALIAS = pointer_type(int32)
PLAIN = 3
ANNOTATED: tl.constexpr = 3


@jit
def assigns(p, BLOCK: tl.constexpr):
    x = 0
    y = 0.5
    big = 4294967296
    flag = True
    half: tl.constexpr = BLOCK // 2
    kind = tl.float16
    nothing = None
    tl.static_assert(nothing is None)
    z = tl.zeros([half], kind)
    tl.store(p, x)


def test_assignment_makes_tensors_of_numbers():
    text = text_of(assigns, p=INT32_PTR, BLOCK=32)
    assert line_of(text, "^%x =").endswith("arith.constant 0 : i32")
    assert line_of(text, "^%y =").endswith(": f32")
    assert line_of(text, "^%big =").endswith(": i64")
    assert line_of(text, "^%flag =").endswith(": i1")
    assert "tensor<16xf16>" in line_of(text, "^%z =")


def test_host_code_computes_with_constants():
    assert (SIZE * 2 + 1) // 3 == 11
    assert -(2**SIZE) % 10 == 4
    assert 1 << SIZE == 65536
    assert 15 < SIZE <= 16
    assert not SIZE > 16
    assert isinstance(100 / SIZE, tl.constexpr)
    assert [*tl.constexpr([1, 2])] == [1, 2]
    assert tl.constexpr([1, 2])[tl.constexpr(1)] == 2


@jit
def promotes(p):
    x = tl.load(p)
    scale = 2.0
    tl.store(p, x * scale)
    tl.store(p, x * 2.0)


def test_an_assigned_number_is_no_weak_scalar():
    text = text_of(promotes, p=pointer_type(float16))
    assert text.count("arith.mulf") == 2
    assert text.count("arith.extf") == 1


@jit
def reads_constants(p):
    tl.store(p + tl.arange(0, SIZE), tl.zeros([SIZE], tl.float32))
    y: tl.constexpr = ALIAS


def test_used_globals_are_recorded():
    module = compile_kernel(reads_constants, p=FP32_PTR)
    used = {used.name: used for used in module.used_globals.values()}
    assert used["SIZE"].value is SIZE
    assert not used["SIZE"].changed
    assert "tl" not in used


def test_a_changed_global_is_noticed(monkeypatch):
    module = compile_kernel(reads_constants, p=FP32_PTR)
    used = next(used for used in module.used_globals.values() if used.name == "SIZE")
    monkeypatch.setitem(reads_constants.fn.__globals__, "SIZE", tl.constexpr(16))
    assert not used.changed
    monkeypatch.setitem(reads_constants.fn.__globals__, "SIZE", tl.constexpr(32))
    assert used.changed
    monkeypatch.delitem(reads_constants.fn.__globals__, "SIZE")
    assert used.changed


@jit
def reads_plain(p):
    tl.store(p, PLAIN)


@jit
def reads_annotated(p):
    tl.store(p, ANNOTATED)


@pytest.mark.parametrize("kernel", [reads_plain, reads_annotated])
def test_plain_globals_are_refused(kernel):
    message = message_of(kernel, p=INT32_PTR)
    assert "cannot access global variable" in message
    assert "tl.constexpr(3)" in message


@jit
def default_from_global(p, n=PLAIN, BLOCK: tl.constexpr = PLAIN):
    tl.store(p, n + BLOCK)


def test_globals_may_be_parameter_defaults():
    assert "tt.store" in text_of(default_from_global, p=INT32_PTR)


@jit
def shadows(p, n):
    tl.store(p, n)
    n = 2.0
    tl.store(p, n)
    n: tl.constexpr = 4
    tl.store(p + tl.arange(0, n), n)


def test_straight_line_rebinding_may_change_type():
    assert "tensor<4x" in text_of(shadows, p=FP32_PTR, n=int32)


@jit
def annotates_a_run_time_value(p, n, SIZE: tl.constexpr):
    scale: tl.constexpr = 1.0 / tl.math.sqrt(SIZE * 2.0)
    rows: tl.constexpr = n + 1
    tl.store(p, rows * scale)


def test_a_run_time_value_may_be_annotated_constexpr():
    text = text_of(annotates_a_run_time_value, p=FP32_PTR, n=int32, SIZE=8)
    assert "math.sqrt" in text
    assert "arith.addi" in text


@jit
def declares_constants(p, SHAPE: tl.constexpr):
    rows: tl.constexpr
    columns: tl.constexpr
    rows, columns = SHAPE
    plain, _ = SHAPE
    tl.store(p + tl.arange(0, rows * columns), plain)
    rows = plain
    tl.store(p, rows + 1)


def test_names_declared_constexpr_stay_constants_when_unpacked():
    text = text_of(declares_constants, p=INT32_PTR, SHAPE=Constant((4, 2)))
    assert "tensor<8x" in text
    assert "arith.addi" in text


@jit
def uses_open(p):
    open("file")


def test_other_python_builtins_are_refused_by_name():
    assert "`open` cannot be used" in message_of(uses_open, p=INT32_PTR)


@jit
def index_by_variable(p):
    i = 1
    t = (3, 4, 5)
    tl.store(p, t[i])
    tl.store(p, t[0:2][-1])


def test_a_variable_that_is_still_its_constant_indexes_a_tuple():
    assert text_of(index_by_variable, p=INT32_PTR).count("tt.store") == 2


@jit
def tuples(p):
    t = (1, 2) + (3,)
    tl.static_assert(((3, 4) or (5, 6)) == (3, 4))
    tl.static_assert((() and tl.program_id(0)) == ())
    tl.static_assert((1, 2) * 2 == (1, 2, 1, 2))
    tl.static_assert(2 in (1, 2) and "a" not in "xyz")
    t += (4,)
    a, (b, c) = 1, (2, 3)
    tl.store(p, t[3] + c)
    tl.static_assert((t[0], 1) != (t[0], 2))


def test_tuple_algebra():
    assert "tt.store" in text_of(tuples, p=INT32_PTR)
