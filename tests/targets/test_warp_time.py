"""`WarpTime`: what waiting for memory, loops and warps cost by the model; the cubin it picks."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tkdebug.compiler.targets.nvptx.codegen import ptx_stage, ptxas
from tkdebug.compiler.targets.nvptx.codegen.ptx_stage import WarpTime
from tkdebug.compiler.targets.nvptx.codegen.wire import StageError
from tkdebug.linemap.nvidia.elf_sections import SectionsError

LOAD, ADD, BRANCH = 0x981, 0x221, 0x947
NONE = 7
OPTIONS = ["-arch=sm_90a", "-O3", "-verbose"]


def instruction(opcode: int, barrier: int = NONE, waits_for: int = 0, back: int = 0) -> bytes:
    """One that issues in a cycle; `waits_for` is a mask, `back` the instructions to jump over."""
    low, high = opcode, 1 << 41 | barrier << 46 | NONE << 49 | waits_for << 52
    if back:
        distance = (-16 * (back + 1)) & ((1 << 58) - 1)
        low |= (distance >> 2 & 0xFF) << 16 | (distance >> 10 << 34) & ((1 << 64) - 1)
        high |= distance >> 40 & 0x3FFFF
    return struct.pack("<QQ", low, high)


TOGETHER = WarpTime(instruction(LOAD, 0) + instruction(LOAD, 1) + instruction(ADD, NONE, 1 | 2))
APART = WarpTime(
    (instruction(LOAD, 0) + instruction(ADD, NONE, 1)) * 2
)  # fmt: skip


def test_loads_that_are_under_way_together_are_waited_for_once() -> None:
    assert TOGETHER.waits_for_memory == 1
    assert APART.waits_for_memory == 2
    assert 1.9 < APART.cycles / TOGETHER.cycles < 2


def test_loops_run_several_iterations() -> None:
    body = instruction(LOAD, 0) + instruction(ADD, NONE, 1)
    loop = WarpTime(body + instruction(BRANCH, back=2))
    assert loop.issued == 8 * 3
    assert loop.cycles == pytest.approx(8 * (WarpTime(body).cycles + 1))


def test_warps_hide_each_other_s_waits_until_there_is_always_one_that_issues() -> None:
    assert APART.cycles_per_warp(16) == APART.cycles / 16
    many = WarpTime(instruction(ADD) * 400)
    assert many.cycles_per_warp(8) == many.cycles_per_warp(64) == 100


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(SectionsError):
        WarpTime.of(b"made\n")


PTX = b".visible .entry k()\n.reqntid 256\n{ ret; }\n"


@pytest.fixture
def assembled(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The PTX given to a stand-in ptxas, whose cubins use 64 registers, or 80 if allowed."""
    given: list[bytes] = []

    def assemble(
        program: Path, ptx: bytes, options: list[str], timeout_s: float
    ) -> tuple[bytes, str]:
        given.append(ptx)
        wide = b".minnctapersm 1" in ptx
        return b"wide" if wide else b"narrow", f"Used {80 if wide else 64} registers"

    monkeypatch.setattr(ptxas, "find_ptxas", lambda *_: Path("ptxas"))
    monkeypatch.setattr(ptxas, "assemble", assemble)
    return given


def times(monkeypatch: pytest.MonkeyPatch, narrow: WarpTime, wide: WarpTime) -> None:
    of = {b"narrow": narrow, b"wide": wide}.__getitem__
    monkeypatch.setattr(ptx_stage.WarpTime, "of", staticmethod(of))


def test_cubin_with_more_loads_under_way_is_taken(
    assembled: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    times(monkeypatch, APART, TOGETHER)
    assert ptx_stage.assemble(PTX, "k", OPTIONS, 10)[0] == b"wide"
    assert [ptx.count(b"\n") for ptx in assembled] == [3, 3]


def test_blocks_count_where_loads_are_no_more_under_way(
    assembled: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    times(monkeypatch, APART, APART)
    assert ptx_stage.assemble(PTX, "k", OPTIONS, 10)[0] == b"narrow"


@pytest.mark.parametrize(("waits", "chosen"), [(13, b"wide"), (20, b"narrow")])
def test_few_blocks_count_where_many_make_no_difference(
    assembled: list[bytes], monkeypatch: pytest.MonkeyPatch, waits: int, chosen: bytes
) -> None:
    """Two blocks of 512 threads fit by 64 registers, and one by 80."""
    wait = instruction(LOAD, 0) + instruction(ADD, NONE, 1)
    times(monkeypatch, WarpTime(wait * 25), WarpTime(wait * waits))
    many = PTX.replace(b"256", b"512")
    assert ptx_stage.assemble(many, "k", OPTIONS, 10)[0] == chosen


def test_blocks_that_shared_memory_keeps_apart_do_not_count(
    assembled: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four blocks of 256 threads fit by 64 registers, 3 by 80, and 2 by 100 KiB either way."""
    wait = instruction(LOAD, 0) + instruction(ADD, NONE, 1)
    times(monkeypatch, WarpTime(wait * 5), WarpTime(wait * 4))
    assert ptx_stage.assemble(PTX, "k", OPTIONS, 10)[0] == b"narrow"
    assert ptx_stage.assemble(PTX, "k", OPTIONS, 10, 100 << 10)[0] == b"wide"


def test_checked_kernels_are_assembled_once(
    assembled: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    times(monkeypatch, APART, TOGETHER)
    cubin, _ = ptx_stage.assemble(PTX, "k", OPTIONS, 10, is_checked=True)
    assert (cubin, len(assembled)) == (b"narrow", 1)


def test_kernels_that_wait_once_are_assembled_once(
    assembled: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    times(monkeypatch, TOGETHER, TOGETHER)
    assert ptx_stage.assemble(PTX, "k", OPTIONS, 10)[0] == b"narrow"
    assert len(assembled) == 1


@pytest.mark.parametrize("directive", [b" .maxnreg 64", b" .minnctapersm 2"])
def test_registers_that_are_asked_for_stay(
    assembled: list[bytes], monkeypatch: pytest.MonkeyPatch, directive: bytes
) -> None:
    times(monkeypatch, APART, TOGETHER)
    ptx = PTX.replace(b".reqntid 256", b".reqntid 256" + directive)
    assert ptx_stage.assemble(ptx, "k", OPTIONS, 10)[0] == b"narrow"
    assert assembled == [ptx]


# Of 256 threads, 3 blocks fit by 65 to 80 registers, and 4 by 64.
@pytest.mark.parametrize(
    ("registers", "log", "chosen"),
    [
        (72, "Used 64 registers", b"tight"),
        (80, "Used 64 registers", b"wide"),
        (72, "Used 64 registers, 8 bytes spill stores", b"wide"),
        (72, None, b"wide"),
    ],
    ids=["taken", "too much to give up", "spills", "refused"],
)
def test_a_few_registers_are_given_up_for_one_more_block(
    monkeypatch: pytest.MonkeyPatch, registers: int, log: str | None, chosen: bytes
) -> None:
    def assemble(
        program: Path, ptx: bytes, options: list[str], timeout_s: float
    ) -> tuple[bytes, str]:
        if b".minnctapersm 4" not in ptx:
            return b"wide", f"Used {registers} registers"
        if log is None:
            raise StageError("assemble", "Insufficient registers")
        return b"tight", log

    monkeypatch.setattr(ptxas, "find_ptxas", lambda *_: Path("ptxas"))
    monkeypatch.setattr(ptxas, "assemble", assemble)
    of = {b"tight": TOGETHER, b"wide": TOGETHER}.__getitem__
    monkeypatch.setattr(ptx_stage.WarpTime, "of", staticmethod(of))
    assert ptx_stage.assemble(PTX, "k", OPTIONS, 10)[0] == chosen


@pytest.mark.parametrize(
    ("ptx", "log", "chosen", "count"),
    [
        (PTX, "Used 32 registers", b"full", 1),
        (PTX, "Used 32 registers, 8 bytes spill loads", b"plain", 2),
        (PTX, None, b"plain", 2),
        (PTX + b"//" + b"x" * (12 << 10), "Used 32 registers", b"plain", 1),
        (PTX.replace(b"256", b"256 .maxnreg 64"), "Used 32 registers", b"plain", 1),
    ],
    ids=["taken", "spills", "refused", "large", "asked for"],
)
def test_small_checked_kernels_have_every_warp_where_they_do_not_spill(
    monkeypatch: pytest.MonkeyPatch, ptx: bytes, log: str | None, chosen: bytes, count: int
) -> None:
    given: list[bytes] = []

    def assemble(
        program: Path, ptx: bytes, options: list[str], timeout_s: float
    ) -> tuple[bytes, str]:
        given.append(ptx)
        if b".minnctapersm 8" not in ptx:
            return b"plain", "Used 40 registers"
        if log is None:
            raise StageError("assemble", "Insufficient registers")
        return b"full", log

    monkeypatch.setattr(ptxas, "find_ptxas", lambda *_: Path("ptxas"))
    monkeypatch.setattr(ptxas, "assemble", assemble)
    assert ptx_stage.assemble(ptx, "k", OPTIONS, 10, is_checked=True)[0] == chosen
    assert len(given) == count


# Of 256 threads, one block fits by more than 128 registers, and two by 128.
@pytest.mark.parametrize(
    ("registers", "log", "fast", "chosen"),
    [
        (154, "Used 128 registers, 36 bytes spill stores, 36 bytes spill loads", "tight", b"tight"),
        (154, "Used 128 registers, 96 bytes spill stores, 96 bytes spill loads", "tight", b"one"),
        (154, "Used 128 registers", "one", b"one"),
        (200, "Used 128 registers", "tight", b"one"),
        (154, None, "tight", b"one"),
    ],
    ids=["taken", "spills", "slower", "too much to give up", "refused"],
)
def test_large_checked_kernels_may_have_two_blocks(
    monkeypatch: pytest.MonkeyPatch, registers: int, log: str | None, fast: str, chosen: bytes
) -> None:
    def assemble(
        program: Path, ptx: bytes, options: list[str], timeout_s: float
    ) -> tuple[bytes, str]:
        if b".minnctapersm 2" not in ptx:
            return b"one", f"Used {registers} registers"
        if log is None:
            raise StageError("assemble", "Insufficient registers")
        return b"tight", log

    monkeypatch.setattr(ptxas, "find_ptxas", lambda *_: Path("ptxas"))
    monkeypatch.setattr(ptxas, "assemble", assemble)
    of = {name.encode(): TOGETHER if name == fast else APART for name in ("one", "tight")}
    monkeypatch.setattr(ptx_stage.WarpTime, "of", staticmethod(of.__getitem__))
    large = PTX + b"//" + b"x" * (12 << 10)
    lasting = ptx_stage.assemble(large, "k", OPTIONS, 10, is_checked=True, is_lasting=True)
    assert lasting[0] == chosen
    # Launches wait for the build that is there first.
    assert ptx_stage.assemble(large, "k", OPTIONS, 10, is_checked=True)[0] == b"one"
