# ruff: noqa: E501  IR lines are long.
"""`AllocateShared`: what shares bytes, what does not, and where it lies."""

from __future__ import annotations

import pytest
from buffer_shorthand import PARAMETERS, body
from gpu_ir_support import after, kernel, may_alias

from tkdebug.compiler.analysis.aliasing import buffer_aliases
from tkdebug.compiler.ir import Module
from tkdebug.compiler.passes.gpu.allocate_shared import AllocateShared
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes


def allocate(lines: str) -> tuple[dict[str, int], Module]:
    """Offset of each buffer by its name; all take 128 bytes a piece."""
    module = kernel(PARAMETERS, body(lines))
    after(module, AllocateShared(scratch_bytes))
    offsets = {}
    for op in module.walk():
        if op.name == "ttg.local_alloc":
            offset = op.attributes["offset"]
            assert isinstance(offset, int)
            assert op.result.name is not None
            offsets[op.result.name] = offset
    return offsets, module


def test_dead_buffer_gives_its_bytes_away() -> None:
    offsets, module = allocate("alloc %a\nstore %a\nload %a\nalloc %b\nstore %b\nload %b")
    assert offsets == {"a": 0, "b": 0}
    assert module.function.attributes["shared_bytes"] == 128


def test_live_buffers_lie_apart() -> None:
    offsets, module = allocate("alloc %a\nalloc %b\nstore %a\nstore %b\nload %a\nload %b")
    assert offsets == {"a": 0, "b": 128}
    assert module.function.attributes["shared_bytes"] == 256


def test_buffer_from_before_a_loop_lives_through_all_of_it() -> None:
    offsets, _ = allocate("alloc %a\nstore %a\nloop\nload %a\nalloc %b\nstore %b\nload %b\nend")
    assert offsets == {"a": 0, "b": 128}


def test_buffer_of_an_iteration_shares_with_the_next_of_it() -> None:
    offsets, _ = allocate("loop\nalloc %a\nstore %a\nload %a\nalloc %b\nstore %b\nload %b\nend")
    assert offsets == {"a": 0, "b": 0}


def test_branches_share() -> None:
    lines = "then\nalloc %a\nstore %a\nload %a\nelse\nalloc %b\nstore %b\nload %b\nend"
    assert allocate(lines)[0] == {"a": 0, "b": 0}


def test_copied_to_buffer_lives_until_the_wait_that_covers_it() -> None:
    rest = "\nalloc %b\nstore %b\nload %b\n"
    assert allocate("alloc %a\ncopy %a\ncommit\nwait 0" + rest)[0] == {"a": 0, "b": 0}
    assert allocate("alloc %a\ncopy %a\ncommit\nwait 1" + rest)[0] == {"a": 0, "b": 128}
    assert allocate("alloc %a\ncopy %a\ncommit" + rest + "wait 0")[0] == {"a": 0, "b": 128}


def test_copy_of_one_iteration_may_land_in_the_next() -> None:
    lines = "alloc %a\nload %a\nloop\nalloc %b\nstore %b\nload %b\ncopy %a\ncommit\nend\nwait 0"
    assert allocate(lines)[0] == {"a": 0, "b": 128}


def test_buffer_swapped_by_a_loop_lives_as_long_as_the_other() -> None:
    lines = """
    alloc %a
    alloc %b
    store %a
    store %b
    %l, %m = scf.for %k = %zero to %n step %one iter_args(%x = %a, %y = %b) -> (BUF, BUF) : i32 {
    load %x
    alloc %d
    store %d
    load %d
    scf.yield %y, %x : BUF, BUF
    }
    """.replace("BUF", "!ttg.memdesc<32xf32, #shared, mutable>")
    text = "\n".join(line.strip() for line in lines.strip().splitlines())
    offsets, module = allocate(text)
    assert offsets == {"a": 0, "b": 128, "d": 256}
    aliases = buffer_aliases(module.function)
    loop = next(op for op in module.walk() if op.name == "scf.for")
    for value in (*loop.regions[0].block.arguments[1:], *loop.results):
        assert {owner.result.name for owner in aliases.owners(value)} == {"a", "b"}


def test_larger_buffers_come_first_and_small_ones_fill_gaps() -> None:
    lines = "alloc %a\nring %r\nindex %f %r %zero\nstore %a\nstore %f\nload %f\nload %a"
    assert allocate(lines)[0] == {"a": 384, "r": 0}


@pytest.mark.parametrize(("alignment", "offset"), [(16, 128), (256, 256)])
def test_alignment_is_kept(alignment: int, offset: int) -> None:
    aligned = f"%b = ttg.local_alloc {{alignment = {alignment}}} : () -> !ttg.memdesc<32xf32, #shared, mutable>"
    lines = f"alloc %a\n{aligned}\nstore %a\nstore %b\nload %a\nload %b"
    assert allocate(lines)[0] == {"a": 0, "b": offset}


def test_constant_indices_of_several_buffers_are_distinguished() -> None:
    _, module = allocate("ring %r\nindex %a %r %zero\nindex %b %r %one\nindex %d %r %i")
    aliases = buffer_aliases(module.function)
    a, b, d = (op.result for op in module.walk() if op.name == "ttg.memdesc_index")
    assert not may_alias(aliases, a, b)
    assert may_alias(aliases, a, d)
    assert may_alias(aliases, a, a)
