# ruff: noqa: E501  IR lines are long.
"""`InsertBarriers`: where warps wait for each other, and where not."""

from __future__ import annotations

import pytest
from buffer_shorthand import PARAMETERS, body
from gpu_ir_support import after, kernel

from tkdebug.compiler.passes.gpu.allocate_shared import AllocateShared
from tkdebug.compiler.passes.gpu.insert_barriers import InsertBarriers
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes

_SHORT = {
    "alloc": "ttg.local_alloc",
    "barrier": "gpu.barrier",
    "store": "ttg.local_store",
    "load": "ttg.local_load",
    "copy": "ttg.async_copy_global_to_local",
    "commit": "ttg.async_commit_group",
    "wait": "ttg.async_wait",
    "convert": "ttg.convert_layout",
    "for": "scf.for",
    "if": "scf.if",
}
NAMES = {name: short for short, name in _SHORT.items()}


def order(lines: str, *, allocated: bool = True) -> str:
    """The ops on shared memory in the order in which they stand after the pass, in short."""
    passes = (
        (AllocateShared(scratch_bytes), InsertBarriers(scratch_bytes))
        if allocated
        else (InsertBarriers(scratch_bytes),)
    )
    module = kernel(PARAMETERS, body(lines))
    after(module, *passes)
    found = [op.name for op in module.walk()]
    return " ".join(NAMES[name] for name in found if name in NAMES and name != "ttg.local_alloc")


def test_read_after_write_waits_once() -> None:
    got = order("alloc %a\nstore %a\nload %a\nload %a")
    assert got == "store barrier load load"


def test_write_after_read_and_write_after_write_wait() -> None:
    got = order("alloc %a\nstore %a\nstore %a\nload %a\nstore %a")
    assert got == "store barrier store barrier load barrier store"


def test_buffers_apart_do_not_wait() -> None:
    assert order("alloc %a\nalloc %b\nstore %a\nstore %b\nbarrier\nload %a\nload %b") == (
        "store store barrier load load"
    )


def test_buffers_that_share_bytes_wait() -> None:
    """%b takes the bytes of %a, which is dead."""
    lines = "alloc %a\nstore %a\nbarrier\nload %a\nalloc %b\nstore %b"
    assert order(lines) == "store barrier load barrier store"
    assert order(lines, allocated=False) == "store barrier load store"


def test_barrier_that_is_there_is_enough() -> None:
    assert order("alloc %a\nstore %a\nbarrier\nload %a") == "store barrier load"


def test_loop_waits_for_the_iteration_before() -> None:
    got = order("alloc %a\nloop\nstore %a\nload %a\nend")
    assert got == "for barrier store barrier load"


def test_hazard_before_a_loop_is_met_inside() -> None:
    got = order("alloc %a\nstore %a\nloop\nload %a\nend")
    assert got == "store for barrier load"


def test_hazard_of_a_loop_is_met_after_it() -> None:
    got = order("alloc %a\nloop\nload %a\nend\nstore %a")
    assert got == "for load barrier store"


def test_each_branch_waits_for_itself() -> None:
    got = order("alloc %a\nstore %a\nthen\nload %a\nelse\nend\nload %a")
    assert got == "store if barrier load barrier load"


def test_hazard_of_one_branch_is_met_after_both() -> None:
    got = order("alloc %a\nthen\nstore %a\nelse\nend\nload %a")
    assert got == "if store barrier load"


def test_async_copy_writes_at_its_wait() -> None:
    got = order("alloc %a\ncopy %a\ncommit\nbarrier\nwait 0\nload %a")
    assert got == "copy commit barrier wait barrier load"


def test_wait_that_covers_no_copy_writes_nothing() -> None:
    lines = (
        "alloc %a\nalloc %b\nstore %b\ncopy %a\ncommit\nbarrier\nwait 1\nload %b\nwait 0\nload %a"
    )
    assert order(lines) == "store copy commit barrier wait load wait barrier load"


def test_async_copy_waits_for_what_it_overwrites() -> None:
    got = order("alloc %a\nstore %a\nbarrier\nload %a\ncopy %a\ncommit\nwait 0")
    assert got == "store barrier load barrier copy commit wait"


RINGS = {
    "remainders": (
        "scf.for %k = %zero to %n step %one : i32 {",
        """
        %read = arith.remsi %k, %three : i32
        %ahead = arith.addi %k, %two : i32
        %fill = arith.remsi %ahead, %three : i32
        """,
        "scf.yield\n}",
    ),
    "carried": (
        "%s:2 = scf.for".replace("%s:2", "%s, %u")
        + " %k = %zero to %n step %one iter_args(%read = %zero, %fill = %two) -> (i32, i32) : i32 {",
        """
        %read1 = arith.addi %read, %one : i32
        %is_in = arith.cmpi %read1, %three {predicate = "slt"} : (i32, i32) -> i1
        %read2 = arith.select %is_in, %read1, %zero : (i1, i32, i32) -> i32
        %fill1 = arith.addi %fill, %one : i32
        %is_out = arith.cmpi %fill1, %three {predicate = "eq"} : (i32, i32) -> i1
        %fill2 = arith.select %is_out, %zero, %fill1 : (i1, i32, i32) -> i32
        """,
        "scf.yield %read2, %fill2 : i32, i32\n}",
    ),
}


@pytest.mark.parametrize("form", RINGS)
def test_pipelined_loop_has_one_barrier_an_iteration(form: str) -> None:
    head, steps, end = RINGS[form]
    prologue = """
    ring %ring
    index %b0 %ring %zero
    index %b1 %ring %one
    copy %b0
    commit
    copy %b1
    commit
    """
    inside = """
    index %from %ring %read
    index %to %ring %fill
    wait 1
    load %from
    copy %to
    commit
    """
    lines = [line.strip() for line in prologue.strip().splitlines()]
    lines += [head, *steps.strip().splitlines()]
    lines += [line.strip() for line in inside.strip().splitlines()]
    lines += end.splitlines()
    assert order("\n".join(lines)) == ("copy commit copy commit for wait barrier load copy commit")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("wait 1\nload %from\ncopy %to\ncommit", "for wait barrier load copy commit"),
        ("wait 0\nload %from\ncopy %to\ncommit", "for wait load barrier copy commit"),
        ("copy %to\ncommit\nwait 2\nload %from", "for barrier copy commit wait barrier load"),
        ("store %to\nload %from", "for barrier store load"),
    ],
)
def test_ring_meets_itself_in_a_later_iteration(steps: str, expected: str) -> None:
    lines = ["ring %ring", RINGS["remainders"][0], *RINGS["remainders"][1].strip().splitlines()]
    lines += ["index %from %ring %read", "index %to %ring %fill", *steps.splitlines(), "end"]
    assert order("\n".join(lines)) == expected


def test_ring_that_fills_what_was_just_read_waits_in_between() -> None:
    """The load needs no barrier of its own: its copy landed two iterations before."""
    lines = """
    ring %ring
    scf.for %k = %zero to %n step %one : i32 {
    %read = arith.remsi %k, %three : i32
    index %from %ring %read
    wait 1
    load %from
    copy %from
    commit
    end
    """
    got = order("\n".join(line.strip() for line in lines.strip().splitlines()))
    assert got == "for wait load barrier copy commit"


def test_op_with_scratch_waits_for_the_one_before() -> None:
    """Both conversions cross warps and share bytes; each has a barrier of its own inside."""
    from tkdebug.compiler.ir.parser import parse_module
    from tkdebug.compiler.passes import PassManager

    text = """
    #a = #ttg.linear<{register = [[1]], lane = [[2], [4], [8], [16], [32]], warp = [[64]], block = []}>
    #b = #ttg.linear<{register = [[64]], lane = [[2], [4], [8], [16], [32]], warp = [[1]], block = []}>
    tt.func @k(%x: f32) attributes {num_warps = 2} {
      %v = tt.splat %x : f32 -> tensor<128xf32, #a>
      %w = ttg.convert_layout %v : tensor<128xf32, #a> -> tensor<128xf32, #b>
      %u = ttg.convert_layout %w : tensor<128xf32, #b> -> tensor<128xf32, #a>
      tt.print %u : tensor<128xf32, #a>
      tt.return
    }
    """
    module = parse_module(text)
    PassManager(
        (AllocateShared(scratch_bytes), InsertBarriers(scratch_bytes)),
        verify_each=True,
        print_after=(),
    ).run(module)
    names = [NAMES[op.name] for op in module.walk() if op.name in NAMES]
    assert names == ["convert", "barrier", "convert"]
    offsets = [op.attributes.get("scratch_offset") for op in module.walk() if "convert" in op.name]
    assert offsets == [0, 0]
    assert module.function.attributes["shared_bytes"] == 512


def test_buffers_of_a_ring_named_by_constants_do_not_wait() -> None:
    lines = "ring %r\nindex %a %r %zero\nindex %b %r %one\nstore %a\nload %b\nload %a"
    assert order(lines) == "store load barrier load"


def test_wait_covers_what_came_by_the_longer_path() -> None:
    """On one path a group came after the copy's, so that the wait may cover it."""
    lines = "alloc %a\ncopy %a\ncommit\nbarrier\nthen\ncommit\nelse\nend\nwait 1\nload %a"
    assert order(lines) == "copy commit barrier if commit wait barrier load"


def test_while_loop_waits_for_the_iteration_before() -> None:
    lines = """
    alloc %a
    %w = scf.while (%s = %n) : (i32) -> (i32) {
    store %a
    scf.condition(%c) %s : i32
    } do {
    ^bb0(%t: i32):
    load %a
    scf.yield %t : i32
    }
    load %a
    """
    text = "\n".join(line.strip() for line in lines.strip().splitlines())
    assert order(text) == "barrier store barrier load barrier load"
