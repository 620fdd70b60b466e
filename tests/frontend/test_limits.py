# ruff: noqa: UP031, UP032, E701 (kernels that format in every way)
"""Constants that would take all memory, or never end, are refused at their line."""

from __future__ import annotations

import math
import operator
import time

import pytest
from frontend_support import FP32_PTR, compile_kernel, error_of

import tkdebug.language as tl
from tkdebug.runtime.jit.function import jit


@jit
def shift(p):
    tl.store(p, (1 << (1 << 12) << (1 << 40)) > 0)


@jit
def shift_far(p):
    tl.store(p, 1 << (1 << 40))


@jit
def power(p):
    tl.store(p, 10 ** (10**9))


@jit
def product(p):
    tl.store(p, math.prod((7,) * 60000))


@jit
def power_by_name(p):
    tl.store(p, pow(7, 10**10))


@jit
def factorial(p):
    tl.store(p, math.factorial(10**9))


@jit
def repeated_tuple(p):
    tl.store(p, len((0,) * 10**9))


@jit
def repeated_by_the_left(p):
    tl.store(p, len(10**9 * (0,)))


@jit
def joined_tuple(p):
    t = (0,)
    for _ in tl.static_range(64):
        t = t + t


@jit
def nested_tuple(p):
    t = (0,)
    for _ in tl.static_range(64):
        t = (t, t)


@jit
def repeated_text(p):
    tl.static_print(len("a" * 10**10))


@jit
def joined_text(p):
    text = "ab"
    for _ in tl.static_range(64):
        text += text


@jit
def padded_text(p):
    tl.static_print("a".ljust(10**10))


@jit
def formatted_text(p):
    tl.static_print(f"{3:10000000000}")


@jit
def formatted_by_percent(p):
    tl.static_print("%2000000d" % 3)


@jit
def formatted_by_method(p):
    tl.static_print("{:{}}".format(3, 10**10))


@jit
def formatted_by_keyword(p):
    tl.static_print("{:{width}}".format(3, width="1" + "0" * 10))


@jit
def formatted_by_star(p):
    tl.static_print(operator.mod("%*d", (10**10, 3)))


@jit
def formatted_many_times(p):
    tl.static_print(operator.mod("%60000d" * 60000, (3,) * 60000))


@jit
def tuple_of_range(p):
    tl.store(p, len(tuple(range(10**12))))


@jit
def spread_range(p):
    tl.store(p, len((*range(10**12),)))


@jit
def sum_of_range(p):
    tl.store(p, sum(range(10**12)))


@jit
def maximum_of_range(p):
    tl.store(p, max(range(10**12)))


@jit
def sorted_range(p):
    tl.store(p, sorted(range(10**30))[0])


@jit
def static_range(p):
    for _ in tl.static_range(7, 10**30, 10): tl.store(p, 1)  # fmt: skip


@jit
def comprehension(p):
    tl.store(p, len([i for i in range(10**12) if i < 0]))


@jit
def nested_comprehension(p):
    tl.store(p, len([i for i in range(60000) for j in range(60000) if j < 0]))


@jit
def loop_over_zip(p):
    for i, j in zip(range(10**12), range(10**12), strict=True): tl.store(p, i + j)  # fmt: skip


@jit
def power_by_operator(p):
    tl.store(p, operator.pow(7, 10**10))


@jit
def repeated_by_operator(p):
    tl.static_print(len(operator.mul("ab", 10**11)))


@jit
def repeated_by_method(p):
    tl.store(p, len((0,).__mul__(10**10)))


@jit
def joined_by_method(p):
    tl.static_print(len("".join(("a" * 1000000,) * 60000)))


@jit
def replaced_text(p):
    tl.static_print(len(("a" * 1000000).replace("a", "b" * 1000000)))


@jit
def expanded_tabs(p):
    tl.static_print(len(("\t" * 1000000).expandtabs(1000000)))


@jit
def nested_static_ranges(p):
    for _ in tl.static_range(1000):
        for _ in tl.static_range(1000):
            for _ in tl.static_range(1000): pass  # fmt: skip


@jit
def broadcast(p):
    tl.store(p, tl.sum(tl.arange(0, 2048)[:, None] + tl.arange(0, 1024)[None, :]))


@jit
def joined_tiles(p):
    x = tl.zeros([1 << 20], tl.float32)
    tl.store(p, tl.sum(tl.join(x, x)))


@jit
def large_global(p):
    tl.store(p, LARGE)


LARGE = tl.constexpr(10**100000)
BITS = "gives an int of more than 8192 bits, the most that a constant of a kernel may have"
ITEMS = "constants of a kernel may have at most 65536"
CHARS = "constants of a kernel may have at most 1048576"
STEPS = "more than 65536 items, the most that is worked through at compile time"
TOO_LARGE = {
    shift: BITS,
    shift_far: BITS,
    power: BITS,
    product: BITS,
    power_by_name: BITS,
    factorial: BITS,
    repeated_tuple: f"a tuple of 1000000000 items; {ITEMS}",
    repeated_by_the_left: f"a tuple of 1000000000 items; {ITEMS}",
    joined_tuple: f"a tuple of 131072 items; {ITEMS}",
    nested_tuple: ITEMS,
    repeated_text: f"a string of 10000000000 characters; {CHARS}",
    joined_text: CHARS,
    padded_text: CHARS,
    formatted_text: CHARS,
    formatted_by_percent: CHARS,
    formatted_by_method: CHARS,
    formatted_by_keyword: CHARS,
    formatted_by_star: CHARS,
    formatted_many_times: CHARS,
    power_by_operator: BITS,
    repeated_by_operator: CHARS,
    repeated_by_method: ITEMS,
    joined_by_method: CHARS,
    replaced_text: CHARS,
    expanded_tabs: CHARS,
    tuple_of_range: STEPS,
    spread_range: STEPS,
    sum_of_range: STEPS,
    maximum_of_range: STEPS,
    sorted_range: STEPS,
    static_range: f"tl.static_range of {10**29} iterations exceeds the limit of 65536",
    comprehension: STEPS,
    nested_comprehension: STEPS,
    nested_static_ranges: "unroll to more than 65536 iterations in all; use tl.range",
    broadcast: "a tile of shape [2048, 1024] has 2097152 elements; the limit is 1048576",
    joined_tiles: "a tile of shape [1048576, 2] has 2097152 elements; the limit is 1048576",
    large_global: "integer of 332193 bits does not fit 64 bits",
    loop_over_zip: STEPS,
}


@pytest.mark.parametrize("kernel", TOO_LARGE, ids=lambda kernel: kernel.__name__)
def test_constant_that_is_too_large_is_refused_at_its_line(kernel):
    started = time.process_time()
    error = error_of(kernel, p=FP32_PTR)
    assert TOO_LARGE[kernel] in error.message
    assert error.frames[-1].file == __file__
    assert error.frames[-1].line == kernel.starting_line_number + len(kernel.src.splitlines())
    assert len(str(error)) < 1000
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    "text", [" + ".join(["x"] * 900), "x" + ".to(tl.float32)" * 900, "-" * 900 + "x"]
)
def test_an_expression_that_is_nested_too_deeply_is_refused_at_its_line(tmp_path, text):
    source = f"def deep(p):\n    x = tl.load(p)\n    tl.store(p, {text})\n"
    path = tmp_path / "deep.py"
    path.write_text(source)
    namespace = {"tl": tl}
    exec(compile(source, str(path), "exec"), namespace)
    error = error_of(jit(namespace["deep"]), p=FP32_PTR)
    assert "nests its expressions or calls too deeply" in error.message
    assert (error.frames[-1].file, error.frames[-1].line) == (str(path), 3)


@jit
def large(p):
    table = (1, 2) * 2048 + tuple(range(4096))
    mask = (1 << 4096) - 1 & 0xFFFF
    tl.static_assert(len(table) == 8192)
    tl.static_assert(0 << 10**9 == 0)
    tl.static_assert(1 ** (10**9) == 1 and (-1) ** (10**9 + 1) == -1)
    tl.static_assert(len("ab" * 1000) == 2000)
    tl.static_assert(f"{3:08d}" == "00000003" and "%5d" % 2**40 != "")
    tl.static_assert("{} {:>8}".format(2**40, 3) == "1099511627776        3")
    tl.static_assert(
        "{:{}}, below 4294967296{{".format(2**40, 2) == "1099511627776, below 4294967296{"
    )
    tl.static_assert(operator.mod("%*d%% 4294967296", (2, 2**40)) == "1099511627776% 4294967296")
    tl.static_assert("4294967296 %d%%4294967296" % 3 == "4294967296 3%4294967296")
    tl.static_assert("%%4294967296 {[0]:d}".format((2**40,)) == "%%4294967296 1099511627776")
    tl.static_assert(math.comb(40, 20) == 137846528820 and pow(2, 10, 1000) == 24)
    tl.static_assert(("ab" * 20000).replace("c", "d" * 20000) == "ab" * 20000)
    tl.static_assert(", ".join(("a", "b")) == "a, b" and "7".zfill(3) == "007")
    tl.static_assert(operator.mul(3, 4) == 12 and "a\tb".expandtabs(4) == "a   b")
    tl.static_assert(10**6 in range(10**12) and len(range(10**12)) == 10**12)
    tl.store(p, mask + table[5000])


def test_large_constants_that_are_within_the_limits():
    compile_kernel(large, p=FP32_PTR)


@jit
def not_a_number(p):
    tl.store(p, tl.full((1,), float("nan"), tl.int32).sum())


@jit
def tile_of_a_tile(p):
    tl.store(p, tl.full((4,), tl.zeros((1,), tl.float32), tl.float32).sum())


@jit
def sums_of_another_type(p):
    a = tl.full((16, 16), 1.0, tl.float16)
    tl.store(p, tl.sum(tl.dot(a, a, out_dtype=tl.int32)))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (not_a_number, "constant nan does not fit int32"),
        (tile_of_a_tile, "full: value must be a scalar"),
        (sums_of_another_type, "dot: out_dtype must be fp32 or fp16, got the type int32"),
    ],
)
def test_value_that_has_no_such_type_is_refused_at_its_line(kernel, message):
    error = error_of(kernel, p=FP32_PTR)
    assert message in error.message
    assert error.frames[-1].line in range(
        kernel.starting_line_number + 1, kernel.starting_line_number + 4
    )
