"""Code that checks add to a kernel, and code that they leave as it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from check_support import copy_of, launches, with_checks
from native_check_kernels import add, histogram, matmul, neighbours, repeated
from native_support import needs_codegen

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.sites.checks import BOUNDS_KINDS, CheckOptions
from tkdebug.compiler.sites.table import Report, reports
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.compile import compile_module, lower_to_llvm
from tkdebug.interpreter.closer_looks.reported_launch import ReportedLaunch
from tkdebug.interpreter.closer_looks.reports import faults_of

_FAR = ("check.outside", "check.report", "store.")
_ACCESS = re.compile(r"(?:ld|st|cp\.async|atom|red|mma|wgmma)\.[\w.]*global[\w.:]*|wgmma\.mma\S*")


def _add() -> None:
    x = torch.randn(1024)
    add[(2,)](x, x, x, 1024, B=1024)


def _matmul() -> None:
    a, b = torch.randn(64, 96).half(), torch.randn(96, 32).half()
    matmul[(1,)](a, b, torch.zeros(64, 32), 96, M=64, N=32, BK=32)


def _histogram() -> None:
    x = torch.zeros(16, dtype=torch.int32)
    histogram[(1,)](x, x, 16, B=16)


def _scalars() -> None:
    x = torch.randn(8)
    neighbours[(7,)](x, torch.zeros(8), 8)


@tkdebug.jit
def with_priorities(x, y, n, B: tl.constexpr):
    offs = tl.arange(0, B)
    mask = offs < n
    first = tl.load(x + offs, mask, eviction_policy="evict_first")
    last = tl.load(y + offs, mask, eviction_policy="evict_last")
    tl.store(y + offs, first + last, mask, eviction_policy="evict_last")


def _priorities(dtype: torch.dtype) -> None:
    x = torch.ones(1024, dtype=dtype)
    with_priorities[(1,)](x, x.clone(), 1000, B=1024)


RUNS = pytest.mark.parametrize(
    "run", [_add, _matmul, _histogram, _scalars, partial(_priorities, torch.float32)]
)


def llvm_ir(run: Callable[[], object], target: str, checks: CheckOptions | None) -> str:
    module = copy_of(launches(run)[-1])
    return lower_to_llvm(module, NativeOptions(checks=checks), TARGETS[target]).llvm_ir


def accesses(text: str) -> Counter[str]:
    """Accesses of the kernel where all elements lie inside."""
    kernel = text[text.index("define ptx_kernel") :]
    kernel = re.sub(
        r"bra\.uni NEAR;.*?NEAR:|bra\.uni DONE;.*?DONE:|\.reg \.pred here, second;.*?REPORTED:",
        "",
        kernel,
    )
    blocks = re.split(r"^([a-z.]+)\d*:$", kernel, flags=re.M)
    ways = list(zip(("entry", *blocks[1::2]), blocks[::2], strict=True))
    chosen = (body for name, body in ways if not name.startswith(_FAR))
    found = Counter(name for body in chosen for name in _ACCESS.findall(body))
    # Flags, and the report of symptoms at the kernel's end.
    for name in ("st", "red"):
        for kind in ("u64", "or.b64", "max.u64"):
            found.pop(f"{name}.relaxed.gpu.global.{kind}", None)
    found.pop("st.relaxed.sys.global.b64", None)
    return found


@RUNS
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_120a"])
def test_accesses_stay_as_wide(run: Callable[[], object], target: str) -> None:
    bare = accesses(llvm_ir(run, target, None))
    checked = accesses(llvm_ir(run, target, CheckOptions()))
    assert bare
    assert checked == bare


@RUNS
def test_bare_kernel_has_no_trace(run: Callable[[], object]) -> None:
    bare = llvm_ir(run, "sm_90a", None)
    assert "check" not in bare
    assert llvm_ir(run, "sm_90a", CheckOptions()) != bare
    assert llvm_ir(run, "sm_90a", CheckOptions(frozenset())) == bare


@needs_codegen
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_120a"])
def test_checked_code_assembles(target: str) -> None:
    module = copy_of(launches(_matmul)[-1])
    compiled = compile_module(module, NativeOptions(checks=CheckOptions()), TARGETS[target])
    assert compiled.code.spill_store_bytes < 64
    # Function calls could keep wgmma from running asynchronously, which ptxas would say.
    assert not compiled.code.warnings
    binary = compiled.binary()
    assert [(site.kind, site.tensor) for site in binary.check_sites] == [
        ("oob-load", "a"),
        ("oob-load", "b"),
        ("oob-store", "c"),
        ("symptoms", None),
    ]
    assert binary.check_bounds == ("a", "b", "c")


@needs_codegen
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_checked_accesses_with_eviction_priorities_assemble(
    target: str, dtype: torch.dtype
) -> None:
    module = copy_of(launches(partial(_priorities, dtype))[-1])
    compiled = compile_module(module, NativeOptions(checks=CheckOptions()), TARGETS[target])
    hinted = re.findall(r"(?:ld|st)\.global\.\S*L2::cache_hint\S* .*, %rd\d+;", compiled.code.ptx)
    plain = re.findall(r"(?:ld|st)\.global\.L1::evict_\w+\.[bv]", compiled.code.ptx)
    assert bool(hinted) == (target != "sm_75")
    assert bool(plain) == (target == "sm_75")


def test_report_is_read_as_it_was_written() -> None:
    report = Report(1, 1 << 40, 7, 3, 5, -16, 9, 4, True)
    table = bytes(64) + report.packed()
    (found,) = reports(table)
    assert found == replace(report, payload=(1 << 64) - 16)
    with pytest.raises(ValueError, match="multiple of 64"):
        list(reports(table[:-1]))


def test_table_of_another_kernel_is_refused() -> None:
    module, plan = with_checks(launches(_histogram)[-1])
    launch = ReportedLaunch(module.name, 0, (1, 1, 1), {})
    with pytest.raises(ValueError, match="got a table of 64 bytes, expected 192"):
        faults_of(plan, bytes(64), launch)
    dirty = bytes(64) + (1).to_bytes(8, "little") + bytes(120)
    with pytest.raises(ValueError, match="not zero before the launch"):
        faults_of(plan, dirty, launch)


def test_corners_are_tested_where_offsets_are_sums_of_ranges() -> None:
    def gathered() -> None:
        x = torch.zeros(1024, dtype=torch.int32)
        histogram[(1,)](x, x, 1024, B=1024)

    # All threads branch alike where scalars tell.
    assert llvm_ir(_add, "sm_80", CheckOptions()).count("bra.uni DONE") == 3
    assert llvm_ir(_matmul, "sm_80", CheckOptions()).count("bra.uni DONE") == 7
    # What is loaded by offsets is; what it is an offset of has no corners.
    text = llvm_ir(gathered, "sm_80", CheckOptions())
    assert text.count("bra.uni DONE") == 1
    assert len(re.findall(r"^check\.outside\d+:", text, re.M)) == 1


def test_how_accesses_are_tested_is_kept() -> None:
    def run() -> None:
        x, index = torch.randn(64), torch.zeros(64, dtype=torch.int32)
        repeated[(1,)](x, index, torch.zeros(32), 2, B=32)

    module = copy_of(launches(run)[-1])
    options = NativeOptions(checks=CheckOptions(frozenset(BOUNDS_KINDS)), num_stages=1)
    plan = lower_to_llvm(module, options, TARGETS["sm_90a"]).checks
    assert plan is not None
    tests = {plan.op_of(site).name: [] for site in plan.sites}
    for site, test in zip(plan.sites, plan.tests, strict=True):
        tests[plan.op_of(site).name].append(test)
    assert tests == {"tt.load": ["before-loop", "tile", "element"], "tt.store": ["tile"]}


@needs_codegen
@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_each_stored_float_is_in_one_comparison(dtype: torch.dtype, target: str) -> None:
    def run() -> None:
        x = torch.zeros(640, dtype=dtype)
        add[(1,)](x, x, x, 640, B=1024)

    options = NativeOptions(checks=CheckOptions(frozenset(("nan",))))
    ptx = compile_module(copy_of(launches(run)[-1]), options, TARGETS[target]).code.ptx
    (test,) = re.findall(r"\.reg \.pred any.*?\n\}", ptx, re.S)
    compared = re.findall(r"setp\.nan\.or\.(\w+) here, (\S+), (\S+), here", test)
    is_widened = (dtype, target) == (torch.bfloat16, "sm_75")
    pairs = re.findall(r"mov\.b32 [xy], \{low, (\S+)\}", test) if is_widened else []
    named = pairs or [name for _, *names in compared for name in names]
    # Of 128 threads each has 8, and each group of the store has a mask.
    assert len(named) == len(set(named)) == 8
    assert test.count("and.pred here, here, ") == test.count("or.pred any, any, here;") > 0


@needs_codegen
def test_flags_call_nothing_and_share_what_local_memory_they_need() -> None:
    module = copy_of(launches(_matmul)[-1])
    options = NativeOptions(checks=CheckOptions(frozenset(BOUNDS_KINDS)))
    ptx = compile_module(module, options, TARGETS["sm_90a"]).code.ptx
    assert ".func" not in ptx
    (size,) = re.findall(r"\.local \.align 16 \.b8 check_scratch\[(\d+)\];", ptx)
    assert int(size) <= 512
    # Loops alone use it, none of which is in a loop of the kernel.
    for text in re.findall(r"begin inline asm(.*?)end inline asm", ptx, re.S):
        assert ("[check_scratch" in text) == ("NEXT:" in text)
    assert "NEXT:" in ptx
