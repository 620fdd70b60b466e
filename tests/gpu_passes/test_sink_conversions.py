# ruff: noqa: E501  IR lines are long.
"""`SinkConversions`: loads come first, then what waits for them; results stay."""

from __future__ import annotations

import pytest

from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.passes import PassManager
from tkdebug.compiler.passes.gpu.sink_conversions import SinkConversions

ALIASES = """
#held = #ttg.linear<{register = [[1], [2]], lane = [[4], [8], [16], [32], [64]], warp = [], block = []}>
#other = #ttg.linear<{register = [[32], [64]], lane = [[1], [2], [4], [8], [16]], warp = [], block = []}>
#shared = #ttg.shared_linear<{offset = [[1], [2], [4], [8], [16], [32], [64]]}>
"""
POINTERS, HELD, OTHER = (
    "tensor<128x!tt.ptr<f32>, #held>",
    "tensor<128xf32, #held>",
    "tensor<128xf32, #other>",
)
BUFFER = "!ttg.memdesc<128xf32, #shared>"
SHORT = {
    "load": f"tt.load %p : {POINTERS} -> {HELD}",
    "convert": f"ttg.convert_layout {{0}} : {HELD} -> {OTHER}",
    "fill": f"ttg.local_alloc {{0}} : {HELD} -> {BUFFER}",
    "read": f"ttg.local_load {{0}} : {BUFFER} -> {OTHER}",
    "exp": f"math.exp {{0}} : {OTHER}",
}
NAMES = {text.split()[0]: word for word, text in SHORT.items()}
NAMES |= {"tt.store": "store", "gpu.barrier": "barrier"}


def order(text: str, held_bytes: int = 256) -> str:
    """The ops after the pass; each takes the value of the line that its number names."""
    lines = []
    for number, line in enumerate(text.split(", ")):
        word, *source = line.split()
        given = SHORT[word].format(*(f"%v{name}" for name in source)) if word in SHORT else word
        lines.append(given if given == word else f"%v{number} = {given}")
    body = "\n".join(lines).replace("store", f"tt.store %p, %v0 : {POINTERS}, {HELD}")
    module = parse_module(
        f'{ALIASES}tt.func @k(%p: {POINTERS}) attributes {{arg_names = ["p"], num_warps = 1}} {{\n'
        + body.replace("\nbarrier", "\ngpu.barrier")
        + "\ntt.return\n}"
    )
    PassManager((SinkConversions(held_bytes),), verify_each=True, print_after=()).run(module)
    return ", ".join(NAMES[op.name] for op in module.walk() if op.name in NAMES)


def test_loads_come_before_what_waits_for_them() -> None:
    assert order("load, convert 0, load, convert 2") == "load, load, convert, convert"


def test_what_depends_on_a_conversion_comes_with_it() -> None:
    got = order("load, convert 0, exp 1, load, convert 3, exp 4")
    assert got == "load, load, convert, exp, convert, exp"


def test_buffers_are_filled_before_any_is_read() -> None:
    got = order("load, fill 0, read 1, load, fill 3, read 4, load")
    assert got == "load, load, load, fill, fill, read, read"


@pytest.mark.parametrize("between", ["store", "barrier"])
def test_nothing_passes_an_op_with_effects(between: str) -> None:
    text = f"load, convert 0, {between}, load, convert 3"
    assert order(text) == text.replace(" 0", "").replace(" 3", "")


def test_conversions_without_a_load_behind_them_stay() -> None:
    assert order("load, load, convert 0, exp 2, convert 1") == "load, load, convert, exp, convert"


def test_registers_that_are_held_are_limited() -> None:
    """A thread holds 16 bytes of each."""
    text = "load, convert 0, load, convert 2, load, convert 4, load, convert 6"
    one_ahead = "load, load, convert, load, convert, load, convert, convert"
    assert order(text, held_bytes=32) == one_ahead
    assert order(text, held_bytes=16) == ", ".join(["load, convert"] * 4)
