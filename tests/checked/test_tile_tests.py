"""Tests of whole tiles, computed from the LLVM IR of checked kernels and compared with addresses.

One predicate says for all accesses of a straight line whether their tiles lie in their tensors.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache

import pytest
import torch
from check_support import copy_of, launches
from scalar_text import scalars, signed

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.sites.checks import BOUNDS_KINDS, CheckOptions
from tkdebug.compiler.sites.table import MOST_ELEMENTS, elements_behind
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.compile import lower_to_llvm

BLOCK = 64
BASE = 0x7F00_0000_0000


@tkdebug.jit
def moved(x, y, n, B: tl.constexpr):
    offs = tl.program_id(0) * B + tl.arange(0, B)
    mask = offs < n
    tl.store(y + offs, tl.load(x + offs, mask=mask), mask=mask)


@tkdebug.jit
def rows(x, y, stride, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, B)
    value = tl.load(x + row * stride + cols)
    tl.store(y + row * B + cols, value)


@tkdebug.jit
def retyped_rows(x, y, stride, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, B)
    x = x.to(tl.pointer_type(tl.int32), bitcast=True)
    y = y.to(tl.pointer_type(tl.int32), bitcast=True)
    value = tl.load(x + row * stride + cols)
    tl.store(y + row * B + cols, value)


@tkdebug.jit
def scattered(x, n, B: tl.constexpr):
    tl.store(x + n * 4 + tl.arange(0, B), 0.0)


@tkdebug.jit
def weighted(x, w, b, y, n, B: tl.constexpr):
    cols = tl.arange(0, B)
    mask = cols < n
    row = tl.program_id(0) * n
    value = tl.load(x + row + cols, mask=mask)
    value = value * tl.load(w + cols, mask=mask) + tl.load(b + cols, mask=mask)
    tl.store(y + row + cols, value, mask=mask)


@tkdebug.jit
def behind_a_loop(x, y, n, B: tl.constexpr):
    cols = tl.arange(0, B)
    total = tl.load(x + cols)
    for i in range(n):
        total += i
    tl.store(y + cols, total)


@tkdebug.jit
def scaled(x, n, C: tl.constexpr):
    tl.store(x + n * C, 1)


def _moved() -> None:
    x = torch.zeros(2 * BLOCK)
    moved[(2,)](x, x.clone(), 2 * BLOCK, B=BLOCK)


def _rows() -> None:
    x = torch.zeros(2, BLOCK)
    rows[(2,)](x, x.clone(), x.stride(0), B=BLOCK)


def _retyped_rows() -> None:
    x = torch.zeros(2, BLOCK)
    retyped_rows[(2,)](x, x.clone(), x.stride(0), B=BLOCK)


def _scattered() -> None:
    scattered[(1,)](torch.zeros(4096), 5, B=BLOCK)


def _weighted() -> None:
    x = torch.zeros(2, BLOCK - 4)
    weighted[(2,)](x, x[0], x[1], x.clone(), BLOCK - 4, B=BLOCK)


def _behind_a_loop() -> None:
    x = torch.zeros(BLOCK)
    behind_a_loop[(1,)](x, x.clone(), 3, B=BLOCK)


@cache
def llvm_ir(run: Callable[[], object]) -> str:
    options = NativeOptions(checks=CheckOptions(frozenset(BOUNDS_KINDS)))
    return lower_to_llvm(copy_of(launches(run)[-1]), options, TARGETS["sm_90a"]).llvm_ir


def guards(text: str) -> list[str]:
    """Return the i1 that guards each access of a kernel; "" where each element is tested."""
    found = []
    for line in text.splitlines():
        if "asm sideeffect" in line and ".reg .pred q" in line:
            number = re.search(r"@\$(\d+) bra\.uni (?:NEAR|DONE)", line)
            outputs = line.count("=&")
            operands = re.findall(
                r"(?:i\d+|ptr addrspace\(1\)) (%\w+|\d+)", line[line.rindex('"(') :]
            )
            found.append(operands[int(number[1]) - outputs] if number else "")
    return found


def _holds(run: Callable[[], object], parameters: dict[str, int]) -> bool:
    text = llvm_ir(run)
    (guard,) = set(guards(text))
    return bool(scalars(text, parameters)[guard])


def _lies_inside(base: int, offsets: list[int], first: int, end: int) -> bool:
    addresses = [base + 4 * offset & (1 << 64) - 1 for offset in offsets]
    return all(first <= at and at + 4 <= end for at in addresses)


def test_accesses_of_a_line_go_by_one_test():
    for run in (_moved, _rows):
        first, second = guards(llvm_ir(run))
        assert first == second != ""


def test_tiles_that_no_program_moves_have_a_test_of_their_own():
    row, weight, bias, stored = guards(llvm_ir(_weighted))
    assert "" not in (row, weight)
    assert (row, weight) == (stored, bias)
    assert row != weight


@pytest.mark.parametrize(
    ("factor", "is_held"), [(1, True), ((1 << 31) - 1, False), (1 << 30, False)]
)
def test_no_tile_is_known_by_a_product_that_wraps(factor, is_held):
    x = BASE
    known = {"%arg0": x, "%arg1": factor, "%arg2": 0}
    # At 32 bits, four times 2**30 is 0, and four times 2**31 - 1 is -4.
    found = _holds(_scattered, known | _passed(4, x, x + 4 * 4096, x))
    assert found == is_held


def test_what_follows_a_loop_has_a_test_of_its_own():
    first, second = guards(llvm_ir(_behind_a_loop))
    assert "" not in (first, second)
    assert first != second


def _passed(number: int, first: int, end: int, base: int) -> dict[str, int]:
    """Return the parameters of a tensor, from `number` on."""
    elements = elements_behind(base, end, 4)
    return {f"%arg{number}": first, f"%arg{number + 1}": end, f"%arg{number + 2}": elements}


def _argument(random_: random.Random, begin: int) -> tuple[int, int]:
    """First byte and end of a tensor that ends about where a tile ends, if that is possible.

    Args:
        random_: chooses.
        begin: how far the tile's first element is behind the tensor's first byte.
    """
    first = BASE + 256 * random_.randrange(1 << 20)
    least = begin if 0 <= begin < 1 << 44 else 0
    size = 4 * random_.choice([-1, 0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 1 << 20, 1 << 31])
    return first, first + max(0, least + size)


@pytest.mark.parametrize("seed", range(4))
def test_a_test_of_flat_tiles_holds_where_they_lie_inside(seed):
    random_ = random.Random(seed)
    seen = set()
    for _ in range(300):
        program = random_.choice([0, 1, 5, 1 << 20, (1 << 25) - 1, 1 << 25, 1 << 26, (1 << 31) - 1])
        start = signed(program * BLOCK, 32)
        (x, x_end), (y, y_end) = (_argument(random_, 4 * start) for _ in range(2))
        offsets = [signed(start + at, 32) for at in range(BLOCK)]
        inside = _lies_inside(x, offsets, x, x_end) and _lies_inside(y, offsets, y, y_end)
        parameters = {"%arg0": x, "%arg1": y, "%arg2": 1 << 20, "%arg3": 0, "ctaid.x": program}
        ends = _passed(5, x, x_end, x) | _passed(8, y, y_end, y)
        found = _holds(_moved, parameters | ends)
        # LLVM may compute in 64 bits what wraps; more elements than MOST_ELEMENTS are not passed.
        is_far = MOST_ELEMENTS in offsets or start != program * BLOCK
        assert found == inside or (is_far and inside), (program, parameters, ends)
        seen.add(found)
    assert seen == {False, True}


@pytest.mark.parametrize("seed", range(4))
def test_a_test_of_rows_holds_where_they_lie_inside(seed):
    random_ = random.Random(seed)
    seen = set()
    for _ in range(400):
        program = random_.choice([0, 1, 2, 7, (1 << 31) - 1])
        stride = random_.choice([BLOCK, 0, -BLOCK, 1 << 30, (1 << 31) - 1, -(1 << 31)])
        x, x_end = _argument(random_, 4 * program * stride)
        y, y_end = _argument(random_, 4 * program * BLOCK)
        x_offsets = [program * stride + at for at in range(BLOCK)]
        y_offsets = [program * BLOCK + at for at in range(BLOCK)]
        inside = _lies_inside(x, x_offsets, x, x_end) and _lies_inside(y, y_offsets, y, y_end)
        parameters = {"%arg0": x, "%arg1": y, "%arg2": stride, "%arg3": 0, "ctaid.x": program}
        ends = _passed(5, x, x_end, x) | _passed(8, y, y_end, y)
        found = _holds(_rows, parameters | ends)
        # What is as far behind as 2**31 elements is not looked at as a tile.
        is_far = max(map(abs, (*x_offsets, *y_offsets))) >= MOST_ELEMENTS
        assert found == inside or (is_far and inside), (program, parameters, ends)
        seen.add(found)
    assert seen == {False, True}


def _tensor(random_: random.Random, begin: int) -> tuple[int, int, int]:
    """Base, first byte and end of a tensor that lies about `begin` behind its base."""
    first = BASE + 256 * random_.randrange(1 << 20)
    size = 4 * random_.choice([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 1 << 20])
    base = first - begin + 4 * random_.choice([0, 0, 0, 1, -1, BLOCK, -BLOCK, 1 << 20])
    return base, first, first + size


@pytest.mark.parametrize("seed", range(4))
def test_a_test_by_addresses_holds_where_tiles_lie_inside(seed):
    random_ = random.Random(seed)
    seen = set()
    for _ in range(400):
        program = random_.choice([0, 1, 2, 7, (1 << 31) - 1])
        stride = random_.choice([BLOCK, 0, -BLOCK, 1 << 30, (1 << 31) - 1, -(1 << 31)])
        # Some tiles begin so near the end of the address space that their last elements would wrap.
        begin = 4 * program * stride + random_.choice(
            [0, 0, 0, 4 - (1 << 63), 4 * BLOCK - (1 << 63)]
        )
        x, x_first, x_end = _tensor(random_, begin)
        y, y_first, y_end = _tensor(random_, 4 * program * BLOCK)
        inside = _lies_inside(
            x, [program * stride + at for at in range(BLOCK)], x_first, x_end
        ) and _lies_inside(y, [program * BLOCK + at for at in range(BLOCK)], y_first, y_end)
        parameters = {"%arg0": x, "%arg1": y, "%arg2": stride, "%arg3": 0, "ctaid.x": program}
        ends = _passed(5, x_first, x_end, x) | _passed(8, y_first, y_end, y)
        found = _holds(_retyped_rows, parameters | ends)
        assert found == inside, (program, parameters, ends)
        seen.add(found)
    assert seen == {False, True}


@pytest.mark.parametrize("factor", [3, 1000, 1 << 10, -1, -3, -(1 << 31)])
def test_a_product_with_a_constant_is_tested_for_wrapping(factor):
    x, options = torch.zeros(4, dtype=torch.int32), CheckOptions(frozenset({"offset-overflow"}))
    run = launches(lambda: scaled[(1,)](x, 0, C=factor))[-1]
    native = NativeOptions(checks=options)
    text = lower_to_llvm(copy_of(run), native, TARGETS["sm_90a"]).llvm_ir
    (wrapped,) = re.findall(r"select i1 (%v\d+), i32 \d+, i32 0", text)
    most = (1 << 31) // abs(factor)
    numbers = [sign * number for number in range(most - 2, most + 3) for sign in (-1, 1)]
    for number in filter(lambda one: one == signed(one, 32), (0, *numbers)):
        found = bool(scalars(text, {"%arg1": number})[wrapped])
        assert found == (number * factor != signed(number * factor, 32)), number
