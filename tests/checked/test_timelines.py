"""Timelines of warps: which ops are sites, what is written where, and what sessions have of it."""

from __future__ import annotations

import json
import struct

import pytest
import torch
from check_support import copy_of, launches
from native_check_kernels import add, matmul
from native_support import needs_codegen

import tkdebug
from tkdebug.compiler.sites.checks import CheckOptions
from tkdebug.compiler.sites.clocks import (
    TimelineOptions,
    TimelinePlan,
    timelines_of,
    warp_bytes,
)
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.compile import compile_module, lower_to_llvm
from tkdebug.errors import Frame, UsageError
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.renderers.timeline_section import _programs
from tkdebug.instrument.report import write_report
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.checked.builds import timeline_options
from tkdebug.runtime.checked.checked_launches import CHECKED
from tkdebug.timelines import (
    ClockSite,
    Span,
    TimelineRequest,
    WarpTimeline,
    read_request,
    requested,
)


def matmul_module():
    a, b = torch.randn(64, 96).half(), torch.randn(96, 32).half()
    run = lambda: matmul[(1,)](a, b, torch.zeros(64, 32), 96, M=64, N=32, BK=32)  # noqa: E731
    return copy_of(launches(run)[-1])


def with_timeline(programs=(0, 3), marks=64):
    return CheckOptions(frozenset(), timeline=TimelineOptions(programs, marks))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_sites_are_what_takes_time(target):
    lowered = lower_to_llvm(matmul_module(), NativeOptions(checks=with_timeline()), TARGETS[target])
    plan = lowered.checks.timeline
    ops = [site.op for site in plan.sites]
    assert "tt.store" in ops
    assert any("dot" in op for op in ops)
    assert not {"tt.addptr", "tt.make_range", "tt.splat", "tt.return"} & set(ops)
    assert not any(op.startswith("arith.") and "f" not in op for op in ops)
    assert {site.loops for site in plan.sites} == {0, 1}
    # Each reading is there once in the code, and nowhere in bare code.
    assert lowered.llvm_ir.count("%clock; cvt") == len(plan.sites)
    bare = lower_to_llvm(matmul_module(), NativeOptions(), TARGETS[target])
    assert "%clock" not in bare.llvm_ir
    assert bare.checks is None


@needs_codegen
def test_loops_stay_pipelined():
    target, found = TARGETS["sm_90a"], []
    for checks in (None, with_timeline()):
        compiled = compile_module(matmul_module(), NativeOptions(checks=checks), target)
        binary = compiled.binary()
        found.append((binary.ptx.count("wgmma.mma_async"), binary.ptx.count("cp.async.cg")))
        assert binary.spill_bytes == 0
    assert found[0] == found[1]
    assert found[0][0] > 0


SITES = (
    ClockSite("tt.load", 0, (Frame("/k.py", 3, "k"),)),
    ClockSite("tt.store", 0, (Frame("/k.py", 4, "k"),)),
)


def memory(plan, warps):
    """Return the data that a launch leaves: a header and marks for each (program's place, warp)."""
    data = bytearray(plan.size_bytes)
    for (place, warp), (header, marks) in warps.items():
        first = (place * plan.warps + warp) * warp_bytes(plan.options.marks)
        struct.pack_into("<QQQQ", data, first, *header)
        for number, mark in enumerate(marks):
            struct.pack_into("<II", data, first + 32 + 8 * number, *mark)
    return bytes(data)


def test_what_a_launch_leaves_is_read():
    plan = TimelinePlan(TimelineOptions((0, 9, 3), marks=2), 2, SITES)
    assert plan.size_bytes == 3 * 2 * 8 * 6
    # The clock wraps in between; the second warp had no room for a mark; program 9 is not there.
    header = (1000, 2000, 7 << 32 | 0xFFFFFFF0, 2 << 32 | 0x20)
    more = (1000, 2000, 8 << 32 | 100, 3 << 32 | 700)
    data = memory(
        plan,
        {
            (0, 0): (header, [(0xFFFFFFF8, 0), (0x10, 1)]),
            (2, 1): (more, [(200, 0), (300, 1)]),
        },
    )
    first, second = timelines_of(plan, data, "k", 5, (4, 1, 1))
    assert (first.program, first.warp, first.sm, first.cycles) == (0, 0, 7, 0x30)
    assert list(first.spans()) == [
        Span(None, 0, 8),
        Span(SITES[0], 8, 0x18),
        Span(SITES[1], 0x20, 0x10),
    ]
    assert sum(span.cycles for span in first.spans()) == first.cycles
    assert (second.program, second.warp, second.lost) == (3, 1, 1)
    # Nothing is known after the last mark that was kept.
    assert [span.cycles for span in second.spans()] == [100, 100]


@pytest.mark.parametrize(
    ("text", "programs"), [("k", (0,)), ("k@7", (7,)), ("k@0:3,9", (0, 1, 2, 9)), ("k@1,1", (1,))]
)
def test_requests(text, programs):
    assert read_request(text) == TimelineRequest("k", programs)
    assert read_request(read_request(text).text) == read_request(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("@3", "no kernel"),
        ("k@", "'' is not a program"),
        ("k@x", "'x' is not a program"),
        ("k@4:4", "'4:4' has no program in it"),
        ("k@0:65", "more than 64 programs"),
        ("k@-1", "'-1' is not a program"),
    ],
)
def test_bad_requests(text, reason):
    with pytest.raises(UsageError, match=reason):
        read_request(text)


def test_kernels_are_chosen_by_pattern():
    requests = (read_request("mat*@1"), read_request("*@2"))
    assert requested(requests, "matmul").programs == (1,)
    assert requested(requests, "softmax").programs == (2,)
    assert requested(requests[:1], "softmax") is None
    with KNOBS.scope(timelines=("mat*@1",)):
        assert timeline_options("matmul").timeline.programs == (1,)
        assert timeline_options("softmax") is None


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([3], "program 3"), ([0, 1, 2, 7], "programs 0 to 2, 7"), ([4, 5], "programs 4 to 5")],
)
def test_programs_are_reported_as_runs(numbers, text):
    assert _programs(numbers) == text


def test_a_session_tells_where_cycles_went(tmp_path):
    source = tmp_path / "k.py"
    source.write_text("1\n2\nx = tl.load(p)\ntl.store(q, x)\n")
    sites = tuple(
        ClockSite(site.op, site.loops, (Frame(str(source), site.frames[0].line, "k"),))
        for site in SITES
    )
    path = tmp_path / "run.tkd"
    with Recorder(path, script="s", output=False) as recorder:
        for warp in range(2):
            recorder._on_record(
                WarpTimeline(
                    "k", 4, (2, 1, 1), 0, warp, 11, 5000, 6000, 0, 1000, sites,
                    ((100, 0), (700, 1)), 0,
                )
            )  # fmt: skip
    with Session.open(path) as session:
        texts = {}
        for name in ("text", "chrome-trace"):
            write_report(session, tmp_path / name, name, kept=True)
            texts[name] = (tmp_path / name).read_text()
    assert "inside launch 4 of k: program 0, 2 warps, up to 1,000 cycles (1.00 µs)" in texts["text"]
    assert "   60.0 %        600 cycles x 2      k.py:3\n" in texts["text"]
    events = [one for one in json.loads(texts["chrome-trace"])["traceEvents"] if "cat" in one]
    assert [(one["name"], one["dur"]) for one in events[:3]] == [
        ("(before the first op)", 0.1),
        ("k.py:3 tt.load", 0.6),
        ("k.py:4 tt.store", 0.3),
    ]
    assert len({one["tid"] for one in events}) == 2


@pytest.mark.gpu
def test_a_launch_on_the_gpu_has_timelines():
    found = []
    hook = Hook(record=found.append)
    x = torch.randn(1 << 16, device="cuda")
    out = torch.empty_like(x)
    add.kernels.clear()
    HOOKS.add(hook)
    try:
        with tkdebug.mode("native"), KNOBS.scope(timelines=("add@0,63,5000",)):
            for _ in range(5):
                add[(64,)](x, x, out, 1 << 16, B=1024, num_warps=4)
            CHECKED.conclude()
    finally:
        HOOKS.remove(hook)
        add.kernels.clear()
    torch.testing.assert_close(out, x + x)
    found = [one for one in found if isinstance(one, WarpTimeline)]
    assert len(found) == 3 * 2 * 4  # three launches, two programs of three, four warps
    assert {one.program for one in found} == {0, 63}
    for one in found:
        assert one.lost == 0
        assert 0 < one.cycles < 1_000_000
        ops = [one.sites[number].op for _, number in one.marks]
        assert (ops[0], ops[-1]) == ("tt.load", "tt.store")
        assert all(span.cycles >= 0 for span in one.spans())


@pytest.mark.gpu
def test_an_iteration_is_read_each_time():
    a = torch.randn(64, 96, device="cuda").half()
    b = torch.randn(96, 32, device="cuda").half()
    out = torch.zeros(64, 32, device="cuda")
    found = []
    hook = Hook(record=found.append)
    matmul.kernels.clear()
    HOOKS.add(hook)
    try:
        with tkdebug.mode("native"), KNOBS.scope(timelines=("matmul",)):
            matmul[(1,)](a, b, out, 96, M=64, N=32, BK=32, num_warps=4)
            CHECKED.conclude()
    finally:
        HOOKS.remove(hook)
        matmul.kernels.clear()
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-2, atol=1e-2)
    for one in (one for one in found if isinstance(one, WarpTimeline)):
        dots = [n for _, n in one.marks if one.sites[n].loops and "dot" in one.sites[n].op]
        assert len(dots) % 3 == 0 < len(dots)  # three blocks of 32
        assert sum(span.cycles for span in one.spans()) == one.cycles
