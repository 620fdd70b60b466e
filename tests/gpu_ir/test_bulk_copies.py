# ruff: noqa: E501  IR lines are long.
"""Bulk copies and mbarriers: what the interpreter runs, where barriers go, what shares bytes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from gpu_ir_support import after, kernel

import tkdebug
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes.gpu.allocate_shared import AllocateShared
from tkdebug.compiler.passes.gpu.insert_barriers import InsertBarriers
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes
from tkdebug.compiler.verifier import verify
from tkdebug.errors import IRError, LaunchError
from tkdebug.interpreter.launch import run_module

DESC = "!tt.tensordesc<tensor<8x16xf32>>"
BUFFER = "!ttg.memdesc<8x16xf32, #block, mutable>"
WORDS, WORD = "!ttg.memdesc<2x1xi64, #word, mutable>", "!ttg.memdesc<1xi64, #word, mutable>"
TILE = "tensor<8x16xf32, #rows16>"
ALIASES = """
#block = #ttg.shared_linear<{offset = [[0, 1], [0, 2], [0, 4], [0, 8], [1, 0], [2, 0], [4, 0]]}>
#word = #ttg.shared_linear<{offset = [], outs = {dim0 = 1}}>
#rows16 = #ttg.linear<{register = [[0, 1], [0, 2]], lane = [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]], warp = [], block = []}>
"""
HEAD = f"""
%zero = arith.constant 0 : i32
%one = arith.constant 1 : i32
%true = arith.constant 1 : i1
%m = ttg.local_alloc : () -> {BUFFER}
%w = ttg.local_alloc : () -> {WORDS}
%b = ttg.memdesc_index %w, %zero : ({WORDS}, i32) -> {WORD}
%c = ttg.memdesc_index %w, %one : ({WORDS}, i32) -> {WORD}
"""
PARAMETERS = (
    f"%x: {DESC}, %xs0: i64, %xs1: i64, %xt0: i64, %xt1: i64, "
    f"%y: {DESC}, %ys0: i64, %ys1: i64, %yt0: i64, %yt1: i64, %n: i32, %go: i1"
)
OPS = {
    "init": f"ttng.init_barrier {{0}} {{{{count = 1}}}} : {WORD}",
    "inval": f"ttng.inval_barrier {{0}} : {WORD}",
    "expect": f"ttng.barrier_expect {{0}}, {{1}} {{{{size_bytes = {{2}}}}}} : {WORD}, i1",
    "copy": f"ttng.async_tma_copy_global_to_local %x, %m, {{0}}, {{1}}, %n, %zero : {DESC}, {BUFFER}, {WORD}, i1, i32, i32",
    "wait": f"ttng.wait_barrier {{0}}, {{1}} : {WORD}, i32",
    "load": f"%v = ttg.local_load %m : {BUFFER} -> {TILE}",
    "fill": f"ttg.local_store %v, %m : {TILE}, {BUFFER}",
    "store": f"ttng.async_tma_copy_local_to_global %y, %m, %zero, %zero : {DESC}, {BUFFER}, i32, i32",
    "stored": "ttng.async_tma_store_wait {{pendings = {0}}}",
    "fence": "ttng.fence_async_shared",
    "barrier": "gpu.barrier",
}
NAMES = {text.split()[-1 if text.startswith("%v") else 0]: word for word, text in OPS.items()}
NAMES["ttg.local_load"] = "load"
BRING = "init %b\nexpect %b %true 512\ncopy %b %true\nwait %b %zero"


def module_of(lines: str):
    body = []
    for line in lines.strip().splitlines():
        word, *arguments = line.split()
        body.append(OPS[word].format(*arguments) if word in OPS else line)
    text = print_module(kernel("", "")).splitlines()[0]
    text = (
        f"{ALIASES}tt.func @k({PARAMETERS}) attributes {{num_warps = 1, arg_names = ["
        + ", ".join(f'"{p.split(":")[0].strip()[1:]}"' for p in PARAMETERS.split(", "))
        + f"]}} {{\n{HEAD}\n" + "\n".join(body) + "\ntt.return\n}"
    )  # fmt: skip
    module = parse_module(text)
    verify(module)
    return module


def run(lines: str, n: int = 0, go: int = 1, grid=(1, 1, 1)) -> torch.Tensor:
    x, y = torch.arange(320.0).view(20, 16), torch.full((8, 16), -1.0)
    described = [tkdebug.TensorDescriptor.from_tensor(t, [8, 16]) for t in (x, y)]
    values = [v for d in described for v in (d, *d.shape, *d.strides)]
    assert run_module(module_of(lines), [*values, n, go], grid) == []
    return y


STORE = "store\nstored 0"


def test_copied_block_is_there_after_the_wait() -> None:
    y = run(f"{BRING}\n{STORE}", n=3)
    assert torch.equal(y, torch.arange(48.0, 48.0 + 128).view(8, 16))


def test_block_that_reaches_outside_is_padded() -> None:
    y = run(f"{BRING}\n{STORE}", n=15)
    assert torch.equal(y[:5], torch.arange(240.0, 320.0).view(5, 16))
    assert not y[5:].any()


def test_buffer_is_poison_before_the_wait() -> None:
    early = "init %b\nexpect %b %true 512\ncopy %b %true\nload\nwait %b %zero\nfill\n" + STORE
    assert run(early).isnan().all()


def test_wait_at_another_barrier_lands_nothing() -> None:
    lines = (
        "init %b\ninit %c\nexpect %b %true 512\ncopy %b %true\nexpect %c %true 512\ncopy %c %true\n"
        "wait %c %zero\nload\nwait %b %zero\nfill\n"
    )
    # What %c brings is in place; nothing of %b's is any more, whose target is the same.
    assert torch.equal(run(lines + STORE), torch.arange(128.0).view(8, 16))


def test_predicate_that_does_not_hold_starts_nothing() -> None:
    lines = "init %b\nexpect %b %go 512\ncopy %b %go\n" + STORE
    assert run(lines, go=0).isnan().all()
    with pytest.raises(LaunchError, match="never ends"):
        run("init %b\nexpect %b %go 512\ncopy %b %go\nwait %b %zero", go=0)


@pytest.mark.parametrize(
    "lines",
    [
        "init %b\nwait %b %zero",
        "init %b\nexpect %b %true 500\ncopy %b %true\nwait %b %zero",
        "init %b\ncopy %b %true\nwait %b %zero",
        f"{BRING}\nwait %b %one",
    ],
)
def test_wait_for_a_phase_that_never_ends_is_an_error(lines: str) -> None:
    with pytest.raises(LaunchError, match=r"ttng\.wait_barrier #\d+: the phase it waits for never"):
        run(lines)


def test_phases_alternate() -> None:
    again = "expect %b %true 512\ncopy %b %true\nwait %b %one\nexpect %b %true 512\ncopy %b %true\nwait %b %zero\n"
    assert torch.equal(run(f"{BRING}\n{again}{STORE}"), torch.arange(128.0).view(8, 16))


@pytest.mark.parametrize("lines", ["wait %b %zero", "init %b\ninval %b\nexpect %b %true 4"])
def test_buffer_without_an_mbarrier_is_an_error(lines: str) -> None:
    with pytest.raises(LaunchError, match="holds no mbarrier"):
        run(lines)


def test_store_is_made_at_its_wait() -> None:
    assert (run(f"{BRING}\nstore") == -1).all()
    assert (run(f"{BRING}\nstore\nstored 1") == -1).all()


def test_buffer_that_changes_while_it_is_stored_is_stored_as_poison() -> None:
    lines = f"{BRING}\nload\n%u = arith.addf %v, %v : {TILE}\nstore\nttg.local_store %u, %m : {TILE}, {BUFFER}\nstored 0"
    y = run(lines)
    # Twice zero is zero.
    assert y.isnan().sum() == 127


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("init %b", f"ttng.init_barrier %b {{count = 0}} : {WORD}", "count is 0"),
        ("init %b", f"ttng.init_barrier %m {{count = 1}} : {BUFFER}", "expected an mbarrier"),
        ("wait %b %zero", f"ttng.wait_barrier %b, %true : {WORD}, i1", "phase: got i1, expected i32"),
        ("expect %b %true 512", f"ttng.barrier_expect %b, %true {{size_bytes = 0}} : {WORD}, i1", "size_bytes is 0"),
        ("copy %b %true", f"ttng.async_tma_copy_global_to_local %x, %m, %b, %true, %n : {DESC}, {BUFFER}, {WORD}, i1, i32", "2 coordinates"),
    ],
)  # fmt: skip
def test_malformed_ops_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(IRError, match=message):
        module_of(BRING.replace(old, new))


# Barriers and places


@dataclass(frozen=True)
class _Case:
    lines: str
    wanted: str


def order(lines: str) -> str:
    module = module_of(lines)
    text = after(module, AllocateShared(scratch_bytes), InsertBarriers(scratch_bytes))
    assert print_module(parse_module(text)) == text
    found = [op.name for op in module.walk()]
    return " ".join(NAMES[name] for name in found if name in NAMES)


@pytest.mark.parametrize(
    "case",
    [
        # Others wait at the word, and the thread that made it may go on without them.
        _Case(f"{BRING}\nload", "init barrier expect copy wait load"),
        # Nobody waits at a word that has become something else.
        _Case(f"{BRING}\ninval %b", "init barrier expect copy wait barrier inval"),
        # What was read is overwritten only after all have read it.
        _Case(
            f"{BRING}\nload\nexpect %b %true 512\ncopy %b %true\nwait %b %one",
            "init barrier expect copy wait load expect barrier copy wait",
        ),
        # A copy to memory reads what threads stored, and they store again once it has read.
        _Case(
            f"{BRING}\nload\nfill\nfence\nstore\nstored 0\nfill",
            "init barrier expect copy wait load barrier fill fence barrier store stored barrier fill",
        ),
        # A wait that leaves a copy under way does not end its reading.
        _Case(
            f"{BRING}\nload\nbarrier\nstore\nstored 1\nbarrier\nfill",
            "init barrier expect copy wait load barrier store stored barrier fill",
        ),
    ],
)
def test_barriers_stand_where_threads_and_copies_meet(case: _Case) -> None:
    assert order(case.lines) == case.wanted


def test_buffer_lives_until_the_copy_to_memory_has_read_it() -> None:
    other = f"%o = ttg.local_alloc : () -> {BUFFER}\nttg.local_store %v, %o : {TILE}, {BUFFER}\n"
    for lines, apart in (
        (f"{BRING}\nload\nstore\n{other}stored 0", True),
        (f"{BRING}\nload\nstore\nstored 0\n{other}", False),
    ):
        module = module_of(lines)
        after(module, AllocateShared(scratch_bytes))
        offsets = [
            op.attributes["offset"]
            for op in module.walk()
            if op.name == "ttg.local_alloc" and "8x16" in str(op.result.type)
        ]
        assert (offsets[0] != offsets[1]) is apart
        assert all(isinstance(offset, int) and offset % 1024 == 0 for offset in offsets[:1])
