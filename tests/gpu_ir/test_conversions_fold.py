"""`Canonicalize` on layout conversions."""

from __future__ import annotations

import pytest
from gpu_ir_support import after, kernel

from tkdebug.compiler.passes import Canonicalize

A = "tensor<32xf32, #line>"
B = (
    "tensor<32xf32, #ttg.linear<{register = [], lane = [[2], [1], [4], [8], [16]], warp = [], "
    "block = []}>>"
)


@pytest.mark.parametrize(
    "body",
    [
        f"%v = tt.splat %x : f32 -> {A}\n%r = ttg.convert_layout %v : {A}",
        f"%v = tt.splat %x : f32 -> {B}\n%r = ttg.convert_layout %v : {B} -> {A}",
        f"%v = arith.constant dense<1.0> : {B}\n%r = ttg.convert_layout %v : {B} -> {A}",
        f"%v = tt.splat %x : f32 -> {A}\n%w = math.exp %v : {A}\n"
        f"%u = ttg.convert_layout %w : {A} -> {B}\n%r = ttg.convert_layout %u : {B} -> {A}",
    ],
)
def test_conversion_that_moves_nothing_goes(body: str) -> None:
    text = after(kernel("%x: f32", f"{body}\ntt.print %r : {A}"), Canonicalize())
    users = [line for line in text.splitlines() if "tt.print" in line]
    source = users[0].split()[1]
    made = next(line for line in text.splitlines() if line.strip().startswith(f"{source} ="))
    assert "convert_layout" not in made


def test_conversion_that_moves_data_stays() -> None:
    body = f"%v = tt.splat %x : f32 -> {A}\n%w = math.exp %v : {A}\n"
    body += f"%r = ttg.convert_layout %w : {A} -> {B}\ntt.print %r : {B}"
    assert "convert_layout" in after(kernel("%x: f32", body), Canonicalize())
