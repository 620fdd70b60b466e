# ruff: noqa: E501  IR lines are long.
"""Barriers between a program's own accesses to global memory, where other threads make them."""

from __future__ import annotations

import pytest
from gpu_ir_support import after, kernel

from tkdebug.compiler.passes.gpu.insert_barriers import InsertBarriers
from tkdebug.compiler.targets.nvptx.lowering.scratch import scratch_bytes

# 128 elements in 4 warps: one a thread, or four a thread and a copy in every warp.
ALIASES = """
#one = #ttg.linear<{register = [], lane = [[1], [2], [4], [8], [16]], warp = [[32], [64]], block = []}>
#four = #ttg.linear<{register = [[1], [2]], lane = [[4], [8], [16], [32], [64]], warp = [[0], [0]], block = []}>
"""
PARAMETERS = "%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32, %go: i1"
NAMES = {"tt.load": "load", "tt.store": "store", "gpu.barrier": "barrier", "tt.atomic_rmw": "add"}


def tile(layout: str, element: str = "f32") -> str:
    return f"tensor<128x{element}, #{layout}>"


def lines_of(layout: str, base: str) -> str:
    """Pointers %x_one, %y_four and so on, and a value to store."""
    of, number = tile(layout, "!tt.ptr<f32>"), tile(layout, "i32")
    name = f"%{base}_{layout}"
    return (
        f"{name}_s = tt.splat %{base} : !tt.ptr<f32> -> {of}\n"
        f"{name}_r = tt.make_range {{end = 128, start = 0}} : {number}\n"
        f"{name} = tt.addptr {name}_s, {name}_r : ({of}, {number}) -> {of}\n"
    )


HEAD = "".join(lines_of(layout, base) for layout in ("one", "four") for base in "xy") + (
    f"%v_one = arith.constant dense<1.0> : {tile('one')}\n"
    f"%v_four = arith.constant dense<1.0> : {tile('four')}\n"
    "%v = arith.constant 1.0 : f32\n%zero = arith.constant 0 : i32\n%step = arith.constant 1 : i32\n"
)


def line_of(number: int, text: str) -> str:
    """One line of the shorthand: `load x_one`, `store x` (a scalar), or what begins and ends a loop."""
    if text == "loop":
        return "scf.for %k = %zero to %n step %step : i32 {"
    if text == "while":
        return "scf.while () : () -> () {"
    if text == "do":
        return "scf.condition(%go)\n} do {"
    if text == "end":
        return "scf.yield\n}"
    what, place = text.split()
    layout = place.partition("_")[2]
    pointer = tile(layout, "!tt.ptr<f32>") if layout else "!tt.ptr<f32>"
    value = tile(layout) if layout else "f32"
    held = f"%v_{layout}" if layout else "%v"
    if what in ("load", "volatile"):
        how = " {volatile = true}" if what == "volatile" else ""
        return f"%r{number} = tt.load %{place}{how} : {pointer} -> {value}"
    if what == "store":
        return f"tt.store %{place}, {held} : {pointer}, {value}"
    return (
        f'%r{number} = tt.atomic_rmw %{place}, {held} {{kind = "fadd", scope = "gpu", sem = "relaxed"}} : '
        f"({pointer}, {value}) -> {value}"
    )


def order(text: str) -> str:
    """The accesses and barriers after the pass, in short."""
    body = HEAD + "\n".join(line_of(*each) for each in enumerate(text.split(", ")))
    module = kernel(PARAMETERS, body, warps=4, aliases=ALIASES)
    after(module, InsertBarriers(scratch_bytes))
    return ", ".join(NAMES[op.name] for op in module.walk() if op.name in NAMES)


def test_threads_read_what_they_wrote_themselves() -> None:
    assert order("store x_one, load x_one, store x_one") == "store, load, store"


def test_what_another_thread_stored_is_waited_for() -> None:
    assert order("store x_one, load x_four") == "store, barrier, load"
    assert order("load x_four, store x_one") == "load, barrier, store"
    assert order("store x_four, store x_one") == "store, barrier, store"


def test_copies_are_loaded_by_all_and_stored_by_one() -> None:
    assert order("store x_four, load x_four") == "store, barrier, load"
    assert order("load x_four, store x_four") == "load, barrier, store"
    assert order("store x_four, store x_four") == "store, store"


def test_scalars_are_loaded_by_all_threads() -> None:
    assert order("load x, store x, load x") == "load, barrier, store, barrier, load"


def test_other_pointers_are_other_memory() -> None:
    assert order("store x_four, load y_four, store y_one") == "store, load, barrier, store"


def test_loads_wait_for_no_loads() -> None:
    assert order("load x_four, load x_one, load x") == "load, load, load"


def test_atomics_need_no_order_among_themselves() -> None:
    assert order("add x_one, add x_four") == "add, add"
    assert order("add x_one, load x_four") == "add, barrier, load"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("loop, store x_one, load x_four, end", "barrier, store, barrier, load"),
        ("loop, store x_one, end, load x_four", "store, barrier, load"),
        ("loop, load x_one, store x_one, end", "load, store"),
    ],
)
def test_iterations_wait_for_each_other(text: str, expected: str) -> None:
    assert order(text) == expected


def test_loads_that_wait_for_another_program_are_left_alone() -> None:
    assert order("store x, volatile x, store x") == "store, load, store"
    assert order("store x, while, load x, do, end, store x") == "store, load, store"
