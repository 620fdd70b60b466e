"""Arguments that are blamed for accesses that are narrow because addresses may begin anywhere."""

from types import SimpleNamespace

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.analysis.axis_info import analyse
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.frontend import compile_to_tile_ir
from tkdebug.compiler.ops.emitter import CompileOptions
from tkdebug.runtime.advising.accesses import MisalignedArguments, unneeded_bytes


@tkdebug.jit
def rows(x, m, n, stride):
    group = tl.minimum(tl.cdiv(m, 64) - tl.program_id(0) // 8, 8)
    r = (tl.program_id(0) % group) * 64 + tl.arange(0, 64)
    c = (tl.program_id(0) // group) * 64 + tl.arange(0, 64)
    tl.load(x + r[:, None] * stride + c[None, :])


@tkdebug.jit
def wrapped_rows(x, m, n, stride):
    r = (tl.program_id(0) * 64 + tl.arange(0, 64)) % m
    tl.load(x + r[:, None] * stride + tl.arange(0, 64)[None, :])


@tkdebug.jit
def carried(x, m, n, stride):
    pointers = x + tl.arange(0, 64)
    for _ in range(0, m):
        tl.load(pointers)
        pointers += 64 * n + stride


@tkdebug.jit
def shifted(x, m, n, stride):
    tl.load(x + 1 + tl.program_id(0) * stride + tl.arange(0, 64))


@tkdebug.jit
def looked_up(x, m, n, stride):
    tl.load(x + tl.load(x + m).to(tl.int32) + n + tl.arange(0, 64))


@tkdebug.jit
def from_argument(x, m, n, stride):
    tl.load(x + m + tl.program_id(0) * n * stride + tl.arange(0, 64))


def blamed(kernel, aligned=("x",)):
    names = ("x", "m", "n", "stride")
    specs = {"x": dt.pointer_type(dt.float16)} | dict.fromkeys(names[1:], dt.int32)
    function = compile_to_tile_ir(kernel, specs, CompileOptions()).function
    function.attributes["arg_divisibility"] = tuple(16 if n in aligned else 1 for n in names)
    load = [op for op in function.walk() if tt.Load.matches(op)][-1]
    pointer = tt.Load(load).pointer
    axis = len(pointer.type.shape) - 1
    return MisalignedArguments(function, analyse(function)).text(pointer, axis)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (rows, "`stride` is not known to be a multiple of 16 (pad rows so that it is)"),
        (wrapped_rows, "`stride` is not known to be a multiple of 16 (pad rows so that it is)"),
        (carried, "`stride` is not known to be a multiple of 16 (pad rows so that it is)"),
        (
            from_argument,
            "`m`, `n` and `stride` are not known to be multiples of 16 (pad rows so that they are)",
        ),
        (shifted, ""),
        (looked_up, ""),
    ],
)
def test_only_arguments_that_would_help_are_named(kernel, expected):
    assert blamed(kernel) == expected


def test_pointer_that_is_not_aligned_is_named_as_such():
    assert blamed(rows, ("stride",)) == "`x` is not known to be aligned to 16"


def test_nothing_is_named_where_all_is_aligned():
    assert blamed(rows, ("x", "stride")) == ""


def test_accesses_that_fill_each_others_gaps_waste_nothing():
    def every(step, first):
        seen = torch.zeros(48, dtype=torch.bool)
        seen[first::step] = True
        return SimpleNamespace(seen=seen, itemsize=4)

    footprints = {(1, "red"): every(3, 0), (1, "green"): every(3, 1), (2, "one"): every(8, 0)}
    accesses = {op: SimpleNamespace(kind="load") for _, op in footprints}
    profile = SimpleNamespace(footprints=footprints, accesses=accesses)
    assert unneeded_bytes(profile) == {"red": 32, "green": 32, "one": 6 * 28}
    footprints[1, "blue"] = every(3, 2)
    accesses["blue"] = SimpleNamespace(kind="load")
    assert unneeded_bytes(profile) == {"red": 0, "green": 0, "blue": 0, "one": 6 * 28}
