"""`device_print` of large tiles is one line, the same interpreted and in GPU IR."""

from __future__ import annotations

import re

import pytest
import torch
from check_support import copy_of, gpu_ir, launches
from native_support import needs_codegen

import tkdebug
import tkdebug.language as tl
from tkdebug import knobs
from tkdebug.compiler.passes.asserts_and_prints import SummarisePrints
from tkdebug.compiler.passes.pipeline import PassManager
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.compile import compile_module
from tkdebug.errors import UsageError
from tkdebug.interpreter.launch import run_module
from tkdebug.interpreter.watching.prints import tell_once
from tkdebug.knobs.values import parse_print_elements


@tkdebug.jit
def prints(x_ptr, n_ptr, B: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, B)[:, None] * C + tl.arange(0, C)[None, :]
    tl.device_print("x 5%", tl.load(x_ptr + at), tl.program_id(0), tl.load(n_ptr + at))


@tkdebug.jit
def prints_hex(x_ptr, B: tl.constexpr):
    tl.device_print("x", tl.load(x_ptr + tl.arange(0, B)), hex=True)


def test_floats_in_hex_are_those_of_printf(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.tensor([1.5, -0.0, 0.1, float("inf")])
    with tkdebug.mode("interpret"):
        prints_hex[(1,)](x, B=4)
    shown = [line.rpartition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["0x1.8p+0", "-0x0p+0", "0x1.99999ap-4", "inf"]


def test_indices_are_as_wide_as_the_greatest(capsys: pytest.CaptureFixture[str]) -> None:
    with tkdebug.mode("interpret"), knobs.scope(print_elements=1 << 20):
        run()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("pid (0, 0, 0) idx ( 0,  0) x 5%: (operand 0) ")
    assert lines[511].startswith("pid (0, 0, 0) idx (15, 31) x 5%: (operand 0) ")


def values() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(16, 32)
    x[3, 4], x[5, 6], x[7, 8] = float("nan"), float("inf"), 0.0
    return x, torch.arange(512, dtype=torch.uint8) - 100


def run() -> None:
    prints[(2,)](*values(), B=16, C=32)


def test_large_tiles_are_summarised(capsys: pytest.CaptureFixture[str]) -> None:
    tell_once.cache_clear()
    with tkdebug.mode("interpret"):
        run()
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert len(lines) == 6
    finite = values()[0][values()[0].isfinite()]
    least, mean = float(finite.min()), float(finite.double().mean())
    assert lines[0] == (
        f"pid (0, 0, 0) x 5%: (operand 0) fp32[16, 32]: min {least:g}, max inf, mean {mean:g}, "
        "1 NaN, 1 Inf, 1 zeros"
    )
    assert lines[4] == "pid (1, 0, 0) idx () x 5%: (operand 1) 1"
    assert (
        "(operand 2) uint8[16, 32]: min 0, max 255, mean 127.5, 0 NaN, 0 Inf, 2 zeros" in lines[2]
    )
    assert err.count("prints a summary; TKDEBUG_PRINT_ELEMENTS=all prints each") == 1


def test_gpu_ir_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with tkdebug.mode("interpret"):
        run()
    expected = capsys.readouterr().out.splitlines()
    launch = launches(run)[-1]
    for target in ("sm_80", "sm_90a"):
        module = copy_of(launch)
        PassManager((SummarisePrints(256),), verify_each=True, print_after=()).run(module)
        run_module(gpu_ir(module, target), launch.values, launch.grid)
        # Programs run side by side: they take turns print by print.
        assert sorted(capsys.readouterr().out.splitlines()) == sorted(expected)


@needs_codegen
def test_native_code_prints_few_lines() -> None:
    launch = launches(run)[-1]
    for most, calls in ((256, 3), (None, 9)):
        options = NativeOptions(print_elements=most)
        ptx = compile_module(copy_of(launch), options, TARGETS["sm_90a"]).code.ptx
        assert len(re.findall(r"call\.uni \(retval\d+\),\s*vprintf", ptx)) == calls
    # Printed one by one, indices are as wide as the greatest.
    directives = ", ".join(str(byte) for byte in b"idx (%2u, %2u)")
    assert directives in ptx


@pytest.mark.parametrize("most", ["all", "512"])
def test_all_elements_are_printed_on_demand(most: str, capsys: pytest.CaptureFixture[str]) -> None:
    with tkdebug.mode("interpret"), knobs.scope(print_elements=parse_print_elements(most)):
        run()
    assert len(capsys.readouterr().out.splitlines()) == 2 * (512 + 1 + 512)


def test_number_of_elements_is_read() -> None:
    with pytest.raises(ValueError, match="a number of elements, or all"):
        parse_print_elements("-3")
    with pytest.raises(UsageError), knobs.scope(print_elements="many"):
        pass


@pytest.mark.gpu
@pytest.mark.parametrize("most", ["256", "all"])
def test_gpu_prints_the_same(most: str, capfd: pytest.CaptureFixture[str]) -> None:
    elements = parse_print_elements(most)
    with tkdebug.mode("interpret"), knobs.scope(print_elements=elements):
        run()
    expected = capfd.readouterr().out.splitlines()
    # How much is printed is compiled into a native kernel.
    prints.kernels.clear()
    with tkdebug.mode("native"), knobs.scope(print_elements=elements):
        prints[(2,)](*(value.cuda() for value in values()), B=16, C=32)
        torch.cuda.synchronize()
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(expected)
