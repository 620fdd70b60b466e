"""The second way of guarded accesses: what a thread accesses, by where its tensor begins and ends.

The inline PTX is run as text for one thread, so no GPU is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from check_support import copy_of, for_ends, launches
from guarded_text import Thread, guarded_texts, report_texts
from machine_launches import by_ptx
from native_check_kernels import add, matmul

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.sites.checks import BOUNDS_KINDS, CheckOptions
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.compile import lower_to_llvm

BASE = 4096
_NEAR = re.compile(r"(?:@(\S+) )?(?:ld|st|cp\.async)\S* (.*);")


@tkdebug.jit
def moved(x, place, out, B: tl.constexpr):
    at = tl.multiple_of(tl.load(place), 16) + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at))


@tkdebug.jit
def gathered(x, place, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    there = tl.load(place + at)
    tl.store(out + at, tl.load(x + there, mask=at < n))


def _gathered() -> object:
    x = torch.zeros(1024)
    return gathered[(1,)](x, torch.zeros(1024, dtype=torch.int32), x, 1000, B=1024)


def _moved() -> object:
    x = torch.zeros(1024)
    return moved[(1,)](x, torch.zeros(1, dtype=torch.int32), x, B=1024)


@tkdebug.jit
def add_beside_loop(x, y, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    mask = at < n
    total = tl.load(x + at, mask=mask, other=0) + tl.load(y + at, mask=mask, other=0)
    count = 0
    for i in range(n):
        count ^= i
    tl.store(out + at, total + count.to(total.dtype), mask=mask)


def _added(dtype: torch.dtype, block: int = 1024) -> Callable[[], object]:
    x = torch.zeros(block, dtype=dtype)
    kernel = add if block == 1024 else add_beside_loop
    return lambda: kernel[(1,)](x, x, x, block, B=block)


def _multiplied(rows: int) -> object:
    a, b = torch.randn(rows, 96).half(), torch.randn(96, 32).half()
    return matmul[(1,)](a, b, torch.zeros(rows, 32), 96, M=rows, N=32, BK=32)


def memory(address: int) -> int:
    return address * 7 + address // 256 & 0xFF


class Access:
    """A guarded access of one thread.

    Attributes:
        groups: of each instruction the pointer, an offset, the mask, and what it loads or stores,
            or where it copies to.
        vector_bytes: of an instruction.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        far, _, near = text.partition("NEAR:")
        if not near:
            near, _, far = text.partition("bra.uni DONE;")
        self.is_looped = "NEXT:" in far
        masks = re.findall(r"selp.*, (\$\d+);", near)
        if self.is_looped:
            noted = re.findall(r"@(\S+) or\.b32 on, on, (\d+);", far)
            masks = masks or [mask for mask, bits in noted for _ in range(int(bits).bit_count())]
        elif not masks:
            # In the other way, a group's mask is what several comparisons go by.
            masks = list(dict.fromkeys(re.findall(r"(?:some|q\|b), [^,]*, [^,]*, (\$\d+);", far)))
        near = near.splitlines()
        self.groups: list[tuple[str, int, str | None, list[str]]] = []
        for line in near:
            parsed = _NEAR.fullmatch(line)
            if parsed:
                places = re.findall(r"\[(\$\d+)\+?(-?\d*)\]", parsed[2])
                values = re.search(r"\{(.*)\}", parsed[2])
                names = values[1].split(", ") if values else [places[0][0]]
                mask = masks[len(self.groups)] if masks else None
                self.groups.append((places[-1][0], int(places[-1][1] or 0), mask, names))
        suffix = re.search(r"(?:ld|st)\.\S*?(?:v(\d))?\.b(\d+) ", "\n".join(near))
        self.vector_bytes = int(suffix[1] or 1) * int(suffix[2]) // 8 if suffix else 16
        (first,) = {*re.findall(r"sub\.s64 (?:base|o), \S+, (\S+);", text)}
        (end,) = {*re.findall(r"sub\.s64 (?:size|left), (\S+), \S+;", text)}
        self.ends = end, first

    def run(self, begins: int, size: int, masked_off: int) -> Thread:
        """With a tensor that begins so far behind `BASE` and has so many bytes."""
        end, first = self.ends
        registers = {first: BASE + begins, end: BASE + begins + size}
        for number, (pointer, _, mask, names) in enumerate(self.groups):
            registers.setdefault(pointer, BASE + 64 * number)
            if mask is not None:
                registers[mask] = int(number != masked_off)
            for word, name in enumerate(names):
                is_place = len(names) == 1
                registers[name] = number + 1 << 20 if is_place else 0x1020304 * (word + 1) + number
        for name in re.findall(r"\$\d+", self.text):
            registers.setdefault(name, 0)
        thread = Thread(registers, memory)
        thread.run_far(self.text)
        return thread

    def runs(
        self, element_bytes: int, knows_ends: bool = False
    ) -> Iterator[tuple[str, Thread, list[range], list[list[int]]]]:
        """Tensors of many sizes: which, the thread, its bytes by group, and the good ones."""
        vector = 16 if knows_ends else self.vector_bytes
        step = vector if knows_ends else element_bytes
        for begins in (0, vector, 2048 + vector, -1 << 40):
            for size in (*range(0, 3 * vector, step), 2048, 2048 + step, 1 << 20, 1 << 40):
                for masked_off in (-1, 0):
                    thread = self.run(begins, size, masked_off)
                    groups = list(self._places(thread))
                    inside = range(BASE + begins, BASE + begins + size)
                    good = [[at for at in group if at in inside] for group in groups]
                    yield f"{begins} {size} {masked_off}", thread, groups, good

    def _places(self, thread: Thread) -> Iterator[range]:
        for pointer, offset, mask, _ in self.groups:
            at = thread.registers[pointer] + offset
            is_on = mask is None or thread.registers[mask]
            yield range(at, at + self.vector_bytes if is_on else at)


def llvm_ir(run: Callable[[], object], knows_ends: bool = False) -> str:
    launch, checks = launches(run)[-1], CheckOptions(frozenset(BOUNDS_KINDS))
    checks = for_ends(checks, launch) if knows_ends else checks
    return lower_to_llvm(copy_of(launch), NativeOptions(checks=checks), TARGETS["sm_80"]).llvm_ir


def access_of(run: Callable[[], object], number: int, knows_ends: bool = False) -> Access:
    texts = guarded_texts(llvm_ir(run, knows_ends))
    return Access([text for text in texts if "bra.uni DONE" in text][number])


ELEMENTS = [
    (torch.float32, 4, 1024),
    (torch.float16, 2, 1024),
    (torch.int8, 1, 1024),
    # Of more groups, which take turns in a loop; but loads of whole words do not.
    (torch.float32, 4, 2048),
    (torch.float16, 2, 8192),
    (torch.int8, 1, 8192),
]


@pytest.mark.parametrize("knows_ends", [False, True], ids=["any-end", "aligned-end"])
@pytest.mark.parametrize(("dtype", "element_bytes", "block"), ELEMENTS)
def test_loads_read_good_elements_alone(
    dtype: torch.dtype, element_bytes: int, block: int, knows_ends: bool
) -> None:
    access = access_of(_added(dtype, block), 0, knows_ends)
    assert (len(access.groups) >= 4) == (block > 1024)
    assert access.is_looped == (block > 1024 and element_bytes < 4)
    for case, thread, groups, good in access.runs(element_bytes, knows_ends):
        for (_, _, _, names), group, some in zip(access.groups, groups, good, strict=True):
            size = access.vector_bytes // len(names)
            words = b"".join(thread.registers[name].to_bytes(size, "little") for name in names)
            wanted = bytes(memory(at) if at in some else 0 for at in group)
            assert words[: len(wanted)] == wanted, case
        vectors = [group for group, some in zip(groups, good, strict=True) if some]
        assert thread.read == {at for vector in vectors for at in vector}, case
        assert thread.flagged == any(map(_differ, groups, good)), case


@pytest.mark.parametrize("knows_ends", [False, True], ids=["any-end", "aligned-end"])
@pytest.mark.parametrize(("dtype", "element_bytes", "block"), ELEMENTS)
def test_stores_write_good_elements_alone(
    dtype: torch.dtype, element_bytes: int, block: int, knows_ends: bool
) -> None:
    access = access_of(_added(dtype, block), 2, knows_ends)
    assert access.is_looped == (block > 1024)
    for case, thread, groups, good in access.runs(element_bytes, knows_ends):
        assert set(thread.written) == {at for some in good for at in some}, case
        assert thread.flagged == any(map(_differ, groups, good)), case
        for (_, _, _, names), group in zip(access.groups, groups, strict=True):
            size = access.vector_bytes // len(names)
            stored = b"".join(thread.registers[name].to_bytes(size, "little") for name in names)
            for at, byte in zip(group, stored, strict=False):
                assert thread.written.get(at, byte) == byte, case


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_text_is_shorter_where_no_vector_crosses_an_end(dtype: torch.dtype) -> None:
    for number in (0, 2):
        short, text = (
            access_of(_added(dtype), number, knows_ends).text.splitlines()
            for knows_ends in (True, False)
        )
        assert len(short) < 0.8 * len(text)


@tkdebug.jit
def before_the_tensor(x, out, B: tl.constexpr):
    at = tl.arange(0, B)
    # True where x is one element behind a multiple of 16.
    tl.store(out + at, tl.load(tl.multiple_of(x - 1, 16) + at))


def test_tensor_that_begins_in_a_vector_has_elements_before_it() -> None:
    x = torch.zeros(1040, dtype=torch.float16)[1:]
    launch = launches(lambda: before_the_tensor[(1,)](x, torch.zeros_like(x), B=1024))[-1]
    faults, _ = by_ptx(launch, CheckOptions(frozenset(BOUNDS_KINDS)))
    assert [fault.kind for fault in faults] == ["oob-load"]


def test_kernels_without_loops_get_none() -> None:
    x = torch.zeros(8192)
    texts = guarded_texts(llvm_ir(lambda: add[(1,)](x, x, x, 8192, B=8192)))
    assert "bra.uni DONE" in texts[0]
    assert not any("NEXT:" in text for text in texts)


def test_stores_of_64_bits_in_a_loop_write_good_elements_alone() -> None:
    assert not access_of(_added(torch.float64, 2048), 0).is_looped
    access = access_of(_added(torch.float64, 2048), 2)
    assert access.is_looped
    for case, thread, _, good in access.runs(8):
        assert set(thread.written) == {at for some in good for at in some}, case


@pytest.mark.parametrize("knows_ends", [False, True], ids=["any-end", "aligned-end"])
@pytest.mark.parametrize("rows", [64, 128])
def test_copies_read_good_elements_alone(rows: int, knows_ends: bool) -> None:
    access = access_of(partial(_multiplied, rows), 0, knows_ends)
    assert access.is_looped == (rows == 128)
    for case, thread, groups, good in access.runs(2, knows_ends):
        assert thread.read == {at for some in good for at in some}, case
        assert thread.flagged == any(map(_differ, groups, good)), case


@pytest.mark.parametrize("knows_ends", [False, True], ids=["any-end", "aligned-end"])
@pytest.mark.parametrize("number", [1, 2], ids=["load", "store"])
def test_bad_elements_that_are_reported_have_a_bit_each(number: int, knows_ends: bool) -> None:
    access = access_of(_moved, number, knows_ends)
    words = set(re.findall(r"@b or\.b32 (\S+),", access.text))
    assert len(access.groups) > 1
    for case, thread, groups, good in access.runs(4, knows_ends):
        bits = sum(thread.registers[word].bit_count() for word in words)
        bad = sum(len(group) - len(some) for group, some in zip(groups, good, strict=True))
        assert bits == bad // 4, case


@pytest.mark.parametrize(("run", "group"), [(_gathered, 1), (_moved, 4)])
def test_a_report_names_the_least_bad_element(run: Callable[[], object], group: int) -> None:
    texts = report_texts(llvm_ir(run))
    assert len(texts) == (1 if group == 1 else 2)
    for text in texts:
        moved = re.findall(r"add\.s64 moved\d+, (\$\d+), 0;", text)
        bases = moved or re.findall(r"add\.s64 address, address, (\$\d+);", text)
        assert len(bases) == (8 if group == 1 else 1)
        left_out = re.findall(r"selp\.b32 t, 0, (\d+), (\$\d+);", text)
        assert sum(int(count) for count, _ in left_out) in (0, 8)
        assert ("barrier." in text) == (group > 1)
        for bits in (
            (1, 2, 0x10, 0x80, 0xC0, 0xA4, 0xFF) if group == 1 else (0, 1, 0x10, 0xA4, 0xFF)
        ):
            thread = Thread({name: 0 for name in re.findall(r"\$\d+", text)}, memory)
            thread.registers |= {name: at + 1 << 40 for at, name in enumerate(bases)}
            thread.registers |= {"$0": bits, left_out[0][1]: 1} if left_out else {"$0": bits}
            thread.run(text.splitlines())
            found = thread.registers
            assert found["found"] == bits.bit_count()
            if not bits:
                assert found["place"] == (1 << 32) - 1
                continue
            first = (bits & -bits).bit_length() - 1
            assert found["place"] == (first & 3 | (first & 4) << 7)
            beyond = 0 if group == 1 else (first & 3) * 4 + (first & 4) * 512
            assert found["address"] == (first + 1 << 40 if group == 1 else 1 << 40) + beyond
            assert found["left_out"] == sum(int(count) for count, _ in left_out[1:])


def _differ(group: range, good: list[int]) -> bool:
    return len(good) < len(group)
